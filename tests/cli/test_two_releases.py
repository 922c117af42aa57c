"""Two releases: compare, add and subtract say what Python's operators do, with the guarantee of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger"]


@pytest.fixture
def days(dpsketch: Any, tmp_path: Path) -> None:
    for day, counts in (("mon", {"a": 3000, "b": 1000}), ("tue", {"a": 1000, "b": 1010, "c": 500})):
        rows = "".join(f"{key},x\n" * count for key, count in counts.items())
        (tmp_path / f"{day}.csv").write_text("k,p\n" + rows)
        for kind, shape in (("counts", ["--rows", "5", "--width", "64", "--seed", "3"]), ("histogram", [])):
            made = dpsketch("run", kind, f"{day}.csv", "--key", "k", *shape, *BUDGET, "-o", f"{day}-{kind}.dps")
            assert made.code == 0, made.err


@pytest.mark.usefixtures("days")
def test_add_and_subtract_are_pythons(dpsketch: Any) -> None:
    mon, tue = (dps.load(f"{day}-counts.dps") for day in ("mon", "tue"))
    for command, expected in (("add", tue + mon), ("subtract", tue - mon)):
        made = dpsketch(command, "tue-counts.dps", "mon-counts.dps", "-o", f"{command}.dps")
        assert made.code == 0, made.err
        found = dps.load(f"{command}.dps")
        assert np.array_equal(found.table, expected.table)
        assert found.guarantee == expected.guarantee
        assert found.guarantee.epsilon > 1.3  # of someone in both
        assert str(expected.guarantee) in made.err
    asked = dpsketch("query", "subtract.dps", "a", "--json").json["estimates"][0]
    assert abs(asked["value"] + 2000) < 100
    assert dpsketch("add", "mon-counts.dps", "mon-counts.dps", "-o", "twice.dps").code == 1
    refused = dpsketch("add", "mon-histogram.dps", "tue-histogram.dps", "-o", "no.dps")
    assert refused.code == 2
    assert "dpsketch compare" in refused.err
    assert not Path("no.dps").exists()
    assert dpsketch("add", "mon-counts.dps", "tue-counts.dps", "-o", "add.dps").code == 4  # it is there


@pytest.mark.usefixtures("days")
def test_compare_tells_what_changed_from_the_first_to_the_second(dpsketch: Any) -> None:
    truth = {"a": -2000, "b": 10, "c": 500}
    for kind in ("histogram", "counts"):
        asked = [] if kind == "histogram" else ["a", "b", "c"]
        answer = dpsketch("compare", f"mon-{kind}.dps", f"tue-{kind}.dps", *asked, "--json").json
        rows = {row["key"]: row for row in answer["estimates"]}
        assert rows.keys() == truth.keys()
        assert all(rows[key]["low"] <= value <= rows[key]["high"] for key, value in truth.items() if key != "c")
        assert answer["guarantee"]["epsilon"] > 1.3
        assert "no significance test" in answer["note"]
        assert "no significance test" in dpsketch("compare", f"mon-{kind}.dps", f"tue-{kind}.dps", "a").err
    assert next(iter(rows)) == "a"
    both = (dps.load("mon-histogram.dps"), dps.load("tue-histogram.dps"))
    before, after = (release.estimate(["a"], confidence=0.975) for release in both)
    row = dpsketch("compare", "mon-histogram.dps", "tue-histogram.dps", "a", "--json").json["estimates"][0]
    assert (row["value"], row["low"], row["high"]) == (
        after.value[0] - before.value[0], after.low[0] - before.high[0], after.high[0] - before.low[0],
    )  # fmt: skip
    for pair in (("mon-counts.dps", "tue-histogram.dps"), ("mon-counts.dps", "tue-counts.dps")):
        assert dpsketch("compare", *pair).code == 2  # other kinds; keys that nobody named


@pytest.mark.usefixtures("days")
def test_answers_are_written_as_markdown_and_parquet(dpsketch: Any, tmp_path: Path) -> None:
    shown = dpsketch("top", "mon-histogram.dps", "--markdown")
    lines = shown.out.splitlines()
    assert lines[:2] == ["| key | value | low | high |", "|---|---:|---:|---:|"]
    assert lines[2].startswith("| a |")
    assert "Guarantee" in shown.err
    assert dpsketch("query", "mon-histogram.dps", "a", "b", "--parquet", "out.parquet").code == 0
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    exact = dpsketch("query", "mon-histogram.dps", "a", "b", "--json").json
    assert table.to_pylist() == exact["estimates"]
    assert table.schema.metadata[b"guarantee"].decode().startswith("ε = 1")
    made = dpsketch("run", "histogram", "mon.csv", "--key", "k,p", *BUDGET, "-o", "pairs.dps")
    assert made.code == 0, made.err
    assert dpsketch("top", "pairs.dps", "--markdown").out.startswith("| k | p | value")
    dpsketch("top", "pairs.dps", "--parquet", "pairs.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "pairs.parquet").column_names == ["k", "p", "value", "low", "high"]
    assert dpsketch("top", "pairs.dps", "--markdown", "--csv").code == 2


def test_a_density_is_asked_in_the_units_of_python(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "1,2\n3,4\n" * 500)
    shape = ["--columns", "x,y", "--bandwidth", "2", "--power", "2", "--rows", "50"]
    made = dpsketch("run", "density", "t.csv", *shape, *BUDGET, "-o", "d.dps")
    assert made.code == 0, made.err
    private = dps.load("d.dps")
    assert private.spec.kernel.power == 2
    asked = dpsketch("query", "d.dps", "1,2")
    assert "density() in Python" in asked.err
    shell = dpsketch("query", "d.dps", "1,2", "--json").json["estimates"][0]
    assert shell["value"] == private.density([[1.0, 2.0]]).value[0]
    shell = dpsketch("query", "d.dps", "1,2", "--estimator", "sum", "--json").json["estimates"][0]
    assert shell["value"] == private.estimate([[1.0, 2.0]]).value[0]
    assert dpsketch("query", "d.dps", "1,2", "--estimator", "median").code == 2


SOME = [(1, -3), (17, -1000)]
MORE = [*((bits, 0) for bits in range(1, 65)), (63, -(2**63)), (40, 2**63 - 1)]


@pytest.mark.parametrize("cases", [SOME, pytest.param(MORE, marks=pytest.mark.full)], ids=["some", "all"])
def test_ranges_are_planned_at_every_number_of_bits_and_start(dpsketch: Any, cases: list[tuple[int, int]]) -> None:
    for bits, start in cases:
        command = ["plan", "ranges", "--bits", bits, "--start", start, "--epsilon", "1", "--delta", "1e-6"]
        found = dpsketch(*command, "--records", "1e6")
        assert found.code == 0, found.err
        assert (f"--bits {bits} --start {start}" if start else f"--bits {bits}") in found.out
    named = dpsketch(*command[:3], 20, "--start", -7, "--quantiles", "0.5", "--epsilon", "1", "--records", "1e6")
    assert "--bits 20 --start -7 --quantiles 0.5" in named.out
    assert dpsketch("plan", "counts", "--keys", "1e5", "--records", "1e6", "--epsilon", "1").code == 0


def test_a_dry_run_says_what_the_release_will_be_worth_for_stated_numbers(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k\n1\n")
    stated = ["--records", "1e5", "--keys", "2000", "--dry-run", "-o", "out.dps"]
    for kind, shape, number in (
        ("histogram", [], "error_of_a_count"),
        ("counts", ["--rows", "5", "--width", "512"], "error_of_an_estimate"),
        ("ranges", ["--bits", "16"], "error_of_a_rank"),
    ):
        shown = dpsketch("run", kind, "t.csv", "--key", "k", *shape, *BUDGET, *stated)
        assert "For 100,000 records over 2,000 keys" in shown.out, shown.err
        found = dpsketch("run", kind, "t.csv", "--key", "k", *shape, *BUDGET, *stated, "--json").json["expected"]
        assert found["keys"] == 2000
        assert found[number] > 0
    assert "expected" not in dpsketch("run", kind, "t.csv", "--key", "k", *shape, *BUDGET, *stated[4:], "--json").json
