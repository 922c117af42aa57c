"""The sensitive HeavyHitters sketch: records come in, one release goes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch._compiled import countsketch as kernels
from dpsketch._compiled.heavy import add_units, distinct_prefixes
from dpsketch.arrays import Integers, Words
from dpsketch.bounding import codes_of
from dpsketch.core.contributions import Cells, added, checked
from dpsketch.core.move import Move, Table
from dpsketch.hashing import dictionary_codes, fingerprint, to_arrow
from dpsketch.privacy import Unit
from dpsketch.sketches.countsketch.addition import spread
from dpsketch.sketches.heavy.keys import Keys
from dpsketch.sketches.heavy.private import PrivateHeavyHitters, level_keys
from dpsketch.sketches.heavy.spec import DENSE, INNER, LEAF, TOTAL, HeavyHittersSpec
from dpsketch.sketches.sketch import Entries, Parsed, Sketch
from dpsketch.sketches.specs import DEFAULT_SEED

__all__ = ["HeavyHitters"]

# Records a block: all levels of a block are filled before the next one is read.
_BLOCK = 1 << 16
# Of so many records equal texts are found first, if there are two a text among the first ones.
_FEWEST = 1_000
_SAMPLE = 1 << 15

Units = npt.NDArray[np.int64]


class HeavyHitters(Sketch[HeavyHittersSpec, PrivateHeavyHitters]):
    """The sensitive sketch: takes records, merges, and is released once its budget is charged.

    It stores no key, has a fixed size, and its tables add up. Where keys may be held until the release, a
    :class:`~dpsketch.Histogram` names several times as many, with smaller errors.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``.
    rows, width : int
        Size of each level's table; rows must be odd.
    key_bits : int
        Keys are integers in [0, 2^key_bits), at most 64 bits. Others are refused.
    key_bytes : int
        Keys are text of at most so many bytes of UTF-8, at most 64. Longer ones are never cut and found as something
        else: such records count in the total and in :meth:`PrivateHeavyHitters.too_long`, and nowhere else. Each byte
        is a level that wants its share of the budget, so take no more of them than the keys have.
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    grid : float, optional
        Step to which weights are rounded; 1 by default, which takes whole weights only.

    Privacy
    -------
    δ > 0: rounded Gaussian noise on every level, analytically calibrated; δ = 0: discrete Laplace noise. See
    :meth:`HeavyHittersSpec.shares` for the split among levels and :meth:`HeavyHittersSpec.tables` for the
    bounds. Search and estimates are post-processing and cost nothing.

    Examples
    --------
    >>> import dpsketch as dps
    >>> sketch = dps.HeavyHitters(unit=dps.per_record(), rows=5, width=256, key_bytes=8)
    >>> sketch.update(["tea", "milk", "rye"], counts=[5000, 2000, 3])
    >>> sketch.release(epsilon=1.0, delta=1e-6).top(threshold=1000).key
    ['tea', 'milk']
    """

    kind: ClassVar[str] = "heavy"
    spec_type: ClassVar[Any] = HeavyHittersSpec
    release_type: ClassVar[Any] = PrivateHeavyHitters

    def __init__(
        self,
        *,
        unit: Unit,
        rows: int = 7,
        width: int = 4096,
        key_bits: int | None = None,
        key_bytes: int | None = None,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
    ) -> None:
        self._start(HeavyHittersSpec(rows, width, unit, key_bits, key_bytes, seed, grid))
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: HeavyHittersSpec) -> None:
        super()._start(spec)
        self._row_keys = level_keys(spec)
        self._stated = {table.name: table for table in spec.tables()}

    @property
    def _tables(self) -> list[Integers]:
        """The tables of the sketched levels, the keys' own last."""
        return [*self._arrays.get(INNER, ()), *self._arrays[LEAF]]

    def _parse(self, records: Any) -> Parsed:
        column = to_arrow(records, self._spec.key_type)
        return Parsed(fingerprint(column, self._spec.key_type), _Read(self._spec.space.parse(column), column))

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        records, column = entries.values
        if entries.starts is not None:
            units = entries.amounts
            sums = np.add.reduceat(units, entries.starts[:-1]) if len(units) else units
            checked(self._stated[TOTAL], Cells.of(np.zeros((len(sums), 1), np.int64), sums))
            return partial(self._add_users, records, entries.starts, units)
        self._check_sample(entries)
        summed = _summed(column, entries.rows, entries.added)
        if summed is None:
            return partial(self._add_records, records, entries.added)
        return partial(self._add_records, self._spec.space.parse(summed[0]), summed[1])

    def _spread(self, entries: Entries) -> dict[str, Cells]:
        width, keys, units, records = self._spec.width, self._row_keys, entries.amounts, entries.values.keys
        levels = [
            (prefixes.prints(), units if present is None else units * present)
            for prefixes, present in self._levels(records)
        ]
        found = {
            TOTAL: Cells.of(np.zeros((len(units), 1), np.int64), units),
            DENSE: Cells.of(self._dense_cells(records)[:, np.newaxis], units),
            LEAF: spread(levels[-1:], keys[-1:], width),
        }
        return found | ({INNER: spread(levels[:-1], keys[:-1], width)} if INNER in self._stated else {})

    def _add_records(self, records: Keys, amounts: Units | int) -> None:
        units = np.atleast_1d(np.asarray(amounts, dtype=np.int64))
        for start in range(0, len(records), _BLOCK):
            places = np.arange(start, min(start + _BLOCK, len(records)))
            self._add_block(records.take(places), units if isinstance(amounts, int) else units[places])

    def _add_block(self, records: Keys, units: Units) -> None:
        """Add records to every level; ``units`` has one entry a record, or a single one for all."""
        add_units(self._arrays[DENSE], self._dense_cells(records), units)
        tables = self._tables
        for level, (prefixes, present) in enumerate(self._levels(records)):
            amounts = units
            if present is not None:
                prefixes = prefixes.take(np.flatnonzero(present))
                amounts = units if len(units) == 1 else units[present]
            prints = prefixes.prints()
            if len(amounts) == 1 and amounts[0] == 1:
                kernels.add_ones(tables[level], prints, self._row_keys[level])
            else:
                amounts = np.ascontiguousarray(np.broadcast_to(amounts, prints.shape))
                kernels.add_weighted(tables[level], prints, self._row_keys[level], amounts)

    def _add_users(self, records: Keys, starts: Integers, units: Integers) -> None:
        """Add bounded records to every level, each user once at each place of it."""
        clip, tables = self._spec.leaf.user_clip, self._tables
        edges, cells, amounts = _once_a_user(starts, self._dense_cells(records).view(np.uint64), units, None)
        added(self._arrays[DENSE], checked(self._stated[DENSE], Cells(edges, cells.view(np.int64), amounts)))
        for level, (prefixes, present) in enumerate(self._levels(records)):
            table = self._stated[LEAF] if level == len(tables) - 1 else _one_of(self._stated[INNER])
            once = _once_a_user(starts, prefixes.prints(), units, present)
            clipped = clip.add(tables[level], table, *once, self._row_keys[level])
        self._clipped += clipped

    def _dense_cells(self, records: Keys) -> npt.NDArray[np.int64]:
        space = self._spec.space
        cells = records.cells(space.dense_depth)
        fitting = records.fitting()
        if fitting is not None:
            cells[~fitting] = space.dense_cells - 1
        return cells

    def _levels(self, records: Keys) -> Iterator[tuple[Keys, npt.NDArray[np.bool_] | None]]:
        """Yield, for each table, the records' prefixes and which of them are counted there.

        A text that has ended is counted at the level where it ends, and then at the leaf only: the levels between
        would learn nothing, and it would collide with others there.
        """
        space = self._spec.space
        fitting = records.fitting()
        for depth in range(space.dense_depth + 1, space.size + 1):
            present = None if depth == space.size else records.reaching(depth - 1)
            if fitting is not None:
                present = fitting if present is None else present & fitting
            yield records.cut(depth), present

    def _exact(self) -> dict[str, Integers]:
        """Return the exact tables by name. Sensitive."""
        return {TOTAL: np.array([self._mass], np.int64), **self._arrays}


