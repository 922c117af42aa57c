"""Kinds that add noise as the table sees them: how records become something that is released again and again.

Each shows all numbers that it publishes, the sentence beside them, and how large it says the noise of each part is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from dpsketch.audit import points
from dpsketch.audit.shown import SEED, Records, Release, Shown, columns_of, mu_of, released, shown
from dpsketch.privacy import Neighbours, Unit
from dpsketch.sketches.comparison import CountMinForComparison
from dpsketch.sketches.continual.choice import DesignName
from dpsketch.sketches.countsketch import ContinualCountSketch, CountSketch, PanPrivateCountSketch
from dpsketch.sketches.countsketch.parties import merge_releases
from dpsketch.sketches.countsketch.shares import Share
from dpsketch.sketches.distinct import DistinctSet, DistinctSketch
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.histogram import Histogram
from dpsketch.sketches.ranges import RangeSketch

__all__ = ["KINDS", "PAIRS", "Kind", "Law", "Level"]

Law = Literal["gaussian", "laplace"]
Level = Literal["record", "user"]

PAIRS = ("worst", "first", "null", "colliding", "clipped")
WEIGHT = 2.0
_REST: Records = [(1, "eve", 1.0), (2, "kim", 1.0)]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind: how to fill it, which laws, units and relations it has, and why a pair of neighbours cannot exist.

    ``refused`` says why a unit or a relation is missing, ``loose`` why no pair moves all that the bound allows, where
    none does.
    """

    fill: Callable[[Unit, Records], Release]
    laws: tuple[Law, ...] = ("gaussian", "laplace")
    levels: tuple[Level, ...] = ("record", "user")
    relations: tuple[Neighbours, ...] = ("add_remove", "replace")
    weight: float = WEIGHT
    keys: int = 130
    rest: Records = field(default_factory=lambda: _REST)
    absent: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    loose: str = ""

    @property
    def pairs(self) -> tuple[str, ...]:
        """The pairs of neighbours that exist."""
        return tuple(pair for pair in PAIRS if pair not in self.absent)


def _table(unit: Unit, records: Records) -> CountSketch:
    sketch = CountSketch(rows=3, width=2, unit=unit, seed=SEED, key_type="int")
    keys, given = columns_of(unit, records)
    sketch.update(keys, **given)
    return sketch


def _counts(unit: Unit, records: Records) -> Release:
    return released(_table(unit, records))


def _zero_concentrated(unit: Unit, records: Records) -> Release:
    """Ask by ρ, for the same Gaussian noise."""
    counts = _counts(unit, records)
    return lambda asked: counts({"rho": min(1e9, mu_of(asked) ** 2 / 2)})


def _share(unit: Unit, records: Records) -> Release:
    sketch = _table(unit, records)

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked, share=Share(2, 1.0, 0))
        grid = made.step
        return Shown(
            made.table.ravel() * grid, made.guarantee, [(made.table.size, grid * math.sqrt(made.noise[0].variance))]
        )

    return release


def _merged(unit: Unit, records: Records) -> Release:
    """Show what two dishonest parties of four work out: the sum of the shares of the two that are honest."""
    parties = [_table(unit, records), *(_table(unit, []) for _ in range(3))]

    def release(asked: Any) -> Shown:
        shares = [sketch.release(**asked, share=Share(4, 0.5, party)) for party, sketch in enumerate(parties)]
        together, grid = shares[0].table + shares[1].table, shares[0].step
        spread = grid * math.sqrt(2 * shares[0].noise[0].variance)
        return Shown(
            together.ravel() * grid,
            merge_releases(shares, disjoint_users=unit.level == "user").guarantee,
            [(together.size, spread)],
        )

    return release


def _count_min(unit: Unit, records: Records) -> Release:
    sketch = CountMinForComparison(rows=3, width=4, unit=unit, seed=SEED)
    sketch.update([key for key, _, _ in records])
    return released(sketch, lambda made: [(made.table, made.noise)])


def _heavy(unit: Unit, records: Records) -> Release:
    sketch = HeavyHitters(rows=1, width=4, key_bits=9, unit=unit, seed=SEED)
    keys, given = columns_of(unit, records)
    sketch.update([None if key is None else key * 197 % 512 for key in keys], **given)  # far apart in every level
    return released(sketch)


