"""From a file to a published answer, by commands."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
RUN = ["run", "counts", "visits.csv", "--key", "page", *BUDGET]


@pytest.fixture(autouse=True)
def visits(tmp_path: Path) -> None:
    pages = ["/a"] * 400 + ["/b"] * 100 + ["/ü"] * 50 + ['"/c,d"'] * 25
    (tmp_path / "visits.csv").write_text("\n".join(["page", *pages]) + "\n", encoding="utf-8")


def test_run_query_top_inspect_plot(dpsketch: Any, tmp_path: Path) -> None:
    made = dpsketch(*RUN, "-o", "visits.dps")
    assert made.code == 0, made.err
    assert made.out == ""
    for words in ("ε = 1, δ = 1e-06, for each record added or removed", "no total", "575 records"):
        assert words in made.err
    asked = dpsketch("query", "visits.dps", "/a", "/nowhere", "--json").json
    first, second = asked["estimates"]
    assert (first["key"], second["key"]) == ("/a", "/nowhere")
    assert abs(first["value"] - 400) < 60
    assert first["low"] <= first["value"] <= first["high"]
    assert asked["guarantee"]["epsilon"] == 1
    (tmp_path / "pages.txt").write_text("/a\n/b\n/ü\n/nowhere\n", encoding="utf-8")
    best = dpsketch("top", "visits.dps", "-n", "2", "--candidates", "pages.txt", "--json")
    assert [row["key"] for row in best.json["estimates"]] == ["/a", "/b"]
    facts = dpsketch("inspect", "visits.dps", "--json").json
    assert (facts["kind"], facts["spec"]["key_type"], facts["charge"]["dataset"]) == ("counts", "text", "visits.csv")
    assert "right at most 73.2% of the time" in dpsketch("inspect", "visits.dps").out
    assert dpsketch("plot", "visits.dps", "-o", "visits.png", "--candidates", "pages.txt").code == 0
    assert (tmp_path / "visits.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("keys", [[], [5]])
def test_keys_have_the_type_that_is_declared_whatever_records_there_are(dpsketch: Any, keys: list[int]) -> None:
    """A key type that followed from values would tell whether there are records."""
    for declared in ("int64", "string"):
        pa.parquet.write_table(pa.table({"k": pa.array(keys, pa.int64()).cast(declared)}), f"{declared}.parquet")
    Path("t.csv").write_text("k\n" + "".join(f"{key}\n" for key in keys))
    Path("t.jsonl").write_text("".join(f'{{"k": {key}}}\n' for key in keys))
    with closing(sqlite3.connect("t.db")) as base, base:
        base.execute("CREATE TABLE t (k INTEGER)")
        base.executemany("INSERT INTO t VALUES (?)", [(key,) for key in keys])
    for source, expected in (
        ("int64.parquet", "int"),
        ("string.parquet", "text"),
        ("t.csv", "text"),
        ("t.jsonl", "text"),
        ("sqlite:///t.db?table=t", "int"),
        ("sqlite:///t.db?query=SELECT k FROM t", "text"),
    ):
        made = dpsketch("run", "counts", source, "--key", "k", *BUDGET, "--no-ledger", "--overwrite", "-o", "out.dps")
        assert made.code == 0, made.err
        assert dps.load("out.dps").spec.key_type == expected


def test_the_password_of_a_database_is_not_shown(dpsketch: Any) -> None:
    source = "postgresql://me:secret@host?table=visits"
    shown = dpsketch("run", "counts", source, "--key", "key", *BUDGET, "--dry-run", "-o", "out.dps")
    assert shown.code == 0
    assert "secret" not in shown.err + shown.out


def test_dry_run_touches_nothing(dpsketch: Any, tmp_path: Path) -> None:
    dpsketch("ledger", "create", "web", "--epsilon", "2", "--delta", "1e-6")
    asked = ("run", "counts", "missing.csv", "--key", "page", *BUDGET, "--dataset", "web")
    preview = dpsketch(*asked, "--dry-run", "--json", "-o", "x.dps")
    assert preview.code == 0, preview.err
    assert preview.json["noise_scale"] == pytest.approx(11.18, abs=0.01)
    assert preview.json["memory_bytes"] == 8 * 7 * 4096
    assert preview.json["budget"]["allowed"] is True
    assert not (tmp_path / "x.dps").exists()
    assert dpsketch("ledger", "show", "web", "--json").json["datasets"][0]["releases"] == 0
    assert "Nothing was read, charged or written." in dpsketch(*asked, "--dry-run").out
    without = dpsketch(*asked)
    assert (without.code, "-o FILE" in without.err) == (2, True)


def test_the_columns_of_a_text_file_are_listed_on_a_terminal_and_in_no_log(
    dpsketch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the header was forgotten, what stands there is a record: a log must not have it. A schema is no record."""
    (tmp_path / "secret.csv").write_text("page,visitor\n/a,ann\n")
    pa.parquet.write_table(pa.table({"origin": ["a"]}), tmp_path / "t.parquet")
    asked = ("--key", "pgae", *BUDGET, "--no-ledger", "-o", "x.dps")
    logged = dpsketch("run", "counts", "secret.csv", *asked)
    assert "has no column 'pgae'. It has 2 columns" in logged.err
    assert "visitor" not in logged.err
    assert "'origin'" in dpsketch("run", "counts", "t.parquet", *asked).err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "(For your eyes: Its columns are 'page', 'visitor'.)" in dpsketch("run", "counts", "secret.csv", *asked).err


