"""Thousands of altered files with a right digest, read in a process whose end is watched.

Run as a program, this file is that process: it alters, reads, and prints what became of each file as JSON.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import memory
from dpsketch.errors import FileRefused, SensitiveData
from dpsketch.files import Document, decode, encode
from forgery import MARKER, VECTORS, seal

NUMBERS = [0, 1, 2, 3, 7, 8, 16, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -1, -8]
PARTS = ("text", "schema", "batch", "body")


def places(data: bytes) -> dict[str, tuple[int, int]]:
    """Where the parts of a file lie: its JSON header, the schema before it, the batch's metadata, and the arrays."""
    header_end = 8 + int.from_bytes(data[4:8], "little")
    body = header_end + 8 + int.from_bytes(data[header_end + 4 : header_end + 8], "little")
    text = pa.ipc.open_stream(data).schema.metadata[b"dpsketch"]
    start = data.index(text)
    spans = ((start, start + len(text)), (0, start), (header_end, body), (body, len(data)))
    return dict(zip(PARTS, spans, strict=True))


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


def spliced(data: bytes, draw: random.Random) -> bytes:
    """Leave out what lies between two places, or have it twice."""
    first, second = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return draw.choice([data[:first] + data[second:], data[:second] + data[first:]])


def fuzz(count: int) -> tuple[dict[str, int], int]:
    draw = random.Random(count)
    small = Document("counts", False, {"seed": 7}, {"a": np.arange(5), "b": ["x", "yz"], "c": np.array([True, False])})
    wide = Document("sparse", False, {}, {"counts": np.arange(-300, 300), "keys": [str(index) for index in range(40)]})
    bases = [*(path.read_bytes() for path in sorted(VECTORS.glob("*.dps"))), *[encode(small), encode(wide)] * 2]
    outcomes: Counter[str] = Counter()
    memory.forget_peak()
    before = memory.peak()
    for _ in range(count):
        base, part = draw.choice(bases), draw.choice([*PARTS, "splice"])
        data = spliced(base, draw) if part == "splice" else poke(base, *places(base)[part], draw)
        data = seal(data) if MARKER in data else data
        allowed = draw.random() < 0.5
        try:
            found = decode(data, allow_sensitive=allowed)
        except (FileRefused, SensitiveData) as refusal:
            outcomes[f"{part} {type(refusal).__name__}"] += 1
            assert not allowed or isinstance(refusal, FileRefused)
            assert data != base or isinstance(refusal, SensitiveData)
            continue
        assert allowed or not found.sensitive
        again = decode(encode(found), allow_sensitive=True)
        assert (again.header, again.arrays.keys()) == (found.header, found.arrays.keys())
        if part in ("schema", "batch"):  # what lies in the header and the arrays is what lay there
            assert found.header == decode(base, allow_sensitive=True).header
        outcomes[f"{part} accepted"] += 1
    return outcomes, memory.peak() - before


@pytest.mark.parametrize("count", [3_000, pytest.param(200_000, marks=pytest.mark.full)])
def test_altered_files_are_refused_or_read(count: int) -> None:
    """No crash, no hang, no growth; and with a right digest the deeper checks are reached."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-W", "error", "-X", "faulthandler", __file__, str(count)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60 + count / 100, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes, grown = json.loads(done.stdout)
    assert sum(outcomes.values()) == count
    assert outcomes["body accepted"] > 0.04 * count
    assert all(outcomes[f"{part} FileRefused"] > 0.02 * count for part in (*PARTS, "splice"))
    assert grown < 64 * 1024


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(fuzz(int(sys.argv[1]))))
