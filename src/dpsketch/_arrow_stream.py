"""Take apart an Arrow IPC stream that nobody vouches for.

Arrow's own readers are fast and trust what they read: a forged length can crash the process that hosts them. This
module reads the small part of the format that :mod:`dpsketch.files` writes (one schema, one record batch, each column
one list of plain values), in Python and with every offset checked, so that the worst a file can do is to be refused.
Nothing is copied: columns are views into the file's bytes.

References
----------
The Arrow columnar format, version 1.5, sections "Serialization and Interprocess Communication" and "Format Metadata"
(the tables of Schema.fbs and Message.fbs, whose slot numbers are used below), and the FlatBuffers internals page.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from dpsketch.errors import FileRefused

__all__ = [
    "CONTINUATION",
    "FIXED_BITS",
    "MAX_COLUMNS",
    "Column",
    "Flat",
    "Schema",
    "forged",
    "read_batch",
    "read_flat",
    "read_schema",
]

CONTINUATION = b"\xff\xff\xff\xff"
MAX_COLUMNS = 256

FIXED_BITS = {"bool": 1, "float32": 32, "float64": 64} | {
    f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)
}
"""The bits one stored value takes, for the types that have a fixed width."""

# How an integer of so many bytes is read at a place, unsigned and signed.
_INTEGERS = {
    (size, signed): Struct("<" + (letter if signed else letter.upper())).unpack_from
    for size, letter in {1: "b", 2: "h", 4: "i", 8: "q"}.items()
    for signed in (False, True)
}
_END_OF_STREAM = CONTINUATION + bytes(4)
_VERSION_5 = 4
_SCHEMA, _RECORD_BATCH = 1, 3
_INT, _FLOAT, _BOOL, _FIXED_BYTES, _LARGE_BINARY, _LARGE_TEXT, _LARGE_LIST = 2, 3, 6, 15, 19, 20, 21


def forged(reason: str) -> FileRefused:
    """Return the refusal of a file whose digest is right and whose content dpsketch never writes."""
    return FileRefused(
        f"the file is forged or was made by a faulty program: {reason}. Do not use it; ask its publisher for another."
    )


@dataclass(frozen=True, slots=True)
class Column:
    """One stored list: ``length`` values as raw little-endian bytes; text and bytes also have 64-bit offsets."""

    storage: str
    length: int
    values: memoryview
    offsets: memoryview


class _Table:
    """A FlatBuffers table inside one message; no read leaves the message."""

    __slots__ = ("_data", "_position", "_slots", "_slots_size")

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self._position = position
        self._slots = position - self._integer(position, 4, signed=True)
        self._slots_size = self._integer(self._slots, 2)

    def _integer(self, position: int, size: int, *, signed: bool = False) -> int:
        if position < 0 or position + size > len(self._data):
            raise forged("its Arrow metadata points outside itself")
        number: int = _INTEGERS[size, signed](self._data, position)[0]
        return number

    def _find(self, slot: int) -> int | None:
        entry = 4 + 2 * slot
        if entry + 2 > self._slots_size:
            return None
        offset = self._integer(self._slots + entry, 2)
        return self._position + offset if offset else None

    def _follow(self, slot: int) -> int | None:
        position = self._find(slot)
        return None if position is None else position + self._integer(position, 4)

    def has(self, slot: int) -> bool:
        return self._find(slot) is not None

    def number(self, slot: int, size: int) -> int:
        """Return a signed number, 0 where the slot is empty."""
        position = self._find(slot)
        return 0 if position is None else self._integer(position, size, signed=True)

    def table(self, slot: int) -> _Table:
        position = self._follow(slot)
        if position is None:
            raise forged("its Arrow metadata lacks a part")
        return _Table(self._data, position)

    def _vector(self, slot: int, size: int) -> tuple[int, int]:
        position = self._follow(slot)
        if position is None:
            return 0, 0
        count = self._integer(position, 4)
        if count * size > len(self._data) - position - 4:
            raise forged("its Arrow metadata has a list longer than itself")
        return position + 4, count

    def text(self, slot: int) -> bytes:
        start, count = self._vector(slot, 1)
        return bytes(self._data[start : start + count])

    def tables(self, slot: int) -> list[_Table]:
        start, count = self._vector(slot, 4)
        if count > MAX_COLUMNS:
            raise forged(f"it has more than {MAX_COLUMNS} columns")
        places = range(start, start + 4 * count, 4)
        return [_Table(self._data, place + self._integer(place, 4)) for place in places]

    def pairs(self, slot: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two 64-bit numbers."""
        start, count = self._vector(slot, 16)
        places = range(start, start + 16 * count, 16)
        return [(self._integer(at, 8, signed=True), self._integer(at + 8, 8, signed=True)) for at in places]


