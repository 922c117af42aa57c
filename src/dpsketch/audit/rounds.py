"""Histograms that find names by weights, in one round or in several, and count the found keys in a second stage.

Noisy weights are not published, only which keys were found. How often keys of several weights are found says which
factors of the stated noise are possible with the stated thresholds, and whether any is. The counts' own noise is
measured on keys that are always found. Names alone tell less than the noisy weights that the proof grants an attacker:
so the promise is *restated* for the noise that was seen, by the joint δ of :mod:`dpsketch.sketches.histogram.rounds`.

A unit that is alone on its keys, first in the stream or with far more keys than count, must be shown with probability δ
at most, and one that holds a null never; a unit on keys of others may change how often they are found by e^ε, and δ.
All of these are counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dpsketch.audit.bounds import clopper_pearson
from dpsketch.audit.findings import BOTH, AuditRow, Finding, printed_promise
from dpsketch.audit.losses import bisected, kindest, noise_factors, power_of
from dpsketch.laws.rounds import WEIGHT_ONE, WeightedRounds, rounds_delta
from dpsketch.noise import RoundedGaussian
from dpsketch.sketches.histogram import Histogram

__all__ = ["ROUNDS", "Rounds"]

_EPSILON, _DELTA, _KEYS = 2.0, 0.02, 2
_HIGH, _COPIES, _HELD = range(12), 8, 200
# Weights from the last round's threshold on, in standard deviations of its noise.
_LEVELS = (-1.5, -0.5, 0.5, 1.5)
_FACTORS = np.geomspace(0.4, 2.5, 241)
_UNIT_USER = 1_000_000
_MOST_EPSILON = 60.0


@dataclass(frozen=True, slots=True)
class Rounds(AuditRow):
    """One round, or two, at one relation; the unit is a user."""

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, and restate the promise; and count how often a unit that is alone shows."""
        claim = printed_promise(self._sketch([], []).release(**self._asked(1.0)).guarantee)
        stated, found, noise, levels = self._seen(trials)
        factors = _possible(stated, levels, found, _COPIES * trials, confidence)
        assert stated.counts is not None
        counts_factor = noise_factors(stated.counts.under(stated.counts.keys), noise, confidence)[1]

        def restated(share: float) -> float:
            if factors is None:
                return math.inf  # no noise of the stated law fits what was found
            counts = counts_factor * share
            return kindest(lambda factor: _restated(stated, factor, counts, claim.delta), factors, share)

        by, power = "rates of names, noise of counts", power_of(restated, claim.epsilon)
        return [
            self.finding(("worst", "any unit"), claim, restated(1.0), by, trials, "restated", power),
            *(
                self.finding(pair, claim, lost, "rates", trials, "sampled")
                for pair, lost in self._counted(trials, confidence, claim.delta, levels[1]).items()
            ),
        ]

    def _asked(self, noise: float) -> dict[str, Any]:
        return {"epsilon": _EPSILON / noise, "delta": _DELTA, "form": self.subject.removeprefix("histogram-")}

    def _sketch(self, keys: Sequence[int | None], users: list[int]) -> Histogram:
        sketch = Histogram(unit=self.unit_of(_KEYS), key_type="int")
        sketch.update(keys, users=users)
        return sketch

    def _seen(self, trials: int) -> tuple[WeightedRounds, npt.NDArray[np.int64], npt.NDArray[np.float64], list[int]]:
        """Return the stated rounds, how often keys of each level were found, the noise of counts, and the levels."""
        stated = self._sketch([], []).release(**self._asked(self.noise)).law
        assert isinstance(stated, WeightedRounds)
        cutoff, sigma = stated.cutoffs[-1] / WEIGHT_ONE, stated.noises[-1].sigma / WEIGHT_ONE
        levels = [max(1, round(cutoff + sigma * level)) for level in _LEVELS]
        # Everybody holds one key, and gives it a weight of 1.
        held = [key for key in _HIGH for _ in range(_HELD)]
        places = {100 * (i + 1) + j: i for i in range(len(levels)) for j in range(_COPIES)}
        held += [key for key, i in places.items() for _ in range(levels[i])]
        sketch = self._sketch(held, list(range(len(held))))
        found, noise = np.zeros(len(levels), np.int64), []
        for _ in range(trials):
            made = sketch.release(**self._asked(self.noise))
            for key in made.found:
                if key in places:
                    found[places[key]] += 1
            counts = dict(zip(made.found, made.values, strict=True))
            noise.append([float(counts[key] - _HELD) for key in _HIGH])
        return stated, found, np.array(noise), levels

    def _counted(self, trials: int, confidence: float, delta: float, level: int) -> dict[tuple[str, str], float]:
        """Return what the pairs that are counted lose."""
        crowd = [key for key in _HIGH for _ in range(_HELD)]
        ours, many = range(1000, 1000 + _KEYS), range(1000, 1040)
        runs = max(100, trials // 4)

        def shown(keys: Sequence[int | None], rest: Sequence[int], *, first: bool = False) -> tuple[float, float]:
            """Return between which rates a unit's keys are shown, beside those of others."""
            held, users = [*keys, *rest], [*[_UNIT_USER] * len(keys), *range(len(rest))]
            if not first:
                held, users = held[::-1], users[::-1]
            sketch = self._sketch(held, users)
            found = sum(
                any(key >= 1000 for key in sketch.release(**self._asked(self.noise)).found) for _ in range(runs)
            )
            low, high = clopper_pearson(np.array([found]), runs, (1 - confidence) / 2)
            return float(low[0]), float(high[0])

        def too_often(rates: tuple[float, float], most: float) -> float:
            return math.inf if rates[0] > most else 0.0

        near = [key for key in ours for _ in range(level)]
        beside, without = shown(ours, near), shown([], near)
        lost = max(
            math.log(max(one[0] - delta, 1e-300) / other[1]) for one, other in ((beside, without), (without, beside))
        )
        return {
            ("alone", "a unit that is alone on its keys"): too_often(shown(ours, []), delta),
            ("first", "a unit that is alone on its keys, first"): too_often(shown(ours, crowd, first=True), delta),
            ("null", "a unit that holds a null"): too_often(shown([None], []), 0.0),
            ("colliding", "a unit on keys of others, near their threshold"): max(0.0, lost),
            ("clipped", "a unit that holds far more than the bounds let pass"): too_often(shown(many, []), delta),
        }


def _possible(
    stated: WeightedRounds, levels: list[int], found: npt.NDArray[np.int64], runs: int, confidence: float
) -> tuple[float, float] | None:
    """Return between which factors the noise of names may lie, by how often keys of each level were found in runs."""
    low, high = clopper_pearson(found, runs, (1 - confidence) / len(levels))
    fits = [
        float(factor)
        for factor in _FACTORS
        if np.all((low <= (rates := _found(stated, float(factor), levels))) & (rates <= high))
    ]
    return (min(fits), max(fits)) if fits else None


def _found(stated: WeightedRounds, factor: float, levels: list[int]) -> npt.NDArray[np.float64]:
    """Return how likely keys of so many users, of one key each, are found, for a factor of the stated noise."""
    hidden = np.ones(len(levels))
    for noise, cutoff in zip(stated.noises, stated.cutoffs, strict=True):
        hidden *= ndtr((cutoff - 0.5 - np.array(levels) * WEIGHT_ONE) / (noise.sigma * factor))
    return 1 - hidden


def _restated(stated: WeightedRounds, factor: float, counts_factor: float, delta: float) -> float:
    """Return the ε that the rounds keep at δ with so many times the noise that they state; infinite where none."""

    def holds(epsilon: float) -> bool:
        found = rounds_delta(
            tuple(RoundedGaussian(noise.sigma * factor) for noise in stated.noises),
            stated.cutoffs,
            epsilon=epsilon,
            cap=stated.cap,
            replace=stated.replaces,
            counts=stated.counts_shift / counts_factor**2,
        )
        return found <= delta

    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
        if high > _MOST_EPSILON:
            return math.inf
    return bisected(lambda epsilon: not holds(epsilon), low, high, 1e-4)


_FORMS = product(("histogram-weighted", "histogram-rounds"), BOTH[2:])
ROUNDS: dict[str, Rounds] = {row.name: row for row in (Rounds(form, *unit) for form, unit in _FORMS)}
