"""The sensitive RangeSketch: whole numbers come in, one release goes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch._compiled import countsketch as kernels
from dpsketch._compiled.heavy import add_units
from dpsketch.bounding import CountedUsers, bound, cut_of_records, cut_of_users
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyBatch, KeyType, fingerprint, to_arrow
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.accumulating import Accumulator
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.frames import takes_frames
from dpsketch.sketches.heavy.spec import DENSE, TOTAL
from dpsketch.sketches.permit import obtain
from dpsketch.sketches.ranges.domain import Outside
from dpsketch.sketches.ranges.levels import prefix_prints
from dpsketch.sketches.ranges.private import PrivateRanges, level_keys
from dpsketch.sketches.ranges.spec import LEVEL_BITS, TABLES, RangeSketchSpec
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.sketches.weights import checked_total, record_units

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["RangeSketch"]

# Records a block: all levels of a block are filled before the next one is read.
_BLOCK = 1 << 16

Offsets = npt.NDArray[np.uint64]
Units = npt.NDArray[np.int64]


class RangeSketch(Accumulator[RangeSketchSpec]):
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
        self._spec = spec
        self._row_keys = level_keys(spec)
        # Of the levels kept cell by cell only the lowest is counted: the others are its sums.
        self._cells = np.zeros(1 << spec.dense_depths[-1], dtype=np.int64)
        self._tables = np.zeros((spec.tables, spec.rows, spec.width), dtype=np.int64)
        self._mass = 0
        self._skipped = 0
        self._counted = CountedUsers()

    @property
    def source_key_type(self) -> KeyType | None:
        """Keys are values: whole numbers, whatever the source."""
        return "int"

    def __repr__(self) -> str:
        return f"<RangeSketch of {self._spec.bits} bits, spec {fingerprint_of(self._spec)}, sensitive>"

    @takes_frames
    def update(
        self, keys: Any, *, users: Any = None, weights: Any = None, counts: Any = None, disjoint_users: bool = False
    ) -> None:
        """Add records.

        Columns may be given by name as well, of a pandas or polars frame, an Arrow table or a DuckDB relation:
        ``update(frame, key="url", user="visitor", weight="n")``; ``count=`` names what ``counts=`` holds.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            Whole numbers. Nulls are skipped and counted in :attr:`skipped_nulls`.
        users : same, optional
            Who each record belongs to; needed where the unit is a user, refused otherwise. All records of a user must
            come in one update: the sketch remembers whom it has counted, and refuses them later.
        weights : numbers, optional
            A record's weight, rounded to the grid and clipped to ``unit.max_weight``. Default 1. Where the unit is a
            user, the weights of a user's records of one value are added up and clipped together.
        counts : whole numbers, optional
            So many equal records at once; refused where the unit is a user.
        disjoint_users : bool, optional
            State that no user of this batch is in any other batch or sketch that this one is merged with; nothing is
            then compared or remembered, and the release says that it was not checked.
        """
        column = to_arrow(keys)
        batch = fingerprint(column, "int")
        offsets = self._spec.domain.offsets(column)
        if self._spec.unit.level == "record":
            if users is not None or disjoint_users:
                raise InvalidInput("this sketch protects records: users= goes with unit=dps.per_user(max_keys=…).")
            units = record_units(self._spec.weight_grid, batch, weights, counts)
            mass = checked_total(self._mass, units, 1, len(units))
            self._begin_change()
            self._add(offsets if batch.kept is None else offsets[batch.kept], units)
            self._skipped += batch.skipped
            self._cut += cut_of_records(self._spec.weight_grid, len(batch.fingerprints), batch.kept, weights, counts)
        else:
            if users is None:
                raise InvalidInput("this sketch protects users: say users= as well, whose each record is.")
            if counts is not None:
                raise InvalidInput("counts= are records of nobody, and this sketch protects users: use weights=.")
            mass = self._add_users(offsets, batch, users, weights, disjoint_users)
        self._mass = mass

    def _add_users(self, offsets: Offsets, batch: KeyBatch, users: Any, weights: Any, disjoint_users: bool) -> int:
        grid = self._spec.weight_grid
        bounded = bound(
            users,
            batch,
            grid.one if weights is None else grid.units(weights, len(offsets)),
            max_keys=self._spec.unit.max_keys,
            max_units=grid.max_units,
            seed=self._spec.seed,
            user_type=self._counted.user_type,
        )
        counted = self._counted.extended(bounded, disjoint_users=disjoint_users)
        mass = checked_total(self._mass, bounded.units, 1, len(bounded.units))
        self._begin_change()
        self._counted = counted
        self._add(offsets[bounded.rows], bounded.units)
        self._skipped += bounded.skipped
        self._cut += cut_of_users(grid, bounded, weights)
        return mass

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

    def _check_absorb(self, other: Self) -> None:
        checked_total(self._mass, other._mass, 1, 1)

    def _absorb(self, other: Self) -> None:
        self._mass += other._mass
        self._cells += other._cells
        self._tables += other._tables

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> PrivateRanges:
        """Charge the budget, add noise to every level, and return what may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. δ > 0: rounded Gaussian noise, analytically calibrated. δ = 0: discrete Laplace noise.
        rho : float
            A zero-concentrated guarantee instead.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before any noise is drawn.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation, for all levels together: see
        :meth:`RangeSketchSpec.calibrate` for the split and :attr:`RangeSketchSpec.sensitivity` for the bounds. Ranges
        and quantiles are post-processing and cost nothing, however many are asked.
        """
        spec = self._spec
        calibrated = spec.calibrate(Budget(epsilon, delta, rho))
        permit = obtain(
            calibrated, spec.unit, self._account(ledger, dataset, part), note=f"ranges {fingerprint_of(spec)}"
        )
        dense = np.concatenate([self._cells.reshape(1 << depth, -1).sum(axis=1) for depth in spec.dense_depths])
        noisy = np.concatenate([permit.add_noise(dense[:1], TOTAL), permit.add_noise(dense[1:], DENSE)])
        tables = permit.add_noise(self._tables, TABLES)
        stated = permit.guarantee(caveat=self._counted.caveat)
        return PrivateRanges(spec, noisy, tables, spec.noise(calibrated), stated, permit.charge)

    def _to_document(self) -> files.Document:
        header: dict[str, Any] = {"spec": self._spec.to_json(), "mass": str(self._mass), "skipped": self._skipped}
        arrays: dict[str, files.Array] = {"cells": self._cells, "tables": self._tables}
        if self._spec.unit.level == "user":
            header["users"] = self._counted.to_json()
            arrays["users"] = self._counted.to_array()
        return files.Document("ranges", True, header, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        sketch = cls.from_spec(RangeSketchSpec.from_json(document.header["spec"]))
        sketch._cells[:] = integer_array(document, "cells", sketch._cells.shape)
        sketch._tables[:] = integer_array(document, "tables", sketch._tables.shape)
        sketch._mass = int(document.header["mass"])
        sketch._skipped = int(document.header["skipped"])
        if sketch._spec.unit.level == "user":
            sketch._counted = CountedUsers.from_stored(document.arrays["users"], document.header["users"])
        return sketch
