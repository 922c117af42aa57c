"""One entrance to every source: read, shape, and sort if asked."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from dpsketch.columns import UserType
from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources.databases import read_database
from dpsketch.sources.engine import connect, load, private_folder
from dpsketch.sources.expressions import RowExpressions
from dpsketch.sources.failures import guarded
from dpsketch.sources.formats import CODED_ROWS, nothing_of, read_file
from dpsketch.sources.locations import TEXT_FORMATS, Database, File, Format, Location, locate
from dpsketch.sources.records import Shaper, is_coded
from dpsketch.sources.values import Batch, Columns, Place, Progress

__all__ = ["open_source", "read_tables"]

T = TypeVar("T")

# Counting in batches half as long takes a fifth longer: a sketch's row is loaded into the cache for fewer keys.
BATCH_ROWS = 262144
_AHEAD = 2
_PATIENCE = 1.0


def open_source(
    sources: Sequence[str],
    columns: Columns,
    *,
    stdin_format: Format = "csv",
    sort_by_user: bool = False,
    batch_rows: int = BATCH_ROWS,
    progress: Callable[[Progress], None] | None = None,
    memory_limit: str = "512MB",
    temp_directory: str | os.PathLike[str] | None = None,
) -> Generator[Batch, None, None]:
    r"""Read records from files, pipes and databases, one source after the other, as Arrow batches.

    Names, globs and the first bytes of files are checked at the call; the rest as it is read. Memory does not grow with
    the sources. Close the generator, or let it go, to stop early.

    Parameters
    ----------
    sources : sequence of str
        What to read; :mod:`dpsketch.sources` lists the forms. One file cannot be given twice.
    columns : Columns
        The columns wanted.
    stdin_format : {"csv", "tsv", "jsonl", "parquet", "arrow"}
        What the source ``-`` holds. Piped Parquet goes through a private temporary file.
    sort_by_user : bool
        Order all records by user, then key, by exact value, through a private temporary directory.
    batch_rows : int
        At most so many records a batch; of keys that come as a dictionary four times as many, as each is a number.
    progress : callable, optional
        Is told a :class:`Progress` after each batch that was read, on the thread that reads.
    memory_limit : str
        What sorting may hold in memory before it spills, such as ``"512MB"``; the process needs about 300 MB more.
    temp_directory : path, optional
        Where the temporary directory is made; the system's choice by default.

    Yields
    ------
    Batch
        Sensitive records. A batch without rows may come last, to report skipped records; of sources without records it
        is the only one, with columns of the types that they declare.

    Raises
    ------
    SourceError
        If a source cannot be read as asked. Neither its text nor its causes quote a record.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "visits.csv")
    ...     _ = path.write_text("page,user\n/home,ann\n/help,bob\n", encoding="utf-8")
    ...     for batch in open_source([str(path)], Columns(key="page")):
    ...         print(batch, batch.key.to_pylist())
    <Batch of key; sensitive, content not shown> ['/home', '/help']
    """
    if batch_rows < 1:
        raise InvalidInput(f"batch_rows must be at least 1, not {batch_rows}.")
    if sort_by_user and columns.user is None:
        raise InvalidInput("sorting by user needs the column that holds the user: Columns(user=…).")
    if sort_by_user and columns.count is not None:
        raise InvalidInput("records of users are not counted by a column of counts: drop count=.")
    folder = None if temp_directory is None else os.fspath(temp_directory)
    batches = _read(locate(sources, stdin_format), columns, batch_rows, progress, folder)
    return _sorted(batches, batch_rows, memory_limit, folder) if sort_by_user else _read_ahead(batches)


def _read(
    located: Sequence[Location],
    columns: Columns,
    batch_rows: int,
    progress: Callable[[Progress], None] | None,
    temp_directory: str | None,
) -> Generator[Batch, None, None]:
    shaper, expressions = Shaper(columns), RowExpressions(columns)
    by_rows = any(isinstance(location, Database) for location in located)
    sizes = [location.size for location in located if isinstance(location, File)]
    total = sum(sizes) if len(sizes) == len(located) else None
    before = rows = 0
    for location in located:
        place, done = _place_of(location), 0
        constants = location.constants if isinstance(location, File) else ()
        beside = {name: value for name, value in constants if name in columns.names}
        wanted = replace(columns, elsewhere=frozenset(beside)) if beside else columns
        if isinstance(location, Database):
            if columns.asks_sql:
                raise SourceError(
                    f"{location} is asked in its own SQL: put the condition into …?query=SELECT … WHERE …."
                )
            pieces = read_database(location, wanted, batch_rows)
        else:
            pieces = read_file(location, wanted, batch_rows, temp_directory)
        with closing(pieces):  # what the shaper refuses would leave a database's connection open
            for piece, done in pieces:
                for name, value in beside.items():
                    piece = piece.append_column(name, pa.array([value] * piece.num_rows, pa.string()))
                for part in _slices(expressions.apply(piece, place), columns, place, batch_rows):
                    rows += part.num_rows
                    batch = shaper.shape(dict(zip(part.schema.names, part.columns, strict=True)), part.num_rows, place)
                    if batch is not None:
                        yield batch
                    if progress is not None:
                        progress(Progress(rows, None, "rows") if by_rows else Progress(before + done, total, "bytes"))
        before += location.size if isinstance(location, File) else done
    last = shaper.last()
    if last is not None:
        yield last
    if progress is not None:
        progress(Progress(rows, rows, "rows") if by_rows else Progress(before, before, "bytes"))


def read_tables(tables: Iterable[Any], columns: Columns, name: str) -> Generator[Batch, None, None]:
    """Yield the records of Arrow tables, as those of a file are; ``name`` is what messages call them."""
    shaper, expressions, place = Shaper(columns), RowExpressions(columns), Place(name, text=False)
    for table in tables:
        for piece in table.to_batches() or [nothing_of(table.schema)]:
            part = expressions.apply(piece, place)
            batch = shaper.shape(dict(zip(part.schema.names, part.columns, strict=True)), part.num_rows, place)
            if batch is not None:
                yield batch
    last = shaper.last()
    if last is not None:
        yield last


def _place_of(location: Location) -> Place:
    kind = None if isinstance(location, Database) else location.format
    return Place(str(location), text=kind in TEXT_FORMATS, parquet=kind == "parquet")


def _slices(piece: Any, columns: Columns, place: Place, batch_rows: int) -> Iterator[Any]:
    """Cut a batch into those of the size asked for; one without rows stays, as it declares types."""
    # Elsewhere the shaper makes text of a dictionary, which takes as much room as any.
    coded = columns.encodable is not None and place.parquet and is_coded(piece.schema.field(columns.encodable).type)
    most = CODED_ROWS * batch_rows if coded else batch_rows
    return (piece.slice(start, most) for start in range(0, max(1, piece.num_rows), most))


def _read_ahead(batches: Generator[T, None, None]) -> Generator[T, None, None]:
    """Read on a thread of its own while the caller works on the batch before: both release the interpreter's lock."""
    ready: queue.Queue[T | BaseException | None] = queue.Queue(_AHEAD)
    stopped = threading.Event()

    def hand_over(item: T | BaseException | None) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def fill() -> None:
        end: BaseException | None = None
        try:
            for batch in batches:
                hand_over(batch)
                if stopped.is_set():
                    break
        except BaseException as error:
            end = error
        batches.close()
        hand_over(end)

    # A daemon, and not waited for beyond a moment: it may hang on a pipe or a database when the caller gives up.
    reader = threading.Thread(target=fill, name="dpsketch-reader", daemon=True)
    reader.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        reader.join(_PATIENCE)


