"""The sensitive RangeSketch: whole numbers come in, one release goes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpsketch._compiled import countsketch as kernels
from dpsketch._compiled.heavy import add_units
from dpsketch.arrays import Integers, Words
from dpsketch.core.contributions import Cells
from dpsketch.privacy import Unit
from dpsketch.sketches.countsketch.addition import spread
from dpsketch.sketches.ranges.domain import Outside
from dpsketch.sketches.ranges.levels import prefix_prints
from dpsketch.sketches.ranges.private import PrivateRanges, level_keys
from dpsketch.sketches.ranges.spec import DENSE, LEVEL_BITS, TABLES, TOTAL, RangeSketchSpec
from dpsketch.sketches.sketch import Entries, Parsed, Sketch
from dpsketch.sketches.specs import DEFAULT_SEED

__all__ = ["RangeSketch"]

# Records a block: all levels of a block are filled before the next one is read.
_BLOCK = 1 << 16


class RangeSketch(Sketch[RangeSketchSpec, PrivateRanges]):
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
    spec_type: ClassVar[Any] = RangeSketchSpec
    release_type: ClassVar[Any] = PrivateRanges

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
    ) -> None:
        self._start(RangeSketchSpec(bits, unit, rows, width, start, outside, level_bits, seed, grid))
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: RangeSketchSpec) -> None:
        super()._start(spec)
        self._row_keys = level_keys(spec)

    def _parse(self, records: Any) -> Parsed:
        return self._spec.parse(records)

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        self._check_sample(entries)
        return partial(self._add_values, entries.values, entries.amounts)

    def _add_values(self, offsets: Words, units: Integers) -> None:
        """Add values to the lowest dense level and to every sketched level, block by block."""
        spec = self._spec
        for start in range(0, len(offsets), _BLOCK):
            block, amounts = offsets[start : start + _BLOCK], units[start : start + _BLOCK]
            cells = block >> np.uint64(spec.bits - spec.dense_depths[-1])
            add_units(self._arrays[DENSE], cells.astype(np.int64), amounts)
            for table, depth, keys in zip(self._arrays[TABLES], spec.table_depths, self._row_keys, strict=True):
                prints = prefix_prints(block >> np.uint64(spec.bits - depth))
                kernels.add_weighted(table, prints, keys, amounts)

    def _spread(self, entries: Entries) -> dict[str, Cells]:
        spec, offsets, units, starts = self._spec, entries.values, entries.amounts, entries.starts
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

    def _exact(self) -> dict[str, Integers]:
        """Return the exact tables by name; dense levels stand one after the other. Sensitive."""
        lowest = self._arrays[DENSE]
        levels = np.concatenate([lowest.reshape(1 << depth, -1).sum(axis=1) for depth in self._spec.dense_depths])
        return {TOTAL: levels[:1], DENSE: levels[1:], TABLES: self._arrays[TABLES]}
