"""Distinct counts: what they take, refuse, merge and write, and how good they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpsketch import noise
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.privacy import PureCost, per_record, per_user
from dpsketch.sketches.distinct import DistinctSketch, DistinctSpec


def sketch(keys: Any = None, **changed: Any) -> DistinctSketch:
    built = DistinctSketch(**{"unit": per_record(), "buckets": 256, **changed})
    if keys is not None:
        built.update(keys)
    return built


def test_repeated_keys_count_once_and_nulls_are_skipped() -> None:
    once, often = sketch(["a", "b"]), sketch(["a", "b", "a", None, "b"])
    assert often.skipped_nulls == 1
    assert once._exact()["ones"] == often._exact()["ones"] == 2


def test_the_mean_number_of_ones_is_that_of_balls_in_cells() -> None:
    """Two keys share their bit with probability Σ 4^−(l+1)/buckets."""
    spec = DistinctSpec(16, per_record())
    assert spec.ones(0) == 0
    assert spec.ones(1) == pytest.approx(1, rel=1e-12)
    assert spec.ones(2) == pytest.approx(2 - 1 / 3 / 16, rel=1e-12)
    assert spec.variance_of_ones(1) < 0.03
    for distinct in (0.5, 3.0, 1e4, 1e12):
        assert spec.distinct_for(spec.ones(distinct)) == pytest.approx(distinct, rel=1e-6)
    assert spec.distinct_for(-3) == 0


def test_the_quieter_law_is_chosen() -> None:
    spec = DistinctSpec(256, per_user(max_keys=3, neighbours="replace"))
    built = DistinctSketch.from_spec(spec)
    assert built.release(epsilon=1.0, delta=1e-6).noise == DiscreteLaplace(1.0, 3)
    assert built.release(epsilon=1.0, delta=0.0).guarantee.costs == (PureCost(1.0),)
    assert isinstance(built.release(epsilon=0.1, delta=0.1).noise, RoundedGaussian)
    assert isinstance(built.release(rho=0.1).noise, RoundedGaussian)
    preview = spec.preview(epsilon=1.0, delta=0, distinct=1e6)
    assert preview.predicted_error == pytest.approx(1e6 * math.log(2) / 16, rel=0.05)


def test_what_is_wrong_is_refused() -> None:
    with pytest.raises(InvalidInput):
        sketch(buckets=3)
    with pytest.raises(InvalidInput):
        sketch().release_mergeable(epsilon=0)
    one, other = (sketch([1], seed=seed).release_mergeable(epsilon=1.0) for seed in (1, 2))
    with pytest.raises(SpecMismatch):
        one.merge(other)


def test_merged_releases_state_both_costs() -> None:
    one, two = sketch(range(100)).release_mergeable(epsilon=1.0), sketch(range(50, 200)).release_mergeable(epsilon=0.5)
    both = one.merge(two)
    assert both.guarantee.epsilon == pytest.approx(1.5)
    assert 1 - 2 * both.flip == pytest.approx((1 - 2 * one.flip) * (1 - 2 * two.flip))


@pytest.mark.statistical
def test_estimates_and_intervals() -> None:
    """100 sketches at each size: 6 standard errors around the truth and the predicted spread, coverage at least 0.79.

    With a coverage of 0.95 fewer than 79 of 100 happen with a probability of 6e-9. Twin: keys counted double are off.
    """
    for buckets, distinct in ((256, 3), (256, 5_000)):
        found, covered = [], 0
        with noise.seeded_noise_for_tests_only(distinct):
            for seed in range(100):
                private = sketch(np.arange(distinct) + 10**6 * seed, seed=seed).release(epsilon=1.0, delta=0)
                found.append(private.spec.distinct_for(private.ones) if private.ones > 0 else float(private.ones))
                covered += private.low <= distinct <= private.high
        spread = DistinctSpec(buckets, per_record()).error(distinct, DiscreteLaplace(1.0, 1))
        assert abs(float(np.mean(found)) - distinct) < 6 * spread / 10
        assert abs(float(np.mean(found)) - 2 * distinct) > 6 * spread / 10
        assert float(np.std(found)) == pytest.approx(spread, rel=0.45)
        assert covered >= 79
