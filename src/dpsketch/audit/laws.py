"""Kinds whose noise is not added, each by its own law, under both units and both relations.

**Flipped bits.** How often each bit is shown is counted over many releases of many keys: one half of them says which
bits stand out, the other how far. Of a sparse histogram that gives how many columns a unit of weight takes, of a bitmap
how far a bit that is set differs from one that is not; the loss follows from these rates, by the law of the mechanism,
with the end of their intervals that is kindest to it.

**Named quantiles.** A place is drawn with odds that fall with how far its ranks are from the target, at a rate that the
release states. On a few cells the law of all answers can be written down; how fast the odds really fall is measured on
what was drawn. The loss of two neighbours is then the largest log ratio of an answer's probabilities: none of the
library's sensitivities is used. As few pairs of small data come near the bound, the promise is restated for the
measured rate as well. No counts are published, so that of units that come first, hold a null or far more than the
bounds let pass it is looked at whether draws follow the law of the counts that they should leave.

**Frequency moments**, with and without a public total. The published scale is that of the moment and its floor
together, times a variate whose law is the same for all streams. So a stream of a known moment, far above any floor,
shows that variate; beside it, a stream that has the least moment that the public total allows shows how high floor and
moment together stand. One unit more raises them by what it adds to the moment, by definition. The loss is that of two
such scales, exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dpsketch import accounting
from dpsketch.arrays import Floats
from dpsketch.audit.findings import BOTH, PURE, Attacked, AuditRow, Finding, printed_promise, spent
from dpsketch.audit.losses import fitting_factors, kindest, power_of
from dpsketch.privacy import MomentCost, Unit
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.moment import MomentSketch
from dpsketch.sketches.quantiles import QuantileSketch
from dpsketch.sketches.sparse import SparseHistogram

__all__ = ["FLIPS", "MOMENTS", "QUANTILES", "Flipped", "Moments", "Quantiles", "answers", "bits_of"]

# One record: its key (None for a null), and whose it is.
Stream = list[tuple[int | None, str]]

_KEYS, _ALPHA, _FLIP = 2, 2, 0.25
_EPSILON = {"sparse": 2.0, "bitmap": 1.5}
# So many keys show what one does; so many units hold so many keys each, far more than bounds let pass.
_SHOWN, _UNITS, _MUCH = 40, 8, 12
# A bit stands out from so many standard deviations on.
_STANDS_OUT = 2.0


def bits_of(words: Any) -> npt.NDArray[np.uint8]:
    """Return the bits of words."""
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")


@dataclass(frozen=True, slots=True)
class Flipped(AuditRow):
    """The bits of a sparse histogram, or of a distinct count."""

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        claim = printed_promise(self._released(self._sketch([]), 1.0).guarantee)
        return [
            self.finding((pair, words), claim, found, "rates", trials, "law")
            for pair, (words, found) in self._bits(trials, confidence).items()
        ]

    @property
    def _unit(self) -> Unit:
        return self.unit_of(_KEYS)

    @property
    def _entries(self) -> int:
        """How many keys of a unit change: its own, and as many others where it is replaced."""
        return self._unit.max_keys * (2 if self.replaced else 1)

    def _sketch(self, stream: Stream) -> Any:
        if self.subject == "bitmap":
            sketch: Any = DistinctSketch(unit=self._unit, buckets=128)
        else:
            sketch = SparseHistogram(unit=self._unit, domain=1 << 20, max_value=3, expected_keys=_SHOWN)
        if stream:
            users = [user for _, user in stream] if self.level == "user" else None
            sketch.update([key for key, _ in stream], users=users)
        return sketch

    def _released(self, sketch: Any, noise: float) -> Any:
        epsilon = _EPSILON[self.subject] / noise
        mergeable = self.subject == "bitmap"
        return sketch.release_mergeable(epsilon=epsilon) if mergeable else sketch.release(epsilon=epsilon, delta=0.0)

    def _shown_keys(self) -> list[int]:
        """Return keys no two of which share a bit of a bitmap, by releases to which nothing is added."""
        keys, key = list(range(0 if self.subject == "bitmap" else _SHOWN)), 0
        while len(keys) < _SHOWN:
            sketch = self._sketch([(each, f"user {each}") for each in (*keys, key)])
            if sketch.release(epsilon=1e6, delta=0).ones > len(keys):
                keys.append(key)
            key += 1
        return keys

    def _rates(self, sketch: Any, trials: int) -> npt.NDArray[np.float64]:
        """Return how often each bit is shown."""
        total: Any = 0
        for _ in range(trials):
            made = self._released(sketch, self.noise)
            total = total + bits_of(made.bitmap if self.subject == "bitmap" else made.table).astype(int)
        return np.asarray(total / trials)

    def _bits(self, trials: int, confidence: float) -> dict[str, tuple[str, float]]:
        """Return for each pair what it is, and what it loses."""
        half = max(40, trials // 3)
        quiet = float(self._rates(self._sketch([]), half).mean())

        def excess(stream: Stream) -> tuple[float, float]:
            """Return between which values all that bits are shown more often than others adds up."""
            sketch = self._sketch(stream)
            chosen = self._rates(sketch, half) > quiet + _STANDS_OUT * math.sqrt(quiet * (1 - quiet) / half)
            found = self._rates(sketch, half)[chosen] - quiet
            room = float(ndtri(confidence)) * math.sqrt(0.25 * max(1, len(found)) / half)
            return float(found.sum()) - room, float(found.sum()) + room

        def loss(each: float) -> float:
            """Return what a unit loses whose keys are each shown so much more often."""
            if each <= 0:
                return 0.0
            if self.subject == "sparse":
                columns = each / (1 - 2 * _FLIP)
                whole = math.floor(columns)
                return self._entries * (whole * math.log1p(_ALPHA) + math.log1p(_ALPHA * (columns - whole)))
            lost = math.log((quiet + each) / quiet)
            if self.replaced:
                lost += max(0.0, math.log((1 - quiet) / (1 - quiet - each)))
            return self._unit.max_keys * lost

        ones: Stream = [(key, f"user {key}") for key in self._shown_keys()]
        twice: Stream = [*ones, *((key, f"other {key}") for key, _ in ones)]
        nulls: Stream = [*ones, *((None, f"other {key}") for key, _ in ones)]
        held = _MUCH if self.level == "user" else 1
        much: Stream = [(_MUCH * unit + key, f"user {unit}") for unit in range(_UNITS) for key in range(held)]
        low, high = excess(ones)
        many, _ = excess(much)
        counted = max(0.0, many / _UNITS / (high / _SHOWN) / self._unit.max_keys)
        return {
            "worst": ("a unit with keys that nobody else has", loss(low / _SHOWN)),
            "first": ("a unit that comes before all others", loss(excess(ones[::-1])[0] / _SHOWN)),
            "null": ("a unit that holds a null", loss((excess(nulls)[0] - high) / _SHOWN)),
            "colliding": ("a unit with keys of others", loss((excess(twice)[0] - high) / _SHOWN)),
            "clipped": ("a unit that holds far more than the bounds let pass", counted * loss(low / _SHOWN)),
        }


FLIPS: dict[str, Flipped] = {row.name: row for kind in _EPSILON for row in (Flipped(kind, *unit) for unit in BOTH)}


Values = tuple[int, ...]

_TIES = 4
_BITS = 5
# The quantiles, and how many bits their values have.
_QUANTILES: dict[str, tuple[tuple[float, ...], int]] = {
    "quantiles-median": ((0.5,), _BITS),
    "quantiles-high": ((0.9,), _BITS),
    "quantiles-quartiles": ((0.25, 0.5, 0.75), 3),
}
# Everybody else, and what a unit may hold.
_RESTS: tuple[Values, ...] = ((), (23,), (0, 23), (0, 0, 23, 23), (0,) * 9 + (23,))
_CROWDED: Values = (0, 0, 8, 8, 24)
_HELD: tuple[int, ...] = (0, 8, 30, 31)


def answers(counts: tuple[int, ...], shares: tuple[float, ...], rates: tuple[float, float]) -> Floats:
    """Return the probability of every answer, as cells: one axis for each quantile.

    ``rates`` are how fast odds fall with a unit of weight, in all of the data and in a part of it. Equal values are cut
    apart into few places, which the mechanism does as well, more finely.
    """
    masses = np.repeat(np.array(counts, np.float64) / _TIES, _TIES)
    cells = np.repeat(np.arange(len(counts)), _TIES)
    if len(shares) == 1:
        return _summed(cells, _places(masses, shares[0], rates[0]), len(counts))
    # The middle one first; what lies below it goes to the left, the rest to the right, each with its own middle.
    found = np.zeros((len(counts),) * 3)
    for place, chance in enumerate(_places(masses, shares[1], rates[0])):
        below, above = np.append(masses[:place], 0.0), masses[place:]
        left = _places(below, shares[0] / shares[1], rates[1])
        right = _places(above, (shares[2] - shares[1]) / (1 - shares[1]), rates[1])
        sides = [
            _summed(where, weights, len(counts))
            for where, weights in ((cells[: place + 1], left), (cells[place:], right))
        ]
        found[:, cells[place], :] += chance * np.outer(sides[0], sides[1])
    return found


def _summed(cells: npt.NDArray[np.intp], weights: Floats, count: int) -> Floats:
    return np.bincount(cells, weights=weights, minlength=count).astype(np.float64)


def _places(masses: Floats, share: float, rate: float) -> Floats:
    """Return the probability of every place of a part."""
    through = np.cumsum(masses)
    target = share * through[-1]
    away = np.maximum(0.0, np.maximum(through - masses - target, target - through))
    weights = np.exp(-np.minimum(min(rate, 1e9) * (away - away.min()), 700.0))
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True)
class Quantiles(AuditRow):
    """The median, the ninth tenth or three quarters at one unit and relation."""

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, and bound ε from below on each pair."""
        claim, rest = printed_promise(self._sketch((), ()).release(**PURE).guarantee), self._rest
        sketch = self._sketch(rest, ())
        stated = sketch.release(**spent(PURE, self.noise)).law
        middle = stated.quantiles[len(stated.quantiles) // 2]
        rates = float(stated.rate(middle, whole=True)), float(stated.rate(middle, whole=False))
        factors = fitting_factors(partial(self._law, rest, rates), self._draws(sketch, 2 * trials), confidence)

        @lru_cache(None)
        def law(values: Values, factor: float) -> Floats:
            return np.log(np.maximum(self._law(values, rates, factor), 1e-300))

        def loss(two: tuple[Values, Values], share: float) -> float:
            one, other = two
            return kindest(lambda factor: float(np.abs(law(one, factor) - law(other, factor)).max()), factors, share)

        def finding(pair: str, words: str, two: tuple[Values, Values], strange: bool = False) -> Finding:
            caught = power_of(partial(loss, two), claim.epsilon)
            found = math.inf if strange else loss(two, 1.0)
            return self.finding((pair, words), claim, found, "likelihood ratio", trials, "law", caught)

        def farthest(rests: tuple[Values, ...]) -> tuple[Values, Values]:
            return max(self._pairs(rests), key=lambda two: loss(two, 1.0))

        findings = [finding("worst", "the unit that moves most", farthest(_RESTS))]
        for pair, (words, first, held, kept) in self._streams().items():
            draws = self._draws(self._sketch(rest, held, first=first), trials // 2)
            seen = fitting_factors(partial(self._law, rest + kept, rates), draws, confidence)
            # Draws of another law than that of the counts that should be left: something else was counted.
            strange = seen[0] > factors[1] or seen[1] < factors[0]
            findings.append(finding(pair, words, (rest + kept, rest), strange))
        findings.append(finding("colliding", "a unit whose values are those of others", farthest((_CROWDED,))))
        # All losses are in proportion to the rate, those of pairs that nobody found as well.
        least = stated.levels * stated.epsilon / factors[1] if factors[1] else math.inf
        return [*findings, self.finding(("any", "any unit"), claim, least, "rate", trials, "restated")]

    def _sketch(self, rest: Values, unit: tuple[int | None, ...], *, first: bool = False) -> QuantileSketch:
        """Return a sketch of everybody else, a user for each value, and of the unit."""
        shares, bits = _QUANTILES[self.subject]
        sketch = QuantileSketch(unit=self.unit_of(_KEYS), bits=bits, quantiles=shares)
        values, users = [*rest, *unit], [*(f"user {i}" for i in range(len(rest))), *["ann"] * len(unit)]
        if first:
            values, users = values[::-1], users[::-1]
        if values:
            sketch.update(values, users=users if self.level == "user" else None)
        return sketch

    def _draws(self, sketch: QuantileSketch, trials: int) -> Floats:
        """Return how often each answer is drawn."""
        shares, bits = _QUANTILES[self.subject]
        drawn, asked = np.zeros((1 << bits,) * len(shares)), spent(PURE, self.noise)
        for _ in range(trials):
            drawn[tuple(sketch.release(**asked).cells)] += 1
        return drawn.ravel()

    @property
    def _rest(self) -> Values:
        """Values of everybody else: one in each of sixteen cells or fewer, or several where one hardly counts."""
        cells, copies = 1 << _QUANTILES[self.subject][1], 3 if self.level == "user" and self.replaced else 1
        return tuple(range(0, cells, max(1, cells // 16))) * copies

    def _law(self, values: Values, rates: tuple[float, float], factor: float) -> Floats:
        """Return the probability of every answer."""
        shares, bits = _QUANTILES[self.subject]
        counts = tuple(values.count(value) for value in range(1 << bits))
        return answers(counts, shares, (rates[0] / factor, rates[1] / factor)).ravel()

    def _fitting(self, values: Values) -> Values:
        """Return values on the grid of this row."""
        return tuple(value >> (_BITS - _QUANTILES[self.subject][1]) for value in values)

    def _pairs(self, rests: tuple[Values, ...]) -> list[tuple[Values, Values]]:
        """Return neighbours: everybody else's values, with those of a unit, or of two."""
        size = _KEYS if self.level == "user" else 1
        # A user counts once for each value.
        held = sorted({tuple(sorted(set(each))) for each in product(*[self._fitting(_HELD)] * size)})
        others = [(), *held] if self.replaced else [()]
        return [
            (self._fitting(rest) + one, self._fitting(rest) + other)
            for rest, one, other in product(rests, held, others)
            if one != other
        ]

    def _streams(self) -> dict[str, tuple[str, bool, tuple[int | None, ...], Values]]:
        """Return what a unit is, whether it comes first, what it holds, and what of it counts."""
        ends = tuple(sorted({*self._fitting((31, 30))}, reverse=True))
        unit = ends[: _KEYS if self.level == "user" else 1]
        # A user counts once for each value, whatever they hold.
        much = unit * 40 if self.level == "user" else unit
        return {
            "first": ("a unit at the end of all values, first in the stream", True, unit, unit),
            "null": ("a unit that holds a null", False, (None,), ()),
            "clipped": ("a unit that holds far more than the bounds let pass", False, much, unit),
        }


QUANTILES: dict[str, Quantiles] = {
    row.name: row for name in _QUANTILES for row in (Quantiles(name, *unit) for unit in BOTH)
}


_WEIGHT, _SIZE = 3.0, 10
# Number of records in the stream that shows the variate.
_MANY = 4000
_HALF, _ONE = Attacked(epsilon=6.0, delta=1e-2), Attacked(epsilon=5.0, delta=0.0)
# The exponent, the public total (0 for none), and the budget.
_MOMENTS = {
    "moment-0.5": (0.5, 0.0, _HALF), "moment-0.5-total": (0.5, 1.0, _HALF),
    "moment-1": (1.0, 0.0, _ONE), "moment-1-total": (1.0, 1.0, _ONE),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moments(AuditRow):
    """One moment at one unit and relation."""

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, most of them of two streams that say how high it stands, and bound ε from below."""
        p, total, asked = _MOMENTS[self.subject]
        claim = printed_promise(self._sketch(0, 0).release(**asked).guarantee)
        runs, few, others = max(30, trials * 3 // 8), max(30, trials // 8), int(total > 0)
        keys = _KEYS if self.level == "user" else 1
        far, floor = self._logs(_MANY, 0, runs)
        near, _ = self._logs(others, 0, runs)
        # The stream of many shows the variate, up to its own floor, which is small beside it.
        top = math.log(math.pow(_MANY * _WEIGHT, p) + floor)
        _, level = _heights(near, far, top, confidence)
        least, _ = _heights(self._logs(others, 20 * keys, few)[0], far, top, confidence)
        empty, _ = _heights(self._logs(others, 0, few, nulls=20)[0], far, top, confidence)
        added = keys * math.pow(_WEIGHT, p)
        # A key of somebody else's, of the weight that the unit has, or of all of the public total.
        before = total or _WEIGHT
        beside = keys * (math.pow(before + _WEIGHT, p) - math.pow(before, p))
        under = level if total else level + keys * math.pow(before, p)

        def loss(share: float, more: float = added, height: float = level) -> float:
            """Return ε at δ of two scales with this ratio."""
            return accounting.compose([MomentCost(p, _SIZE, 1 + more / (height * share))], delta=claim.delta)

        def loss_beside(share: float) -> float:
            return loss(share, beside, under)

        worst, caught = loss(1.0), power_of(loss, claim.epsilon)
        # More than a unit may add, or anything of a null.
        clipped, null = (math.inf if least > level + added else worst), (math.inf if empty > level else 0.0)
        pairs = [
            ("worst", "the unit that moves most", worst, caught),
            ("first", "the unit that moves most, first in the stream", clipped, caught),
            ("null", "a unit that holds a null", null, 0.0),
            (
                "colliding", "a unit whose keys are somebody else's", loss_beside(1.0),
                power_of(loss_beside, claim.epsilon),
            ),
            ("clipped", "a unit that holds far more than the bounds let pass", clipped, caught),
        ]  # fmt: skip
        return [
            self.finding((pair, words), claim, found, "level", trials, "law", power)
            for pair, words, found, power in pairs
        ]

    def _sketch(self, others: int, held: int, nulls: int = 0) -> MomentSketch:
        """Return a sketch of a unit with more keys than its bound, and of others with one record on one key each."""
        p, total, _ = _MOMENTS[self.subject]
        unit, users = self.unit_of(_KEYS, _WEIGHT), self.level == "user"
        sketch = MomentSketch(p=p, size=_SIZE, unit=unit, public_total=total, key_type="int")
        keys = np.concatenate([5 + np.arange(held if users else min(held, 1)), np.ones(others, np.int64)])
        # One record of the public total has the least moment that there can be.
        weights = np.where(keys == 1, total if others == 1 else _WEIGHT, 1000 * _WEIGHT)
        owners = np.concatenate([np.full(len(keys) - others, 1 << 40), np.arange(others)])
        sketch.update(keys, weights=weights, users=owners if users else None)
        if nulls:
            sketch.update([None] * nulls, weights=[_WEIGHT] * nulls, users=[1 << 40] * nulls if users else None)
        return sketch

    def _logs(self, others: int, held: int, runs: int, nulls: int = 0) -> tuple[Floats, float]:
        """Return the logarithms of published scales, and the floor that was stated."""
        _, _, asked = _MOMENTS[self.subject]
        spent = Attacked(epsilon=asked["epsilon"] / self.noise, delta=asked["delta"])
        made = [self._sketch(others, held, nulls).release(**spent) for _ in range(runs)]
        return np.log([release.scale for release in made]), made[0].floor


def _heights(near: Floats, far: Floats, top: float, confidence: float) -> tuple[float, float]:
    """Return between which values moment and floor of a stream lie, by its scales and those of a known one."""
    error = math.sqrt(float(near.var() / len(near) + far.var() / len(far)))
    middle, room = float(near.mean() - far.mean()) + top, float(ndtri(confidence)) * error
    return math.exp(middle - room), math.exp(middle + room)


MOMENTS: dict[str, Moments] = {
    row.name: row for moment in _MOMENTS for row in (Moments(moment, *unit) for unit in BOTH)
}
