"""Specs and reports in files: both forms, and what strangers may put into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsketch import local
from dpsketch.errors import FileRefused, InvalidInput

PROTOCOL = local.SubsetHashing(epsilon=1.0, max_items=4)
SETS = [["a", "b"], ["b"], []] * 10


def test_a_spec_in_a_file(tmp_path: Path) -> None:
    local.write_spec(tmp_path / "spec.json", PROTOCOL)
    assert local.read_spec(tmp_path / "spec.json") == PROTOCOL


@pytest.mark.parametrize("content", ["", "[]", "{", "7", "[" * 100_000])
def test_a_file_that_is_no_spec_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "spec.json").write_text(content)
    with pytest.raises(FileRefused):
        local.read_spec(tmp_path / "spec.json")


def test_a_spec_of_nothing_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text('{"protocol": "x"}')
    with pytest.raises(InvalidInput):
        local.read_spec(tmp_path / "spec.json")


@pytest.mark.parametrize("name", ["r.jsonl", "r.reports"])
def test_reports_are_appended_and_received(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert local.write_reports(path, PROTOCOL, PROTOCOL.report(SETS)) == 30
    assert local.write_reports(path, PROTOCOL, PROTOCOL.report(SETS)) == 30
    collector = PROTOCOL.collector()
    assert collector.receive(local.read_reports(path, PROTOCOL)) == local.Received(60, 0, 0, 0)
    assert collector.receive(local.read_reports(path, PROTOCOL)).repeated == 60


@pytest.mark.parametrize("name", ["r.jsonl", "r.reports"])
def test_a_cut_file_loses_its_last_report_only(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    local.write_reports(path, PROTOCOL, PROTOCOL.report(SETS))
    path.write_bytes(path.read_bytes()[:-5])
    assert PROTOCOL.collector().receive(local.read_reports(path, PROTOCOL)) == local.Received(29, 0, 0, 1)


def test_noise_in_a_file_is_counted_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\xff\xfe\n\n   \nnot json\n")
    local.write_reports(path, PROTOCOL, PROTOCOL.report(SETS))
    assert PROTOCOL.collector().receive(local.read_reports(path, PROTOCOL)) == local.Received(30, 0, 0, 2)
