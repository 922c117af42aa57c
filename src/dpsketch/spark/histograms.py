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
from pyspark.sql import Window
from pyspark.sql import functions as f

from dpsketch.arrays import Integers
from dpsketch.errors import InvalidInput
from dpsketch.laws.content import BLOCK, Block, Content, fresh_seed
from dpsketch.laws.rounds import unit_weights
from dpsketch.sketches.feed import add_batch
from dpsketch.sketches.histogram import Histogram, HistogramSpec, PrivateHistogram
from dpsketch.sketches.histogram.held import Opened
from dpsketch.sketches.histogram.rows import text_or_bytes
from dpsketch.sketches.weights import WeightGrid, checked_total
from dpsketch.spark.columns import select
from dpsketch.spark.merge import run

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["release_histogram"]


_WIDE = "decimal(38, 0)"  # holds the sum of any units


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
    boundary. Keys are compared exactly, where one machine hashes them and pays for it; the guarantee is the same.
    """
    if not isinstance(spec, HistogramSpec) or spec.key_columns:
        raise InvalidInput("give the spec of a histogram with keys of one column: dps.Histogram(unit=…).spec.")
    if spec.unit.chosen:
        raise InvalidInput("a bound is chosen of what one machine holds: state max_keys= in place of 'auto'.")
    histogram = _ClusterHistogram.from_spec(spec)
    if (spec.unit.level == "user") != (user is not None):
        raise InvalidInput("user= names the users' column where the unit is a user, and only there.")
    chosen = select(frame, histogram, key=key, user=user, weight=weight, points=[])
    if "key_typed" in chosen.frame.columns:
        raise InvalidInput(
            "keys that are floats, decimals or timestamps are not counted on the cluster as they are. Cast the column "
            "to a whole number or text, or bring the pairs to the driver with build()."
        )
    add_batch(histogram, chosen.empty)  # no records, but keys of a known type
    histogram.records = _with_units(chosen.frame, spec.weight_grid)
    return histogram.release(**release)


class _ClusterHistogram(Histogram):
    """A histogram whose records are on a cluster."""

    records: DataFrame

    @contextmanager
    def _opened(self) -> Iterator[Opened]:
        by_user, most = self._spec.unit.level == "user", self._spec.weight_grid.max_units
        whole = ["user", "key"] if by_user else ["key"]
        total = f.sum(f.col("units").cast(_WIDE))
        held = self.records.groupBy(*whole).agg(total.alias("sum"))
        held = held.withColumn("units", f.least(f.col("sum"), f.lit(most)) if by_user else f.col("sum")).drop("sum")
        held = held.persist()
        ranked = f.row_number().over(Window.orderBy("key")) - 1
        keys = held.select("key").distinct().withColumn("place", ranked.cast("long")).persist()
        prints = f.xxhash64("user").bitwiseXOR(f.xxhash64("key")) if by_user else f.lit(0)
        pairs = held.withColumn("units", f.col("units").cast("long")).withColumn("print", prints)
        placed = pairs.join(keys, "key").drop("key").persist()
        try:
            mass = run(lambda: self.records.agg(total).collect())[0][0]
            checked_total(0, int(mass or 0), 1, 1)
            content = _OnCluster(placed, by_user)
            yield Opened(content, lambda names: _places(keys, names), lambda places: _names(keys, places))
        finally:
            for kept in (placed, keys, held):
                run(kept.unpersist)


class _OnCluster(Content):
    """Units by key or by user and key, as a DataFrame."""

    def __init__(self, pairs: DataFrame, by_user: bool) -> None:
        self._pairs = pairs
        self._by_user = by_user

    def counts(self, cap: int) -> Iterator[Block]:
        return _blocks(self._capped(self._pairs, f.lit(cap)))

    def sums(self, asked: Integers, cap: int) -> tuple[Integers, int]:
        listed = _frame(self._pairs, asked)
        among = self._pairs.join(listed, "place", "left_semi")
        sums = np.zeros(len(asked), np.int64)
        for block in _blocks(self._capped(among, f.lit(cap))):
            sums[np.searchsorted(asked, block.places)] = block.sums
        others = self._pairs.join(listed, "place", "left_anti")
        open_ = f.lit(cap)
        if self._by_user:
            held = among.groupBy("user").agg(f.count("*").alias("held"))
            others = others.join(held, "user", "left")
            open_ = f.greatest(f.lit(cap) - f.coalesce("held", f.lit(0)), f.lit(0))
        rest = self._capped(others, open_).agg(f.sum(f.col("units").cast(_WIDE)))
        return sums, int(run(lambda: rest.collect())[0][0] or 0)

    def weights(self, known: Integers, cap: int) -> Iterator[Block]:
        pairs = self._pairs.join(_frame(self._pairs, known), "place", "left_anti")
        held = f.least(f.count("*").over(Window.partitionBy("user")), f.lit(cap))
        steps = f.array(*(f.lit(int(step)) for step in unit_weights(cap)[1:]))
        weighed = pairs.withColumn("units", f.element_at(steps, held.cast("int")).cast("long"))
        return _blocks(self._capped(weighed, f.lit(cap)))

    def _capped(self, pairs: DataFrame, cap: Column) -> DataFrame:
        """Return of each user's pairs at most ``cap``, those with the least words."""
        if not self._by_user:
            return pairs
        words = f.xxhash64(f.lit(fresh_seed()).cast("long"), "print")
        rank = f.row_number().over(Window.partitionBy("user").orderBy(words, "place"))
        return pairs.withColumn("rank", rank).where(f.col("rank") <= cap)


