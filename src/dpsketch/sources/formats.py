"""Read files and standard input as record batches: only the columns wanted, in memory that does not grow.

Arrow reads CSV, Parquet and its own format. JSON is text to it, one line a record, and DuckDB takes the fields out.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc

from dpsketch.errors import SourceError
from dpsketch.sources.engine import connect, private_folder
from dpsketch.sources.failures import check_columns, guarded_steps, unreadable
from dpsketch.sources.locations import HEAD_BYTES, TEXT_FORMATS, File, StandardInput, check_magic
from dpsketch.sources.values import Columns

__all__ = ["CODED_ROWS", "Piece", "nothing_of", "read_file"]

Piece = tuple[Any, int]
"""A record batch, and the bytes read so far."""

CODED_ROWS = 4
"""Rows of a batch whose keys are a dictionary, times those of others: each batch repeats the values."""

_BLOCK = 2 << 20  # one row has to fit; larger blocks are not faster
_HEAD = 1 << 20
_BOM = b"\xef\xbb\xbf"
_ARROW_FILE = b"ARROW1\x00\x00"
# A column is read as codes if its size says that most of its pages are: text takes four bytes a value for the length
# alone, and writers give up a dictionary that passes a megabyte.
_CODE_BYTES, _VALUES_BYTES = 4, 2 << 20


def read_file(
    location: File | StandardInput, columns: Columns, batch_rows: int, temp_directory: str | None
) -> Generator[Piece, None, None]:
    """Yield the columns wanted of a file or of standard input. A batch without rows declares types."""
    explain = {"csv": _explain_separated, "tsv": _explain_separated, "jsonl": _explain_json}
    return guarded_steps(
        _pieces(location, str(location), columns, batch_rows, temp_directory),
        lambda error: explain.get(location.format, _explain_typed)(error, str(location), columns),
    )


def _pieces(
    location: File | StandardInput, place: str, columns: Columns, batch_rows: int, temp_directory: str | None
) -> Generator[Piece, None, None]:
    if isinstance(location, File) and location.format not in TEXT_FORMATS:
        yield from _typed(location, place, columns, batch_rows)
        return
    with closing(ByteStream(location)) as stream:
        head = stream.peek(_HEAD)
        if not head and location.format != "jsonl":
            raise SourceError(f"{place} is empty: not even its columns are named. Check how it was written.")
        check_magic(head[:HEAD_BYTES], location, location.format)
        if location.format in ("csv", "tsv"):
            yield from _separated(stream, head, place, columns, "," if location.format == "csv" else "\t")
        elif location.format == "arrow" and not head.startswith(_ARROW_FILE):
            yield from _arrow(pa.PythonFile(stream, "r"), lambda: stream.done, place, columns)
        elif location.format == "jsonl" and head.removeprefix(_BOM).lstrip()[:1] != b"[":
            yield from _json(_lines(stream), lambda: stream.done, place, columns)
        else:  # needs a file on a disk: the index of Parquet is at its end, and DuckDB reads an array by its name
            with private_folder(temp_directory) as folder:
                file = _spooled(stream, location, folder)
                if file.format == "jsonl":
                    yield from _json(_array(file), lambda: 0, place, columns)
                else:
                    yield from _typed(file, place, columns, batch_rows)


class ByteStream:
    """The bytes of a text file or of standard input, unpacked, with a look ahead; Arrow takes it for a Python file."""

    def __init__(self, location: File | StandardInput) -> None:
        self._packed = isinstance(location, File) and location.compression is not None
        self._raw = location.opened()
        self._bytes = pa.CompressedInputStream(self._raw, location.compression) if self._packed else self._raw  # type: ignore[union-attr]
        self._owned = isinstance(location, File)
        self._ahead, self._taken = b"", 0
        self.closed = False

    @property
    def done(self) -> int:
        """Bytes read of the file or pipe so far."""
        return self._raw.tell() if self._packed else self._taken

    def peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or all that are left, without taking them."""
        self._ahead += self._fill(size - len(self._ahead))
        return self._ahead[:size]

    def read(self, size: int = sys.maxsize) -> bytes:
        """Return the next ``size`` bytes, fewer only at the end."""
        taken, self._ahead = self._ahead[:size], self._ahead[size:]
        return taken + self._fill(size - len(taken)) if len(taken) < size else taken

    def close(self) -> None:
        """Close the file; standard input stays open, and nothing more is taken of it."""
        self.closed = True  # Arrow reads ahead, also what was refused
        if self._owned:
            self._bytes.close()
            self._raw.close()

    def _fill(self, size: int) -> bytes:
        # A pipe hands out 64 kB at a time; whole blocks make whole batches.
        parts = []
        while size > 0 and not self.closed and (part := self._bytes.read(min(size, _BLOCK))):
            parts.append(part)
            size -= len(part)
            self._taken += len(part)
        return b"".join(parts)


