"""A map that moves: a stream of densities."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.kernels import Jaccard
from dpsketch.results import Estimates
from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.portions import Window
from dpsketch.sketches.density.private import PrivateDensity, written_point
from dpsketch.sketches.density.spec import DensitySpec

__all__ = ["DailyDensity"]


class DailyDensity(Adapter):
    """A density in a stream: its counters and, beside them, the number of records."""

    kind: ClassVar[str] = "density"

    def __init__(self, spec: DensitySpec) -> None:
        if spec.placement != "every_row":
            raise InvalidInput("day after day a point is counted in every row: leave placement= out.")
        if spec.features != "race":
            raise InvalidInput("day after day a density counts cells: leave features= out.")
        if isinstance(spec.kernel, Jaccard):
            raise InvalidInput(
                "a density of sets is not published day after day: what its items are is known from records only, and "
                "a day without any must not differ from others."
            )
        super().__init__(spec)

    def counted(self, today: Any) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact tables of a day. Sensitive."""
        tables: dict[str, npt.NDArray[np.int64]] = today._exact()
        return tables

    def release(self, window: Window) -> PrivateDensity:
        """Return the release of a window."""
        return PrivateDensity(self.spec, window.drawn())

    def asked(self, text: str | int, key_type: KeyType | None) -> Any:
        """Return a point, as in 1.5,2."""
        return written_point(str(text), self.spec.dim)

    def change(self, changed: Any, later: Any, earlier: Any, asked: Any, confidence: float) -> Estimates:
        """Return how far a kernel sum changed; what no row has met may differ from one window to the other."""
        return self.apart(later, earlier, asked, confidence)
