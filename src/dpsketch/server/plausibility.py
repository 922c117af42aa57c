"""Shares that cannot be: what forged reports look like when they are many enough.

Nobody can tell a forged report from an honest one, since an honest one may say anything. But honest reports of n people
lead to shares between 0 and 1, up to noise of a known size, and to shares whose sum is at most what one person may
hold. An estimate that is far outside says that reports were forged, or that the bounds of the spec are wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from dpsketch.local import LocalProtocol
from dpsketch.local.protocol import OneItem
from dpsketch.results import Estimates

__all__ = ["Doubts", "doubts_of"]

_DEVIATIONS = 6.0
"""How far outside is too far: with honest reports, fewer than one estimate in 10⁸ is."""

_WORDS = (
    "Shares lie outside what honest reports can lead to, far beyond noise: reports were probably forged, "
    "or sent more than once for a person. Do not rely on these estimates."
)


@dataclass(frozen=True, slots=True)
class Doubts:
    """What cannot be: the places of such estimates in the answer, and whether the whole cannot be."""

    places: list[int]
    any: bool

    @property
    def words(self) -> str:
        """What to tell a reader; nothing where all is possible."""
        return _WORDS if self.any else ""


def doubts_of(found: Estimates, protocol: LocalProtocol) -> Doubts:
    """Look for shares that cannot be."""
    # By the lower tail: next to confidence 1 the upper one is rounded to 1, which has no quantile.
    deviations = -NormalDist().inv_cdf((1 - found.confidence) / 2)
    if len(found) == 0 or deviations == 0:  # at confidence 0 an interval says nothing of its deviation
        return Doubts([], False)
    # Joint intervals are wider than this says, so that less is flagged, never more.
    deviation = (found.high - found.low) / (2 * deviations)
    margin = _DEVIATIONS * np.maximum(deviation, 1e-12)
    outside = (found.value - margin > 1) | (found.value + margin < 0)
    most = getattr(protocol, "max_items", 1 if isinstance(protocol, OneItem) else None)
    too_much = False
    if most is not None and len(set(found.key)) == len(found):
        # The sum's deviation is at most the sum of the deviations, whatever the estimates have to do with one another.
        too_much = bool(found.value.sum() - margin.sum() > most)
    return Doubts(np.flatnonzero(outside).tolist(), bool(outside.any()) or too_much)