def test_the_budget_says_no(dpsketch: Any, tmp_path: Path) -> None:
    dpsketch("ledger", "create", "web", "--epsilon", "1.3", "--delta", "1e-6")
    first = dpsketch(*RUN, "--dataset", "web", "-o", "first.dps")
    assert first.code == 0, first.err
    second = dpsketch(*RUN, "--dataset", "web", "-o", "second.dps")
    assert second.code == 3
    assert "Nothing was charged or released." in second.err
    assert not (tmp_path / "second.dps").exists()
    untracked = dpsketch(*RUN, "--no-ledger", "-o", "third.dps")
    assert (untracked.code, "tracked nowhere" in untracked.err) == (0, True)
    assert len(dpsketch("ledger", "history", "web", "--json").json["charges"]) == 1
    for arguments in ([], ["first.dps"]):
        assert dpsketch("ledger", "verify", *arguments).code == 0
    uncharged = dpsketch("ledger", "verify", "third.dps", "--json")
    assert (uncharged.code, uncharged.json["verified"]) == (1, False)
    with sqlite3.connect(tmp_path / "dpsketch" / "ledger.db") as database:
        for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
            if "note" in [row[1] for row in database.execute(f"pragma table_info({table})")]:
                database.execute(f"update {table} set note = 'something else'")
    database.close()
    altered = dpsketch("ledger", "verify")
    assert (altered.code, "web" in altered.out) == (1, True)


def test_outputs_that_cannot_be_written_are_found_out_before_the_budget_is_charged(dpsketch: Any) -> None:
    for output in ("no/such/folder/out.dps", "."):
        assert dpsketch(*RUN, "--dataset", "d", "-o", output).code == 1
    assert dpsketch("ledger", "show", "--json").json["datasets"] == []


def test_demo(dpsketch: Any, tmp_path: Path) -> None:
    shown = dpsketch("demo", "-o", "demo")
    assert shown.code == 0, shown.err
    assert "What was promised: ε = 1, δ = 1e-06" in shown.out
    assert (tmp_path / "demo" / "visits.png").stat().st_size > 10_000
    assert dpsketch("query", "demo/visits.dps", "/shop/page-1", "--json").json["estimates"][0]["value"] > 50_000
