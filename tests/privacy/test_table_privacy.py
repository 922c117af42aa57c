"""How far one unit moves a table, by enumeration through the records' real SQL, against what is stated and charged.

What a law would publish without noise is taken from its own ``draw``, with a handle that adds nothing. Seeds are fixed,
so that every choice of a user's rows is the same in two datasets.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.laws.centred import HELD, PERSONS, USERS, CentredTable, TableState
from dpsketch.laws.corners import CELLS, CornerTable, tail
from dpsketch.laws.groups import SCALE, Kept, TableContent
from dpsketch.laws.ranks import RankDraws
from dpsketch.laws.rounds import WEIGHT_ONE, rounds_delta
from dpsketch.laws.sorted import SortedContent, SortedKept
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.privacy import Budget

RELATIONS = ("add_remove", "replace")
Records = list[tuple[str, float, float]]
LISTED = ["a", "b", "e"]


class NoNoise:
    """A handle that adds nothing, and keeps the exact arrays by slot. A mechanism of its own publishes zeros."""

    def __init__(self) -> None:
        self.exact: dict[str, np.ndarray] = {}

    def add(self, values: np.ndarray, slot: str, *, member: Any = None) -> np.ndarray:
        self.exact[slot] = np.array(values, object)
        return values

    def draw(self, slot: str, tables: np.ndarray) -> np.ndarray:
        self.exact[slot] = np.array(tables, object)
        return np.zeros((len(tables), 3, 1), np.int64)


def table_of(columns: list[Any], keys: int | None, relation: Any, **options: Any) -> dps.Table:
    """A table of users with at most ``keys`` groups, or of records."""
    options |= {} if keys is None else {"user": "user", "max_keys": keys}
    return dps.Table(by="group", columns=columns, neighbours=relation, **options)


class ApartRecords(TableContent):
    """Content that gives every record rows of its own: sums by row are what each adds."""

    def keep(self, asked: np.ndarray, most: Any) -> Kept:
        """Number the rows of one record behind those of the other."""
        kept, rows = super().keep(asked, most), len(asked) + 1
        self._tables.make("moved", f"SELECT * REPLACE (row + id * {rows} AS row) FROM {{counted}}")
        self._tables.make("counted", "FROM {moved}")
        units = sum(int(n[0]) for (n,) in self._tables.numbers("SELECT 1 + max(id) AS n FROM {records}"))
        return Kept(kept._tables, units * rows, by_user=False)


class ApartUsers(SortedContent):
    """Content that gives every user rows of its own, once users are bounded."""

    def keep(self, asked: np.ndarray, most: Any) -> Kept:
        """Bound all users together, and number the rows of one behind those of the other."""
        kept, rows = super().keep(asked, most), len(asked) + 1
        apart, first = [], 0
        for make in kept._batches(self._values):
            pairs = make()
            apart.append(pairs._replace(rows=pairs.rows + (first + pairs.users) * rows))
            first += int(pairs.users.max()) + 1
        return SortedKept(lambda _: (partial(_same, pairs) for pairs in apart), first * rows)


def _same(pairs: Any) -> Any:
    return pairs


def content_of(table: dps.Table, *, apart: bool = False) -> TableContent:
    """The records of a table, as its release asks them; or with rows of its own for every unit."""
    store = table._store
    if table.spec.unit.level == "record":
        return (ApartRecords if apart else TableContent)(store.tables(), by_user=False, columns=store.columns)
    kind = ApartUsers if apart else SortedContent
    assert isinstance(store.content(), SortedContent)
    return kind(store.tables(), values=range(len(table.spec.values)), roomy=True)


def drawn_of(table: dps.Table, law: Any, units: list[Records], *, apart: bool) -> Any:
    """Draw a law without noise; return the handle, and the content."""
    filled = table.empty_like()
    rows = [(f"user {i:04}", *record) for i, unit in enumerate(units) for record in unit]
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    users, groups, x, y = (pa.array(c, t) for c, t in zip(columns, TYPES, strict=True))
    filled.update(pa.table({"user": users, "group": groups, "x": x, "y": y}))
    handle, tables = NoNoise(), filled._store.tables()
    with seeded_noise_for_tests_only(5):
        law.draw(TableState(content_of(filled, apart=apart), LISTED), handle)
    return handle.exact, tables


def exact(table: dps.Table, law: Any, units: list[Records]) -> dict[str, np.ndarray]:
    """What a law draws of some units, without noise."""
    found, _ = drawn_of(table, law, units, apart=False)
    return dict(found)


def apart(table: dps.Table, law: Any, units: list[Records]) -> list[dict[str, np.ndarray]]:
    """What each unit adds to the rows of a law's slots, in the order of the units if these are users.

    Shapes, and users by number of rows, are not apart: all units together move as many bins as there are units.
    """
    found, tables = drawn_of(table, law, units, apart=True)
    whole = [slot for slot in found if slot.startswith("shape") or slot == HELD]
    for slot in whole:
        assert found.pop(slot).sum() == len(units), slot
    order = np.arange(len(units))
    if table.spec.unit.level == "user":
        (order,) = tables.whole("SELECT person FROM people ORDER BY owner")
    split = {slot: each.reshape(len(units), -1, *each.shape[1:])[order] for slot, each in found.items()}
    return [{slot: each[i] for slot, each in split.items()} for i in range(len(units))]


TYPES = (pa.string(), pa.string(), pa.float64(), pa.float64())


def units_of(most: int) -> list[Records]:
    """Units with records in listed and unlisted groups, with values at, between and beyond bounds."""
    values = [(-9.0, 9.0), (9.0, -9.0), (0.5, 0.25)]
    found: list[Records] = [[(group, *value)] for group in "abcde" for value in values]
    if most > 1:
        for value in values:
            # Twice in each of some groups, of which c and d are one row; and in more of them than count.
            found += [[(group, *value) for group in held * 2] for held in ("a", "c", "ab", "ce", "ea", "cd", "abcde")]
            found.append([(group, *value) for group in "ab"])  # once: the least of records
        found.append([("a", *values[0]), ("b", *values[1]), ("a", *values[1])])
    return found


LINEAR = [dps.users(), dps.sum("x", bounds=(0, 1)), dps.mean("y", bounds=(0, 1), over="users")]
CORNERS = [dps.users(), dps.sum("x", bounds=(0, 1)), dps.sum("y", bounds=(0, 1))]
TABLES = {
    "linear": LINEAR,
    "with a tree": [*LINEAR, dps.quantiles("x", [0.5], bounds=(0, 1))],
    "by records": [dps.count(), dps.mean("x", bounds=(0, 1))],
    "records": [dps.sum("x", bounds=(0, 1)), dps.mean("y", bounds=(0, 1)), dps.quantiles("x", [0.5], bounds=(0, 1))],
    **{f"corners {i}": CORNERS[: i + 1] for i in range(3)},
}  # fmt: skip


def shared(law: CentredTable, head: float) -> CentredTable:
    """A law with this share of the head count; the rest is for the columns alike."""
    share = (1 - head) / len(law.measures)
    noises = tuple(RoundedGaussian(SCALE * math.sqrt(max(m.levels, 1) / share)) for m in law.measures)
    wide = tuple(RoundedGaussian(100.0) for _ in law.shapes)
    held = None if law.held is None else RoundedGaussian(100.0)
    return replace(law, users=RoundedGaussian(1 / math.sqrt(head)), noises=noises, shapes=wide, held=held)


def in_deviations(law: CentredTable, moved: dict[str, np.ndarray]) -> float:
    """The squared length of a move, each slot by the noise that the law draws it with; all shapes move."""
    total = 0.0
    for slot, each in moved.items():
        noise = law.slots()[slot]
        noise = noise[max(noise)] if isinstance(noise, dict) else noise
        total += float((each.astype(float) ** 2).sum()) / noise.sigma**2
    times = 2 if law.neighbours == "replace" else 1
    single = (*law.shapes, *(() if law.held is None else (law.held,)))
    return total + sum(times / noise.sigma**2 for noise in single)


@functools.cache
def moves(name: str, keys: int | None) -> tuple[dict[str, np.ndarray], ...]:
    """What each unit of a table adds, by slot."""
    table = table_of(TABLES[name], keys, "add_remove", **({} if keys is None else {"max_records": 2}))
    (law,) = table.spec.laws(Budget(1.0, 0.0) if name.startswith("corners") else Budget(rho=1.0), groups=LISTED)
    nothing = exact(table, law, [])
    found = apart(table, law, units_of(1 if keys is None else 3))
    rows = len(LISTED) + 1
    assert all(not each[:rows].any() for each in nothing.values())
    return tuple(found)


def pairs(found: tuple[dict[str, np.ndarray], ...], relation: str) -> list[dict[str, np.ndarray]]:
    """What neighbouring datasets differ by: one unit, or one less another."""
    if relation == "add_remove":
        return list(found)
    return [
        *found, *({slot: one[slot] - other[slot] for slot in one} for one, other in itertools.combinations(found, 2))
    ]  # fmt: skip


def held_to(law: Any, slots: dict[str, str], apart: list[dict[str, np.ndarray]]) -> dict[str, set[str]]:
    """Hold moves to the tables that a law states, and say which of their bounds are reached."""
    tables = {table.name: table.between(law.neighbours) for table in law.tables}
    reached: dict[str, set[str]] = {name: set() for name in slots.values()}
    for moved in apart:
        for slot, name in slots.items():
            amounts = [abs(int(each)) for each in moved[slot].ravel() if each]
            norms = {
                "l1": sum(amounts), "squared": sum(a * a for a in amounts), "cells": len(amounts),
                "most": max(amounts, default=0),
            }  # fmt: skip
            for bound, value in norms.items():
                assert value <= getattr(tables[name], bound), (name, bound)
                if value == getattr(tables[name], bound):
                    reached[name].add(bound)
    return reached


def slots_of(law: CentredTable) -> dict[str, str]:
    return {USERS: USERS, **{f"column {i}": measure.name for i, measure in enumerate(law.measures)}}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("name", "keys"), [("linear", 1), ("linear", 2), ("with a tree", 2), ("by records", 2), ("records", None)]
)
def test_a_unit_moves_a_gaussian_table_no_further_than_its_law_says(name: str, keys: int | None, relation: Any) -> None:
    """With the head count's share below and above one half, the largest move is the stated one.

    Two bounds are not reached under replace in a shared row, where no two units are at their worst in all columns: one
    of records in the count and in the mean, and opposite halves at every level of a tree. Three quarters are reached.
    """
    table = table_of(TABLES[name], keys, relation, **({} if keys is None else {"max_records": 2}))
    (drawn,) = table.spec.laws(Budget(rho=1.0), groups=LISTED)
    apart_ = pairs(moves(name, keys), relation)
    reached = held_to(drawn, slots_of(drawn), apart_)
    for measure in drawn.measures:
        tree = measure.kind == "quantiles" and relation == "replace"
        assert reached[measure.name] >= ({"most"} if tree else {"squared", "most"}), measure.name
    assert reached[USERS] >= {"squared", "l1", "cells"}
    for head in (0.2, 0.5, 0.8):
        law, rows = shared(drawn, head), keys or 1
        largest = max(in_deviations(law, moved) for moved in apart_)
        assert largest <= law.squares(rows)
        full = name == "linear" or relation == "add_remove" or head > 0.4
        assert largest > (0.999 if full else 0.75) * law.squares(rows)
        # A tenth less noise than is stated would be seen.
        noises = tuple(RoundedGaussian(0.9 * noise.sigma) for noise in law.noises)
        narrow = replace(law, users=RoundedGaussian(0.9 * law.users.sigma), noises=noises)
        assert not full or max(in_deviations(narrow, moved) for moved in apart_) > law.squares(rows)


@pytest.mark.parametrize("keys", [3, 9])
def test_on_a_short_list_a_user_moves_every_head_count_by_one(keys: int) -> None:
    """However many rows it is in, a user moves each row and the number of users by 1, and a law states no less."""
    table = table_of(TABLES["linear"], keys, "add_remove", max_records=2)
    (law,) = table.spec.laws(Budget(rho=1.0), groups=LISTED)
    assert law.persons is not None
    beside = [[("a", 1.0, 1.0)], [("b", 0.0, 1.0), ("e", 1.0, 0.0)]]
    before, largest = exact(table, law, beside), 0.0
    for unit in units_of(3):
        moved = {slot: each - before[slot] for slot, each in exact(table, law, [*beside, unit]).items()}
        assert set(np.abs(moved[USERS])) == {1}
        assert moved[PERSONS].tolist() == [1]
        linear = {slot: each for slot, each in moved.items() if slot != HELD and not slot.startswith("shape")}
        largest = max(largest, in_deviations(law, linear))
    stated = law.squares(min(keys, len(LISTED) + 1))
    assert 0.999 * stated < largest <= stated


def test_a_law_for_a_short_list_draws_no_longer_one() -> None:
    """More rows than were paid for are refused at the draw, and in a file a law of more rows than it has."""
    for budget in ({"rho": 1.0}, {"epsilon": 1.0, "delta": 0.0}):
        columns, unit = [dps.users(), dps.sum("x", bounds=(0, 1))], {"user": "user", "max_keys": 9}
        table = dps.Table(by="group", columns=columns, **unit)
        table.update(pa.table({"group": ["a"], "x": [1.0], "user": [1]}))
        (law,) = table.spec.laws(Budget(**budget), groups=["a"])
        with pytest.raises(dps.ReleaseRefused, match="another length"):
            law.draw(TableState(content_of(table), ["a", "b"]), NoNoise())
        private = table.release(**budget, groups=["a"])
        arrays = private.drawn.parts["table"].arrays
        assert law.fits(arrays)
        assert not replace(law, rows=3).fits(arrays)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("name", "keys"), [("corners 0", 2), ("corners 1", None), ("corners 2", 1), ("corners 2", 2), ("corners 2", None)]
)
def test_a_unit_moves_corners_by_exactly_what_is_stated(name: str, keys: int | None, relation: Any) -> None:
    """Cells, and the mass of quantiles; the L1 norm of the cells is M for every row of a unit."""
    columns = [*TABLES[name], dps.quantiles("x", [0.5, 0.9], bounds=(0, 1))]
    table = table_of(columns, keys, relation, **({} if keys is None else {"max_records": 2}))
    (law,) = table.spec.laws(Budget(1.0, 0.0), groups=LISTED)
    assert isinstance(law, CornerTable)
    found = moves(name, keys)
    for moved in found:
        assert (moved[CELLS] >= 0).all()
        rows = np.count_nonzero(moved[CELLS].sum(axis=1))
        assert moved[CELLS].sum() == rows * law.corner
        assert 1 <= rows <= (keys or 1)
    reached = held_to(law, {CELLS: CELLS}, pairs(found, relation))
    assert reached[CELLS] >= {"l1", "most"}
    # What is paid is what the moves come to, at the stated noise.
    (cost,) = law.costs()
    spent = Fraction(law.cells.epsilon) * law.tables[0].between(relation).l1 / law.cells.sensitivity
    for each, noise in zip(law.tables[1:], law.shapes, strict=True):
        spent += Fraction(noise.epsilon) * each.between(relation).l1 / noise.sensitivity
    spent += (2 if relation == "replace" else 1) * (keys or 1) * sum((d.loss for d in law.draws), Fraction(0))
    assert float(spent) == pytest.approx(cost.epsilon, rel=1e-12)
    assert cost.epsilon <= 1.0


@pytest.mark.parametrize("by_user", [True, False])
def test_a_unit_has_no_more_mass_in_a_rows_slots_than_stated(by_user: bool) -> None:
    """Quantiles are drawn from it, in rows that are listed; here all units are in one of them."""
    table = table_of([dps.quantiles("x", [0.5], bounds=(0, 1))], 2 if by_user else None, "add_remove")
    (law,) = table.spec.laws(Budget(1.0, 0.0), groups=LISTED)
    (draws,) = law.draws
    records = 7 if by_user else 1
    found = exact(table, law, [[(group, 0.3, 0.0) for group in "abc" for _ in range(records)]])
    mass, listed = found["quantiles 0"].sum(axis=1), found[CELLS][:-1].sum(axis=1) > 0
    assert (mass <= draws.mass * listed).all()
    assert (mass[listed] > 0.99 * draws.mass).all()


@pytest.mark.parametrize("keys", [1, 2])
def test_what_a_user_moves_depends_on_no_other_user(keys: int) -> None:
    """Beside others, in groups of their own and in the same ones, in any order of the records."""
    table = table_of([*TABLES["with a tree"], dps.mean("x", bounds=(0, 1))], keys, "add_remove", max_records=2)
    (law,) = table.spec.laws(Budget(rho=1.0), groups=LISTED)
    others = [[("a", 0.5, 0.5)], [("c", 9.0, 0.0), ("d", 0.0, 0.0)], [(group, 1.0, 1.0) for group in "bcdef"]]
    unit = [(group, x, x) for group, x in zip("abcde", (0.1, 0.2, 0.9, 7.0, 0.4), strict=True)]
    nothing, alone = exact(table, law, []), exact(table, law, [unit])
    before, beside = exact(table, law, [[], *others]), exact(table, law, [unit[::-1], *others])
    for slot in nothing:
        assert ((beside[slot] - before[slot]) == (alone[slot] - nothing[slot])).all(), slot


@pytest.mark.parametrize("bound", [1, 3, 5, 64, 10**6])
def test_a_mean_over_records_never_passes_its_scale(bound: int) -> None:
    table = table_of([dps.count(), dps.mean("x", bounds=(0, 1))], 1, "add_remove", max_records=bound)
    (law,) = table.spec.laws(Budget(rho=1.0), groups=LISTED)
    held = [1, 2, 3, 5, 7, 64, 1000]
    units = [[("a", value, 0.0)] * records for records in held for value in (7.0, -7.0)]
    for place, moved in enumerate(apart(table, law, units)):
        records, sign = held[place // 2], (-1) ** place
        assert 0 < sign * moved["column 1"][0] <= SCALE
        assert sign * moved["column 1"][0] == pytest.approx(SCALE * min(records / bound, 1), abs=records)


def test_a_users_weights_in_a_round_are_at_most_one_in_l2() -> None:
    """Whatever the user holds; with one group it is 1, and with more than the cap it is still near 1."""
    table = table_of([dps.users()], 2, "add_remove")
    (law,) = table.spec.laws(Budget(1.0, 1e-6))
    assert law.cap == 2
    nothing = np.empty(0, np.int64)
    for held in (1, 2, 5):
        filled = table.empty_like()
        filled.update(pa.table({"user": ["ann"] * held, "group": [f"g{i}" for i in range(held)]}))
        (block,) = content_of(filled).weights(nothing, law.cap)
        squared = sum(int(weight) ** 2 for weight in block.sums)
        assert 0.999 * WEIGHT_ONE**2 < squared <= law.tables[-1].move.squared


# The joint δ.


def hockey(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def gaussian(shift: float) -> np.ndarray:
    """The masses of N(shift, 1) on a fine grid."""
    edges = np.linspace(-9, 9 + 4, 400_001)
    return np.diff(np.vectorize(math.erfc)(-(edges - shift) / math.sqrt(2)) / 2)


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("cutoff", [2.0, 3.5, 6.0])
def test_the_joint_delta_of_names_and_columns(epsilon: float, cutoff: float) -> None:
    """One round in which a unit has one group: of its own, or shared; all else moves by √0.5 deviations."""
    sigma, rest = 1.5, 0.5
    noise = RoundedGaussian(sigma * WEIGHT_ONE)
    facts: dict[str, Any] = {"epsilon": epsilon, "cap": 1, "replace": False}
    stated = rounds_delta((noise,), (int(cutoff * WEIGHT_ONE),), **facts, counts=rest)
    hidden = math.erfc(-(cutoff - 1) / sigma / math.sqrt(2)) / 2
    moved, still = gaussian(math.sqrt(rest)), gaussian(0.0)
    novel = max(1 - hidden + hockey(hidden * moved, still, epsilon), hockey(still, hidden * moved, epsilon))
    both = hockey(gaussian(math.sqrt(rest + 1 / sigma**2)), still, epsilon)
    assert max(novel, both) <= stated * (1 + 1e-6)
    assert stated <= max(novel, both) * (1 + 1e-4)
    # Without what all else moves by, or with a leak of half, less would be promised than is shown.
    if novel >= both:
        assert rounds_delta((noise,), (int((cutoff + 0.5) * WEIGHT_ONE),), **facts, counts=rest) < novel
    else:
        assert rounds_delta((noise,), (int(cutoff * WEIGHT_ONE),), **facts) < both


def laplace(scale: float, reach: int = 400) -> np.ndarray:
    z = np.arange(-reach, reach + 1)
    a = math.exp(-1 / scale)
    return np.asarray(a ** np.abs(z) * (1 - a) / (1 + a))


def corner_law(relation: Any, cutoff: int, cells: float, others: float) -> CornerTable:
    table = dps.Table(by="group", columns=[dps.count()], neighbours=relation)
    (law,) = table.spec.laws(Budget(1.0, 0.1))
    twice = 2 if relation == "replace" else 1
    return replace(law, cutoff=cutoff, cells=DiscreteLaplace(cells, twice), others=DiscreteLaplace(others, twice))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("cutoff", "cells", "others"), [(3, 1.0, 0.3), (5, 0.8, 0.8), (9, 2.0, 0.1)])
def test_the_joint_delta_of_corners(relation: str, cutoff: int, cells: float, others: float) -> None:
    """Counts alone (M = 1), so that all is a sum over whole numbers. A record may be alone in its group, or not."""
    law = corner_law(relation, cutoff, cells, others)
    (cost,) = law.costs()
    twice = 2 if relation == "replace" else 1
    noise, last = laplace(twice / cells), laplace(twice / others)
    reach = len(noise) // 2
    z = np.arange(-reach, reach + 1)

    def seen(count: int) -> np.ndarray:
        """What is published of a group with some records and of the last row, which has 3 others: value by value."""
        values = np.roll(noise, count)
        shown = np.where(z >= cutoff, values, 0.0)
        if count == 0:  # nobody has it
            shown, hidden = np.zeros_like(shown), 1.0
        else:
            hidden = float(values[z < cutoff].sum())
        # Listed: the group's value and the last row without it; hidden: the last row with it.
        listed = np.outer(shown, last) if shown.any() else np.zeros((len(z), len(z)))
        return np.vstack([listed, hidden * np.roll(last, count)[None, :]])

    shows = float(np.roll(noise, 1)[z >= cutoff].sum())
    assert cost.delta == pytest.approx(shows, rel=1e-6)
    worst = 0.0
    for fewer, more in ((0, 1), (1, 2), (2, 3), (4, 5)):
        one, other = seen(fewer), seen(more)
        # Under replace the other record is one of another group, at half the odds again.
        half = cost.epsilon / twice
        worst = max(worst, hockey(one, other, half), hockey(other, one, half))
    assert worst <= cost.delta * (1 + 1e-6) + 1e-15
    assert worst >= 0.99 * shows
    # With a cutoff that is one higher less would be promised than is shown.
    assert worst > corner_law(relation, cutoff + 1, cells, others).costs()[0].delta


def test_corners_that_show_too_often_promise_nothing() -> None:
    """Leaving a group of one's own must cost no more than ε: r ≤ 1 − e^(−ε), of half of ε under replace."""
    for relation, cells in (("add_remove", 0.3), ("replace", 0.5)):
        assert corner_law(relation, 2, cells, 0.1).costs()[0].delta == 1.0
        assert corner_law(relation, 9, cells, 0.1).costs()[0].delta < 1.0


