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


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000, '{"protocol": "x"}'])
def test_a_file_that_is_no_spec_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "spec.json").write_text(content)
    with pytest.raises((FileRefused, InvalidInput)):
        local.read_spec(tmp_path / "spec.json")


@pytest.mark.parametrize(("name", "noise"), [("r.jsonl", b"\xff\xfe\n\n   \nnot json\n"), ("r.reports", b"")])
def test_reports_are_appended_and_received(tmp_path: Path, name: str, noise: bytes) -> None:
    """What stands between them is counted and skipped, and a file that was cut loses its last report only."""
    path = tmp_path / name
    path.write_bytes(noise)
    bad = 2 if noise else 0
    for _ in range(2):
        assert local.write_reports(path, PROTOCOL, PROTOCOL.report(SETS)) == 30
    collector = PROTOCOL.collector()
    assert collector.receive(local.read_reports(path, PROTOCOL)) == local.Received(60, 0, 0, bad)
    path.write_bytes(path.read_bytes()[:-5])
    assert collector.receive(local.read_reports(path, PROTOCOL)) == local.Received(0, 59, 0, bad + 1)
