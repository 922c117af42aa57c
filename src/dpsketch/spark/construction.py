"""Build a sketch from a DataFrame or from files, or collect local reports, on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions, types

from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.local import Collector, LocalProtocol, Received
from dpsketch.local.wire import HEAD_BYTES, ID_BYTES
from dpsketch.sketches.feed import add_batch
from dpsketch.sketches.kinds import KINDS
from dpsketch.sketches.partials import Partial
from dpsketch.sources import Columns, open_files, split_files
from dpsketch.spark.columns import select, user_columns
from dpsketch.spark.merge import merged
from dpsketch.spark.parts import PART_SCHEMA, TaskPart, unpack
from dpsketch.spark.tasks import (
    compacting,
    counting,
    counting_files,
    reading_files,
    receiving,
    records_schema,
    spark_schema,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["add_files", "build", "build_files", "receive"]

# Bytes of files a task, as Spark's own readers have it.
_PART_BYTES = 1 << 27
_SHUFFLED = "spark.sql.shuffle.partitions"
_MOVED = (
    "a histogram with max_counters promises something where one record more or less moves no other one to another "
    "partial, and Spark divides records by how many there are."
)


def build(
    frame: DataFrame,
    into: Any,
    *,
    key: str | Sequence[str] | None = None,
    user: str | None = None,
    weight: str | None = None,
    points: Sequence[str] = (),
    report: str | None = None,
    disjoint_users: bool = False,
    fixed_partitions: bool = False,
) -> Any:
    """Count the records of a DataFrame, and return the sketch.

    The records stay on the executors: each task counts its own, the partial sketches are merged there, and one comes
    to the driver. The sketch is the one that ``update`` makes of the same records on one machine, bit for bit (moments,
    which sum floats: to 1e-9).

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        The records; also over Spark Connect.
    into : spec, sketch, local protocol or collector
        A spec (or a protocol) starts a new sketch (or collector). To one that is given the records are added, or
        nothing if anything fails. A moment sketch's secret travels to the executors with the task.
    key, user, weight : str, optional
        Columns, as ``update`` takes them: keys are integers, floats, text, bytes, dates, time stamps (not NTZ),
        booleans or decimals, users integers or text, weights numbers. Several columns as one ``key`` are those of the
        spec's ``key_columns``; floats, time stamps and decimals are no parts of one. ``user`` is needed
        where the unit is a user: the records are then shuffled and sorted by it, by exact value.
    points : sequence of str, optional
        For a density: the columns of the coordinates, or one column of arrays (vectors, or sets).
    report : str, optional
        For a local protocol: the column of reports; see :func:`receive`.
    disjoint_users : bool, optional
        State that no user is in any other batch or sketch; users are then neither compared nor remembered, which saves
        eight bytes a user on the driver, and the release says that it was not checked. Users of this DataFrame are
        bounded all the same.
    fixed_partitions : bool, optional
        For a histogram with ``max_counters`` that protects records, and needed there: state that in which partition a
        record lies, and before which others, depends on no other record. ``frame.repartition(64,
        "url").sortWithinPartitions("url")`` makes it so.

    Privacy
    -------
    A histogram with ``max_counters`` promises something for streams in which all other records keep their order and
    their partial. Where the unit is a user, records are divided by a hash of the user into as many partitions as
    ``spark.sql.shuffle.partitions`` says, sorted by user, and merged by the partitions' numbers, which keeps that.
    Where it is a record, Spark divides by how many records there are: one more may move others, the promise would not
    hold, and it is refused unless ``fixed_partitions`` is stated.

    Every partial is sensitive and leaves an executor only for another, in Spark's shuffle, or for the driver: the
    cluster lies inside the trust boundary. A task that runs twice counts once.
    """
    if isinstance(into, LocalProtocol | Collector):
        if report is None or key is not None or user is not None or weight is not None or points or disjoint_users:
            raise InvalidInput("a collector takes reports: say report='column' and nothing else.")
        collector = into.collector() if isinstance(into, LocalProtocol) else into
        receive(frame, collector, report=report)
        return collector
    if report is not None:
        raise InvalidInput("report= belongs to local protocols: say key= (or points=).")
    sketch = _started(into)
    points = [points] if isinstance(points, str) else list(points)
    if not isinstance(key, str | None):
        key = tuple(key)
    _check_columns(sketch, key)
    if fixed_partitions and (user is not None or not sketch.in_order):
        raise InvalidInput(
            "fixed_partitions= is for a histogram with max_counters that protects records: leave it out."
        )
    if sketch.in_order and user is None and not fixed_partitions:
        raise InvalidInput(f"{_MOVED} Partition and sort them by something fixed, and state fixed_partitions=True.")
    chosen = select(frame, sketch, key=key, user=user, weight=weight, points=points)
    # What `update` would refuse about the columns is refused here, before a task starts.
    add_batch(sketch.empty_like(), chosen.empty, disjoint_users=disjoint_users)
    prototype = sketch.empty_like().to_shared_bytes()
    records = chosen.frame
    if user is not None:
        records = _by_user(records, fixed=sketch.in_order)
    parts = records.mapInArrow(counting(prototype, disjoint_users=disjoint_users), PART_SCHEMA)
    part = merged(parts, width=chosen.width, disjoint_users=disjoint_users, in_order=sketch.in_order)
    if part is None:
        add_batch(sketch, chosen.empty, disjoint_users=disjoint_users)  # no records, but keys of a known type
    _add(sketch, part, disjoint_users)
    return sketch


def build_files(
    session: SparkSession,
    sources: Sequence[str],
    into: Any,
    *,
    key: str | tuple[str, ...] | None = None,
    user: str | None = None,
    weight: str | None = None,
    points: Sequence[str] = (),
    key_type: KeyType | None = None,
    user_type: KeyType | None = None,
    disjoint_users: bool = False,
    part_bytes: int = _PART_BYTES,
) -> Any:
    """Count the records of files, which the tasks read themselves, and return the sketch.

    Faster than a DataFrame, since no row passes through Spark, and read by the rules of the command line
    (:mod:`dpsketch.sources`), so that ``dpsketch run`` on one machine makes the same sketch.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        The cluster.
    sources : sequence of str
        CSV, TSV, JSON-lines, Parquet and Arrow files, and globs, at paths that the driver and all executors share.
    into : spec or sketch
        As for :func:`build`.
    key, user, weight, points, key_type, user_type
        As for ``dpsketch.sources.Columns``. Several columns as one ``key`` are those of the spec's ``key_columns``.
    disjoint_users : bool, optional
        As for :func:`build`.
    part_bytes : int, optional
        Bytes of files a task. Parquet files are cut between row groups, others are read whole.
    """
    sketch = _started(into)
    names = [points] if isinstance(points, str) else points
    columns = Columns(key, user, weight, tuple(names), key_type or sketch.source_key_type, user_type)
    add_files(session, sources, sketch, columns, disjoint_users=disjoint_users, part_bytes=part_bytes)
    return sketch


def _check_columns(sketch: Any, key: str | tuple[str, ...] | None) -> None:
    """Refuse keys of other columns than the sketch's own: tasks count rows of text, and would not notice."""
    held = getattr(sketch, "key_columns", ())
    if held != (key if isinstance(key, tuple) else ()):
        raise InvalidInput("the spec's key_columns are not the columns of key=. Say the same in both.")


