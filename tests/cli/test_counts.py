"""From a file to a published answer, by commands."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import dpsketch as dps
from sensitive import everything, everything_in

PAGES = ["/a"] * 400 + ["/b"] * 100 + ["/ü"] * 50 + ["/c,d"] * 25
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


def write_csv(path: Path, rows: list[str] = PAGES, header: str = "page") -> Path:
    path.write_text("\n".join([header, *(f'"{row}"' for row in rows)]) + "\n", encoding="utf-8")
    return path


def test_run_query_top_inspect_plot(dpsketch, tmp_path) -> None:
    write_csv(tmp_path / "visits.csv")
    made = dpsketch("run", "counts", "visits.csv", "--key", "page", *BUDGET, "-o", "visits.dps")
    assert made.code == 0, made.err
    assert made.out == ""
    assert "ε = 1, δ = 1e-06, for each record added or removed" in made.err
    assert "no total" in made.err
    assert "575 records" in made.err

    asked = dpsketch("query", "visits.dps", "/a", "/nowhere", "--json")
    assert asked.code == 0
    first, second = asked.json["estimates"]
    assert (first["key"], second["key"]) == ("/a", "/nowhere")
    assert abs(first["value"] - 400) < 60
    assert first["low"] <= first["value"] <= first["high"]
    assert asked.json["guarantee"]["epsilon"] == 1
    assert "/a" in dpsketch("query", "visits.dps", "/a").out

    (tmp_path / "pages.txt").write_text("/a\n/b\n/ü\n/nowhere\n", encoding="utf-8")
    best = dpsketch("top", "visits.dps", "-n", "2", "--candidates", "pages.txt", "--json")
    assert [row["key"] for row in best.json["estimates"]] == ["/a", "/b"]
    listed = dpsketch("query", "visits.dps", "--keys-from", "pages.txt", "--json")
    assert len(listed.json["estimates"]) == 4

    facts = dpsketch("inspect", "visits.dps", "--json").json
    assert facts["kind"] == "counts"
    assert facts["spec"]["key_type"] == "text"
    assert facts["charge"]["dataset"] == "visits.csv"
    assert "right at most 73.2% of the time" in dpsketch("inspect", "visits.dps").out

    for extra in ([], ["--candidates", "pages.txt"]):
        assert dpsketch("plot", "visits.dps", "-o", "visits.png", *extra).code == 0
        assert (tmp_path / "visits.png").read_bytes().startswith(b"\x89PNG")


def test_parts_merge_to_the_same_sketch_as_one_pass(dpsketch, tmp_path) -> None:
    for name, rows in (("one", PAGES[:300]), ("two", PAGES[300:]), ("all", PAGES)):
        write_csv(tmp_path / f"{name}.csv", rows)
    shape = ["--key", "page", "--rows", "5", "--width", "64", "--seed", "3"]
    assert dpsketch("build", "counts", "one.csv", *shape, "-o", "one.sketch").code == 0
    like = dpsketch("build", "counts", "two.csv", "--key", "page", "--like", "one.sketch", "-o", "two.sketch")
    assert like.code == 0, like.err
    assert dpsketch("build", "counts", "all.csv", *shape, "-o", "all.sketch").code == 0
    assert dpsketch("merge", "one.sketch", "two.sketch", "-o", "both.sketch").code == 0
    both, whole = (dps.load_sensitive(tmp_path / f"{name}.sketch") for name in ("both", "all"))
    assert everything(both) == everything(whole)
    assert (tmp_path / "both.sketch").stat().st_mode & 0o777 == 0o600
    released = dpsketch("release", "both.sketch", "--epsilon", "2", "--delta", "0", "-o", "both.dps", "--json")
    assert released.code == 0
    assert released.json["guarantee"]["delta"] == 0
    shown = dpsketch("inspect", "both.sketch", "--json").json
    assert set(shown) == {"file", "kind", "sensitive", "answers", "spec"}


def test_every_source_gives_the_same_sketch(dpsketch, dpsketch_process, tmp_path) -> None:
    table = pa.table({"page": PAGES, "n": np.arange(len(PAGES))})
    write_csv(tmp_path / "v.csv")
    (tmp_path / "v.tsv").write_text("page\tn\n" + "".join(f"{page}\t1\n" for page in PAGES), encoding="utf-8")
    lines = "".join('{"n": 1, "page": "' + page + '"}\n' for page in PAGES)
    (tmp_path / "v.jsonl").write_text(lines, encoding="utf-8")
    pa.parquet.write_table(table, tmp_path / "v.parquet", row_group_size=100)
    pa.feather.write_feather(table, tmp_path / "v.arrow", compression="uncompressed")
    with sqlite3.connect(tmp_path / "v.db") as database:
        database.execute("create table visits (page text)")
        database.executemany("insert into visits values (?)", [(page,) for page in PAGES])
    database.close()
    (tmp_path / "parts").mkdir()
    write_csv(tmp_path / "parts" / "1.csv", PAGES[:100])
    write_csv(tmp_path / "parts" / "2.csv", PAGES[100:])
    sources = ["v.csv", "v.tsv", "v.jsonl", "v.parquet", "v.arrow", "sqlite:///v.db?table=visits", "parts/*.csv"]
    contents = []
    for i, source in enumerate(sources):
        made = dpsketch("build", "counts", source, "--key", "page", "-o", f"{i}.sketch")
        assert made.code == 0, (source, made.err)
        contents.append(everything_in((tmp_path / f"{i}.sketch").read_bytes()))
    for kind, stdin in (("csv", "v.csv"), ("jsonl", "v.jsonl"), ("parquet", "v.parquet")):
        data = (tmp_path / stdin).read_bytes()
        made = dpsketch_process(
            "build", "counts", "-", "--key", "page", "--format", kind, "-o", f"{kind}.sketch", stdin=data
        )
        assert made.code == 0, (kind, made.err)
        contents.append(everything_in((tmp_path / f"{kind}.sketch").read_bytes()))
    assert all(content == contents[0] for content in contents)


def test_integer_and_text_keys_are_kept_apart(dpsketch, tmp_path) -> None:
    (tmp_path / "ids.csv").write_text("id\n1\n01\n1\n", encoding="utf-8")
    command = ("run", "counts", "ids.csv", "--key", "id", "--epsilon", "20", "--delta", "0", "--yes")
    dpsketch(*command, "-o", "text.dps")
    dpsketch(*command, "--key-type", "int", "-o", "int.dps")
    text = dpsketch("query", "text.dps", "1", "01", "--json").json["estimates"]
    number = dpsketch("query", "int.dps", "1", "01", "--json").json["estimates"]
    assert [round(row["value"]) for row in text] == pytest.approx([2, 1], abs=2)
    assert [row["key"] for row in number] == [1, 1]
    assert number[0]["value"] == pytest.approx(3, abs=2)
    refused = dpsketch("query", "int.dps", "one")
    assert refused.code == 2
    assert "integer" in refused.err


def test_dry_run_touches_nothing(dpsketch, tmp_path) -> None:
    dpsketch("ledger", "create", "web", "--epsilon", "2", "--delta", "1e-6")
    preview = dpsketch(
        "run",
        "counts",
        "missing.csv",
        "--key",
        "page",
        *BUDGET,
        "--dataset",
        "web",
        "--dry-run",
        "--json",
        "-o",
        "x.dps",
    )
    assert preview.code == 0, preview.err
    assert preview.json["noise_scale"] == pytest.approx(11.18, abs=0.01)
    assert preview.json["memory_bytes"] == 8 * 7 * 4096
    assert preview.json["budget"]["allowed"] is True
    assert not (tmp_path / "x.dps").exists()
    assert dpsketch("ledger", "show", "web", "--json").json["datasets"][0]["releases"] == 0
    asked = ("run", "counts", "missing.csv", "--key", "page", *BUDGET, "--dataset", "web")
    assert "Nothing was read, charged or written." in dpsketch(*asked, "--dry-run").out
    without = dpsketch(*asked)
    assert (without.code, "-o FILE" in without.err) == (2, True)


def test_the_columns_of_a_text_file_are_listed_on_a_terminal_and_in_no_log(
    dpsketch, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the header was forgotten, what stands there is a record: a log must not have it."""
    (tmp_path / "visits.csv").write_text("page,visitor\n/a,ann\n")
    asked = ("run", "counts", "visits.csv", "--key", "pgae", *BUDGET, "--no-ledger", "-o", "x.dps")
    logged = dpsketch(*asked)
    assert "has no column 'pgae'. It has 2 columns" in logged.err
    assert "visitor" not in logged.err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "(For your eyes: Its columns are 'page', 'visitor'.)" in dpsketch(*asked).err


