"""Histograms that publish names: by one threshold, or by rounds of weights.

**A threshold**, under both units and both relations, by exact likelihoods. Every key's outcome is "hidden", or its
noisy count. The noise is measured on keys that are always shown, together with all others of the same release and of
the one before it, and the threshold on keys near it: it is at most the least noisy count that was ever published. With
these two the loss of a pair of neighbours is that of the keys whose counts differ, which are read off releases without
noise; none of the library's own sensitivities or thresholds is used. Beside the keys that survive in a sparse histogram
its bits have the rest of the budget, and are taken to tell all of it.

**Weights**, in one round or in several, with the found keys counted in a second stage. Noisy weights are not published,
only which keys were found. How often keys of several weights are found says which factors of the stated noise are
possible with the stated thresholds, and whether any is. The counts' own noise is measured on keys that are always
found. Names alone tell less than the noisy weights that the proof grants an attacker: so the promise is *restated* for
the noise that was seen, by the joint δ of :mod:`dpsketch.laws.rounds`.

A unit that is alone on its keys, first in the stream or with far more keys than count, must be shown with probability δ
at most, and one that holds a null never; a unit on keys of others may change how often they are found by e^ε, and δ.
All of these are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dpsketch.audit import losses
from dpsketch.audit.bounds import clopper_pearson
from dpsketch.audit.findings import BOTH, AuditRow, Finding, printed_promise
from dpsketch.audit.losses import bisected, kindest, noise_factors, power_of
from dpsketch.laws.rounds import WEIGHT_ONE, WeightedRounds, rounds_delta
from dpsketch.noise import RoundedGaussian
from dpsketch.sketches.histogram import Histogram, VoteHistogram
from dpsketch.sketches.sparse import SparseHistogram
from dpsketch.truncated import Law

__all__ = ["FORMS", "NAMED", "ROUNDS", "Named", "Rounds"]

# One record: its key (None for a null), whose it is, and its weight.
Stream = list[tuple[int | None, int, float]]
Counts = npt.NDArray[np.int64]
# The counts of the keys that a pair of neighbours tells apart, on both sides.
Moved = tuple[tuple[int, int], ...]

# "histogram-others" has a Laplace threshold, and the total that tells of all other keys.
FORMS = (
    "histogram-truncated", "histogram-laplace", "histogram-gaussian", "histogram-others",
    "votes-loads", "votes-truncated", "votes-gaussian", "survivors",
)  # fmt: skip
_EPSILON, _DELTA, _KEYS = 2.0, 1e-3, 2
# Keys that are always shown, keys near the threshold, and keys that nobody has but the unit.
_HIGH, _EDGE, _NOVEL = range(12), range(20, 28), range(40, 72)
_DOMAIN = 80
_HELD, _UNIT_USER = 200, 1_000_000
# So many records more lift a vote over any threshold of a budget without end.
_LIFT = 40
_FEW = 4
# What the threshold of a sparse histogram has of its budget.
_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """What releases showed of a mechanism: the law it states, how large its noise is, and its threshold."""

    law: Law
    factors: tuple[float, float]
    cutoff: int
    total: Law | None
    total_factor: float

    def outcomes(self, one: int, other: int, factor: float, *, loads: bool) -> losses.Outcomes:
        """Return the outcomes of one key under two counts, for a factor of the noise that is stated."""
        if not loads:
            return losses.thresholded(self.law, factor, self.cutoff, (one, other))
        if min(one, other) > 2 * self.cutoff:
            # Far above the threshold a record moves one of the two loads.
            return losses.thresholded(self.law, factor, 1, (one, other))
        rates = [_difference(self.law, factor, self.cutoff - count) if count >= 1 else 0.0 for count in (one, other)]
        return np.array([1 - rates[0], rates[0]]), np.array([1 - rates[1], rates[1]])


def _difference(law: Law, factor: float, low: int) -> float:
    """Return the probability that two draws of the law differ by ``low`` or more."""
    values = np.arange(-losses.reach_of(law, factor), losses.reach_of(law, factor) + 1)
    tails = [losses.above(law, factor, low - int(value)) for value in values]
    return float(losses.chances(law, factor, values) @ tails)


def _pure(epsilon: float) -> losses.Outcomes:
    """Return two outcomes that tell all that ε allows."""
    odds = np.exp([0.0, epsilon])
    return odds / odds.sum(), odds[::-1] / odds.sum()


@dataclass(frozen=True)
class Named(AuditRow):
    """One form of release at one unit and relation: five pairs of neighbours, on the same many releases."""

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, and bound ε from below on each pair."""
        claim = printed_promise(self._release(self._sketch(self._rest()), 1.0).guarantee)
        seen = self._seen(trials, confidence)
        findings, known = [], dict[Moved, tuple[float, float]]()
        for pair, moved in self._pairs(seen, claim.delta).items():
            if moved not in known:
                loss = lru_cache(None)(partial(self._loss, seen, moved, claim.delta))
                known[moved] = loss(1.0), losses.power_of(loss, claim.epsilon)
            found, power = known[moved]
            findings.append(self.finding(pair, claim, found, "likelihood ratio", trials, "law", power))
        return findings

    @property
    def _votes(self) -> bool:
        return self.subject.startswith("votes")

    @property
    def _weight(self) -> int:
        return 2 if self.subject in ("histogram-laplace", "histogram-gaussian", "histogram-others") else 1

    @property
    def _sparse(self) -> bool:
        return self.subject == "survivors"

    @property
    def _form(self) -> dict[str, Any]:
        form = self.subject.partition("-")[2]
        return {"form": "laplace", "others": True} if form == "others" else {"form": form} if form else {}

    def _sketch(self, stream: Stream, buckets: int = 1 << 14) -> Any:
        unit, plain = self.unit_of(_KEYS, self._weight), self._votes or self._sparse
        if self._sparse:
            sketch: Any = SparseHistogram(unit=unit, domain=1 << 20, expected_keys=4, threshold_share=_SHARE)
        elif self._votes:
            sketch = VoteHistogram(unit=unit, key_type="int", max_counters=buckets)
        else:
            sketch = Histogram(unit=unit, key_type="int")
        given: dict[str, Any] = {"users": [user for _, user, _ in stream]} if self.level == "user" else {}
        if not plain:
            given["weights"] = [weight for _, _, weight in stream]
        sketch.update([key for key, _, _ in stream], **given)
        return sketch

    def _counts(self, made: Any) -> dict[int, int]:
        """Return the noisy counts that were published, by key."""
        keys, values = (made.kept.positions, made.kept.values) if self._sparse else (made.keys, made.values)
        return dict(zip(map(int, keys), map(int, values), strict=True))

    def _threshold(self, made: Any) -> Any:
        return made.mechanism if self._votes else made.law.survival if self._sparse else made.law

    def _release(self, sketch: Any, noise: float) -> Any:
        return sketch.release(epsilon=_EPSILON / noise, delta=self._delta, **self._form)

    @cached_property
    def _delta(self) -> float:
        """A δ that the threshold uses up, so that one that is lower by one is seen."""
        if self._form == {"form": "gaussian"}:
            return _DELTA  # its noise follows δ, and its threshold uses up all
        made = self._sketch([]).release(epsilon=_EPSILON, delta=_DELTA, **self._form)
        threshold = self._threshold(made)
        spent = threshold.joint_delta if self._votes else threshold.delta
        return float(f"{(spent(made.law.table.move) if self._sparse else spent) * 1.01:.3g}")

    def _rest(self, edge: int = 0) -> Stream:
        """Return everybody else: a user each, with one record of weight 1."""
        held = [key for key in _HIGH for _ in range(_HELD)] + [key for key in _EDGE for _ in range(edge)]
        return [(key, user, 1.0) for user, key in enumerate(held)]

    def _exact(self, stream: Stream) -> Counts:
        """Return the counts of all keys, published with so large a budget that nothing is added."""
        if not self._votes and not self._sparse:
            made = self._sketch(stream).release(rho=1e9, keys=list(range(_DOMAIN)))
            return np.asarray(made.values, np.int64)
        lifted: Stream = [(key, 2_000_000 + _LIFT * key + i, 1.0) for key in range(_DOMAIN) for i in range(_LIFT)]
        return np.array(self._led(self._sketch(lifted + stream), range(_DOMAIN)))

    def _seen(self, trials: int, confidence: float) -> Seen:
        """Measure noise and threshold on releases of everybody else."""
        first = self._release(self._sketch(self._rest()), self.noise)
        threshold = self._threshold(first)
        loads, others = self.subject == "votes-loads", self.subject == "histogram-others"
        exact, lowest, noise, totals = self._rest(edge=threshold.cutoff + 1), [], [], []
        sketch = self._sketch(exact)
        for _ in range(trials):
            made = self._release(sketch, self.noise)
            counts = self._counts(made)
            pairs = dict(zip(made.keys, made.pairs, strict=True)) if loads else {}
            lowest.append(min(count - int(pairs.get(key, 0)) for key, count in counts.items()))
            noise.append([float(counts[key] - _HELD) for key in _HIGH] + [float(pairs[key]) for key in _HIGH if loads])
            totals.append([float(made.rest - len(exact))] if others else [])
        law: Law = threshold.noise
        total: Law | None = threshold.total if others else None
        total_factor = 1.0 if total is None else losses.noise_factors(total, np.array(totals), confidence)[1]
        return Seen(law, losses.noise_factors(law, np.array(noise), confidence), min(lowest), total, total_factor)

    def _loss(self, seen: Seen, moved: Moved, delta: float, share: float) -> float:
        """Return ε of keys whose counts are so many, or so many, with a share of the noise that was seen."""
        loads, parts = self.subject == "votes-loads", [_pure((1 - _SHARE) * _EPSILON)] if self._sparse else []
        if seen.total is not None:
            far = 10_000
            totals = far + sum(one for one, _ in moved), far + sum(other for _, other in moved)
            parts.append(losses.thresholded(seen.total, seen.total_factor * share, 1, totals))

        def loss(factor: float) -> float:
            keys = [seen.outcomes(one, other, factor, loads=loads) for one, other in moved]
            return losses.epsilon_of([*parts, *keys], delta)

        return losses.kindest(loss, seen.factors, share) if moved else 0.0

    def _pairs(self, seen: Seen, delta: float) -> dict[tuple[str, str], Moved]:
        """Return, for each pair and what it is, the counts that differ, on both sides."""
        size, weight, rest = (_KEYS if self.level == "user" else 1), float(self._weight), self._rest()

        def holding(keys: list[int], weight: float = weight) -> Stream:
            return [(key, _UNIT_USER, weight) for key in keys]

        def moved(one: Stream, other: Stream) -> Moved:
            sides = self._exact(one), self._exact(other)
            return tuple((int(sides[0][key]), int(sides[1][key])) for key in np.flatnonzero(sides[0] != sides[1]))

        def loss(moved: Moved) -> float:
            return self._loss(seen, moved, delta, 1.0)

        null: Stream = [(None, _UNIT_USER, 1.0)]
        nothing: Stream = null if self.replaced else []
        shared, novel = list(_HIGH), list(_NOVEL)
        mixed = [key for two in zip(shared, novel, strict=False) for key in two]
        ones = [holding(keys[:size]) for keys in (shared, novel, mixed)]
        others = [holding(keys[8 : 8 + size]) for keys in (shared, novel)] if self.replaced else []
        one, other = max(
            product(ones, [nothing, *others]), key=lambda pair: loss(moved(rest + pair[0], rest + pair[1]))
        )
        much = holding(novel if self.level == "user" else novel[:1], 50 * weight if self._weight > 1 else 1.0)
        if self._votes:
            collided = self._collided(loss, size)
        else:
            beside: Stream = [*rest, *((key, 900_000 + key, 1.0) for key in novel[:size])]
            collided = moved(beside + holding(novel[:size]), beside + nothing)
        return {
            ("worst", "the unit that moves most"): moved(rest + one, rest + other),
            ("first", "the unit that moves most, first in the stream"): moved(one + rest, other + rest),
            ("null", "a unit that holds a null"): moved(rest + (one if self.replaced else []), rest + null),
            ("colliding", "a unit whose keys are those of another, or meet them in a bucket"): collided,
            ("clipped", "a unit that holds far more than the bounds let pass"): moved(rest + much, rest + nothing),
        }

    def _collided(self, loss: Callable[[Moved], float], count: int) -> Moved:
        """Return what moves where the unit's keys meet those of somebody else in a bucket.

        A unit adds to the votes of keys that lead, or takes some off by others in their buckets: by one, or by two
        where it does the one in place of the other.
        """
        leading, opposed = self._buckets(count)
        ours: Stream = [(key, _UNIT_USER, 1.0) for key in leading if self.replaced]
        theirs: Stream = [(key, _UNIT_USER, 1.0) for key in opposed]
        sides = [self._leads(leading, ours), self._leads(leading, theirs)]
        lifts = [_HELD, 0 if self.replaced else 1]
        found = [tuple((one + lift, other + lift) for one, other in zip(*sides, strict=True)) for lift in lifts]
        return max(found, key=loss)

    def _led(self, sketch: Any, keys: Iterable[int]) -> list[int]:
        """Return by how many votes keys lead beyond those that lift them."""
        asked: dict[str, Any] = {"epsilon": 200} if self._sparse else {"epsilon": 1e5, "form": "gaussian"}
        votes = self._counts(sketch.release(**asked, delta=0.5))
        return [votes.get(key, 0) - _LIFT for key in keys]  # a key that shares its bucket may be hidden

    def _leads(self, leading: list[int], held: Stream) -> list[int]:
        """Return by how many votes keys that are lifted lead in few buckets."""
        lifted: Stream = [(key, 1000 * i + j, 1.0) for i, key in enumerate(leading) for j in range(_LIFT)]
        return self._led(self._sketch(lifted + held, buckets=_FEW), leading)

    def _buckets(self, count: int) -> tuple[list[int], list[int]]:
        """Return keys in different ones of few buckets, and for each another key that takes votes off it."""
        leading: list[int] = []
        for key in range(_DOMAIN):
            if len(leading) < count and all(self._leads([other], [(key, 7000, 1.0)]) == [0] for other in leading):
                leading.append(key)
        opposed = [
            next(key for key in range(_DOMAIN) if self._leads([lead], [(key, 7000, 1.0)]) == [-1]) for lead in leading
        ]
        return leading, opposed


NAMED: dict[str, Named] = {row.name: row for form in FORMS for row in (Named(form, *unit) for unit in BOTH)}


_ROUNDS_DELTA = 0.02
_COPIES = 8
# Weights from the last round's threshold on, in standard deviations of its noise.
_LEVELS = (-1.5, -0.5, 0.5, 1.5)
_FACTORS = np.geomspace(0.4, 2.5, 241)
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
        return {"epsilon": _EPSILON / noise, "delta": _ROUNDS_DELTA, "form": self.subject.removeprefix("histogram-")}

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
