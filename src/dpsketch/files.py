"""The file format: one codec for public releases (``*.dps``) and sensitive sketches (``*.sketch``).

A file is an Arrow IPC stream, uncompressed, with one record batch of one row. Each named array is one column, a list of
its values in C order; integers are stored in the narrowest type that holds them. The schema's metadata has one key,
``dpsketch``, whose value is a JSON header: the format's version, the kind, whether the file is sensitive, each array's
shape and type, what the kind adds, and a SHA-256 over the whole file with the digest's own 64 characters set to ``0``.

The codec knows no kinds: it writes and reads a :class:`Document`, and :mod:`dpsketch.kinds` gives it meaning. Reading
trusts nothing. The digest is found by a text search and checked before any parser runs; it shows damage, not fraud, so
everything behind it is checked as well (see :mod:`dpsketch._arrow_stream`). No pickle, no code, no compression.

The bytes are a function of the document alone: no time, no host, no order of a dictionary. They go through pyarrow's
writer; the vectors under ``tests/vectors/files`` fail if a version of it lays them out differently.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch._arrow_stream import (
    CONTINUATION,
    FIXED_BITS,
    MAX_COLUMNS,
    Column,
    forged,
    read_batch,
    read_schema,
)
from dpsketch.errors import FileRefused, InvalidInput, SensitiveData

__all__ = [
    "FORMAT_VERSION",
    "MAX_HEADER",
    "MAX_VALUES",
    "Document",
    "decode",
    "encode",
    "read",
    "rebuilt",
    "remove_left",
    "sync_folder",
    "write",
]

FORMAT_VERSION = 1
MAX_VALUES = 1 << 40
"""No array has more values than this, its empty dimensions counted as 1."""
KEY = b"dpsketch"
"""The one key of the metadata in a file's first message."""
MAX_HEADER = 1 << 20
"""The Arrow schema message, with the JSON header in it, is at most so many bytes."""
DAMAGED = (
    "the file is damaged: it was cut short or altered after it was written (its SHA-256 does not match). "
    "Copy it again, or make it again."
)
NOT_OURS = "this is not a dpsketch file. Give a release (*.dps) or a sketch (*.sketch) that dpsketch wrote."
_MARKER = b'"sha256":"'
_MARKED = re.compile(_MARKER + rb'([0-9a-f]{64})"')

Array = npt.NDArray[Any] | list[str] | list[bytes]

_BESIDE = ".dpsketch-"
_MAX_DIMENSIONS = 8
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_FIRST = 1 << 16  # what is read to see whether a file is ours
_PIECE = 1 << 16
_ZEROS = b"0" * 64  # what stands in the place of the digest while it is worked out
_MAX_DEPTH = 32
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Stored(Mapping[str, Array]):
    """Arrays that were read; integers become as wide as their type says when they are asked for.

    Eight bytes for each counter of a table take longer than to read and check its file.
    """

    def __init__(self, stored: dict[str, Array], types: dict[str, str]) -> None:
        self._arrays, self._types = stored, types

    def __getitem__(self, name: str) -> Array:
        array = self._arrays[name]
        if isinstance(array, np.ndarray) and array.dtype != self._types[name]:
            array = array.astype(self._types[name])
            array.setflags(write=False)
            self._arrays[name] = array
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def stored(self, name: str) -> Array | None:
        """Return an array as narrow as it is."""
        return self._arrays.get(name)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Document:
    """What a file holds.

    Attributes
    ----------
    kind : str
        Which kind of sketch or release it is.
    sensitive : bool
        Whether the content is inside the trust boundary. Such a file is readable by its owner only, and is refused
        where a release is wanted.
    header : dict
        JSON-ready values: dictionaries with text keys, lists, text, finite floats, integers of 64 bits, booleans, None.
    arrays : mapping
        NumPy arrays of integers, floats (32 or 64 bits) or booleans of any shape, and lists of text or of bytes.
        Those that were read are read-only.
    """

    kind: str
    sensitive: bool
    header: dict[str, Any]
    arrays: Mapping[str, Array]

    def stored(self, name: str) -> Array | None:
        """Return an array, integers in the type that the file has them in; None if there is none of the name."""
        return self.arrays.stored(name) if isinstance(self.arrays, _Stored) else self.arrays.get(name)

    def __repr__(self) -> str:
        return f"Document(kind={self.kind!r}, sensitive={self.sensitive}, arrays={sorted(self.arrays)})"


