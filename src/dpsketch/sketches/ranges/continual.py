"""Ranges and quantiles over time: a stream of trees of intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch.hashing import KeyType
from dpsketch.results import Estimates
from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.portions import Portion, Window
from dpsketch.sketches.heavy.spec import DENSE, TreeNoise
from dpsketch.sketches.ranges.private import PrivateRanges, range_or_share
from dpsketch.sketches.ranges.spec import TABLES, RangeSketchSpec

__all__ = ["DailyRanges"]


class DailyRanges(Adapter):
    """A tree of intervals in a stream.

    Privacy
    -------
    One unit has at most m values of weight w a day (1 where it is a record), which may share a node at every level: a
    level kept cell by cell moves by mw in L2, a table by mw·√rows; each of the m values touches one cell of a level,
    and of a table one a row. The levels together move by the root of the sum of squares.
    """

    kind: ClassVar[str] = "ranges"

    @classmethod
    def of(cls, sketch: Any, keys: Any) -> Self:
        """Return the adapter of an empty sketch, whose domain has ends: one record must not keep a day from coming."""
        return cls(replace(super().of(sketch, keys).spec, outside="clamp"))

    def portions(self) -> tuple[Portion, ...]:
        """Return the levels, and how far one unit, added on one day, moves them."""
        spec: RangeSketchSpec = self.spec
        keys, most = spec.unit.max_keys, spec.weight_grid.max_units * spec.unit.max_keys
        dense, tables = len(spec.dense_depths), spec.tables
        found = [Portion(DENSE, (spec.dense_cells,), dense * most, dense * most**2, dense * keys, dense)]
        if tables:
            rows, shape = tables * spec.rows, (tables, spec.rows, spec.width)
            found.append(Portion(TABLES, shape, rows * most, rows * most**2, rows * keys, tables, signed=True))
        return tuple(found)

    def counted(self, today: Any) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact levels of a day. Sensitive."""
        return {DENSE: today._dense_levels(), TABLES: today._tables}

    def release(self, window: Window) -> PrivateRanges:
        """Return the release of a window."""
        spec: RangeSketchSpec = self.spec
        dense = window.laws[DENSE]
        table = window.laws.get(TABLES, dense)
        tables = window.tables.get(TABLES, np.zeros((spec.tables, spec.rows, spec.width)))
        noise = TreeNoise(total=dense, dense=dense, inner=table, leaf=table)
        levels = window.tables[DENSE]
        return PrivateRanges(spec, levels, tables, noise, guarantee=window.guarantee, charge=window.charge)

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

    def words(self, asked: Any) -> str:
        """Return a question in words, for a picture."""
        return f"{asked[0]} to {asked[1]}" if isinstance(asked, tuple) else f"{asked:.4g} quantile"

    def change(self, changed: Any, later: Any, earlier: Any, asked: Any, confidence: float) -> Estimates:
        """Return how far a count changed, by the tree of changes, or how far a quantile did."""
        if isinstance(asked, tuple) and not self.spec.tables:  # a sketch is decoded as one of counts, not of changes
            return self.read(changed, asked, confidence)
        return self.apart(later, earlier, asked, confidence)