def add_files(
    session: SparkSession,
    sources: Sequence[str],
    sketch: Any,
    columns: Columns,
    *,
    disjoint_users: bool = False,
    part_bytes: int = _PART_BYTES,
) -> dict[str, int]:
    """Add the records of files to a sketch; say how many ``records`` were read, and ``skipped`` by the reader."""
    if disjoint_users and columns.user is None:
        raise InvalidInput("disjoint_users= goes with user=: these records are counted one by one.")
    _check_columns(sketch, columns.key)
    if sketch.in_order and columns.user is None:
        raise InvalidInput(f"{_MOVED} Count them without Spark, or build() it of a DataFrame with fixed partitions.")
    files = split_files(sources, part_bytes=part_bytes)
    prototype = sketch.empty_like().to_shared_bytes()
    places = session.range(0, len(files), 1, len(files))
    if columns.user is None:
        parts = places.mapInArrow(counting_files(prototype, files, columns), PART_SCHEMA)
        part = merged(parts, count=len(files), disjoint_users=False)
    else:
        schema = records_schema(files, columns, hashed=KINDS[sketch.kind].fingerprints)
        records = places.mapInArrow(reading_files(files, columns, schema), spark_schema(schema))
        counted = counting(prototype, disjoint_users=disjoint_users)
        counted_parts = _by_user(records, fixed=sketch.in_order).mapInArrow(counted, PART_SCHEMA)
        part = merged(counted_parts, disjoint_users=disjoint_users, in_order=sketch.in_order)
    if part is None and columns.key is not None:
        # No records, but keys of the type that the first file declares.
        for batch in open_files(files[0], columns):
            add_batch(sketch, batch, disjoint_users=disjoint_users)
    _add(sketch, part, disjoint_users)
    tally = {} if part is None else part.tally
    return {name: tally.get(name, 0) for name in ("records", "skipped")}