def _spooled(stream: ByteStream, location: File | StandardInput, folder: str) -> File:
    """Write what is piped or packed to a file that only this user can open."""
    if isinstance(location, File) and location.is_plain:
        return location
    path = Path(folder) / "spooled"
    with path.open("wb") as target:
        shutil.copyfileobj(stream, target, _BLOCK)
    return File(path, location.format, None, path.stat().st_size)


def nothing_of(schema: Any) -> Any:
    """Return a record batch without rows: it declares the types of its columns."""
    return pa.record_batch([pa.array([], kind) for kind in schema.types], names=schema.names)


# --- CSV and TSV -----------------------------------------------------------------------------------------------------


def _separated(
    stream: ByteStream, head: bytes, place: str, columns: Columns, separator: str
) -> Generator[Piece, None, None]:
    """Read every column wanted as text, an unquoted empty field as null."""
    options = pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    names, rest = _header(head, place, options)
    check_columns(place, names, columns, declared=False)
    if any(re.search(r"[\r\n]", name) for name in names if name not in columns.names):
        # A name that goes on to the first quote in the records: where the first row ends would be up to them.
        raise SourceError(
            f"{place} has a quote in its first row that is never closed, or a column that nobody asks for with an "
            "end of line in its name. Correct the row."
        )
    if len(head) < _HEAD and not rest.strip(b"\r\n"):  # Arrow refuses a header without an end of line
        yield nothing_of(pa.schema([(name, pa.string()) for name in columns.names])), stream.done
        return
    # The end of the header's line stays: Arrow would drop a byte-order mark from the beginning of what it is handed,
    # and the first record may begin with one.
    stream.read(len(head) - len(rest))
    wanted = list(columns.names) or [name for name in names if name][:1]  # folders may name all that is wanted
    yield from ((batch, stream.done) for batch in _fields(stream, names, wanted, options))


def _fields(stream: ByteStream, names: list[str], wanted: list[str], options: Any) -> Iterator[Any]:
    """Parse bytes into columns of text, on the thread that asks for them."""
    yield from pyarrow.csv.open_csv(
        pa.PythonFile(stream, "r"),
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=names),
        parse_options=options,
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _header(head: bytes, place: str, options: Any) -> tuple[list[str], bytes]:
    """Return the names in the first row, and the bytes after it."""
    text = head.removeprefix(_BOM).lstrip(b"\r\n")
    if not text.strip():
        raise SourceError(f"{place} is empty: not even its columns are named. Check how it was written.")
    # As Arrow reads a row: a quote opens a field at its beginning, and is text elsewhere. Taken for an opening one, it
    # would have the first row go on to the next quote, in whichever record that is.
    field = rb'(?:"[^"]*(?:""[^"]*)*(?:"|\Z))?[^%b\r\n]*' % options.delimiter.encode()
    row = re.match(rb"%b(?:%b%b)*" % (field, options.delimiter.encode(), field), text)
    header = row.group() if row else b""
    if len(header) == len(text) and len(head) == _HEAD:
        raise SourceError(f"{place} has a first row of more than a megabyte. Check its line ends and quotes.")
    if re.match(rb'\s*\{\s*"', header):
        raise SourceError(f"{place} holds JSON. Name it .json, or .jsonl with one object a line.")
    return pyarrow.csv.read_csv(io.BytesIO(header + b"\n"), parse_options=options).schema.names, text[len(header) :]


def _explain_separated(error: Exception, place: str, _: Columns) -> SourceError:
    words = str(error)
    odd_row = re.match(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)", words)
    if odd_row or words.startswith("CSV parse error: Expected"):
        failure = SourceError(
            f"{place} has a row with more or fewer fields than its header, or a quote that is never closed. "
            "Correct the row; quote fields that hold the separator."
        )
        if odd_row:
            number, expected, actual = map(int, odd_row.groups())
            failure.sensitive_hint = f"Row {1 + number} has {actual} fields, the header has {expected}."
        return failure
    if "straddl" in words or "out of sync" in words:
        return SourceError(
            f"{place} has a row of more than {_BLOCK >> 20} MB, or a quote that is never closed. Correct the row."
        )
    return _not_utf8(error, place) or unreadable(place, error)