def _ranges(bits: int, unit: Unit, records: Records) -> Release:
    # From 17 bits on levels are sketched; fours of values lie far apart there.
    sketched = bits > 16
    sketch = RangeSketch(bits=bits, level_bits=8 if sketched else 2, rows=1, width=4, unit=unit, seed=SEED)
    keys, given = columns_of(unit, records)
    if sketched:
        keys = [None if key is None else key // 4 * ((1 << 19) + (1 << 9)) + key % 4 for key in keys]
    sketch.update(keys, **given)
    return released(sketch)


def _distinct(unit: Unit, records: Records) -> Release:
    sketch = DistinctSketch(buckets=64, unit=unit, seed=SEED)
    keys, given = columns_of(unit, records, weighted=False)
    sketch.update(keys, **given)
    return released(sketch)


def _distinct_set(unit: Unit, records: Records) -> Release:
    sketch = DistinctSet(unit=unit)
    keys, given = columns_of(unit, records, weighted=False)
    sketch.update(keys, **given)
    return released(sketch)


def _continual(design: DesignName, unit: Unit, records: Records) -> Release:
    """Publish four days, the records on the first, and a user's on the second as well; all that is published."""

    def life(asked: Any) -> Shown:
        shape: Any = {"rows": 1, "width": 4, "unit": unit, "seed": SEED, "key_type": "int", "design": design}
        keys, given = columns_of(unit, records)
        users: Any = {"users": ["eve"]} if unit.level == "user" else {}
        often = 2 if unit.level == "user" else 1
        bounds: Any = {"user_days": often} if unit.level == "user" else {}
        sketch = ContinualCountSketch(days=4, **shape, **asked, **bounds)
        for day in range(4):
            made = sketch.day(keys, **given) if day < often else sketch.day([1], **users)
        (stretch,) = made.stretches
        return shown(sketch.guarantee, (sketch.published, stretch.law))

    return life


def _pan_private(place: Literal["before", "after"], unit: Unit, records: Records) -> Release:
    """Seize the state, with the records before or after it; the publication beside it has fresh noise."""

    def life(asked: Any) -> Shown:
        sketch = PanPrivateCountSketch(rows=3, width=2, unit=unit, seed=SEED, key_type="int", **asked)
        keys, given = columns_of(unit, records)
        if place == "before":
            sketch.update(keys, **given)
        seized = sketch.snapshot()
        if place == "after":
            sketch.update(keys, **given)
        (stretch,) = sketch.publish().stretches
        return shown(sketch.guarantee, (seized, stretch.law), (sketch.published[0] - seized, stretch.law))

    return life


def _list(unit: Unit, records: Records) -> Release:
    """Publish a public list, of the first half of the keys, and all others as one count."""
    sketch = Histogram(unit=unit, key_type="int")
    keys, given = columns_of(unit, records)
    sketch.update(keys, **given)

    def release(asked: Any) -> Shown:
        form: Law = "gaussian" if asked.get("delta", 1.0) > 0 else "laplace"
        made = sketch.release(**asked, keys=list(range(15)), others=True, form=form)
        return shown(made.guarantee, (made.values, made.noise), (made.rest, made.law.others_under(made.bound)))

    return release


_NO_NULLS = {"null": "a classifier refuses what is not a number"}
_ROOT = (
    "the total does not move with a unit that is replaced, as its part of the budget is for a null that becomes one; "
    "and keys of a user that go together at every level are few"
)
_NUMBER = "the number of records does not move with a unit that is replaced, and has its part of the budget"
_EVERY_DAY = "a user's keys would have to meet others of opposite sign in one cell, on each of their days"
_NO_USERS = "hiding a user would take state for each user, so that users are refused"

KINDS: dict[str, Kind] = {
    "counts": Kind(_counts, keys=400),
    "counts-rho": Kind(_zero_concentrated, laws=("gaussian",)),
    "count-min": Kind(
        _count_min, levels=("record",), weight=1.0, absent={"clipped": "its records all weigh 1"},
        refused="it is kept for comparison, and takes records alone",
        loose="it has the noise of a CountSketch, whose signs may differ where one record replaces another",
    ),
    "shares": Kind(_share, laws=("gaussian",), keys=400),
    "shares-merged": Kind(_merged, laws=("gaussian",)),
    "continual": Kind(partial(_continual, "tree"), keys=16, loose=_EVERY_DAY),
    "continual-bands": Kind(partial(_continual, "banded"), keys=16, loose=_EVERY_DAY, laws=("gaussian",)),
    "continual-recurrence": Kind(partial(_continual, "recurrence"), keys=16, loose=_EVERY_DAY, laws=("gaussian",)),
    "continual-daily": Kind(partial(_continual, "daily"), keys=16, loose=_EVERY_DAY),
    "pan-private": Kind(partial(_pan_private, "before"), levels=("record",), refused=_NO_USERS),
    "pan-private-after": Kind(partial(_pan_private, "after"), levels=("record",), refused=_NO_USERS),
    "heavy": Kind(_heavy, keys=200, loose=_ROOT),
    "ranges": Kind(partial(_ranges, 4), keys=16, loose=_ROOT),
    "ranges-tables": Kind(partial(_ranges, 25), keys=120, loose=_ROOT),
    "density": Kind(points.density, weight=1.0, loose=_NUMBER),
    "density-waves": Kind(points.waves, weight=1.0, loose=_NUMBER),
    "density-vectors": Kind(points.vectors, weight=1.0, loose=_NUMBER),
    "density-one-row": Kind(
        points.one_row, laws=("laplace",), weight=1.0, keys=40, rest=[],
        absent={"colliding": "the row of each point is drawn, so that no two are sure to meet"},
    ),
    "classifier": Kind(points.classifier, weight=1.0, keys=40, absent=_NO_NULLS),
    "classifier-sums": Kind(points.sums, weight=1.0, keys=40, absent=_NO_NULLS),
    "classifier-parts": Kind(
        points.parts, laws=("gaussian",), weight=1.0, keys=40, absent=_NO_NULLS,
        loose="a vector that turns round moves no second moment and no size, which have their parts of the budget",
    ),
    "classifier-passes": Kind(
        points.passes, laws=("gaussian",), weight=1.0, keys=32, rest=[], absent=_NO_NULLS,
        loose="a vector that turns round lies among another class, so that what it corrects does not turn round",
    ),
    "classifier-centre": Kind(
        points.centre, laws=("gaussian",), weight=1.0, keys=32, rest=[], absent=_NO_NULLS,
        loose="a fifth of a replaced centre's bound is for a number of records, which does not change",
    ),
    "distinct": Kind(_distinct, laws=("laplace",), weight=1.0),
    "distinct-set": Kind(_distinct_set, laws=("laplace",), weight=1.0),
    "histogram-list": Kind(_list, keys=30),
}  # fmt: skip
