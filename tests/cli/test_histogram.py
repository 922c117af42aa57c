"""A histogram through the command line: names and counts, for a list, for users, by votes, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps

Runner = Callable[..., Any]

BUDGET = ("--epsilon", 1, "--delta", "1e-6")
TRUTH = {"/a": 400, "/b": 250, "/c": 90, "/rare": 1}
RUN = ("run", "histogram", "visits.csv", "--key", "url")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """741 visits of 100 people, as CSV; one page has a single visit."""
    rows = [(page, number % 100) for page, count in TRUTH.items() for number in range(count)]
    path = tmp_path / "visits.csv"
    path.write_text("url,visitor,n\n" + "".join(f"{page},{person},1\n" for page, person in rows))
    (tmp_path / "urls.txt").write_text("/a\n/rare\n/nobody\n")
    return path


@pytest.mark.usefixtures("visits")
def test_names_and_counts_from_a_file_in_an_empty_folder(dpsketch: Runner) -> None:
    made = dpsketch(*RUN, *BUDGET, "-o", "visits.dps")
    assert made.code == 0, made.err
    assert "Read 741 records" in made.err
    top = dpsketch("top", "visits.dps", "-n", 2, "--json").json
    assert [row["key"] for row in top["estimates"]] == ["/a", "/b"]
    assert top["counts"] == "records"
    found = dpsketch("query", "visits.dps", "/a", "/c", "/rare", "--json").json["estimates"]
    for row in found[:2]:
        assert row["value"] == pytest.approx(TRUTH[row["key"]], abs=14)
    assert found[2]["value"] == 0, "a key of one record has no name"
    assert found[2]["high"] > 1
    assert "/rare" not in Path("visits.dps").read_bytes().decode("latin-1")
    facts = dpsketch("inspect", "visits.dps", "--json").json
    assert (facts["keys"], facts["form"], facts["threshold"]) == (3, "truncated", 15)
    assert "keys listed from 15 on" in dpsketch(*RUN, *BUDGET, "--dry-run").out


@pytest.mark.usefixtures("visits")
def test_a_public_list_is_answered_whole_and_needs_no_delta(dpsketch: Runner) -> None:
    made = dpsketch(*RUN, "--epsilon", 1, "--delta", 0, "--keys-from", "urls.txt", "-o", "u.dps")
    assert made.code == 0, made.err
    top = dpsketch("top", "u.dps", "--json").json
    assert {row["key"] for row in top["estimates"]} == {"/a", "/rare", "/nobody"}
    assert top["guarantee"]["delta"] == 0
    unlisted = dpsketch("query", "u.dps", "/b")
    assert unlisted.code == 2
    assert "public list, and it knows no other" in unlisted.err
    assert "/b" not in unlisted.err
    made = dpsketch(*RUN, *BUDGET, "--keys-from", "urls.txt", "--unknown", "--others", "-o", "both.dps")
    assert made.code == 0, made.err
    keys = {row["key"] for row in dpsketch("top", "both.dps", "--json").json["estimates"]}
    assert keys == {"/a", "/b", "/c", "/rare", "/nobody"}
    assert dpsketch("inspect", "both.dps", "--json").json["others"]["value"] < 100


def test_users_are_bounded_and_answers_say_what_was_counted(dpsketch: Runner, tmp_path: Path) -> None:
    """Sixty keys each, of which 30 count: the answer says 30, whatever the bound of the unit is. Names may do."""
    rows = [{"who": person, "item": item} for person in range(200) for item in range(60)]
    (tmp_path / "baskets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = ("run", "histogram", "baskets.jsonl", "--key", "item", "--user", "who", "--max-keys", 60, *BUDGET)
    made = dpsketch(*run, "--key-type", "int", "-o", "b.dps")
    assert made.code == 0, made.err
    top = dpsketch("top", "b.dps", "--json").json
    assert {type(row["key"]) for row in top["estimates"]} == {int}
    assert "at most 30 published keys" in top["counts"]
    assert top["guarantee"]["unit"]["max_keys"] == 60
    named = dpsketch(*run, "--where", "item < 12", "--names-only", "-o", "n.dps")
    assert named.code == 0, named.err
    assert dpsketch("top", "n.dps", "--json").json["names"] == sorted(str(k) for k in range(12))


VOTES = (*BUDGET, "--max-counters", 8)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--epsilon", 1, "--delta", 0), "With --delta 0 give a public list: --keys-from FILE."),
        (("--rho", 0.1), "--rho needs a public list, --keys-from FILE"),
        ((*BUDGET, "--temp-directory", "."), "--temp-directory goes with --memory-limit"),
        ((*VOTES, "--memory-limit", "1GB"), "--max-counters bounds the memory"),
        ((*VOTES, "--others"), "--others does not apply"),
    ],
)
@pytest.mark.usefixtures("visits")
def test_what_cannot_be_is_refused_before_anything_is_read(
    dpsketch: Runner, options: tuple[object, ...], words: str
) -> None:
    refused = dpsketch(*RUN, *options, "-o", "x.dps")
    assert refused.code == 2
    assert words in " ".join(refused.err.split())
    assert "Read " not in refused.err
    assert "/rare" not in refused.err
    assert not Path("x.dps").exists()
    assert not dpsketch("ledger", "show", "--json").json["datasets"]


def test_votes_in_bounded_memory(dpsketch: Runner, tmp_path: Path) -> None:
    """Of five intervals one misses in at most 1 of 20,000 runs with fresh bits."""
    rng = np.random.default_rng(5)
    urls = [f"/page/{rank}" for rank in np.minimum(rng.zipf(1.4, 5000), 2000).tolist()]
    (tmp_path / "all.csv").write_text("url\n" + "\n".join(urls) + "\n")
    budget, votes = ("--epsilon", 2, "--delta", "1e-6", "--no-ledger"), ("--key", "url", "--max-counters", 256)
    for name in ("v.dps", "w.dps"):
        made = dpsketch("run", "histogram", "all.csv", *votes, *budget, "-o", name)
        assert made.code == 0, made.err
    assert dps.load("v.dps").spec.seed != dps.load("w.dps").spec.seed  # drawn anew: no key is unlucky for ever
    found = dpsketch("top", "v.dps", "-n", "5", "--confidence", 0.99999, "--json").json
    assert found["estimates"][0]["key"] == max(set(urls), key=urls.count)
    assert all(row["low"] <= urls.count(row["key"]) <= row["high"] for row in found["estimates"])
    assert "upper bound" in found["counts"]
    facts = dpsketch("inspect", "v.dps", "--json").json
    assert (facts["kind"], facts["form"], facts["spec"]["max_counters"]) == ("histogram-votes", "loads", 256)
    assert "lost its vote" in dpsketch("query", "v.dps", "/nobody").err