def _with_units(frame: DataFrame, grid: WeightGrid) -> DataFrame:
    """Return records with all they need, and how much each counts."""
    names = {name: name.split("_")[0] for name in frame.columns if name != "weight"}
    if "weight" not in frame.columns:
        counted = frame.withColumn("units", f.lit(grid.one).cast("long"))
    else:

        def weigh(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                units = grid.units(batch.column("weight"), batch.num_rows)
                columns = [batch.column(name) for name in names]
                yield pa.record_batch([*columns, pa.array(units)], names=[*names, "units"])

        kinds = ", ".join(f"`{name}` {frame.schema[name].dataType.simpleString()}" for name in names)
        counted = frame.mapInArrow(weigh, f"{kinds}, units long")
    plain = counted.select(*(f.col(name).alias(short) for name, short in names.items()), "units")
    for short in names.values():
        plain = plain.where(f.col(short).isNotNull())
    return plain.where(f.col("units") > 0)


def _frame(like: DataFrame, places: Integers) -> DataFrame:
    return f.broadcast(like.sparkSession.createDataFrame([(place,) for place in places.tolist()], "place long"))


def _blocks(pairs: DataFrame) -> Iterator[Block]:
    """Yield the sums of units by place."""
    sums = pairs.groupBy("place").agg(f.sum(f.col("units").cast(_WIDE)).cast("long").alias("units")).orderBy("place")
    # At once: by partitions it would be a job for each.
    found = run(lambda: sums.toArrow())
    places, units = (found.column(i).to_numpy() for i in range(2))
    for start in range(0, len(places), BLOCK):
        yield Block(places[start : start + BLOCK], units[start : start + BLOCK])


def _places(keys: DataFrame, names: list[Any]) -> Integers:
    found = np.full(len(names), -1, np.int64)
    if names:
        rows = [(row, name if isinstance(name, int) else _spelled(name)) for row, name in enumerate(names)]
        kind = keys.schema["key"].dataType.simpleString()
        asked = keys.sparkSession.createDataFrame(_typed(rows, kind), f"row long, key {kind}")
        for row in run(lambda: asked.join(keys, "key").collect()):
            found[row["row"]] = row["place"]
    return found


def _spelled(name: str | bytes) -> bytes:
    return name if isinstance(name, bytes) else name.encode()


def _typed(rows: list[tuple[int, Any]], kind: str) -> list[tuple[int, Any]]:
    """Return texts as Spark's column has them: one of strings has no bytes that are no text."""
    if kind != "string":
        return rows
    named = ((row, text_or_bytes(name)) for row, name in rows)
    return [(row, name) for row, name in named if isinstance(name, str)]


def _names(keys: DataFrame, places: Integers) -> list[Any]:
    found = keys.join(_frame(keys, places), "place", "left_semi").orderBy("place")
    rows = run(lambda: found.select("key").collect())
    return [text_or_bytes(bytes(row[0])) if isinstance(row[0], bytes | bytearray) else row[0] for row in rows]
