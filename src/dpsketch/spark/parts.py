"""A partial sketch on its way between executors: one row of a DataFrame, or the reason why there is none."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dpsketch import errors, files
from dpsketch.errors import DpsketchError, SourceError
from dpsketch.kinds import load_sensitive
from dpsketch.local import Collector

__all__ = [
    "PART_SCHEMA",
    "Task",
    "TaskPart",
    "described",
    "failure_of",
    "merge_parts",
    "merging",
    "pack",
    "reported",
    "unpack",
    "withheld",
]

PART_SCHEMA = "number long, part binary, tally string, failure string"

_ARROW_SCHEMA = pa.schema(
    [("number", pa.int64()), ("part", pa.binary()), ("tally", pa.string()), ("failure", pa.string())]
)

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, repr=False)
class TaskPart:
    """What one task made of its records. Sensitive, but for collectors of local reports.

    Attributes
    ----------
    data : bytes
        The partial sketch.
    tally : mapping of str to int
        What the data holder is told about the records, such as how many were read.
    """

    data: bytes
    tally: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "<Part; sensitive, content not shown>"


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


def reported(work: Callable[[], TaskPart | None]) -> Iterator[pa.RecordBatch]:
    """Run a task's work, and yield its part as a row; nothing if it had no records.

    A refusal of ours becomes a row too: it would be the same at every attempt, so that Spark need not try again. Any
    other error is raised without its text, which may quote a record, for Spark to try again; the log gets its type.
    """
    # Spark gives a task one core, and runs as many tasks as there are cores.
    os.environ.setdefault("DPSKETCH_THREADS", "1")
    try:
        part = work()
    except DpsketchError as refusal:
        yield _row(None, described(refusal))
        return
    except Exception as error:
        wrong = type(error).__name__
    else:
        if part is not None:
            yield _row(part, None)
        return
    raise withheld(wrong)


def withheld(kind: str) -> RuntimeError:
    """Return the error that stands for another, of which only the type is told."""
    return RuntimeError(f"a task of dpsketch failed ({kind}); its text is withheld, since it may quote a record.")


def described(refusal: DpsketchError) -> str:
    """Return a refusal as text, for :func:`failure_of`."""
    return f"{type(refusal).__name__}: {refusal}"


def _row(part: TaskPart | None, failure: str | None) -> pa.RecordBatch:
    from pyspark import TaskContext

    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    data, tally = (None, None) if part is None else (part.data, json.dumps(dict(part.tally)))
    columns = ([number], [data], [tally], [failure])
    return pa.record_batch(
        [pa.array(column, kind.type) for column, kind in zip(columns, _ARROW_SCHEMA, strict=True)],
        schema=_ARROW_SCHEMA,
    )


def failure_of(text: str) -> DpsketchError:
    """Rebuild the refusal that a task reported."""
    name, _, message = text.partition(": ")
    kind = getattr(errors, name) if name in errors.__all__ else SourceError
    refusal: DpsketchError = kind(message)
    return refusal


def merging(*, disjoint_users: bool) -> Task:
    """Return the task that merges all the parts it is given into one."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return reported(lambda: merge_parts(_rows(batches), disjoint_users=disjoint_users))

    return task


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[TaskPart]:
    for batch in batches:
        for part, tally, failure in zip(*(batch.column(name) for name in ("part", "tally", "failure")), strict=True):
            if failure.is_valid:
                raise failure_of(failure.as_py())
            yield TaskPart(part.as_py(), json.loads(tally.as_py()))


def merge_parts(parts: Iterable[TaskPart], *, disjoint_users: bool) -> TaskPart | None:
    """Merge parts, one in memory beside the sum; None if there are none."""
    stated = {"disjoint_users": True} if disjoint_users else {}
    tally: Counter[str] = Counter()
    merged: Any = None
    for part in parts:
        tally.update(part.tally)
        sketch = unpack(part.data)
        if merged is None:
            merged = sketch
        else:
            merged.merge(sketch, **stated)
    return None if merged is None else TaskPart(pack(merged), dict(tally))
