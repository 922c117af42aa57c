"""Named quantiles by the exact law of their answers, under both units and both relations.

A place is drawn with odds that fall with how far its ranks are from the target, at a rate that the release states. On a
few cells the law of all answers can be written down; how fast the odds really fall is measured on what was drawn. The
loss of two neighbours is then the largest log ratio of an answer's probabilities: none of the library's sensitivities
is used. As few pairs of small data come near the bound, the promise is restated for the measured rate as well.

No counts are published, so that of units that come first, hold a null or far more than the bounds let pass it is looked
at whether draws follow the law of the counts that they should leave.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.audit.findings import BOTH, PURE, AuditRow, Finding, printed_promise, spent
from dpsketch.audit.losses import fitting_factors, kindest, power_of
from dpsketch.sketches.quantiles import QuantileSketch

__all__ = ["QUANTILES", "Quantiles", "answers"]

Values = tuple[int, ...]

_KEYS, _TIES = 2, 4
_BITS = 5
# The quantiles, and how many bits their values have.
_ASKED: dict[str, tuple[tuple[float, ...], int]] = {
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
        shares, bits = _ASKED[self.subject]
        sketch = QuantileSketch(unit=self.unit_of(_KEYS), bits=bits, quantiles=shares)
        values, users = [*rest, *unit], [*(f"user {i}" for i in range(len(rest))), *["ann"] * len(unit)]
        if first:
            values, users = values[::-1], users[::-1]
        if values:
            sketch.update(values, users=users if self.level == "user" else None)
        return sketch

    def _draws(self, sketch: QuantileSketch, trials: int) -> Floats:
        """Return how often each answer is drawn."""
        shares, bits = _ASKED[self.subject]
        drawn, asked = np.zeros((1 << bits,) * len(shares)), spent(PURE, self.noise)
        for _ in range(trials):
            drawn[tuple(sketch.release(**asked).cells)] += 1
        return drawn.ravel()

    @property
    def _rest(self) -> Values:
        """Values of everybody else: one in each of sixteen cells or fewer, or several where one hardly counts."""
        cells, copies = 1 << _ASKED[self.subject][1], 3 if self.level == "user" and self.replaced else 1
        return tuple(range(0, cells, max(1, cells // 16))) * copies

    def _law(self, values: Values, rates: tuple[float, float], factor: float) -> Floats:
        """Return the probability of every answer."""
        shares, bits = _ASKED[self.subject]
        counts = tuple(values.count(value) for value in range(1 << bits))
        return answers(counts, shares, (rates[0] / factor, rates[1] / factor)).ravel()

    def _fitting(self, values: Values) -> Values:
        """Return values on the grid of this row."""
        return tuple(value >> (_BITS - _ASKED[self.subject][1]) for value in values)

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
    row.name: row for name in _ASKED for row in (Quantiles(name, *unit) for unit in BOTH)
}
