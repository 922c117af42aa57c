"""The sensitive CountSketch: records come in, one release goes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.arrays import Integers
from dpsketch.bounding import Cut
from dpsketch.canonical import is_canonical
from dpsketch.columns import valid_rows
from dpsketch.core.contributions import FIRST, Cells
from dpsketch.hashing import KeyType, dictionary_codes, fingerprint, row_keys, typed_column
from dpsketch.laws.shares import Share
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.countsketch.addition import SHORT, add_batch, add_column, spread
from dpsketch.sketches.countsketch.parties import release_share
from dpsketch.sketches.countsketch.private import PrivateCountSketch
from dpsketch.sketches.countsketch.spec import COUNTERS, DEFAULT_SEED, CountSketchSpec
from dpsketch.sketches.frames import RecordColumns
from dpsketch.sketches.sketch import Entries, Sketch
from dpsketch.sketches.weights import checked_total

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["CountSketch"]


class CountSketch(Sketch[CountSketchSpec, PrivateCountSketch]):
    """The sensitive sketch: takes records, merges, and is released once its budget is charged.

    It stores no key, has a fixed size, and its releases add and subtract. Where keys may be held until the release, a
    :class:`~dpsketch.Histogram` has smaller errors, since no key collides with another.

    Parameters
    ----------
    rows, width : int, optional
        Size of the table; rows must be odd.
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``.
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    grid : float, optional
        Step to which weights are rounded; 1 by default, which takes whole weights only.
    key_type : {"int", "text"}, optional
        What the keys are. If it is not given, a column's own type states it (NumPy, Arrow, typed pandas and polars
        columns). Lists have none: the release then says None, and takes the type of the keys that it is asked for.

    Examples
    --------
    >>> import dpsketch as dps
    >>> sketch = dps.CountSketch(rows=5, width=64, unit=dps.per_record())
    >>> sketch.update(["a", "b", "a"])
    >>> private = sketch.release(epsilon=1.0, delta=1e-6)
    >>> private.table.shape
    (5, 64)

    Where the unit is a user, all records of a user come in one update; nobody is counted twice.

    >>> sketch = dps.CountSketch(rows=5, width=64, unit=dps.per_user(max_keys=2))
    >>> sketch.update(["a", "b", "a"], users=["ann", "ann", "bob"])
    >>> sketch.update(["c"], users=["ann"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dpsketch.errors.InvalidInput: some users of this batch were counted before, and would count twice; ...
    """

    kind: ClassVar[str] = "counts"
    spec_type: ClassVar[Any] = CountSketchSpec
    release_type: ClassVar[Any] = PrivateCountSketch

    def __init__(
        self,
        *,
        unit: Unit,
        rows: int = 7,
        width: int = 4096,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
        key_type: KeyType | None = None,
    ) -> None:
        self._start(CountSketchSpec(rows, width, unit, seed, grid, key_type))
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: CountSketchSpec) -> None:
        super()._start(spec)
        self._row_keys = row_keys(spec.seed, spec.rows)
        (self._stated,) = spec.tables()

    @property
    def _table(self) -> Integers:
        table: Integers = self._arrays[COUNTERS]
        return table

    def _count(self, columns: RecordColumns, disjoint_users: bool) -> None:
        """Count a batch; records without weights skip the arrays of fingerprints and amounts that others need."""
        alone = columns.weights is None and columns.counts is None and self._spec.unit.level == "record"
        keys, nulls = columns.records, 0
        if alone and _repeats(keys):
            keys, counts, nulls = _tally(keys)
            columns = replace(columns, counts=counts)
        column, found, declared = typed_column(keys, self._key_type)  # once: a stream can be read once
        plain = columns.counts is None and len(column) > SHORT and not pa.types.is_dictionary(column.type)
        if not (alone and plain and self._spec.weight_grid.one == 1):
            # The column's own type, not that of the Arrow column: a list has none.
            batch = replace(fingerprint(column, self._key_type), declared=declared)
            super()._count(replace(columns, records=batch), disjoint_users)
            self._skipped += nulls
            return
        self._protects_users(columns.users, disjoint_users)
        first = fingerprint(column.slice(0, FIRST), found or self._key_type).fingerprints
        self._check_sample(Entries(first, None, 1, 1, None, None))
        kept = len(column) - column.null_count
        mass = checked_total(self._mass, 1, 1, kept)
        self._begin_change()
        self._mass = mass
        self._skipped += column.null_count
        self._note_cut(Cut(kept, 0, 0, kept, kept))
        add_column(self._table, column, self._row_keys)
        self._note_type(found or self._key_type, declared)

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        if entries.starts is not None:
            return partial(self._add_users, entries.starts, entries)
        self._check_sample(entries)
        return partial(add_batch, self._table, entries.prints, self._row_keys, entries.added)

    def _spread(self, entries: Entries) -> dict[str, Cells]:
        levels = [(entries.prints, entries.amounts)]
        return {COUNTERS: spread(levels, self._row_keys[np.newaxis], self._spec.width, entries.starts)}

    def _add_users(self, starts: Integers, entries: Entries) -> None:
        add, keys = self._spec.user_clip.add, (starts, entries.prints, entries.amounts)
        self._clipped += add(self._table, self._stated, *keys, self._row_keys)

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
        share: Share | None = None,
    ) -> PrivateCountSketch:
        """Charge the budget, add noise, and return what may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. δ > 0: rounded Gaussian noise, analytically calibrated. δ = 0: discrete Laplace noise
            at the L1 sensitivity.
        rho : float
            A zero-concentrated guarantee instead.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before any noise is drawn.
        share : Share, optional
            Add one of several parties' shares of the noise only, to be merged by ``dps.merge_releases``. What is
            stated and charged here is the guarantee of the share by itself.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation, at the L2 (δ > 0, ρ) or L1 (δ = 0)
        distance of :meth:`CountSketchSpec.tables`. Two releases of one sketch compose: each is charged.
        """
        budget, account = Budget(epsilon, delta, rho), self._account(ledger, dataset, part)
        if share is None:
            return self._release(budget, account)
        caveat = self._counted.caveat
        return release_share(self._table, self._mass, self._partials, self._spec, share, budget, account, caveat)


def _repeats(keys: Any) -> bool:
    """Say whether keys are a dictionary whose values come twice on average: each is then added once, as so many.

    Values of other types are turned into keys first, or into none: they are then counted by row, and refused alike
    however many rows there are.
    """
    coded = isinstance(keys, pa.DictionaryArray) and is_canonical(keys.type)
    return coded and 2 * len(keys.dictionary) <= len(keys) and not keys.dictionary.null_count


def _tally(keys: pa.DictionaryArray) -> tuple[pa.Array, npt.NDArray[np.int64], int]:
    """Return a dictionary's values, how many rows have each, and how many are null."""
    codes = dictionary_codes(keys)
    if keys.indices.null_count:
        codes = codes[valid_rows(keys.indices)]
    return keys.dictionary, np.bincount(codes, minlength=len(keys.dictionary)), len(keys) - len(codes)
