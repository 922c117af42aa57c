"""Parquet and Arrow: only the columns wanted, a batch at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc

from dpsketch.errors import SourceError
from dpsketch.sources.failures import guarded, guarded_iterator, missing_column, unreadable
from dpsketch.sources.locations import HEAD_BYTES, File, StandardInput, check_magic
from dpsketch.sources.scratch import private_folder
from dpsketch.sources.streams import ByteStream
from dpsketch.sources.text import Piece, nothing_of
from dpsketch.sources.values import Columns

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_FILE_MAGIC = b"ARROW1\x00\x00"
_READ_AT_ONCE = 1 << 20
# Rows of a batch whose keys are numbers of values: each batch has the values anew, which many rows make up for.
CODED_ROWS = 4
# A column is read as codes if its size says that most of its pages are: text takes four bytes a value for the length
# alone, and writers give up a dictionary that passes a megabyte.
_CODE_BYTES = 4
_VALUES_BYTES = 2 << 20


def read_parquet(
    location: File | StandardInput, columns: Columns, batch_rows: int, temp_directory: str | None
) -> Generator[Piece, None, None]:
    """Read Parquet. Its index stands at the end, so that a pipe is first written to a private file."""
    if isinstance(location, StandardInput):
        yield from _spooled(location, columns, batch_rows, temp_directory)
        return
    yield from _read_parquet(
        location.seekable, str(location), location.size, columns, batch_rows, groups=location.row_groups
    )


def _read_parquet(
    source: Callable[[], Any],
    place: str,
    size: int,
    columns: Columns,
    batch_rows: int,
    groups: tuple[int, int] | None = None,
) -> Generator[Piece, None, None]:
    def explain(error: Exception) -> SourceError:
        if "string encoding" in str(error) or "UTF" in str(error):
            return SourceError(f"{place} holds text that is not UTF-8. Convert it to UTF-8.")
        return unreadable(place, error)

    from pyarrow.parquet import ParquetFile  # with what it takes to reach object stores: nothing for a CSV file

    # Read in slices: a row group's column may be as large as the file.
    def opened(**options: Any) -> ParquetFile:
        return ParquetFile(source(), buffer_size=_READ_AT_ONCE, pre_buffer=False, **options)

    with ExitStack() as stack:
        file = stack.enter_context(guarded(opened, explain))
        names = guarded(lambda: file.schema_arrow.names, explain)
        _check_schema(names, columns, place)
        wanted = list(columns.names)
        read = range(*groups) if groups is not None else range(guarded(lambda: file.num_row_groups, explain))
        rows = guarded(lambda: sum(file.metadata.row_group(group).num_rows for group in read), explain)
        coded = columns.encodable
        if coded is not None and guarded(lambda: _is_stored_as_codes(file, coded, read), explain):
            again = guarded(lambda: opened(metadata=file.metadata, read_dictionary=[coded]), explain)
            file, batch_rows = stack.enter_context(again), CODED_ROWS * batch_rows
        batches = guarded(
            lambda: file.iter_batches(batch_rows, row_groups=list(read), columns=wanted, use_threads=False), explain
        )
        done = 0
        for batch in guarded_iterator(batches, explain):
            done += batch.num_rows
            yield batch.select(wanted), size * done // max(1, rows)
        if done == 0:
            kinds = guarded(lambda: pa.schema([file.schema_arrow.field(name) for name in wanted]), explain)
            yield nothing_of(kinds), size
    if done != rows:
        raise SourceError(f"{place} is damaged: it does not hold as many rows as it declares. Write it anew.")


def _is_stored_as_codes(file: ParquetFile, name: str, groups: range) -> bool:
    """Say whether a text column of row groups is stored as numbers of values, for the most part.

    What is wrong here costs time alone: a page of plain text is read as codes four times as slowly.
    """
    kind = file.schema_arrow.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return False
    place = next(at for at in range(len(file.schema)) if file.schema.column(at).path == name)
    chunks = [file.metadata.row_group(group).column(place) for group in groups]
    return all(chunk.has_dictionary_page for chunk in chunks) and sum(
        chunk.total_uncompressed_size for chunk in chunks
    ) <= sum(_CODE_BYTES * chunk.num_values + _VALUES_BYTES for chunk in chunks)


def read_arrow(
    location: File | StandardInput, columns: Columns, batch_rows: int, temp_directory: str | None
) -> Generator[Piece, None, None]:
    """Read an Arrow file or stream."""
    match location:
        case File():
            yield from _read_arrow_file(location.seekable, str(location), location.size, columns)
        case StandardInput():
            stream = guarded(lambda: ByteStream(location), lambda error: unreadable(str(location), error))
            with closing(stream):
                head = guarded(lambda: stream.peek(HEAD_BYTES), lambda error: unreadable(str(location), error))
                if head.startswith(_FILE_MAGIC):
                    yield from _spooled(location, columns, batch_rows, temp_directory, stream)
                    return
                _check_piped(head, location)
                yield from _read_arrow_pipe(stream, str(location), columns)


def _read_arrow_file(
    seekable: Callable[[], Any], place: str, size: int, columns: Columns
) -> Generator[Piece, None, None]:
    def explain(error: Exception) -> SourceError:
        return unreadable(place, error)

    def opened_source() -> Any:
        # Mapped: a batch may be as large as the file, and this way the system can take its pages back.
        found = seekable()
        return pa.memory_map(str(found)) if isinstance(found, Path) else found

    with guarded(opened_source, explain) as source:
        as_file = guarded(lambda: source.read(len(_FILE_MAGIC)) == _FILE_MAGIC, explain)
        opened = pyarrow.ipc.open_file if as_file else pyarrow.ipc.open_stream

        def open_with(options: Any) -> Any:
            source.seek(0)
            return opened(source, options=options)

        names = guarded(lambda: open_with(None).schema.names, explain)
        _check_schema(names, columns, place)
        wanted = pyarrow.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns.names])
        reader = guarded(lambda: open_with(wanted), explain)
        if as_file:
            count = reader.num_record_batches
            batches = (reader.get_batch(index) for index in range(count))
            for index, batch in enumerate(guarded_iterator(batches, explain)):
                yield batch, size * (index + 1) // count
        else:
            for batch in guarded_iterator(reader, explain):
                yield batch, source.tell()
        yield nothing_of(reader.schema), size


def _read_arrow_pipe(stream: ByteStream, place: str, columns: Columns) -> Generator[Piece, None, None]:
    def explain(error: Exception) -> SourceError:
        return unreadable(place, error)

    reader = guarded(lambda: pyarrow.ipc.open_stream(pa.PythonFile(stream, "r")), explain)
    _check_schema(reader.schema.names, columns, place)
    for batch in guarded_iterator(reader, explain):
        yield batch.select(list(columns.names)), stream.done
    yield nothing_of(pa.schema([reader.schema.field(name) for name in columns.names])), stream.done


def _spooled(
    location: StandardInput,
    columns: Columns,
    batch_rows: int,
    temp_directory: str | None,
    stream: ByteStream | None = None,
) -> Generator[Piece, None, None]:
    """Write standard input to a file that only this user can open, read it, and remove it."""

    def explain(error: Exception) -> SourceError:
        return unreadable(str(location), error)

    source = stream if stream is not None else guarded(lambda: ByteStream(location), explain)
    with closing(source), private_folder(temp_directory) as folder:
        _check_piped(guarded(lambda: source.peek(HEAD_BYTES), explain), location)
        path = Path(folder) / "piped"

        def spool() -> int:
            with path.open("wb") as target:
                shutil.copyfileobj(source, target, _READ_AT_ONCE)
            return path.stat().st_size

        size = guarded(spool, explain)
        if location.format == "parquet":
            yield from _read_parquet(lambda: path, str(location), size, columns, batch_rows)
        else:
            yield from _read_arrow_file(lambda: path, str(location), size, columns)


def _check_piped(head: bytes, location: StandardInput) -> None:
    if not head:
        raise SourceError(f"{location} is empty: not even its columns are named. Check how it was written.")
    check_magic(head, location, location.format)


def _check_schema(names: list[str], columns: Columns, place: str) -> None:
    for name in columns.names:
        if name not in names:
            raise missing_column(place, name, names, declared=True, compared=columns.only_compares(name))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceError(f"{place} has two columns named {twice[0]!r}. Give each its own name.")
