"""What named keys count together, and intervals of single counts: both cover by exact summation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.core.drawn import Drawn, Part
from dpsketch.errors import InvalidInput
from dpsketch.laws.thresholds import CountThreshold
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.sketches.histogram.calibration import gaussian, plain_laplace, truncated_laplace
from dpsketch.sketches.histogram.intervals import (
    log_reaching,
    selective,
    sum_width,
)
from dpsketch.truncated import Law, TruncatedLaplace
from oracles.laws import masses

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
        "zipf": np.minimum(rng.zipf(1.8, 20_000), 10_000),
    }[law]


@pytest.mark.parametrize("form", ["truncated", "gaussian"])
@pytest.mark.parametrize("law", ["flat", "zipf"])
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


@pytest.mark.parametrize("law", ["flat", "poisson", "zipf"])
def test_no_posterior_sum_is_offered_where_no_power_law_fits(law: str) -> None:
    """It would be further off than the noisy sum; all other keys are worked out by whichever is offered."""
    private = histogram(sizes_of(law)).release(epsilon=1.0, delta=1e-6, others=True)
    found = private.sum()
    assert (found.posterior is None) == (law != "zipf")
    assert ("posterior" in found.to_json()) == (law == "zipf")
    assert private.rest is not None
    assert private.others is not None
    named = found.value if found.posterior is None else found.posterior
    assert private.others.value == pytest.approx(max(0, private.rest - named))


def test_a_cutoff_that_nobody_needs_costs_a_reader_nothing() -> None:
    """A file with a far higher cutoff keeps its promise; cells for every count below it would fill any memory."""
    cutoff = 10**15
    drawn = histogram(np.full(50, 10**16)).release(epsilon=1.0, delta=1e-6, others=True)
    (receipt,) = drawn.drawn.receipts
    law = replace(drawn.law, cutoff=cutoff)
    parts = {"entries": Part(law, drawn.drawn.parts["entries"].arrays)}
    higher = Drawn.of(drawn.spec, [replace(receipt, laws=(law,))], parts)
    private = dps.load(files.encode(dps.PrivateHistogram(drawn.spec, higher).to_document()))
    assert private.sum().posterior is None
    assert private.facts()["threshold"] == cutoff


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


LAWS: list[Law] = [DiscreteLaplace(0.1, 1), TruncatedLaplace(1.0, 14), RoundedGaussian(4.2)]


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("counts", [2, 50])
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


LISTINGS = [
    truncated_laplace(1.0, 1e-6, 1, False),
    truncated_laplace(0.1, 1e-5, 2, True),
    plain_laplace(0.5, 1e-4, 3, 4, True),
    gaussian(1.0, 1e-6, 1, 1, False),
]


def reach_of(law: Law) -> int:
    return law.bound if isinstance(law, TruncatedLaplace) else math.ceil(28 * math.sqrt(law.variance)) + 2


def coverage(listing: CountThreshold, true: int, tail: float) -> float:
    """How often a true count lies in its interval, given that it is listed: summed, not sampled."""
    law, reach = listing.noise, reach_of(listing.noise)
    y = true + np.arange(-reach, reach + 1)
    listed = y >= listing.cutoff
    chance, y = masses(law, reach)[listed], y[listed]
    low, high = selective(y, law, listing.cutoff, tail)
    return float(chance[(low <= true) & (true <= high)].sum() / chance.sum())


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda each: each.words)
def test_every_true_count_is_covered_given_that_it_is_listed(listing: CountThreshold) -> None:
    far = listing.cutoff + math.ceil(8 * math.sqrt(listing.noise.variance))
    near = range(max(1, listing.cutoff - 12), listing.cutoff + 13)
    for true in sorted({*near, *np.linspace(1, far, 25).astype(int).tolist()}):
        for tail in (0.025, 0.0005):
            assert coverage(listing, true, tail) >= 1 - 2 * tail - 1e-9