def _message(data: memoryview, start: int, kind: int) -> tuple[_Table, int, int]:
    """Return a message's content, where its body begins, and where that ends."""
    if bytes(data[start : start + 4]) != CONTINUATION or len(data) < start + 8:
        raise forged("an Arrow message is missing")
    body = start + 8 + int.from_bytes(data[start + 4 : start + 8], "little")
    if body % 8 or body > len(data):
        raise forged("an Arrow message has a forged length")
    metadata = data[start + 8 : body]
    if len(metadata) < 8:
        raise forged("an Arrow message is too short")
    message = _Table(metadata, int.from_bytes(metadata[:4], "little"))
    if message.number(0, 2) != _VERSION_5:
        raise forged("its Arrow metadata is not of version 5")
    if message.number(1, 1) != kind:
        raise forged("its Arrow messages are not one schema and one record batch")
    length = message.number(3, 8)
    if not 0 <= length <= len(data) - body:
        raise forged("an Arrow message has a forged length")
    return message.table(2), body, body + length


def _storage(field: _Table) -> str:
    """Return the name of a plain value type."""
    kind = field.number(2, 1)
    if kind == _BOOL:
        return "bool"
    if kind == _LARGE_BINARY:
        return "bytes"
    if kind == _LARGE_TEXT:
        return "text"
    if kind == _FLOAT:
        name = {1: "float32", 2: "float64"}.get(field.table(3).number(0, 2), "")
    elif kind == _INT:
        parameters = field.table(3)
        name = f"{'' if parameters.number(1, 1) else 'u'}int{parameters.number(0, 4)}"
    else:
        name = ""
    if name not in FIXED_BITS:
        raise forged("a column has a type that dpsketch does not use")
    return name


@dataclass(frozen=True, slots=True)
class Schema:
    """The first message: its metadata, and its columns once the metadata has said that they are ours to read."""

    metadata: dict[bytes, bytes]
    end: int
    _table: _Table

    def columns(self) -> dict[str, str]:
        """Return each column's name and the type of its values, in the stream's order."""
        columns: dict[str, str] = {}
        for field in self._table.tables(1):
            children = field.tables(5)
            if field.number(2, 1) != _LARGE_LIST or len(children) != 1 or children[0].tables(5):
                raise forged("a column is not one list of plain values")
            if field.has(4) or children[0].has(4):
                raise forged("a column has a dictionary")
            name = field.text(0).decode("ascii", "replace")
            if name in columns:
                raise forged("two columns have one name")
            columns[name] = _storage(children[0])
        return columns


def read_schema(data: memoryview) -> Schema:
    """Read the stream's first message."""
    schema, _, end = _message(data, 0, _SCHEMA)
    if schema.number(0, 2):
        raise forged("its numbers are big-endian")
    metadata: dict[bytes, bytes] = {}
    for entry in schema.tables(2):
        key = entry.text(0)
        if key in metadata:
            raise forged("its Arrow metadata names a key twice")
        metadata[key] = entry.text(1)
    return Schema(metadata, end, schema)


def read_batch(data: memoryview, begin: int, types: dict[str, str]) -> dict[str, Column]:
    """Read the stream's only record batch, of one row, and check that nothing follows it."""
    batch, start, end = _message(data, begin, _RECORD_BATCH)
    if bytes(data[end : end + 9]) != _END_OF_STREAM:
        raise forged("something follows its only record batch")
    if batch.has(3):
        raise forged("its buffers are compressed, and a small file could unfold to any size")
    nodes, places = batch.pairs(1), batch.pairs(2)
    variable = sum(storage not in FIXED_BITS for storage in types.values())
    if len(nodes) != 2 * len(types) or len(places) != 4 * len(types) + variable:
        raise forged("its record batch does not match its schema")
    if batch.number(0, 8) != bool(types):
        raise forged("its record batch has not one row")
    body = data[start:end]
    buffers = iter(_buffers(body, places))
    columns = {}
    for index, (name, storage) in enumerate(types.items()):
        (rows, row_nulls), (length, nulls) = nodes[2 * index : 2 * index + 2]
        if rows != 1 or row_nulls or nulls or length < 0:
            raise forged("a column has missing values or not one row")
        row_validity, row_offsets, validity = next(buffers), next(buffers), next(buffers)
        if row_validity or validity:
            raise forged("a column marks missing values")
        if bytes(row_offsets[:16]) != bytes(8) + length.to_bytes(8, "little"):
            raise forged("a column's list does not cover its values")
        offsets = body[:0] if storage in FIXED_BITS else next(buffers)
        columns[name] = _column(storage, length, next(buffers), offsets)
    return columns


