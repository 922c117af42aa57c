"""Every kind that adds noise, under both units and both relations, on five pairs of neighbours each.

The pairs: the *worst* one that a search finds; the same with the unit's records *first* in the stream; a unit that
holds a *null* beside one that holds something; keys that *collide*, with each other or with those of others; and a unit
that holds far more than the bounds let pass, which must be *clipped*. Records go in by ``update``, what comes out is
what ``release`` published, and the claim is the sentence that it printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpsketch import kernels
from dpsketch.audit.lattice import gaussian_bound, laplace_bound, seen_numbers
from dpsketch.audit.mechanism import Budget, Claim, Finding, printed_promise
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Neighbours, Unit, per_record, per_user
from dpsketch.sketches.continual.choice import DesignName
from dpsketch.sketches.countsketch import ContinualCountSketch, CountSketch, PanPrivateCountSketch
from dpsketch.sketches.countsketch.shares import Share
from dpsketch.sketches.density import DensityClassifier, DensitySketch
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.histogram import Histogram
from dpsketch.sketches.ranges import RangeSketch

__all__ = ["GRID", "PAIRS", "Grid"]

Law = Literal["gaussian", "laplace"]
Level = Literal["record", "user"]
# One record: its key (None for a null), whose it is, and its weight.
Records = list[tuple[int | None, str, float]]
# All numbers that were published, and the sentence beside them.
Shown = tuple[npt.NDArray[Any], Any]
# Publishes for a budget, given as the arguments of ``release``.
Release = Callable[[Any], Shown]

PAIRS = ("worst", "first", "null", "colliding", "clipped")
_KEYS, _WEIGHT = 3, 2.0
_REST: Records = [(1, "eve", 1.0), (2, "kim", 1.0)]
_SEED = 11


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind as the table sees it: how records become something that is released again and again."""

    fill: Callable[[Unit, Records], Release]
    laws: tuple[Law, ...] = ("gaussian", "laplace")
    levels: tuple[Level, ...] = ("record", "user")
    weight: float = _WEIGHT
    keys: int = 130
    rest: Records = field(default_factory=lambda: _REST)
    pairs: tuple[str, ...] = PAIRS


def _columns(unit: Unit, records: Records, *, weighted: bool = True) -> tuple[list[int | None], dict[str, Any]]:
    keys = [key for key, _, _ in records]
    given: dict[str, Any] = {"users": [user for _, user, _ in records]} if unit.level == "user" else {}
    if weighted:
        given["weights"] = [weight for _, _, weight in records]
    return keys, given


def _released(sketch: Any, parts: Callable[[Any], list[npt.NDArray[Any]]]) -> Release:
    def release(asked: Any) -> Shown:
        made = sketch.release(**asked)
        return np.concatenate([part.ravel() for part in parts(made)]), made.guarantee

    return release


def _counts(unit: Unit, records: Records) -> Release:
    sketch = CountSketch(rows=3, width=2, unit=unit, seed=_SEED, key_type="int")
    keys, given = _columns(unit, records)
    sketch.update(keys, **given)
    return _released(sketch, lambda made: [made.table])


def _share(unit: Unit, records: Records) -> Release:
    sketch = CountSketch(rows=3, width=2, unit=unit, seed=_SEED, key_type="int")
    keys, given = _columns(unit, records)
    sketch.update(keys, **given)

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked, share=Share(2, 1.0, 0))
        return made.table.ravel() * made.spec.grid, made.guarantee

    return release


def _heavy(unit: Unit, records: Records) -> Release:
    sketch = HeavyHitters(rows=1, width=4, key_bits=9, unit=unit, seed=_SEED)
    keys, given = _columns(unit, records)
    sketch.update([None if key is None else key * 197 % 512 for key in keys], **given)  # far apart in every level
    return _released(sketch, lambda made: [made.total, made.dense, made.tables])


def _ranges(bits: int, unit: Unit, records: Records) -> Release:
    # From 17 bits on levels are sketched; values lie far apart there.
    sketched = bits > 16
    sketch = RangeSketch(bits=bits, level_bits=8 if sketched else 2, rows=1, width=4, unit=unit, seed=_SEED)
    keys, given = _columns(unit, records)
    step = (1 << 19) + (1 << 9) + 1 if sketched else 1
    sketch.update([None if key is None else key * step for key in keys], **given)
    return _released(sketch, lambda made: [made.dense, made.tables])


def _distinct(unit: Unit, records: Records) -> Release:
    sketch = DistinctSketch(buckets=64, unit=unit, seed=_SEED)
    keys, given = _columns(unit, records, weighted=False)
    sketch.update(keys, **given)
    return _released(sketch, lambda made: [np.array([made.ones])])


