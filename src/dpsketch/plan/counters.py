"""Plans for sketches whose keys collide: counts, heavy hitters, ranges; and whether quantiles are better named.

The smallest table that reaches an error is searched for over odd rows and widths that are powers of two.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from scipy.special import betainc

from dpsketch.arrays import Floats
from dpsketch.errors import InvalidInput
from dpsketch.plan.proposal import Amount, Guess, Proposal, Shape, out_of_reach, proposed, require_reach
from dpsketch.privacy import Budget, PureCost
from dpsketch.sketches.countsketch import CountSketch
from dpsketch.sketches.countsketch.decoding import CountPrediction
from dpsketch.sketches.countsketch.spec import CountSketchSpec
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.heavy.predict import CellLaw, SearchPrediction
from dpsketch.sketches.heavy.spec import HeavyHittersSpec
from dpsketch.sketches.quantiles import QuantileSketch, QuantileSpec
from dpsketch.sketches.ranges import RangeSketch
from dpsketch.sketches.ranges.spec import RangeSketchSpec

__all__ = ["naming_pays", "plan_counts", "plan_heavy", "plan_ranges", "tree_spec"]

WIDTHS = tuple(1 << bits for bits in range(6, 23))
# Without a wanted error: the smallest table within so much of the least error.
_NEARLY = 1.05
# The formula is close: rehearse a few of the shapes it names, no more.
_REHEARSALS = 8

Predicted = TypeVar("Predicted")


@dataclass(frozen=True, slots=True, order=True)
class TableShape:
    """A shape; smaller ones come first."""

    cells: int = field(init=False)
    rows: int
    width: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", self.rows * self.width)


def screen(
    error: Callable[[TableShape], float], rows: tuple[int, ...], most_cells: int, target: float | None
) -> tuple[list[TableShape], float]:
    """Return, for each number of rows, the smallest table that reaches the target by a formula; and the target.

    Without a target it is 5% above the least error of all tables. The error falls with the width.
    """
    known: dict[TableShape, float] = {}

    def of(table: TableShape) -> float:
        if table not in known:
            known[table] = error(table)
        return known[table]

    allowed = {k: [width for width in WIDTHS if k * width <= most_cells] for k in rows}
    widest = [TableShape(k, widths[-1]) for k, widths in allowed.items() if widths]
    if not widest:
        raise InvalidInput("not even the smallest table fits into this memory: allow more.")
    least = min(of(table) for table in widest)
    wanted = _NEARLY * least if target is None else target
    if wanted < least:
        raise out_of_reach(wanted, least, f"with tables of at most {most_cells:,} counters")
    found = []
    for table in widest:
        if of(table) > wanted:
            continue
        widths = allowed[table.rows]
        low, high = 0, len(widths) - 1
        while low < high:
            middle = (low + high) // 2
            if of(TableShape(table.rows, widths[middle])) <= wanted:
                high = middle
            else:
                low = middle + 1
        found.append(TableShape(table.rows, widths[high]))
    return sorted(found), wanted


def settle(
    tables: list[TableShape],
    rehearse: Callable[[TableShape], tuple[float, Predicted]],
    most_cells: int,
    target: float | None,
) -> tuple[TableShape, Predicted]:
    """Return the smallest table whose rehearsal reaches the target, trying wider ones where one falls short.

    Without a target the smallest table of the formula's is taken.
    """
    left = list(tables)
    heapq.heapify(left)
    least = math.inf
    for _ in range(_REHEARSALS):
        if not left:
            break
        table = heapq.heappop(left)
        error, predicted = rehearse(table)
        if target is None or error <= target:
            return table, predicted
        least = min(least, error)
        wider = TableShape(table.rows, 2 * table.width)
        if wider.cells <= most_cells and wider.width <= WIDTHS[-1]:
            heapq.heappush(left, wider)
    raise out_of_reach(target or 0.0, least, f"with tables of at most {most_cells:,} counters")


# Fitted to 240 cases of data, size, budget and number of quantiles; docs/explanation/quantiles.md has them.
_TREE_SHARE = 0.45
_CROWD = 0.5


def tree_spec(spec: QuantileSpec, budget: Budget) -> RangeSketchSpec:
    """Return the tree over the same domain, with the levels that suit the budget."""
    level_bits = 4 if isinstance(budget.cost, PureCost) else 2
    return RangeSketchSpec(spec.bits, spec.unit, start=spec.start, level_bits=level_bits)


def naming_pays(spec: QuantileSpec, budget: Budget, records: float) -> bool:
    """Say whether named quantiles will have less error than a tree's, for a public guess at the number of records.

    They do if what is expected of them is below 0.45 of the tree's noise, and if between two quantiles there are enough
    records, ½·ln(cells)/ε of a level: with fewer, the mechanism loses its way among the values that nobody has.
    """
    law, tree = spec.laws(budget)[0], tree_spec(spec, budget)
    noise = tree.predict_rank_error(records=1.0, epsilon=budget.epsilon, delta=budget.delta, rho=budget.rho).noise
    scale = 1 / float(law.rate(Fraction(1, 2), whole=False))
    crowd = records * spec.weight_grid.one / (len(spec.quantiles) + 1)
    return spec.typical_error(law) < _TREE_SHARE * noise and crowd >= _CROWD * math.log(spec.cells.count) * scale


def plan_quantiles(amount: Amount, guess: Guess, spec: QuantileSpec, target_error: float | None) -> Proposal:
    """Say what named quantiles are worth; nothing is to be chosen."""
    error = spec.preview(**amount.budget).predicted_error
    require_reach(target_error, error, "whatever the size")
    shape: Shape = {
        "bits": spec.bits,
        **({"start": spec.start} if spec.start else {}),
        "quantiles": ",".join(map(_decimal, spec.quantiles)),
    }
    about, sketch = "the rank of a named quantile, about", QuantileSketch.from_spec(spec)
    return proposed("ranges", sketch, amount, guess, shape, error, error_of=about)


def _decimal(share: Fraction) -> str:
    """Write a share as a decimal where it is one, and else as a fraction."""
    text = f"{float(share):.15g}"
    return text if Fraction(text) == share else str(share)


_ROWS: tuple[int, ...] = (3, 5, 7, 9, 11, 15, 21, 31)
# The formula for many rows is too hopeful for few, where two collisions outvote the rest: there it is the median's.
_FEW_ROWS = 5
# More keys than this are rehearsed by fewer that collide as much.
_KEYS_REHEARSED = 50_000


def plan_counts(amount: Amount, guess: Guess, *, target_error: float | None, memory: int) -> Proposal:
    """Propose rows and width of a CountSketch: screened by the law of a cell, settled by rehearsing the release."""
    counts, most_cells = guess.counts, memory // 8
    tables, wanted = screen(_count_error(amount, counts), _ROWS, most_cells, target_error)
    rehearsed = _thinned(counts)

    def rehearse(table: TableShape) -> tuple[float, CountPrediction]:
        predicted = CountSketchSpec(table.rows, table.width, amount.unit).predict(**amount.budget, counts=rehearsed)
        return predicted.error, predicted

    table, predicted = settle(tables, rehearse, most_cells, target_error)
    spec = CountSketchSpec(table.rows, table.width, amount.unit)
    also = {"half_width": predicted.half_width, "noise_scale": predicted.noise_scale}
    if len(rehearsed) == len(counts):
        also["decoded_error"] = predicted.decoded_error
    shape: Shape = {"rows": table.rows, "width": table.width}
    notes = _about_pure(amount, counts, table, most_cells, wanted)
    return proposed(
        "counts", CountSketch.from_spec(spec), amount, guess, shape, predicted.error, also=also, notes=notes
    )


def _count_error(amount: Amount, counts: Floats) -> Callable[[TableShape], float]:
    """Return the formula for the error of a key's estimate, by the law of one cell of a table."""

    def error(table: TableShape) -> float:
        spec = CountSketchSpec(table.rows, table.width, amount.unit)
        noise = spec.laws(Budget(**amount.budget))[0].noise
        law = CellLaw.of(noise, spec.grid, counts, table.width)
        many = law.error / math.sqrt(table.rows)
        return many if table.rows > _FEW_ROWS else max(many, _median_error(law, table.rows))

    return error


