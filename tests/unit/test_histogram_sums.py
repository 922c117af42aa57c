"""What named keys count together: noisy sums, posterior sums where a power law fits, and their intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.core.drawn import Drawn, Part
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.sketches.histogram.calibration import gaussian, truncated_laplace
from dpsketch.sketches.histogram.intervals import log_reaching, misfit, posterior_is_cheap, prior_exponent, sum_width
from dpsketch.truncated import Law, TruncatedLaplace

Integers = npt.NDArray[np.int64]

RECORD = dps.per_record()


def histogram(sizes: Integers) -> dps.Histogram:
    sketch = dps.Histogram(unit=RECORD, key_type="int")
    sketch.update(np.arange(len(sizes)), counts=sizes)
    return sketch


def sizes_of(law: str) -> Integers:
    rng = np.random.default_rng(3)
    return {
        "flat": np.full(5_000, 20),
        "poisson": rng.poisson(25, 5_000),
        "uniform": rng.integers(1, 100, 5_000),
        "zipf": np.minimum(rng.zipf(1.8, 20_000), 10_000),
    }[law]


@pytest.mark.parametrize("form", ["truncated", "gaussian"])
@pytest.mark.parametrize("law", ["flat", "poisson", "uniform", "zipf"])
def test_sums_of_named_keys_are_covered_whatever_their_law(law: str, form: Any) -> None:
    """Of 16 sums; each may miss with 5%, but the interval is conservative: fewer than .75 with less than 1e-2."""
    sizes, covered = sizes_of(law), []
    sketch = histogram(sizes)
    for _ in range(8):
        private = sketch.release(epsilon=1.0, delta=1e-6, form=form)
        for keys in (private.keys, [key for key in private.keys if key % 3 == 0]):
            found = private.sum(keys)
            covered.append(found.low <= sizes[keys].sum() <= found.high)
            assert found.value == sum(private.estimate(keys).value)
            assert found.posterior is None or found.low <= found.posterior <= found.high
    assert np.mean(covered) >= 0.75


@pytest.mark.parametrize("form", ["truncated", "gaussian"])
def test_posterior_sums_are_nearer_where_counts_follow_a_power_law(form: Any) -> None:
    """Less than 60% of the noisy sum's distance over eight releases, see the means' own test for the rate."""
    sizes = sizes_of("zipf")
    sketch, noisy, posterior = histogram(sizes), 0.0, 0.0
    for _ in range(8):
        private = sketch.release(epsilon=1.0, delta=1e-6, form=form)
        truth, found = sizes[private.keys].sum(), private.sum()
        assert found.posterior is not None
        noisy += found.value - truth
        posterior += found.posterior - truth
    assert noisy > 0
    assert abs(posterior) < 0.6 * noisy


@pytest.mark.parametrize("law", ["flat", "poisson", "uniform"])
def test_no_posterior_sum_is_offered_where_no_power_law_fits(law: str) -> None:
    """It would be further off than the noisy sum. All other keys are worked out by noisy counts then."""
    private = histogram(sizes_of(law)).release(epsilon=1.0, delta=1e-6, others=True)
    assert private.sum().posterior is None
    assert "posterior" not in private.sum().to_json()
    assert private.rest is not None
    assert private.others is not None
    assert private.others.value == max(0, private.rest - private.sum().value)


def test_posterior_sums_enter_the_count_of_all_others() -> None:
    private = histogram(sizes_of("zipf")).release(epsilon=1.0, delta=1e-6, others=True)
    found = private.sum()
    assert private.rest is not None
    assert private.others is not None
    assert found.posterior is not None
    assert found.to_json()["posterior"] == found.posterior
    assert private.others.value == pytest.approx(private.rest - found.posterior)


@pytest.mark.parametrize("cutoff", [10**6, 10**15])
def test_a_cutoff_that_nobody_needs_costs_a_reader_nothing(cutoff: int) -> None:
    """A file with a far higher cutoff keeps its promise; cells for every count below it would fill any memory."""
    drawn = histogram(np.full(50, 10**16)).release(epsilon=1.0, delta=1e-6, others=True)
    (receipt,) = drawn.drawn.receipts
    law = replace(drawn.law, cutoff=cutoff)
    parts = {"entries": Part(law, drawn.drawn.parts["entries"].arrays)}
    higher = Drawn.of(drawn.spec, [replace(receipt, laws=(law,))], parts)
    private = dps.load(files.encode(dps.PrivateHistogram(drawn.spec, higher).to_document()))
    assert private.sum().posterior is None
    assert private.facts()["threshold"] == cutoff


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 10.0])
def test_every_cutoff_that_a_budget_asks_for_has_posterior_means(epsilon: float) -> None:
    for found in (truncated_laplace(epsilon, 1e-15, 1, True), gaussian(epsilon, 1e-15, 10, 7, True)):
        assert posterior_is_cheap(found.noise, found.cutoff)


def test_a_list_has_no_threshold_to_take_back() -> None:
    """The listed count is exact up to its own noise; .95 of 60 sums of three hold: below .8 with less than 1e-5."""
    sizes = sizes_of("zipf")
    sketch, held = histogram(sizes), []
    for _ in range(60):
        private = sketch.release(epsilon=1.0, delta=0, keys=[0, 1, 2, 3])
        found = private.sum([0, 1, 2, np.int64(2)])
        assert found.posterior is None
        held.append(found.low <= sizes[:3].sum() <= found.high)
        assert found.high - found.low < 40
    assert np.mean(held) >= 0.8


def test_keys_listed_and_found_are_summed_together() -> None:
    sizes = sizes_of("zipf")
    private = histogram(sizes).release(epsilon=1.0, delta=1e-6, keys=[0, 1], unknown=True)
    both = private.sum([0, *private.found[:5]])
    assert both.value == private.sum([0]).value + private.sum(private.found[:5]).value
    assert private.sum([]).value == 0.0


ALONE = 3_000


def weighted_users(crowd: int) -> dps.Histogram:
    """Users with six keys of weights 1 and 10, of which two count; and users with one rare key of their own each."""
    sketch = dps.Histogram(unit=dps.per_user(max_keys=2, max_weight=10), key_type="int")
    keys = np.tile(np.arange(6), crowd)
    sketch.update(keys, users=np.repeat(np.arange(crowd), 6), weights=np.where(keys < 3, 1, 10))
    alone = 10**6 + np.arange(ALONE)
    sketch.update(alone, users=alone)
    return sketch


@pytest.mark.parametrize("form", ["laplace", "gaussian"])
def test_the_total_counts_the_keys_that_the_named_counts_count(form: Any) -> None:
    """At this ε all noise is 0: total less named is what the rare keys have, whichever keys of a user were chosen."""
    with seeded_noise_for_tests_only(8):
        private = weighted_users(400).release(epsilon=5e5, delta=1e-6, form=form, others=True, keys=[5], unknown=True)
    found = [key for key in private.found if key < 6]
    assert len(found) == 5
    assert private.rest is not None
    assert private.rest - private.sum().value == ALONE - (len(private.found) - len(found))


@pytest.mark.parametrize("form", ["laplace", "gaussian"])
def test_all_other_keys_are_covered_where_a_users_keys_are_chosen_by_weight(form: Any) -> None:
    """Sixty 95% intervals: fewer than 48 hold with probability below 1e-5. The rare keys are never cut or named.

    The twin takes the total of another release, which chose other keys of each user: it covers too rarely.
    """
    sketch = weighted_users(8_000)
    with seeded_noise_for_tests_only(9):
        made = [sketch.release(epsilon=3.0, delta=1e-6, form=form, others=True) for _ in range(60)]
    assert all(private.keys == list(range(6)) for private in made)

    def covered(releases: list[dps.PrivateHistogram]) -> float:
        others = [private.others for private in releases]
        return float(np.mean([each is not None and each.low <= ALONE <= each.high for each in others]))

    assert covered(made) >= 0.8
    mixed = [with_rest_of(private, other) for private, other in zip(made, [*made[1:], made[0]], strict=True)]
    assert covered(mixed) < 0.7


def with_rest_of(private: dps.PrivateHistogram, other: dps.PrivateHistogram) -> dps.PrivateHistogram:
    one, two = (each.drawn.parts["entries"] for each in (private, other))
    part = one._replace(arrays={**one.arrays, "others": two.arrays["others"]})
    return dps.PrivateHistogram(private.spec, replace(private.drawn, parts={"entries": part}))


def test_what_cannot_be_summed_is_refused() -> None:
    private = histogram(sizes_of("zipf")).release(epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidInput, match="not named by this release"):
        private.sum([10**9])
    with pytest.raises(InvalidInput, match="confidence"):
        private.sum(confidence=1.5)
    users = dps.Histogram(unit=dps.per_user(20), key_type="int")
    users.update(np.zeros(500, np.int64), users=np.arange(500))
    with pytest.raises(InvalidInput, match="names only"):
        users.release(epsilon=1.0, delta=1e-6, form="weighted", names_only=True).sum()


LAWS: list[Law] = [DiscreteLaplace(0.1, 1), DiscreteLaplace(1.0, 1), TruncatedLaplace(1.0, 14), RoundedGaussian(4.2)]


@pytest.mark.parametrize("law", [*LAWS, DiscreteLaplace(3.0, 1)], ids=repr)
@pytest.mark.parametrize("counts", [1, 2, 5, 50])
def test_widths_of_sums_against_convolutions(law: Law, counts: int) -> None:
    """Exact: the law of the sum by convolution. It covers, and two steps and a tenth less would not."""
    reach = 40 * int(np.sqrt(law.variance) + 1)
    tails = np.exp(log_reaching(law, np.arange(-reach, reach + 2)))
    single = tails[:-1] - tails[1:]
    size = 1 << (2 * reach * (1 + int(np.sqrt(counts)))).bit_length()
    wrapped = np.zeros(size)
    np.add.at(wrapped, np.arange(-reach, reach + 1) % size, single)
    law_of_sum = np.fft.irfft(np.fft.rfft(wrapped) ** counts, size)

    def covered(width: int) -> float:
        return float(law_of_sum[: width + 1].sum() + law_of_sum[size - width :].sum() * (width > 0))

    for tail in (0.25, 0.05, 0.025, 0.005, 0.0005):
        width = sum_width(law, counts, tail)
        assert covered(width) >= 1 - 2 * tail - 1e-9
        if tail == 0.025:
            assert covered(max(0, int(0.9 * width) - 2)) < 1 - 2 * tail


def test_no_noise_has_no_width() -> None:
    assert sum_width(DiscreteLaplace(1.0, 1), 0, 0.025) == 0


@pytest.mark.parametrize("law", [TruncatedLaplace(1.0, 14), RoundedGaussian(4.2)], ids=repr)
def test_misfit_is_the_largest_difference_of_shares(law: Law) -> None:
    """Against plain sums over all true counts."""
    cutoff = 15
    counts = np.array([15, 15, 16, 19, 25, 40, 90], np.int64)
    s = prior_exponent(counts, law, cutoff)
    c = np.arange(1.0, 20_000)
    values = np.arange(cutoff, 120)
    predicted = np.zeros(len(values))
    reaching = [np.exp(log_reaching(law, value - c)) for value in (*values, values[-1] + 1)]
    for place in range(len(values)):
        predicted[place] = (c**-s * (reaching[place] - reaching[place + 1])).sum()
    shares = np.cumsum(predicted) / (c**-s * reaching[0]).sum()
    seen = np.searchsorted(counts, values, side="right") / len(counts)
    # What true counts beyond the sum have of the prior is left out of it.
    assert misfit(counts, law, cutoff) == pytest.approx(np.abs(seen - shares).max(), abs=5e-3)