class _Read(NamedTuple):
    """A column of keys: parsed, and as it came."""

    keys: Keys
    column: pa.ChunkedArray

    def take(self, rows: Integers) -> _Read:
        """Return the keys of some rows; the column stays whole."""
        return _Read(self.keys.take(rows), self.column)


def _one_of(tables: Table) -> Table:
    """Return one of the equal tables that are kept as this one, with its share of the move, rounded down."""
    levels, *shape = tables.shape or ()
    move = tables.move
    shared = (move.l1 // levels, move.squared // levels, move.cells // levels)
    return Table(tables.name, tuple(shape), Move(*shared, move.most, move.signed))


def _once_a_user(
    starts: Integers, prints: Words, units: Integers, present: npt.NDArray[np.bool_] | None
) -> tuple[Integers, Words, Integers]:
    """Return prefixes of bounded keys, each once a user with the largest of its units, as starts, prints and units."""
    edges, kept, largest = np.empty_like(starts), np.empty_like(prints), np.empty_like(units)
    marks = np.ones(len(prints), np.bool_) if present is None else present
    distinct_prefixes(starts, prints, units, marks, edges, kept, largest)
    return edges, kept[: edges[-1]], largest[: edges[-1]]


def _summed(
    column: pa.ChunkedArray, rows: Integers | None, amounts: Units | int
) -> tuple[pa.ChunkedArray, Units] | None:
    """Return the distinct texts of a batch and the units of each; None where there are too many to gain by it.

    A text goes to as many tables as it may have bytes, so that finding its equals first saves time if it has some. The
    tables are the same: they hold sums.
    """
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    coded = pa.types.is_dictionary(column.type) and column.num_chunks == 1
    kind = column.type.value_type if coded else column.type
    if len(column) < _FEWEST or not any(is_kind(kind) for is_kind in kinds):
        return None
    if coded:  # what no row has adds nothing
        texts, codes = column.chunk(0).dictionary, dictionary_codes(column.chunk(0))
        if len(texts) > len(column) // 2:
            return None
    elif len(column.slice(0, _SAMPLE).unique()) > min(len(column), _SAMPLE) // 2:
        return None
    else:
        encoded = column.dictionary_encode()
        texts = encoded.chunk(0).dictionary
        codes = np.concatenate([codes_of(chunk.indices) for chunk in encoded.chunks])
    codes = codes if rows is None else codes[rows]
    if isinstance(amounts, int):
        return pa.chunked_array([texts]), amounts * np.bincount(codes, minlength=len(texts))
    units = np.zeros(len(texts), np.int64)
    np.add.at(units, codes, amounts)
    return pa.chunked_array([texts]), units