def receive(frame: DataFrame, collector: Collector, *, report: str = "report") -> Received:
    """Collect local reports from a column of a DataFrame, as :meth:`dpsketch.local.Collector.receive` does.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        One report a row: compact bytes (binary) or JSON (string).
    collector : Collector
        What the reports are added to; a report that it has counted before is refused with all others.
    report : str
        The column.

    Returns
    -------
    Received
        How many were counted, and how many refused for which reason. Reports that share an identifier are brought
        together first, so that one of them counts wherever they lie.
    """
    if report not in frame.columns:
        raise InvalidInput(f"the DataFrame has no column {report!r}.")
    protocol = collector.protocol.to_json()
    messages = frame.select(functions.col("`" + report.replace("`", "``") + "`").alias("report"))
    match frame.schema[report].dataType:
        case types.StringType():
            messages = messages.mapInArrow(compacting(protocol), "report binary")
        case types.BinaryType():
            pass
        case other:
            raise InvalidInput(f"reports are binary (compact) or strings (JSON), not {other.typeName()}.")
    identifier = functions.substring("report", HEAD_BYTES + 1, ID_BYTES)
    together = messages.repartition(identifier).sortWithinPartitions("report")
    part = merged(together.mapInArrow(receiving(protocol), PART_SCHEMA), disjoint_users=False)
    if part is None:
        return Received(0, 0, 0, 0)
    collector.merge(unpack(part.data))
    return Received(**part.tally)


def _by_user(records: DataFrame, *, fixed: bool) -> DataFrame:
    """Bring each user's records together, next to each other.

    ``fixed``: in a stated number of partitions, so that Spark does not join small ones by what they hold.
    """
    users = user_columns(records.columns)
    others = [name for name in records.columns if name not in users]
    nobody = reduce(lambda one, other: one & other, [functions.col(name).isNull() for name in users])
    # Records of nobody are only counted as skipped: they are spread out, lest one task gets all of them.
    spread = functions.when(nobody, functions.xxhash64(*others))
    if fixed:
        number = int(records.sparkSession.conf.get(_SHUFFLED, "200") or "200")
        return records.repartition(number, *users, spread).sortWithinPartitions(*users)
    return records.repartition(*users, spread).sortWithinPartitions(*users)


def _started(into: Any) -> Any:
    """Start a sketch of a spec, or return the sketch that was given."""
    if isinstance(into, Partial) and hasattr(into, "empty_like"):
        return into
    for kind in KINDS.values():
        if kind.spec is not None and isinstance(into, kind.spec):
            return kind.sensitive.from_spec(into)
    startable = ", ".join(kind.name for kind in KINDS.values() if kind.spec_path is not None)
    raise InvalidInput(
        f"a {type(into).__name__} cannot be built from parts; give the spec or the sketch of one of {startable}, or a "
        "local protocol."
    )


def _add(sketch: Any, part: TaskPart | None, disjoint_users: bool) -> None:
    """Add what all tasks counted together to the sketch on the driver."""
    if part is not None:
        sketch.merge(unpack(part.data), **({"disjoint_users": True} if disjoint_users else {}))
