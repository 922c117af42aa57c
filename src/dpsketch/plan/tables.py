"""Plans for sketches whose keys collide: counts, heavy hitters, ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import betainc

from dpsketch.arrays import Floats
from dpsketch.errors import InvalidInput
from dpsketch.plan.duration import seconds_for
from dpsketch.plan.quantiles import naming_pays, plan_quantiles, tree_spec
from dpsketch.plan.search import WIDTHS, TableShape, screen, settle
from dpsketch.plan.values import Amount, Guess, Proposal, Shape
from dpsketch.privacy import Budget
from dpsketch.sketches.countsketch import CountSketch
from dpsketch.sketches.countsketch.prediction import CountPrediction
from dpsketch.sketches.countsketch.spec import CountSketchSpec
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.heavy.predict import CellLaw, SearchPrediction
from dpsketch.sketches.heavy.spec import HeavyHittersSpec
from dpsketch.sketches.quantiles.spec import QuantileSpec
from dpsketch.sketches.ranges import RangeSketch
from dpsketch.sketches.ranges.spec import RangeSketchSpec

__all__ = ["plan_counts", "plan_heavy", "plan_ranges"]


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
    return Proposal(
        kind="counts",
        shape={"rows": table.rows, "width": table.width},
        budget=amount.budget,
        error=predicted.error,
        error_of="a key's estimate, root mean square",
        memory=spec.memory,
        seconds=seconds_for(CountSketch.from_spec(spec), guess.records),
        also=also,
        notes=_about_pure(amount, counts, table, most_cells, wanted),
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
    return Proposal(
        kind="heavy",
        shape={"rows": spec.rows, "width": spec.width, **length},
        budget=amount.budget,
        error=predicted.error,
        error_of="a listed key's estimate, standard deviation",
        memory=spec.memory,
        seconds=seconds_for(HeavyHitters.from_spec(spec), guess.records),
        also={
            "threshold": predicted.threshold,
            "found": predicted.found,
            "recall": predicted.recall,
            "precision": predicted.precision,
        },
    )


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
    return Proposal(
        kind="ranges",
        shape=shape,
        budget=amount.budget,
        error=error(tables[0]),
        error_of="a rank, root mean square; collisions at their largest",
        memory=spec.memory,
        seconds=seconds_for(RangeSketch.from_spec(spec), guess.records),
    )
