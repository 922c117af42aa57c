"""Ranges and quantiles over time: a stream of trees of intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch.hashing import KeyType
from dpsketch.results import Estimates
from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.portions import Window
from dpsketch.sketches.ranges.private import PrivateRanges, range_or_share

__all__ = ["DailyRanges"]


class DailyRanges(Adapter):
    """A tree of intervals in a stream."""

    kind: ClassVar[str] = "ranges"

    @classmethod
    def of(cls, sketch: Any, keys: Any) -> Self:
        """Return the adapter of an empty sketch, whose domain has ends: one record must not keep a day from coming."""
        return cls(replace(super().of(sketch, keys).spec, outside="clamp"))

    def counted(self, today: Any) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact levels of a day. Sensitive."""
        tables: dict[str, npt.NDArray[np.int64]] = today._exact()
        return tables

    def release(self, window: Window) -> PrivateRanges:
        """Return the release of a window."""
        return PrivateRanges(self.spec, window.drawn())

    def asked(self, text: str | int, key_type: KeyType | None) -> Any:
        """Return a share, or a pair (low, high), as in 50% or 10:20."""
        return range_or_share(str(text))

    def read(self, release: PrivateRanges, asked: Any, confidence: float) -> Estimates:
        """Return the quantile of a share, or how many lie in a range."""
        if isinstance(asked, tuple):
            low, high = asked
            return release.ranges([low], [high], confidence=confidence)
        found = release.quantile(asked, confidence=confidence)
        value, low, high = (np.array([each], dtype=np.float64) for each in (found.value, found.low, found.high))
        return Estimates([asked], value, low, high, confidence, release.counts)

    def question_words(self, asked: Any) -> str:
        """Return a question in words, for a picture."""
        return f"{asked[0]} to {asked[1]}" if isinstance(asked, tuple) else f"{asked:.4g} quantile"

    def change(self, changed: Any, later: Any, earlier: Any, asked: Any, confidence: float) -> Estimates:
        """Return how far a count changed, by the tree of changes, or how far a quantile did."""
        if isinstance(asked, tuple) and not self.spec.sketched:  # a sketch is decoded as one of counts, not of changes
            return self.read(changed, asked, confidence)
        return self.apart(later, earlier, asked, confidence)