@pytest.mark.parametrize("scale", [0.7, 3.0, 20.0])
@pytest.mark.parametrize("cells", [1, 2, 4, 8])
def test_the_tail_of_corners_is_no_less_than_the_exact_one(cells: int, scale: float) -> None:
    single = laplace(scale, math.ceil(40 * scale) + 10)
    total = np.ones(1)
    for _ in range(cells):
        total = np.convolve(total, single)
    middle = len(total) // 2
    noise = DiscreteLaplace(1 / scale, 1)
    for beyond in range(1, math.ceil(15 * scale) + cells):
        shows = float(total[middle + beyond :].sum())
        stated = tail(noise, cells, beyond)
        assert stated >= shows * (1 - 1e-9)
        assert stated <= shows * math.exp((cells + 1) / scale) * 2 or stated == 1.0
        if cells > 1 and beyond > cells:  # a corner that is forgotten would be seen
            assert tail(noise, cells - 1, beyond) < stated
    if cells == 1:
        assert tail(noise, 1, 5) == pytest.approx(float(total[middle + 5 :].sum()), rel=1e-6)


@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 3)])
def test_drawn_quantiles_cost_no_more_than_their_loss(share: Fraction) -> None:
    """By enumeration: every count of up to 3 records in 3 slots, one record more in each slot."""
    draws = RankDraws((share,), (Fraction(3, 10),), (Fraction(1, 10),), (2,), 3, 1)
    worst = 0.0
    for counts in itertools.product(range(4), repeat=3):
        for slot in range(3):
            more = tuple(count + (place == slot) for place, count in enumerate(counts))
            one, other = chances(draws, counts), chances(draws, more)
            worst = max(worst, sum(float(np.abs(np.log(a / b)).max()) for a, b in zip(one, other, strict=True)))
    assert worst <= float(draws.loss) * (1 + 1e-12)
    assert worst > 0.5 * float(draws.loss)


