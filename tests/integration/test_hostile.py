"""Hostile files with a right digest, as an attacker's have: read, or refused with an error of ours."""

from __future__ import annotations

import contextlib
import json
import random
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpsketch as dps
import memory
from dpsketch import files, local
from dpsketch.errors import DpsketchError, FileRefused, SensitiveData
from dpsketch.kinds import KINDS, load, load_sensitive
from forgery import MARKER, dump, envelope_of, seal
from sensitive import BUDGET, ROWS

WORTHLESS: list[Any] = [
    None, True, 0, 1, -1, 1.5, -0.0, 1e308, 2**31, 2**63, 10**30, "", "int", "nan", "x" * 300, [],
    [2**62], {}, {"a": 1},
]  # fmt: skip
NUMBERS = [0, 1, 2, 3, 7, 8, 16, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -1, -8]


@pytest.fixture(scope="module")
def documents() -> dict[str, bytes]:
    """One file of every kind, sensitive and released."""
    reports = local.SubsetHashing(epsilon=1.0, max_items=2)
    shown: dict[str, Any] = {"collector": reports.collector().add(reports.report([["a"], ["b", "c"]] * 5))}
    made: dict[str, bytes] = {}
    for row in ROWS:
        sketch = row.filled(0)
        made[f"{row.name} sensitive"] = sketch.to_sensitive_bytes()
        shown[row.name] = row.publish(sketch)
    shown["bitmap"] = dps.DistinctSketch(unit=dps.per_record(), buckets=16).release_mergeable(epsilon=1.0)
    days = dps.ContinualSketch(dps.Histogram(unit=dps.per_record()), keys=["a", "b"], days=3, **BUDGET)
    days.day(["a", "c"])
    shown["series"] = days.series()
    made |= {name: files.encode(each.to_document()) for name, each in shown.items()}
    assert {files.decode(data, allow_sensitive=True).kind for data in made.values()} == set(KINDS)
    return made


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, inner nodes included."""
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        found += leaves(part, (*path, key))
    return found


def altered(value: Any, path: tuple[Any, ...], new: Any, remove: bool) -> Any:
    copied = json.loads(json.dumps(value))
    place = copied
    for key in path[:-1]:
        place = place[key]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = new
    return copied


def with_header(data: bytes, header: dict[str, Any]) -> bytes:
    """Rewrite a file with another header, and a right digest."""
    envelope = envelope_of(data)
    batch = pa.ipc.open_stream(data).read_next_batch()
    schema = batch.schema.with_metadata({b"dpsketch": dump({**envelope, "header": header})})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch.cast(schema) if batch.num_columns else pa.record_batch([], schema=schema))
    return seal(bytes(sink.getvalue()))


def read(data: bytes, folder: Path) -> Any:
    if envelope_of(data)["sensitive"]:
        return load_sensitive(data)
    path = folder / "hostile.dps"
    path.write_bytes(data)
    return load(path)


def test_every_kind_survives_its_own_header(documents: dict[str, bytes], tmp_path: Path) -> None:
    """The forgery itself is sound: an unaltered header, rewritten and sealed, is read."""
    for data in documents.values():
        assert read(with_header(data, envelope_of(data)["header"]), tmp_path) is not None


@pytest.mark.parametrize("count", [100, pytest.param(5_000, marks=pytest.mark.full)])
def test_forged_headers_are_read_or_refused(documents: dict[str, bytes], tmp_path: Path, count: int) -> None:
    """Never another error than ours, nor more memory than 64 MB beside a file of a few kilobytes."""
    draw = random.Random(count)
    for _ in range(count):
        data = draw.choice(list(documents.values()))
        header = envelope_of(data)["header"]
        path, new = draw.choice(leaves(header)), draw.choice(WORTHLESS)
        forged = with_header(data, altered(header, path, new, draw.random() < 0.5))
        tracemalloc.start()
        try:
            with contextlib.suppress(DpsketchError):
                repr(read(forged, tmp_path))
            assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
        finally:
            tracemalloc.stop()


def poked(data: bytes, start: int, end: int, draw: random.Random) -> bytes:
    """Change one to four places between start and end: a bit, a byte, or a whole number."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 4])):
        place = draw.randrange(start, end)
        size = draw.choice([1, 2, 4, 8])
        new = draw.choice([changed[place] ^ 1 << draw.randrange(8), draw.randrange(256), draw.choice(NUMBERS)])
        place = max(start, place - place % size)
        changed[place : place + size] = (new % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(changed[: len(data)])


@pytest.mark.parametrize("count", [3_000, pytest.param(200_000, marks=pytest.mark.full)])
def test_altered_bytes_are_refused_or_read(documents: dict[str, bytes], count: int) -> None:
    """In the schema, the header, the metadata and the arrays, or a part left out; the deeper checks are reached."""
    draw, outcomes = random.Random(count), Counter[str]()
    memory.forget_peak()
    before = memory.peak()
    for _ in range(count):
        data, part = draw.choice(list(documents.values())), draw.choice(["head", "batch", "body", "splice"])
        head = 8 + int.from_bytes(data[4:8], "little")
        batch = head + 8 + int.from_bytes(data[head + 4 : head + 8], "little")
        first, second = sorted(draw.randrange(len(data)) for _ in range(2))
        spans = {"head": (0, head), "batch": (head, batch), "body": (batch, len(data))}
        new = data[:first] + data[second:] if part == "splice" else poked(data, *spans[part], draw)
        allowed = draw.random() < 0.5
        try:
            found = files.decode(seal(new) if MARKER in new else new, allow_sensitive=allowed)
            outcomes[f"{part} accepted"] += 1
        except FileRefused:
            outcomes[f"{part} refused"] += 1
            continue
        except SensitiveData:
            outcomes["sensitive"] += 1
            continue
        assert allowed or not found.sensitive
        if part == "batch":
            assert found.header == envelope_of(data)["header"]
    assert outcomes["body accepted"] > 0.04 * count
    assert all(outcomes[f"{part} refused"] > 0.02 * count for part in ("head", "batch", "body", "splice"))
    assert memory.peak() - before < 64 * 1024