def encode(document: Document) -> bytes:
    """Return the bytes of a document; equal documents give equal bytes.

    Raises
    ------
    InvalidInput
        Where the document holds what the format does not; no value is quoted.

    Examples
    --------
    >>> data = encode(Document("counts", False, {"seed": 7}, {"table": np.arange(6).reshape(2, 3)}))
    >>> decode(data, allow_sensitive=False).arrays["table"].tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    if not _KIND.fullmatch(document.kind):
        raise InvalidInput("a file's kind is a short name in lower case, as in 'counts'.")
    if not isinstance(document.sensitive, bool):  # anything else could be taken for "public"
        raise InvalidInput("say whether the file is sensitive with True or False.")
    fault = _header_fault(document.header, 1) if isinstance(document.header, dict) else "no dictionary"
    if fault:
        raise InvalidInput(f"the file's header holds {fault}, which the format does not take.")
    if len(document.arrays) > MAX_COLUMNS:
        raise InvalidInput(f"a file holds at most {MAX_COLUMNS} arrays.")
    described, fields, columns = {}, [], []
    for name in sorted(document.arrays):
        if not _NAME.fullmatch(name):
            raise InvalidInput("an array's name is a letter followed by letters, digits or underscores, 64 at most.")
        shape, dtype, values = _stored(name, document.arrays[name])
        if fault := _shape_fault(shape):
            raise InvalidInput(f"array {name!r} cannot be written: {fault}.")
        described[name] = {"shape": shape, "dtype": dtype}
        kind = pa.large_list(pa.field("item", values.type, nullable=False))
        fields.append(pa.field(name, kind, nullable=False))
        columns.append(pa.LargeListArray.from_arrays(_column(np.array([0, len(values)])), values, type=kind))
    text = _header_text(
        {
            "format_version": FORMAT_VERSION,
            "kind": document.kind,
            "sensitive": document.sensitive,
            "arrays": described,
            "header": document.header,
        }
    )
    schema = pa.schema(fields, metadata={KEY: text})
    if schema.serialize().size > MAX_HEADER:
        raise InvalidInput(f"the file's header is larger than {MAX_HEADER} bytes; put long lists into arrays.")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=None)) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    data = memoryview(sink.getvalue())
    place = _digest_place(data)
    return b"".join((data[:place], _digest(data, place), data[place + 64 :]))


def decode(data: bytes | memoryview, *, allow_sensitive: bool) -> Document:
    """Return the document in ``data``, whoever wrote it.

    Raises
    ------
    FileRefused
        Not a dpsketch file, damaged, of a newer format, or forged: each has its own sentence.
    SensitiveData
        The file is marked sensitive and ``allow_sensitive`` is false.
    """
    view = memoryview(data)
    _check(view)
    return _decoded(view, allow_sensitive)


def _decoded(view: memoryview, allow_sensitive: bool) -> Document:
    """Return the document in bytes that were checked."""
    schema = read_schema(view)
    envelope = _parsed_header(schema.metadata.get(KEY, b""))
    version = envelope.get("format_version")
    if type(version) is not int or version < 1:
        raise forged("its header names no format version")
    if version > FORMAT_VERSION:
        raise FileRefused(
            f"the file was written by a newer dpsketch (format {version}; this one reads up to {FORMAT_VERSION}). "
            "Upgrade dpsketch to read it."
        )
    kind, sensitive, described, header = (envelope.get(key) for key in ("kind", "sensitive", "arrays", "header"))
    if not isinstance(sensitive, bool):
        raise forged("its header does not say whether it is sensitive")
    if sensitive and not allow_sensitive:
        raise SensitiveData(
            "the file holds a sensitive sketch, not a release. release() it to publish, or read it with "
            "dps.load_sensitive inside the trust boundary."
        )
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise forged("its header names no kind")
    if not isinstance(described, dict) or not isinstance(header, dict) or len(envelope) != 6:
        raise forged("its header does not have the parts of a header")
    types = schema.columns()
    if list(types) != sorted(described) or not all(map(_NAME.fullmatch, described)):
        raise forged("its header and its columns differ")
    shapes = {name: _described(described[name], storage, len(view)) for name, storage in types.items()}
    columns = read_batch(view, schema.end, types)
    arrays = {name: _restore(column, *shapes[name]) for name, column in columns.items()}
    return Document(kind, sensitive, header, _Stored(arrays, {name: dtype for name, (_, dtype) in shapes.items()}))


def write(path: str | os.PathLike[str], document: Document) -> None:
    """Write a document whole or not at all.

    The bytes go to a file beside the target, to the disk, and only then take the target's name. A failure (a full
    disk, an interrupt) leaves the target as it was and nothing beside it. A sensitive file is readable by its owner
    only from its first byte on; a release follows the process's umask.

    Raises
    ------
    InvalidInput
        Where the document cannot be encoded, or the target exists and is no regular file.
    OSError
        Where the system refuses the write.
    """
    data = encode(document)
    target = Path(os.path.realpath(path))  # a link stays a link: what it points to is replaced
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        raise InvalidInput(f"{os.fspath(path)}: cannot be written, because it exists and is not a regular file.")
    beside = target.with_name(f"{_BESIDE}{secrets.token_hex(16)}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(beside, flags, 0o600 if document.sensitive else 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def remove_left(folder: Path) -> None:
    """Remove what killed processes left half written in a folder; the caller is its only writer."""
    for left in folder.glob(f"{_BESIDE}*.tmp"):
        with contextlib.suppress(OSError):
            left.unlink()


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk: without this a power cut could bring back a file that was replaced.

    Not every file system can do it, and the files themselves are whole either way.
    """
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def read(path: str | os.PathLike[str], *, allow_sensitive: bool) -> Document:
    """Read a document from a file; see :func:`decode` for what is refused."""
    try:
        return _decoded(_checked_bytes(path), allow_sensitive)
    except (FileRefused, SensitiveData) as refusal:
        raise type(refusal)(f"{os.fspath(path)}: {refusal}") from None


