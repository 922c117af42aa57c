"""Tables of records as DataFrames, with the queries that laws send to one machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import types

from dpsketch.arrays import Integers
from dpsketch.errors import InvalidInput
from dpsketch.laws.names import text_or_bytes
from dpsketch.spark.construction import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ClusterTables", "refuse_other_types"]


# A table is on two executors, so that one of them may be lost.
_TWICE = StorageLevel.MEMORY_AND_DISK_2


class ClusterTables:
    """Tables on a cluster; see :class:`~dpsketch.laws.groups.GroupTables`. Sensitive.

    A table is computed once, and its rows are what later queries read. Were it computed again, its records could have
    other numbers; and Spark would plan every query anew from the first records on. Spark removes a table once this
    object is gone.

    Parameters
    ----------
    session : SparkSession
        The cluster's session.
    **frames : DataFrame
        The tables to begin with.
    """

    def __init__(self, session: SparkSession, **frames: DataFrame) -> None:
        self._session = session
        self._frames: dict[str, Any] = frames

    def make(self, name: str, query: str, **tables: dict[str, Integers]) -> None:
        """Keep the rows of a query as a table of this name."""
        given = self._given(tables)
        self._frames[name] = run(
            lambda: self._session.sql(query, **self._frames, **given).localCheckpoint(storageLevel=_TWICE)
        )

    def make_keys(self, query: str) -> None:
        """Make ``keys`` of a query for each key once: with its place in their order."""
        numbered = "CAST(row_number() OVER (ORDER BY key) - 1 AS BIGINT) AS place"
        self.make("keys", f"SELECT {numbered}, * FROM ({query})")

    def numbers(self, query: str, **tables: dict[str, Integers]) -> Iterator[tuple[Integers, ...]]:
        """Run a query, and yield its columns at once: by partitions it would be a job for each."""
        found = run(lambda: self._session.sql(query, **self._frames, **self._given(tables)).toArrow())
        yield tuple(column.to_numpy() for column in found.columns)

    def summed(self, chosen: str, **tables: dict[str, Integers]) -> Iterator[tuple[Integers, ...]]:
        """Yield sums of units by place, in the order of the places."""
        everybody = chosen.replace("{some}", "true")
        query = f"SELECT place, CAST(sum(units) AS BIGINT) AS units FROM ({everybody}) GROUP BY place ORDER BY place"
        return self.numbers(query, **tables)

    def find(self, names: list[Any]) -> Integers:
        """Return the places of keys by their names; −1 for a key without records."""
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
        """Return the names of the keys at these places, which increase: integers, texts, or bytes that are no text."""
        query = "SELECT key FROM {keys} AS k SEMI JOIN {asked} AS a ON k.place = a.place ORDER BY k.place"
        given = self._given({"asked": {"place": places}})
        rows = run(lambda: self._session.sql(query, keys=self._frames["keys"], **given).collect())
        return [text_or_bytes(bytes(row[0])) if isinstance(row[0], bytes | bytearray) else row[0] for row in rows]

    def _given(self, tables: dict[str, dict[str, Integers]]) -> dict[str, Any]:
        return {name: self._session.createDataFrame(pa.table(columns)) for name, columns in tables.items()}


def refuse_other_types(frame: DataFrame, names: Sequence[str]) -> None:
    """Refuse keys and users that are compared by another value on the cluster than on one machine."""
    held = [field.dataType for field in frame.schema if field.name in names]
    if not all(isinstance(kind, types.LongType | types.StringType | types.BinaryType) for kind in held):
        raise InvalidInput(
            "keys and users that are floats, decimals or timestamps are not counted on the cluster as they are. Cast "
            "the column to a whole number or text, or bring the records to one machine."
        )


def _as_stored(name: int | str | bytes, kind: str) -> int | str | bytes | bytearray | None:
    """Return a name as Spark's column of keys has it; None if no key of that type can be it."""
    if isinstance(name, int) or kind not in ("string", "binary"):
        return name if isinstance(name, int) == (kind not in ("string", "binary")) else None
    if kind == "binary":
        return bytearray(name if isinstance(name, bytes) else name.encode())
    text = text_or_bytes(name) if isinstance(name, bytes) else name
    return text if isinstance(text, str) else None
