"""Kinds that add noise as the table sees them: how records become something that is released again and again.

A release shows all numbers that it publishes, the sentence beside them, and how large it says the noise of each part
is: its parts carry their laws. Points stand in the place of keys in densities and classifiers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsketch import accounting, kernels
from dpsketch.audit.findings import BOTH, Level
from dpsketch.core.account import Account
from dpsketch.laws.shares import Share
from dpsketch.privacy import Budget, Guarantee, Neighbours, Unit, per_record
from dpsketch.sketches.comparison import CountMinForComparison
from dpsketch.sketches.continual.choice import DesignName
from dpsketch.sketches.countsketch import ContinualCountSketch, CountSketch, PanPrivateCountSketch
from dpsketch.sketches.countsketch.parties import merge_releases
from dpsketch.sketches.density import DensityClassifier, DensitySketch
from dpsketch.sketches.density.class_densities import centre_table
from dpsketch.sketches.density.class_partial import ClassPartial
from dpsketch.sketches.density.class_spec import ClassSpec, Extras
from dpsketch.sketches.density.class_waves import Waves
from dpsketch.sketches.density.embedding import EmbeddingMap
from dpsketch.sketches.distinct import DistinctSet, DistinctSketch
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.histogram import Histogram
from dpsketch.sketches.ranges import RangeSketch

__all__ = ["KINDS", "PAIRS", "AttackedKind", "Law", "Records", "Release", "Shown"]

Law = Literal["gaussian", "laplace"]
# One record: its key (None for a null), whose it is, and its weight.
Records = list[tuple[int | None, str, float]]
# Some of the published numbers, and the variance of the noise in each.
Noisy = tuple[Any, float]

PAIRS = ("worst", "first", "null", "colliding", "clipped")
SEED, WEIGHT = 11, 2.0
_CROWD = 400
_REST: Records = [(1, "eve", 1.0), (2, "kim", 1.0)]


class Shown(NamedTuple):
    """What a release showed: all numbers, the sentence beside them, and the deviation of the noise of each."""

    numbers: npt.NDArray[Any]
    promise: Guarantee
    spreads: list[tuple[int, float]]  # how many numbers have which deviation, part after part


# Publishes for a budget, given as the arguments of ``release``; and makes that of records.
Release = Callable[[Any], Shown]
Fill = Callable[[Unit, Records], Release]


@dataclass(frozen=True, slots=True)
class AttackedKind:
    """A kind: how to fill it, which laws, units and relations it has, and why a pair of neighbours cannot exist.

    ``refused`` says why a unit or a relation is missing, ``loose`` why no pair moves all that the bound allows, where
    none does.
    """

    fill: Fill
    laws: tuple[Law, ...] = ("gaussian", "laplace")
    units: tuple[tuple[Level, Neighbours], ...] = BOTH
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


def shown(promise: Guarantee, *parts: Noisy) -> Shown:
    """Join parts of a release."""
    numbers = np.concatenate([np.ravel(part) for part, _ in parts])
    return Shown(numbers, promise, [(np.size(part), math.sqrt(variance)) for part, variance in parts if np.size(part)])


def parts_of(release: Any) -> Iterable[Noisy]:
    """Return the tables that a release drew, each with the variance that its law states.

    A table that was computed from several draws has the noise of all of them.
    """
    for part in release.drawn.parts.values():
        if "table" in part.arrays:
            laws = getattr(part.law, "laws", (part.law,))
            yield part.arrays["table"], sum(law.noise.variance for law in laws)


def columns_of(unit: Unit, records: Records, weighted: bool = True) -> tuple[list[int | None], dict[str, Any]]:
    """Return the keys of records, and what ``update`` takes beside them."""
    given: dict[str, Any] = {"users": [user for _, user, _ in records]} if unit.level == "user" else {}
    if weighted:
        given["weights"] = [weight for _, _, weight in records]
    return [key for key, _, _ in records], given


def filled(sketch: Any, unit: Unit, records: Records, weighted: bool = True, point: Any = int, null: Any = None) -> Any:
    """Return a sketch that took records; ``point`` turns their keys into what it counts, and nulls become ``null``."""
    keys, given = columns_of(unit, records, weighted)
    sketch.update([null if key is None else point(key) for key in keys], **given)
    return sketch


def released(sketch: Any, **more: Any) -> Release:
    """Return what publishes a filled sketch, with ``more`` arguments of its release."""

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked, **more)
        return shown(made.guarantee, *parts_of(made))

    return release


def mu_of(asked: Any) -> float:
    """Return the μ of the Gaussian mechanism that a budget asks for."""
    return math.sqrt(2 * asked["rho"]) if "rho" in asked else float(accounting.gaussian_mu(**asked))


def _simple(
    make: Callable[..., Any], point: Callable[[int], Any] = int, null: Any = None, *, weighted: bool = True, **more: Any
) -> Fill:
    """Return how a sketch is filled and released whose parts are all that it publishes."""
    return lambda unit, records: released(filled(make(unit=unit), unit, records, weighted, point, null), **more)


_TABLE: Any = partial(CountSketch, rows=3, width=2, seed=SEED, key_type="int")
_counts = _simple(_TABLE)


def _zero_concentrated(unit: Unit, records: Records) -> Release:
    """Ask by ρ, for the same Gaussian noise."""
    counts = _counts(unit, records)
    return lambda asked: counts({"rho": min(1e9, mu_of(asked) ** 2 / 2)})


def _share(unit: Unit, records: Records) -> Release:
    sketch = filled(_TABLE(unit=unit), unit, records)

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked, share=Share(2, 1.0, 0))
        return shown(made.guarantee, (made.table * made.step, made.step**2 * made.noise[0].variance))

    return release


def _merged(unit: Unit, records: Records) -> Release:
    """Show what two dishonest parties of four work out: the sum of the shares of the two that are honest."""
    parties = [filled(_TABLE(unit=unit), unit, held) for held in (records, [], [], [])]

    def release(asked: Any) -> Shown:
        shares = [sketch.release(**asked, share=Share(4, 0.5, party)) for party, sketch in enumerate(parties)]
        promise = merge_releases(shares, disjoint_users=unit.level == "user").guarantee
        one, other, *_ = shares
        return shown(promise, ((one.table + other.table) * one.step, one.step**2 * 2 * one.noise[0].variance))

    return release


def _count_min(unit: Unit, records: Records) -> Release:
    sketch = CountMinForComparison(rows=3, width=4, unit=unit, seed=SEED)
    sketch.update([key for key, _, _ in records])

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked)
        return shown(made.guarantee, (made.table, made.noise.variance))

    return release


def _ranges(bits: int, level_bits: int, far: int) -> Fill:
    """Return ranges whose fours of values lie far apart."""
    make = partial(RangeSketch, bits=bits, level_bits=level_bits, rows=1, width=4, seed=SEED)
    return _simple(make, lambda key: key // 4 * far + key % 4)


def _continual(design: DesignName, unit: Unit, records: Records) -> Release:
    """Publish four days, the records on the first, and a user's on the second as well; all that is published."""
    keys, given = columns_of(unit, records)
    shape: Any = {"rows": 1, "width": 4, "unit": unit, "seed": SEED, "key_type": "int", "design": design}
    others: Any = {"users": ["eve"]} if unit.level == "user" else {}
    often = 2 if unit.level == "user" else 1

    def life(asked: Any) -> Shown:
        bounds: Any = {"user_days": often} if unit.level == "user" else {}
        sketch = ContinualCountSketch(days=4, **shape, **asked, **bounds)
        for day in range(4):
            made = sketch.day(keys, **given) if day < often else sketch.day([1], **others)
        (stretch,) = made.stretches
        return shown(sketch.guarantee, (sketch.published, stretch.law.variance))

    return life


