"""Every kind through the command line: run, query, inspect, plot, and parts that merge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch import local
from sensitive import everything

BUDGET = ["--epsilon", "2", "--delta", "1e-6"]


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A table of 20,000 records: a skewed text key, an integer key, a user, two coordinates."""
    rng = np.random.default_rng(8)
    n = 20_000
    rank = np.minimum(rng.zipf(1.4, n), 500)
    table = pa.table(
        {
            "word": pa.array([f"w{value}" for value in rank.tolist()]),
            "id": rank,
            "user": pa.array([f"u{value}" for value in rng.integers(0, 3000, n).tolist()]),
            "x": rng.normal(0, 1, n),
            "y": rng.normal(2, 0.5, n),
        }
    )
    pa.parquet.write_table(table, tmp_path / "words.parquet")
    return tmp_path / "words.parquet"


def truth(path: Path, key: str) -> dict[object, int]:
    column = pa.parquet.read_table(path)[key]
    return {item["values"]: item["counts"] for item in column.value_counts().to_pylist()}


def test_heavy(dpsketch, words) -> None:
    made = dpsketch(
        "run", "heavy", words, "--key", "word", "--key-bytes", "8", "--width", "1024", *BUDGET, "-o", "h.dps"
    )
    assert made.code == 0, made.err
    found = dpsketch("top", "h.dps", "-n", "5", "--json").json["estimates"]
    counts = truth(words, "word")
    best = sorted(counts, key=counts.__getitem__, reverse=True)[:3]
    assert set(best) <= {row["key"] for row in found}
    assert found[0]["key"] == best[0]
    assert dpsketch("query", "h.dps", "w1", "--json").json["estimates"][0]["value"] == pytest.approx(
        counts["w1"], abs=300
    )
    assert dpsketch("plot", "h.dps", "-o", "h.png").code == 0
    without = dpsketch("run", "heavy", words, "--key", "word", *BUDGET, "-o", "x.dps")
    assert without.code == 2
    assert "--key-bytes" in without.err


def test_sparse(dpsketch, words) -> None:
    made = dpsketch("run", "sparse", words, "--key", "id", "--epsilon", "2", "--delta", "0", "-o", "s.dps")
    assert made.code == 0, made.err
    counts = truth(words, "id")
    found = dpsketch("query", "s.dps", "1", "2", "499", "--json").json
    assert found["guarantee"]["delta"] == 0
    assert found["estimates"][0]["value"] == pytest.approx(counts[1], rel=0.1)
    assert dpsketch("inspect", "s.dps").code == 0
    assert dpsketch("plot", "s.dps", "-o", "s.png").code == 0


def test_moments(dpsketch, words) -> None:
    one = dpsketch("run", "moment", words, "--key", "id", "--p", "0.5", "--size", "100", *BUDGET, "-o", "m.dps")
    assert one.code == 0, one.err
    answer = dpsketch("query", "m.dps", "--json").json["estimates"][0]
    exact = sum(count**0.5 for count in truth(words, "id").values())
    assert answer["key"] == "F_0.5"
    assert answer["value"] == pytest.approx(exact, rel=0.8)
    several = dpsketch("run", "moment", words, "--key", "id", "--p", "0.5", "--p", "1", *BUDGET, "-o", "n.dps")
    assert several.code == 0, several.err
    assert [row["key"] for row in dpsketch("query", "n.dps", "--json").json["estimates"]] == ["F_0.5", "F_1"]
    history = dpsketch("ledger", "history", "words.parquet", "--json").json["charges"]
    assert len(history) == 2
    for name in ("m", "n"):
        assert dpsketch("plot", f"{name}.dps", "-o", f"{name}.png").code == 0
        assert dpsketch("inspect", f"{name}.dps", "--json").code == 0
    assert dpsketch("query", "m.dps", "w1").code == 2
    assert dpsketch("run", "moment", words, "--key", "id", *BUDGET, "-o", "x.dps").code == 2


def test_density(dpsketch, words) -> None:
    made = dpsketch(
        "run", "density", words, "--columns", "x,y", "--bandwidth", "1", "--bounds=-4:4,0:4", *BUDGET, "-o", "d.dps"
    )
    assert made.code == 0, made.err
    middle, edge = dpsketch("query", "d.dps", "--json", "--", "0,2", "-3.5,0.2").json["estimates"]
    assert middle["value"] > 3 * edge["value"]
    assert dpsketch("plot", "d.dps", "-o", "d.png").code == 0
    line = ["run", "density", words, "--columns", "x", "--bandwidth", "1", "--bounds=-4:4", *BUDGET, "-o", "e.dps"]
    assert dpsketch(*line).code == 0
    assert dpsketch("plot", "e.dps", "-o", "e.png").code == 0
    assert dpsketch("query", "d.dps", "1").code == 2
    outside = dpsketch("query", "d.dps", "--", "0,2", "0,4.5")
    assert outside.code == 2
    assert "outside the sketch's bounds" in " ".join(outside.err.split())
    assert dpsketch("run", "density", words, "--columns", "x", *BUDGET, "-o", "x.dps").code == 2


