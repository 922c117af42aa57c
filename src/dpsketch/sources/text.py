"""CSV, TSV and JSON lines, from files and pipes, through Arrow's streaming readers."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Generator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from dpsketch.errors import SourceError
from dpsketch.sources.blocks import BLOCK, BOM, conversion, parsed_blocks
from dpsketch.sources.failures import guarded, guarded_iterator, missing_column, unreadable
from dpsketch.sources.locations import File, StandardInput, check_magic
from dpsketch.sources.streams import ArrayAsLines, ByteStream
from dpsketch.sources.values import Columns

_HEAD = 1 << 20

Piece = tuple[Any, int]
"""A record batch, and the bytes read so far."""


def read_separated(location: File | StandardInput, columns: Columns, separator: str) -> Generator[Piece, None, None]:
    """Read CSV or TSV: every column wanted, as text, an unquoted empty field as null."""
    stream = guarded(lambda: ByteStream(location), lambda error: unreadable(str(location), error))
    odd_row: list[str] = []
    before = 1  # rows, the header is the first

    def note(row: Any) -> str:
        place = f"Row {before + (row.number or 0)}"
        odd_row[:] = [f"{place} has {row.actual_columns} fields, the header has {row.expected_columns}."]
        return "error"

    def explain(error: Exception) -> SourceError:
        return _explain_separated(error, location, odd_row)

    options = pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=note)
    try:
        head = guarded(lambda: stream.peek(_HEAD), explain)
        check_magic(head, location, location.format)
        names, rest = guarded(lambda: _header(head, location, options), explain)
        _check_header(names, columns, location)
        wanted = list(columns.names) or [name for name in names if name][:1]  # folders may name all that is wanted
        if len(head) < _HEAD and not rest.strip(b"\r\n"):
            # Arrow refuses a header without an end of line.
            yield nothing_of(pa.schema([(name, pa.string()) for name in columns.names])), stream.done
            return
        stream.read(len(head) - len(rest))
        pieces = parsed_blocks(stream, names, wanted, separator, ahead=isinstance(location, File))
        for batch, done in guarded_iterator(pieces, explain):
            before += batch.num_rows
            yield batch, done
        if not guarded(lambda: stream.peek(1), explain):
            return
        if guarded(lambda: stream.peek(len(BOM)), explain) == BOM:
            stream.put_back(b"\n")  # see BOM
        reader = guarded(
            lambda: pyarrow.csv.open_csv(
                pa.PythonFile(stream, "r"),
                read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=names),
                parse_options=options,
                convert_options=conversion(wanted),
            ),
            explain,
        )
        for batch in guarded_iterator(reader, explain):
            yield batch, stream.done
    finally:
        stream.close()


def nothing_of(schema: Any) -> Any:
    """Return a record batch without rows: it declares the types of its columns."""
    return pa.record_batch([pa.array([], kind) for kind in schema.types], names=schema.names)


def _header(head: bytes, location: File | StandardInput, options: Any) -> tuple[list[str], bytes]:
    """Return the names in the first row, and the bytes after it."""
    text = head.removeprefix(BOM).lstrip(b"\r\n")
    if not text.strip():
        raise SourceError(f"{location} is empty: not even its columns are named. Check how it was written.")
    # As Arrow reads a row: a quote opens a field at its beginning, and is text elsewhere. Taken for an opening one, it
    # would have the first row go on to the next quote, in whichever record that is.
    field = rb'(?:"[^"]*(?:""[^"]*)*(?:"|\Z))?[^%b\r\n]*' % options.delimiter.encode()
    row = re.match(rb"%b(?:%b%b)*" % (field, options.delimiter.encode(), field), text)
    header = row.group() if row else b""
    if len(header) == len(text) and len(head) == _HEAD:
        raise SourceError(f"{location} has a first row of more than a megabyte. Check its line ends and quotes.")
    if re.match(rb'\s*\{\s*"', header):
        raise SourceError(f"{location} holds JSON. Name it .json, or .jsonl with one object a line.")
    return pyarrow.csv.read_csv(io.BytesIO(header + b"\n"), parse_options=options).schema.names, text[len(header) :]


def _check_header(names: list[str], columns: Columns, location: File | StandardInput) -> None:
    for wanted in columns.names:
        if wanted not in names:
            raise missing_column(str(location), wanted, names, declared=False, compared=columns.only_compares(wanted))
    if any(re.search(r"[\r\n]", name) for name in names if name not in columns.names):
        # A name that goes on to the first quote in the records: where the first row ends would be up to them.
        raise SourceError(
            f"{location} has a quote in its first row that is never closed, or a column that nobody asks for with an "
            "end of line in its name. Correct the row."
        )
    filled = [name for name in names if name]
    if len(set(filled)) < len(filled):
        failure = SourceError(f"{location} has two columns of one name. Give each its own.")
        failure.sensitive_hint = f"Twice: {sorted({name for name in filled if filled.count(name) > 1})}."
        raise failure


def _explain_separated(error: Exception, location: File | StandardInput, odd_row: list[str]) -> SourceError:
    words = str(error)
    if odd_row:
        failure = SourceError(
            f"{location} has a row with more or fewer fields than its header, or a quote that is never closed. "
            "Correct the row; quote fields that hold the separator."
        )
        failure.sensitive_hint = odd_row[0]
        return failure
    if "UTF8" in words or isinstance(error, UnicodeDecodeError):
        return SourceError(f"{location} is not UTF-8 throughout. Convert it to UTF-8.")
    if "straddl" in words or "out of sync" in words:
        return SourceError(
            f"{location} has a row of more than {BLOCK >> 20} MB, or a quote that is never closed. Correct the row."
        )
    return unreadable(str(location), error)


def read_json_lines(location: File | StandardInput, columns: Columns) -> Generator[Piece, None, None]:
    """Read JSON lines, or one array of objects: keys and users as what they begin with, other columns as numbers.

    Values are no schema: keys become text afterwards, unless whole numbers are asked for (:class:`Columns`).
    """
    whole = guarded(lambda: ByteStream(location), lambda error: unreadable(str(location), error))
    stream: ByteStream | ArrayAsLines = whole

    def explain(error: Exception) -> SourceError:
        return _explain_json(error, location, columns)

    try:
        head = guarded(lambda: stream.peek(_HEAD), explain)
        check_magic(head, location, location.format)
        if head.removeprefix(BOM).lstrip()[:1] == b"[":
            if head.startswith(BOM):
                whole.read(len(BOM))
            stream = ArrayAsLines(whole)
            head = guarded(lambda: stream.peek(_HEAD), explain)
        if len(head) < _HEAD and not head.removeprefix(BOM).strip():
            yield nothing_of(pa.schema([(name, pa.string()) for name in columns.names])), stream.done
            return
        schema = guarded(lambda: _json_schema(head, location, columns), explain)
        reader = guarded(
            lambda: pyarrow.json.open_json(
                pa.PythonFile(stream, "r"),
                read_options=pyarrow.json.ReadOptions(use_threads=True, block_size=BLOCK),
                parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            ),
            explain,
        )
        for batch in guarded_iterator(reader, explain):
            yield batch, stream.done
    finally:
        stream.close()


def _json_schema(head: bytes, location: File | StandardInput, columns: Columns) -> Any:
    """Find the type of each key and user from the first value it has; Arrow would read some text as dates."""
    whole = len(head) < _HEAD
    text = head.removeprefix(BOM)
    lines = text.splitlines() if whole else text.splitlines()[:-1]
    seen: dict[str, None] = {}
    types: dict[str, Any] = dict.fromkeys(columns.numbers, pa.float64())
    for line in lines:
        if not line.strip():
            continue
        record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError
        seen |= dict.fromkeys(record)
        for name in columns.identities:
            if name not in types and record.get(name) is not None:
                types[name] = _json_type(record[name], name, location)
        if all(name in types and name in seen for name in columns.names):
            break
    if not columns.names:
        raise SourceError(f"{location}: name a column of the file beside those of its folders.")
    if not seen:
        what = "holds objects without a field" if whole else "has a first line of more than a megabyte"
        raise SourceError(f"{location} {what}. Write one object a line.")
    for name in columns.names:
        if name not in seen:
            raise missing_column(str(location), name, list(seen), declared=False)
        # Nulls alone so far: in a longer file text is as good a guess as any, and a number will be refused.
        types.setdefault(name, pa.null() if whole else pa.string())
    return pa.schema([(name, types[name]) for name in columns.names])


def _json_type(value: object, name: str, location: File | StandardInput) -> Any:
    match value:
        case bool():
            return pa.bool_()
        case float() | list() | dict():
            kind = {float: "a fraction", list: "a list", dict: "an object"}[type(value)]
            raise SourceError(
                f"{location}: column {name!r} holds {kind}. A key or user is a whole number or text; "
                "convert the column, or choose another."
            )
        case int():
            return pa.int64()
        case _:
            return pa.string()


def _explain_json(error: Exception, location: File | StandardInput, columns: Columns) -> SourceError:
    words = str(error)
    changed = re.search(r"Column\(/(.*)\) changed from", words)
    if changed is not None and changed.group(1) in columns.names:
        name = changed.group(1)
        if name in columns.identities:
            return SourceError(
                f"{location}: column {name!r} mixes types. A key or user is a whole number throughout, or text "
                "throughout; make the column one of the two."
            )
        return SourceError(f"{location}: column {name!r} holds something that is not a number. Correct it.")
    if "Failed to convert JSON to int64" in words:
        return SourceError(
            f"{location}: a key or user is a number with a fraction, or one that 64 bits do not hold. Keys and users "
            "are whole numbers or text; write them as text."
        )
    if "straddl" in words:
        return SourceError(f"{location} has a line of more than {BLOCK >> 20} MB. Write one object a line.")
    if "UTF8" in words or isinstance(error, UnicodeDecodeError):
        return SourceError(f"{location} is not UTF-8 throughout. Convert it to UTF-8.")
    if isinstance(error, OSError | EOFError | MemoryError):
        return unreadable(str(location), error)
    return SourceError(
        f"{location} has a line that is not a JSON object. Write one object a line, or one array of objects, and "
        "nothing else."
    )
