"""What a release promises, held to what it drew: for every kind in the table of kinds, both units and both relations.

*Draws.* What was published less the exact numbers is noise of the law that the release states, with so many draws that
a fifth less is seen; and no draw goes with another one of its part, of another part or of the next release.

*Cost.* Under these laws the exact numbers of neighbouring inputs lie no further apart than what is printed allows. No
sensitivity is taken from the library: exact numbers are those of a release with so large a budget that nothing is
added. Of names that are found this does not tell all; tests/privacy holds their δ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.noise import RoundedGaussian
from dpsketch.sketches.kinds import KINDS
from drawn import LESS, Gaussian, Laplace, Law, Truncated, dependence, gaussian_epsilon, law_of, placed, problems
from parts import numbers_of, parts_of
from sensitive import unit_of

EPSILON, DELTA = 1.0, 1e-6
# Of a large part so many numbers, evenly spaced, are looked at.
NUMBERS = 512
Arrays = dict[str, np.ndarray]
Budget = dict[str, float]


class Shown(NamedTuple):
    """What a release shows: its numbers by part, the laws that are stated for them, and its promise."""

    numbers: Arrays
    laws: dict[str, Law]
    guarantee: Any


Released = Callable[[Budget], Shown]


@dataclass(frozen=True)
class Row:
    """A kind, or a form of one.

    ``start`` takes a unit and what the one unit holds that neighbours differ in, and returns a function that releases.
    ``pairs`` are pairs of what it holds; none where names are found. ``exact`` are the numbers without noise, where a
    large budget does not show them.
    """

    kind: str
    start: Callable[[dps.Unit, Any], Released]
    pairs: dict[str, list[tuple[Any, Any]]]
    levels: tuple[str, ...] = ("record", "user")
    deltas: tuple[float, ...] = (DELTA, 0.0)
    most_keys: int = 3
    max_weight: float = 1.0
    exact: Callable[[Shown], Arrays] | None = None
    budget: Budget | None = None
    room: float = 1e-9
    runs: int | None = None

    def unit(self, level: str, relation: str) -> dps.Unit:
        return unit_of(level, relation, keys=self.most_keys, weight=self.max_weight)

    def budget_at(self, delta: float) -> Budget:
        return self.budget or {"epsilon": EPSILON, "delta": delta}


def everything(delta: float) -> Budget:
    """A budget so large that nothing is added, or next to nothing."""
    return {"rho": 1e9} if delta else {"epsilon": 1e5, "delta": 0.0}


# Sketches whose tables all have additive noise.

Records = list[tuple[Any, str, float]]
# Everyone else; and what the one unit holds.
REST: Records = [(11, "eve", 1.0), (50, "kim", 1.0)]
HELD: dict[str, dict[str, Records]] = {
    "record": {"full": [(33, "ann", 9.0)], "other": [(61, "ann", 4.0)]},
    "user": {
        "full": [(33, "ann", 4.0), (34, "ann", 4.0), (35, "ann", 9.0), (36, "ann", 4.0)],
        "other": [(key, "ann", 4.0) for key in (60, 61, 62)],
    },
}
NOTHING: Records = [(None, "ann", 1.0)]
PAIRS = {
    "add_remove": [("full", None), ("other", None)],
    "replace": [("full", "other"), ("full", "nothing"), ("other", "nothing")],
}


def additive(make: Callable[..., Any], column: Callable[[Any], Any] = lambda key: key, *, weighs: bool = True) -> Any:
    """Start a sketch whose keys are made of the records' numbers."""

    def start(unit: dps.Unit, held: Any) -> Released:
        sketch = make(unit=unit)
        mine = NOTHING if held == "nothing" else HELD[unit.level].get(held, [])
        keys, users, weights = zip(*REST, *mine, strict=True)
        given: dict[str, Any] = {"weights": list(weights)} if weighs else {}
        if unit.level == "user":
            given["users"] = list(users)
        sketch.update([column(key) for key in keys], **given)
        return lambda budget: shown(sketch.release(**budget))

    return start