def _median_error(law: CellLaw, rows: int) -> float:
    """Return the root mean square of the median of so many cells, whose law is a beta law of one cell's."""
    order = np.argsort(law.places)
    middle = (rows + 1) / 2
    below = betainc(middle, middle, np.minimum(1.0, np.cumsum(law.density[order])))
    return math.sqrt(float(np.diff(below, prepend=0.0) @ law.places[order] ** 2))


def _thinned(counts: Floats) -> Floats:
    """Return fewer counts that collide as much: blocks of light keys become one each, of the same sum of squares."""
    if len(counts) <= _KEYS_REHEARSED:
        return counts
    kept = _KEYS_REHEARSED // 2
    blocks = np.array_split(counts[kept:], _KEYS_REHEARSED - kept)
    return np.concatenate([counts[:kept], [math.sqrt(float(block @ block)) for block in blocks]])


def _about_pure(amount: Amount, counts: Floats, table: TableShape, most_cells: int, wanted: float) -> tuple[str, ...]:
    """Say where pure ε would do better: Laplace noise grows with the rows, Gaussian noise with their root."""
    if not amount.delta or amount.epsilon is None:
        return ()
    pure = replace(amount, delta=0.0)
    spec = CountSketchSpec(table.rows, table.width, amount.unit)
    laplace, gaussian = (spec.preview(**one.budget).noise_scale for one in (pure, amount))
    if laplace <= gaussian:
        return (
            f"Pure ε (delta 0) promises more and adds less noise to {table.rows} rows: standard deviation "
            f"{laplace:.3g} in a counter, against {gaussian:.3g}.",
        )
    try:
        smaller = screen(_count_error(pure, counts), _ROWS[:4], most_cells, wanted)[0][0]
    except InvalidInput:
        return ()
    if smaller.cells > table.cells:
        return ()
    return (f"Pure ε (delta 0) promises more, and {smaller.rows} rows of {smaller.width} should reach the same error.",)


