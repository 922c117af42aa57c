"""Release a histogram of records that stay on the cluster: grouping, bounding users and rounds happen there.

The driver sees places and sums of keys, sixteen bytes each, and the names that are published. Given the same noise the
release is the one that a histogram on one machine makes, bit for bit: which of a user's keys count follows from a seed
and from what they are (:mod:`dpsketch.laws.content`), and Spark's ``xxhash64`` is our fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types

from dpsketch.arrays import Integers
from dpsketch.errors import InvalidInput
from dpsketch.laws.content import Tables, pair_print
from dpsketch.laws.names import text_or_bytes
from dpsketch.sketches.histogram import Histogram, HistogramSpec, PrivateHistogram
from dpsketch.sketches.weights import WeightGrid, checked_total
from dpsketch.spark.construction import run, select

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["release_histogram"]


def release_histogram(
    frame: DataFrame,
    spec: HistogramSpec,
    *,
    key: str,
    user: str | None = None,
    weight: str | None = None,
    **release: Any,
) -> PrivateHistogram:
    """Release a histogram of a DataFrame's records, which stay on the executors.

    Use it where the pairs of users and keys are more than the driver holds; :func:`build` brings them there. What is
    published is the same.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        The records; also over Spark Connect.
    spec : HistogramSpec
        The unit and the grid, such as ``dps.Histogram(unit=…).spec``.
    key, user, weight : str, optional
        Columns, as for :func:`build`; keys that are floats, decimals or time stamps must be cast first.
    **release
        The budget, the ledger and all else that :meth:`dpsketch.Histogram.release` takes.

    Privacy
    -------
    That of :meth:`dpsketch.Histogram.release`; noise is drawn on the driver, and the cluster lies inside the trust
    boundary.
    """
    if not isinstance(spec, HistogramSpec) or spec.key_columns:
        raise InvalidInput("give the spec of a histogram with keys of one column: dps.Histogram(unit=…).spec.")
    if spec.unit.chosen:
        raise InvalidInput("a bound is chosen of what one machine holds: state max_keys= in place of 'auto'.")
    histogram = _ClusterHistogram.from_spec(spec)
    if (spec.unit.level == "user") != (user is not None):
        raise InvalidInput("user= names the users' column where the unit is a user, and only there.")
    chosen = select(frame, histogram, key=key, user=user, weight=weight, points=[])
    held = [field.dataType for field in chosen.frame.schema if field.name in ("key", "user")]
    if not all(isinstance(kind, types.LongType | types.StringType | types.BinaryType) for kind in held):
        raise InvalidInput(
            "keys and users that are floats, decimals or timestamps are not counted on the cluster as they are. Cast "
            "the column to a whole number or text, or bring the pairs to the driver with build()."
        )
    histogram.update(chosen.empty, **chosen.names)  # no records, but keys of a known type
    histogram.records = _with_units(chosen.frame, spec.weight_grid)
    return histogram.release(**release)


class _ClusterHistogram(Histogram):
    """A histogram whose records are on a cluster."""

    records: DataFrame

    @contextmanager
    def _opened(self) -> Iterator[Tables]:
        session, by_user = self.records.sparkSession, self._spec.unit.level == "user"
        total = session.sql("SELECT sum(CAST(units AS DECIMAL(38, 0))) FROM {records}", records=self.records)
        checked_total(0, int(run(lambda: total.collect())[0][0] or 0), 1, 1)  # before any other sum, which might wrap
        names = "person, key" if by_user else "key"
        units = f"least(sum(units), {self._spec.weight_grid.max_units})" if by_user else "sum(units)"
        grouped = session.sql(
            f"SELECT {names}, CAST({units} AS BIGINT) AS units FROM {{records}} GROUP BY {names}", records=self.records
        ).persist()
        distinct = "SELECT DISTINCT key FROM {grouped}" if by_user else "SELECT key, units FROM {grouped}"
        keys = session.sql(
            f"SELECT CAST(row_number() OVER (ORDER BY key) - 1 AS BIGINT) AS place, * FROM ({distinct})",
            grouped=grouped,
        ).persist()
        frames: dict[str, Any] = {"keys": keys}
        if by_user:
            frames["pairs"] = session.sql(
                f"SELECT person, place, units, {pair_print('xxhash64(person)', 'xxhash64(g.key)')} AS print "
                "FROM {grouped} AS g JOIN {keys} AS k ON g.key = k.key", grouped=grouped, keys=keys,
            ).persist()  # fmt: skip
        try:
            yield _ClusterTables(session, frames)
        finally:
            for frame in (*frames.values(), grouped):
                run(frame.unpersist)


class _ClusterTables:
    """The tables of a histogram as DataFrames; see :class:`~dpsketch.laws.content.Tables`."""

    def __init__(self, session: SparkSession, frames: dict[str, Any]) -> None:
        self._session = session
        self._frames = frames

    def numbers(self, query: str, **tables: dict[str, Integers]) -> Iterator[tuple[Integers, ...]]:
        given: dict[str, Any] = {
            name: self._session.createDataFrame(pa.table(columns)) for name, columns in tables.items()
        }
        # At once: by partitions it would be a job for each.
        found = run(lambda: self._session.sql(query, **self._frames, **given).toArrow())
        yield tuple(column.to_numpy() for column in found.columns)

    def summed(self, chosen: str, **tables: dict[str, Integers]) -> Iterator[tuple[Integers, ...]]:
        everybody = chosen.replace("{some}", "true")
        query = f"SELECT place, CAST(sum(units) AS BIGINT) AS units FROM ({everybody}) GROUP BY place ORDER BY place"
        return self.numbers(query, **tables)

    def find(self, names: list[Any]) -> Integers:
        found = np.full(len(names), -1, np.int64)
        kind = self._frames["keys"].schema["key"].dataType.simpleString()
        rows = [(row, _as_stored(name, kind)) for row, name in enumerate(names)]
        asked = [each for each in rows if each[1] is not None]
        if asked:
            frame = self._session.createDataFrame(asked, f"row long, key {kind}")
            query = "SELECT row, place FROM {asked} AS a JOIN {keys} AS k ON a.key = k.key"
            for row in run(lambda: self._session.sql(query, asked=frame, keys=self._frames["keys"]).collect()):
                found[row["row"]] = row["place"]
        return found

    def names(self, places: Integers) -> list[Any]:
        asked = self._session.createDataFrame(pa.table({"place": places}))
        query = "SELECT key FROM {keys} AS k SEMI JOIN {asked} AS a ON k.place = a.place ORDER BY k.place"
        rows = run(lambda: self._session.sql(query, asked=asked, keys=self._frames["keys"]).collect())
        return [text_or_bytes(bytes(row[0])) if isinstance(row[0], bytes | bytearray) else row[0] for row in rows]


def _as_stored(name: int | str | bytes, kind: str) -> int | str | bytes | bytearray | None:
    """Return a name as Spark's column of keys has it; None if no key of that type can be it."""
    if isinstance(name, int) or kind not in ("string", "binary"):
        return name if isinstance(name, int) == (kind not in ("string", "binary")) else None
    if kind == "binary":
        return bytearray(name if isinstance(name, bytes) else name.encode())
    text = text_or_bytes(name) if isinstance(name, bytes) else name
    return text if isinstance(text, str) else None


def _with_units(frame: DataFrame, grid: WeightGrid) -> DataFrame:
    """Return records with all they need, and how much each counts."""
    names = {name: "person" if name == "user" else name for name in frame.columns if name != "weight"}
    if "weight" not in frame.columns:
        counted = frame.withColumn("units", f.lit(grid.one).cast("long"))
    else:

        def weigh(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                units = grid.units(batch.column("weight"), batch.num_rows)
                columns = [batch.column(name) for name in names]
                yield pa.record_batch([*columns, pa.array(units)], names=[*names, "units"])

        kinds = ", ".join(f"`{name}` {frame.schema[name].dataType.simpleString()}" for name in names)
        counted = frame.where(f.col("weight").isNotNull()).mapInArrow(weigh, f"{kinds}, units long")
    plain = counted.select(*(f.col(name).alias(short) for name, short in names.items()), "units")
    for short in names.values():
        plain = plain.where(f.col(short).isNotNull())
    return plain.where(f.col("units") > 0)
