"""Kinds whose bits are flipped, under both units and both relations: what their rates say of one unit.

How often each bit is shown is counted over many releases of many keys: one half of them says which bits stand out, the
other how far. Of a sparse histogram that gives how many columns a unit of weight takes, of a bitmap how far a bit that
is set differs from one that is not; the loss follows from these rates, by the law of the mechanism, with the end of
their intervals that is kindest to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dpsketch.audit.findings import BOTH, AuditRow, Finding, printed_promise
from dpsketch.privacy import Unit
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.sparse import SparseHistogram

__all__ = ["FLIPS", "Flipped", "bits_of"]

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