def rebuilt(document: Document, cls: Any) -> Any:
    """Return what a document holds, as the class that wrote it; refuse a document that it did not write."""
    try:
        return cls.from_document(document)
    except FileRefused:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # The digest was right, so the file was forged or written by something else: say which part, not its content.
        refused = type(error).__name__
    raise FileRefused(f"the file's header is not one that dpsketch writes ({refused}).")


def _digest_place(data: bytearray | memoryview) -> int:
    """Find the digest's 64 characters in the schema message; the one thing done before they are checked."""
    end = _schema_end(data)
    head = bytes(data[: min(end, MAX_HEADER + 8)])
    if head[:4] != CONTINUATION or KEY not in head:
        head = bytes(data[: MAX_HEADER + 8])
    if head[:4] != CONTINUATION or KEY not in head:
        cut = head[:4] == CONTINUATION and 8 <= len(data) < end <= MAX_HEADER + 8  # within the first message
        raise FileRefused(DAMAGED if cut else NOT_OURS)
    found = _MARKED.search(head, 8, end)
    if end > len(head) or found is None or head.count(_MARKER, 8, end) != 1:
        raise FileRefused(DAMAGED)
    return found.start(1)


def _digest(data: memoryview, place: int) -> bytes:
    """Return the digest of a file whose own stands at a place."""
    digest = hashlib.sha256(data[:place])
    digest.update(_ZEROS)
    digest.update(data[place + 64 :])
    return digest.hexdigest().encode()


def _check(data: memoryview) -> None:
    """Refuse bytes that are not those of which a digest was written."""
    place = _digest_place(data)
    if bytes(data[place : place + 64]) != _digest(data, place):
        raise FileRefused(DAMAGED)


