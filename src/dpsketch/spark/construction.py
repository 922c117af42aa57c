"""Build a sketch from a DataFrame or from files, or collect local reports, on a cluster: what the driver does."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import functions, types

from dpsketch.columns import UserType
from dpsketch.errors import DpsketchError, InvalidInput, SourceError
from dpsketch.hashing import KeyType
from dpsketch.local import Collector, LocalProtocol, Received
from dpsketch.local.wire import HEAD_BYTES, ID_BYTES
from dpsketch.sketches.feed import add_batch
from dpsketch.sketches.kinds import KINDS, row_of
from dpsketch.sketches.partials import Partial
from dpsketch.sketches.table import Table, TableSpec
from dpsketch.sources import Batch, Columns, open_source
from dpsketch.sources.locations import File, locate
from dpsketch.spark import tasks
from dpsketch.spark.tasks import PART_SCHEMA, Made, merge_parts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "Selected",
    "add_files",
    "build",
    "build_files",
    "large_batches",
    "opened",
    "quoted",
    "receive",
    "run",
    "select",
]

T = TypeVar("T")

# Bytes of files a task, as Spark's own readers have it.
_PART_BYTES = 1 << 27
_SHUFFLED = "spark.sql.shuffle.partitions"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
# Numbers a batch, where all columns have a fixed width.
_LARGE = 1 << 18
_SPARK_TYPES = {pa.int64(): "long", pa.string(): "string", pa.float64(): "double", pa.binary(): "binary"}
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
        Columns, as ``update`` takes them. Several columns as one ``key`` are those of the spec's ``key_columns``.
        ``user`` is needed where the unit is a user: the records are then shuffled and sorted by it, by exact value.
    points : sequence of str, optional
        For a density: the columns of the coordinates, or one column of arrays (vectors).
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
    sketch.empty_like().update(chosen.empty, **chosen.names, disjoint_users=disjoint_users)
    part, _ = _counted(chosen.frame, sketch, disjoint_users=disjoint_users)
    if part is None:
        sketch.update(chosen.empty, **chosen.names, disjoint_users=disjoint_users)  # its keys have a type
    else:
        sketch.merge(part, disjoint_users=disjoint_users)
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
    """
    sketch = _started(into)
    names = [points] if isinstance(points, str) else points
    columns = Columns(key, user, weight, tuple(names), key_type or sketch.source_key_type, user_type)
    columns = replace(columns, named=row_of(sketch).names_keys)
    add_files(session, sources, sketch, columns, disjoint_users=disjoint_users)
    return sketch


def add_files(
    session: SparkSession, sources: Sequence[str], sketch: Any, columns: Columns, *, disjoint_users: bool = False
) -> dict[str, int]:
    """Add the records of files to a sketch; say how many ``records`` were read, and ``skipped`` by the reader."""
    if disjoint_users and columns.user is None:
        raise InvalidInput("disjoint_users= goes with user=: these records are counted one by one.")
    _check_columns(sketch, columns.key)
    if sketch.in_order and columns.user is None:
        raise InvalidInput(f"{_MOVED} Count them without Spark, or build() it of a DataFrame with fixed partitions.")
    shares = _shares(sources)
    numbers = session.range(0, len(shares), 1, len(shares))
    if columns.user is None:
        task = tasks.counting_files(sketch.empty_like().to_shared_bytes(), shares, replace(columns, encoded=True))
        part, tally = _merged(numbers.mapInArrow(task, PART_SCHEMA), disjoint_users=False)
    else:
        first = _first(shares, columns)
        schema = _schema_of(first)
        written = ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)
        read = numbers.mapInArrow(tasks.reading_files(shares, columns, schema, first.user_type), written)
        found = {name: _column(name) for name in schema.names if name != "key"}
        if columns.key is not None:
            found |= _key(read, "key", hashed=KINDS[sketch.kind].fingerprints)
        part, tally = _counted(_renamed(read, found), sketch, disjoint_users=disjoint_users, user_type=first.user_type)
    if part is None:
        # No records, but keys of the type that the first file declares.
        add_batch(sketch, _first(shares, columns), disjoint_users=disjoint_users)
    else:
        sketch.merge(part, disjoint_users=disjoint_users)
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
    _check_names(frame, [report])
    protocol = collector.protocol.to_json()
    messages = frame.select(_column(report).alias("report"))
    match frame.schema[report].dataType:
        case types.StringType():
            messages = messages.mapInArrow(tasks.compacting(protocol), "report binary")
        case types.BinaryType():
            pass
        case other:
            raise InvalidInput(f"reports are binary (compact) or strings (JSON), not {other.typeName()}.")
    identifier = functions.substring("report", HEAD_BYTES + 1, ID_BYTES)
    together = messages.repartition(identifier).sortWithinPartitions("report")
    received, tally = _merged(together.mapInArrow(tasks.receiving(protocol), PART_SCHEMA), disjoint_users=False)
    if received is None:
        return Received(0, 0, 0, 0)
    collector.merge(received)
    return Received(**tally)


