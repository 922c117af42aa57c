"""How answers are asked for and printed: forms, and --decode."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger"]


@pytest.fixture
def words(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,p,n\n" + "".join(f'w{i},"a,{i}",{4000 // (i + 1)}\n' for i in range(200)))
    (tmp_path / "list.txt").write_text("".join(f"w{i}\n" for i in range(250)))
    for name, options in (
        ("counts", ["counts", "--key", "k", "--rows", "5", "--width", "64", "--seed", "3"]),
        ("histogram", ["histogram", "--key", "k"]),
        ("pairs", ["histogram", "--key", "k,p"]),
    ):
        made = dpsketch("run", options[0], "t.csv", *options[1:], "--count", "n", *BUDGET, "-o", f"{name}.dps")
        assert made.code == 0, made.err


@pytest.mark.usefixtures("words")
def test_every_form_has_one_row_a_key_and_the_guarantee_beside_it(dpsketch: Any) -> None:
    for command in (["query", "histogram.dps", "w0", "w1"], ["top", "histogram.dps", "-n", "2"]):
        answer = dpsketch(*command, "--csv")
        rows = list(csv.DictReader(answer.out.splitlines()))
        assert [row["key"] for row in rows] == ["w0", "w1"]
        assert list(rows[0]) == ["key", "value", "low", "high"]
        assert "Guarantee" in answer.err
        exact = dpsketch(*command, "--json").json["estimates"]
        assert [float(row["high"]) for row in rows] == [row["high"] for row in exact]
        shown = dpsketch(*command, "--markdown")
        assert shown.out.splitlines()[:2] == ["| key | value | low | high |", "|---|---:|---:|---:|"]
        assert "Guarantee" in shown.err
        assert dpsketch(*command, "--parquet", f"{command[0]}.parquet").code == 0
        table = pyarrow.parquet.read_table(f"{command[0]}.parquet")
        assert table.to_pylist() == exact
        assert table.schema.metadata[b"guarantee"].decode().startswith("ε = 1")
    (row,) = csv.DictReader(dpsketch("top", "pairs.dps", "-n", "1", "--csv").out.splitlines())
    assert (row["k"], row["p"]) == ("w0", "a,0")
    assert dpsketch("top", "pairs.dps", "--csv", "--json").code == 2


@pytest.mark.usefixtures("words")
def test_decoding_is_closer_and_its_top_holds_for_all_at_once(dpsketch: Any) -> None:
    """The table is narrow, so that collisions are most of the error. Deterministic by the test's name and seed."""
    truth = {f"w{i}": 4000 // (i + 1) if i < 200 else 0 for i in range(250)}

    def error(rows: list[Any]) -> float:
        return float(np.sqrt(np.mean([(row["value"] - truth[row["key"]]) ** 2 for row in rows])))

    plain, decoded = (
        dpsketch("query", "counts.dps", "--keys-from", "list.txt", "--json", *more).json["estimates"]
        for more in ([], ["--decode"])
    )
    assert [row["key"] for row in decoded] == list(truth)
    assert error(decoded) < error(plain) / 2
    top = dpsketch("top", "counts.dps", "--candidates", "list.txt", "--decode", "-n", "10", "--json").json["estimates"]
    # Wider than alone, since they were picked by their noise: each as for one in 250 candidates, with a margin of 4.
    each = ["--confidence", 1 - 0.05 / (4 * 250)]
    wide = dpsketch("query", "counts.dps", "--keys-from", "list.txt", "--json", "--decode", *each).json["estimates"]
    highs = {row["key"]: row["high"] for row in wide}
    assert [row["value"] for row in top] == sorted((row["value"] for row in decoded), reverse=True)[:10]
    assert [row["high"] for row in top] == pytest.approx([highs[row["key"]] for row in top])
    assert all(row["low"] <= truth[row["key"]] <= row["high"] for row in top)
    for asked, words in (
        (["query", "histogram.dps", "w0", "--decode"], "cannot be decoded"),
        (["top", "counts.dps"], "--candidates"),
    ):
        refused = dpsketch(*asked)
        assert (refused.code, words in refused.err) == (2, True)
