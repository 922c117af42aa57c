"""One entrance to every source."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, TypeVar, assert_never

import pyarrow as pa

from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources.columnar import CODED_ROWS, read_arrow, read_parquet
from dpsketch.sources.databases import read_database
from dpsketch.sources.expressions import RowExpressions
from dpsketch.sources.locations import Database, File, Format, Location, StandardInput, locate
from dpsketch.sources.order import sort_by_user as _sort_by_user
from dpsketch.sources.records import Shaper, is_coded
from dpsketch.sources.text import Piece, read_json_lines, read_separated
from dpsketch.sources.values import Batch, Columns, KeyType, Place, Progress

T = TypeVar("T")

# Counting in batches half as long takes a fifth longer: a sketch's row is loaded into the cache for fewer keys.
BATCH_ROWS = 262144
_AHEAD = 2
_PATIENCE = 1.0
# The formats whose columns have types before a row is read: declared, or text throughout.
_WITH_SQL = ("csv", "tsv", "parquet", "arrow")


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
    located = locate(sources, stdin_format)
    folder = None if temp_directory is None else os.fspath(temp_directory)
    batches = _read(located, columns, batch_rows, progress, folder)
    if sort_by_user:
        return _sort_by_user(batches, batch_rows, memory_limit, folder)
    return _read_ahead(batches)


def open_files(
    files: Sequence[File], columns: Columns, *, batch_rows: int = BATCH_ROWS
) -> Generator[Batch, None, None]:
    """Read files, or parts of them, as :func:`~dpsketch.sources.split_files` returned them; see :func:`open_source`."""
    return _read_ahead(_read(files, columns, batch_rows, None, None))


def _read(
    located: Sequence[Location],
    columns: Columns,
    batch_rows: int,
    progress: Callable[[Progress], None] | None,
    temp_directory: str | None,
) -> Generator[Batch, None, None]:
    shaper, expressions = Shaper(columns), RowExpressions(columns.where, columns.computed, columns.kept)
    by_rows = any(isinstance(location, Database) for location in located)
    sizes = [location.size for location in located if isinstance(location, File)]
    total = sum(sizes) if len(sizes) == len(located) else None
    before = rows = 0
    for location in located:
        done = 0
        kind = None if isinstance(location, Database) else location.format
        text: KeyType | None = "text" if kind in ("csv", "tsv", "jsonl") else None
        place = Place(
            str(location),
            typed=kind not in ("csv", "tsv"),
            checked=kind in (None, "csv", "tsv"),
            keys=text,
            laid_out=kind == "parquet",
        )
        if columns.asks_sql and kind not in _WITH_SQL:
            raise _without_sql(location)
        constants = location.constants if isinstance(location, File) else ()
        beside = {name: value for name, value in constants if name in columns.names}
        of_file = replace(columns, elsewhere=frozenset(beside)) if beside else columns
        pieces = _pieces(location, of_file, batch_rows, temp_directory)
        if columns.asks_sql:
            pieces = _read_ahead(pieces)  # a row is looked at while the next ones are read
        with closing(pieces):  # what the shaper refuses would leave a database's connection open
            whole = ((_with_constants(read, beside), done) for read, done in pieces)
            for piece, done in expressions.applied(whole, place):
                rows += piece.num_rows
                # A piece without rows declares the types of its columns.
                coded = (
                    place.laid_out  # else the shaper makes text of it, which takes as much room as any
                    and columns.encodable is not None
                    and is_coded(piece.schema.field(columns.encodable).type)
                )
                most = CODED_ROWS * batch_rows if coded else batch_rows
                for start in range(0, max(1, piece.num_rows), most):
                    part = piece.slice(start, most)
                    raw = dict(zip(part.schema.names, part.columns, strict=True))
                    batch = shaper.shape(raw, part.num_rows, place)
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


def _with_constants(batch: Any, constants: Mapping[str, str | None]) -> Any:
    """Return a batch with columns that are the same in all its rows."""
    for name, value in constants.items():
        batch = batch.append_column(name, pa.array([value] * batch.num_rows, pa.string()))
    return batch


def _without_sql(location: Location) -> SourceError:
    """Say why no SQL is asked of a source whose columns have types by their values, or that speaks SQL itself."""
    if isinstance(location, Database):
        return SourceError(f"{location} is asked in its own SQL: put the condition into …?query=SELECT … WHERE ….")
    return SourceError(
        f"{location} declares no types, so that SQL over its columns would depend on single records. "
        "Convert it to Parquet or CSV."
    )


def _pieces(
    location: Location, columns: Columns, batch_rows: int, temp_directory: str | None
) -> Generator[Piece, None, None]:
    match location:
        case Database():
            return read_database(location, columns, batch_rows)
        case File() | StandardInput():
            match location.format:
                case "csv":
                    return read_separated(location, columns, ",")
                case "tsv":
                    return read_separated(location, columns, "\t")
                case "jsonl":
                    return read_json_lines(location, columns)
                case "parquet":
                    return read_parquet(location, columns, batch_rows, temp_directory)
                case "arrow":
                    return read_arrow(location, columns, batch_rows, temp_directory)
                case _:
                    assert_never(location.format)
        case _:
            assert_never(location)


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
