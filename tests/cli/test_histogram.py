"""A histogram through the command line: names and counts from a file, for a list, for users, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch.sketches import store
from dpsketch.sources.engine import private_folder

Runner = Callable[..., Any]

BUDGET = ("--epsilon", 1, "--delta", "1e-6")
TRUTH = {"/a": 400, "/b": 250, "/c": 90, "/rare": 1}


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """741 visits of 100 people, as CSV; one page has a single visit."""
    rows = [(page, number % 100) for page, count in TRUTH.items() for number in range(count)]
    path = tmp_path / "visits.csv"
    path.write_text("url,visitor\n" + "".join(f"{page},{person}\n" for page, person in rows))
    return path


def test_names_and_counts_from_a_file_in_an_empty_folder(dpsketch: Runner, visits: Path) -> None:
    made = dpsketch("run", "histogram", "visits.csv", "--key", "url", *BUDGET, "-o", "visits.dps")
    assert made.code == 0, made.err
    assert "Read 741 records" in made.err
    assert "answers better" not in made.err
    top = dpsketch("top", "visits.dps", "-n", 2, "--json").json
    assert [row["key"] for row in top["estimates"]] == ["/a", "/b"]
    assert top["counts"] == "records"
    found = dpsketch("query", "visits.dps", "/a", "/c", "/rare", "--json").json["estimates"]
    for row in found[:2]:
        assert row["value"] == pytest.approx(TRUTH[row["key"]], abs=14)
        assert row["value"] == int(row["value"])
    assert found[2]["value"] == 0, "a key of one record has no name"
    assert found[2]["high"] > 1
    assert "/rare" not in (visits.parent / "visits.dps").read_bytes().decode("latin-1")
    facts = dpsketch("inspect", "visits.dps", "--json").json
    assert (facts["keys"], facts["form"], facts["threshold"]) == (3, "truncated", 15)
    assert "threshold: 15" in dpsketch("inspect", "visits.dps").out
    assert dpsketch("plot", "visits.dps", "-o", "visits.png").code == 0
    assert (visits.parent / "visits.png").stat().st_size > 1000


def test_a_public_list_is_answered_whole_and_needs_no_delta(dpsketch: Runner, visits: Path) -> None:
    (visits.parent / "urls.txt").write_text("/a\n/rare\n/nobody\n")
    pure = ("--epsilon", 1, "--delta", 0)
    made = dpsketch("run", "histogram", "visits.csv", "--key", "url", *pure, "--keys-from", "urls.txt", "-o", "u.dps")
    assert made.code == 0, made.err
    top = dpsketch("top", "u.dps", "--json").json
    assert {row["key"] for row in top["estimates"]} == {"/a", "/rare", "/nobody"}
    assert top["guarantee"]["delta"] == 0
    unlisted = dpsketch("query", "u.dps", "/b")
    assert unlisted.code == 2
    assert "public list, and it knows no other" in unlisted.err
    assert "/b" not in unlisted.err
    both = ("--keys-from", "urls.txt", "--unknown", "--others")
    made = dpsketch("run", "histogram", "visits.csv", "--key", "url", *BUDGET, *both, "-o", "both.dps")
    assert made.code == 0, made.err
    keys = {row["key"] for row in dpsketch("top", "both.dps", "--json").json["estimates"]}
    assert keys == {"/a", "/b", "/c", "/rare", "/nobody"}
    assert dpsketch("inspect", "both.dps", "--json").json["others"]["value"] < 100


def test_users_are_bounded_and_answers_say_what_was_counted(dpsketch: Runner, tmp_path: Path) -> None:
    """Sixty keys each, of which 30 count: the answer says 30, whatever the bound of the unit is."""
    rows = [{"who": person, "item": item} for person in range(200) for item in range(60)]
    (tmp_path / "baskets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    users = ("--user", "who", "--max-keys", 60, "--key-type", "int")
    made = dpsketch("run", "histogram", "baskets.jsonl", "--key", "item", *users, *BUDGET, "-o", "b.dps")
    assert made.code == 0, made.err
    top = dpsketch("top", "b.dps", "--json").json
    assert {type(row["key"]) for row in top["estimates"]} == {int}
    assert "at most 30 published keys" in top["counts"]
    assert "at most 30 published keys" in dpsketch("query", "b.dps", 7).err
    assert "at most 30 published keys" in dpsketch("inspect", "b.dps", "--json").json["counts"]
    assert top["guarantee"]["unit"]["max_keys"] == 60


def test_names_only_are_listed_without_counts(dpsketch: Runner, tmp_path: Path) -> None:
    table = pa.table(
        {"item": [f"i{k}" for _ in range(200) for k in range(12)], "who": [p for p in range(200) for _ in range(12)]}
    )
    pa.parquet.write_table(table, tmp_path / "baskets.parquet")
    users = ("--user", "who", "--max-keys", 12, "--names-only")
    made = dpsketch("run", "histogram", "baskets.parquet", "--key", "item", *users, *BUDGET, "-o", "n.dps")
    assert made.code == 0, made.err
    assert sorted(dpsketch("top", "n.dps").out.split()) == sorted(f"i{k}" for k in range(12))
    assert dpsketch("top", "n.dps", "--json").json["names"] == sorted(f"i{k}" for k in range(12))
    refused = dpsketch("query", "n.dps", "i1")
    assert refused.code == 2
    assert "names only" in refused.err


def test_partials_merge_and_are_released_with_options(dpsketch: Runner, visits: Path) -> None:
    for name in ("one", "two"):
        assert dpsketch("build", "histogram", "visits.csv", "--key", "url", "-o", f"{name}.sketch").code == 0
    assert dpsketch("merge", "one.sketch", "two.sketch", "-o", "all.sketch").code == 0
    made = dpsketch("release", "all.sketch", *BUDGET, "--others", "-o", "all.dps")
    assert made.code == 0, made.err
    found = dpsketch("query", "all.dps", "/a", "--json").json["estimates"][0]
    assert found["value"] == pytest.approx(800, abs=20)
    assert dps.load(visits.parent / "all.dps").others is not None


def test_memory_has_a_limit_in_the_shell_too(dpsketch: Runner, visits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything goes to disk and is released from there; the folder is empty afterwards."""
    monkeypatch.setattr(store, "_WAITING_ROWS", 100)
    folder = visits.parent / "scratch"
    folder.mkdir()
    begun: list[str] = []
    monkeypatch.setattr(store, "private_folder", lambda parent: begun.append(parent) or private_folder(parent))
    limited = ("--memory-limit", "1GB", "--temp-directory", folder)
    made = dpsketch("run", "histogram", "visits.csv", "--key", "url", *BUDGET, *limited, "-o", "visits.dps")
    assert made.code == 0, made.err
    assert begun == [str(folder)]
    assert not list(folder.iterdir())
    assert [row["key"] for row in dpsketch("top", "visits.dps", "-n", 2, "--json").json["estimates"]] == ["/a", "/b"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--epsilon", 1, "--delta", 0), "With --delta 0 give a public list: --keys-from FILE."),
        (("--epsilon", 1), "say --delta as well: for example --delta 1e-6, or --delta 0 for pure privacy."),
        (("--rho", 0.1), "--rho needs a public list, --keys-from FILE"),
        ((*BUDGET, "--memory-limit", "1MB"), "--memory-limit must be a size such as '512MB'"),
        ((*BUDGET, "--temp-directory", "."), "--temp-directory goes with --memory-limit"),
        ((*BUDGET, "--max-counters", 8, "--memory-limit", "1GB"), "--max-counters bounds the memory"),
        ((*BUDGET, "--names-only"), "gains nothing"),
        ((*BUDGET, "--form", "best"), "--form is one of"),
        ((*BUDGET, "--form", "rounds"), "a record has one"),
        ((*BUDGET, "--keys-from", "missing.txt"), "missing.txt is not a file"),
        ((*BUDGET, "--key-type", "int", "--keys-from", "urls.txt"), "integers"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(
    dpsketch: Runner, visits: Path, options: tuple[object, ...], words: str
) -> None:
    (visits.parent / "urls.txt").write_text("/secret-page\n")
    refused = dpsketch("run", "histogram", "visits.csv", "--key", "url", *options, "-o", "x.dps")
    assert refused.code == (1 if "is not a file" in words else 2)
    assert words in " ".join(refused.err.split())
    assert "Read " not in refused.err
    assert "/secret-page" not in refused.err
    assert not (visits.parent / "x.dps").exists()
    assert not dpsketch("ledger", "show", "--json").json["datasets"]


def test_a_sketch_says_once_that_a_histogram_answers_better(dpsketch: Runner, visits: Path) -> None:
    said = "a histogram answers better: dpsketch run histogram with the same key, unit and budget"
    counts = ("run", "counts", "visits.csv", "--key", "url")
    made = dpsketch(*counts, *BUDGET, "-o", "c.dps")
    assert made.err.count(f"{said} (and --keys-from FILE for keys that you name).") == 1
    heavy = ("run", "heavy", "visits.csv", "--key", "url", "--key-bytes", 8, "--user", "visitor", "--max-keys", 3)
    assert f"{said}." in dpsketch(*heavy, *BUDGET, "-o", "h.dps").err
    for quiet in ((*BUDGET, "--json"), ("--epsilon", 1, "--delta", 0), ("--rho", 0.1)):
        assert "answers better" not in dpsketch(*counts, *quiet, "--dry-run", "-o", "q.dps").err
    dpsketch(*counts, *BUDGET, "-o", "first.dps")
    assert "answers better" not in dpsketch(*counts, *BUDGET, "--like", "first.dps", "-o", "next.dps").err


def test_a_bound_that_is_chosen_is_stated_with_every_answer(dpsketch: Runner, tmp_path: Path) -> None:
    """600 people, half with 3 pages and half with 20; at this ε the ranges stand out of the noise."""
    rows = [(page, person) for person in range(600) for page in range(3 if person % 2 else 20)]
    (tmp_path / "many.csv").write_text("url,visitor\n" + "".join(f"/{page},{person}\n" for page, person in rows))
    command = ("run", "histogram", "many.csv", "--key", "url", "--user", "visitor", "--max-keys")
    (tmp_path / "urls.txt").write_text("".join(f"/{page}\n" for page in range(20)))
    budget = ("--epsilon", 8, "--delta", "1e-6", "--keys-from", "urls.txt", "-o", "many.dps", "--yes")
    made = dpsketch(*command, "auto", *budget)
    assert made.code == 0, made.err
    assert "chosen privately with 5% of ε" in made.err
    assert "cut by --max-keys" not in made.err
    top = dpsketch("top", "many.dps", "--json").json
    assert "of what users hold was cut" in top["counts"]
    facts = dpsketch("inspect", "many.dps", "--json").json
    assert f"at most {facts['max_keys']} published key" in top["counts"]
    assert 0 <= facts["cut"]["low"] <= facts["cut"]["high"] <= 1
    assert "published key" in dpsketch("query", "many.dps", "/1").err
    assert dpsketch("inspect", "many.dps").code == 0
    for wrong in ("Auto", "-3", "2.5"):
        refused = dpsketch(*command, wrong, *budget)
        assert refused.code == 2
        assert "a whole number, or auto" in refused.err
    for kind in (["counts"], ["distinct", "--exact"]):
        other = dpsketch("run", *kind, "many.csv", "--key", "url", "--user", "visitor", "--max-keys", "auto", *BUDGET,
                         "-o", "c.dps")  # fmt: skip
        assert other.code == 2
        assert "--max-keys 'auto' lets a release choose the bound" in other.err
        assert "state --max-keys N." in other.err