def shown(release: Any) -> Shown:
    """The parts of a release that have noise in every number."""
    laws = {part: law_of(noise) for part, (_, noise) in parts_of(release).items()}
    return Shown(numbers_of(release), laws, release.guarantee)


def far(step: int) -> Callable[[Any], Any]:
    """Keys that differ at every level of a tree."""
    return lambda key: None if key is None else key * step


def point(key: Any) -> list[float]:
    return [math.nan, 0.0] if key is None else [key % 7.0, key % 5.0]


def direction(key: Any) -> list[float]:
    """Those below 50 point one way and the others back, as nearly as they are different points."""
    return [math.nan, 0.0] if key is None else [1.0 if key < 50 else -1.0, 1e-6 * key]


def made(cls: Any, **shape: Any) -> Callable[..., Any]:
    return lambda unit: cls(unit=unit, **shape)


PLANE = dps.kernels.Euclidean(dim=2, bandwidth=1.0)
SMALL = {"rows": 3, "width": 64}
ROWS: dict[str, Row] = {
    "counts": Row("counts", additive(made(dps.CountSketch, **SMALL)), PAIRS, max_weight=4.0),
    # A weight is clipped before it is rounded, or 1.8 would count as 2.
    "counts on a coarse grid": Row(
        "counts", additive(made(dps.CountSketch, **SMALL, grid=0.5)), PAIRS, max_weight=1.8
    ),
    "heavy": Row(
        "heavy", additive(made(dps.HeavyHitters, **SMALL, key_bits=33), far(2**26 + 2**18 + 2**10 + 1)), PAIRS,
        max_weight=4.0,
    ),
    "ranges": Row("ranges", additive(made(dps.RangeSketch, bits=6)), PAIRS, max_weight=4.0),
    "ranges with tables": Row(
        "ranges",
        additive(made(dps.RangeSketch, bits=25, level_bits=8, rows=3, width=8), far(2**19 + 2**9 + 1)),
        PAIRS,
        max_weight=4.0,
    ),
    "distinct": Row(
        "distinct", additive(made(dps.DistinctSketch, buckets=64), weighs=False), PAIRS, deltas=(0.0,)
    ),
    "distinct-set": Row("distinct-set", additive(made(dps.DistinctSet), weighs=False), PAIRS, deltas=(0.0,)),
    "density": Row(
        "density", additive(made(dps.DensitySketch, kernel=PLANE, rows=16, width=32), point, weighs=False), PAIRS
    ),
    # Features count in steps of 2⁻²⁴: even a large budget leaves some noise in what is taken for exact.
    "density of waves": Row(
        "density",
        additive(made(dps.DensitySketch, kernel=dps.kernels.Gaussian(2, 1.0), rows=40), point, weighs=False),
        PAIRS,
        room=1e-3,
    ),
    "density of vectors": Row(
        "density",
        additive(made(dps.DensitySketch, kernel=dps.kernels.Linear(2)), direction, weighs=False),
        PAIRS,
        room=1e-3,
    ),
}  # fmt: skip


# Streams: the one unit holds keys on days, and a life shows all publications, and the state if it may be seized.

SHAPE = {"rows": 3, "width": 8, "key_type": "int"}
LIFE = [[1, 2], [3], [], [4, 4, 5]]
# Keys 7 and 66 move a table of this shape farthest apart. A record of a day may be on another day of the other input.
DAYS: dict[str, list[tuple[Any, Any]]] = {
    "add_remove": [({0: [7]}, {}), ({1: [7]}, {}), ({3: [7]}, {})],
    "replace": [({0: [7]}, {0: [66]}), ({1: [7]}, {2: [66]}), ({1: [7]}, {3: [7]}), ({1: [7]}, {1: [None]})],
}