def _density(unit: Unit, records: Records) -> Release:
    sketch = DensitySketch(kernel=kernels.Euclidean(dim=1, bandwidth=1.0), rows=3, width=16, unit=unit, seed=_SEED)
    keys, given = _columns(unit, records, weighted=False)
    sketch.update([[np.nan if key is None else 1.7 * key] for key in keys], **given)
    return _released(sketch, lambda made: [made.table, np.array([made.noisy_count])])


def _waves(unit: Unit, records: Records) -> Release:
    """One wave, and points half a wave apart: a record adds as much as its bound, and another's may oppose it."""
    kernel = kernels.Gaussian(dim=1, bandwidth=1.0)
    sketch = DensitySketch(kernel=kernel, rows=1, unit=unit, seed=_SEED, features="fourier")
    mapped = sketch.spec.feature_map
    assert mapped is not None
    half = 1 / float(mapped.matrix[0, 0])
    keys, given = _columns(unit, records, weighted=False)
    points = [[np.nan] if key is None else [half * (key // 8 % 2 + 1e-6 * key)] for key in keys]
    sketch.update(points, **given)
    return _released(sketch, lambda made: [made.table, np.array([made.noisy_count])])


def _vectors(unit: Unit, records: Records) -> Release:
    """Vectors of length 1, of which every other eight point back: a replaced one turns round."""
    sketch = DensitySketch(kernel=kernels.Linear(dim=2), unit=unit, seed=_SEED)
    keys, given = _columns(unit, records, weighted=False)
    points = [[np.nan, 0.0] if key is None else [(-1.0) ** (key // 8), 1e-6 * key] for key in keys]
    sketch.update(points, **given)
    return _released(sketch, lambda made: [made.table, np.array([made.noisy_count])])


def _continual(design: DesignName, unit: Unit, records: Records) -> Release:
    """Publish four days, the records on the second; all that a day publishes is shown."""

    def life(asked: Any) -> Shown:
        shape: Any = {"rows": 1, "width": 4, "unit": unit, "seed": _SEED, "key_type": "int"}
        sketch = ContinualCountSketch(days=4, design=design, **shape, **asked)
        keys, given = _columns(unit, records)
        for day in range(4):
            sketch.day(keys if day == 1 else [1], **(given if day == 1 else {}))
        return sketch.published.ravel(), sketch.guarantee

    return life


def _pan_private(unit: Unit, records: Records) -> Release:
    """Seize the state after the records; the publication beside it has fresh noise."""

    def life(asked: Any) -> Shown:
        sketch = PanPrivateCountSketch(rows=3, width=2, unit=unit, seed=_SEED, key_type="int", **asked)
        keys, given = _columns(unit, records)
        sketch.update(keys, **given)
        seized = sketch.snapshot()
        made = sketch.publish()
        return np.concatenate([seized.ravel(), (made.table - seized).ravel()]), made.guarantee

    return life


def _list(unit: Unit, records: Records) -> Release:
    """Publish a public list, of the first half of the keys, and all others as one count."""
    sketch = Histogram(unit=unit, key_type="int")
    keys, given = _columns(unit, records)
    sketch.update(keys, **given)

    def release(asked: Any) -> Shown:
        form: Literal["gaussian", "laplace"] = "gaussian" if asked.get("delta", 1.0) > 0 else "laplace"
        made = sketch.release(**asked, keys=list(range(15)), others=True, form=form)
        assert made.rest is not None
        return np.append(made.values, made.rest), made.guarantee

    return release


def _one_row(unit: Unit, records: Records) -> Release:
    """One row is drawn for each point. Outputs in which all rows speak for a point show it as the drawn one does."""
    kernel = kernels.Euclidean(dim=1, bandwidth=1.0)
    sketch = DensitySketch(kernel=kernel, rows=3, width=64, unit=unit, seed=_SEED, placement="one_row")
    keys, given = _columns(unit, records, weighted=False)
    sketch.update([[np.nan if key is None else 170.0 * key] for key in keys], **given)  # hardly two in a cell

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked, count_share=0)
        return made.table.ravel(), made.guarantee

    return release


def _classifier(unit: Unit, records: Records) -> Release:
    """Fit two classes around a public centre: the tables of both."""

    def fit(asked: Any) -> Shown:
        made = DensityClassifier(
            **asked, bounds=(-1, 1), classes=[0, 1], kernel="angular", rows=3, power=4, centre="middle", unit=unit,
            seed=_SEED,
        )  # fmt: skip
        # Four by four they share their class and most of their cells.
        held = np.array([key for key, _, _ in records if key is not None])
        angles, labels = held // 4 * (8 * np.pi / 40) + held % 4 * 1e-3, (held // 4 % 2).tolist()
        _fitted(made, np.column_stack([np.cos(angles), np.sin(angles)]), labels, unit, records)
        return np.concatenate([density.table.ravel() for density in made.densities_]), made.guarantee_

    return fit


def _centre(unit: Unit, records: Records) -> Release:
    """Fit with nearly all of the budget for the private centre, among a thousand others, and show it.

    Where a unit is added, the centre tells all that its sums and its number do if their mean is a quarter of the way to
    the other side; where it is replaced, if it is in the middle. It is a ratio, of noise that is small against either.
    """
    mean = 0.08 if unit.neighbours == "replace" else -0.25

    def fit(asked: Any) -> Shown:
        made = DensityClassifier(
            **asked, bounds=(-1, 1), classes=[0, 1], rows=2, power=1, centre_share=0.98, unit=unit, seed=_SEED
        )
        held = [key for key, _, _ in records if key is not None]
        corners = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
        points = np.array([corners[key // 8 % 4] * (1 - 1e-3 * (key % 8)) for key in held]).reshape(-1, 2)
        # No two of the others are the same, and each is a user.
        crowd = np.full((1000, 2), mean) + np.linspace(-1e-3, 1e-3, 1000)[:, None]
        others: Records = [(0, f"other {i}", 1.0) for i in range(1000)]
        _fitted(made, np.concatenate([crowd, points]), [0] * (1000 + len(held)), unit, others + records)
        return 1e6 * made.centre_, made.guarantee_

    return fit


def _fitted(made: DensityClassifier, points: Any, labels: list[int], unit: Unit, records: Records) -> None:
    owners = [user for key, user, _ in records if key is not None]
    made.fit(points, labels, users=owners if unit.level == "user" else None)


# Records that are nothing cannot be given to a classifier, nor told of one another where rows are drawn.
_NO_NULLS = ("worst", "first", "colliding", "clipped")
_DRAWN = ("worst", "first", "null", "clipped")

_KINDS: dict[str, Kind] = {
    "counts": Kind(_counts),
    "shares": Kind(_share, laws=("gaussian",)),
    "continual": Kind(partial(_continual, "tree"), levels=("record",)),
    "continual-bands": Kind(partial(_continual, "banded"), levels=("record",), laws=("gaussian",)),
    "pan-private": Kind(_pan_private, levels=("record",)),
    "heavy": Kind(_heavy),
    "ranges": Kind(partial(_ranges, 4), keys=16),
    "ranges-tables": Kind(partial(_ranges, 25), keys=60),
    "density": Kind(_density, weight=1.0),
    "density-waves": Kind(_waves, weight=1.0),
    "density-vectors": Kind(_vectors, weight=1.0),
    "density-one-row": Kind(_one_row, laws=("laplace",), weight=1.0, keys=40, rest=[], pairs=_DRAWN),
    "classifier": Kind(_classifier, weight=1.0, keys=40, pairs=_NO_NULLS),
    "classifier-centre": Kind(_centre, laws=("gaussian",), weight=1.0, keys=32, rest=[], pairs=_NO_NULLS),
    "distinct": Kind(_distinct, laws=("laplace",), weight=1.0),
    "histogram-list": Kind(_list, keys=30),
}


@dataclass(frozen=True, slots=True)
class Grid:
    """One kind with one law, unit and relation: five pairs of neighbours, on the same many releases.

    Attributes
    ----------
    kind : str
        Its name in the table.
    law : {"gaussian", "laplace"}
        The noise.
    level, relation
        The unit.
    noise : float
        How much of the noise due is really drawn: 1, except where the audit itself is tested.
    """

    kind: str
    law: Law
    level: Level
    relation: Neighbours
    noise: float = 1.0

    @property
    def name(self) -> str:
        """What it is called."""
        relation = "replace" if self.relation == "replace" else "add"
        return f"table-{self.kind}-{self.law}-{self.level}-{relation}"

    def audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, and bound ε from below on each pair."""
        trials, confidence = whole_number("trials", trials), probability("confidence", confidence)
        budget = Budget.gaussian(self.noise) if self.law == "gaussian" else Budget.pure(self.noise)
        fill = partial(_KINDS[self.kind].fill, self._unit)
        exact = self._exact(fill)
        release = fill(_KINDS[self.kind].rest)
        base = np.rint(release(self._everything)[0])
        noise = np.array([release(budget.spent)[0] for _ in range(trials)], dtype=np.float64) - base
        claim = Claim(*printed_promise(release(budget.claimed)[1]))
        findings = []
        for pair, (one, other) in self._pairs(exact).items():
            seen, shift = seen_numbers(noise, exact(one) - exact(other))
            if self.law == "gaussian":
                found = gaussian_bound(seen, shift, claim.delta, confidence)
            else:
                found = laplace_bound(seen, shift, confidence)
            words = f"{_WORDS[pair]}, {'replaced' if self.relation == 'replace' else 'added'}"
            findings.append(
                Finding(f"{self.name}-{pair}", words, claim, found, "likelihood ratio", trials, True, "law")
            )
        return findings

    @property
    def _unit(self) -> Unit:
        weight = _KINDS[self.kind].weight
        if self.level == "user":
            return per_user(_KEYS, max_weight=weight, neighbours=self.relation)
        return per_record(max_weight=weight, neighbours=self.relation)

    def _exact(self, fill: Callable[[Records], Release]) -> Callable[[Records], npt.NDArray[Any]]:
        """Return what is published of records where nothing is added: the budget is as large as one can be."""
        known: dict[str, npt.NDArray[Any]] = {}

        def shown(records: Records) -> npt.NDArray[Any]:
            name = repr(records)
            if name not in known:
                known[name] = np.rint(fill(records)(self._everything)[0])
            return known[name]

        return shown

    @property
    def _everything(self) -> dict[str, float]:
        return {"rho": 1e9} if self.law == "gaussian" else {"epsilon": 1e6, "delta": 0.0}

    def _pairs(self, exact: Callable[[Records], npt.NDArray[Any]]) -> dict[str, tuple[Records, Records]]:
        """Return two neighbouring streams for each pair."""
        kind, user = _KINDS[self.kind], self.level == "user"
        count, weight = (_KEYS if user else 1), kind.weight

        def holding(keys: list[int], weight: float = weight) -> Records:
            return [(key, "ann", weight) for key in keys]

        runs = [holding(list(range(first, first + count))) for first in range(kind.keys - count)]
        spread = [holding([(first + 5 * i) % kind.keys for i in range(count)]) for first in range(kind.keys)]
        nothing: Records = [(None, "ann", 1.0)] if self.relation == "replace" else []
        far = self._farther(exact)

        def farthest(base: Records) -> tuple[Records, Records]:
            """Return what moves most against nothing, and what then moves most in its place."""
            one = max(chain(runs, spread), key=lambda each: far(base + each, base + nothing))
            if self.relation == "add_remove":
                return one, nothing
            # What both hold cancels, wherever it was put.
            apart = (
                each for each in chain(runs, spread) if not {key for key, _, _ in each} & {key for key, _, _ in one}
            )
            return one, max(chain(apart, [nothing]), key=lambda each: far(base + one, base + each))

        rest = kind.rest
        one, other = farthest(rest)
        crowded = max(runs, key=lambda each: float(np.abs(exact(rest + each) - exact(rest)).max()))
        beside: Records = [(key, "eve", 1.0) for key, _, _ in crowded[:1]]
        much = holding(list(range(0, kind.keys, 2)), 50 * weight)
        if not user:
            much = holding([5], 50 * weight)
        if kind.weight == 1.0:
            much = [(key, who, 1.0) for key, who, _ in much]
        null: Records = [(None, "ann", 1.0)]
        found = {
            "worst": (rest + one, rest + other),
            "first": (one + rest, other + rest),
            "null": (rest + (one if self.relation == "replace" else []), rest + null),
            "colliding": (beside + crowded, beside + nothing),
            "clipped": (rest + much, rest + nothing),
        }
        return {pair: found[pair] for pair in kind.pairs}

    def _farther(self, exact: Callable[[Records], npt.NDArray[Any]]) -> Callable[[Records, Records], float]:
        """Return how far two streams lie apart, in the norm that the noise is made for."""
        power = 2 if self.law == "gaussian" else 1
        return lambda one, other: float(np.sum(np.abs(exact(one) - exact(other)) ** power))


_WORDS = {
    "worst": "the unit that moves most",
    "first": "the unit that moves most, first in the stream",
    "null": "a unit that holds a null",
    "colliding": "a unit whose keys share their cells with each other or with somebody else's",
    "clipped": "a unit that holds far more than the bounds let pass",
}


def _grid() -> Iterator[Grid]:
    for name, kind in _KINDS.items():
        for law in kind.laws:
            for level in kind.levels:
                yield Grid(name, law, level, "add_remove")
                yield Grid(name, law, level, "replace")


GRID: dict[str, Grid] = {grid.name: grid for grid in _grid()}
