"""What an attacker does to a file: change it and recompute a right digest. Uses no code of dpsketch."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
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


# What a forger does to the header of a release, or of a state that was paid for: a name, and the header changed.


def headers(original: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Change what a header says of a receipt, one thing at a time; none of it is what was drawn, asked and promised."""

    def changed(what: str, *path: Any, drop: Any = None, scale: tuple[str, float] | None = None, **put: Any) -> Any:
        header = copy.deepcopy(original)
        place = _at(header, path)
        place.update(put) if put else None
        if drop is not None:
            place.pop(drop)
        if scale is not None:
            place[scale[0]] *= scale[1]
        return what, header

    several = "receipts" in original
    for number, receipt in enumerate(original["receipts"] if several else [original["receipt"]]):
        here: tuple[Any, ...] = ("receipts", number) if several else ("receipt",)
        name = "rho" if receipt["asked"]["rho"] is not None else "epsilon"
        yield changed(f"a smaller {name}", *here, "asked", scale=(name, 0.9))
        yield changed("no law", *here, laws=[])
        yield changed("a law twice", *here, laws=[*receipt["laws"], receipt["laws"][0]])
        yield changed("one law less", *here, "laws", drop=-1)
        for place, law in enumerate(receipt["laws"]):
            of = (*here, "laws", place)
            other = {"add_remove": "replace", "replace": "add_remove"}[law["neighbours"]]
            yield changed("another relation", *of, neighbours=other)
            yield changed("a cost", *of, costs=[])
            yield changed("a law of another class", *of, type="Unit")
            for field in law:
                yield changed(f"{law['type']} without {field}", *of, drop=field)
            for name, value in {"horizon": 1, "days": 1, "apart": 9, "scales": [7]}.items():  # of a stream's state
                if not several and law.get(name, value) != value:
                    yield changed(f"another {name}", *of, **{name: value})
            for path, kind in _typed(law):
                if kind in ("RoundedGaussian", "DiscreteLaplace"):
                    less = ("sigma", 0.9) if kind == "RoundedGaussian" else ("epsilon", 1.1)
                    yield changed(f"less noise at {path}", *of, *path, scale=less)
                for field in ("l1", "squared", "cells", "most") if kind == "Move" else ():
                    if _at(law, path)[field] > 1:
                        yield changed(f"a smaller {field} at {path}", *of, *path, **{field: 1})
    if original.get("limits", [1])[0] != 1:
        yield changed("more days of a user than are paid for", limits=[original["limits"][0] + 1, 1])
        yield changed("users of no limit", limits=None)
    if isinstance(original.get("guarantee"), dict):
        yield changed("a smaller stated epsilon", "guarantee", scale=("epsilon", 0.9))
        yield changed("a smaller stated cost", "guarantee", costs=[{"kind": "pure", "epsilon": 0.001}])
        for name, value in {"neighbours": "replace", "max_keys": 7, "level": "user", "max_weight": 0.5}.items():
            if original["guarantee"]["unit"][name] != value:
                yield changed(f"another {name} of its unit", "guarantee", "unit", **{name: value})
        if original["guarantee"].get("caveat"):
            yield changed("no condition", "guarantee", caveat=None)
        yield changed("another condition", "guarantee", caveat="It holds against one seizure of the state.")
        yield changed("no guarantee", drop="guarantee")
    if original.get("limits", [1, 1]) != [1, 1]:
        yield changed("fewer days of users", limits=[1, 1])
    if several:
        yield changed("no receipt", receipts=[])
        yield changed("a receipt less", "receipts", drop=0)


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _typed(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every value with a class below this one, by where it is."""
    if isinstance(value, dict):
        if path and "type" in value:
            yield path, value["type"]
        for name, each in value.items():
            yield from _typed(each, (*path, name))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _typed(each, (*path, place))