def test_the_budget_says_no(dpsketch, tmp_path) -> None:
    write_csv(tmp_path / "visits.csv")
    dpsketch("ledger", "create", "web", "--epsilon", "1.3", "--delta", "1e-6")
    command = ["run", "counts", "visits.csv", "--key", "page", *BUDGET, "--dataset", "web"]
    first = dpsketch(*command, "-o", "first.dps")
    assert first.code == 0, first.err
    second = dpsketch(*command, "-o", "second.dps")
    assert second.code == 3
    assert "BudgetExceeded" in second.err
    assert "Nothing was charged or released." in second.err
    assert not (tmp_path / "second.dps").exists()
    untracked = dpsketch("run", "counts", "visits.csv", "--key", "page", *BUDGET, "--no-ledger", "-o", "third.dps")
    assert untracked.code == 0
    assert "tracked nowhere" in untracked.err
    shown = dpsketch("ledger", "show", "web")
    assert "#" in shown.out
    assert "What that means" in shown.out
    history = dpsketch("ledger", "history", "web", "--json").json
    assert len(history["charges"]) == 1
    assert dpsketch("ledger", "verify", "first.dps").code == 0
    uncharged = dpsketch("ledger", "verify", "third.dps", "--json")
    assert uncharged.code == 1
    assert uncharged.json["verified"] is False


