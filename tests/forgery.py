"""What an attacker does to a file: change it and recompute a right digest. Uses no code of dpsketch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

VECTORS = Path(__file__).parent / "vectors" / "files"
MARKER = b'"sha256":"'


def seal(data: bytes) -> bytes:
    """Put the digest right again."""
    place = data.index(MARKER) + len(MARKER)
    zeroed = data[:place] + b"0" * 64 + data[place + 64 :]
    return data[:place] + hashlib.sha256(zeroed).hexdigest().encode() + data[place + 64 :]


def envelope_of(data: bytes) -> dict[str, Any]:
    """Read the JSON header as any Arrow program would."""
    value: dict[str, Any] = json.loads(pa.ipc.open_stream(data).schema.metadata[b"dpsketch"])
    return value


def stream(schema: pa.Schema, *batches: pa.RecordBatch, **options: Any) -> bytes:
    """Write an Arrow stream as pyarrow does."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def dump(envelope: dict[str, Any]) -> bytes:
    """Write a JSON header, its digest last and the digest's marker nowhere else."""
    rest = {key: value for key, value in envelope.items() if key != "sha256"}
    text = json.dumps({**rest, "sha256": ""}, separators=(",", ":")).encode()
    return text.replace(MARKER, MARKER.replace(b"s", b"\\u0073")).replace(
        b'"\\u0073ha256":""}', MARKER + b"0" * 64 + b'"}'
    )


def forge(columns: dict[str, pa.Array], envelope: dict[str, Any] | bytes, **options: Any) -> bytes:
    """Make a file of any columns and any header, with a right digest."""
    text = envelope if isinstance(envelope, bytes) else dump(envelope)
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    schema = pa.schema(fields, metadata={b"dpsketch": text})
    return seal(stream(schema, pa.record_batch(list(columns.values()), schema=schema), **options))


def listed(values: pa.Array) -> pa.Array:
    """Make a column: one row that is a list of ``values``."""
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)


def envelope_for(**arrays: tuple[list[int], str]) -> dict[str, Any]:
    """Make a header that describes arrays by shape and type."""
    described = {name: {"shape": shape, "dtype": dtype} for name, (shape, dtype) in arrays.items()}
    return {"arrays": described, "format_version": 1, "header": {}, "kind": "counts", "sensitive": False}
