"""Tables on the command line: defects that were found and repaired, each in a small test."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger"]


@pytest.fixture(autouse=True)
def records(tmp_path: Path) -> None:
    large = np.array([2**63 + 5, 7] * 500, np.uint64)
    columns = {"g": ["a", "b"] * 500, "h": ["x"] * 1000, "amount": [1.0] * 1000, "n": large, "m": large // 2**40}
    pa.parquet.write_table(pa.table(columns), tmp_path / "e.parquet")


@pytest.mark.parametrize("command", [("table", "e.parquet", "--by"), ("run", "histogram", "e.parquet", "--key")])
def test_names_from_2_63_on_are_refused(dpsketch: Any, command: tuple[str, ...]) -> None:
    refused = dpsketch(*command, "n", *BUDGET, "-o", "n.dps")
    assert refused.code == 1, refused.err
    assert "integer keys and groups are below 2**63, and one is not. Pass them as text." in refused.err
    assert "9223372036854775813" not in refused.err
    assert dpsketch(*command, "m", *BUDGET, "-o", "m.dps").code == 0


def test_large_names_are_counted_where_they_are_text(dpsketch: Any) -> None:
    made = dpsketch("run", "histogram", "e.parquet", "--key", "n", "--key-type", "text", *BUDGET, "-o", "n.dps")
    assert made.code == 0, made.err
    listed = dpsketch("top", "n.dps", "--json").json["estimates"]
    assert {row["key"] for row in listed} == {"7", str(2**63 + 5)}
    counted = dpsketch(
        "run", "counts", "e.parquet", "--key", "n", "--rows", "3", "--width", "64", *BUDGET, "-o", "c.dps"
    )
    assert counted.code == 0, counted.err


def test_a_column_that_is_asked_for_twice_is_refused_in_words_of_the_command_line(dpsketch: Any) -> None:
    twice = ["--sum", "amount=0:10", "--sum", "amount=0:20"]
    refused = dpsketch("table", "e.parquet", "--by", "g", *twice, *BUDGET, "-o", "t.dps")
    assert refused.code == 2
    assert "Ask for each once" in refused.err
    assert "--name" not in refused.err


def test_numbers_of_other_groups_have_intervals(dpsketch: Any) -> None:
    made = dpsketch(
        "table", "e.parquet", "--by", "g", "--count", *BUDGET, "--confidence", "0.8", "-o", "t.dps", "--json"
    )
    private = dps.load("t.dps")
    assert made.json["others"] == private.others_at(0.8)
    assert dpsketch("query", "t.dps", "--confidence", "0.8", "--json").json["others"] == private.others_at(0.8)
    made = dpsketch("table", "e.parquet", "--by", "g", "--count", "--sum", "amount=0:1", *BUDGET)
    (line,) = (line for line in made.err.split(".\n") if "not listed, together" in line)
    assert line.count("[") == line.count("]") == 2


@pytest.mark.parametrize("by", ["g", "g,h"])
def test_tables_are_compared(dpsketch: Any, by: str) -> None:
    for name, columns in (
        ("a", ["--count"]),
        ("b", ["--count", "--sum", "amount=0:1"]),
        ("c", ["--sum", "amount=0:1"]),
    ):
        made = dpsketch("table", "e.parquet", "--by", by, *columns, *BUDGET, "-o", f"{name}.dps")
        assert made.code == 0, made.err
    group = "a" if by == "g" else "a,x"
    asked = dpsketch("compare", "a.dps", "b.dps", group)
    assert asked.code == 0, asked.err
    assert "inf" not in asked.out + asked.err
    assert "ε = 2" in asked.err
    for form in ("--json", "--csv", "--markdown"):
        assert dpsketch("compare", "a.dps", "b.dps", form).code == 0
    assert len(dpsketch("compare", "a.dps", "b.dps", "--json").json["estimates"]) == 2
    refused = dpsketch("compare", "a.dps", "c.dps", group)
    assert refused.code == 2
    assert "no number in common" in refused.err


@pytest.mark.parametrize(
    "wrong",
    [
        ["--confidence", "95"],
        ["--max-relative-error", "nan"],
        ["--max-relative-error", "-1"],
        ["--parquet", "nowhere/x.parquet"],
        ["--sum", "amount=low:high"],
    ],
    ids=" ".join,
)
def test_what_is_printed_is_checked_before_the_budget_is_charged(dpsketch: Any, wrong: list[str]) -> None:
    url = "sqlite:///budget.db"
    assert dpsketch("ledger", "create", "d", "--epsilon", "3", "--delta", "1e-5", "--ledger", url).code == 0
    asked = [
        "table",
        "e.parquet",
        "--by",
        "g",
        "--count",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--dataset",
        "d",
        "--ledger",
        url,
    ]
    assert dpsketch(*asked, *wrong).code != 0
    assert "Read" not in dpsketch(*asked, *wrong).err
    assert dps.Ledger(url).spent("d").releases == 0


def test_a_public_list_may_be_a_pipe(dpsketch: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "names"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("a\nb\n"))
    writer.start()
    made = dpsketch(
        "table", "e.parquet", "--by", "g", "--count", "--groups", str(pipe),
        "--epsilon", "1", "--delta", "0", "--no-ledger", "-o", "t.dps",
    )  # fmt: skip
    writer.join(10)
    assert made.code == 0, made.err
    assert dps.load("t.dps").groups == ["a", "b"]  # type: ignore[union-attr]
