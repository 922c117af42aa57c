"""The distinct count's claims, exactly: a unit moves the ones by max_keys, and flipped bits lose at most ε."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsketch import noise
from dpsketch.laws.distinct import Coins
from dpsketch.privacy import per_record, per_user
from dpsketch.sketches.distinct import DistinctSketch, DistinctSpec
from dpsketch.sketches.distinct.bitmap import ONES, flip_threshold
from parts import bounds_of


@pytest.mark.parametrize("max_keys", [1, 2, 5])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_flipped_bits_lose_at_most_epsilon(max_keys: int, neighbours: str, epsilon: float) -> None:
    """The loss of every outcome of the bits that a unit can change, in exact fractions.

    Twins: half the flips (a threshold of half the size) and forgotten keys (ε for each of several) pass ε.
    """
    unit = per_user(max_keys, neighbours=neighbours)  # type: ignore[arg-type]

    def worst(threshold: int) -> float:
        zero, one = Fraction(threshold, 2**64), Fraction(1, 2)
        # A bit that becomes set, seen as a one and as a zero; one that is cleared has the inverse ratios.
        ratios = one / zero, (1 - one) / (1 - zero)
        becomes_set, is_cleared = max(ratios), 1 / min(ratios)
        # Added or removed: max_keys bits change one way. Replaced: as many the one way and as many the other.
        factor = becomes_set * is_cleared if neighbours == "replace" else max(becomes_set, is_cleared)
        return max_keys * math.log(factor)

    threshold = flip_threshold(epsilon, unit)
    assert epsilon * (1 - 1e-9) < worst(threshold) <= epsilon
    assert worst(threshold // 2) > epsilon
    if max_keys > 1:
        assert worst(flip_threshold(epsilon, per_record(neighbours=neighbours))) > epsilon  # type: ignore[arg-type]


def test_bits_are_flipped_with_the_stated_probabilities() -> None:
    """640,000 zeros and as many ones; 6 standard errors have a probability of 2e-9. Twin: 3% more flips are seen."""
    threshold = flip_threshold(1.0, per_record())
    with noise.seeded_noise_for_tests_only(5):
        zeros = Coins(threshold).draw(np.zeros(10_000, np.uint64))
        ones = Coins(threshold).draw(np.full(10_000, 2**64 - 1, np.uint64))
    n = 640_000
    for words, chance in ((zeros, math.exp(-1) / 2), (ones, 0.5)):
        seen = int(np.bitwise_count(words).sum())
        limit = 6 * math.sqrt(n * chance * (1 - chance))
        assert abs(seen - n * chance) < limit
        assert abs(seen - n * chance * 1.03) > limit
    # Each level and bucket gets coins of its own.
    levels = [(zeros >> np.uint64(level)) & np.uint64(1) for level in range(64)]
    assert len({level.tobytes() for level in levels}) == 64


def test_one_unit_moves_the_ones_by_at_most_max_keys() -> None:
    rng = np.random.default_rng(9)
    for trial in range(200):
        spec = DistinctSpec(16, per_user(max_keys=3, neighbours="replace"), seed=trial)
        base = rng.integers(0, 40, 20)

        def ones(extra: np.ndarray, spec: DistinctSpec = spec, base: np.ndarray = base) -> int:
            built = DistinctSketch.from_spec(spec)
            built.update(base, users=np.zeros(20, int))
            built.update(extra, users=np.ones(len(extra), int))
            return int(np.bitwise_count(built._arrays["bits"]).sum())

        one, other = ones(rng.integers(0, 99, 8)), ones(rng.integers(0, 99, 8))
        assert abs(one - other) <= bounds_of(spec)[ONES].l1 == 3


def test_the_released_number_is_the_ones_plus_noise_of_that_sensitivity() -> None:
    """2,000 releases: the variance within 6 standard errors (kurtosis 6); twin: that of a scale of half the size."""
    built = DistinctSketch(unit=per_user(max_keys=2))
    built.update(range(2), users=[1, 1])
    with noise.seeded_noise_for_tests_only(1):
        values = np.array([built.release(epsilon=1.0, delta=0).ones for _ in range(2000)]) - 2
    law = built.release(epsilon=1.0, delta=0).noise
    assert law == noise.DiscreteLaplace(1.0, 2)
    error = math.sqrt(5 / 2000) * law.variance
    assert abs(float(np.mean(values**2)) - law.variance) < 6 * error
    assert abs(float(np.mean(values**2)) - law.variance / 4) > 6 * error
