"""What runs on the executors: from Arrow batches, or from files, to one partial sketch a task.

Between Spark and these tasks records have fixed columns, each there only if it is needed:

- ``key_int``, ``key_hash`` (a text's fingerprint, computed by Spark), ``key_text``, ``key_typed`` (of another type, see
  :mod:`dpsketch.canonical`) or ``key_set``;
- ``user_int``, ``user_text`` or ``user_`` with another user type (:mod:`dpsketch.canonical`), by exact value;
- ``weight``, and ``point_0``, ``point_1``, … for coordinates, or ``vector`` for all of them as an array;
- ``lost`` and ``failure``, on rows that hold no record but say how many were left out before, or why reading ended.

Where nobody knows beforehand whether keys, or users, are integers there are both columns, of which each row fills one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsketch.canonical import canonical
from dpsketch.errors import DpsketchError, SourceError
from dpsketch.hashing import fingerprint, text_fingerprints
from dpsketch.local.catalogue import nonprivate_protocol_from_json
from dpsketch.sketches.density.points import column_vectors
from dpsketch.sketches.feed import add_batch, feed
from dpsketch.sources import Batch, Columns, open_files
from dpsketch.sources.locations import File
from dpsketch.spark.parts import Task, TaskPart, described, failure_of, pack, reported, unpack, withheld

__all__ = [
    "compacting",
    "counting",
    "counting_files",
    "reading_files",
    "receiving",
    "records_schema",
    "spark_schema",
]

Files = Sequence[tuple[File, ...]]

# Small batches are put together: each costs something, and the cost of a moment follows the distinct keys of a batch.
_ROWS_AT_ONCE = 1 << 18
_BYTES_AT_ONCE = 1 << 25

_KEYS = ("key_int", "key_hash", "key_text", "key_typed", "key_set")
_SPARK_TYPES = {pa.int64(): "long", pa.string(): "string", pa.float64(): "double", pa.binary(): "binary"}


def counting(prototype: bytes, *, disjoint_users: bool) -> Task:
    """Return the task that counts records; where the unit is a user, they come sorted by user."""

    def work(batches: Iterator[pa.RecordBatch]) -> TaskPart | None:
        # A partial of its own, with an id of its own: the prototype is the same for all tasks.
        sketch = unpack(prototype).empty_like()
        tally: Counter[str] = Counter()
        dim = getattr(sketch.spec, "dim", 0)
        records: Iterator[Batch] = (_from_arrow(table, tally, dim) for table in _gathered(batches))
        stated = {"disjoint_users": True} if disjoint_users else {}
        if sketch.spec.unit.level == "user":
            incomplete = sketch.empty_like()
            feed(sketch, _complete(records, incomplete, disjoint_users), **stated)
            if incomplete.skipped_nulls:
                sketch.merge(incomplete, **stated)
        else:
            feed(sketch, records, **stated)
        return TaskPart(pack(sketch), dict(tally)) if tally else None

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return reported(lambda: work(batches))

    return task


def counting_files(prototype: bytes, files: Files, columns: Columns) -> Task:
    """Return the task that reads and counts the files whose places in the list it is given."""

    def work(batches: Iterator[pa.RecordBatch]) -> TaskPart | None:
        sketch = unpack(prototype).empty_like()
        tally: Counter[str] = Counter()
        feed(sketch, _read(batches, files, replace(columns, encoded=True), tally))
        return TaskPart(pack(sketch), dict(tally)) if tally else None

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return reported(lambda: work(batches))

    return task


def reading_files(files: Files, columns: Columns, schema: pa.Schema) -> Task:
    """Return the task that reads the files whose places it is given, as records of :func:`records_schema`."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in _read(batches, files, columns, Counter()):
                if batch.rows:
                    yield _to_arrow(batch, schema)
                if batch.skipped:
                    yield _filled({"lost": pa.array([batch.skipped], pa.int64())}, 1, schema)
            return
        except DpsketchError as refusal:
            failure = described(refusal)
        except Exception as error:
            raise withheld(type(error).__name__) from None
        yield _filled({"failure": pa.array([failure])}, 1, schema)

    return task


def records_schema(files: Files, columns: Columns, *, hashed: bool) -> pa.Schema:
    """Return the schema of the records of files, by a look at the first of them.

    Where that does not show whether keys, or users, are integers or text, there is a column for each. ``hashed`` says
    that the fingerprints of text keys are wanted, not the text.
    """
    batches = open_files(files[0], columns)
    first = next(batches, None)
    batches.close()
    fields: list[tuple[str, pa.DataType]] = [("lost", pa.int64()), ("failure", pa.string())]
    for role, wanted, text in (
        ("key", columns.key, ("key_hash", pa.int64()) if hashed else ("key_text", pa.string())),
        ("user", columns.user, ("user_text", pa.string())),
    ):
        kind = None if first is None or wanted is None else getattr(first, role).type
        unknown = kind is None or pa.types.is_null(kind)
        if role == "user" and first is not None and not unknown:
            fields.append((f"user_{first.user_type}", kind))
            continue
        if wanted is not None and (unknown or pa.types.is_integer(kind)):
            fields.append((f"{role}_int", pa.int64()))
        if wanted is not None and (unknown or not pa.types.is_integer(kind)):
            fields.append(text)
    if columns.weight is not None:
        fields.append(("weight", pa.float64()))
    return pa.schema([*fields, *((f"point_{i}", pa.float64()) for i in range(len(columns.points)))])


