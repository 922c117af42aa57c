"""One report on the wire: compact bytes, a JSON object, or a row of an Arrow table.

The bytes are, all little-endian: a version (1 byte), the fingerprint of the spec (8), the report's identifier (16),
then the protocol's own fields in their order. All reports of a spec have the same length. The JSON form has the members
``dpsketch`` (the version), ``spec`` and ``id`` (hexadecimal), and one for each field: a number, or hexadecimal text for
a field of bytes. The identifier is 128 random bits that the client drew for this report alone; it says nothing about
the person, and lets a collector refuse a report that it has already counted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch._arrow_stream import read_flat
from dpsketch.errors import FileRefused, InvalidInput

__all__ = ["WIRE_VERSION", "Columns", "Fault", "Field", "Form", "ParsedMessages"]

WIRE_VERSION = 1
ID_BYTES = 16
SPEC_BYTES = 8
HEAD_BYTES = 1 + SPEC_BYTES

Columns = dict[str, npt.NDArray[Any]]
"""The reports of a batch: ``id`` (n × 2 words) and one array a field, n numbers or n × size bytes."""

Fault = Literal["malformed", "other_spec"]
"""Why a message is not a report of a spec."""

_ARROW_TYPES = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32()}
_LARGEST_JSON = 1 << 20


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a report: a whole number of 1, 2 or 4 bytes, or ``size`` raw bytes.

    A number lies below ``limit``, and no bit of raw bytes is set from it on (counted from the lowest of the first).
    """

    name: str
    size: int
    raw: bool = False
    limit: int | None = None

    @classmethod
    def bits(cls, name: str, count: int) -> Field:
        """Return a field of so many bits, in whole bytes."""
        return cls(name, -(-count // 8), raw=True, limit=count)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The field's type in a batch."""
        return np.dtype(np.uint8) if self.raw else np.dtype(f"<u{self.size}")

    def within(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Say which values of a batch keep to the limit."""
        fits = np.ones(len(values), np.bool_)
        if self.limit is None or (self.raw and self.limit % 8 == 0):
            return fits
        fits &= values[:, -1] >> (self.limit % 8) == 0 if self.raw else values < self.limit
        return fits


@dataclass(frozen=True, slots=True, eq=False)
class ParsedMessages:
    """Messages taken apart: those that have the form, and how many do not."""

    columns: Columns
    other_spec: int
    malformed: int


@dataclass(frozen=True)
class Form:
    """The form of the reports of one spec: its fingerprint and its fields."""

    fingerprint: str
    fields: tuple[Field, ...]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The layout of one report in bytes."""
        parts: list[Any] = [("version", "u1"), ("spec", "u1", (SPEC_BYTES,)), ("id", "<u8", (2,))]
        parts.extend(
            (field.name, "u1", (field.size,)) if field.raw else (field.name, field.dtype) for field in self.fields
        )
        return np.dtype(parts)

    @cached_property
    def size(self) -> int:
        """The length of one report in bytes."""
        return self.dtype.itemsize

    @cached_property
    def head(self) -> bytes:
        """What every report of the spec begins with: the version and the fingerprint."""
        return bytes([WIRE_VERSION]) + bytes.fromhex(self.fingerprint)

    def to_bytes(self, columns: Columns) -> bytes:
        """Return the reports of a batch, one after the other."""
        records = np.zeros(len(columns["id"]), self.dtype)
        records["version"] = WIRE_VERSION
        records["spec"] = np.frombuffer(bytes.fromhex(self.fingerprint), np.uint8)
        for name, values in columns.items():
            records[name] = values
        return records.tobytes()

    def to_json(self, columns: Columns) -> list[dict[str, Any]]:
        """Return the reports of a batch as JSON objects."""
        identifiers = _hexadecimal(columns["id"].astype("<u8").view(np.uint8).reshape(-1, ID_BYTES))
        values = {
            field.name: _hexadecimal(columns[field.name]) if field.raw else columns[field.name].tolist()
            for field in self.fields
        }
        return [
            {"dpsketch": WIRE_VERSION, "spec": self.fingerprint, "id": identifier}
            | {name: column[i] for name, column in values.items()}
            for i, identifier in enumerate(identifiers)
        ]

    def parse(self, messages: list[Any]) -> ParsedMessages:
        """Take messages apart, each bytes or a JSON object (as text, or decoded); nothing of them is quoted."""
        found = [self.record(message) for message in messages]
        records = [each for each in found if isinstance(each, bytes)]
        other = found.count("other_spec")
        return ParsedMessages(self.from_bytes(b"".join(records)), other, len(found) - len(records) - other)

    def record(self, message: Any) -> bytes | Fault:
        """Return one message as the bytes of a report, or say why it is none of this spec."""
        record = message if isinstance(message, bytes | bytearray | memoryview) else self._from_json(message)
        if record is None or len(record) < HEAD_BYTES or record[0] != WIRE_VERSION:
            return "malformed"
        if bytes(record[:HEAD_BYTES]) != self.head:
            return "other_spec"
        return bytes(record) if len(record) == self.size else "malformed"

    def split(self, data: bytes) -> ParsedMessages:
        """Take apart compact reports that lie one after the other; a part of one at the end is malformed."""
        whole = len(data) // self.size
        rows = np.frombuffer(data, np.uint8, whole * self.size).reshape(whole, self.size)
        ours = (rows[:, :HEAD_BYTES] == np.frombuffer(self.head, np.uint8)).all(axis=1)
        version = rows[:, 0] == WIRE_VERSION
        other = int(np.count_nonzero(version & ~ours))
        malformed = int(np.count_nonzero(~version)) + (len(data) % self.size > 0)
        return ParsedMessages(self.from_bytes(rows[ours].tobytes()), other, malformed)

    def from_stream(self, data: bytes) -> ParsedMessages:
        """Take apart an Arrow IPC stream of reports from someone one does not trust.

        What pyarrow trusts is checked here instead, byte by byte (see :mod:`dpsketch._arrow_stream`). A stream that is
        none is one malformed message. So is each report of one whose noise was for tests only: it protects nobody.
        """
        try:
            stream = read_flat(data)
        except FileRefused:
            return ParsedMessages(self.from_bytes(b""), 0, 1)
        rows = max(1, stream.rows)
        if stream.metadata.get(b"dpsketch.local.spec") != self.fingerprint.encode():
            return ParsedMessages(self.from_bytes(b""), rows, 0)
        names = ["id", *(field.name for field in self.fields)]
        sizes = {"id": ("bytes", ID_BYTES)}
        sizes |= {field.name: ("bytes" if field.raw else "uint", field.size) for field in self.fields}
        if b"dpsketch.local.noise" in stream.metadata or stream.types != sizes:
            return ParsedMessages(self.from_bytes(b""), 0, rows)
        columns = {name: np.frombuffer(stream.columns[name], np.uint8).reshape(-1, sizes[name][1]) for name in names}
        parsed: Columns = {"id": columns["id"].view("<u8")}
        for field in self.fields:
            parsed[field.name] = columns[field.name] if field.raw else columns[field.name].view(field.dtype).ravel()
        return ParsedMessages(parsed, 0, 0)

    def from_bytes(self, data: bytes) -> Columns:
        """Take apart whole reports that are known to be of this spec."""
        records = np.frombuffer(data, self.dtype)
        names = ["id", *(field.name for field in self.fields)]
        return {name: np.ascontiguousarray(records[name]) for name in names}

    def by_identifier(self, data: bytes) -> bytes:
        """Put compact reports in the order of their identifiers, which says nothing about when they came."""
        records = np.frombuffer(data, self.dtype)
        return records[np.lexsort((records["id"][:, 0], records["id"][:, 1]))].tobytes()

    def _from_json(self, message: Any) -> bytes | None:
        """Turn a JSON object into the report's bytes; of one with another spec, the head alone; None if malformed."""
        if isinstance(message, str):
            if len(message) > _LARGEST_JSON:
                return None
            try:
                message = json.loads(message)
            except (ValueError, RecursionError):
                return None
        if not isinstance(message, dict) or type(message.get("dpsketch")) is not int:
            return None
        spec = _raw(message.get("spec"), SPEC_BYTES)
        if message["dpsketch"] != WIRE_VERSION or spec is None:
            return None
        head = bytes([WIRE_VERSION]) + spec
        if head != self.head:
            return head
        identifier = _raw(message.get("id"), ID_BYTES)
        if identifier is None or len(message) != 3 + len(self.fields):
            return None
        parts = [head, identifier]
        for field in self.fields:
            value = message.get(field.name)
            if field.raw:
                part = _raw(value, field.size)
            elif type(value) is int and 0 <= value < 1 << 8 * field.size:
                part = value.to_bytes(field.size, "little")
            else:
                part = None
            if part is None:
                return None
            parts.append(part)
        return b"".join(parts)

    def to_table(self, columns: Columns, *, for_tests: bool) -> pa.Table:
        """Return the reports of a batch as an Arrow table; its metadata name the spec."""
        arrays = [_fixed_binary(columns["id"].astype("<u8").view(np.uint8).reshape(-1, ID_BYTES), ID_BYTES)]
        for field in self.fields:
            values = columns[field.name]
            arrays.append(_fixed_binary(values, field.size) if field.raw else pa.array(values.astype(field.dtype)))
        metadata = {"dpsketch.local.spec": self.fingerprint, "dpsketch.local.version": str(WIRE_VERSION)}
        if for_tests:
            metadata["dpsketch.local.noise"] = "for tests only"
        return pa.table(arrays, schema=self._schema().with_metadata(metadata))

    def from_table(self, table: Any) -> tuple[Columns | None, bool]:
        """Take an Arrow table apart; None if it is of another spec. Also say whether its noise was for tests only."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise InvalidInput("reports must be an Arrow table as report() returns it; bytes and JSON go to receive().")
        metadata = table.schema.metadata or {}
        if metadata.get(b"dpsketch.local.spec") != self.fingerprint.encode():
            return None, False
        if not table.schema.equals(self._schema()) or any(column.null_count for column in table.columns):
            raise InvalidInput("the table does not have the columns of a report of this spec, without nulls.")
        columns: Columns = {"id": _from_binary(table["id"], ID_BYTES).view("<u8").reshape(-1, 2)}
        for field in self.fields:
            column = table[field.name]
            columns[field.name] = _from_binary(column, field.size) if field.raw else column.to_numpy()
        return columns, b"dpsketch.local.noise" in metadata

    def _schema(self) -> pa.Schema:
        own = [(field.name, pa.binary(field.size) if field.raw else _ARROW_TYPES[field.size]) for field in self.fields]
        return pa.schema([("id", pa.binary(ID_BYTES)), *own])


def _raw(text: Any, size: int) -> bytes | None:
    """Return bytes from exactly 2·size hexadecimal digits."""
    if not isinstance(text, str) or len(text) != 2 * size:
        return None
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return None
    return data if len(data) == size else None


def _hexadecimal(rows: npt.NDArray[np.uint8]) -> list[str]:
    return [row.tobytes().hex() for row in rows]


def _fixed_binary(rows: npt.NDArray[np.uint8], size: int) -> pa.Array:
    flat = np.ascontiguousarray(rows, np.uint8)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(flat), [None, pa.py_buffer(flat)])


def _from_binary(column: pa.ChunkedArray, size: int) -> npt.NDArray[np.uint8]:
    parts = [
        np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * size, chunk.offset * size)
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate(parts).reshape(-1, size) if parts else np.empty((0, size), np.uint8)