def plan_heavy(
    amount: Amount,
    guess: Guess,
    *,
    target_error: float | None,
    memory: int,
    threshold: float | None,
    key_bits: int | None,
    key_bytes: int | None,
) -> Proposal:
    """Propose rows and width of a tree of sketches, and say what a search would find; of 64 bits unless stated."""
    counts = guess.counts
    if key_bits is None and key_bytes is None:
        key_bits = 64

    def spec_of(table: TableShape) -> HeavyHittersSpec:
        return HeavyHittersSpec(table.rows, table.width, amount.unit, key_bits, key_bytes)

    def predict(table: TableShape, asked: float) -> SearchPrediction:
        return spec_of(table).predict(threshold=asked, counts=counts, **amount.budget)

    smallest = spec_of(TableShape(_ROWS[2], WIDTHS[0]))
    dense = smallest.memory - 8 * smallest.sketched * smallest.rows * smallest.width
    most_cells = (memory - dense) // (8 * smallest.sketched)
    tables, _ = screen(lambda table: predict(table, threshold or 1.0).error, _ROWS[2:], most_cells, target_error)
    spec = spec_of(tables[0])
    # Where no threshold is asked for, the lowest that can be told from noise.
    predicted = predict(tables[0], threshold or predict(tables[0], 1.0).threshold)
    length: Shape = {"key_bytes": key_bytes} if key_bytes is not None else {"key_bits": key_bits or 0}
    shape: Shape = {"rows": spec.rows, "width": spec.width, **length}
    also = {
        "threshold": predicted.threshold,
        "found": predicted.found,
        "recall": predicted.recall,
        "precision": predicted.precision,
    }
    return proposed("heavy", HeavyHitters.from_spec(spec), amount, guess, shape, predicted.error, also=also)


def plan_ranges(
    amount: Amount,
    guess: Guess,
    *,
    target_error: float | None,
    memory: int,
    bits: int,
    start: int,
    quantiles: Sequence[Any] | None,
    limit: int | None,
) -> Proposal:
    """Propose named quantiles where there are some and they do better than a tree, and else a tree."""
    if quantiles is None:
        return _plan_tree(amount, guess, target_error=target_error, memory=memory, bits=bits, start=start)
    spec, budget = QuantileSpec(bits, amount.unit, tuple(quantiles), start=start), Budget(**amount.budget)
    better = naming_pays(spec, budget, guess.records)
    if better and (limit is None or spec.memory <= limit):
        named = plan_quantiles(amount, guess, spec, target_error)
        noise = tree_spec(spec, budget).predict_rank_error(records=guess.records, **amount.budget).noise
        note = f"Naming these quantiles pays: a tree, which answers any, has a noise of {noise:.3g} in a rank."
        return replace(named, notes=(note,))
    tree = _plan_tree(amount, guess, target_error=target_error, memory=memory, bits=bits, start=start)
    note = "A tree answers these quantiles, and all others, at least as well: leave --quantiles out."
    if better:
        note = f"Naming these quantiles would do better than a tree, and take {spec.memory:,} bytes."
    return replace(tree, notes=(*tree.notes, note))


def _plan_tree(
    amount: Amount, guess: Guess, *, target_error: float | None, memory: int, bits: int, start: int
) -> Proposal:
    """Propose rows and width of the levels of a RangeSketch; up to 16 bits it has no tables and nothing is chosen."""

    def spec_of(table: TableShape) -> RangeSketchSpec:
        return RangeSketchSpec(bits=bits, unit=amount.unit, start=start, rows=table.rows, width=table.width)

    def error(table: TableShape) -> float:
        return spec_of(table).predict_rank_error(records=guess.records, span=float(guess.keys), **amount.budget).typical

    smallest = spec_of(TableShape(_ROWS[2], WIDTHS[0]))
    cells = smallest.sketched * smallest.rows * smallest.width
    rows, most_cells = _ROWS[2:3], smallest.rows * smallest.width
    if smallest.sketched:
        rows, most_cells = _ROWS[2:], (memory - (smallest.memory - 8 * cells)) // (8 * smallest.sketched)
    tables, _ = screen(error, rows, most_cells, target_error)
    spec = spec_of(tables[0])
    shape: Shape = {"bits": bits, **({"start": start} if start else {})}
    if spec.sketched:
        shape |= {"rows": spec.rows, "width": spec.width}
    return proposed("ranges", RangeSketch.from_spec(spec), amount, guess, shape, error(tables[0]))
