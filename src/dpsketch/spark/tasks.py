"""What runs on the executors: each task makes one partial sketch, and further tasks merge these.

A partial sketch is one row of a DataFrame (:data:`PART_SCHEMA`), or the reason why there is none. Records reach a task
in fixed columns, each there only if it is needed: ``key``, ``print`` (the fingerprint of a text key, from Spark) or
``part_0``, ``part_1``, … (of a compound key); ``user``; ``weight``; ``point_0``, ``point_1``, … or ``vector``. Records
that other tasks read from files also have ``lost`` and ``failure``, in rows that hold no record but say how many were
left out, or why reading ended.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpsketch import errors, files
from dpsketch.columns import UserType, canonical, user_type_of
from dpsketch.compound import join_parts
from dpsketch.errors import DpsketchError, SourceError
from dpsketch.hashing import text_fingerprints
from dpsketch.kinds import load_sensitive
from dpsketch.local import Collector
from dpsketch.local.catalogue import nonprivate_protocol_from_json
from dpsketch.sketches.density.points import column_vectors
from dpsketch.sketches.feed import feed
from dpsketch.sources import Batch, Columns, open_source

__all__ = [
    "PART_SCHEMA", "Made", "columns_of", "compacting", "counting", "counting_files", "merge_parts", "merging",
    "reading_files", "receiving",
]  # fmt: skip

PART_SCHEMA = "number long, part binary, tally string, failure string"
_PART = pa.schema([("number", pa.int64()), ("part", pa.binary()), ("tally", pa.string()), ("failure", pa.string())])
# Small batches are put together: each costs something, and the cost of a moment follows the distinct keys of a batch.
_ROWS_AT_ONCE = 1 << 18
_BYTES_AT_ONCE = 1 << 25

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Made = tuple[Any, Mapping[str, int]]  # a sketch, and what the data holder is told about its records


def _reporting(work: Callable[[Iterable[pa.RecordBatch]], Made]) -> Task:
    """Return the task that does some work, and yields the partial sketch as a row; nothing if it had no records.

    A refusal of ours becomes a row too: it would be the same at every attempt, so that Spark need not try again. Any
    other error is raised without its text, which may quote a record, for Spark to try again.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        # Spark gives a task one core, and runs as many tasks as there are cores.
        os.environ.setdefault("DPSKETCH_THREADS", "1")
        row, wrong = {}, ""
        try:
            sketch, tally = work(batches)
            row = {"part": pack(sketch), "tally": json.dumps(tally)} if any(tally.values()) else {}
        except DpsketchError as refusal:
            row = {"failure": _described(refusal)}
        except Exception as error:
            wrong = type(error).__name__
        if wrong:
            raise _withheld(wrong)
        if row:
            context = TaskContext.get()
            number = 0 if context is None else context.partitionId()
            yield pa.RecordBatch.from_pylist([{"number": number, **row}], schema=_PART)

    return task


def _withheld(kind: str) -> RuntimeError:
    return RuntimeError(f"a task of dpsketch failed ({kind}); its text is withheld, since it may quote a record.")


def _described(refusal: DpsketchError) -> str:
    return f"{type(refusal).__name__}: {refusal}"


def _failure_of(text: str) -> DpsketchError:
    """Rebuild the refusal that a task described."""
    name, _, message = text.partition(": ")
    kind = getattr(errors, name) if name in errors.__all__ else SourceError
    refusal: DpsketchError = kind(message)
    return refusal


def pack(sketch: Any) -> bytes:
    """Return a partial sketch, or a collector, as bytes."""
    if isinstance(sketch, Collector):
        return files.encode(sketch.to_document())
    data: bytes = sketch.to_sensitive_bytes()
    return data


def unpack(data: bytes) -> Any:
    """Rebuild a partial sketch, or a collector, from :func:`pack`."""
    document = files.decode(data, allow_sensitive=True)
    return load_sensitive(data) if document.sensitive else Collector.from_document(document)


def merging(*, disjoint_users: bool) -> Task:
    """Return the task that merges all the partial sketches it is given into one."""
    return _reporting(lambda batches: merge_parts(batches, disjoint_users=disjoint_users))


def merge_parts(batches: Iterable[pa.RecordBatch], *, disjoint_users: bool) -> Made:
    """Merge the partial sketches in rows, one in memory beside the sum; the sketch is None if there are none."""
    stated = {"disjoint_users": True} if disjoint_users else {}
    tally: Counter[str] = Counter()
    merged: Any = None
    for row in (row for batch in batches for row in batch.to_pylist()):
        if row["failure"] is not None:
            raise _failure_of(row["failure"])
        tally.update(json.loads(row["tally"]))
        sketch = unpack(row["part"])
        if merged is None:
            merged = sketch
        else:
            merged.merge(sketch, **stated)
    return merged, tally


def counting(prototype: bytes, *, disjoint_users: bool, user_type: UserType | None = None) -> Task:
    """Return the task that counts records; where the unit is a user, they come sorted by user.

    ``user_type`` is the type that users had before they were brought into their canonical form; None if they still
    have it.
    """

    def work(batches: Iterable[pa.RecordBatch]) -> Made:
        # A partial of its own, with an id of its own: the prototype is the same for all tasks.
        sketch = unpack(prototype).empty_like()
        tally: Counter[str] = Counter()
        dim = getattr(sketch.spec, "dim", 0)
        records = (_batch(table, tally, dim, user_type) for table in _gathered(batches))
        feed(sketch, records, disjoint_users=disjoint_users)
        sketch._skipped += tally.pop("left_out", 0)
        return sketch, tally

    return _reporting(work)


