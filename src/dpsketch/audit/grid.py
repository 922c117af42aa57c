"""Every kind that adds noise, under both units and both relations, on five pairs of neighbours each.

The pairs: the *worst* one that a search finds; the same with the unit's records *first* in the stream; a unit that
holds a *null* beside one that holds something; keys that *collide*, with each other or with those of others; and a unit
that holds far more than the bounds let pass, which must be *clipped*. Records go in by ``update``, what comes out is
what ``release`` published, and the claim is the sentence that it printed.

Beside them *any* unit: the noise of every part is held to the law that the claimed release states for it, and the
promise restated for the part that was drawn least. A bound that no pair comes near hides no lack of noise from that.

A release shows all numbers that it publishes, the sentence beside them, and how large it says the noise of each part
is: its parts carry their laws. Points stand in the place of keys in densities and classifiers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsketch import accounting, kernels
from dpsketch.audit.bounds import Outputs, Scores, known, linear_discriminant
from dpsketch.audit.findings import (
    BOTH,
    GAUSSIAN,
    PURE,
    Attacked,
    AuditRow,
    Finding,
    Level,
    Mechanism,
    claim_of,
    printed_promise,
    spent,
)
from dpsketch.audit.losses import gaussian_bound, laplace_bound, laplace_scale, least_spread, seen_numbers
from dpsketch.core.account import Account
from dpsketch.laws.shares import Share
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Budget, Guarantee, Neighbours, Unit, per_record
from dpsketch.sketches.continual.windows import DesignName
from dpsketch.sketches.countsketch import ContinualCountSketch, CountSketch, PanPrivateCountSketch
from dpsketch.sketches.countsketch.sketch import merge_releases
from dpsketch.sketches.density import DensityClassifier, DensitySketch
from dpsketch.sketches.density.class_densities import centre_table
from dpsketch.sketches.density.class_spec import ClassSpec, EmbeddingMap, Extras, Waves
from dpsketch.sketches.density.class_sums import ClassPartial
from dpsketch.sketches.distinct import DistinctSet, DistinctSketch
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.histogram import Histogram
from dpsketch.sketches.ranges import RangeSketch

__all__ = ["GRID", "KINDS", "PAIRS", "AttackGrid", "AttackedKind", "Law", "Records", "Release", "Shown"]

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
    held.count(vectors, np.array(labels, np.intp), owners if unit.level == "user" else None)

    def release(asked: Any) -> Shown:
        made = held.publish(Budget(**asked), Account())
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


Numbers = npt.NDArray[Any]
# What is published of records where nothing is added.
Exact = Callable[[Records], Numbers]

_KEYS = 3
# A search looks at about so many keys in each of its steps.
_TRIED = 40


@dataclass(frozen=True, slots=True)
class AttackGrid(AuditRow):
    """One kind with one law, unit and relation: five pairs of neighbours, on the same many releases."""

    @property
    def kind(self) -> str:
        """Its name in the table of kinds."""
        return self.subject.rpartition("-")[0]

    @property
    def law(self) -> Law:
        """The noise."""
        return "gaussian" if self.subject.endswith("-gaussian") else "laplace"

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, and bound ε from below on each pair."""
        claimed, noise = self._drawn(trials)
        claim = printed_promise(claimed.promise)
        findings, exact = [], self._exact()
        for pair, (one, other) in self._streams(exact).items():
            seen, shift = seen_numbers(noise, exact(one) - exact(other))
            if self.law == "gaussian":
                found = gaussian_bound(seen, shift, claim.delta, confidence)
            else:
                found = laplace_bound(seen, shift, confidence)
            findings.append(self.finding((pair, _WORDS[pair]), claim, found, "likelihood ratio", trials, "law"))
        return [*findings, self._restated(claimed, noise, confidence)]

    def restated(self, trials: int, confidence: float) -> Finding:
        """Release ``trials`` times, and restate the promise for the part that was drawn least."""
        trials, confidence = whole_number("trials", trials), probability("confidence", confidence)
        return self._restated(*self._drawn(trials), confidence)

    def sampled(self, name: str) -> Mechanism:
        """Return the worst pair to be sampled: the noise is not measured, and the attacker trusts its stated law."""
        within, without = map(self._fill, self._streams(self._exact(), crowding=1e-3)["worst"])
        base, there = (np.rint(side(self._everything).numbers) for side in (without, within))
        asked, shift = spent(self._claimed, self.noise), there - base
        spread = np.concatenate([np.full(count, spread) for count, spread in without(asked).spreads])

        def ratio(outputs: Outputs) -> Scores:
            """Return the log-likelihood ratio of runs (rows), of the Gaussian that rounded noise was rounded from."""
            centred = outputs - base
            if self.law == "gaussian":
                return np.asarray(centred @ (shift / spread**2))
            return np.asarray((np.abs(centred) - np.abs(centred - shift)) @ (1 / laplace_scale(spread)))

        def runs(side: Release) -> Callable[[int], Outputs]:
            return lambda trials: np.array([side(asked).numbers for _ in range(trials)], dtype=np.float64)

        attackers = {"likelihood ratio": known(ratio), "learned": linear_discriminant}
        claim = claim_of(without(self._claimed).promise)
        return Mechanism(name, self.words(_WORDS["worst"]), claim, runs(without), runs(within), attackers)

    def _drawn(self, trials: int) -> tuple[Shown, npt.NDArray[np.float64]]:
        """Return a release of the claimed budget, and the noise that was drawn in many."""
        asked = spent(self._claimed, self.noise)
        release = self._fill(self._kind.rest)
        base = np.rint(release(self._everything).numbers)
        noise = np.array([release(asked).numbers for _ in range(trials)], dtype=np.float64) - base
        return release(self._claimed), noise

    def _restated(self, claimed: Shown, noise: npt.NDArray[np.float64], confidence: float) -> Finding:
        claim = printed_promise(claimed.promise)
        ends = np.cumsum([count for count, _ in claimed.spreads])
        parts = np.split(noise, ends[:-1], axis=1)
        factor = min(
            least_spread(self.law, part, spread, confidence)
            for part, (_, spread) in zip(parts, claimed.spreads, strict=True)
        )
        kept = Attacked(epsilon=claim.epsilon, delta=claim.delta)
        found = spent(kept, factor)["epsilon"] if factor > 0 else float("inf")
        return self.finding(("any", "any unit"), claim, found, "drawn noise", len(noise), "restated")

    @property
    def _kind(self) -> AttackedKind:
        return KINDS[self.kind]

    @property
    def _fill(self) -> Callable[[Records], Release]:
        return partial(self._kind.fill, self.unit_of(_KEYS, self._kind.weight))

    @property
    def _claimed(self) -> Attacked:
        return GAUSSIAN if self.law == "gaussian" else PURE

    @property
    def _everything(self) -> dict[str, float]:
        """The budget that is as large as one can be: nothing is added."""
        return {"rho": 1e9} if self.law == "gaussian" else {"epsilon": 1e6, "delta": 0.0}

    def _exact(self) -> Exact:
        found: dict[str, Numbers] = {}

        def shown(records: Records) -> Numbers:
            name = repr(records)
            if name not in found:
                found[name] = np.rint(self._fill(records)(self._everything).numbers)
            return found[name]

        return shown

    def _streams(self, exact: Exact, crowding: float = 0.0) -> dict[str, tuple[Records, Records]]:
        """Return two neighbouring streams for each pair that exists.

        Of pairs that move as much, the one that moves fewer numbers is told apart by fewer samples: ``crowding`` is
        what a square adds to a size.
        """
        kind, rest, weight = self._kind, self._kind.rest, self._kind.weight

        def holding(keys: list[int], weight: float = weight) -> Records:
            return [(key, "ann", weight) for key in keys]

        null: Records = [(None, "ann", 1.0)]
        nothing: Records = null if self.replaced else []
        held, other = self._farthest(exact, crowding)
        one, instead = holding(held), holding(other) or nothing
        crowded = holding(self._crowded(exact))
        beside: Records = [(key, "eve", 1.0) for key, _, _ in crowded[:1]]
        # Classes and points cannot weigh more than 1.
        heavy = 50 * weight if weight > 1 else 1.0
        much = holding(list(range(0, kind.keys, 2)), heavy) if self.level == "user" else holding([5], heavy)
        streams = {
            "worst": (rest + one, rest + instead),
            "first": (one + rest, instead + rest),
            "null": (rest + (one if self.replaced else []), rest + null),
            "colliding": (beside + crowded, beside + nothing),
            "clipped": (rest + much, rest + nothing),
        }
        return {pair: streams[pair] for pair in kind.pairs}

    def _moves(self, exact: Exact) -> Numbers:
        """Return by how much each key alone moves what is published (rows)."""
        kind = self._kind
        base = exact(kind.rest)
        return np.array([exact([*kind.rest, (key, "ann", kind.weight)]) - base for key in range(kind.keys)])

    def _norms(self, moved: Numbers, crowding: float) -> Numbers:
        """Return how long vectors are, in the norm that the noise is made for."""
        sizes = moved**2 if self.law == "gaussian" else np.abs(moved) + crowding * moved**2
        return np.asarray(np.sum(sizes, axis=-1))

    def _farthest(self, exact: Exact, crowding: float) -> tuple[list[int], list[int]]:
        """Return the keys of a unit that moves most, and of the one in its place; none where it is added.

        What single keys move is added up, beginning with each of them. Bounds that cut a user off are not in these
        sums: so the best of them and neighbouring keys are compared as they are, and then changed one by one.
        """
        kind, moves, replaced = self._kind, self._moves(exact), self.replaced
        count = _KEYS if self.level == "user" else 1

        def grown(base: Numbers, sign: int, taken: list[int]) -> list[int]:
            """Return keys that take what is moved farther away, one after the other."""
            keys: list[int] = []
            for _ in range(count):
                norms = self._norms(base + sign * moves, crowding)
                norms[[*taken, *keys]] = -1
                keys.append(int(norms.argmax()))
                base = base + sign * moves[keys[-1]]
            return keys

        def against(one: list[int]) -> tuple[list[int], list[int]]:
            return one, grown(moves[one].sum(axis=0), -1, one) if replaced else []

        def added(pair: tuple[list[int], list[int]]) -> float:
            return float(self._norms(moves[pair[0]].sum(axis=0) - moves[pair[1]].sum(axis=0), crowding))

        def moved(pair: tuple[list[int], list[int]]) -> float:
            sides = [exact([*kind.rest, *((key, "ann", kind.weight) for key in keys)]) for keys in pair]
            return float(self._norms(sides[0] - sides[1], crowding))

        met = [[first, *grown(moves[first], 1, [first])[: count - 1]] for first in range(kind.keys)]
        step = -(-kind.keys // _TRIED)
        apart = [list(range(first, first + count)) for first in range(0, kind.keys - count, step)]
        tried = sorted(map(against, met), key=added)[-8:] + [against(one) for one in apart]
        best = max(tried, key=moved)
        for side, place in product((0, 1) if replaced else (0,), range(count)):
            free = [key for key in range(0, kind.keys, step) if key not in (*best[0], *best[1])]
            changed = [(list(best[0]), list(best[1])) for _ in free]
            for pair, key in zip(changed, free, strict=True):
                pair[side][place] = key
            best = max([best, *changed], key=moved)
        return best

    def _crowded(self, exact: Exact) -> list[int]:
        """Return neighbouring keys of a unit that meet in a number: it moves farther than any other."""
        kind, moves = self._kind, self._moves(exact)
        count = _KEYS if self.level == "user" else 1
        sums = np.array([moves[first : first + count].sum(axis=0) for first in range(kind.keys - count)])
        first = int(np.abs(sums).max(axis=1).argmax())
        return list(range(first, first + count))


_WORDS = {
    "worst": "the unit that moves most",
    "first": "the unit that moves most, first in the stream",
    "null": "a unit that holds a null",
    "colliding": "a unit whose keys share their cells with each other or with somebody else's",
    "clipped": "a unit that holds far more than the bounds let pass",
}


GRID: dict[str, AttackGrid] = {
    row.name: row
    for name, kind in KINDS.items()
    for row in (AttackGrid(f"{name}-{law}", *unit) for law, unit in product(kind.laws, kind.units))
}
