"""Ctrl-C while records are read: nothing is charged, released or saved."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from dpsketch.ledger import Ledger
from dpsketch.sketches.countsketch import addition


@pytest.mark.parametrize("command", ["run", "build"])
def test_an_interrupted_feed_releases_and_saves_nothing(
    command: str, dpsketch: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "visits.csv").write_text("page\n" + "a\nb\n" * 500)
    whole = addition.kernels.add_ones

    def interrupted_after(*given: Any) -> None:
        whole(*given)
        raise KeyboardInterrupt

    budget = ["--epsilon", "1", "--delta", "1e-6", "--dataset", "web"] if command == "run" else []
    arguments = [command, "counts", "visits.csv", "--key", "page", *budget, "-o", "out"]
    monkeypatch.setattr(addition.kernels, "add_ones", interrupted_after)
    stopped = dpsketch(*arguments)
    assert stopped.code == 130
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("ledger")) == ["visits.csv"]
    assert Ledger.default().datasets() == []
    monkeypatch.setattr(addition.kernels, "add_ones", whole)
    assert dpsketch(*arguments).code == 0


def test_a_copied_partial_is_not_merged(dpsketch: Any, tmp_path: Any) -> None:
    (tmp_path / "visits.csv").write_text("page\na\nb\n")
    assert dpsketch("build", "counts", "visits.csv", "--key", "page", "-o", "one.sketch").code == 0
    shutil.copy(tmp_path / "one.sketch", tmp_path / "copy.sketch")
    refused = dpsketch("merge", "one.sketch", "copy.sketch", "-o", "both.sketch")
    assert refused.code == 1
    assert "already in the sketch" in refused.err
    assert not (tmp_path / "both.sketch").exists()