def counting_files(prototype: bytes, shares: Sequence[Sequence[str]], columns: Columns) -> Task:
    """Return the task that reads and counts the files of the shares whose numbers it is given."""

    def work(batches: Iterable[pa.RecordBatch]) -> Made:
        sketch = unpack(prototype).empty_like()
        tally: Counter[str] = Counter()

        def records() -> Iterator[Batch]:
            for batch in _read(batches, shares, columns):
                tally.update(records=batch.rows + batch.skipped, skipped=batch.skipped)
                yield batch

        feed(sketch, records())
        return sketch, tally

    return _reporting(work)


def reading_files(
    shares: Sequence[Sequence[str]], columns: Columns, schema: pa.Schema, user_type: UserType | None
) -> Task:
    """Return the task that reads the files of the shares whose numbers it is given, as records of a schema."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        row: dict[str, Any] = {}
        try:
            for batch in _read(batches, shares, columns):
                if batch.rows:
                    yield _written(batch, schema, user_type)
                if batch.skipped:
                    yield pa.RecordBatch.from_pylist([{"lost": batch.skipped}], schema=schema)
        except DpsketchError as refusal:
            row = {"failure": _described(refusal)}
        except Exception as error:
            raise _withheld(type(error).__name__) from None
        if row:
            yield pa.RecordBatch.from_pylist([row], schema=schema)

    return task


def receiving(protocol: dict[str, Any]) -> Task:
    """Return the task that collects local reports; of one identifier, only the first report counts."""

    def work(batches: Iterable[pa.RecordBatch]) -> Made:
        collector = nonprivate_protocol_from_json(protocol).collector()
        received = collector.receive(message for batch in batches for message in batch.column(0).to_pylist())
        return collector, {name: getattr(received, name) for name in type(received).__slots__}

    return _reporting(work)


def compacting(protocol: dict[str, Any]) -> Task:
    """Return the task that turns reports in JSON into compact ones, by whose bytes they can be told apart.

    What is malformed, or of another spec, becomes something that is so too.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        form = nonprivate_protocol_from_json(protocol).form
        foreign = form.head[:1] + bytes(255 - byte for byte in form.head[1:])
        for batch in batches:
            parsed = form.parse(batch.column(0).to_pylist())
            whole = form.to_bytes(parsed.columns)
            messages = [whole[start : start + form.size] for start in range(0, len(whole), form.size)]
            messages += [foreign] * parsed.other_spec + [b""] * parsed.malformed
            yield pa.record_batch([pa.array(messages, pa.binary())], names=["report"])

    return task


def _read(numbers: Iterable[pa.RecordBatch], shares: Sequence[Sequence[str]], columns: Columns) -> Iterator[Batch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from open_source(shares[number], columns)


def columns_of(batch: Batch) -> dict[str, pa.Array]:
    """Return the records of a file by the names of their fixed columns."""
    held = {"key": batch.key, "user": batch.user, "weight": batch.weight}
    held |= {f"point_{i}": point for i, point in enumerate(batch.points)}
    return {name: column for name, column in held.items() if column is not None}


def _written(batch: Batch, schema: pa.Schema, user_type: UserType | None) -> pa.RecordBatch:
    found = {name: column for name, column in columns_of(batch).items() if not pa.types.is_null(column.type)}
    mixed = any(schema.field(name).type != column.type for name, column in found.items())
    if mixed or ("user" in found and batch.user_type != user_type):
        raise SourceError(
            "the keys or users are whole numbers in some of the files and text or another type in others. Say "
            "key_type='int' or key_type='text' (user_type= for users) to read all alike, or convert them to one type."
        )
    columns = [found.get(field.name, pa.nulls(batch.rows, field.type)) for field in schema]
    return pa.record_batch(columns, schema=schema)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, rows, size = [], 0, 0
    if rows:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def _batch(table: pa.RecordBatch, tally: Counter[str], dim: int, user_type: UserType | None) -> Batch:
    """Read records in their fixed columns, and count them; vectors have ``dim`` coordinates.

    Records without a user, who would be taken for one, or without a weight are left out and counted.
    """
    if "failure" in table.schema.names:
        if failures := table.column("failure").drop_null().to_pylist():
            raise _failure_of(failures[0])
        lost = int(pc.sum(table.column("lost")).as_py() or 0)
        table = table.filter(table.column("lost").is_null())
        tally.update(records=lost, skipped=lost)
    rows = table.num_rows
    held: dict[str, Any] = dict(zip(table.schema.names, table.columns, strict=True))
    if "user" in held:
        user_type = user_type or user_type_of(held["user"].type)
        held["user"] = canonical(held["user"])
    for name in ("user", "weight"):
        if name in held and held[name].null_count:
            kept = held[name].is_valid()
            held = {each: column.filter(kept) for each, column in held.items()}
            rows = len(held[name])
    tally.update(records=table.num_rows, left_out=table.num_rows - rows)
    key = held.get("key")
    if "print" in held:
        key = text_fingerprints(held["print"])
    if "part_0" in held:
        parts = [column for name, column in held.items() if name.startswith("part_")]
        key = join_parts(parts).combine_chunks()
    points = tuple(column for name, column in held.items() if name.startswith("point_"))
    if "vector" in held:
        points = tuple(map(pa.array, column_vectors(held["vector"], dim).T))
    return Batch(key, held.get("user"), held.get("weight"), points, rows, user_type=user_type)
