"""Kinds whose bits are flipped, under both units and both relations: what their rates say of one unit.

How often each bit is shown is counted over many releases. Of a sparse histogram that gives how many columns a unit of
weight takes, of a bitmap how far a bit that is set differs from one that is not; the loss follows from these rates, by
the law of the mechanism, with the end of their intervals that is kindest to it. A key that one unit alone has may
survive a threshold with probability δ: more often refutes the claim at any ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpsketch.audit.core import clopper_pearson
from dpsketch.audit.mechanism import Claim, Finding, printed_promise
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Neighbours, Unit, per_record, per_user
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.sparse import SparseHistogram

__all__ = ["FLIPS", "Flipped"]

Level = Literal["record", "user"]
Bits = npt.NDArray[np.uint8]
_KEYS, _ALPHA, _FLIP = 2, 2, 0.25


def _bits(words: npt.NDArray[np.uint64]) -> Bits:
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")


@dataclass(frozen=True, slots=True)
class Flipped:
    """One kind of flipped bits at one unit and relation.

    Attributes
    ----------
    kind : {"sparse", "survivors", "bitmap"}
        The bits of a sparse histogram, the keys that pass its threshold, or the bits of a distinct count.
    level, relation
        The unit.
    noise : float
        Below 1, the budget of a release is larger than the one claimed: the audit itself is tested.
    """

    kind: Literal["sparse", "survivors", "bitmap"]
    level: Level
    relation: Neighbours
    noise: float = 1.0

    @property
    def name(self) -> str:
        """What it is called."""
        relation = "replace" if self.relation == "replace" else "add"
        return f"table-{self.kind}-{self.level}-{relation}"

    def audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, and bound ε from below."""
        trials, confidence = whole_number("trials", trials), probability("confidence", confidence)
        match self.kind:
            case "sparse":
                words, claim, found = self._sparse(trials, confidence)
            case "survivors":
                words, claim, found = self._survivors(trials, confidence)
            case "bitmap":
                words, claim, found = self._bitmap(trials, confidence)
        return [Finding(f"{self.name}-worst", words, claim, found, "rates", trials, True)]

    @property
    def _unit(self) -> Unit:
        if self.level == "user":
            return per_user(_KEYS, neighbours=self.relation)
        return per_record(neighbours=self.relation)

    def _owner(self, records: int) -> list[str] | None:
        """Return whose the records are, where the unit is a user."""
        return ["ann"] * records if self.level == "user" else None

    @property
    def _entries(self) -> int:
        """How many keys of a unit change: its own, and as many others where it is replaced."""
        return self._unit.max_keys * (2 if self.relation == "replace" else 1)

    def _sparse(self, trials: int, confidence: float) -> tuple[str, Claim, float]:
        epsilon = 2.0
        built = SparseHistogram(unit=self._unit, domain=1 << 20, max_value=3, expected_keys=4)
        built.update([11], users=self._owner(1))
        claim = Claim(*printed_promise(built.release(epsilon=epsilon, delta=0).guarantee))
        rates = _rates(lambda: _bits(built.release(epsilon=epsilon / self.noise, delta=0).table), trials)
        # The bits of the one key stand out; the others are flipped zeros.
        shown = rates[rates > _FLIP + 8 * math.sqrt(_FLIP / trials)]
        least = float(np.sum(shown - _FLIP)) - _quantile(confidence) * math.sqrt(len(shown) * _FLIP / trials)
        columns = max(0.0, least) / (1 - 2 * _FLIP)
        whole = math.floor(columns)
        loss = whole * math.log1p(_ALPHA) + math.log1p(_ALPHA * (columns - whole))
        return "a unit with a key that nobody else has", claim, self._entries * loss

    def _survivors(self, trials: int, confidence: float) -> tuple[str, Claim, float]:
        epsilon, delta = 2.0 * self._unit.max_keys, 0.05
        built = SparseHistogram(unit=self._unit, domain=1 << 20, expected_keys=4, threshold_share=0.5)
        keys = list(range(self._unit.max_keys))
        built.update(keys, users=self._owner(len(keys)))
        claim = Claim(*printed_promise(built.release(epsilon=epsilon, delta=delta).guarantee))
        spent = min(0.9, delta / self.noise**4)
        shown = sum(len(built.release(epsilon=epsilon, delta=spent).kept.positions) > 0 for _ in range(trials))
        low, _ = clopper_pearson(np.array([shown]), trials, 1 - confidence)
        # Without the unit its keys are never shown, whatever ε is: all that is above δ is too much.
        return "a unit that is alone on its keys", claim, math.inf if float(low[0]) > claim.delta else 0.0

    def _bitmap(self, trials: int, confidence: float) -> tuple[str, Claim, float]:
        epsilon, built = 1.5, DistinctSketch(unit=self._unit, buckets=16)
        built.update([3], users=self._owner(1))
        claim = Claim(*printed_promise(built.release_mergeable(epsilon=epsilon).guarantee))
        rates = _rates(lambda: _bits(built.release_mergeable(epsilon=epsilon / self.noise).bitmap), trials)
        place = int(np.argmax(rates))
        room = _quantile(confidence) * math.sqrt(0.25 / trials)
        zero = float(np.delete(rates, place).mean())
        one = max(zero, float(rates[place]) - room)
        loss = math.log(one / zero)
        if self.relation == "replace":
            loss += max(0.0, math.log((1 - zero) / (1 - one)))
        return "a unit with keys that nobody else has", claim, self._unit.max_keys * loss


def _rates(run: Callable[[], Bits], trials: int) -> npt.NDArray[np.float64]:
    total: npt.NDArray[Any] = run().astype(np.int64)
    for _ in range(trials - 1):
        total += run()
    rates: npt.NDArray[np.float64] = total / trials
    return rates


def _quantile(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(confidence))


_RELATIONS: tuple[Neighbours, ...] = ("add_remove", "replace")
_KINDS: tuple[Literal["sparse", "survivors", "bitmap"], ...] = ("sparse", "survivors", "bitmap")
_LEVELS: tuple[Level, ...] = ("record", "user")

FLIPS: dict[str, Flipped] = {
    row.name: row for row in (Flipped(kind, level, each) for kind in _KINDS for level in _LEVELS for each in _RELATIONS)
}
