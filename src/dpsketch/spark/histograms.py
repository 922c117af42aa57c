"""Release a histogram of records that stay on the cluster: grouping, bounding users and rounds happen there.

The driver sees places and sums of keys, sixteen bytes each, and the names that are published. Given the same noise the
release is the one that a histogram on one machine makes, bit for bit: which of a user's keys count follows from a seed
and from what they are (:mod:`dpsketch.laws.content`), and Spark's ``xxhash64`` is our fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

from dpsketch.errors import InvalidInput
from dpsketch.laws.content import Tables, pair_print
from dpsketch.sketches.histogram import Histogram, HistogramSpec, PrivateHistogram
from dpsketch.sketches.weights import WeightGrid, checked_total
from dpsketch.spark.construction import run, select
from dpsketch.spark.relations import ClusterTables, refuse_other_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    refuse_other_types(chosen.frame, ["key", "user"])
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
        tables = ClusterTables(session, records=self.records)
        tables.make("grouped", f"SELECT {names}, CAST({units} AS BIGINT) AS units FROM {{records}} GROUP BY {names}")
        tables.make_keys("SELECT DISTINCT key FROM {grouped}" if by_user else "SELECT key, units FROM {grouped}")
        if by_user:
            prints = pair_print("xxhash64(person)", "xxhash64(g.key)")
            tables.make(
                "pairs",
                f"SELECT person, place, units, {prints} AS print FROM {{grouped}} AS g JOIN {{keys}} AS k "
                "ON g.key = k.key",
            )
        yield tables


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
