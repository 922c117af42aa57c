"""The most frequent keys of any window of days: a stream of trees of sketches."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.portions import Window
from dpsketch.sketches.heavy.private import PrivateHeavyHitters

__all__ = ["DailyHeavyHitters"]


class DailyHeavyHitters(Adapter):
    """A tree of prefixes in a stream."""

    kind: ClassVar[str] = "heavy"

    def counted(self, today: Any) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact tree of a day. Sensitive."""
        tables: dict[str, npt.NDArray[np.int64]] = today._exact()
        return tables

    def release(self, window: Window) -> PrivateHeavyHitters:
        """Return the release of a window."""
        return PrivateHeavyHitters(self.spec, window.drawn())