def _pan_private(place: Literal["before", "after"], unit: Unit, records: Records) -> Release:
    """Seize the state, with the records before or after it; the publication beside it has fresh noise."""

    def life(asked: Any) -> Shown:
        sketch = PanPrivateCountSketch(rows=3, width=2, unit=unit, seed=SEED, key_type="int", **asked)
        filled(sketch, unit, records if place == "before" else [])
        seized = sketch.snapshot()
        filled(sketch, unit, records if place == "after" else [])
        (stretch,) = sketch.publish().stretches
        variance = stretch.law.variance
        return shown(sketch.guarantee, (seized, variance), (sketch.published[0] - seized, variance))

    return life


def _list(unit: Unit, records: Records) -> Release:
    """Publish a public list, of the first half of the keys, and all others as one count."""
    sketch = filled(Histogram(unit=unit, key_type="int"), unit, records)

    def release(asked: Any) -> Shown:
        form: Law = "gaussian" if asked.get("delta", 1.0) > 0 else "laplace"
        made = sketch.release(**asked, keys=list(range(15)), others=True, form=form)
        rest = made.rest, made.law.others_under(made.bound).variance
        return shown(made.guarantee, (made.values, made.noise.variance), rest)

    return release


def _density(point: Callable[[int], list[float]], more: Any = None, **shape: Any) -> Fill:
    make: Any = partial(DensitySketch, seed=SEED, **shape)
    return _simple(make, point, [math.nan] * len(point(0)), weighted=False, **more or {})


