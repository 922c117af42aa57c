"""dpsketch audit: table, JSON, picture, exit codes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dpsketch.audit import table


def test_json_table_and_picture(dpsketch: Any, tmp_path: Path) -> None:
    result = dpsketch("audit", "local-subset-direct", "privsketch-as-published", "--trials", 1000, "--json")
    assert result.code == 0
    ours, theirs = result.json["mechanisms"]
    assert ours["name"] == "local-subset-direct"
    assert (ours["claimed_epsilon"], ours["verdict"]) == (1.5, "holds")
    assert 0 < ours["audited_epsilon"] < 1.5
    assert theirs["verdict"] == "violated"
    assert theirs["audited_epsilon"] > theirs["claimed_epsilon"] == 1
    assert "[1/2] local-subset-direct" in result.err
    drawn = dpsketch("audit", "race", "--trials", 600, "-o", tmp_path / "audit.png")
    assert drawn.code == 0
    assert "violated (as published)" in drawn.out
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_something_shipped_that_is_violated_fails(dpsketch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.SHIPPED, "local-set-sizes", partial(table.SHIPPED["local-set-sizes"], noise=0.3))
    result = dpsketch("audit", "local-set-sizes", "--trials", 2000, "--json")
    assert result.code == 1
    assert result.json["mechanisms"][0]["verdict"] == "violated"
    assert "violated, although shipped as private: local-set-sizes" in result.err