@pytest.mark.parametrize("features", ["fourier", "series", "linear", "signs", "auto"])
def test_density_of_features(dpsketch, words, tmp_path, features: str) -> None:
    more = {"fourier": ["--rows", "200"]}.get(features, [])
    reach = [] if features in ("linear", "signs") else ["--bandwidth", "0.8"]
    shape = ["--columns", "x,y", *reach, "--bounds=-4:4,0:4", "--features", features, *more]
    made = dpsketch("run", "density", words, *shape, *BUDGET, "-o", "d.dps")
    assert made.code == 0, made.err
    shown = dpsketch("inspect", "d.dps", "--json").json
    assert shown["spec"]["features"] == ("series" if features == "auto" else features)
    near, far = dpsketch("query", "d.dps", "--json", "--", "0,2", "-3.5,0.2").json["estimates"]
    assert near["low"] <= near["value"] <= near["high"]
    if features not in ("linear", "signs"):
        assert near["value"] > 3 * far["value"]
    assert dpsketch("plot", "d.dps", "-o", "d.png").code == 0
    # Parts of it, counted apart, merge into one release.
    for part in ("a.sketch", "b.sketch"):
        built = dpsketch("build", "density", words, *shape, "--seed", "1", "-o", part)
        assert built.code == 0, built.err
    merged = dpsketch("merge", "a.sketch", "b.sketch", "-o", "c.sketch")
    assert merged.code == 0, merged.err
    assert dpsketch("release", "c.sketch", *BUDGET, "-o", "c.dps").code == 0
    wrong = dpsketch(
        "run",
        "density",
        words,
        "--columns",
        "x,y",
        "--features",
        "wavelets",
        "--bandwidth",
        "1",
        *BUDGET,
        "-o",
        "x.dps",
    )
    assert wrong.code == 2
    assert "fourier" in wrong.err


def test_distinct_and_ranges(dpsketch, words) -> None:
    made = dpsketch("run", "distinct", words, "--key", "id", *BUDGET, "-o", "f.dps")
    assert made.code == 0, made.err
    found = dpsketch("query", "f.dps", "--json").json["estimates"][0]
    assert found["value"] == pytest.approx(len(truth(words, "id")), rel=0.15)
    made = dpsketch("run", "ranges", words, "--key", "id", "--bits", "12", *BUDGET, "-o", "r.dps")
    assert made.code == 0, made.err
    inside, median = dpsketch("query", "r.dps", "1:3", "50%", "--json").json["estimates"]
    counts = truth(words, "id")
    assert inside["value"] == pytest.approx(counts[1] + counts[2] + counts[3], rel=0.1)
    assert median["value"] <= 4
    assert dpsketch("plot", "r.dps", "-o", "r.png").code == 0


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("histogram", ["--key", "word"]),
        ("counts", ["--key", "word"]),
        ("heavy", ["--key", "word", "--key-bytes", "8", "--width", "256"]),
        ("sparse", ["--key", "word"]),
        ("distinct", ["--key", "word"]),
        ("moment", ["--key", "word", "--p", "0.5", "--size", "20"]),
        ("density", ["--columns", "x,y", "--bandwidth", "1", "--rows", "20"]),
        ("ranges", ["--key", "id", "--bits", "12"]),
    ],
)
def test_users_are_bounded_and_parts_merge_to_one_pass(dpsketch, words, tmp_path, kind, options) -> None:
    """Two files split by user, and one sketch over both, are the same; a user in both files is refused."""
    table = pa.parquet.read_table(words)
    first = pa.compute.less(pa.compute.utf8_length(table["user"]), 5)
    pa.parquet.write_table(table.filter(first), tmp_path / "one.parquet")
    pa.parquet.write_table(table.filter(pa.compute.invert(first)), tmp_path / "two.parquet")
    users = [*options, "--user", "user", "--max-keys", "3"]
    made = dpsketch("build", kind, "one.parquet", *users, "-o", "one.sketch")
    assert made.code == 0, made.err
    inputs = [part for part in options if part in ("--key", "--columns", "word", "id", "x,y")]
    like = dpsketch("build", kind, "two.parquet", *inputs, "--user", "user", "--like", "one.sketch", "-o", "two.sketch")
    assert like.code == 0, like.err
    merged = dpsketch("merge", "one.sketch", "two.sketch", "-o", "both.sketch")
    assert merged.code == 0, merged.err
    released = dpsketch("release", "both.sketch", *BUDGET[:2], "--delta", "1e-6", "-o", "both.dps", "--json")
    if kind in ("sparse",):
        assert released.code in (0, 1)
    else:
        assert released.code == 0, released.err
        assert released.json["guarantee"]["unit"] == {
            "level": "user", "max_keys": 3, "max_weight": 1, "neighbours": "add_remove",
        }  # fmt: skip
    if kind == "moment":
        assert not (tmp_path / "both.sketch").exists()
    else:
        whole = dpsketch("build", kind, "one.parquet", "two.parquet", *users, "-o", "whole.sketch")
        assert whole.code == 0, whole.err
        both, single = (dps.load_sensitive(tmp_path / name) for name in ("both.sketch", "whole.sketch"))
        assert everything(both) == everything(single)
    again = dpsketch("merge", "one.sketch", "one.sketch", "-o", "x.sketch")
    # A moment's parts were destroyed by their merge, and are no files any more.
    assert again.code == (1 if kind == "moment" else 2)
    assert not (tmp_path / "x.sketch").exists()


