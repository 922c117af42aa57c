"""Kinds whose bits are flipped, under both units and both relations: what their rates say of one unit.

How often each bit is shown is counted over many releases of many keys: one half of them says which bits stand out, the
other how far. Of a sparse histogram that gives how many columns a unit of weight takes, of a bitmap how far a bit that
is set differs from one that is not; the loss follows from these rates, by the law of the mechanism, with the end of
their intervals that is kindest to it.

Of the keys that survive a threshold the noise is measured on frequent ones, for which the loss is that of their counts;
one that a unit alone has may survive with probability δ: more often refutes the claim at any ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dpsketch.audit.bounds import clopper_pearson
from dpsketch.audit.findings import BOTH, Claim, Finding, Row, printed_promise
from dpsketch.audit.losses import noise_factors, power_of
from dpsketch.privacy import Unit
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.sparse import SparseHistogram

__all__ = ["FLIPS", "Flipped", "bits_of"]

# One record: its key (None for a null), and whose it is.
Stream = list[tuple[int | None, str]]

_KEYS, _ALPHA, _FLIP = 2, 2, 0.25
_EPSILON = {"sparse": 2.0, "survivors": 2.0, "bitmap": 1.5}
# So many keys show what one does; so many units hold so many keys each, far more than bounds let pass.
_SHOWN, _UNITS, _MUCH = 40, 8, 12
_DELTA, _SHARE, _HELD = 0.05, 0.5, 200
# A bit stands out from so many standard deviations on.
_STANDS_OUT = 2.0
_NULL, _CLIPPED = "a unit that holds a null", "a unit that holds far more than the bounds let pass"


def bits_of(words: Any) -> npt.NDArray[np.uint8]:
    """Return the bits of words."""
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")


@dataclass(frozen=True, slots=True)
class Flipped(Row):
    """The bits of a sparse histogram, the keys that pass its threshold, or the bits of a distinct count."""

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        claim = printed_promise(self._released(self._sketch([]), 1.0).guarantee)
        if self.subject == "survivors":
            return self._survivors(claim, trials, confidence)
        return [
            self.finding((pair, words), claim, found, "rates", trials, "law")
            for pair, (words, found) in self._bits(trials, confidence).items()
        ]

    @property
    def _unit(self) -> Unit:
        return self.unit_of(_KEYS)

    @property
    def _epsilon(self) -> float:
        return _EPSILON[self.subject] * (self._unit.max_keys if self.subject == "survivors" else 1)

    @property
    def _entries(self) -> int:
        """How many keys of a unit change: its own, and as many others where it is replaced."""
        return self._unit.max_keys * (2 if self.replaced else 1)

    def _sketch(self, stream: Stream) -> Any:
        sketch: Any
        match self.subject:
            case "sparse":
                sketch = SparseHistogram(unit=self._unit, domain=1 << 20, max_value=3, expected_keys=_SHOWN)
            case "survivors":
                sketch = SparseHistogram(unit=self._unit, domain=1 << 20, expected_keys=4, threshold_share=_SHARE)
            case _:
                sketch = DistinctSketch(unit=self._unit, buckets=128)
        if stream:
            users = [user for _, user in stream] if self.level == "user" else None
            sketch.update([key for key, _ in stream], users=users)
        return sketch

    def _released(self, sketch: Any, noise: float) -> Any:
        if self.subject == "bitmap":
            return sketch.release_mergeable(epsilon=self._epsilon / noise)
        return sketch.release(epsilon=self._epsilon / noise, delta=_DELTA if self.subject == "survivors" else 0.0)

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
            "null": (_NULL, loss((excess(nulls)[0] - high) / _SHOWN)),
            "colliding": ("a unit with keys of others", loss((excess(twice)[0] - high) / _SHOWN)),
            "clipped": (_CLIPPED, counted * loss(low / _SHOWN)),
        }

    def _survivors(self, claim: Claim, trials: int, confidence: float) -> list[Finding]:
        frequent = range(100, 106)
        sketch, noise = self._sketch([(key, f"user {key} {i}") for key in frequent for i in range(_HELD)]), []
        for _ in range(max(40, trials // 4)):
            kept = self._released(sketch, self.noise).kept
            values = dict(zip(kept.positions.tolist(), kept.values.tolist(), strict=True))
            noise.append([values[key] - float(_HELD) for key in frequent])
        law = self._released(sketch, 1.0).law.survival.noise
        factor = noise_factors(law, np.array(noise), confidence)[1]
        step = self._entries * law.epsilon / law.sensitivity

        def loss(share: float) -> float:
            # Beside its count a key moves the bits, which have the rest of the budget.
            return float(step / max(1e-9, factor * share) + (1 - _SHARE) * self._epsilon)

        caught = power_of(loss, claim.epsilon)
        pair = "worst", "a unit with frequent keys"
        found = [self.finding(pair, claim, loss(1.0), "rates", trials, "law", caught)]
        streams: dict[tuple[str, str], Stream] = {
            ("alone", "a unit that is alone on its keys"): [(key, "ann") for key in range(self._unit.max_keys)],
            ("null", _NULL): [(None, "ann")],
        }
        if self.level == "user":
            streams["clipped", _CLIPPED] = [(key, "ann") for key in range(40)]
        for pair, stream in streams.items():
            alone = self._sketch(stream)
            shown = sum(len(self._released(alone, self.noise).kept.positions) > 0 for _ in range(trials))
            low, _ = clopper_pearson(np.array([shown]), trials, 1 - confidence)
            # Without the unit its keys are never shown, whatever ε is: all that is above δ is too much.
            seen = math.inf if float(low[0]) > claim.delta else 0.0
            found.append(self.finding(pair, claim, seen, "rates", trials, "sampled"))
        return found


FLIPS: dict[str, Flipped] = {row.name: row for kind in _EPSILON for row in (Flipped(kind, *unit) for unit in BOTH)}
