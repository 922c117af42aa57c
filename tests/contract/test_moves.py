"""No unit moves a table further than its kind states, every bound is reached, and an understated one is refused.

A kind joins by one row of ``KINDS``. Its sensitive sketch has exact tables by name (``_exact``), or the row says how to
read them. Sums are Python's integers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch.core import contributions
from dpsketch.core.contributions import Cells, checked
from dpsketch.core.move import Distance, Move, Table
from dpsketch.errors import ReleaseRefused, SketchBroken
from dpsketch.privacy import Unit
from dpsketch.sketches.countsketch import spec as counts
from dpsketch.sketches.countsketch.spec import CountSketchSpec
from dpsketch.sketches.distinct.bitmap import BITS, ONES
from dpsketch.sketches.heavy import sketch as heavy
from oracles.moves import admits
from sensitive import BUDGET, everything, unit_of
from texts import colliding_texts

Level = Literal["record", "user"]
LEVELS: tuple[Level, ...] = ("record", "user")
Records = list[tuple[Any, float]]
BOUNDS = ("l1", "squared", "cells", "most")


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind, some shapes of it, and keys that share prefixes and cells.

    Its worst units are searched for among ``keys``: keys with equal contributions, and keys with no cell in common.
    ``unreached`` are tables and bounds of theirs that none of them reaches.
    """

    name: str
    start: Callable[..., Any]
    shapes: tuple[dict[str, Any], ...]
    keys: tuple[Any, ...]
    weighs: bool = True
    exact: Callable[[Any], dict[str, np.ndarray]] = lambda sketch: sketch._exact()
    checks: bool = True  # whether its update holds contributions to the moves
    unreached: tuple[tuple[str, str], ...] = ()

    def sketch(self, shape: dict[str, Any], unit: Unit, grid: float = 1) -> Any:
        return self.start(unit=unit, **shape, **({"grid": grid} if self.weighs else {}))

    def counted(self, sketch: Any, records: Records, users: list[int] | None) -> dict[str, np.ndarray]:
        """Add records, and return copies of the exact tables."""
        if records:
            weights = {"weights": [weight for _, weight in records]} if self.weighs else {}
            sketch.update([key for key, _ in records], users=users, **weights)
        return {name: np.array(table) for name, table in self.exact(sketch).items() if table.size}


def exact_bits(sketch: Any) -> dict[str, np.ndarray]:
    words = sketch._arrays[BITS]
    bits = np.unpackbits(words.view(np.uint8).reshape(len(words), -1), axis=1).astype(np.int64)
    return {ONES: np.array([bits.sum()]), BITS: bits}


def exact_entries(sketch: Any) -> dict[str, np.ndarray]:
    positions, units = sketch._entries.arrays()
    table = np.zeros(sketch.spec.domain, np.int64)
    table[np.asarray(positions, np.int64)] = units
    return {"entries": table}