def _not_utf8(error: Exception, place: str) -> SourceError | None:
    if isinstance(error, UnicodeDecodeError) or re.search("UTF-?8", str(error)):
        return SourceError(f"{place} is not UTF-8 throughout. Convert it to UTF-8.")
    return None


# --- JSON ------------------------------------------------------------------------------------------------------------


def _lines(stream: ByteStream) -> Iterator[Any]:
    """Yield the lines of JSON lines. No JSON text holds the separator, so that a line is one field."""
    if stream.peek(len(_BOM)) == _BOM:
        stream.read(len(_BOM))
    options = pyarrow.csv.ParseOptions(delimiter="\x01", quote_char=False)
    head = stream.peek(_HEAD)
    if len(head) == _HEAD or head.strip():  # of nothing at all, Arrow says that it is no CSV
        yield from _fields(stream, ["json"], ["json"], options)


def _array(file: File) -> Iterator[Any]:
    """Yield the elements of one JSON array."""
    with file.path.open("rb") as tail:
        tail.seek(max(0, file.size - _HEAD))
        if not tail.read().rstrip().endswith(b"]"):  # DuckDB takes an array that is cut short behind a comma
            raise ValueError("the array does not end")
    path = str(file.path.absolute()).translate({ord(mark): f"[{mark}]" for mark in "*?["}).replace("'", "''")
    with connect() as connection:
        yield from connection.sql(
            f"FROM read_json_objects('{path}', format = 'array', compression = 'none', hive_partitioning = false)"
        ).to_arrow_reader(1 << 16)


def _json(lines: Iterator[Any], done: Callable[[], int], place: str, columns: Columns) -> Generator[Piece, None, None]:
    """Take the fields wanted out of JSON objects, as text: values are no schema."""
    if not columns.names:
        raise SourceError(f"{place}: name a column of the file beside those of its folders.")
    objects = "CASE WHEN ltrim(json, ' ' || chr(9)) = '' THEN false WHEN json_type(json) = 'OBJECT' THEN true"
    objects += " ELSE error('no object') END"
    fields = ", ".join(f"{_field(name, columns)} AS c{i}" for i, name in enumerate(columns.names))
    checked = False
    with connect() as connection:
        for batch in lines:
            text = pa.table([batch.column(0).cast(pa.string())], ["json"])
            rows = connection.from_arrow(text).filter(objects)
            if not checked and (held := rows.project("json_keys(json)").fetchall()):
                names = list(dict.fromkeys(name for (names,) in held for name in names))
                check_columns(place, names, columns, declared=False, header=False)
                checked = True
            found = rows.project(fields).to_arrow_table().rename_columns(list(columns.names))
            yield from ((part, done()) for part in found.combine_chunks().to_batches())
    yield nothing_of(pa.schema([(name, pa.string()) for name in columns.names])), done()


def _field(name: str, columns: Columns) -> str:
    """Return the SQL of one field as text; a key or a user is no number that text could write in two ways."""
    path = "'/" + name.replace("~", "~0").replace("/", "~1").replace("'", "''") + "'"
    if name not in columns.identities:
        return f"json ->> {path}"
    refused = {"DOUBLE": "fraction", "ARRAY": "list", "OBJECT": "object"}
    cases = " ".join(
        f"WHEN '{kind}' THEN error('{word} {columns.names.index(name)}')" for kind, word in refused.items()
    )
    return f"CASE json_type(json, {path}) {cases} ELSE json ->> {path} END"


def _explain_json(error: Exception, place: str, columns: Columns) -> SourceError:
    refused = re.match(r"Invalid Input Error: (fraction|list|object) (\d+)", str(error))
    if refused is not None:
        what = {"fraction": "a fraction, or a number that 64 bits do not hold", "list": "a list", "object": "an object"}
        return SourceError(
            f"{place}: column {columns.names[int(refused[2])]!r} holds {what[refused[1]]}. A key or user is a whole "
            "number or text; convert the column, or choose another."
        )
    if "straddl" in str(error):
        return SourceError(f"{place} has a line of more than {_BLOCK >> 20} MB. Write one object a line.")
    if isinstance(error, OSError | EOFError | MemoryError) and "JSON" not in str(error):
        return unreadable(place, error)
    return _not_utf8(error, place) or SourceError(
        f"{place} has a line that is not a JSON object. Write one object a line, or one array of objects, and nothing "
        "else."
    )