def _checked_bytes(path: str | os.PathLike[str]) -> memoryview:
    """Return what a file or a pipe holds, checked; a large file that is not ours is refused before it is in memory.

    Every byte is read once, into memory that is ours: what was checked is what is used, whatever becomes of the file.
    """
    with Path(path).open("rb") as file:
        data = bytearray(file.read(_FIRST))
        if _schema_end(data) > len(data) or KEY not in data:
            data += file.read(MAX_HEADER + 8 - len(data))
        _digest_place(data)
        while piece := file.read(_PIECE):
            data += piece
    view = memoryview(data).toreadonly()
    _check(view)
    return view


def _schema_end(data: bytes | bytearray | memoryview) -> int:
    """Return where the first message says that it ends."""
    return 8 + int.from_bytes(data[4:8], "little")


def _header_text(envelope: dict[str, Any]) -> bytes:
    r"""Return the header's text, in which the digest's marker occurs exactly once.

    The marker is ``"sha256":"``. Its first quote cannot close a string (a letter follows), so it opens one or is an
    escaped quote inside one; either way its ``s`` stands inside a string, and is not itself escaped. There ``\u0073``
    means the same, so that what the caller wrote is replaced without changing its meaning, and no new marker arises.
    """

    def dump(value: Any) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)

    parts = [f"{dump(key)}:{dump(envelope[key])}".replace('"sha256":"', '"\\u0073ha256":"') for key in sorted(envelope)]
    return ("{" + ",".join([*parts, f'"sha256":"{_ZEROS.decode()}"']) + "}").encode()


