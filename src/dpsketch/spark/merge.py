"""Merge partial sketches in a tree on the executors, so that only one reaches the driver; a few small ones, there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions

from dpsketch.errors import DpsketchError, SourceError
from dpsketch.spark.parts import PART_SCHEMA, TaskPart, failure_of, merge_parts, merging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["merged", "run", "settings"]

T = TypeVar("T")

_MOST_PARTS = 16
_MOST_BYTES = 1 << 28
# What is merged on the driver: to send it there takes less than a stage of its own.
_SMALL_PART = 1 << 20

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
) -> TaskPart | None:
    """Run the tasks that make parts, and merge what they return; None if no task had a record.

    Up to 16 parts of at most 256 MB together are merged in one task, until one is left; up to 16 of at most 1 MB each,
    on the driver. Unless a ``count`` known beforehand says that there are more, parts are kept where they were made
    until the driver has learnt how many there are, and how large.

    Of a task that Spark runs twice, because it failed, was slow or lost its machine, one run's row is used: a row is
    part of a partition, and Spark takes each partition from one run. Nothing is added up outside those rows.

    Where sketches depend on the order in which they are merged (``in_order``), all parts come to the driver, which
    merges them by the numbers of their partitions: a tree's shape depends on how many parts there are.
    """
    if in_order:
        rows = run(lambda: parts.collect())
        _refuse_failures(rows)
        ordered = sorted(rows, key=lambda row: int(row["number"]))
        return _merged_here(ordered, disjoint_users)
    if count is not None and count > _MOST_PARTS:
        return _only(run(lambda: _tree(parts, count, _MOST_PARTS, disjoint_users).collect()))
    return _merge_kept(parts, width, disjoint_users)


def _merge_kept(parts: DataFrame, width: int | None, disjoint_users: bool) -> TaskPart | None:
    # At most 16 small parts travel, however many there are.
    few = (functions.col("number") < _MOST_PARTS) & (functions.length("part") <= _SMALL_PART)
    small = [functions.when(few, functions.col(name)).alias(name) for name in ("part", "tally")]
    try:
        with settings(parts.sparkSession, width):
            run(lambda: parts.persist())
            size = functions.length("part").alias("size")
            rows = run(lambda: parts.select("number", size, "failure", *small).collect())
        _refuse_failures(rows)
        if all(row["part"] is not None for row in rows):
            return _merged_here(rows, disjoint_users)
        fan_in = max(2, min(_MOST_PARTS, _MOST_BYTES // max(row["size"] for row in rows)))
        return _only(run(lambda: _tree(parts, len(rows), fan_in, disjoint_users).collect()))
    finally:
        run(lambda: parts.unpersist())


def _merged_here(rows: list[Row], disjoint_users: bool) -> TaskPart | None:
    """Merge parts on the driver; an error that is not ours has its text withheld, as on the executors."""
    return run(lambda: merge_parts(map(_part, rows), disjoint_users=disjoint_users))


def _only(rows: list[Row]) -> TaskPart | None:
    _refuse_failures(rows)
    return _part(rows[0]) if rows else None


def _part(row: Row) -> TaskPart:
    return TaskPart(bytes(row["part"]), json.loads(row["tally"]))


def _refuse_failures(rows: list[Row]) -> None:
    failures = sorted((row["number"], row["failure"]) for row in rows if row["failure"] is not None)
    if failures:
        raise failure_of(failures[0][1])


def _tree(parts: DataFrame, count: int, fan_in: int, disjoint_users: bool) -> DataFrame:
    while count > 1:
        count = -(-count // fan_in)
        parts = parts.repartition(count, "number").mapInArrow(merging(disjoint_users=disjoint_users), PART_SCHEMA)
    return parts


@contextmanager
def settings(session: SparkSession, width: int | None) -> Iterator[None]:
    """Set a session up for the tasks that count, and restore what it had.

    Where all columns have a fixed width, records are handed over in batches of a fixed number of rows. Spark then need
    not measure a batch after each row, which takes longer than to write the row.
    """
    wanted = {_ADAPTIVE: "true"}
    if width is not None:
        wanted |= {_ROWS: str(max(1, min(_LARGE_ROWS, _LARGE_BYTES // width))), _BYTES: str(_NO_LIMIT)}
    before = {name: session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
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