def given_days(held: Any, user: bool) -> list[tuple[list[Any], dict[str, Any]]]:
    """The keys of each day, with users who never meet; the one unit comes last."""
    days = []
    for day, keys in enumerate(LIFE):
        mine = (held or {}).get(day, [])
        users = [f"{day} {i}" for i in range(len(keys))] + ["ann"] * len(mine)
        days.append((keys + mine, {"users": users} if user else {}))
    return days


def often(unit: dps.Unit, days: int) -> dict[str, int]:
    return {"user_days": days} if unit.level == "user" else {}


def anew(life: Callable[..., Shown], *given: Any) -> Callable[[dps.Unit, Any], Released]:
    """Start a stream for each release: its life is a function of the unit, of what it holds, and of the budget."""
    return lambda unit, held: partial(life, *given, unit, held)


def in_a_design(design: Any, unit: dps.Unit, held: Any, budget: Budget) -> Shown:
    sketch = dps.ContinualCountSketch(days=4, unit=unit, design=design, **SHAPE, **often(unit, 2), **budget)
    for keys, users in given_days(held, unit.level == "user"):
        total = sketch.day(keys, **users)
    (stretch,) = total.stretches
    numbers = {str(i): table.ravel() for i, table in enumerate(sketch.published)}
    return Shown(numbers, dict.fromkeys(numbers, law_of(stretch.law)), sketch.guarantee)


def pan_private(unit: dps.Unit, held: Any, budget: Budget) -> Shown:
    """The state is seized after the first day, and what is published beyond it comes after the last."""
    sketch = dps.PanPrivateCountSketch(unit=unit, **SHAPE, **budget)
    days = given_days(held, False)
    sketch.update(days[0][0])
    seized = sketch.snapshot()
    for keys, _ in days[1:]:
        sketch.update(keys)
    release = sketch.publish()
    (stretch,) = release.stretches
    assert stretch.draws == 2
    numbers = {"state": seized.ravel(), "publication": (sketch.published[0] - seized).ravel()}
    return Shown(numbers, dict.fromkeys(numbers, law_of(stretch.law)), release.guarantee)


def seized_stream(unit: dps.Unit, held: Any, budget: Budget) -> Shown:
    """The state is seized on the second day, after its records came."""
    sketch = dps.ContinualCountSketch(days=4, unit=unit, design="pan-private", **SHAPE, **budget)
    days = given_days(held, False)
    sketch.day(days[0][0])
    sketch.update(days[1][0])
    seized = sketch.snapshot()
    sketch.publish_day()
    sketch.day(days[2][0])
    (stretch,) = sketch.day(days[3][0]).stretches
    drawn = law_of(stretch.law)
    both = law_of(RoundedGaussian(math.sqrt(max(stretch.draws * stretch.law.variance - 1 / 12, 1e-12))))
    shows = sketch.published
    numbers = {"first": shows[0], **{f"state {i}": sums for i, sums in enumerate(seized)}}
    numbers |= {f"day {i + 2}": shows[i + 1] - seized[i] for i in range(3)}
    laws = {name: both if name == "first" else drawn for name in numbers}
    return Shown({name: each.ravel() for name, each in numbers.items()}, laws, sketch.guarantee)


def values_of_days(stream: Any, days: list[tuple[Any, dict[str, Any]]], names: Any) -> Shown:
    """Values of names, day by day, as a series answers them."""
    for keys, users in days:
        stream.day(keys if len(keys) else np.empty(0, np.int64), **users)
    (law,) = stream.total().drawn.receipts[0].laws
    tables = {str(i): np.asarray(stream.between(i, i).estimate(names).value) for i in range(1, len(days) + 1)}
    return Shown(tables, dict.fromkeys(tables, law_of(law.noise)), stream.guarantee)


def listed_days(unit: dps.Unit, held: Any, budget: Budget) -> Shown:
    names = [*range(60), 66]
    histogram = dps.Histogram(unit=unit, key_type="int")
    stream = dps.ContinualSketch(histogram, days=4, keys=names, design="daily", **often(unit, 1), **budget)
    return values_of_days(stream, given_days(held, unit.level == "user"), names)