def _sorted(
    batches: Iterator[Batch], batch_rows: int, memory_limit: str, temp_directory: str | None
) -> Generator[Batch, None, None]:
    """Yield the records ordered by user, then by key, compared by exact value (text by its UTF-8 bytes), nulls last.

    DuckDB spills what exceeds ``memory_limit`` into a directory that is removed at the end, and also after an error or
    an interrupt. The first batch reports all records that were skipped.
    """
    empty: Any = None
    rows = skipped = 0
    user_type: UserType | None = None
    failure: BaseException | None = None

    def packed() -> Iterator[Any]:
        nonlocal empty, rows, skipped, user_type, failure
        try:
            for batch in batches:
                table = _packed(batch)
                empty, user_type = table.slice(0, 0), user_type or batch.user_type
                typeless = batch.key is not None and pa.types.is_null(batch.key.type)  # no source has shown a key
                skipped += batch.skipped + (batch.rows if typeless else 0)
                if batch.rows and not typeless:
                    rows += batch.rows
                    yield table
        except (Exception, KeyboardInterrupt) as error:
            failure = error
            raise

    def run(step: Callable[[], T]) -> T:
        """Run a step of DuckDB. What went wrong in reading comes first, as it was: DuckDB wraps and quotes it."""
        try:
            return guarded(step, explain)
        except SourceError:
            if failure is None:
                raise
        raise failure

    def explain(error: Exception) -> SourceError:
        return SourceError(
            f"the records could not be sorted by user ({type(error).__name__}). Most likely the temporary directory is "
            f"full, or memory_limit {memory_limit!r} is too small or not a size. Give temp_directory= or memory_limit=."
        )

    load()
    with private_folder(temp_directory) as folder:
        connected = run(lambda: connect(memory_limit=memory_limit, temp_directory=folder))
        with connected as connection:
            tables = packed()
            first = next(tables, None)
            if first is None:
                if empty is not None:
                    yield _unpacked(empty, skipped, user_type)
                return
            source = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], tables))
            order = ", ".join(f"{name} ASC NULLS LAST" for name in ("user_", "key_") if name in first.schema.names)
            ordered = run(lambda: connection.from_arrow(source).order(order).to_arrow_reader(batch_rows))
            reported = yielded = 0
            while (batch := run(lambda: next(ordered, None))) is not None:
                yield _unpacked(batch, skipped - reported, user_type)
                reported = skipped  # all was read before the first batch came out
                yielded += batch.num_rows
            if yielded != rows:
                raise SourceError("sorting the records by user lost some of them; nothing can be built on the rest.")


def _packed(batch: Batch) -> Any:
    columns = {"user_": batch.user, "key_": batch.key, "weight_": batch.weight}
    columns |= {f"point_{i}": column for i, column in enumerate(batch.points)}
    held = {name: column for name, column in columns.items() if column is not None}
    return pa.record_batch(list(held.values()), names=list(held))


def _unpacked(table: Any, skipped: int, user_type: UserType | None) -> Batch:
    held = dict(zip(table.schema.names, table.columns, strict=True))
    points = tuple(column for name, column in held.items() if name.startswith("point_"))
    key, user, weight = (held.get(name) for name in ("key_", "user_", "weight_"))
    return Batch(key, user, weight, points, table.num_rows, skipped, user_type=user_type)
