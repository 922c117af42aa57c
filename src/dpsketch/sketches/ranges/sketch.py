"""The sensitive RangeSketch: whole numbers come in, one release goes out."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch._compiled import countsketch as kernels
from dpsketch._compiled.heavy import add_units
from dpsketch.core.account import Account
from dpsketch.core.contributions import Cells
from dpsketch.errors import InvalidInput
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.countsketch.addition import spread
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.ranges.domain import Outside
from dpsketch.sketches.ranges.levels import prefix_prints
from dpsketch.sketches.ranges.ordered import Offsets, OrderedSketch, Units
from dpsketch.sketches.ranges.private import PrivateRanges, level_keys
from dpsketch.sketches.ranges.spec import DENSE, LEVEL_BITS, TABLES, TOTAL, RangeSketchSpec
from dpsketch.sketches.specs import fingerprint_of

__all__ = ["RangeSketch"]

# Records a block: all levels of a block are filled before the next one is read.
_BLOCK = 1 << 16


class RangeSketch(OrderedSketch[RangeSketchSpec, PrivateRanges]):
    """The sensitive sketch: takes whole numbers, merges, and is released once its budget is charged.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``, where a user's keys are their different values.
    bits : int
        Values are the 2^bits whole numbers from ``start`` on. Up to 16 bits every node of the tree has a counter of its
        own; beyond, levels are CountSketches. Take no more bits than the values have: each level wants its share.
    rows, width : int, optional
        Size of each sketched level's table; rows must be odd.
    start : int, optional
        The smallest value; may be negative.
    outside : {"refuse", "clamp"}, optional
        A value outside the domain has its batch refused, or counts as the nearest end. The domain must come from public
        knowledge, never from the data.
    level_bits : int, optional
        Bits from one level of the tree to the next. 2 is best for Gaussian noise, 4 for pure privacy (δ = 0).
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    grid : float, optional
        Step to which weights are rounded; 1 by default, which takes whole weights only.
    quantiles : list of numbers, optional
        All that will be asked, if it is a few quantiles known beforehand. They are far more accurate than the tree's
        then, and what is made is a :class:`~dpsketch.QuantileSketch` (which also takes ``interval_share=``).

    Privacy
    -------
    δ > 0: rounded Gaussian noise on every level, analytically calibrated; δ = 0: discrete Laplace noise. See
    :meth:`RangeSketchSpec.tables` for the bounds; every level gets the same share.
    Ranges and quantiles are post-processing and cost nothing, however many are asked.

    Examples
    --------
    >>> import dpsketch as dps
    >>> ages = RangeSketch(unit=dps.per_record(), bits=7)
    >>> ages.update(list(range(20, 60)) * 500)
    >>> private = ages.release(epsilon=1.0, delta=1e-6)
    >>> 38 <= private.quantile(0.5).value <= 40
    True
    """

    kind: ClassVar[str] = "ranges"

    def __new__(cls, *args: Any, quantiles: Any = None, **given: Any) -> Any:
        """Lead to the sketch of named quantiles where there are some."""
        if quantiles is None:
            return super().__new__(cls, **given)
        from dpsketch.sketches.quantiles import QuantileSketch

        tree = [name for name in ("rows", "width", "level_bits") if name in given]
        if tree:
            raise InvalidInput(
                f"{tree[0]}= shapes the tree that answers any question, and named quantiles have none: leave it or "
                "quantiles= out."
            )
        return QuantileSketch(*args, quantiles=quantiles, **given)

    def __init__(
        self,
        *,
        unit: Unit,
        bits: int = 32,
        rows: int = 7,
        width: int = 4096,
        start: int = 0,
        outside: Outside = "refuse",
        level_bits: int = LEVEL_BITS,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
        quantiles: Iterable[Any] | None = None,
    ) -> None:
        self._start(RangeSketchSpec(bits, unit, rows, width, start, outside, level_bits, seed, grid))
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: RangeSketchSpec) -> None:
        self._spec = spec
        self._row_keys = level_keys(spec)
        # Of the levels kept cell by cell only the lowest is counted: the others are its sums.
        self._cells = np.zeros(1 << spec.dense_depths[-1], dtype=np.int64)
        self._tables = np.zeros((spec.sketched, spec.rows, spec.width), dtype=np.int64)
        self._stated = spec.tables()

    def __repr__(self) -> str:
        return f"<RangeSketch of {self._spec.bits} bits, spec {fingerprint_of(self._spec)}, sensitive>"

    def _add(self, offsets: Offsets, units: Units) -> None:
        """Add values to every level."""
        spec = self._spec
        for start in range(0, len(offsets), _BLOCK):
            block, amounts = offsets[start : start + _BLOCK], units[start : start + _BLOCK]
            cells = block >> np.uint64(spec.bits - spec.dense_depths[-1])
            add_units(self._cells, cells.astype(np.int64), amounts)
            for table, depth, keys in zip(self._tables, spec.table_depths, self._row_keys, strict=True):
                prints = prefix_prints(block >> np.uint64(spec.bits - depth))
                kernels.add_weighted(table, prints, keys, amounts)

    def _spread(self, offsets: Offsets, units: Units, starts: Units | None) -> dict[str, Cells]:
        """Return the contributions of values to every level, of which :meth:`_add` adds the lowest dense one only."""
        spec = self._spec
        depths = np.array(spec.dense_depths[1:], np.uint64)
        nodes = (offsets[:, np.newaxis] >> (np.uint64(spec.bits) - depths)).astype(np.int64)
        above = np.cumsum(np.uint64(1) << depths) - (np.uint64(1) << depths)
        found = {
            TOTAL: Cells.of(np.zeros((len(units), 1), np.int64), units, starts),
            DENSE: Cells.of(nodes + above.astype(np.int64), units, starts),
        }
        if spec.sketched:
            levels = [(prefix_prints(offsets >> np.uint64(spec.bits - depth)), units) for depth in spec.table_depths]
            found[TABLES] = spread(levels, self._row_keys, spec.width, starts)
        return found

    def _absorb(self, other: Self) -> None:
        super()._absorb(other)
        self._cells += other._cells
        self._tables += other._tables

    def _exact(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact tables by name; levels kept cell by cell stand one after the other. Sensitive."""
        depths = self._spec.dense_depths
        levels = np.concatenate([self._cells.reshape(1 << depth, -1).sum(axis=1) for depth in depths])
        return {TOTAL: levels[:1], DENSE: levels[1:], TABLES: self._tables}

    def _release(self, budget: Budget, account: Account) -> PrivateRanges:
        spec = self._spec
        permit = self._pay(spec, spec.laws(budget), budget, account)
        return PrivateRanges(spec, permit.draw_all(self._exact(), caveat=self._counted.caveat))

    def _to_document(self) -> files.Document:
        return self._document({"cells": self._cells, "tables": self._tables})

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        sketch = cls.from_spec(RangeSketchSpec.from_json(document.header["spec"]))
        sketch._cells[:] = integer_array(document, "cells", sketch._cells.shape)
        sketch._tables[:] = integer_array(document, "tables", sketch._tables.shape)
        sketch._read_counting(document)
        return sketch


# Its arguments are those of its start, whichever sketch they lead to.
_shown: Any = RangeSketch
_shown.__signature__ = inspect.signature(RangeSketch.__init__).replace(
    parameters=list(inspect.signature(RangeSketch.__init__).parameters.values())[1:]
)
