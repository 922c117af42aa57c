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
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.audit.core import Outputs
from dpsketch.audit.laws import fitting_factors, kindest, power_of
from dpsketch.audit.mechanism import Budget, Claim, Finding, printed_promise
from dpsketch.audit.rows import Row
from dpsketch.privacy import Neighbours, Unit
from dpsketch.sketches.quantiles import QuantileSketch

__all__ = ["RANKED", "Ranked", "answers"]

Level = Literal["record", "user"]
Asked = Literal["median", "high", "quartiles"]
Values = tuple[int, ...]

_SHARES: dict[Asked, tuple[float, ...]] = {"median": (0.5,), "high": (0.9,), "quartiles": (0.25, 0.5, 0.75)}
_KEYS, _TIES = 2, 4
# Everybody else, and what a unit may hold.
_RESTS: tuple[Values, ...] = ((), (23,), (0, 23), (0, 0, 23, 23), (0,) * 9 + (23,))
_CROWDED: Values = (0, 0, 8, 8, 24)
_HELD: tuple[int, ...] = (0, 8, 30, 31)
_ALL_BITS = 5
_BITS = {"median": _ALL_BITS, "high": _ALL_BITS, "quartiles": 3}


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
class Ranked(Row):
    """Quantiles at one unit and relation.

    Attributes
    ----------
    asked : {"median", "high", "quartiles"}
        Which quantiles: the median, the ninth tenth, or three quarters.
    """

    asked: Asked

    @property
    def subject(self) -> str:
        """What is released."""
        return f"quantiles-{self.asked}"

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, and bound ε from below on each pair."""
        claim = Claim(*printed_promise(self._sketch((), ()).release(**Budget.pure().claimed).guarantee))
        promised, rates, factors = self._seen(trials, confidence)

        @lru_cache(None)
        def law(values: Values, factor: float) -> Floats:
            return np.log(np.maximum(self._law(values, rates, factor), 1e-300))

        def loss(one: Values, other: Values, share: float) -> float:
            return kindest(lambda factor: float(np.abs(law(one, factor) - law(other, factor)).max()), factors, share)

        def finding(pair: str, words: str, two: tuple[Values, Values], found: float | None = None) -> Finding:
            caught = power_of(lambda share: loss(two[0], two[1], share), claim.epsilon)
            found = loss(two[0], two[1], 1.0) if found is None else found
            name, words = f"{self.name}-{pair}", f"{words}, {self.ending}"
            return Finding(name, words, claim, found, "likelihood ratio", trials, True, "law", caught)

        def farthest(pairs: list[tuple[Values, Values]]) -> tuple[Values, Values]:
            return max(pairs, key=lambda two: loss(two[0], two[1], 1.0))

        worst, crowded = (farthest(self._pairs(rests)) for rests in (_RESTS, (_CROWDED,)))
        findings = [finding("worst", "the unit that moves most", worst)]
        rest = self._rest
        for pair, (words, first, held, kept) in self._streams().items():
            draws = self._draws(self._sketch(rest, held, first=first), trials // 2)
            seen = fitting_factors(partial(self._flat, rest + kept, rates), self._counted(draws), confidence)
            # Draws of another law than that of the counts that should be left: something else was counted.
            strange = seen[0] > factors[1] or seen[1] < factors[0]
            findings.append(finding(pair, words, (rest + kept, rest), math.inf if strange else None))
        # All losses are in proportion to the rate, those of pairs that nobody found as well.
        least = promised / factors[1] if factors[1] else math.inf
        restated = Finding(
            f"{self.name}-any", f"any unit, {self.ending}", claim, least, "rate", trials, True, "restated"
        )
        return [*findings, finding("colliding", "a unit whose values are those of others", crowded), restated]

    @property
    def _unit(self) -> Unit:
        return self.unit_of(_KEYS)

    def _sketch(self, rest: Values, unit: tuple[int | None, ...], *, first: bool = False) -> QuantileSketch:
        """Return a sketch of everybody else, a user for each value, and of the unit."""
        sketch = QuantileSketch(unit=self._unit, bits=_BITS[self.asked], quantiles=_SHARES[self.asked])
        values, users = [*rest, *unit], [*(f"user {i}" for i in range(len(rest))), *["ann"] * len(unit)]
        if first:
            values, users = values[::-1], users[::-1]
        if values:
            sketch.update(values, users=users if self.level == "user" else None)
        return sketch

    def _draws(self, sketch: QuantileSketch, trials: int) -> Outputs:
        spent = Budget.pure(self.noise).spent
        return np.array([sketch.release(**spent).cells for _ in range(trials)], dtype=np.float64)

    @property
    def _cells(self) -> int:
        return 1 << _BITS[self.asked]

    @property
    def _rest(self) -> Values:
        """Values of everybody else: one in each of sixteen cells or fewer, or several where one hardly counts."""
        copies = 3 if self.level == "user" and self.relation == "replace" else 1
        return tuple(range(0, self._cells, max(1, self._cells // 16))) * copies

    def _counted(self, draws: Outputs) -> Floats:
        """Return how often each answer was drawn."""
        drawn = np.zeros((self._cells,) * len(_SHARES[self.asked]))
        np.add.at(drawn, tuple(draws.astype(int).T), 1.0)
        return drawn.ravel()

    def _seen(self, trials: int, confidence: float) -> tuple[float, tuple[float, float], tuple[float, float]]:
        """Return the ε and the rates that releases state, and between which factors of the noise the draws lie."""
        rest = self._rest
        sketch = self._sketch(rest, ())
        stated = sketch.release(**Budget.pure(self.noise).spent).law
        middle = stated.quantiles[len(stated.quantiles) // 2]
        rates = float(stated.rate(middle, whole=True)), float(stated.rate(middle, whole=False))
        drawn = self._counted(self._draws(sketch, 2 * trials))
        fitting = fitting_factors(partial(self._flat, rest, rates), drawn, confidence)
        return stated.levels * stated.epsilon, rates, fitting

    def _law(self, values: Values, rates: tuple[float, float], factor: float) -> Floats:
        counts = tuple(values.count(value) for value in range(self._cells))
        return answers(counts, _SHARES[self.asked], (rates[0] / factor, rates[1] / factor))

    def _flat(self, values: Values, rates: tuple[float, float], factor: float) -> Floats:
        return self._law(values, rates, factor).ravel()

    def _fitting(self, values: Values) -> Values:
        """Return values on the grid of this row."""
        return tuple(value >> (_ALL_BITS - _BITS[self.asked]) for value in values)

    def _pairs(self, rests: tuple[Values, ...]) -> list[tuple[Values, Values]]:
        """Return neighbours: everybody else's values, with those of a unit, or of two."""
        size = _KEYS if self.level == "user" else 1
        held = [*product(*[self._fitting(_HELD)] * size)]
        # A user counts once for each value.
        held = sorted({tuple(sorted(set(each))) for each in held})
        others = [(), *held] if self.relation == "replace" else [()]
        return [
            (self._fitting(rest) + one, self._fitting(rest) + other)
            for rest in rests
            for one, other in product(held, others)
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


def _ranked() -> Iterator[Ranked]:
    levels: tuple[Level, ...] = ("record", "user")
    relations: tuple[Neighbours, ...] = ("add_remove", "replace")
    for asked, level, relation in product(_SHARES, levels, relations):
        yield Ranked(asked, level=level, relation=relation)


RANKED: dict[str, Ranked] = {row.name: row for row in _ranked()}
