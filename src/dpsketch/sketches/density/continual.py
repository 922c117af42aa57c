"""A map that moves: a stream of densities."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.kernels import Jaccard
from dpsketch.results import Estimates
from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.portions import Window
from dpsketch.sketches.density.calibration import COUNT, COUNT_SHARE, TABLE
from dpsketch.sketches.density.private import PrivateDensity, written_point
from dpsketch.sketches.density.spec import DensitySpec

__all__ = ["DailyDensity"]


class DailyDensity(Adapter):
    """A density in a stream: its counters and, beside them, the number of records.

    Privacy
    -------
    A point adds 1 to one counter of each row and to the number of records. The m points of a user may all share their
    counters: m·√rows in L2, and m for the number.
    """

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

    def shares(self) -> dict[Table, float]:
        """Return the counters and the number of records, with their shares of the budget."""
        spec: DensitySpec = self.spec
        points, rows = spec.unit.max_keys, spec.rows
        move = Move(points * rows, points**2 * rows, points * rows, points)
        table, number = Table(TABLE, (rows, spec.width), move), Table(COUNT, (1,), Move.heaped(1, points))
        return {table: 1 - COUNT_SHARE, number: COUNT_SHARE}

    def counted(self, today: Any) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact counters of a day. Sensitive."""
        return {TABLE: today._table, COUNT: np.array([today._records], np.int64)}

    def release(self, window: Window) -> PrivateDensity:
        """Return the release of a window."""
        (number,) = window.tables[COUNT].tolist()
        table, laws = window.tables[TABLE], window.laws
        drawn = self.spec, table, number, laws[TABLE], laws[COUNT]
        return PrivateDensity(*drawn, guarantee=window.guarantee, charge=window.receipt.charge)

    def asked(self, text: str | int, key_type: KeyType | None) -> Any:
        """Return a point, as in 1.5,2."""
        return written_point(str(text), self.spec.dim)

    def change(self, changed: Any, later: Any, earlier: Any, asked: Any, confidence: float) -> Estimates:
        """Return how far a kernel sum changed; what no row has met may differ from one window to the other."""
        return self.apart(later, earlier, asked, confidence)