def _waves() -> Fill:
    """Two waves, and points where both have turned by half: a record adds its bound, and another's may oppose it."""
    shape: Any = {"kernel": kernels.Gaussian(dim=1, bandwidth=1.0), "rows": 2, "features": "fourier"}
    mapped = DensitySketch(unit=per_record(), seed=SEED, **shape).spec.feature_map
    assert mapped is not None
    one, other = (float(each) for each in mapped.matrix[0])
    odd = 2 * np.arange(2000) + 1
    half = float(odd[np.argmin(np.abs(odd * other / one % 2 - 1))]) / one
    return _density(lambda key: [half * (key // 8 % 2) + 1e-6 * key], **shape)


def _angles(records: Records) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Return points on a circle and their classes: four by four they share their class and most of their cells."""
    held = np.array([key for key, _, _ in records if key is not None], np.int64)
    angles = held // 4 * (8 * np.pi / 40) + held % 4 * 1e-3
    return np.column_stack([np.cos(angles), np.sin(angles)]), (held // 4 % 2).tolist()


def _crossed(records: Records) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Return points that lie among their own class or the other, after four hundred that are all told apart.

    Whatever noise the sums have, a record that lies among the other class has all of its residual, and one among its
    own has none: what later passes correct does not change with the draws of earlier parts.
    """
    crowd = np.repeat([[1.0, 0.0], [-1.0, 0.0]], _CROWD // 2, axis=0)
    held = [key for key, _, _ in records if key is not None]
    angles = np.array([1e-3 * (key % 8) + np.pi * (key // 8 % 2) for key in held])
    vectors = np.concatenate([crowd, np.column_stack([np.cos(angles), np.sin(angles)])])
    return vectors, [0] * (_CROWD // 2) + [1] * (_CROWD // 2) + [key // 16 % 2 for key in held]


def _fitted(points: Any, labels: list[int], unit: Unit, records: Records, **settings: Any) -> DensityClassifier:
    """Fit two classes; points beyond those of the records come first, and are a user each."""
    owners = [user for key, user, _ in records if key is not None]
    owners = [f"other {i}" for i in range(len(points) - len(owners))] + owners
    made = DensityClassifier(**settings, classes=[0, 1], unit=unit, seed=SEED)
    return made.fit(points, labels, users=owners if unit.level == "user" else None)


def _classes(placed: Callable[[Records], tuple[Any, list[int]]], **settings: Any) -> Fill:
    """Return how two classes are fitted: the tables of both, or the sums of their vectors and what corrects them."""

    def fill(unit: Unit, records: Records) -> Release:
        points, labels = placed(records)

        def fit(asked: Any) -> Shown:
            made = _fitted(points, labels, unit, records, **settings, **asked)
            releases = [made.sums_] if settings["kernel"] == "linear" else made.densities_
            return shown(made.guarantee_, *(part for release in releases for part in parts_of(release)))

        return fit

    return fill


def _parts(unit: Unit, records: Records) -> Release:
    """Sum two classes along public directions, with all that goes beside their sums: six pairs of waves tell enough."""
    circle = np.linspace(0, 2 * np.pi, 10, endpoint=False)
    shape = EmbeddingMap.fitted(np.column_stack([np.cos(circle), np.sin(circle)]), 2, 2)
    spec = ClassSpec((0, 1), unit, shape.spec, Extras(0.1, Waves(2, 6, SEED, 0.5)), SEED)
    held = ClassPartial.measuring(spec, shape)
    vectors, labels = _angles(records)
    owners = [user for key, user, _ in records if key is not None]
    held.update(vectors, np.array(labels, np.intp), owners if unit.level == "user" else None)

    def release(asked: Any) -> Shown:
        made = held.release(Budget(**asked), Account())
        return shown(made.drawn.guarantee, *parts_of(made))

    return release


def _centre(unit: Unit, records: Records) -> Release:
    """Fit with nearly all of the budget for the private centre, among a thousand others, and show it.

    Where a unit is added, the centre tells all that its sums and its number do if their mean is a quarter of the way to
    the other side; where it is replaced, if it is in the middle. It is a ratio, of noise that is small against either.
    """
    mean, others, share = (0.08 if unit.neighbours == "replace" else -0.25), 1000, 0.98
    corners = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    held = [corners[key // 8 % 4] * (1 - 1e-3 * (key % 8)) for key, _, _ in records if key is not None]
    # No two of the others are the same.
    crowd = np.full((others, 2), mean) + np.linspace(-1e-3, 1e-3, others)[:, None]
    points = np.array([*crowd, *held])
    settings: Any = {"bounds": (-1, 1), "rows": 2, "power": 1, "centre_share": share}

    def fit(asked: Any) -> Shown:
        made = _fitted(points, [0] * len(points), unit, records, **settings, **asked)
        # Sums are in steps of 2⁻¹⁰, and the number in steps of 1/724; what the number is off moves the mean as well.
        drawn = centre_table(unit, 2).between(unit.neighbours).l2 / mu_of(asked) / math.sqrt(share)
        spread = 1e6 / others * drawn * math.hypot(1 / 1024, mean / 724)
        return shown(made.guarantee_, (1e6 * made.centre_, spread**2))

    return fit


_NO_NULLS = {"null": "a classifier refuses what is not a number"}
_ROOT = (
    "the total does not move with a unit that is replaced, as its part of the budget is for a null that becomes one; "
    "and keys of a user that go together at every level are few"
)
_NUMBER = "the number of records does not move with a unit that is replaced, and has its part of the budget"
_EVERY_DAY = "a user's keys would have to meet others of opposite sign in one cell, on each of their days"
_NO_USERS = "hiding a user would take state for each user, so that users are refused"
_RECORDS = BOTH[:2]
_EUCLIDEAN = kernels.Euclidean(dim=1, bandwidth=1.0)

KINDS: dict[str, AttackedKind] = {
    "counts": AttackedKind(_counts, keys=400),
    "counts-rho": AttackedKind(_zero_concentrated, laws=("gaussian",)),
    "count-min": AttackedKind(
        _count_min, units=_RECORDS, weight=1.0, absent={"clipped": "its records all weigh 1"},
        refused="it is kept for comparison, and takes records alone",
        loose="it has the noise of a CountSketch, whose signs may differ where one record replaces another",
    ),
    "shares": AttackedKind(_share, laws=("gaussian",), keys=400),
    "shares-merged": AttackedKind(_merged, laws=("gaussian",)),
    "continual": AttackedKind(partial(_continual, "tree"), keys=16, loose=_EVERY_DAY),
    "continual-bands": AttackedKind(partial(_continual, "banded"), keys=16, loose=_EVERY_DAY, laws=("gaussian",)),
    "continual-recurrence": AttackedKind(
        partial(_continual, "recurrence"), keys=16, loose=_EVERY_DAY, laws=("gaussian",)
    ),
    "continual-daily": AttackedKind(partial(_continual, "daily"), keys=16, loose=_EVERY_DAY),
    "pan-private": AttackedKind(partial(_pan_private, "before"), units=_RECORDS, refused=_NO_USERS),
    "pan-private-after": AttackedKind(partial(_pan_private, "after"), units=_RECORDS, refused=_NO_USERS),
    "heavy": AttackedKind(
        _simple(partial(HeavyHitters, rows=1, width=4, key_bits=9, seed=SEED), lambda key: key * 197 % 512),
        keys=200, loose=_ROOT,
    ),
    "ranges": AttackedKind(_ranges(4, 2, 4), keys=16, loose=_ROOT),
    # From 17 bits on levels are sketched.
    "ranges-tables": AttackedKind(_ranges(25, 8, (1 << 19) + (1 << 9)), keys=120, loose=_ROOT),
    "density": AttackedKind(
        _density(lambda key: [7.3 * (key // 4) + 1e-3 * (key % 4)], kernel=_EUCLIDEAN, rows=3, width=16),
        weight=1.0, loose=_NUMBER,
    ),
    "density-waves": AttackedKind(_waves(), weight=1.0, loose=_NUMBER),
    # Every other eight vectors point back: a replaced one turns round.
    "density-vectors": AttackedKind(
        _density(lambda key: [(-1.0) ** (key // 8), 1e-6 * key], kernel=kernels.Linear(dim=2)),
        weight=1.0, loose=_NUMBER,
    ),
    # One row is drawn for each point. Outputs in which all rows speak for a point show it as the drawn one does.
    "density-one-row": AttackedKind(
        _density(
            lambda key: [170.0 * key], {"count_share": 0}, kernel=_EUCLIDEAN, rows=3, width=64,
            placement="one_row",
        ),
        laws=("laplace",), weight=1.0, keys=40, rest=[],
        absent={"colliding": "the row of each point is drawn, so that no two are sure to meet"},
    ),
    "classifier": AttackedKind(
        _classes(_angles, bounds=(-1, 1), kernel="angular", rows=3, power=4, centre="middle"),
        weight=1.0, keys=40, absent=_NO_NULLS,
    ),
    "classifier-sums": AttackedKind(_classes(_angles, kernel="linear"), weight=1.0, keys=40, absent=_NO_NULLS),
    "classifier-parts": AttackedKind(
        _parts, laws=("gaussian",), weight=1.0, keys=40, absent=_NO_NULLS,
        loose="a vector that turns round moves no second moment and no size, which have their parts of the budget",
    ),
    "classifier-passes": AttackedKind(
        _classes(_crossed, kernel="linear", passes=3),
        laws=("gaussian",), weight=1.0, keys=32, rest=[], absent=_NO_NULLS,
        loose="a vector that turns round lies among another class, so that what it corrects does not turn round",
    ),
    "classifier-centre": AttackedKind(
        _centre, laws=("gaussian",), weight=1.0, keys=32, rest=[], absent=_NO_NULLS,
        loose="a fifth of a replaced centre's bound is for a number of records, which does not change",
    ),
    "distinct": AttackedKind(
        _simple(partial(DistinctSketch, buckets=64, seed=SEED), weighted=False), laws=("laplace",), weight=1.0,
    ),
    "distinct-set": AttackedKind(_simple(DistinctSet, weighted=False), laws=("laplace",), weight=1.0),
    "histogram-list": AttackedKind(_list, keys=30),
}  # fmt: skip