PURE = (0.0,)
GAUSSIAN = (DELTA,)
RECORDS = ("record",)
ROWS |= {
    "days in a tree": Row("continual", anew(in_a_design, "tree"), DAYS, most_keys=1),
    "days in bands": Row("continual", anew(in_a_design, "banded"), DAYS, most_keys=1, deltas=GAUSSIAN),
    # The floors of a recurrence are paid for, and move a table by a little more or less.
    "days in a recurrence": Row("continual", anew(in_a_design, "recurrence"), DAYS, most_keys=1, deltas=GAUSSIAN),
    "days by themselves": Row("continual", anew(in_a_design, "daily"), DAYS, most_keys=1, deltas=PURE),
    "days of a list": Row("series", anew(listed_days), DAYS, most_keys=1),
    "pan-private": Row("continual", anew(pan_private), DAYS, RECORDS),
    "a seized stream": Row("continual", anew(seized_stream), DAYS, RECORDS, GAUSSIAN),
}


# Names: counts far above a threshold less what is known of them. Nobody moves them: there are no pairs.

PEOPLE, NAMES = 100, 16
WIDE = {"epsilon": 0.5, "delta": 1e-3}


def named(histogram: Callable[..., Any], **asked: Any) -> Any:
    def start(unit: dps.Unit, held: Any) -> Released:
        sketch = histogram(unit=unit)
        keys = np.repeat(np.arange(NAMES), PEOPLE)
        sketch.update(keys, **({"users": np.arange(len(keys))} if unit.level == "user" else {}))

        def release(budget: Budget) -> Shown:
            found = sketch.release(**budget, **asked)
            order = np.argsort(found.keys)
            assert len(order) == NAMES + ("keys" in asked)
            noise, law = {"counts": np.asarray(found.values)[order]}, getattr(found, "noise", None)
            laws = {"counts": law_of(found.mechanism.noise if law is None else law)}
            if asked.get("form") == "loads":
                noise["pairs"], laws["pairs"] = np.asarray(found.pairs)[order], laws["counts"]
            if asked.get("others"):
                other = found.law.others_under(found.bound) if "keys" in asked else found.law.total
                if other is None:  # beside names that were found in rounds
                    other = found.law.others_under(found.bound)
                noise["others"], laws["others"] = np.array([found.rest]), law_of(other)
            return Shown(noise, laws, found.guarantee)

        return release

    return start


def known(shows: Shown) -> Arrays:
    """All named keys have as many records; a total is of all of them."""
    exact = {name: np.where(np.arange(len(each)) < NAMES, float(PEOPLE), 0.0) for name, each in shows.numbers.items()}
    exact |= {"pairs": np.zeros(NAMES)} if "pairs" in exact else {}
    if "others" in exact:
        total = len(shows.numbers["counts"]) == NAMES and isinstance(shows.laws["others"], Laplace)
        exact["others"] = np.array([float(total * NAMES * PEOPLE)])
    return exact


def found_days(unit: dps.Unit, held: Any, budget: Budget) -> Shown:
    """Names that are found on the first of three days."""
    histogram, keys = dps.Histogram(unit=unit, key_type="int"), np.repeat(np.arange(40), PEOPLE)
    stream = dps.ContinualSketch(histogram, days=3, design="daily", **often(unit, 3), **budget)
    users = {"users": np.arange(len(keys))} if unit.level == "user" else {}
    return values_of_days(stream, [(keys, users)] * 3, range(40))


def in_each(number: float) -> Callable[[Shown], Arrays]:
    """The same exact number everywhere."""
    return lambda shows: {name: np.full(len(each), number) for name, each in shows.numbers.items()}


NOBODY = in_each(0.0)


