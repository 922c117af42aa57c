"""What an attacker does to a file: change it and recompute a right digest. Uses no code of dpsketch."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
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

    def changed(what: str, change: Callable[[dict[str, Any]], object]) -> tuple[str, dict[str, Any]]:
        header = copy.deepcopy(original)
        change(header)
        return what, header

    for place in range(len(_receipts(original))):
        asked = _receipts(original)[place]["asked"]
        name = "rho" if asked["rho"] is not None else "epsilon"
        yield changed(f"a smaller {name}", lambda h, i=place, n=name: _scale(_receipts(h)[i]["asked"], n, 0.9))
        yield changed("no law", lambda h, i=place: _receipts(h)[i].update(laws=[]))
        yield changed("a law twice", lambda h, i=place: _receipts(h)[i]["laws"].append(_receipts(h)[i]["laws"][0]))
        yield changed("one law less", lambda h, i=place: _receipts(h)[i]["laws"].pop())
        for number, law in enumerate(_receipts(original)[place]["laws"]):

            def of(header: dict[str, Any], i: int = place, j: int = number) -> dict[str, Any]:
                found: dict[str, Any] = _receipts(header)[i]["laws"][j]
                return found

            other = {"add_remove": "replace", "replace": "add_remove"}[law["neighbours"]]
            yield changed("another relation", lambda h, of=of, other=other: of(h).update(neighbours=other))
            yield changed("a cost", lambda h, of=of: of(h).update(costs=[]))
            yield changed("a law of another class", lambda h, of=of: of(h).update(type="Unit"))
            for field in law:
                yield changed(f"{law['type']} without {field}", lambda h, of=of, field=field: of(h).pop(field))
            for path, kind in _noises(law):
                field, factor = ("sigma", 0.9) if kind == "RoundedGaussian" else ("epsilon", 1.1)
                yield changed(
                    f"less noise at {path}", lambda h, of=of, p=path, f=field, x=factor: _scale(_at(of(h), p), f, x)
                )
            for path in _moves(law):
                for field in ("l1", "squared", "cells", "most"):
                    if _at(law, path)[field] > 1:
                        words = f"a smaller {field} at {path}"
                        yield changed(words, lambda h, of=of, p=path, f=field: _at(of(h), p).update({f: 1}))
    if isinstance(original.get("guarantee"), dict):
        yield changed("a smaller stated epsilon", lambda h: _scale(h["guarantee"], "epsilon", 0.9))
        yield changed(
            "a smaller stated cost", lambda h: h["guarantee"].update(costs=[{"kind": "pure", "epsilon": 0.001}])
        )
        unit = original["guarantee"]["unit"]
        for name, value in {"neighbours": "replace", "max_keys": 7, "level": "user", "max_weight": 0.5}.items():
            if unit[name] != value:
                words = f"another {name} of its unit"
                yield changed(words, lambda h, n=name, v=value: h["guarantee"]["unit"].update({n: v}))
        if original["guarantee"].get("caveat"):
            yield changed("no condition", lambda h: h["guarantee"].update(caveat=None))
        yield changed("no guarantee", lambda h: h.pop("guarantee"))
    if "receipts" in original:
        yield changed("no receipt", lambda h: h.update(receipts=[]))
        yield changed("a receipt less", lambda h: h["receipts"].pop(0))


def _receipts(header: dict[str, Any]) -> list[dict[str, Any]]:
    return header["receipts"] if "receipts" in header else [header["receipt"]]


def _scale(values: dict[str, Any], name: str, factor: float) -> None:
    values[name] *= factor


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


def _noises(law: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], str]]:
    return (found for found in _typed(law) if found[1] in ("RoundedGaussian", "DiscreteLaplace"))


def _moves(law: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    return (path for path, kind in _typed(law) if kind == "Move")
