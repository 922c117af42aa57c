"""The distinct count's claims, exactly: a unit moves the ones by max_keys, and flipped bits lose at most ε."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from dpsketch.privacy import per_record, per_user
from dpsketch.sketches.distinct.bitmap import flip_threshold


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