def spark_schema(schema: pa.Schema) -> str:
    """Return a schema of records as Spark wants it."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)


def receiving(protocol: dict[str, Any]) -> Task:
    """Return the task that collects local reports; of one identifier, only the first report counts."""

    def work(batches: Iterator[pa.RecordBatch]) -> TaskPart | None:
        collector = nonprivate_protocol_from_json(protocol).collector()
        received = collector.receive(message for batch in batches for message in batch.column(0).to_pylist())
        tally = {name: getattr(received, name) for name in ("accepted", "repeated", "other_spec", "malformed")}
        return TaskPart(pack(collector), tally) if any(tally.values()) else None

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return reported(lambda: work(batches))

    return task


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


def _read(batches: Iterable[pa.RecordBatch], files: Files, columns: Columns, tally: Counter[str]) -> Iterator[Batch]:
    for places in batches:
        for place in places.column(0).to_pylist():
            for batch in open_files(files[place], columns):
                tally.update(records=batch.rows + batch.skipped, skipped=batch.skipped)
                yield batch


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


def _from_arrow(table: pa.RecordBatch, tally: Counter[str], dim: int) -> Batch:
    """Read records in their fixed columns, and count them; vectors have ``dim`` coordinates."""
    if "lost" in table.schema.names:
        if failures := table.column("failure").drop_null().to_pylist():
            raise failure_of(failures[0])
        lost = int(pc.sum(table.column("lost")).as_py() or 0)
        table = table.filter(table.column("lost").is_null())
        tally.update(records=lost, skipped=lost)
    held = dict(zip(table.schema.names, table.columns, strict=True))
    if "key_hash" in held:
        held["key_hash"] = text_fingerprints(held["key_hash"])
    if "key_typed" in held:
        held["key_typed"] = canonical(held["key_typed"])
    tally.update(records=table.num_rows)
    key = _one_of("key", [held.get(name) for name in _KEYS])
    users = {name.removeprefix("user_"): column for name, column in held.items() if name.startswith("user_")}
    user = _one_of("user", list(users.values()))
    user_type: Any = next((name for name, column in users.items() if column is user), None)
    points = tuple(held[f"point_{i}"] for i in range(sum(name.startswith("point_") for name in held)))
    if "vector" in held:
        points = tuple(map(pa.array, column_vectors(held["vector"], dim).T))
    return Batch(key, user, held.get("weight"), points, table.num_rows, user_type=user_type)


def _one_of(role: str, columns: Sequence[pa.Array | None]) -> pa.Array | None:
    """Return the one column of a role that holds anything; a column of nulls if none does."""
    present = [column for column in columns if column is not None]
    if len(present) < 2:
        return present[0] if present else None
    filled = [column for column in present if column.null_count < len(column)]
    if len(filled) > 1:
        raise _mixed(role)
    return filled[0] if filled else pa.nulls(len(present[0]))


def _mixed(role: str) -> SourceError:
    return SourceError(
        f"the {role}s are whole numbers in some of the files and text or another type in others. "
        f"Say {role}_type='int' or {role}_type='text' to read all alike, or convert them to one type."
    )


def _complete(batches: Iterable[Batch], incomplete: Any, disjoint_users: bool) -> Iterator[Batch]:
    """Yield the records that have a user and all coordinates; a sketch of the others counts them as skipped."""
    for batch in batches:
        users = [] if batch.user is None else [batch.user.is_valid()]
        complete = reduce(pc.and_, [*users, *(pc.is_finite(point).fill_null(False) for point in batch.points)])
        if not pc.all(complete, min_count=0).as_py():
            add_batch(incomplete, _filtered(batch, pc.invert(complete)), disjoint_users=disjoint_users)
            batch = _filtered(batch, complete)
        if batch.rows:
            yield batch


def _filtered(batch: Batch, mask: pa.Array) -> Batch:
    key, user, weight, *points = (
        None if column is None else column.filter(mask)
        for column in (batch.key, batch.user, batch.weight, *batch.points)
    )
    rows = int(pc.sum(mask).as_py() or 0)
    return replace(batch, key=key, user=user, weight=weight, points=tuple(points), rows=rows)


def _to_arrow(batch: Batch, schema: pa.Schema) -> pa.RecordBatch:
    """Write records into their fixed columns."""
    held: dict[str, pa.Array] = {f"point_{i}": point for i, point in enumerate(batch.points)}
    if batch.weight is not None:
        held["weight"] = batch.weight
    for role, column in (("key", batch.key), ("user", batch.user)):
        if column is None or pa.types.is_null(column.type):
            continue
        text = f"{role}_hash" if f"{role}_hash" in schema.names else f"{role}_text"
        name = f"{role}_int" if pa.types.is_integer(column.type) else text
        name = name if role == "key" else f"user_{batch.user_type}"
        if name not in schema.names:
            raise _mixed(role)
        held[name] = _hashed(column) if name == "key_hash" else column
    return _filled(held, batch.rows, schema)


def _hashed(column: pa.Array) -> pa.Array:
    """Return the fingerprints of text as signed integers, as Spark computes them; null for null."""
    batch = fingerprint(column, "text")
    prints = np.zeros(len(column), np.int64)
    kept = slice(None) if batch.kept is None else batch.kept
    prints[kept] = batch.fingerprints.view(np.int64)
    return pa.array(prints, mask=None if batch.kept is None else ~batch.kept)


def _filled(held: dict[str, pa.Array], rows: int, schema: pa.Schema) -> pa.RecordBatch:
    columns = [held.get(field.name) for field in schema]
    whole = [
        pa.nulls(rows, field.type) if column is None else column for column, field in zip(columns, schema, strict=True)
    ]
    return pa.record_batch(whole, schema=schema)