class Selected(NamedTuple):
    """Records in the fixed columns of :mod:`dpsketch.spark.tasks`.

    Attributes
    ----------
    frame : DataFrame
        The records.
    empty : pyarrow.Table
        No records, in the columns that were named.
    names : mapping
        Which columns ``update`` finds there, by role.
    """

    frame: DataFrame
    empty: pa.Table
    names: Mapping[str, Any]


def select(
    frame: DataFrame,
    sketch: Any,
    *,
    key: str | tuple[str, ...] | None,
    user: str | None,
    weight: str | None,
    points: str | Sequence[str],
) -> Selected:
    """Choose the columns that a sketch needs; text keys are hashed by Spark where fingerprints suffice."""
    points = [points] if isinstance(points, str) else list(points)
    parts = list(key) if isinstance(key, tuple) else []
    wanted = [name for name in (key, user, weight) if isinstance(name, str)] + parts + points
    _check_names(frame, wanted)
    whole = len(points) == 1 and isinstance(frame.schema[points[0]].dataType, types.ArrayType)
    named = {"key": key, "user": user, "weight": weight, "points": points[0] if whole else points or None}
    empty = run(lambda: frame.select(*map(_column, dict.fromkeys(wanted))).limit(0).toArrow())
    found = {f"part_{i}": _exact(frame, name) for i, name in enumerate(parts)}
    if isinstance(key, str):
        found |= _key(frame, key, hashed=KINDS[sketch.kind].fingerprints)
    if user is not None:
        found["user"] = _exact(frame, user)
    if weight is not None:
        found["weight"] = _column(weight).cast("double")
    if whole:
        found["vector"] = _column(points[0]).cast("array<double>")
    else:
        found |= {f"point_{i}": _column(name).cast("double") for i, name in enumerate(points)}
    return Selected(_renamed(frame, found), empty, {role: name for role, name in named.items() if name is not None})


def _check_names(frame: DataFrame, wanted: Sequence[str]) -> None:
    for name in wanted:
        if frame.columns.count(name) != 1:
            raise InvalidInput(
                f"the DataFrame has {'two columns' if name in frame.columns else 'no column'} {name!r}. Name one that "
                "it has once."
            )


