"""One record changes its own count only, wherever blocks begin and whatever stands in the header."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from pathlib import Path

import pytest

from dpsketch import load, local
from dpsketch.errors import SourceError
from dpsketch.sources import Columns, formats, open_source


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
    for added in range(1, 20):
        after = _keys(tmp_path / "a.csv", b"key,v" + ends + b"x" * added + b",1" + ends + rows)
        assert after - before == {"x" * added: 1}
        assert not before - after


@pytest.mark.parametrize("header", [b'size 5",key', b'5",key,6"', b'"a""b"c",key', b'a"b"c,key'])
@pytest.mark.parametrize("row", [b'9,x"', b'9,"x"', b"9,x", b'9,"x\ny"'])
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


def test_a_collection_from_a_file_takes_nothing_new(tmp_path: Path) -> None:
    protocol = local.SubsetHashing(epsilon=1.0, max_items=2)
    reports = protocol.report([["a"], ["b"]])
    local.write_reports(tmp_path / "r.jsonl", protocol, reports)
    protocol.collector().add(reports).save(tmp_path / "c.dps")
    collector = load(tmp_path / "c.dps")
    assert collector.receive(local.read_reports(tmp_path / "r.jsonl", protocol)) == local.Received(0, 2, 0, 0)
    collector.merge(protocol.collector())
    collector.add(reports.slice(0, 0))
    assert collector.users == 2


def test_a_large_answer_is_off_the_disk_once_a_newer_one_is_kept() -> None:
    from dpsketch.server.answers import LARGE, Answers, file_response
    from dpsketch.server.telemetry import Metrics

    async def ask() -> None:
        answers = Answers(1e9, 60.0, Metrics())
        seen = [
            weakref.ref(await answers.answer("me", True, b"q", lambda: file_response(bytes(LARGE), {}), v))
            for v in (1, 2)
        ]
        gc.collect()
        assert [each() is None for each in seen] == [True, False]
        answers.stop()

    asyncio.run(ask())


@pytest.mark.parametrize("row", [b"", b'z,"z"\n', b'z,z"\n'])
@pytest.mark.parametrize("first", [True, False])
def test_a_quote_that_opens_a_name_and_is_never_closed_is_refused_whatever_the_records(
    tmp_path: Path, row: bytes, first: bool
) -> None:
    rows = b"".join(b"r%d,%d\n" % (i, i) for i in range(4))
    with pytest.raises(SourceError):
        _keys(tmp_path / "a.csv", b'key,"note\n' + (row + rows if first else rows + row))
