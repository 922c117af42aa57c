"""Frequency moments by the law of their estimate, with and without a public total, under both units and relations.

The published scale is that of the moment and its floor together, times a variate whose law is the same for all streams.
So a stream of a known moment, far above any floor, shows that variate; beside it, a stream that has the least
moment that the public total allows shows how high floor and moment together stand. One unit more raises them by what it
adds to the moment, by definition. The loss is that of two such scales, exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from dpsketch import accounting
from dpsketch.arrays import Floats
from dpsketch.audit.findings import BOTH, Attacked, AuditRow, Finding, printed_promise
from dpsketch.audit.losses import power_of
from dpsketch.privacy import MomentCost
from dpsketch.sketches.moment import MomentSketch

__all__ = ["MOMENTS", "Moments"]

_KEYS, _WEIGHT, _SIZE = 2, 3.0, 10
# Number of records in the stream that shows the variate.
_MANY = 4000
_HALF, _ONE = Attacked(epsilon=6.0, delta=1e-2), Attacked(epsilon=5.0, delta=0.0)
# The exponent, the public total (0 for none), and the budget.
_ASKED = {
    "moment-0.5": (0.5, 0.0, _HALF), "moment-0.5-total": (0.5, 1.0, _HALF),
    "moment-1": (1.0, 0.0, _ONE), "moment-1-total": (1.0, 1.0, _ONE),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moments(AuditRow):
    """One moment at one unit and relation."""

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, most of them of two streams that say how high it stands, and bound ε from below."""
        p, total, asked = _ASKED[self.subject]
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
        p, total, _ = _ASKED[self.subject]
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
        _, _, asked = _ASKED[self.subject]
        spent = Attacked(epsilon=asked["epsilon"] / self.noise, delta=asked["delta"])
        made = [self._sketch(others, held, nulls).release(**spent) for _ in range(runs)]
        return np.log([release.scale for release in made]), made[0].floor


def _heights(near: Floats, far: Floats, top: float, confidence: float) -> tuple[float, float]:
    """Return between which values moment and floor of a stream lie, by its scales and those of a known one."""
    error = math.sqrt(float(near.var() / len(near) + far.var() / len(far)))
    middle, room = float(near.mean() - far.mean()) + top, float(ndtri(confidence)) * error
    return math.exp(middle - room), math.exp(middle + room)


MOMENTS: dict[str, Moments] = {row.name: row for moment in _ASKED for row in (Moments(moment, *unit) for unit in BOTH)}
