"""Merge partial sketches in a tree on the executors, so that only one reaches the driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions

from dpsketch.errors import DpsketchError, SourceError
from dpsketch.spark.parts import PART_SCHEMA, Part, failure_of, merge_parts, merging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["merged", "run"]

T = TypeVar("T")

_MOST_PARTS = 16
_MOST_BYTES = 1 << 28

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
# Few records need few tasks also where their parts are kept.
_ADAPTIVE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"
_NO_LIMIT = 2**31 - 1
_LARGE_ROWS = 1 << 16
_LARGE_BYTES = 1 << 26


def merged(
    parts: DataFrame,
    *,
    disjoint_users: bool,
    width: int | None = None,
    count: int | None = None,
    in_order: bool = False,
) -> Part | None:
    """Run the tasks that make parts, and merge what they return; None if no task had a record.

    Up to 16 parts of at most 256 MB together are merged in one task, until one is left. Where their ``count`` is not
    known beforehand, parts are kept where they were made until the driver has learnt how many there are, and how large.

    Of a task that Spark runs twice, because it failed, was slow or lost its machine, one run's row is used: a row is
    part of a partition, and Spark takes each partition from one run. Nothing is added up outside those rows.

    Where sketches depend on the order in which they are merged (``in_order``), all parts come to the driver, which
    merges them by the numbers of their partitions: a tree's shape depends on how many parts there are.
    """
    if in_order:
        rows = run(lambda: parts.collect())
        _refuse_failures(rows)
        ordered = sorted(rows, key=lambda row: int(row["number"]))
        return merge_parts(
            (Part(bytes(row["part"]), json.loads(row["tally"])) for row in ordered), disjoint_users=disjoint_users
        )
    if count is not None:
        last = run(lambda: _tree(parts, count, _MOST_PARTS, disjoint_users).collect())
    else:
        last = _merge_unknown(parts, width, disjoint_users)
    if not last:
        return None
    _refuse_failures(last)
    return Part(bytes(last[0]["part"]), json.loads(last[0]["tally"]))


def _merge_unknown(parts: DataFrame, width: int | None, disjoint_users: bool) -> list[Row]:
    try:
        with _set(parts.sparkSession, _settings(width)):
            run(lambda: parts.persist())
            rows = run(lambda: parts.select("number", functions.length("part").alias("size"), "failure").collect())
        _refuse_failures(rows)
        fan_in = max(2, min(_MOST_PARTS, _MOST_BYTES // max((row["size"] for row in rows), default=1)))
        return run(lambda: _tree(parts, len(rows), fan_in, disjoint_users).collect()) if rows else []
    finally:
        run(lambda: parts.unpersist())


def _refuse_failures(rows: list[Row]) -> None:
    failures = sorted((row["number"], row["failure"]) for row in rows if row["failure"] is not None)
    if failures:
        raise failure_of(failures[0][1])


def _tree(parts: DataFrame, count: int, fan_in: int, disjoint_users: bool) -> DataFrame:
    while count > 1:
        count = -(-count // fan_in)
        parts = parts.repartition(count, "number").mapInArrow(merging(disjoint_users=disjoint_users), PART_SCHEMA)
    return parts


def _settings(width: int | None) -> dict[str, str]:
    """Return Spark's settings for the tasks that count.

    Where all columns have a fixed width, records are handed over in batches of a fixed number of rows. Spark then need
    not measure a batch after each row, which takes longer than to write the row.
    """
    if width is None:
        return {_ADAPTIVE: "true"}
    rows = max(1, min(_LARGE_ROWS, _LARGE_BYTES // width))
    return {_ADAPTIVE: "true", _ROWS: str(rows), _BYTES: str(_NO_LIMIT)}


@contextmanager
def _set(session: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Change settings of a session, and restore them."""
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, former)


def run(step: Callable[[], T]) -> T:
    """Run a step of Spark; its errors, which may quote records, are replaced by a sentence that does not."""
    try:
        return step()
    except DpsketchError:
        raise
    except Exception as error:
        kind = _kind(error)
    raise SourceError(
        f"Spark could not do its part ({kind}), and nothing was counted. Its own log says more; that log may quote "
        "records, so keep it where the records are."
    )


def _kind(error: Any) -> str:
    """Name an error by its type and by Spark's name for its condition, which has no values in it."""
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    return f"{type(error).__name__}, {condition}" if condition else type(error).__name__