def chosen(unit: dps.Unit, held: Any) -> Released:
    """The two tables by which a bound on a user's keys is chosen; nobody has a listed key."""
    histogram = dps.Histogram(unit=dps.per_user("auto", neighbours=unit.neighbours), key_type="int")
    histogram.update([1, 2, 1], users=["ann", "ann", "bob"])

    def release(budget: Budget) -> Shown:
        found = histogram.release(**budget, keys=[98, 99])
        arrays = found.drawn.parts["entries"].arrays
        numbers = {name: np.asarray(arrays[name]) for name in ("users", "spread")}
        laws = {law.name: law_of(law.noise) for law in found.law.choice}
        counts = np.asarray(found.values) / math.sqrt(found.noise.variance)
        return Shown({**numbers, "counts": counts}, laws, found.guarantee)

    return release


def groups(*columns: Any) -> Any:
    """A public list of groups that nobody is in: head counts, shapes and columns, or corners."""

    def start(unit: dps.Unit, held: Any) -> Released:
        user = {"user": "user", "max_keys": unit.max_keys} if unit.level == "user" else {}
        table = dps.Table(by="group", columns=list(columns), neighbours=unit.neighbours, **user)

        def release(budget: Budget) -> Shown:
            found = table.release(**budget, groups=[f"g{i}" for i in range(700)])
            law, arrays = found.drawn.parts["table"]
            numbers, laws = {}, {}
            for slot, noise in law.slots().items():
                name = slot.replace(" ", "")
                if name in arrays:
                    noise = noise[max(noise)] if isinstance(noise, dict) else noise
                    numbers[name], laws[name] = np.asarray(arrays[name]).ravel(), law_of(noise)
            assert numbers
            return Shown(numbers, laws, found.guarantee)

        return release

    return start


def table_columns(unit: str) -> list[Any]:
    first = dps.users() if unit == "user" else dps.count()
    tree = dps.quantiles("x", [0.5], bounds=(0, 1))
    return [first, dps.sum("x", bounds=(0, 1)), dps.mean("y", bounds=(0, 1)), tree]


HISTOGRAM = made(dps.Histogram, key_type="int")
VOTES = made(dps.VoteHistogram, key_type="int", max_counters=2**12)
LIST = [*range(NAMES), 90]
CORNERS = [dps.count(), dps.sum("x", bounds=(0, 1)), dps.sum("y", bounds=(0, 1))]
USERS = ("user",)


def of_names(start: Any, levels: tuple[str, ...] = ("record", "user"), runs: int | None = None) -> Row:
    """A row of names that are found.

    A single number beside them is drawn so often that two thirds of its noise are seen, or half where rounds find them.
    """
    return Row("histogram", start, {}, levels, GAUSSIAN, most_keys=1, exact=known, budget=WIDE, runs=runs)


ROWS |= {
    "histogram, list, gaussian": of_names(named(HISTOGRAM, keys=LIST, others=True, form="gaussian"), RECORDS, 300),
    "histogram, list, laplace": of_names(named(HISTOGRAM, keys=LIST, others=True, form="laplace"), RECORDS, 300),
    "histogram, truncated": of_names(named(HISTOGRAM, form="truncated")),
    "histogram, gaussian": of_names(named(HISTOGRAM, form="gaussian"), RECORDS),
    "histogram, others": of_names(named(HISTOGRAM, form="laplace", others=True), RECORDS, 300),
    "histogram, weighted": of_names(named(HISTOGRAM, form="weighted"), USERS),
    "histogram, rounds": of_names(named(HISTOGRAM, form="rounds", others=True), USERS, 60),
    "histogram, chosen bound": Row("histogram", chosen, {}, USERS, exact=NOBODY),
    **{
        f"votes, {form}": replace(of_names(named(VOTES, form=form)), kind="histogram-votes")
        for form in ("loads", "truncated", "gaussian")
    },
    "days of found names": Row("continual", anew(found_days), {}, deltas=GAUSSIAN, exact=in_each(PEOPLE), most_keys=1),
    "table": Row("table", groups(*table_columns("user")), {}, USERS, GAUSSIAN, exact=NOBODY, runs=10),
    "table of records": Row(
        "table",
        groups(*table_columns("record")),
        {},
        RECORDS,
        GAUSSIAN,
        exact=NOBODY,
        budget={"rho": 0.1},
        runs=3,
    ),
    "table of corners": Row("table", groups(*CORNERS), {}, deltas=PURE, exact=NOBODY),
}