def _buffers(body: memoryview, places: list[tuple[int, int]]) -> list[memoryview]:
    """Cut the body; buffers lie in order and apart, so that no byte is unfolded twice."""
    buffers = []
    free = 0
    for offset, length in places:
        if offset < free or offset % 8 or length < 0 or offset + length > len(body):
            raise forged("a buffer lies outside the file or over another")
        free = offset + length
        buffers.append(body[offset:free])
    return buffers


def _column(storage: str, length: int, values: memoryview, offsets: memoryview) -> Column:
    """Trim a column's buffers to the bytes its length needs."""
    if storage in FIXED_BITS:
        needed = -(-length * FIXED_BITS[storage] // 8)
        if needed > len(values):
            raise forged("a column has a forged length: it is longer than its buffer")
        return Column(storage, length, values[:needed], offsets)
    needed = 8 * (length + 1)
    if length == 0 and not offsets:  # Arrow lets an empty list of texts go without offsets
        return Column(storage, 0, values[:0], memoryview(bytes(8)))
    if needed > len(offsets):
        raise forged("a column has a forged length: it is longer than its buffer")
    return Column(storage, length, values, offsets[:needed])


@dataclass(frozen=True, slots=True)
class Flat:
    """A stream of plain columns: each column's kind ("uint" or "bytes") and width, and its values as raw bytes."""

    metadata: dict[bytes, bytes]
    types: dict[str, tuple[str, int]]
    rows: int
    columns: dict[str, bytes]


def read_flat(data: bytes) -> Flat:
    """Read a stream of any number of record batches whose columns are unsigned integers or bytes of one length.

    Nothing may be missing, compressed or encoded by a dictionary. The stream may end with its last batch, as a
    connection that is closed does.
    """
    view = memoryview(data)
    schema = read_schema(view)
    types: dict[str, tuple[str, int]] = {}
    for field in schema._table.tables(1):
        name = field.text(0).decode("ascii", "replace")
        if name in types or field.has(4) or field.tables(5):
            raise forged("a column is not one of plain values, or two have one name")
        types[name] = _flat_type(field)
    if not types:
        raise forged("it has no columns, so that nothing bounds the rows it claims")
    parts: dict[str, list[memoryview]] = {name: [] for name in types}
    at, rows = schema.end, 0
    while at < len(view) and bytes(view[at : at + 8]) != _END_OF_STREAM:
        batch, start, at = _message(view, at, _RECORD_BATCH)
        if batch.has(3):
            raise forged("its buffers are compressed, and a small stream could unfold to any size")
        nodes, places = batch.pairs(1), batch.pairs(2)
        length = batch.number(0, 8)
        if len(nodes) != len(types) or len(places) != 2 * len(types) or any(node != (length, 0) for node in nodes):
            raise forged("its record batch does not match its schema, or has missing values")
        buffers = _buffers(view[start:at], places)
        for (name, (_, width)), values in zip(types.items(), buffers[1::2], strict=True):
            if not 0 <= length * width <= len(values):
                raise forged("a column has a forged length: it is longer than its buffer")
            parts[name].append(values[: length * width])
        rows += length
    return Flat(schema.metadata, types, rows, {name: b"".join(values) for name, values in parts.items()})


def _flat_type(field: _Table) -> tuple[str, int]:
    """Return the kind and the width in bytes of a column."""
    kind, parameters = field.number(2, 1), field.table(3)
    if kind == _FIXED_BYTES and (width := parameters.number(0, 4)) > 0:
        return "bytes", width
    if kind == _INT and not parameters.number(1, 1) and (bits := parameters.number(0, 4)) in (8, 16, 32, 64):
        return "uint", bits // 8
    raise forged("a column has a type that dpsketch does not use")
