"""Kinds that add noise as the table sees them: how records become something that is released again and again.

Each shows all numbers that it publishes, the sentence beside them, and how large it says the noise of each part is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsketch import accounting, kernels
from dpsketch.privacy import Guarantee, Neighbours, Unit
from dpsketch.sketches.comparison import CountMinForComparison
from dpsketch.sketches.continual.choice import DesignName
from dpsketch.sketches.countsketch import ContinualCountSketch, CountSketch, PanPrivateCountSketch
from dpsketch.sketches.countsketch.local_model import LocalCountSketch
from dpsketch.sketches.countsketch.parties import merge_releases
from dpsketch.sketches.countsketch.shares import Share
from dpsketch.sketches.density import DensityClassifier, DensitySketch
from dpsketch.sketches.density.centre import centre_share_of
from dpsketch.sketches.density.embedding import STEPS
from dpsketch.sketches.distinct import DistinctSet, DistinctSketch
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.histogram import Histogram
from dpsketch.sketches.ranges import RangeSketch

__all__ = ["KINDS", "PAIRS", "Kind", "Law", "Level", "Records", "Release", "Shown"]

Law = Literal["gaussian", "laplace"]
Level = Literal["record", "user"]
# One record: its key (None for a null), whose it is, and its weight.
Records = list[tuple[int | None, str, float]]
# How many numbers have noise of which standard deviation, part after part.
Spreads = list[tuple[int, float]]

PAIRS = ("worst", "first", "null", "colliding", "clipped")
WEIGHT, SEED = 2.0, 11
_REST: Records = [(1, "eve", 1.0), (2, "kim", 1.0)]


class Shown(NamedTuple):
    """What a release showed: all numbers, the sentence beside them, and the noise that it states for each part."""

    numbers: npt.NDArray[Any]
    promise: Guarantee
    spreads: Spreads


# Publishes for a budget, given as the arguments of ``release``.
Release = Callable[[Any], Shown]


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


def _columns(unit: Unit, records: Records, *, weighted: bool = True) -> tuple[list[int | None], dict[str, Any]]:
    keys = [key for key, _, _ in records]
    given: dict[str, Any] = {"users": [user for _, user, _ in records]} if unit.level == "user" else {}
    if weighted:
        given["weights"] = [weight for _, _, weight in records]
    return keys, given


def _shown(promise: Guarantee, *parts: tuple[Any, Any]) -> Shown:
    """Join parts, each of which is an array and its law."""
    numbers = np.concatenate([np.ravel(part) for part, _ in parts])
    return Shown(numbers, promise, [(np.size(part), math.sqrt(law.variance)) for part, law in parts if np.size(part)])


def _table(unit: Unit, records: Records) -> CountSketch:
    sketch = CountSketch(rows=3, width=2, unit=unit, seed=SEED, key_type="int")
    keys, given = _columns(unit, records)
    sketch.update(keys, **given)
    return sketch


def _counts(unit: Unit, records: Records) -> Release:
    sketch = _table(unit, records)

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked)
        return _shown(made.guarantee, (made.table, made.noise[0]))

    return release


def _zero_concentrated(unit: Unit, records: Records) -> Release:
    """Ask by ρ, for the same Gaussian noise."""
    counts = _counts(unit, records)
    return lambda asked: counts({"rho": min(1e9, _mu(asked) ** 2 / 2)})


def _mu(asked: Any) -> float:
    return math.sqrt(2 * asked["rho"]) if "rho" in asked else float(accounting.gaussian_mu(**asked))


def _share(unit: Unit, records: Records) -> Release:
    sketch = _table(unit, records)

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked, share=Share(2, 1.0, 0))
        grid = made.spec.grid
        return Shown(
            made.table.ravel() * grid, made.guarantee, [(made.table.size, grid * math.sqrt(made.noise[0].variance))]
        )

    return release


def _merged(unit: Unit, records: Records) -> Release:
    """Show what two dishonest parties of four work out: the sum of the shares of the two that are honest."""
    parties = [_table(unit, records), *(_table(unit, []) for _ in range(3))]

    def release(asked: Any) -> Shown:
        shares = [sketch.release(**asked, share=Share(4, 0.5, party)) for party, sketch in enumerate(parties)]
        together, grid = shares[0].table + shares[1].table, shares[0].spec.grid
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

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked)
        return _shown(made.guarantee, (made.table, made.noise))

    return release


def _report(unit: Unit, records: Records) -> Release:
    """Report, by themselves, what one person holds."""
    keys, weights = [key for key, _, _ in records], [weight for _, _, weight in records]

    def release(asked: Any) -> Shown:
        protocol = LocalCountSketch(
            rows=3, width=2, max_keys=unit.max_keys, max_weight=unit.max_weight, key_type="int", seed=SEED, **asked
        )
        return _shown(protocol.guarantee, (protocol.report(keys, weights=weights), protocol.noise))

    return release


def _heavy(unit: Unit, records: Records) -> Release:
    sketch = HeavyHitters(rows=1, width=4, key_bits=9, unit=unit, seed=SEED)
    keys, given = _columns(unit, records)
    sketch.update([None if key is None else key * 197 % 512 for key in keys], **given)  # far apart in every level

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked)
        laws = made.noise
        return _shown(
            made.guarantee, (made.total, laws.total), (made.dense, laws.dense), (made.tables[:-1], laws.inner),
            (made.tables[-1], laws.leaf),
        )  # fmt: skip

    return release


def _ranges(bits: int, unit: Unit, records: Records) -> Release:
    # From 17 bits on levels are sketched; fours of values lie far apart there.
    sketched = bits > 16
    sketch = RangeSketch(bits=bits, level_bits=8 if sketched else 2, rows=1, width=4, unit=unit, seed=SEED)
    keys, given = _columns(unit, records)
    if sketched:
        keys = [None if key is None else key // 4 * ((1 << 19) + (1 << 9)) + key % 4 for key in keys]
    sketch.update(keys, **given)

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked)
        laws = made.noise
        return _shown(
            made.guarantee, (made.dense[:1], laws.total), (made.dense[1:], laws.dense), (made.tables, laws.leaf)
        )

    return release


def _distinct(unit: Unit, records: Records) -> Release:
    sketch = DistinctSketch(buckets=64, unit=unit, seed=SEED)
    keys, given = _columns(unit, records, weighted=False)
    sketch.update(keys, **given)

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked)
        return _shown(made.guarantee, (made.ones, made.noise))

    return release


def _distinct_set(unit: Unit, records: Records) -> Release:
    sketch = DistinctSet(unit=unit)
    keys, given = _columns(unit, records, weighted=False)
    sketch.update(keys, **given)

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked)
        return _shown(made.guarantee, (made.count, made.noise))

    return release


def _density(unit: Unit, records: Records) -> Release:
    kernel = kernels.Euclidean(dim=1, bandwidth=1.0)
    sketch = DensitySketch(kernel=kernel, rows=3, width=16, unit=unit, seed=SEED)
    keys, given = _columns(unit, records, weighted=False)
    # Four by four they share their cells.
    sketch.update([[np.nan if key is None else 7.3 * (key // 4) + 1e-3 * (key % 4)] for key in keys], **given)
    return _summed(sketch)


def _waves(unit: Unit, records: Records) -> Release:
    """Two waves, and points where both have turned by half: a record adds its bound, and another's may oppose it."""
    kernel = kernels.Gaussian(dim=1, bandwidth=1.0)
    sketch = DensitySketch(kernel=kernel, rows=2, unit=unit, seed=SEED, features="fourier")
    mapped = sketch.spec.feature_map
    assert mapped is not None
    one, other = (float(each) for each in mapped.matrix[0])
    odd = 2 * np.arange(2000) + 1
    half = float(odd[np.argmin(np.abs(odd * other / one % 2 - 1))]) / one
    keys, given = _columns(unit, records, weighted=False)
    points = [[np.nan] if key is None else [half * (key // 8 % 2) + 1e-6 * key] for key in keys]
    sketch.update(points, **given)
    return _summed(sketch)


def _vectors(unit: Unit, records: Records) -> Release:
    """Vectors of length 1, of which every other eight point back: a replaced one turns round."""
    sketch = DensitySketch(kernel=kernels.Linear(dim=2), unit=unit, seed=SEED)
    keys, given = _columns(unit, records, weighted=False)
    points = [[np.nan, 0.0] if key is None else [(-1.0) ** (key // 8), 1e-6 * key] for key in keys]
    sketch.update(points, **given)
    return _summed(sketch)


def _summed(sketch: DensitySketch) -> Release:
    def release(asked: Any) -> Shown:
        made = sketch.release(**asked)
        return _shown(made.guarantee, (made.table, made.noise), (made.noisy_count, made.count_noise))

    return release


def _continual(design: DesignName, unit: Unit, records: Records) -> Release:
    """Publish four days, the records on the first, and a user's on the second as well; all that is published."""

    def life(asked: Any) -> Shown:
        shape: Any = {"rows": 1, "width": 4, "unit": unit, "seed": SEED, "key_type": "int", "design": design}
        keys, given = _columns(unit, records)
        users: Any = {"users": ["eve"]} if unit.level == "user" else {}
        often = 2 if unit.level == "user" else 1
        bounds: Any = {"user_days": often} if unit.level == "user" else {}
        sketch = ContinualCountSketch(days=4, **shape, **asked, **bounds)
        for day in range(4):
            made = sketch.day(keys, **given) if day < often else sketch.day([1], **users)
        (stretch,) = made.stretches
        return _shown(sketch.guarantee, (sketch.published, stretch.law))

    return life


def _pan_private(place: Literal["before", "after"], unit: Unit, records: Records) -> Release:
    """Seize the state, with the records before or after it; the publication beside it has fresh noise."""

    def life(asked: Any) -> Shown:
        sketch = PanPrivateCountSketch(rows=3, width=2, unit=unit, seed=SEED, key_type="int", **asked)
        keys, given = _columns(unit, records)
        if place == "before":
            sketch.update(keys, **given)
        seized = sketch.snapshot()
        if place == "after":
            sketch.update(keys, **given)
        made = sketch.publish()
        return _shown(made.guarantee, (seized, made.noise[0]), (made.table - seized, made.noise[1]))

    return life


def _list(unit: Unit, records: Records) -> Release:
    """Publish a public list, of the first half of the keys, and all others as one count."""
    sketch = Histogram(unit=unit, key_type="int")
    keys, given = _columns(unit, records)
    sketch.update(keys, **given)

    def release(asked: Any) -> Shown:
        form: Law = "gaussian" if asked.get("delta", 1.0) > 0 else "laplace"
        made = sketch.release(**asked, keys=list(range(15)), others=True, form=form)
        return _shown(made.guarantee, (made.values, made.mechanism.noise), (made.rest, made.mechanism.others))

    return release


def _one_row(unit: Unit, records: Records) -> Release:
    """One row is drawn for each point. Outputs in which all rows speak for a point show it as the drawn one does."""
    kernel = kernels.Euclidean(dim=1, bandwidth=1.0)
    sketch = DensitySketch(kernel=kernel, rows=3, width=64, unit=unit, seed=SEED, placement="one_row")
    keys, given = _columns(unit, records, weighted=False)
    sketch.update([[np.nan if key is None else 170.0 * key] for key in keys], **given)  # hardly two in a cell

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked, count_share=0)
        return _shown(made.guarantee, (made.table, made.noise))

    return release


def _angles(records: Records) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Return points on a circle and their classes: four by four they share their class and most of their cells."""
    held = np.array([key for key, _, _ in records if key is not None], np.int64)
    angles = held // 4 * (8 * np.pi / 40) + held % 4 * 1e-3
    return np.column_stack([np.cos(angles), np.sin(angles)]), (held // 4 % 2).tolist()


def _classifier(unit: Unit, records: Records) -> Release:
    """Fit two classes around a public centre: the tables of both."""

    def fit(asked: Any) -> Shown:
        made = DensityClassifier(
            **asked, bounds=(-1, 1), classes=[0, 1], kernel="angular", rows=3, power=4, centre="middle", unit=unit,
            seed=SEED,
        )  # fmt: skip
        _fitted(made, *_angles(records), unit, records)
        return _shown(made.guarantee_, *((density.table, density.noise) for density in made.densities_))

    return fit


def _sums(unit: Unit, records: Records) -> Release:
    """Fit two classes by the sums of their vectors."""

    def fit(asked: Any) -> Shown:
        made = DensityClassifier(**asked, classes=[0, 1], kernel="linear", unit=unit, seed=SEED)
        _fitted(made, *_angles(records), unit, records)
        sums = made.sums_
        return Shown(sums.sums.ravel(), made.guarantee_, [(sums.sums.size, sums.deviation * STEPS)])

    return fit


def _centre(unit: Unit, records: Records) -> Release:
    """Fit with nearly all of the budget for the private centre, among a thousand others, and show it.

    Where a unit is added, the centre tells all that its sums and its number do if their mean is a quarter of the way to
    the other side; where it is replaced, if it is in the middle. It is a ratio, of noise that is small against either.
    """
    mean, others, share = (0.08 if unit.neighbours == "replace" else -0.25), 1000, 0.98

    def fit(asked: Any) -> Shown:
        made = DensityClassifier(
            **asked, bounds=(-1, 1), classes=[0, 1], rows=2, power=1, centre_share=share, unit=unit, seed=SEED
        )
        held = [key for key, _, _ in records if key is not None]
        corners = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
        points = np.array([corners[key // 8 % 4] * (1 - 1e-3 * (key % 8)) for key in held]).reshape(-1, 2)
        # No two of the others are the same, and each is a user.
        crowd = np.full((others, 2), mean) + np.linspace(-1e-3, 1e-3, others)[:, None]
        owned: Records = [(0, f"other {i}", 1.0) for i in range(others)]
        _fitted(made, np.concatenate([crowd, points]), [0] * (others + len(held)), unit, owned + records)
        # Sums are in steps of 2⁻¹⁰, and the number in steps of 1/724; what the number is off moves the mean as well.
        drawn = centre_share_of(unit, 2, share).bound.l2 / _mu(asked) / math.sqrt(share)
        spread = 1e6 / others * drawn * math.hypot(1 / 1024, mean / 724)
        return Shown(1e6 * made.centre_, made.guarantee_, [(2, spread)])

    return fit


def _fitted(made: DensityClassifier, points: Any, labels: list[int], unit: Unit, records: Records) -> None:
    owners = [user for key, user, _ in records if key is not None]
    made.fit(points, labels, users=owners if unit.level == "user" else None)


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
    "counts-local": Kind(
        _report, levels=("user",), relations=("replace",), rest=[],
        absent={"first": "a report is of one person alone"},
        refused="a report is of a person, all of whose keys may be replaced",
    ),
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
    "density": Kind(_density, weight=1.0, loose=_NUMBER),
    "density-waves": Kind(_waves, weight=1.0, loose=_NUMBER),
    "density-vectors": Kind(_vectors, weight=1.0, loose=_NUMBER),
    "density-one-row": Kind(
        _one_row, laws=("laplace",), weight=1.0, keys=40, rest=[],
        absent={"colliding": "the row of each point is drawn, so that no two are sure to meet"},
    ),
    "classifier": Kind(_classifier, weight=1.0, keys=40, absent=_NO_NULLS),
    "classifier-sums": Kind(_sums, weight=1.0, keys=40, absent=_NO_NULLS),
    "classifier-centre": Kind(
        _centre, laws=("gaussian",), weight=1.0, keys=32, rest=[], absent=_NO_NULLS,
        loose="a fifth of a replaced centre's bound is for a number of records, which does not change",
    ),
    "distinct": Kind(_distinct, laws=("laplace",), weight=1.0),
    "distinct-set": Kind(_distinct_set, laws=("laplace",), weight=1.0),
    "histogram-list": Kind(_list, keys=30),
}  # fmt: skip
