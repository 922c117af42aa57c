"""A histogram with a limit on its memory: what goes to disk changes nothing that is published, and leaves nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput, SourceError
from dpsketch.laws import content
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches import store

RECORDS = dps.per_record(max_weight=3)
USERS = dps.per_user(max_keys=4, max_weight=3)
CHOSEN = dps.per_user("auto", max_weight=3)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a few dozen rows be too many, and blocks end within what a test holds."""
    monkeypatch.setattr(store, "_WAITING_ROWS", 64)
    monkeypatch.setattr(store, "_SETTLED_ROWS", 300)
    monkeypatch.setattr(store, "_RANKED_BYTES", 10**6)  # users are ranked in several parts
    monkeypatch.setattr(content, "BLOCK", 16)
    return


def made(unit: Any, folder: Path | None, kind: str, *, limited: bool = True) -> tuple[dps.Histogram, dict[str, Any]]:
    """Return an empty histogram and the columns of 900 records: users with up to 60 keys, some of them with nulls."""
    limit = {"memory_limit": "256MB", "temp_directory": folder} if limited else {}
    histogram = dps.Histogram(unit=unit, **limit)
    rng = np.random.default_rng(5)
    numbers, people = rng.zipf(1.3, 900) % 150 - 3, rng.zipf(1.4, 900) % 40
    names = [f"{'a much longer text ' if n % 3 else 'é'}{n}" for n in numbers.tolist()]
    keys: Any = names if kind == "text" else [n.encode() + b"\xff" for n in names] if kind == "bytes" else numbers
    keys = [None if i % 50 == 7 else key for i, key in enumerate(list(keys))]
    owners = [None if i % 60 == 9 else f"user {n}" if kind == "text" else int(n) for i, n in enumerate(people)]
    given: dict[str, Any] = {"keys": keys, "weights": (rng.integers(0, 6, 900)).tolist()}
    return histogram, given if unit is RECORDS else {**given, "users": owners}


def fed(histogram: dps.Histogram, given: dict[str, Any], start: int = 0, stop: int = 900, step: int = 200) -> Any:
    for first in range(start, stop, step):
        part = slice(first, min(first + step, stop))
        histogram.update(**{name: column[part] for name, column in given.items()})
    return histogram


RELEASES: list[tuple[str, Any, dict[str, Any]]] = [
    ("bytes", RECORDS, {"keys": "listed", "unknown": True, "others": True}),
    ("int", USERS, {"form": "gaussian", "others": True}),
    ("text", USERS, {"form": "weighted"}),
    ("text", USERS, {"form": "rounds", "keys": "listed", "unknown": True, "others": True}),
    ("text", CHOSEN, {}),
    ("int", CHOSEN, {"keys": "listed", "others": True}),
]


def published(histogram: dps.Histogram, options: dict[str, Any], kind: str) -> Any:
    listed = {
        "text": ["é3", "nobody's", "a much longer text 1"],
        "int": [3, 10**6, -2],
        "bytes": ["é3", b"\xc3\xa93\xff"],
    }
    chosen = {**options, "keys": listed[kind]} if "keys" in options else options
    with seeded_noise_for_tests_only(11):
        document = histogram.release(epsilon=30.0, delta=1e-3, **chosen).to_document()
    return document.header, {name: list(array) for name, array in document.arrays.items()}


@pytest.mark.parametrize(("kind", "unit", "options"), RELEASES)
def test_a_release_from_disk_is_the_one_from_memory(
    kind: str, unit: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    """Bit for bit given the same noise, whatever the order of the records and however often they were merged."""
    plain, given = made(unit, None, kind, limited=False)
    fed(plain, given)
    spilled, _ = made(unit, tmp_path, kind)
    other = spilled.empty_like()
    fed(other, given, 300, 900, 113)
    fed(spilled, given, 0, 300, 70)
    spilled.merge(dps.Histogram.from_sensitive_bytes(other.to_sensitive_bytes()))
    assert list(tmp_path.iterdir()), "nothing went to disk: the test shows nothing"
    expected = published(plain, options, kind)
    assert published(spilled, options, kind) == expected
    assert published(spilled, options, kind) == expected, "a release has changed what is held"
    assert spilled.cut == plain.cut
    assert spilled.skipped_nulls == plain.skipped_nulls


def test_the_folder_is_private_and_goes_with_the_histogram(tmp_path: Path) -> None:
    spilled, given = made(USERS, tmp_path, "text")
    fed(spilled, given)
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    published(spilled, {}, "text")
    del spilled
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_what_the_limit_may_be_is_said(tmp_path: Path) -> None:
    for limit in ("255MB", "many", "512", "-1GB", "1.5GB", 10**9):
        with pytest.raises(InvalidInput, match="memory_limit= must be a size such as '512MB'"):
            dps.Histogram(unit=RECORDS, memory_limit=limit)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="goes with memory_limit"):
        dps.Histogram(unit=RECORDS, temp_directory=tmp_path)
    histogram, given = made(RECORDS, tmp_path / "missing", "text")
    with pytest.raises(SourceError, match="temp_directory=") as refused:
        fed(histogram, given)
    assert "longer" not in str(refused.value)


MANY = """
    import sys
    import numpy as np
    import dpsketch as dps
    import memory

    histogram = dps.Histogram(unit=dps.per_record(), memory_limit="256MB")
    histogram.update(["warm"])
    memory.forget_peak()
    before = memory.peak()
    for start in range(0, int(sys.argv[1]), 50_000):
        histogram.update([f"https://example.org/{'x' * 260}/{i}" for i in range(start, start + 50_000)])
    histogram.update(["frequent"] * 1000)
    private = histogram.release(epsilon=1.0, delta=1e-9)
    print(memory.peak() - before, private.keys == ["frequent"])
"""


def run_many(rows: int) -> tuple[int, bool]:
    script = "import sys; sys.path.insert(0, 'tests')\n" + textwrap.dedent(MANY)
    done = subprocess.run([sys.executable, "-c", script, str(rows)], capture_output=True, text=True, check=True)
    grown, right = done.stdout.split()
    return int(grown) // 1024, right == "True"


@pytest.mark.full
def test_memory_stays_flat_while_keys_pass_the_limit_many_times() -> None:
    """Two and six million distinct keys of 290 bytes, 0.6 and 1.7 GB of text, with a limit of 256 MB."""
    few, many = run_many(2_000_000), run_many(6_000_000)
    assert few[1]
    assert many[1]
    assert many[0] < 1.15 * few[0] < 1.15 * 450