def _renamed(frame: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    return frame.select([column.alias(name) for name, column in columns.items()])


def quoted(name: str) -> str:
    """Return the name of a column as Spark's SQL writes it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"


def _column(name: str) -> Column:
    return functions.col(quoted(name))


def _exact(frame: DataFrame, name: str) -> Column:
    """Return a column by whose values records are told apart: text without a collation, which calls some equal."""
    match frame.schema[name].dataType:
        case types.StringType():
            return _column(name).cast("string")
        case types.ByteType() | types.ShortType() | types.IntegerType():
            return _column(name).cast("long")
        case _:
            return _column(name)


def _key(frame: DataFrame, name: str, *, hashed: bool) -> dict[str, Column]:
    """Return a column of keys under its fixed name; dates and booleans as text, which Spark writes as we do."""
    kind = frame.schema[name].dataType
    column = (
        _column(name).cast("string") if isinstance(kind, types.DateType | types.BooleanType) else _exact(frame, name)
    )
    text = isinstance(kind, types.StringType | types.BinaryType | types.DateType | types.BooleanType)
    # Spark's hash of a null is its seed, which looks like a key.
    prints = functions.when(column.isNotNull(), functions.xxhash64(column))
    return {"print": prints} if hashed and text else {"key": column}


def _check_columns(sketch: Any, key: str | tuple[str, ...] | None) -> None:
    """Refuse keys of other columns than the sketch's own: tasks count rows of text, and would not notice."""
    held = getattr(sketch, "key_columns", ())
    if held != (key if isinstance(key, tuple) else ()):
        raise InvalidInput("the spec's key_columns are not the columns of key=. Say the same in both.")


def _shares(sources: Sequence[str]) -> list[list[str]]:
    """Share files out among tasks; their paths are those of every machine."""
    shares: list[list[str]] = []
    held = _PART_BYTES
    for file in locate(sources, "csv"):
        if not isinstance(file, File) or file.store is not None or file.constants or file.member:
            raise InvalidInput(f"{file} cannot be shared out among tasks. Name files that every machine can open.")
        if held + file.size > _PART_BYTES:
            shares.append([])
            held = 0
        shares[-1].append(str(file.path.resolve()))
        held += file.size
    return shares


def _first(shares: list[list[str]], columns: Columns) -> Batch:
    """Return the first batch of the first files; it has types also if there are no records."""
    with closing(open_source(shares[0], columns)) as batches:
        return next(batches)


def _schema_of(batch: Batch) -> pa.Schema:
    """Return the schema of records that tasks read; a column of nulls alone is taken for text."""
    kinds = {name: column.type for name, column in tasks.columns_of(batch).items()}
    found = [(name, pa.string() if pa.types.is_null(kind) else kind) for name, kind in kinds.items()]
    return pa.schema([*found, ("lost", pa.int64()), ("failure", pa.string())])


def _started(into: Any) -> Any:
    """Start a sketch of a spec, or return the sketch that was given."""
    if isinstance(into, Table | TableSpec):
        raise InvalidInput("a table is not built in parts: release_table(frame, spec, …) releases it on the cluster.")
    if isinstance(into, Partial) and hasattr(into, "empty_like"):
        return into
    for kind in KINDS.values():
        if kind.spec is not None and isinstance(into, kind.spec):
            return kind.sensitive.from_spec(into)
    startable = ", ".join(kind.name for kind in KINDS.values() if kind.spec not in (None, TableSpec))
    raise InvalidInput(
        f"a {type(into).__name__} cannot be built from parts; give the spec or the sketch of one of {startable}, or a "
        "local protocol."
    )


def _counted(records: DataFrame, sketch: Any, *, disjoint_users: bool, user_type: UserType | None = None) -> Made:
    """Count records in their fixed columns, each user's together and next to each other."""
    if "user" in records.columns:
        others = [name for name in records.columns if name != "user"]
        # Records of nobody are only counted as skipped: they are spread out, lest one task gets all of them.
        spread = functions.when(functions.col("user").isNull(), functions.xxhash64(*others))
        # In a stated number of partitions Spark does not join small ones by what they hold.
        fixed: list[Any] = [int(records.sparkSession.conf.get(_SHUFFLED) or 200)] if sketch.in_order else []
        records = records.repartition(*fixed, "user", spread).sortWithinPartitions("user")
    task = tasks.counting(sketch.empty_like().to_shared_bytes(), disjoint_users=disjoint_users, user_type=user_type)
    parts = records.mapInArrow(task, PART_SCHEMA)
    with large_batches(records):
        return _merged(parts, disjoint_users=disjoint_users, in_order=sketch.in_order)


def _merged(parts: DataFrame, *, disjoint_users: bool, in_order: bool = False) -> Made:
    """Run the tasks that make partial sketches, merge these on the executors, and return the one that is left.

    Of a task that Spark runs twice, because it failed, was slow or lost its machine, one run's row is used: a row is
    part of a partition, and Spark takes each partition from one run. Nothing is added up outside those rows.

    Where sketches depend on the order in which they are merged (``in_order``), all come to the driver, which merges
    them by the numbers of their partitions: how Spark groups them depends on how many there are.
    """
    if not in_order:
        task = tasks.merging(disjoint_users=disjoint_users)
        parts = parts.repartition("number").mapInArrow(task, PART_SCHEMA)  # Spark chooses into how many, by their size
        parts = parts.repartition(1).mapInArrow(task, PART_SCHEMA)
    rows = run(lambda: parts.toArrow())
    ordered = sorted(rows.to_batches(), key=lambda batch: int(batch.column("number")[0].as_py()))
    return run(lambda: merge_parts(ordered, disjoint_users=disjoint_users))


@contextmanager
def large_batches(records: DataFrame) -> Iterator[None]:
    """Let Spark hand over batches of a fixed number of rows, where all columns have a fixed width.

    It then need not measure a batch after each row, which takes longer than to write the row.
    """
    fixed = all(isinstance(field.dataType, types.LongType | types.DoubleType) for field in records.schema)
    wanted = {_ROWS: str(_LARGE // len(records.columns)), _BYTES: str(2**31 - 1)} if fixed else {}
    conf = records.sparkSession.conf
    before = {name: conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                conf.unset(name)
            else:
                conf.set(name, former)


def run(step: Callable[[], T]) -> T:
    """Run a step of Spark; its errors, which may quote records, are replaced by a sentence that does not."""
    try:
        return step()
    except DpsketchError:
        raise
    except Exception as error:
        condition = error.getCondition() if hasattr(error, "getCondition") else None  # Spark's name, without values
        kind = f"{type(error).__name__}, {condition}" if condition else type(error).__name__
    raise SourceError(
        f"Spark could not do its part ({kind}), and nothing was counted. Its own log says more; that log may quote "
        "records, so keep it where the records are."
    )


@contextmanager
def opened(master: str) -> Iterator[SparkSession]:
    """Start a session on a cluster, ``local[2]``, ``spark://…``, ``yarn`` or ``sc://…``, and stop it at the end.

    Where one is active already, that one is used and goes on.
    """
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        yield active
        return
    builder = SparkSession.builder.appName("dpsketch")
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        # Workers on this machine are this Python; the driver and they talk to each other and to nobody else.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if master.startswith("sc://"):
        builder = builder.remote(master)
    elif shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise SourceError("Spark needs Java, and there is none. Install one, such as openjdk-17-jre-headless.")
    else:
        builder = builder.master(master).config(map=settings)
    session = run(builder.getOrCreate)
    try:
        yield session
    finally:
        session.stop()
