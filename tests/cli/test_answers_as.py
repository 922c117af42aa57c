"""How answers are asked for and printed: --csv, --threshold, --decode, and keys that begin with a minus."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger"]


@pytest.fixture
def words(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,p,n\n" + "".join(f'w{i},"a,{i}",{4000 // (i + 1)}\n' for i in range(200)))
    (tmp_path / "list.txt").write_text("".join(f"w{i}\n" for i in range(250)))
    for kind, shape in (("counts", ["--rows", "5", "--width", "64", "--seed", "3"]), ("histogram", [])):
        made = dpsketch("run", kind, "t.csv", "--key", "k", "--count", "n", *shape, *BUDGET, "-o", f"{kind}.dps")
        assert made.code == 0, made.err
    made = dpsketch("run", "histogram", "t.csv", "--key", "k,p", "--count", "n", *BUDGET, "-o", "pairs.dps")
    assert made.code == 0, made.err


@pytest.mark.usefixtures("words")
def test_csv_has_one_row_a_key_and_the_guarantee_beside_it(dpsketch: Any) -> None:
    for command in (["query", "histogram.dps", "w0", "w1"], ["top", "histogram.dps", "-n", "2"]):
        answer = dpsketch(*command, "--csv")
        rows = list(csv.DictReader(answer.out.splitlines()))
        assert [row["key"] for row in rows] == ["w0", "w1"]
        assert list(rows[0]) == ["key", "value", "low", "high"]
        assert abs(float(rows[0]["value"]) - 4000) < 60
        assert "Guarantee" in answer.err
        exact = dpsketch(*command, "--json").json["estimates"]
        assert [float(row["high"]) for row in rows] == [row["high"] for row in exact]
    rows = list(csv.DictReader(dpsketch("top", "pairs.dps", "-n", "1", "--csv").out.splitlines()))
    assert (rows[0]["k"], rows[0]["p"]) == ("w0", "a,0")
    assert list(rows[0]) == ["k", "p", "value", "low", "high"]
    assert dpsketch("query", "histogram.dps", "w0", "--csv", "--json").code == 2


@pytest.mark.usefixtures("words")
def test_a_threshold_lists_all_that_reach_it(dpsketch: Any) -> None:
    listed = dpsketch("top", "histogram.dps", "--threshold", "100", "--json").json["estimates"]
    assert len(listed) > 20
    assert min(row["value"] for row in listed) >= 100
    whole = dpsketch("top", "histogram.dps", "-n", "1000", "--json").json["estimates"]
    assert listed == [row for row in whole if row["value"] >= 100]
    assert len(dpsketch("top", "histogram.dps", "--threshold", "100", "-n", "3", "--json").json["estimates"]) == 3
    assert len(dpsketch("top", "histogram.dps", "--json").json["estimates"]) == 20
    none = dpsketch("top", "histogram.dps", "--threshold", "1e9")
    assert none.code == 0
    assert "No estimate reaches 1e+09" in none.err
    assert dpsketch("top", "histogram.dps", "--threshold", "nan").code == 2


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


@pytest.mark.usefixtures("words")
def test_what_cannot_be_decoded_says_so(dpsketch: Any) -> None:
    assert "cannot be decoded" in dpsketch("query", "histogram.dps", "w0", "--decode").err
    assert "drop --estimator" in dpsketch("query", "counts.dps", "w0", "--decode", "--estimator", "mean").err
    assert "list of candidates" in dpsketch("top", "counts.dps", "--decode").err
    assert "at least one key" in dpsketch("query", "counts.dps", "--decode").err


def test_a_key_that_begins_with_a_minus_is_told_about_two_dashes(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("v\n" + "-5\n" * 500)
    shape = ["--bits", "6", "--start=-32"]
    made = dpsketch("run", "ranges", "t.csv", "--key", "v", "--key-type", "int", *shape, *BUDGET, "-o", "out.dps")
    assert made.code == 0, made.err
    for asked in ("-20:0", "-.5"):
        refused = dpsketch("query", "out.dps", asked)
        assert refused.code == 2
        assert "-- -20:0" in refused.err
    found = dpsketch("query", "out.dps", "--json", "--", "-20:0").json["estimates"]
    assert abs(found[0]["value"] - 500) < 100
    assert "No such option" in dpsketch("query", "out.dps", "--nonsense").err


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what bars will be told: what each is for, and all its states."""
    told: list[Any] = []

    @contextmanager
    def bar(what: str) -> Iterator[Callable[[Any], None]]:
        told.append(what)
        yield told.append

    monkeypatch.setattr("dpsketch.cli.query.progress_bar", bar)
    return told


def test_a_search_moves_a_bar(dpsketch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Level by level, and the answer is the one without it; candidates are not searched for."""
    (tmp_path / "words.csv").write_text("word\n" + "often\n" * 3000)
    dpsketch("run", "heavy", "words.csv", "--key", "word", "--key-bytes", "6", *BUDGET, "-o", "heavy.dps")
    plain = dpsketch("top", "heavy.dps", "--json").json
    told = watched(monkeypatch)
    assert dpsketch("top", "heavy.dps", "--json").json == plain
    assert told[0] == "searching"
    assert [(state.done, state.total, state.unit) for state in told[-4:]] == [(i, 4, "levels") for i in range(1, 5)]
    told.clear()
    (tmp_path / "list.txt").write_text("often\n")
    dpsketch("top", "heavy.dps", "--candidates", "list.txt")
    assert told == []
