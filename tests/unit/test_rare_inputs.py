"""Faults that few inputs met: in files, in features, and in the housekeeping of the service."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import FileRefused, SourceError
from dpsketch.server import service
from dpsketch.sources import Columns, formats, open_source


@pytest.mark.parametrize("features", ["series", "nystrom"])
def test_points_far_from_zero_are_told_apart(features: Any) -> None:
    start = 1.76e18  # nanoseconds since 1970
    points = start + 1e9 * np.arange(0, 1000, 0.5)[:, None]
    more: dict[str, Any] = (
        {"bounds": (start, start + 1e12)}
        if features == "series"
        else {"landmarks": start + 1e9 * np.arange(0, 1000, 1.0)}
    )
    kernel = dps.kernels.Gaussian(1, 1e9)
    sketch = dps.DensitySketch(kernel=kernel, features=features, unit=dps.per_record(), **more)
    sketch.update(points)
    found = sketch.release(epsilon=8.0, delta=1e-6).estimate(points[500:501], confidence=0.9999)
    truth = kernel.similarity(points[500:501], points).sum()
    assert found.low[0] <= truth <= found.high[0] < 50


def test_housekeeping_goes_on_after_whatever_failed() -> None:
    class Failing:
        tokens = SimpleNamespace(refresh_seconds=0.001)

        def __init__(self) -> None:
            self.rounds, self.third = 0, asyncio.Event()

        async def keep_house(self) -> None:
            self.rounds += 1
            if self.rounds == 3:
                self.third.set()
            raise FileRefused("a release of a newer version")

    async def watch() -> None:
        failing: Any = Failing()
        task = asyncio.create_task(service._keep_house(failing))
        await asyncio.wait_for(failing.third.wait(), 60)
        task.cancel()

    asyncio.run(watch())


def _keys(path: Path, data: bytes) -> Counter[str]:
    path.write_bytes(data)
    return Counter(key for batch in open_source([str(path)], Columns(key="key")) for key in batch.key.to_pylist())


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b'"'])
def test_a_mark_at_the_beginning_of_a_row_is_text_wherever_a_block_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bytes, mark: bytes
) -> None:
    monkeypatch.setattr(formats, "_BLOCK", 64)
    rows = b"".join(b"\xef\xbb\xbf%bk%02d,1%b" % (mark, i, ends) for i in range(40))
    before = _keys(tmp_path / "a.csv", b"key,v" + ends + rows)
    for added in range(1, 20, 3):
        after = _keys(tmp_path / "a.csv", b"key,v" + ends + b"x" * added + b",1" + ends + rows)
        assert after - before == {"x" * added: 1}
        assert not before - after


@pytest.mark.parametrize("header", [b'size 5",key', b'5",key,6"', b'"a""b"c",key', b'a"b"c,key'])
@pytest.mark.parametrize("row", [b'9,x"', b'9,"x\ny"'])
def test_a_quote_within_a_name_opens_nothing(tmp_path: Path, header: bytes, row: bytes) -> None:
    more = b"," * (header.count(b",") - 1)
    rows = [b"%d,r%d%b" % (i, i, more) for i in range(6)]
    before = _keys(tmp_path / "a.csv", b"\n".join([header, *rows]))
    assert before == {f"r{i}": 1 for i in range(6)}
    for place in (0, 6):  # an odd quote in between would be a row of its own making
        held = [*rows[:place], row + more, *rows[place:]]
        after = _keys(tmp_path / "a.csv", b"\n".join([header, *held]))
        assert not before - after
        assert (after - before).total() == 1


@pytest.mark.parametrize("row", [b"", b'z,"z"\n', b'z,z"\n'])
@pytest.mark.parametrize("first", [True, False])
def test_a_quote_that_opens_a_name_and_is_never_closed_is_refused_whatever_the_records(
    tmp_path: Path, row: bytes, first: bool
) -> None:
    rows = b"".join(b"r%d,%d\n" % (i, i) for i in range(4))
    with pytest.raises(SourceError):
        _keys(tmp_path / "a.csv", b'key,"note\n' + (row + rows if first else rows + row))
