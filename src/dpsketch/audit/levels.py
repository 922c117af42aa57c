"""Frequency moments by the law of their estimate, with and without a public total, under both units and relations.

The published scale is that of the moment and its floor together, times a variate whose law is the same for all streams.
So a stream of a known moment, far above any floor, shows that variate; beside it, a stream that has the least
moment that the public total allows shows how high floor and moment together stand. One unit more raises them by what it
adds to the moment, by definition. The loss is that of two such scales, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from dpsketch import accounting
from dpsketch.arrays import Floats
from dpsketch.audit.laws import power_of
from dpsketch.audit.mechanism import Claim, Finding, printed_promise
from dpsketch.audit.rows import Row
from dpsketch.privacy import MomentCost, Neighbours, Unit
from dpsketch.sketches.moment import MomentSketch

__all__ = ["LEVELS", "Levelled"]

Level = Literal["record", "user"]

_KEYS, _WEIGHT, _SIZE = 2, 3.0, 10
# So many records has the stream that shows the variate.
_MANY = 4000
_EPSILON = {0.5: 6.0, 1.0: 5.0}
_DELTA = {0.5: 1e-2, 1.0: 0.0}


@dataclass(frozen=True, slots=True)
class Levelled(Row):
    """One moment at one unit and relation.

    Attributes
    ----------
    p : float
        The exponent: 0.5 with δ > 0, or 1 with δ = 0.
    total : float
        The public total; 0 for none.
    """

    p: float
    total: float

    @property
    def subject(self) -> str:
        """What is released."""
        return f"moment-{self.p:g}{'-total' if self.total else ''}"

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, most of them of two streams that say how high it stands, and bound ε from below."""
        claim = Claim(
            *printed_promise(self._sketch(0, 0).release(epsilon=_EPSILON[self.p], delta=_DELTA[self.p]).guarantee)
        )
        runs, few, others = max(30, trials * 3 // 8), max(30, trials // 8), int(self.total > 0)
        keys = _KEYS if self.level == "user" else 1
        far, floor = self._logs(_MANY, 0, runs)
        near, _ = self._logs(others, 0, runs)
        # The stream of many shows the variate, up to its own floor, which is small beside it.
        top = math.log(math.pow(_MANY * _WEIGHT, self.p) + floor)
        _, level = _heights(near, far, top, confidence)
        least, _ = _heights(self._logs(others, 20 * keys, few)[0], far, top, confidence)
        empty, _ = _heights(self._logs(others, 0, few, nulls=20)[0], far, top, confidence)
        added = keys * math.pow(_WEIGHT, self.p)

        # A key of somebody else's, of the weight that the unit has, or of all of the public total.
        before = self.total or _WEIGHT
        beside = keys * (math.pow(before + _WEIGHT, self.p) - math.pow(before, self.p))
        under = level if self.total else level + keys * math.pow(before, self.p)

        def loss(share: float) -> float:
            return _loss(self.p, 1 + added / (level * share), claim.delta)

        def loss_beside(share: float) -> float:
            return _loss(self.p, 1 + beside / (under * share), claim.delta)

        caught = power_of(loss, claim.epsilon)
        # More than a unit may add, or anything of a null.
        unbounded, noticed = least > level + added, empty > level
        pairs = {
            "worst": ("the unit that moves most", loss(1.0), caught),
            "first": ("the unit that moves most, first in the stream", math.inf if unbounded else loss(1.0), caught),
            "null": ("a unit that holds a null", math.inf if noticed else 0.0, 0.0),
            "colliding": (
                "a unit whose keys are somebody else's", loss_beside(1.0), power_of(loss_beside, claim.epsilon)
            ),
            "clipped": (
                "a unit that holds far more than the bounds let pass", math.inf if unbounded else loss(1.0), caught
            ),
        }  # fmt: skip
        return [
            Finding(f"{self.name}-{pair}", f"{words}, {self.ending}", claim, found, "level", trials, True, "law", power)
            for pair, (words, found, power) in pairs.items()
        ]

    @property
    def _unit(self) -> Unit:
        return self.unit_of(_KEYS, _WEIGHT)

    def _sketch(self, others: int, held: int, nulls: int = 0) -> MomentSketch:
        """Return a sketch of a unit with so many keys beyond bounds, and of others with one record on one key each."""
        sketch = MomentSketch(p=self.p, size=_SIZE, unit=self._unit, public_total=self.total, key_type="int")
        keys = np.concatenate(
            [5 + np.arange(held if self.level == "user" else min(held, 1)), np.ones(others, np.int64)]
        )
        # One record of the public total has the least moment that there can be.
        weights = np.where(keys == 1, self.total if others == 1 else _WEIGHT, 1000 * _WEIGHT)
        users = np.concatenate([np.full(len(keys) - others, 1 << 40), np.arange(others)])
        sketch.update(keys, weights=weights, users=users if self.level == "user" else None)
        if nulls:
            owner = [1 << 40] * nulls if self.level == "user" else None
            sketch.update([None] * nulls, weights=[_WEIGHT] * nulls, users=owner)
        return sketch

    def _logs(self, others: int, held: int, runs: int, nulls: int = 0) -> tuple[Floats, float]:
        """Return the logarithms of published scales, and the floor that was stated."""
        epsilon, delta = _EPSILON[self.p] / self.noise, _DELTA[self.p]
        made = [self._sketch(others, held, nulls).release(epsilon=epsilon, delta=delta) for _ in range(runs)]
        return np.log([release.scale for release in made]), made[0].floor


def _heights(near: Floats, far: Floats, top: float, confidence: float) -> tuple[float, float]:
    """Return between which values moment and floor of a stream lie, by its scales and those of a known one."""
    from scipy.special import ndtri

    error = math.sqrt(float(near.var() / len(near) + far.var() / len(far)))
    middle, room = float(near.mean() - far.mean()) + top, float(ndtri(confidence)) * error
    return math.exp(middle - room), math.exp(middle + room)


def _loss(p: float, ratio: float, delta: float) -> float:
    """Return ε at δ of two scales with this ratio."""
    return accounting.compose([MomentCost(p, _SIZE, ratio)], delta=delta)


def _levels() -> Iterator[Levelled]:
    levels: tuple[Level, ...] = ("record", "user")
    relations: tuple[Neighbours, ...] = ("add_remove", "replace")
    for p, total, level, relation in product(_EPSILON, (0.0, 1.0), levels, relations):
        yield Levelled(p, total, level=level, relation=relation)


LEVELS: dict[str, Levelled] = {row.name: row for row in _levels()}