def _parsed_header(text: bytes) -> dict[str, Any]:
    """Return what a header's text says; refuse text that dpsketch would not write."""

    def refuse(_: str) -> NoReturn:
        raise ValueError

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) != len(mapping := dict(pairs)):
            raise ValueError
        return mapping

    try:
        value = json.loads(text.decode("ascii"), parse_constant=refuse, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise forged("its header is not JSON as dpsketch writes it") from None
    if not isinstance(value, dict):
        raise forged("its header is not a JSON object")
    if fault := _header_fault(value):
        raise forged(f"its header holds {fault}")
    return value


def _header_fault(value: object, depth: int = 0) -> str | None:
    """Say what in a header would not come back as it was written, if anything."""
    if depth > _MAX_DEPTH:
        return f"more than {_MAX_DEPTH} levels"
    match value:
        case str():
            return "text that is not Unicode" if not value.isascii() and _SURROGATE.search(value) else None
        case None | bool():
            return None
        case int():
            return None if -(1 << 63) <= value < 1 << 64 else "an integer of more than 64 bits"
        case float():
            return None if math.isfinite(value) else "a float that is not finite"
        case list():
            items = value
        case dict():
            if not all(isinstance(key, str) for key in value):
                return "a key that is not text"
            items = [*value, *value.values()]
        case _:
            return f"a {type(value).__name__}"
    for item in items:  # a loop: a header has a hundred values, and whoever loads a small file waits for them
        if fault := _header_fault(item, depth + 1):
            return fault
    return None


def _shape_fault(shape: object) -> str | None:
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        return "its shape is not a list of sizes"
    if len(shape) > _MAX_DIMENSIONS:
        return f"it has more than {_MAX_DIMENSIONS} dimensions"
    return "it is too large" if math.prod(size or 1 for size in shape) > MAX_VALUES else None


def _stored(name: str, array: Array) -> tuple[list[int], str, Any]:
    """Return an array's shape, its logical type, and its values as a flat Arrow array."""
    if isinstance(array, list):
        text = all(isinstance(item, str) for item in array)
        if not text and not all(isinstance(item, bytes) for item in array):
            raise InvalidInput(f"array {name!r} is a list of neither text nor bytes alone.")
        try:
            values = _texts(array, pa.large_string() if text else pa.large_binary())
        except UnicodeEncodeError:
            raise InvalidInput(f"array {name!r} holds text that is not Unicode (a lone surrogate).") from None
        return [len(array)], "text" if text else "bytes", values
    if not isinstance(array, np.ndarray) or array.dtype.name not in FIXED_BITS:
        raise InvalidInput(f"array {name!r} is not a NumPy array of integers, floats or booleans, nor a list.")
    dtype = array.dtype.name
    flat = array.ravel()
    if dtype == "bool":
        bits = pa.py_buffer(np.packbits(flat, bitorder="little"))
        values = pa.Array.from_buffers(pa.bool_(), flat.size, [None, bits])
    else:
        values = _column(flat.astype(_narrowest(flat) if flat.dtype.kind in "iu" else dtype))
    return list(array.shape), dtype, values


def _texts(items: list[str] | list[bytes], kind: Any) -> pa.Array:
    """Return texts as an Arrow array, which pa.array would make too, and import pandas."""
    encoded = [item.encode() if isinstance(item, str) else item for item in items]
    edges = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return pa.Array.from_buffers(kind, len(items), [None, pa.py_buffer(edges), pa.py_buffer(b"".join(encoded))])


def _column(flat: npt.NDArray[Any]) -> pa.Array:
    """Return numbers as an Arrow array; pa.array would import pandas, to see whether they are a column of it."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)])


def _narrowest(flat: npt.NDArray[Any]) -> str:
    """Return the narrowest integer type that holds all values, unsigned where none is negative."""
    low, high = (int(flat.min()), int(flat.max())) if flat.size else (0, 0)
    bits = high.bit_length() if low >= 0 else max(high, -low - 1).bit_length() + 1
    width = next(width for width in (8, 16, 32, 64) if bits <= width)
    return f"{'u' if low >= 0 else ''}int{width}"


def _described(entry: object, storage: str, file_size: int) -> tuple[list[int], str]:
    """Check one array's description against its column's type and the file's length."""
    if not isinstance(entry, dict) or set(entry) != {"shape", "dtype"}:
        raise forged("its header describes an array otherwise than by shape and type")
    shape, dtype = entry["shape"], entry["dtype"]
    if fault := _shape_fault(shape):
        raise forged(f"of an array, {fault}")
    if math.prod(shape) > 8 * file_size:
        raise forged("it has a forged length: its header describes an array longer than the file")
    if dtype not in (*FIXED_BITS, "text", "bytes") or (storage != dtype and not ("int" in storage and "int" in dtype)):
        raise forged("its header and its columns differ in type")
    if dtype in ("text", "bytes") and len(shape) != 1:
        raise forged("a list of text or bytes has not one dimension")
    return shape, dtype


def _restore(column: Column, shape: list[int], dtype: str) -> Array:
    """Rebuild an array from its column; integers stay as they are stored."""
    if column.length != math.prod(shape):
        raise forged("it has a forged length: its header and its columns differ")
    if dtype in ("text", "bytes"):
        return _restore_list(column)
    if dtype == "bool":
        packed = np.frombuffer(column.values, np.uint8)
        flat = np.unpackbits(packed, count=column.length, bitorder="little").view(np.bool_)
    else:
        stored = np.frombuffer(column.values, np.dtype(column.storage).newbyteorder("<"))
        if stored.size and stored.dtype.kind in "iu" and not np.can_cast(stored.dtype, dtype):
            limits = np.iinfo(dtype)
            if int(stored.min()) < limits.min or int(stored.max()) > limits.max:
                raise forged("a stored integer does not fit its type")
        whole = stored.dtype.kind in "iu" and stored.flags.aligned
        flat = stored.astype(stored.dtype.newbyteorder("="), copy=not whole)
    flat.setflags(write=False)
    return flat.reshape(shape)


def _restore_list(column: Column) -> list[str] | list[bytes]:
    offsets = np.frombuffer(column.offsets, "<i8")
    if offsets[0] != 0 or offsets[-1] > len(column.values) or (offsets[1:] < offsets[:-1]).any():
        raise forged("a list's offsets lie outside the file or run backwards")
    ends = offsets.tolist()
    joined = bytes(column.values)
    if column.storage == "bytes":
        return [joined[start:end] for start, end in itertools.pairwise(ends)]
    try:
        return [joined[start:end].decode() for start, end in itertools.pairwise(ends)]
    except UnicodeDecodeError:
        raise forged("a list of text is not UTF-8") from None
