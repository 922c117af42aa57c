"""The sparse histogram's claims, held to exact output laws: every neighbour within ε, and wrong parameters caught.

Only bits that some key of either neighbour may set are enumerated; every other bit is a flip alone, under both alike.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.laws.sparse import Projection, Survival, stability_delta
from dpsketch.privacy import Budget
from dpsketch.sketches.sparse import SparseHistogramSpec
from dpsketch.sketches.sparse.estimators import pure, stability
from oracles import sparse as oracle

SLACK = 1e-9


def colliding_positions(projection: Projection, count: int) -> list[int]:
    """Keys of which each shares at least one bit with the first, where there is more than one column to share."""
    keys = [3]
    own = set(oracle.touched(projection, keys)[0])
    candidates = (p for p in range(4, 100_000) if own & set(oracle.touched(projection, [p])[0]))
    return keys + list(itertools.islice(candidates, count - 1))


def separate_positions(projection: Projection, count: int) -> list[int]:
    """Keys that share no bit."""
    keys: list[int] = []
    taken: set[tuple[int, int]] = set()
    for position in range(1000):
        own = set(oracle.touched(projection, [position])[0])
        if not own & taken and len(keys) < count:
            keys.append(position)
            taken |= own
    return keys


def worst_loss(projection: Projection, pairs, positions: list[int], flip: float) -> float:
    """The largest log-ratio of the exact output laws over pairs of neighbouring value lists."""
    cells = oracle.touched(projection, positions)
    worst = 0.0
    for values, neighbour in pairs:
        laws = [oracle.output_law(projection, cells, some, flip) for some in (values, neighbour)]
        worst = max(worst, float(np.abs(np.log(laws[0]) - np.log(laws[1])).max()))
    return worst


def neighbours(unit: dps.Unit, grid_units: int, keys: int, top: int):
    """Pairs of value lists that differ by one unit of privacy: below, at and past the top, on few and all entries."""
    starts = [0, 1, top // 2, top - 1, top, 2 * top]
    sizes = sorted({1, max(1, grid_units // 3), grid_units})
    for base in itertools.product(starts, repeat=keys):
        for size in sizes:
            for moved in range(1, min(unit.max_keys, keys) + 1):
                up = [value + size * (i < moved) for i, value in enumerate(base)]
                if unit.neighbours == "add_remove":
                    yield list(base), up
                else:
                    down = [value + size * (i >= keys - moved) for i, value in enumerate(base)]
                    yield up, down


CASES = [
    # unit, grid, ε, α, keys, top
    (dps.per_record(), 1, 1.0, 2, 3, 3),
    (dps.per_record(), 1, 3.0, 2, 2, 2),
    (dps.per_record(), 1, 1.0, 3, 2, 6),
    (dps.per_record(neighbours="replace"), 1, 1.5, 2, 2, 7),
    (dps.per_record(max_weight=1), 0.125, 1.0, 2, 3, 27),
    (dps.per_record(max_weight=2.5, neighbours="replace"), 0.5, 2.5, 1, 2, 11),
    (dps.per_user(2), 1, 2.0, 2, 3, 3),
    (dps.per_user(2, max_weight=3), 1, 4.0, 2, 3, 5),
    (dps.per_user(2, neighbours="replace"), 1, 3.0, 2, 4, 3),
]


@pytest.mark.parametrize(("unit", "grid", "epsilon", "alpha", "keys", "top"), CASES)
def test_exact_loss_is_at_most_epsilon_and_halved_flips_are_caught(unit, grid, epsilon, alpha, keys, top) -> None:
    """Integer and real values, with collisions, rounding and saturation; the bound is met, so nothing is wasted."""
    spec = SparseHistogramSpec(unit, expected_keys=1, max_value=top * grid, collisions=0.5, alpha=alpha, grid=grid)
    (law,) = spec.laws(Budget(epsilon, 0))
    projection = law.projection
    assert (projection.rows, projection.top) == (64, top)
    assert 2 <= projection.columns <= 6
    assert law.costs()[0].epsilon == pytest.approx(epsilon, rel=1e-9)
    pairs = list(itertools.islice(neighbours(unit, spec.weight_grid.max_units, keys, top), 400))
    shared, apart = colliding_positions(projection, keys), separate_positions(projection, keys)
    assert worst_loss(projection, pairs, shared, projection.flip) <= epsilon + SLACK
    worst = worst_loss(projection, pairs, apart, projection.flip)
    # A step down costs ε only where it starts on a whole column, which whole values meet nearly, not exactly.
    assert 0.97 * epsilon <= worst <= epsilon + SLACK
    for positions in (shared, apart):
        assert worst_loss(projection, pairs, positions, projection.flip / 2) > epsilon * 1.02


UNITS_ALONE = [
    (dps.per_record(), 1),
    (dps.per_record(max_weight=3), 1),
    (dps.per_user(2), 2),
    (dps.per_user(2, max_weight=2), 2),
]


@pytest.mark.parametrize(("unit", "alone"), UNITS_ALONE)
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (4.0, 1e-4), (0.05, 0.3)])
def test_exact_delta_of_the_stability_rule(unit, alone: int, relation: str, epsilon: float, delta: float) -> None:
    """δ enumerated, for units alone on their keys and not: at most what was asked, and more at a cutoff one less."""
    unit = dps.Unit(unit.level, unit.max_keys, unit.max_weight, relation)
    (table,) = SparseHistogramSpec(unit).tables()
    apart, w = table.between(unit.neighbours), table.move.most
    rule = stability(epsilon, delta, apart, table.move)

    def exact(threshold: Survival) -> float:
        beyond = w + 40 if alone == 1 else w + 12
        law = {x: oracle.survival_law(threshold, x, beyond) for x in (None, 1, w, w + 1, 2 * w, threshold.cutoff)}
        worst = 0.0
        # Each key of the unit is its alone, or shared with others who have 1, or others who are at the cutoff.
        kinds = (
            [(None, w), (w, 2 * w), (threshold.cutoff - w, threshold.cutoff)] if threshold.cutoff > w else [(None, w)]
        )
        law |= {x: oracle.survival_law(threshold, x, beyond) for pair in kinds for x in pair}
        for own in itertools.product(kinds, repeat=alone):
            if relation == "add_remove":
                pair = [oracle.product_law([law[side[i]] for side in own]) for i in (0, 1)]
                worst = max(worst, oracle.delta_at(epsilon, *pair))
                continue
            for other in itertools.product(kinds, repeat=alone):
                first = oracle.product_law([law[side[1]] for side in own] + [law[side[0]] for side in other])
                second = oracle.product_law([law[side[0]] for side in own] + [law[side[1]] for side in other])
                worst = max(worst, oracle.delta_at(epsilon, first, second))
        return worst

    stated = rule.cost(apart, table.move)
    assert exact(rule) <= stated.delta * (1 + 1e-9)
    assert stated.delta <= delta
    assert stated.epsilon == pytest.approx(epsilon)
    assert stability_delta(rule.noise, rule.cutoff, alone=alone, units=w) <= delta
    if delta < epsilon / 100:
        assert stability_delta(rule.noise, rule.cutoff - 1, alone=alone, units=w) > delta
        lower = Survival("stability", rule.noise, rule.cutoff - 1)
        assert exact(lower) > delta


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_exact_loss_of_the_pure_rule(relation: str) -> None:
    """Each entry's outcome (dropped, or kept at a value) changes by at most e^(ε·units/Δ), absent keys included."""
    unit = dps.per_user(2, max_weight=2, neighbours=relation)
    (table,) = SparseHistogramSpec(unit).tables()
    apart = table.between(unit.neighbours)
    for epsilon in (0.3, 1.0, 4.0):
        rule = pure(epsilon, apart, 2**20)
        worst = 0.0
        for x in range(rule.cutoff + 20):
            law, moved = (oracle.survival_law(rule, value, 60) for value in (x, x + apart.most))
            worst = max(worst, float(np.abs(np.log(law / moved)).max()))
        assert worst * apart.cells == pytest.approx(epsilon, rel=1e-6)
        assert rule.cost(apart, table.move).epsilon == pytest.approx(epsilon)