def test_parties_share_the_noise(dpsketch, words, tmp_path) -> None:
    share = ["--parties", "3", "--party"]
    for party in ("0", "1", "2"):
        dpsketch("build", "counts", words, "--key", "word", "-o", f"{party}.sketch")
        made = dpsketch(
            "release", f"{party}.sketch", *BUDGET, *share, party, "-o", f"{party}.dps", "--dataset", f"of {party}"
        )
        assert made.code == 0, made.err
    merged = dpsketch("merge", "0.dps", "1.dps", "2.dps", "-o", "all.dps")
    assert merged.code == 0, merged.err
    assert "ε = 2" in merged.err
    found = dpsketch("query", "all.dps", "w1", "--json").json["estimates"][0]
    assert found["value"] == pytest.approx(3 * truth(words, "word")["w1"], abs=300)
    refused = dpsketch("merge", "0.dps", "1.dps", "-o", "two.dps")
    assert refused.code == 1
    assert dpsketch("merge", "0.dps", "1.dps", "--missing", "1", "-o", "two.dps").code == 0
    assert dpsketch("release", "0.sketch", *BUDGET, *share, "1", "-o", "again.dps", "--dataset", "again").code == 0
    twice = dpsketch("merge", "0.dps", "again.dps", "2.dps", "-o", "twice.dps")
    assert twice.code == 1
    assert "one sketch is in two of the shares" in twice.err
    assert not (tmp_path / "twice.dps").exists()


def test_local_reports(dpsketch, words, tmp_path) -> None:
    report = ["local", "report", words, "--user", "user", "--key", "word", "--spec", "spec.json"]
    made = dpsketch(*report, "--epsilon", "4", "--max-items", "10", "-o", "reports.jsonl")
    assert made.code == 0, made.err
    assert dpsketch(*report, "-o", "more.bin").code == 0
    refused = dpsketch(*report, "-o", "more.bin")
    assert refused.code == 4
    collected = dpsketch(
        "local", "collect", "reports.jsonl", "more.bin", "reports.jsonl", "--spec", "spec.json", "-o", "c.dps", "--json"
    )
    assert collected.code == 0, collected.err
    people = len(set(pa.parquet.read_table(words)["user"].to_pylist()))
    assert collected.json["accepted"] == 2 * people
    assert collected.json["repeated"] == people
    (tmp_path / "junk.jsonl").write_text("{}\nnot json\n")
    junk = dpsketch(
        "local", "collect", "junk.jsonl", "--spec", "spec.json", "--add-to", "c.dps", "-o", "d.dps", "--json"
    )
    assert junk.json["malformed"] + junk.json["other_spec"] == 2
    found = dpsketch("local", "estimate", "c.dps", "w1", "nothing", "--json").json["estimates"]
    assert found[0]["value"] > 0.5
    assert abs(found[1]["value"]) < 0.2
    assert dpsketch("query", "c.dps", "w1", "--json").json["estimates"] == found[:1]
    assert dpsketch("inspect", "c.dps").code == 0


def test_options_of_another_kind_are_wrong_usage(dpsketch, words) -> None:
    result = dpsketch("run", "counts", words, "--key", "word", "--p", "1", *BUDGET, "-o", "x.dps")
    assert result.code == 2
    assert "--p does not apply to counts" in result.err


@pytest.mark.parametrize("protocol", [local.PrivSketchAsPublished(0.01), local.MultiPCMS(1.0)], ids=lambda p: p.name)
def test_a_spec_that_is_kept_for_comparison_makes_no_report(dpsketch, words, tmp_path, protocol) -> None:
    local.write_spec(tmp_path / "spec.json", protocol)
    result = dpsketch(
        "local", "report", words, "--user", "user", "--key", "word", "--spec", "spec.json", "-o", "reports.jsonl"
    )
    assert result.code != 0
    assert "for comparison" in result.err
    assert not (tmp_path / "reports.jsonl").exists()
