"""Named quantiles' claim, by enumeration of all neighbours: the law that is drawn from never tells them apart by more.

That releases follow the enumerated law is shown in tests/unit/test_quantiles.py; the spans are the library's own here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.laws.recursion import Recursion
from dpsketch.privacy import Budget
from dpsketch.sketches.quantiles import QuantileSpec
from oracles import quantiles as oracle

QUARTERS = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
OUTER = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
TIES = 2

Counts = tuple[int, ...]


def recursion(quantiles: tuple[Fraction, ...], relation: Any, epsilon: float) -> Recursion:
    """The law that a release at a pure budget draws from."""
    spec = QuantileSpec(2, dps.per_record(neighbours=relation), quantiles)
    return spec.laws(Budget(epsilon, 0))[0]


def neighbours(counts: Counts, relation: str) -> list[Counts]:
    """All data with one record more, or with another one; a record that is nothing may become one."""

    def moved(value: int, change: int, given: Counts = counts) -> Counts:
        return tuple(count + change * (i == value) for i, count in enumerate(given))

    found = [moved(value, 1) for value in range(len(counts))]
    if relation == "replace":
        found += [moved(i, -1, moved(j, 1)) for i in range(len(counts)) for j in range(len(counts)) if counts[i]]
    return found


def single_laws(share: Fraction, span: float, most: int) -> dict[Counts, np.ndarray]:
    """The log-probabilities of the places, for one quantile at ε = 1, of all data of fewer than ``most`` records."""
    places = 1 << TIES
    found = {}
    for counts in product(range(most), repeat=3):
        if sum(counts) < most:
            below = np.concatenate([[0.0], np.cumsum(np.repeat(np.array(counts) / places, places))])
            target = float(share) * sum(counts)
            weights = -np.maximum(0, np.maximum(below[:-1] - target, target - below[1:])) / span
            found[counts] = weights - math.log(np.exp(weights).sum())
    return found


def farthest(laws: dict[Counts, np.ndarray], relation: str) -> float:
    """The largest log ratio between neighbours."""
    pairs = ((law, laws[other]) for one, law in laws.items() for other in neighbours(one, relation) if other in laws)
    return max(float(np.abs(law - other).max()) for law, other in pairs)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(7, 10), Fraction(9, 10), Fraction(1, 10)])
def test_one_quantile_is_private(share: Fraction, relation: str) -> None:
    span = float(recursion((share,), relation, 1.0).span(share, whole=True))
    worst = farthest(single_laws(share, span, 18), relation)
    assert worst <= 1 + 1e-9
    assert worst > 0.45  # and the noise is not much more than needed


@pytest.mark.parametrize(
    ("share", "relation"),
    [(Fraction(7, 10), "add_remove"), (Fraction(9, 10), "add_remove"), (Fraction(1, 2), "replace")],
)
def test_a_sensitivity_of_one_half_for_all_is_not_private(share: Fraction, relation: str) -> None:
    """A twin: it is right for the median where records are added and removed, and for nothing else."""
    assert farthest(single_laws(share, 1.0, 18), relation) > 1.1


def worst_of(law: Recursion, relation: str, most: int) -> float:
    """The largest log ratio of any answer between neighbours of at most so many records on three values."""

    def span(share: Fraction, whole: bool) -> Fraction:
        return law.span(share, whole=whole)

    data = [counts for counts in product(range(most + 1), repeat=3) if sum(counts) <= most]
    laws = {one: oracle.law(list(one), list(law.quantiles), law.epsilon, 1, span, TIES) for one in data}
    pairs = ((law, laws[other]) for one, law in laws.items() for other in neighbours(one, relation) if other in laws)
    return max(abs(math.log(one[cells] / other[cells])) for one, other in pairs for cells in one)


@pytest.mark.parametrize(("relation", "shares"), [("add_remove", QUARTERS), ("replace", QUARTERS), ("replace", OUTER)])
def test_several_quantiles_are_private_together(relation: str, shares: tuple[Fraction, ...]) -> None:
    law = recursion(shares, relation, 2.0)
    assert law.epsilon == 1.0
    assert 0.5 < worst_of(law, relation, 3) <= 2 + 1e-9


def test_levels_that_cost_the_whole_each_are_seen() -> None:
    """A twin: three times the budget of the claim, since so few records do not show all of it."""
    assert worst_of(recursion(QUARTERS, "add_remove", 6.0), "add_remove", 3) > 2
