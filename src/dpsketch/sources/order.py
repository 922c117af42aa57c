"""Sort records by user, in little memory, through files that only this user can open."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from dpsketch.canonical import UserType
from dpsketch.errors import SourceError
from dpsketch.lazy import arrow_compute
from dpsketch.sources.engine import connect, load
from dpsketch.sources.failures import guarded
from dpsketch.sources.scratch import private_folder
from dpsketch.sources.values import Batch

T = TypeVar("T")

# Records of so many bytes are sorted in memory: to load DuckDB takes longer.
_HELD_BYTES = 1 << 24
_SIZE = re.compile(r"[0-9]+(\.[0-9]+)? ?([kmgt]i?)?b", re.IGNORECASE)


def sort_by_user(
    batches: Iterator[Batch], batch_rows: int, memory_limit: str, temp_directory: str | None
) -> Generator[Batch, None, None]:
    """Yield the records ordered by user, then by key, compared by exact value (text by its UTF-8 bytes), nulls last.

    Few records are sorted in memory. Of more, DuckDB spills what exceeds ``memory_limit`` into a directory that is
    removed at the end, and also after an error or an interrupt. The first batch reports all records that were skipped.
    """
    records = _Records(batches)
    packed = iter(records)
    held, size = [], 0
    for batch in packed:
        held.append(batch)
        size += batch.nbytes
        if size > _HELD_BYTES:
            break
    if not held:
        if records.empty is not None:
            yield _unpack(records.empty, records.skipped, records.user_type)
        return
    first = held[0]
    names = [name for name in ("user_", "key_") if name in first.schema.names]
    alike = all(batch.schema == first.schema for batch in held)
    if size <= _HELD_BYTES and alike and _SIZE.fullmatch(memory_limit):  # what is no size is for DuckDB to refuse
        with private_folder(temp_directory):  # a directory that cannot be used is refused, however little there is
            skipped = records.skipped
        for batch in _sorted(held, names).to_batches(batch_rows):
            yield _unpack(batch, skipped, records.user_type)
            skipped = 0  # all was read before the first batch came out
        return

    def explain(error: Exception) -> SourceError:
        return SourceError(
            f"the records could not be sorted by user ({type(error).__name__}). Most likely the temporary directory is "
            f"full, or memory_limit {memory_limit!r} is too small or not a size. Give temp_directory= or memory_limit=."
        )

    def run(step: Callable[[], T]) -> T:
        """Run a step of DuckDB. What went wrong in reading comes first, as it was: DuckDB wraps and quotes it."""
        try:
            return guarded(step, explain)
        except SourceError:
            if records.failure is None:
                raise
        raise records.failure

    load()
    with private_folder(temp_directory) as folder:
        connected = run(lambda: connect(memory_limit=memory_limit, temp_directory=folder))
        with connected as connection:
            source = pa.RecordBatchReader.from_batches(first.schema, itertools.chain(held, packed))
            order = ", ".join(f"{name} ASC NULLS LAST" for name in names)
            ordered = run(lambda: connection.from_arrow(source).order(order).to_arrow_reader(batch_rows))
            reported = yielded = 0
            while (batch := run(lambda: next(ordered, None))) is not None:
                yield _unpack(batch, records.skipped - reported, records.user_type)
                reported = records.skipped  # all was read before the first batch came out
                yielded += batch.num_rows
            if yielded != records.rows:
                raise SourceError("sorting the records by user lost some of them; nothing can be built on the rest.")


def _sorted(batches: list[Any], names: list[str]) -> pa.Table:
    """Return batches as one table, ordered by some of its columns."""
    table = pa.Table.from_batches(batches).combine_chunks()
    order = arrow_compute.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    return table.take(order)


class _Records:
    """The batches as one table for DuckDB, with a memory of what was skipped and of what went wrong."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self.empty: Any = None
        self.rows = 0
        self.skipped = 0
        self.user_type: UserType | None = None  # the same in all batches that have one
        self.failure: BaseException | None = None

    def __iter__(self) -> Iterator[Any]:
        try:
            for batch in self._batches:
                table = _pack(batch)
                self.empty = table.slice(0, 0)
                self.skipped += batch.skipped
                self.user_type = self.user_type or batch.user_type
                if batch.key is not None and pa.types.is_null(batch.key.type):
                    self.skipped += batch.rows  # no key so far: the table has no type for its column yet
                elif batch.rows:
                    self.rows += batch.rows
                    yield table
        except (Exception, KeyboardInterrupt) as error:
            self.failure = error
            raise


def _pack(batch: Batch) -> Any:
    columns = {"user_": batch.user, "key_": batch.key, "weight_": batch.weight}
    columns |= {f"point_{i}": column for i, column in enumerate(batch.points)}
    held = {name: column for name, column in columns.items() if column is not None}
    return pa.record_batch(list(held.values()), names=list(held))


def _unpack(table: Any, skipped: int, user_type: UserType | None) -> Batch:
    held = dict(zip(table.schema.names, table.columns, strict=True))
    points = tuple(column for name, column in held.items() if name.startswith("point_"))
    key, user, weight = (held.get(name) for name in ("key_", "user_", "weight_"))
    return Batch(key, user, weight, points, table.num_rows, skipped, user_type=user_type)