def test_an_altered_ledger_is_named(dpsketch, tmp_path) -> None:
    write_csv(tmp_path / "visits.csv")
    dpsketch("run", "counts", "visits.csv", "--key", "page", *BUDGET, "--dataset", "web", "-o", "first.dps")
    assert dpsketch("ledger", "verify").code == 0
    with sqlite3.connect(tmp_path / "dpsketch" / "ledger.db") as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        for table in tables:
            columns = [row[1] for row in database.execute(f"pragma table_info({table})")]
            if "note" in columns:
                database.execute(f"update {table} set note = 'something else'")
    database.close()
    found = dpsketch("ledger", "verify")
    assert found.code == 1
    assert "web" in found.out


def bad(name: str, content: bytes | None, *options: str, code: int = 1):
    return pytest.param(content, options, code, id=name)


@pytest.mark.parametrize(
    ("content", "options", "code"),
    [
        bad("a missing file", None),
        bad("an empty file", b""),
        bad("a missing column", b"url\na\n"),
        bad("not what its name says", b"PAR1 but not really"),
        bad("not UTF-8", b"page\n\xff\xfe\n"),
        bad("a short row", b"page,n\na,1\nb\n"),
        bad("a word among integers", b"page\n1\ntwo\n", "--key-type", "int"),
        bad("a negative weight", b"page,w\na,-1\n", "--weight", "w"),
        bad("a weight that is not a number", b"page,w\na,NaN\n", "--weight", "w"),
        bad("a weight with a fraction", b"page,w\na,0.5\n", "--weight", "w"),
        bad("epsilon of zero", b"page\na\n", "--epsilon", "0", code=2),
        bad("a negative epsilon", b"page\na\n", "--epsilon", "-1", code=2),
        bad("delta of one", b"page\na\n", "--delta", "1", code=2),
        bad("even rows", b"page\na\n", "--rows", "4", code=2),
        bad("width of one", b"page\na\n", "--width", "1", code=2),
        bad("max-keys without users", b"page\na\n", "--max-keys", "3", code=2),
    ],
)
def test_bad_input_is_one_sentence_and_no_output(dpsketch, tmp_path, content, options, code) -> None:
    if content is not None:
        (tmp_path / "secret.csv").write_bytes(content)
    stated = dict(zip(BUDGET[::2], BUDGET[1::2], strict=True)) | dict(zip(options[::2], options[1::2], strict=True))
    words = [word for pair in stated.items() for word in pair]
    result = dpsketch("run", "counts", "secret.csv", "--key", "page", *words, "-o", "out.dps")
    assert result.code == code
    assert result.out == ""
    lines = [line for line in result.err.splitlines() if line]
    assert len(lines) == 1, result.err
    assert lines[0].startswith("dpsketch: ")
    assert "Traceback" not in result.err
    assert not list(tmp_path.glob("*.dps"))
    assert not list(tmp_path.glob(".dpsketch*"))


def test_sensitive_and_damaged_files_are_refused(dpsketch, tmp_path) -> None:
    write_csv(tmp_path / "v.csv")
    dpsketch("build", "counts", "v.csv", "--key", "page", "-o", "v.sketch")
    dpsketch("run", "counts", "v.csv", "--key", "page", *BUDGET, "-o", "v.dps")
    assert dpsketch("query", "v.sketch", "/a").code == 1
    assert dpsketch("release", "v.dps", *BUDGET, "-o", "w.dps").code == 1
    data = bytearray((tmp_path / "v.dps").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "altered.dps").write_bytes(data)
    (tmp_path / "short.dps").write_bytes(data[:100])
    for name in ("altered.dps", "short.dps", "v.csv", "missing.dps"):
        refused = dpsketch("query", name, "/a")
        assert refused.code == 1, name
        assert len(refused.err.splitlines()) == 1


def test_unwritable_outputs_are_found_out_before_the_budget_is_charged(dpsketch, tmp_path) -> None:
    write_csv(tmp_path / "v.csv")
    for output in ("no/such/folder/out.dps", "."):
        result = dpsketch("run", "counts", "v.csv", "--key", "page", *BUDGET, "--dataset", "d", "-o", output)
        assert result.code == 1
    assert dpsketch("ledger", "show", "--json").json["datasets"] == []


def test_a_full_disk_is_one_sentence(dpsketch, tmp_path, monkeypatch) -> None:
    import errno

    from dpsketch import files

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_csv(tmp_path / "v.csv")
    monkeypatch.setattr(files.os, "fsync", full)
    result = dpsketch("build", "counts", "v.csv", "--key", "page", "-o", "v.sketch")
    assert result.code == 1
    assert "no space" in result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.csv"]


def test_demo(dpsketch, tmp_path) -> None:
    shown = dpsketch("demo", "-o", "demo")
    assert shown.code == 0, shown.err
    assert "What was promised: ε = 1, δ = 1e-06" in shown.out
    assert (tmp_path / "demo" / "visits.png").stat().st_size > 10_000
    assert dpsketch("query", "demo/visits.dps", "/shop/page-1", "--json").json["estimates"][0]["value"] > 50_000