# What is not additive noise is held in test_promise_bits, and reports of devices in privacy/test_local_privacy.
OTHERWISE = {"sparse", "moment", "moments", "distinct-bitmap", "quantiles", "local"}

# The judgements.


def draws_of(
    name: str, level: str, relation: str, delta: float, runs: int | None = None
) -> tuple[Arrays, dict[str, Law]]:
    """Release so often that a fifth less noise would be seen in the smallest part.

    Return the noise of each part, in runs × numbers, and the laws that are stated for it.
    """
    row = ROWS[name]
    held = row.pairs[relation][0][0] if row.pairs else None
    release, budget = row.start(row.unit(level, relation), held), row.budget_at(delta)
    first = release(budget)
    exact = row.exact(first) if row.exact else release(everything(delta)).numbers
    some = {part: slice(None, None, -(-len(each) // NUMBERS)) for part, each in exact.items() if part in first.laws}
    needed = max(-(-first.laws[part].least_draws() // len(exact[part][each])) for part, each in some.items())
    runs = runs or row.runs or max(3, needed)
    found = [first.numbers] + [release(budget).numbers for _ in range(runs - 1)]
    noise = {part: np.stack([one[part][each] for one in found]) - exact[part][each] for part, each in some.items()}
    return noise, first.laws


CASES = [
    pytest.param(name, level, relation, delta, id=f"{name.replace(', ', '-')}-{level}-{relation}-{delta}")
    for name, row in ROWS.items()
    for level in row.levels
    for relation in PAIRS
    for delta in row.deltas
]


def test_every_kind_has_a_row() -> None:
    """A new kind is held to its laws from its first day."""
    held = {(row.kind, level) for row in ROWS.values() for level in row.levels}
    assert held == {(kind, level) for kind in KINDS.keys() - OTHERWISE for level in ("record", "user")}


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "level", "relation", "delta"), CASES)
def test_a_release_draws_what_it_promises(name: str, level: str, relation: str, delta: float) -> None:
    """False-positive rate below 1e-7 a case. The twins below show what is seen."""
    assert problems(*draws_of(name, level, relation, delta)) == []


COSTS = [case for case in CASES if ROWS[case.values[0]].pairs]


@pytest.mark.parametrize(("name", "level", "relation", "delta"), COSTS)
def test_a_release_draws_as_much_as_one_unit_moves(name: str, level: str, relation: str, delta: float) -> None:
    """Exact: the numbers of neighbours without noise, against the stated laws and the printed promise."""
    row = ROWS[name]
    unit = row.unit(level, relation)
    worst = 0.0
    for pair in row.pairs[relation]:
        one, other = (row.start(unit, held) for held in pair)
        shows = one(row.budget_at(delta))
        epsilon, least_delta, stated = promised(str(shows.guarantee))
        assert stated == (level, relation == "replace", unit.max_keys, unit.max_weight)
        first, second = (release(everything(delta)).numbers for release in (one, other))
        square = cost = 0.0
        for part, law in shows.laws.items():
            moved = np.abs(first[part] - second[part])
            match law:
                case Gaussian(sigma):
                    square += float(np.sum(moved**2)) / sigma**2
                case Laplace(scale):
                    cost += float(np.sum(moved)) / scale
        told = cost + gaussian_epsilon(math.sqrt(square), least_delta)
        assert told <= epsilon * (1 + row.room)
        worst = max(worst, told / epsilon)
    assert worst > 0.15


_SENTENCE = re.compile(
    r"(?:ρ = \S+ zero-concentrated, hence )?ε = (?P<epsilon>[^,\s]+)(?:, δ = (?P<delta>[^,\s]+))?, for each "
    r"(?P<level>record|user)(?: with all their records)? (?P<change>added or removed|replaced by another)"
    r"(?: \((?:(?:at most (?P<keys>\d+) keys?, )?weight at most (?P<weight>[^\s)]+)|"
    r"counted in at most (?P<groups>\d+) groups?\))|\.)"
)


def promised(words: str) -> tuple[float, float, tuple[Any, ...]]:
    """Read ε, δ and the unit off a printed guarantee."""
    found = _SENTENCE.match(words)
    assert found is not None, words
    keys, weight = int(found["keys"] or found["groups"] or 1), float(found["weight"] or 1)
    unit = found["level"], found["change"] == "replaced by another", keys, pytest.approx(weight, rel=1e-5)
    return float(found["epsilon"]), float(found["delta"] or 0), unit


# The twins: what would be seen.

SEEN = [
    ("counts", "record", "replace", DELTA),
    ("heavy", "user", "replace", DELTA),
    ("density", "record", "add_remove", 0.0),
    ("days in bands", "user", "replace", DELTA),
    ("a seized stream", "record", "add_remove", DELTA),
    ("histogram, truncated", "record", "add_remove", DELTA),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "level", "relation", "delta"), SEEN)
def test_a_fifth_less_is_seen_in_every_part(name: str, level: str, relation: str, delta: float) -> None:
    """Missed once in a thousand times a part, down to the single number of a total; also a fourth more, which would
    waste the budget."""
    drawn, laws = draws_of(name, level, relation, delta)
    for part, noise in drawn.items():
        for factor in (LESS, 1 / LESS):
            wrong = {part: np.rint(factor * noise)}
            assert any(found.startswith(f"{part}: spread") for found in problems(wrong, laws)), part


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "level", "relation", "delta"), SEEN)
def test_a_draw_that_is_used_again_is_seen(name: str, level: str, relation: str, delta: float) -> None:
    """For another part, with its sign turned, for the next number, and for the next release."""
    drawn, laws = draws_of(name, level, relation, delta)
    for part, noise in drawn.items():
        law, turned = laws[part], np.where(np.arange(noise.size).reshape(noise.shape) % 3, 1, -1)
        for again in (noise, -noise, noise * turned):
            assert dependence({part: placed(noise, law), "again": placed(again, law)})
        assert dependence({part: placed(np.repeat(noise.ravel()[: noise.size // 2], 2).reshape(-1, 1), law)})
        half = noise[: len(noise) // 2]
        held = np.concatenate([half, half]) if noise.shape[1] > 1 else np.repeat(half, 2, axis=0)
        assert dependence({part: placed(held, law)})


@pytest.mark.statistical
def test_laws_are_told_apart() -> None:
    """Laplace draws are not Gaussian ones of the same spread, nor truncated ones."""
    noise, laws = draws_of("counts", "record", "add_remove", 0.0, runs=60)
    law = laws["counters"]
    assert isinstance(law, Laplace)
    for wrong in (Gaussian(math.sqrt(2) * law.scale), Truncated(1 / law.scale, round(2 * law.scale))):
        assert any("law" in found for found in problems(noise, {"counters": wrong}))


# Large tables are drawn in chunks of 2¹⁵ or 2¹⁶ numbers.


@pytest.mark.statistical
@pytest.mark.parametrize("delta", [DELTA, 0.0])
def test_no_chunk_of_a_large_table_has_the_noise_of_another(delta: float) -> None:
    """False-positive rate below 1e-8; its twin repeats one chunk of six."""
    release = dps.CountSketch(rows=3, width=2**16, unit=dps.per_record()).release(epsilon=EPSILON, delta=delta)
    ((part, (table, noise)),) = parts_of(release).items()
    draws, law = table.reshape(1, -1).copy(), law_of(noise)
    assert dependence({part: placed(draws[:, : 2**17], law)}) == []
    assert dependence({part: placed(draws[:, 2**16 :], law)}) == []
    draws[:, 2**15 : 2**16] = draws[:, : 2**15]
    assert dependence({part: placed(draws[:, : 2**17], law)})