def chances(draws: RankDraws, counts: tuple[int, ...]) -> list[np.ndarray]:
    """The law of the drawn slot and of both ends, from the formula of the module."""
    below = np.concatenate([[0], np.cumsum(counts)])
    a, b = draws.shares[0].numerator, draws.shares[0].denominator
    found = []
    rates = (draws.rates[0], draws.end_rates[0], draws.end_rates[0])
    for rate, shift in zip(rates, (0, -draws.shifts[0], draws.shifts[0]), strict=True):
        wanted = a * below[-1] + b * shift
        scores = np.maximum(0, np.maximum(b * below[:-1] - wanted, wanted - b * below[1:]))
        weights = np.exp(-float(rate) * scores)
        found.append(weights / weights.sum())
    return found


@pytest.mark.statistical
def test_quantiles_are_drawn_by_that_law() -> None:
    """False-positive rate below 1e-6: 9 frequencies of 4,000 draws within 5.5 deviations.

    A rate that is a half larger fails.
    """
    draws = RankDraws((Fraction(1, 2),), (Fraction(3, 10),), (Fraction(1, 10),), (2,), 3, 1)
    counts = (3, 0, 2)
    with seeded_noise_for_tests_only(9):
        found = draws.draw(np.array([counts] * 4000))
    wrong = 0
    for place, law in enumerate(chances(draws, counts)):
        seen = np.bincount(found[:, place, 0], minlength=3) / 4000
        assert (np.abs(seen - law) < 5.5 * np.sqrt(law * (1 - law) / 4000) + 1e-12).all()
        faster = replace(draws, rates=(Fraction(9, 20),), end_rates=(Fraction(3, 20),))
        other = chances(faster, counts)[place]
        wrong += int((np.abs(seen - other) > 5.5 * np.sqrt(other * (1 - other) / 4000)).any())
    assert wrong


@pytest.mark.parametrize("name", ["linear", "corners 2"])
def test_two_releases_of_found_names_agree_in_no_number(name: str) -> None:
    """Also in the last row. At ε = 10⁻⁴ two draws are equal with a probability below 10⁻⁴ a number."""
    table = table_of(TABLES[name], 2 if name == "linear" else None, "add_remove")
    rows = 200
    frame = {"group": ["a", "b"] * rows, "x": [1.0] * 2 * rows, "y": [0.0] * 2 * rows, "user": [*range(2 * rows)]}
    table.update(pa.table(frame))
    first, second = (table.release(epsilon=1e-4, delta=1e-6).drawn.parts["table"].arrays for _ in range(2))
    for slot, array in first.items():
        if isinstance(array, np.ndarray) and array.size and len(array) == len(second[slot]):
            assert np.count_nonzero(array == second[slot]) <= array.size // 100, slot