# --- Parquet and Arrow -----------------------------------------------------------------------------------------------


def _typed(file: File, place: str, columns: Columns, batch_rows: int) -> Generator[Piece, None, None]:
    if file.format == "parquet":
        yield from _parquet(file, place, columns, batch_rows)
        return
    # Mapped: a batch may be as large as the file, and this way the system can take its pages back.
    with pa.memory_map(str(file.path)) if file.is_plain else file.seekable() as source:
        yield from _arrow(source, source.tell, place, columns)


def _explain_typed(error: Exception, place: str, _: Columns) -> SourceError:
    if "string encoding" in str(error) or "UTF" in str(error):
        return SourceError(f"{place} holds text that is not UTF-8. Convert it to UTF-8.")
    return unreadable(place, error)


def _parquet(file: File, place: str, columns: Columns, batch_rows: int) -> Generator[Piece, None, None]:
    from pyarrow.parquet import ParquetFile  # with what it takes to reach object stores: nothing for a CSV file

    # Read in slices: a row group's column may be as large as the file.
    def opened(**options: Any) -> ParquetFile:
        return stack.enter_context(ParquetFile(file.seekable(), buffer_size=_HEAD, pre_buffer=False, **options))

    with ExitStack() as stack:
        source = opened()
        check_columns(place, source.schema_arrow.names, columns, declared=True)
        wanted, rows, done = list(columns.names), source.metadata.num_rows, 0
        if columns.encodable is not None and _is_stored_as_codes(source, columns.encodable):
            source = opened(metadata=source.metadata, read_dictionary=[columns.encodable])
            batch_rows *= CODED_ROWS
        for batch in source.iter_batches(batch_rows, columns=wanted, use_threads=False):
            done += batch.num_rows
            yield batch.select(wanted), file.size * done // max(1, rows)
        if done != rows:
            raise SourceError(f"{place} is damaged: it does not hold as many rows as it declares. Write it anew.")
        if not done:
            yield nothing_of(pa.schema([source.schema_arrow.field(name) for name in wanted])), file.size


def _is_stored_as_codes(source: Any, name: str) -> bool:
    """Say whether a text column is stored as numbers of values, for the most part.

    What is wrong here costs time alone: a page of plain text is read as codes four times as slowly.
    """
    kind = source.schema_arrow.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return False
    at = next(at for at in range(len(source.schema)) if source.schema.column(at).path == name)
    chunks = [source.metadata.row_group(group).column(at) for group in range(source.num_row_groups)]
    return all(chunk.has_dictionary_page for chunk in chunks) and sum(
        chunk.total_uncompressed_size for chunk in chunks
    ) <= sum(_CODE_BYTES * chunk.num_values + _VALUES_BYTES for chunk in chunks)


def _arrow(source: Any, done: Callable[[], int], place: str, columns: Columns) -> Generator[Piece, None, None]:
    """Read an Arrow stream, or a file if the source can be read at any place."""
    piped, wanted = isinstance(source, pa.PythonFile), list(columns.names)

    def opened(options: Any = None) -> Any:
        if piped:
            return pyarrow.ipc.open_stream(source)
        source.seek(0)
        as_file = source.read(len(_ARROW_FILE)) == _ARROW_FILE
        source.seek(0)
        return (pyarrow.ipc.open_file if as_file else pyarrow.ipc.open_stream)(source, options=options)

    reader = opened()
    names = reader.schema.names
    check_columns(place, names, columns, declared=True)
    if not piped:  # others may be packed, and would be unpacked
        reader = opened(pyarrow.ipc.IpcReadOptions(included_fields=[names.index(name) for name in wanted]))
    random = hasattr(reader, "get_batch")
    for batch in map(reader.get_batch, range(reader.num_record_batches)) if random else reader:
        yield batch.select(wanted), done()
    yield nothing_of(pa.schema([reader.schema.field(name) for name in wanted])), done()
