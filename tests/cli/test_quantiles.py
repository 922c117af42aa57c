"""Quantiles that are named on the command line: run, query, build, merge, release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps

Runner = Callable[..., Any]

BUDGET = ("--epsilon", 4, "--delta", 0, "--no-ledger")
SHAPE = ("--key", "age", "--bits", 7, "--quantiles", "0.5,0.9")


@pytest.fixture(autouse=True)
def ages(tmp_path: Path) -> None:
    (tmp_path / "ages.csv").write_text("age,who\n" + "".join(f"{20 + i % 40},{i}\n" for i in range(4000)))
    (tmp_path / "more.csv").write_text("age,who\n" + "".join(f"70,{i}\n" for i in range(5000, 5100)))


def test_named_quantiles_are_released_and_asked(dpsketch: Runner) -> None:
    made = dpsketch("run", "ranges", "ages.csv", *SHAPE, *BUDGET, "-o", "q.dps")
    assert made.code == 0, made.err
    assert isinstance(dps.load("q.dps"), dps.PrivateQuantiles)
    both = dpsketch("query", "q.dps", "--json").json["estimates"]
    assert [one["key"] for one in both] == ["50%", "90%"]
    assert (both[0]["value"] in (39, 40), both[1]["value"] in (55, 56)) == (True, True)
    assert [(one["low"], one["high"]) for one in both] == [(None, None)] * 2
    assert "a sketch made with --interval-share 0.5 has them" in dpsketch("query", "q.dps").err.lower()
    other = dpsketch("query", "q.dps", "25%")
    assert (other.code, "were named" in " ".join(other.err.split())) == (2, True)
    assert dpsketch("plot", "q.dps", "-o", "q.png").code == 0


def test_parts_of_named_quantiles_merge_and_get_intervals(dpsketch: Runner) -> None:
    users = ("--user", "who", "--max-keys", 1, "--interval-share", 0.5)
    first = dpsketch("build", "ranges", "ages.csv", *SHAPE, *users, "-o", "one.sketch")
    assert first.code == 0, first.err
    like = ("--key", "age", "--user", "who", "--like", "one.sketch")
    second = dpsketch("build", "ranges", "more.csv", *like, "-o", "two.sketch")
    assert second.code == 0, second.err
    assert dpsketch("merge", "one.sketch", "two.sketch", "-o", "both.sketch").code == 0
    released = dpsketch("release", "both.sketch", *BUDGET, "-o", "both.dps")
    assert released.code == 0, released.err
    (median,) = dpsketch("query", "both.dps", "50%", "--json").json["estimates"]
    assert median["value"] in (39, 40, 41)
    assert median["low"] <= median["value"] <= median["high"] < 127
    for command in (["query", "both.dps", "50%", "--confidence", 0.99], ["compare", "both.dps", "both.dps", "50%"]):
        surer = dpsketch(*command, "--json").json
        assert surer["estimates"][0]["high"] is None
        assert "at most 0.95" in surer["note"]
