"""Distinct counts: how far a unit moves exact ones, and what flipped bits of the others lose."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import SpecMismatch
from dpsketch.laws.distinct import _flow
from dpsketch.sketches.distinct.bitmap import flip_threshold
from parts import bound_of

RECORD = dps.per_record()
NO_NOISE = {"epsilon": 1e5, "delta": 0.0}


def exact(keys: Any, users: Any = None, *, most: int | None = None, **given: Any) -> dps.DistinctSet:
    unit = RECORD if most is None else dps.per_user(max_keys=most)
    sketch = dps.DistinctSet(**{"unit": unit, **given})
    assert isinstance(sketch, dps.DistinctSet)
    sketch.update(keys, **({} if users is None else {"users": users}))
    return sketch


def number(sketch: dps.DistinctSet) -> int:
    """What is counted, through the release, with a noise that is always 0."""
    return sketch.release(**NO_NOISE).count


def owned_slowly(held: dict[int, set[int]], most: int) -> int:
    """Try every way in which users may own keys."""
    if not held:
        return 0
    user, *others = held
    rest = {each: held[each] for each in others}
    ways = [set(way) for size in range(most + 1) for way in itertools.combinations(sorted(held[user]), size)]
    return max(len(way) + owned_slowly({each: keys - way for each, keys in rest.items()}, most) for way in ways)


def draw(rng: np.random.Generator, users: int, keys: int) -> dict[int, set[int]]:
    return {user: set(rng.integers(0, keys, rng.integers(0, 5)).tolist()) for user in range(users)}


def columns(held: dict[int, set[int]]) -> tuple[list[int], list[int]]:
    pairs = [(user, key) for user, keys in held.items() for key in sorted(keys)]
    return [key for _, key in pairs], [user for user, _ in pairs]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_most_keys_are_owned(most: int) -> None:
    rng = np.random.default_rng(most)
    for _ in range(40):
        held = draw(rng, 4, 9)
        keys, users = columns(held)
        assert number(exact(np.array(keys, int), np.array(users, int), most=most)) == owned_slowly(held, most)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_user_moves_the_count_by_more_than_is_paid_for(most: int, relation: Any) -> None:
    """Each user of random crowds removed, first and last, replaced by others, by one without keys and by one who has
    the number of another. Some move it by all that is paid for."""
    rng, moved = np.random.default_rng(7), set()
    unit = dps.per_user(max_keys=most, neighbours=relation)
    for _ in range(60):
        held = draw(rng, 6, 14)
        without = {user: keys for user, keys in held.items() if user}
        others = [without] if relation == "add_remove" else []
        others += [{**held, 0: set(rng.integers(0, 14, 4).tolist())}, {**held, 0: set()}]
        others += [{**without, 1: held[1] | held[0]}]  # user 0 and user 1 share a number
        crowds = [columns(each) for each in (held, *others)]
        counts = [number(exact(np.array(keys, int), np.array(users, int), unit=unit)) for keys, users in crowds]
        moved |= {abs(count - counts[0]) for count in counts[1:]}
    assert max(moved) == most
    assert bound_of(dps.DistinctSet(unit=unit).spec).l1 == most


def test_users_of_two_types_are_refused() -> None:
    """7 and "7" may be one person, who would own twice as many keys."""
    sketch = exact(["a"], [7], most=1)
    with pytest.raises(SpecMismatch, match="those counted before are whole numbers"):
        sketch.update(["b"], users=["7"])
    with pytest.raises(SpecMismatch, match="those counted before are whole numbers"):
        sketch.merge(exact(["b"], ["7"], most=1))


@pytest.mark.parametrize("most", [1, 2, 4])
def test_keys_that_are_given_away_beforehand_change_nothing(most: int) -> None:
    """The same as one flow through all pairs, in crowds of any thickness and in chains of users."""
    rng = np.random.default_rng(most)
    pairs = [rng.random((40, 60)) < density for density in (0.01, 0.03, 0.06, 0.1, 0.3) for _ in range(8)]
    for _ in range(40):
        first, size = rng.integers(0, 20, (6, 1)), rng.integers(1, 9, (6, 1))
        pairs.append((first <= np.arange(28)) & (np.arange(28) < first + size))
    for held in pairs:
        users, keys = np.nonzero(held)
        if len(users):
            whole = _flow(np.full(len(held), most), users, np.unique(keys, return_inverse=True)[1])
            assert number(exact(keys, users, most=most)) == whole


@pytest.mark.parametrize("max_keys", [1, 2, 5])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_flipped_bits_lose_at_most_epsilon(max_keys: int, neighbours: Any, epsilon: float) -> None:
    """The loss of every outcome of the bits that a unit can change, in exact fractions.

    Twins: half the flips (a threshold of half the size) and forgotten keys (ε for each of several) pass ε.
    """
    unit = dps.per_user(max_keys, neighbours=neighbours)

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
        assert worst(flip_threshold(epsilon, dps.per_record(neighbours=neighbours))) > epsilon