NARROW, WIDE = {"rows": 1, "width": 2}, {"rows": 3, "width": 512}
NEAR = (*range(300), 2**16, 2**16 + 1, 2**17, 2**18 - 1)
TEXTS = (*(f"{a}{b}" for a in "abcdefgh" for b in "abcdefgh"), "", "a", "aaa", "aab", "aaaa", "aaab", "é", "too long")
KINDS = [
    Kind("counts", dps.CountSketch, (NARROW, {"rows": 3, "width": 4}, WIDE), NEAR),
    Kind(
        "heavy hitters, integers",
        dps.HeavyHitters,
        tuple({**size, "key_bits": bits} for size in (NARROW, WIDE) for bits in (8, 32)),
        (*(2**24 * i + 2**16 * j + 2**8 * k + i for i in range(6) for j in range(4) for k in range(6)), *range(40)),
    ),
    Kind(
        "heavy hitters, texts",
        dps.HeavyHitters,
        tuple({**size, "key_bytes": bytes_} for size in (NARROW, WIDE) for bytes_ in (1, 4)),
        TEXTS,
    ),
    Kind(
        "ranges",
        dps.RangeSketch,
        ({"bits": 5, "level_bits": 3}, {**NARROW, "bits": 20, "start": -3, "outside": "clamp"}, {**WIDE, "bits": 18}),
        (*range(300), *(2**14 * i + i for i in range(16)), 2**16, 2**17, 2**18 - 5),
    ),
    Kind(
        "quantiles",
        functools.partial(dps.QuantileSketch, quantiles=[0.5]),
        ({"bits": 5}, {"bits": 20, "start": 2**30}),
        (*range(29), *(2**30 + 2**12 * i + j for i in range(8) for j in range(4))),
    ),
    Kind(
        "sparse",
        dps.SparseHistogram,
        ({"domain": 64, "max_value": 9},),
        tuple(range(60)),
        exact=exact_entries,
        checks=False,
    ),
    Kind(
        "density, cells",
        dps.DensitySketch,
        tuple({"kernel": dps.kernels.Euclidean(2, 2.0), "rows": 4, "width": width} for width in (2, 64)),
        tuple((x / 10, y) for x in range(12) for y in range(9)),
        False,
        checks=False,
    ),
    Kind(
        "density, features",
        dps.DensitySketch,
        ({"kernel": dps.kernels.Gaussian(2, 1.0), "rows": 4, "features": "fourier"},),
        tuple((x / 10, y) for x in range(12) for y in range(9)),
        False,
        checks=False,
        # All features of a point would have one size, or all but one would be 0.
        unreached=(("counters", "l1"), ("counters", "most")),
    ),
    Kind("distinct", dps.DistinctSketch, ({"buckets": 16}, {"buckets": 256}), NEAR, False, exact_bits, False),
    Kind(
        "distinct, exact",
        dps.DistinctSet,
        ({},),
        NEAR,
        False,
        lambda sketch: {"keys": np.array([sketch._number])},
        False,
    ),
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def norms(moved: np.ndarray) -> dict[str, int]:
    amounts = [abs(int(each)) for each in moved.ravel() if each]
    squared = sum(each**2 for each in amounts)
    return {"l1": sum(amounts), "squared": squared, "cells": len(amounts), "most": max(amounts, default=0)}


def within(moved: np.ndarray, distance: Distance) -> bool:
    return all(value <= getattr(distance, bound) for bound, value in norms(moved).items())


def in_domain(kind: Kind, shape: dict[str, Any]) -> list[Any]:
    """The keys that a shape takes."""
    bits, start = shape.get("key_bits") or shape.get("bits"), max(0, shape.get("start", 0))
    return [key for key in kind.keys if bits is None or start <= key < start + 2**bits - 3]


# What a unit moves, at random.


@st.composite
def neighbouring(draw: st.DrawFn, kind: Kind) -> tuple[dict[str, Any], Unit, float, list[Records], list[Records]]:
    """A shape, a unit, a grid, the units that two datasets share, and the two units in which they differ."""
    shape = draw(st.sampled_from(kind.shapes))
    weight, grid = draw(st.sampled_from([(1, 1), (3, 1), (1.5, 0.5), (2**20, 1), (2**20, 2**-20)]))
    weight = weight if kind.weighs else 1
    level = draw(st.sampled_from(["record", "user"]))
    keys = draw(st.integers(1, 6))
    weights = st.sampled_from([weight, grid, 0, 1, 2 * weight] if kind.weighs else [1])
    # Few different keys, so that they repeat, and any of those that share cells.
    some = draw(st.lists(st.sampled_from(in_domain(kind, shape)), min_size=1, max_size=12))
    record = st.tuples(st.sampled_from(some), weights)
    one = st.lists(record, min_size=1, max_size=1 if level == "record" else 3 * keys)
    shared, apart = draw(st.lists(one, max_size=5)), draw(st.lists(one, min_size=2, max_size=2))
    return shape, unit_of(level, keys=keys, weight=weight), grid, shared, apart


@each_kind
def test_no_unit_moves_a_table_further_than_stated(kind: Kind) -> None:
    """Alone, beside other units, and in place of another one."""

    @settings(max_examples=50, deadline=None)
    @given(neighbouring(kind))
    def holds(drawn: Any) -> None:
        shape, unit, grid, shared, (mine, yours) = drawn

        def tables(units: list[Records]) -> dict[str, np.ndarray]:
            users = [number for number, each in enumerate(units) for _ in each] if unit.level == "user" else None
            return kind.counted(kind.sketch(shape, unit, grid), [record for each in units for record in each], users)

        before, one, other = tables(shared), tables([*shared, mine]), tables([*shared, yours])
        alone = tables([mine])
        stated = kind.sketch(shape, unit, grid).spec.tables()
        assert {table.name for table in stated} == set(before)
        for table in stated:
            name = table.name
            assert before[name].size == table.size
            assert admits(table.move, alone[name])
            assert admits(table.move, one[name] - before[name])
            assert within(one[name] - other[name], table.between("replace"))

    holds()


# Each bound is reached, so that one less would be wrong.


@functools.cache
def singles(kind: Kind, place: int) -> dict[Any, dict[str, np.ndarray]]:
    """What each key moves alone, in a shape of the kind."""
    shape, unit = kind.shapes[place], unit_of("user", keys=1)
    found = {key: kind.counted(kind.sketch(shape, unit), [(key, 1)], [0]) for key in in_domain(kind, shape)}
    return {key: tables for key, tables in found.items() if all(table.any() for table in tables.values())}


def apart(kind: Kind, place: int, names: set[str]) -> list[Any]:
    """Keys of which no two share a cell of these tables."""
    chosen: list[Any] = []
    taken: set[tuple[str, int]] = set()
    for key, tables in singles(kind, place).items():
        cells = {(name, int(cell)) for name in names for cell in np.flatnonzero(tables[name])}
        if not cells & taken:
            chosen.append(key)
            taken |= cells
    return chosen


def alike(kind: Kind, place: int, names: set[str]) -> list[Any]:
    """The most keys that move these tables equally."""
    groups: dict[bytes, list[Any]] = {}
    for key, tables in singles(kind, place).items():
        groups.setdefault(b"".join(tables[name].tobytes() for name in sorted(names)), []).append(key)
    return max(groups.values(), key=len)


@functools.cache
def worst(kind: Kind, level: Level) -> list[tuple[dict[str, Any], Unit, Records, dict[str, np.ndarray]]]:
    """Shapes, units, their records, and what these move: as many keys as are allowed, of the largest weight."""
    found = []
    for place, shape in enumerate(kind.shapes):
        tables = {table.name: table.size for table in kind.sketch(shape, unit_of("record")).spec.tables()}
        for names in [{name} for name in tables] + [{name for name, size in tables.items() if size != 1}]:
            for keys in (apart(kind, place, names), alike(kind, place, names)) if names else ():
                many = [[key] for key in keys[:6]] if level == "record" else [keys[:2], keys[:3], keys[:4]]
                for chosen in many:
                    unit = unit_of(level, keys=len(chosen), weight=3 if kind.weighs else 1)
                    records = [(key, unit.max_weight) for key in chosen]
                    users = [0] * len(records) if level == "user" else None
                    found.append((shape, unit, records, kind.counted(kind.sketch(shape, unit), records, users)))
    return found


def reaching(kind: Kind, level: Level, name: str, bound: str) -> Iterator[tuple[dict[str, Any], Unit, Records]]:
    """The worst units that reach a bound of a table; those that decrease a cell, for ``signed``."""
    for shape, unit, records, tables in worst(kind, level):
        for table in kind.sketch(shape, unit).spec.tables():
            if table.name == name:
                if bound == "signed":
                    reached = bool((tables[name] < 0).any())
                else:
                    reached = norms(tables[name])[bound] == getattr(table.move, bound)
                if reached:
                    yield shape, unit, records


def all_bounds(kinds: list[Kind]) -> Iterator[Any]:
    for kind in kinds:
        for level in LEVELS:
            found: dict[str, Table] = {}
            for shape in kind.shapes:
                found |= {table.name: table for table in kind.sketch(shape, unit_of(level)).spec.tables()}
            for name, table in found.items():
                for bound in (*BOUNDS, *(["signed"] if table.move.signed else [])):
                    yield pytest.param(kind, level, name, bound, id=f"{kind.name}-{level}-{name}-{bound}")


@pytest.mark.parametrize(("kind", "level", "name", "bound"), list(all_bounds(KINDS)))
def test_each_bound_is_reached(kind: Kind, level: Level, name: str, bound: str) -> None:
    reached = next(reaching(kind, level, name, bound), None) is not None
    assert reached is ((name, bound) not in kind.unreached)


def test_texts_of_one_fingerprint_are_one_key_of_a_user() -> None:
    """Anyone can find such texts: a user of several would count on one key with the weight of all of them."""
    unit, texts = dps.per_user(3, max_weight=2), colliding_texts(3)
    counted, sparse = dps.CountSketch(rows=3, width=16, unit=unit), dps.SparseHistogram(unit=unit, expected_keys=4)
    distinct, histogram = dps.DistinctSet(unit=dps.per_user(2)), dps.Histogram(unit=unit)
    for sketch in (counted, sparse, histogram):
        sketch.update(texts, users=["ann"] * 3, weights=[2] * 3)
    distinct.update(texts, users=["ann"] * 3)
    assert norms(counted._exact()["counters"])["most"] == norms(np.asarray(sparse._entries.arrays()[1]))["most"] == 2
    assert distinct._number == 1
    # A histogram keeps the texts, which are as many keys.
    assert histogram.release(epsilon=1e5, delta=0.0, keys=texts).values.tolist() == [2, 2, 2]


# An understated move is refused while records are added.


def tightened(table: Table, bound: str) -> Table:
    """Return the table with one bound too small by one."""
    move = table.move
    less = replace(move, signed=False) if bound == "signed" else replace(move, **{bound: getattr(move, bound) - 1})
    return replace(table, move=less)


CHECKED = [kind for kind in KINDS if kind.checks]


@pytest.mark.parametrize(("kind", "level", "name", "bound"), list(all_bounds(CHECKED)))
def test_an_understated_move_is_refused(
    kind: Kind, level: Level, name: str, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last unit of a batch passes the bound that its kind states: nothing was added, or nothing can be released.

    The tables of a tree are checked one after the other where users are clipped at each.
    """
    tried = at_least = 0
    for shape, unit, records in reaching(kind, level, name, bound):
        sketch = kind.sketch(shape, unit)
        spec = type(sketch.spec)
        stated = sketch.spec.tables()
        if bound != "signed" and getattr({table.name: table for table in stated}[name].move, bound) == 1:
            at_least += 1  # no move is smaller
            continue
        wrong = tuple(tightened(table, bound) if table.name == name else table for table in stated)
        others: Records = [(records[0][0], 0)] * 100  # they add nothing
        users = [*range(1, 101), *[0] * len(records)] if level == "user" else None
        with monkeypatch.context() as patch:
            patch.setattr(spec, "tables", lambda self, wrong=wrong: wrong)
            understated = type(sketch).from_spec(sketch.spec)
            with pytest.raises(ReleaseRefused, match="an error of the kind"):
                kind.counted(understated, [*others, *records], users)
        if any(table.any() for table in kind.exact(understated).values()):
            assert (kind.start, level) == (dps.HeavyHitters, "user")
            with pytest.raises(SketchBroken):
                understated.release(epsilon=1.0, delta=1e-6)
        tried += 1
        if tried == 3:
            break
    assert tried or at_least


NUMBERS = np.arange(20_000)
PAGES = pa.array([f"/page/{key % 50}" for key in NUMBERS])
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "column": (NUMBERS, {}),
    "texts": (PAGES.to_pylist(), {}),
    "weights": (NUMBERS, {"weights": np.ones(len(NUMBERS))}),
    "counts": (NUMBERS, {"counts": np.ones(len(NUMBERS), np.int64)}),
    "dictionary": (PAGES.dictionary_encode(), {}),
    "pan-private": (NUMBERS, {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_counting_records_is_checked(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = CountSketchSpec.tables
    monkeypatch.setattr(CountSketchSpec, "tables", lambda self: (tightened(stated(self)[0], "cells"),))
    start, more = (dps.PanPrivateCountSketch, BUDGET | {"key_type": "int"}) if "pan" in way else (dps.CountSketch, {})
    sketch: Any = start(rows=5, width=64, unit=dps.per_record(), **more)
    before = everything(sketch)
    keys, given_with = WAYS[way]
    with pytest.raises(ReleaseRefused, match="more cells"):
        sketch.update(keys, **given_with)
    assert everything(sketch) == before


# The check itself.


def test_squares_that_wrap_in_64_bits_are_refused() -> None:
    """2³² squared is 0 modulo 2⁶⁴, and four times 2³¹ squared is 2⁶⁴."""
    table = Table("table", (8,), Move(2**40, 2**33, 8, 2**40))
    for amounts in ([2**32], [2**31] * 4, [-(2**63)], [2**62, 2**62]):
        with pytest.raises(ReleaseRefused):
            checked(table, Cells.of(np.arange(len(amounts))[np.newaxis], np.array([amounts])))


@pytest.mark.parametrize("cells", [[0, 0], [0, 8], [-1, 3]], ids=["twice", "outside", "before"])
def test_a_cell_that_is_none_of_the_table_or_comes_twice_is_refused(cells: list[int]) -> None:
    table = Table("table", (8,), Move.each(2, 1))
    with pytest.raises(ReleaseRefused):
        checked(table, Cells.of(np.array([cells]), np.array([[1, 1]])))


def test_a_users_keys_are_summed_before_they_are_checked() -> None:
    """Two keys of one cell: each is within the bound, and together they are not."""
    table, cells, amounts = Table("table", (4,), Move.each(2, 1)), np.array([[1], [1], [2]]), np.array([1, 1, 1])
    checked(table, Cells.of(cells, amounts))
    checked(table, Cells.of(cells, amounts, np.array([0, 1, 3])))
    with pytest.raises(ReleaseRefused, match="further"):
        checked(table, Cells.of(cells, amounts, np.array([0, 2, 3])))
    checked(table, Cells.of(cells, np.array([1, -1, 1]), np.array([0, 2, 3])))


def test_a_heavier_record_of_a_later_batch_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = dps.CountSketch(rows=3, width=8, unit=dps.per_record(max_weight=9))
    stated = sketch.spec.tables()
    monkeypatch.setattr(type(sketch.spec), "tables", lambda _: tuple(tightened(table, "most") for table in stated))
    sketch.update([1, 2], weights=[1, 8])
    sketch.update([3], weights=[2])
    with pytest.raises(ReleaseRefused, match="further"):
        sketch.update([3, 4], weights=[1, 9])
    sketch.update([3], weights=[8])  # nothing was added, and the sketch goes on


# Faster kernels add what was checked, bit for bit.


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.name)
def test_what_is_added_is_what_was_checked(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[np.ndarray]] = {}

    def watched(table: Table, given_cells: Cells) -> Cells:
        assert table.size is not None
        sums = np.zeros(table.size, np.int64)
        np.add.at(sums, given_cells.cells, given_cells.amounts)
        seen.setdefault(table.name, []).append(sums)
        return checked(table, given_cells)

    for module in (contributions, counts, heavy):
        monkeypatch.setattr(module, "checked", watched)
    monkeypatch.setattr(contributions, "FIRST", 10**9)  # all of a batch

    @settings(max_examples=25, deadline=None)
    @given(neighbouring(kind))
    def holds(drawn: Any) -> None:
        shape, unit, grid, shared, others = drawn
        seen.clear()
        units = [*shared, *others]
        users = [number for number, each in enumerate(units) for _ in each] if unit.level == "user" else None
        records = [record for each in units for record in each]
        tables = kind.counted(kind.sketch(shape, unit, grid), records, users)
        for name, table in tables.items():
            # The levels of a tree are checked one after the other where users are clipped at each.
            parts = seen[name]
            found = np.concatenate(parts) if len(parts) * parts[0].size == table.size else sum(parts)
            assert np.array_equal(found, table.ravel()), name

    holds()
