"""What named keys count together, and intervals of single counts: both cover by exact summation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.laws.thresholds import CountThreshold
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.sketches.histogram.calibration import gaussian, plain_laplace, truncated_laplace
from dpsketch.sketches.histogram.intervals import selective, sum_width
from dpsketch.truncated import TruncatedLaplace
from oracles.laws import masses

RECORD = dps.per_record()


def histogram(sizes: np.ndarray) -> dps.Histogram:
    sketch = dps.Histogram(unit=RECORD, key_type="int")
    sketch.update(np.arange(len(sizes)), counts=sizes)
    return sketch


def sizes_of(law: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    return {
        "flat": np.full(5_000, 20),
        "poisson": rng.poisson(25, 5_000),
        "zipf": np.minimum(rng.zipf(1.8, 20_000), 10_000),
    }[law]


@pytest.mark.parametrize(("law", "form"), [("flat", "truncated"), ("zipf", "truncated"), ("zipf", "gaussian")])
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


@pytest.mark.parametrize(
    "listing",
    [truncated_laplace(1.0, 1e-6, 1, False), plain_laplace(0.5, 1e-4, 3, 4, True), gaussian(1.0, 1e-6, 1, 1, False)],
    ids=lambda each: each.words,
)
def test_every_true_count_is_covered_given_that_it_is_listed(listing: CountThreshold) -> None:
    """Summed, not sampled: how often a true count lies in its interval, among the noisy ones that are listed."""
    law, cutoff = listing.noise, listing.cutoff
    reach = law.bound if isinstance(law, TruncatedLaplace) else math.ceil(28 * math.sqrt(law.variance)) + 2
    mass, near = masses(law, reach), range(max(1, cutoff - 12), cutoff + 13)
    far = cutoff + math.ceil(8 * math.sqrt(law.variance))
    for true in sorted({*near, *np.linspace(1, far, 25).astype(int).tolist()}):
        y = true + np.arange(-reach, reach + 1)
        chance, y = mass[y >= cutoff], y[y >= cutoff]
        for tail in (0.025, 0.0005):
            low, high = selective(y, law, cutoff, tail)
            covered = chance[(low <= true) & (true <= high)].sum() / chance.sum()
            assert covered >= 1 - 2 * tail - 1e-9


@pytest.mark.parametrize("law", [DiscreteLaplace(0.1, 1), TruncatedLaplace(1.0, 14), RoundedGaussian(4.2)], ids=repr)
@pytest.mark.parametrize("counts", [2, 50])
def test_widths_of_sums_cover_and_are_no_wider_than_they_need_be(law: Any, counts: int) -> None:
    """Exact: the law of the sum by convolution. Two steps and a tenth less would not cover."""
    single = masses(law, law.bound if isinstance(law, TruncatedLaplace) else 40 * math.ceil(math.sqrt(law.variance)))
    size = 1 << (len(single) * counts).bit_length()
    summed = np.fft.irfft(np.fft.rfft(single, size) ** counts, size)[: counts * (len(single) - 1) + 1]
    for tail in (0.25, 0.05, 0.025, 0.005, 0.0005):
        width, middle = sum_width(law, counts, tail), len(summed) // 2
        less = max(0, int(0.9 * width) - 2)
        covered, fewer = (float(summed[middle - each : middle + each + 1].sum()) for each in (width, less))
        assert covered >= 1 - 2 * tail - 1e-9
        assert tail != 0.025 or fewer < 1 - 2 * tail
