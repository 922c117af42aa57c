"""Thousands of altered files with a right digest, read in a process whose end is watched.

That no file with a wrong digest is accepted is in ``tests/unit/test_file_refusals.py``, and other headers
are in ``test_hostile.py``.

Run as a program, this file is that process: it alters, reads, checks each outcome and prints its counts as JSON.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import memory
from dpsketch.errors import FileRefused, SensitiveData
from dpsketch.files import Document, decode, encode
from forgery import MARKER, VECTORS, envelope_of, seal

NUMBERS = [0, 1, 2, 3, 7, 8, 16, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -1, -8]


@dataclass(frozen=True)
class Base:
    """A good file and where its parts lie: JSON, schema metadata, batch metadata, each column's buffers."""

    data: bytes
    document: Document
    header_end: int
    body_start: int
    json_span: tuple[int, int]
    columns: dict[str, list[tuple[int, int]]]

    @classmethod
    def of(cls, data: bytes) -> Base:
        header_end = 8 + int.from_bytes(data[4:8], "little")
        body_start = header_end + 8 + int.from_bytes(data[header_end + 4 : header_end + 8], "little")
        buffer = pa.py_buffer(data)
        reader = pa.ipc.open_stream(buffer)
        text = reader.schema.metadata[b"dpsketch"]
        batch = reader.read_next_batch()
        columns = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            parts = [part for part in column.buffers() if part is not None and part.size]
            starts = [part.address - buffer.address for part in parts]
            columns[name] = [(start, start + part.size) for start, part in zip(starts, parts, strict=True)]
        place = data.index(text)
        span = (place, place + len(text))
        return cls(data, decode(data, allow_sensitive=True), header_end, body_start, span, columns)


def poke(data: bytes, start: int, end: int, draw: random.Random) -> bytes:
    """Change one to four places between start and end: a bit, a byte, or a whole number."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 4])):
        place = draw.randrange(start, end)
        match draw.randrange(3):
            case 0:
                changed[place] ^= 1 << draw.randrange(8)
            case 1:
                changed[place] = draw.randrange(256)
            case _:
                size = draw.choice([2, 4, 8])
                place = max(start, place - place % size)
                number = draw.choice(NUMBERS) % (1 << 8 * size)
                changed[place : min(end, place + size)] = number.to_bytes(size, "little")[: max(0, end - place)]
    return bytes(changed)


def cut_or_paste(data: bytes, draw: random.Random) -> bytes:
    first, second = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    match draw.randrange(4):
        case 0:
            return data[:first]
        case 1:
            return data[:first] + data[second:]
        case 2:
            return data[:second] + data[first:]
        case _:
            return data[:first] + draw.randbytes(draw.randrange(1, 20)) + data[first:]


def fingerprint(array: Any) -> tuple[Any, ...]:
    if isinstance(array, np.ndarray):
        return array.shape, array.dtype.name, array.tobytes()
    return tuple(array)


def check_accepted(part: str, base: Base, data: bytes, found: Document) -> None:
    """Nothing but the touched part may differ from the file that was altered."""
    before = envelope_of(base.data)
    envelope = envelope_of(data) if part == "text" else before
    assert [found.kind, found.sensitive, found.header] == [envelope[key] for key in ("kind", "sensitive", "header")]
    assert found.arrays.keys() == envelope["arrays"].keys()
    for name, array in found.arrays.items():
        described = envelope["arrays"][name]
        if isinstance(array, np.ndarray):
            assert {"shape": list(array.shape), "dtype": array.dtype.name} == described
        else:
            assert [len(array)] == described["shape"]
        untouched = all(data[start:end] == base.data[start:end] for start, end in base.columns[name])
        if part == "text" or (part == "body" and untouched):
            same = described == before["arrays"][name]
            assert not same or fingerprint(array) == fingerprint(base.document.arrays[name])


FORGERIES: dict[str, Callable[[Base, random.Random], bytes]] = {
    "text": lambda base, draw: poke(base.data, *base.json_span, draw),
    "schema": lambda base, draw: (
        poke(base.data, 0, base.json_span[0], draw)
        if draw.random() < 0.5
        else poke(base.data, base.json_span[1], base.header_end, draw)
    ),
    "batch": lambda base, draw: poke(base.data, base.header_end, base.body_start, draw),
    "body": lambda base, draw: poke(base.data, base.body_start, len(base.data), draw),
    "splice": lambda base, draw: cut_or_paste(base.data, draw),
}


def fuzz(count: int, seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    small = Document("counts", False, {"seed": 7}, {"a": np.arange(5), "b": ["x", "yz"], "c": np.array([True, False])})
    wide = Document("sparse", False, {}, {"counts": np.arange(-300, 300), "keys": [str(index) for index in range(40)]})
    files = [path.read_bytes() for path in sorted(VECTORS.glob("*.dps"))]
    bases = [Base.of(data) for data in [*files, encode(small), encode(small), encode(wide), encode(wide)]]
    outcomes: Counter[str] = Counter()
    memory.forget_peak()
    before = memory.peak()
    for _ in range(count):
        base = draw.choice(bases)
        part = draw.choice(list(FORGERIES))
        data = FORGERIES[part](base, draw)
        if MARKER in data:
            data = seal(data)
        if data == base.data:
            part = "unchanged"
        allowed = draw.random() < 0.5
        try:
            found = decode(data, allow_sensitive=allowed)
        except (FileRefused, SensitiveData) as refusal:
            outcomes[f"{part} {type(refusal).__name__}"] += 1
            if isinstance(refusal, SensitiveData):
                assert not allowed
                assert base.document.sensitive or part == "text"
            continue
        assert allowed or not found.sensitive
        check_accepted(part, base, data, found)
        outcomes[f"{part} accepted"] += 1
    grown = memory.peak() - before
    return {"outcomes": dict(sorted(outcomes.items())), "grown_kib": grown}


def run(count: int, seed: int) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-W", "error", "-X", "faulthandler", __file__, str(count), str(seed)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60 + count / 100, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("count", [3_000, pytest.param(200_000, marks=pytest.mark.full)])
def test_altered_files_are_refused_or_read_right(count: int) -> None:
    """No crash, no hang, no growth, no wrong answer; and with a right digest the deeper checks are reached."""
    result = run(count, seed=count)
    outcomes = Counter(result["outcomes"])
    assert sum(outcomes.values()) == count
    assert outcomes["unchanged FileRefused"] == 0
    assert outcomes["body accepted"] > 0.04 * count
    assert all(outcomes[f"{part} FileRefused"] > 0.02 * count for part in FORGERIES)
    assert result["grown_kib"] < 64 * 1024


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(fuzz(int(sys.argv[1]), int(sys.argv[2]))))
