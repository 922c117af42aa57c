"""Release a table of groups of records that stay on the cluster: grouping and bounding users happen there.

The driver sees sums by group, and the names that are published. The steps are those of one machine
(:mod:`dpsketch.laws.groups`), so that the two publish the same given the same noise. Only the words by which values of
single records are rounded at random follow from numbers that Spark gives to records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

from dpsketch.compound import join_parts
from dpsketch.errors import InvalidInput
from dpsketch.laws.content import pair_print
from dpsketch.laws.groups import TableContent
from dpsketch.sketches import table as sketches
from dpsketch.sketches.table import PrivateTable, TableSpec
from dpsketch.sketches.table.store import LARGEST
from dpsketch.spark.construction import run, select
from dpsketch.spark.relations import ClusterTables, refuse_other_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["records_of", "release_table"]


def release_table(frame: DataFrame, spec: TableSpec, **release: Any) -> PrivateTable:
    """Release a table of a DataFrame's records, which stay on the executors.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        The records, with the columns that the spec names; also over Spark Connect. Records with a missing group, user
        or value count for nothing. Users are whole numbers, text or bytes, and so are groups that one column names, or
        dates or booleans; other columns must be cast first.
    spec : TableSpec
        The groups, columns and unit, such as ``dps.Table(by="country", columns=[dps.count()], user="visitor").spec``.
    **release
        The budget, the public list, the ledger and all else that :meth:`dpsketch.Table.release` takes.

    Privacy
    -------
    That of :meth:`dpsketch.Table.release`. Noise is drawn on the driver, and the cluster lies inside the trust
    boundary.
    """
    if not isinstance(spec, TableSpec):
        raise InvalidInput("give the spec of a table: dps.Table(by=…, columns=[…]).spec.")
    table = _ClusterTable.from_spec(spec)
    table.records = records_of(frame, table)
    return table.release(**release)


def records_of(frame: DataFrame, table: sketches.Table) -> DataFrame:
    """Return the records that count, in columns of their own; the table learns their types."""
    spec = table.spec
    key = spec.key_columns or spec.by[0]
    chosen = select(frame, table, key=key, user=spec.user, weight=None, points=list(spec.values))
    table.update(chosen.empty)
    records = _with_groups(chosen.frame) if spec.key_columns else chosen.frame
    refuse_other_types(records, ["key", "user"])
    return _complete(records, len(spec.values))


class _ClusterTable(sketches.Table):
    """A table whose records are on a cluster."""

    records: DataFrame

    @contextmanager
    def _opened(self) -> Iterator[TableContent]:
        by_user = self._spec.unit.level == "user"
        values = "".join(f", r.v{place}" for place in range(len(self._spec.values)))
        source = self.records.persist()  # read for the keys, and for the records
        tables = ClusterTables(source.sparkSession, source=source)
        try:
            tables.make_keys("SELECT key, count(*) AS units FROM {source} GROUP BY key")
            named = f"monotonically_increasing_id() AS id, {'r.person, ' if by_user else ''}k.place{values}"
            tables.make("records", f"SELECT {named} FROM {{source}} AS r JOIN {{keys}} AS k ON r.key = k.key")
        finally:
            run(source.unpersist)
        if by_user:
            prints = pair_print("xxhash64(g.person)", "xxhash64(k.key)")
            tables.make("grouped", self._store.grouped("{records}"))
            tables.make(
                "pairs", f"SELECT g.*, {prints} AS print FROM {{grouped}} AS g JOIN {{keys}} AS k ON g.place = k.place"
            )
        yield TableContent(tables, by_user=by_user, columns=self._store.columns)


def _with_groups(frame: DataFrame) -> DataFrame:
    """Return records with their group as one text, in place of its parts."""
    parts = [name for name in frame.columns if name.startswith("part_")]
    others = [name for name in frame.columns if name not in parts]

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            key = join_parts([batch.column(name) for name in parts]).combine_chunks().cast(pa.string())
            yield pa.record_batch([key, *(batch.column(name) for name in others)], names=["key", *others])

    kinds = "".join(f", `{name}` {frame.schema[name].dataType.simpleString()}" for name in others)
    return frame.mapInArrow(join, f"key string{kinds}")


def _complete(frame: DataFrame, values: int) -> DataFrame:
    """Return the records that have a group, a user and all values, which are cut to what a store takes."""
    names = {"key": "key", "user": "person"}
    plain = frame.select(
        *(f.col(name).alias(names[name]) for name in frame.columns if name in names),
        *(f.col(f"point_{place}").alias(f"v{place}") for place in range(values)),
    ).dropna()  # nulls, and NaN
    for place in range(values):
        clipped = f.greatest(f.least(f.col(f"v{place}"), f.lit(LARGEST)), f.lit(-LARGEST))
        plain = plain.withColumn(f"v{place}", clipped)
    return plain
