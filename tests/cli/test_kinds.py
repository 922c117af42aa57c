"""Kinds through the command line: run, query, inspect, plot, parts that merge, parties and local reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps
from sensitive import everything

BUDGET = ["--epsilon", "2", "--delta", "1e-6"]
RECORDS = 5_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """5,000 records: a skewed text key, an integer key, a user, two coordinates."""
    rng = np.random.default_rng(8)
    rank = np.minimum(rng.zipf(1.4, RECORDS), 500)
    return pa.table(
        {
            "word": pa.array([f"w{value}" for value in rank.tolist()]),
            "id": rank,
            "user": pa.array([f"u{value}" for value in rng.integers(0, 1000, RECORDS).tolist()]),
            "x": rng.normal(0, 1, RECORDS),
            "y": rng.normal(2, 0.5, RECORDS),
        }
    )


@pytest.fixture
def words(table: pa.Table, tmp_path: Path) -> str:
    pa.parquet.write_table(table, tmp_path / "words.parquet")
    return "words.parquet"


@pytest.fixture(scope="module")
def truth(table: pa.Table) -> dict[int, int]:
    return {item["values"]: item["counts"] for item in table["id"].value_counts().to_pylist()}


def made(dpsketch: Any, *arguments: object) -> Any:
    done = dpsketch(*arguments)
    assert done.code == 0, done.err
    return done


def asked(dpsketch: Any, *arguments: object) -> Any:
    return made(dpsketch, "query", *arguments[:1], "--json", "--", *arguments[1:]).json["estimates"]


# Options of a kind, questions to it, the true answer, and how far off by a factor it may be.
ANSWERS: dict[str, tuple[list[str], list[str], Callable[[dict[int, int]], float], float]] = {
    "moment": (
        ["--key", "id", "--p", "0.5", "--size", "100"],
        [],
        lambda n: sum(each**0.5 for each in n.values()),
        0.8,
    ),
    "distinct": (["--key", "id"], [], len, 0.25),
    "ranges": (["--key", "id", "--bits", "12"], ["1:3"], lambda n: n[1] + n[2] + n[3], 0.1),
    "heavy": (["--key", "word", "--key-bytes", "8"], ["w1"], lambda n: n[1], 0.1),
    "density": (["--columns", "x,y", "--bandwidth", "1", "--bounds=-4:4,0:4"], ["0,2"], lambda _: 0.45, 0.3),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_kind_is_run_asked_drawn_and_described(dpsketch: Any, words: str, truth: dict[int, int], kind: str) -> None:
    options, questions, true, off = ANSWERS[kind]
    made(dpsketch, "run", kind, words, *options, *BUDGET, "-o", "it.dps")
    (found,) = asked(dpsketch, "it.dps", *questions)
    assert found["value"] == pytest.approx(true(truth), rel=off)
    made(dpsketch, "plot", "it.dps", "-o", "it.png")
    assert Path("it.png").read_bytes().startswith(b"\x89PNG")
    assert made(dpsketch, "inspect", "it.dps", "--json").json["kind"] == kind


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("histogram", ["--key", "word"]),
        ("moment", ["--key", "word", "--p", "0.5", "--size", "20"]),
        ("density", ["--columns", "x,y", "--bounds=-4:4,0:4", "--features", "linear"]),
    ],
)
def test_users_are_bounded_and_parts_merge_to_one_pass(
    dpsketch: Any, table: pa.Table, kind: str, options: list[str]
) -> None:
    """Two files split by user, and one sketch over both, are the same; a sketch is not merged with itself."""
    first = pa.compute.less(pa.compute.utf8_length(table["user"]), 4)
    pa.parquet.write_table(table.filter(first), "one.parquet")
    pa.parquet.write_table(table.filter(pa.compute.invert(first)), "two.parquet")
    users = [*options, "--user", "user", "--max-keys", "3"]
    made(dpsketch, "build", kind, "one.parquet", *users, "-o", "one.sketch")
    assert dpsketch("query", "one.sketch", "w1").code == 1  # a sensitive file is not asked
    like = [*options[:2], "--user", "user", "--like", "one.sketch"]
    made(dpsketch, "build", kind, "two.parquet", *like, "-o", "two.sketch")
    made(dpsketch, "merge", "one.sketch", "two.sketch", "-o", "both.sketch")
    again = dpsketch("merge", "one.sketch", "./one.sketch", "-o", "x.sketch")
    # A moment's parts were destroyed by their merge, and are no files any more.
    assert again.code == (1 if kind == "moment" else 2)
    assert not Path("x.sketch").exists()
    if kind != "moment":
        made(dpsketch, "build", kind, "one.parquet", "two.parquet", *users, "-o", "whole.sketch")
        both, single = (dps.load_sensitive(name) for name in ("both.sketch", "whole.sketch"))
        assert everything(both) == everything(single)
    released = made(dpsketch, "release", "both.sketch", *BUDGET, "-o", "both.dps", "--json")
    assert released.json["guarantee"]["unit"]["max_keys"] == 3
    assert Path("both.sketch").exists() is (kind != "moment")


def test_parties_share_the_noise(dpsketch: Any, words: str, truth: dict[int, int]) -> None:
    share = ["--parties", "3", "--party"]
    for party in ("0", "1", "2"):
        dpsketch("build", "counts", words, "--key", "word", "-o", f"{party}.sketch")
        own = [party, "-o", f"{party}.dps", "--dataset", f"of {party}"]
        made(dpsketch, "release", f"{party}.sketch", *BUDGET, *share, *own)
    merged = made(dpsketch, "merge", "0.dps", "1.dps", "2.dps", "-o", "all.dps")
    assert "ε = 2" in merged.err
    assert asked(dpsketch, "all.dps", "w1")[0]["value"] == pytest.approx(3 * truth[1], abs=300)
    assert dpsketch("merge", "0.dps", "1.dps", "-o", "two.dps").code == 1
    made(dpsketch, "merge", "0.dps", "1.dps", "--missing", "1", "-o", "two.dps")
    made(dpsketch, "release", "0.sketch", *BUDGET, *share, "1", "-o", "again.dps", "--dataset", "again")
    twice = dpsketch("merge", "0.dps", "again.dps", "2.dps", "-o", "twice.dps")
    assert twice.code == 1
    assert "one sketch is in two of the shares" in twice.err
    assert not Path("twice.dps").exists()


def test_local_reports(dpsketch: Any, words: str, table: pa.Table) -> None:
    report = ["local", "report", words, "--user", "user", "--key", "word", "--spec", "spec.json"]
    made(dpsketch, *report, "--epsilon", "4", "--max-items", "10", "-o", "reports.jsonl")
    made(dpsketch, *report, "-o", "more.bin")
    sources = ["reports.jsonl", "more.bin", "reports.jsonl"]
    collected = made(dpsketch, "local", "collect", *sources, "--spec", "spec.json", "-o", "c.dps", "--json").json
    people = len(set(table["user"].to_pylist()))
    assert (collected["accepted"], collected["repeated"]) == (2 * people, people)
    Path("junk.jsonl").write_text("{}\nnot json\n")
    more = ["--spec", "spec.json", "--add-to", "c.dps", "-o", "d.dps", "--json"]
    junk = dpsketch("local", "collect", "junk.jsonl", *more).json
    assert junk["malformed"] + junk["other_spec"] == 2
    found = asked(dpsketch, "c.dps", "w1", "nothing")
    assert found[0]["value"] > 0.5
    assert abs(found[1]["value"]) < 0.2
