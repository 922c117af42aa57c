"""Keys of several columns in the shell: named by --key a,b, asked and answered as one CSV row a key."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger"]
SHAPES = {"counts": ["--width", "512"], "heavy": ["--key-bytes", "12", "--width", "512"], "histogram": [], "sparse": []}
ROWS = [("a,b", "c", 1), ("a", "b,c", 2), ('q"', "x", 3), ("", "e", 4)]


def csv_file(path: Path) -> Path:
    rows = ["o,d,n", '"a,b",c,1', 'a,"b,c",2', '"q""",x,3', '"",e,4', ",none,5"]
    path.write_text("\n".join([rows[0], *rows[1:] * 400]) + "\n")
    return path


def run(dpsketch: Any, kind: str, source: object, *options: str) -> Any:
    made = dpsketch("run", kind, source, *options, *SHAPES[kind], *BUDGET, "--overwrite", "-o", "out.dps")
    assert made.code == 0, made.err
    return made


@pytest.mark.parametrize("kind", SHAPES)
def test_a_key_of_two_columns_is_asked_and_answered_as_a_csv_row(dpsketch: Any, tmp_path: Path, kind: str) -> None:
    made = run(dpsketch, kind, csv_file(tmp_path / "t.csv"), "--key", "o,d")
    assert "400 of them skipped" in made.err  # the rows without an o
    asked = ['"a,b",c', 'a,"b,c"', '"q""",x', ",e", '"a","c"']
    found = dpsketch("query", "out.dps", *asked, "--json").json["estimates"]
    assert [row["key"] for row in found] == [["a,b", "c"], ["a", "b,c"], ['q"', "x"], ["", "e"], ["a", "c"]]
    assert [round(row["value"], -2) + 0 for row in found] == [400, 400, 400, 400, 0]
    shown = dpsketch("query", "out.dps", '"a,b",c').out
    assert '"a,b",c' in shown
    assert dps.load("out.dps").spec.key_columns == ("o", "d")
    assert dpsketch("inspect", "out.dps", "--json").json["spec"]["key_columns"] == ["o", "d"]


def test_top_lists_rows_and_takes_candidates_that_are_rows(dpsketch: Any, tmp_path: Path) -> None:
    source = csv_file(tmp_path / "t.csv")
    (tmp_path / "list.txt").write_text('"a,b",c\n"a","b,c"\n')
    for kind in ("histogram", "heavy"):
        run(dpsketch, kind, source, "--key", "o,d")
        listed = dpsketch("top", "out.dps", "--json").json["estimates"]
        assert {tuple(row["key"]) for row in listed} == {(o, d) for o, d, _ in ROWS}
    run(dpsketch, "counts", source, "--key", "o,d")
    listed = dpsketch("top", "out.dps", "--candidates", "list.txt", "--json").json["estimates"]
    assert {tuple(row["key"]) for row in listed} == {("a,b", "c"), ("a", "b,c")}
    run(dpsketch, "histogram", source, "--key", "o,d", "--keys-from", "list.txt")
    assert dps.load("out.dps").keys == [("a,b", "c"), ("a", "b,c")]


def test_every_kind_of_source_gives_the_same_keys_and_numbers_are_their_digits(dpsketch: Any, tmp_path: Path) -> None:
    table = pa.table({"o": [row[0] for row in ROWS] * 400, "n": pa.array([row[2] for row in ROWS] * 400, pa.int32())})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write(table)
    lines = [f'{{"o": "{row[0]}", "n": {row[2]}}}'.replace('q""', 'q\\""') for row in ROWS] * 400
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    with closing(sqlite3.connect(tmp_path / "t.db")) as base, base:
        base.execute("CREATE TABLE t (o TEXT, n INTEGER)")
        base.executemany("INSERT INTO t VALUES (?, ?)", [(o, n) for o, _, n in ROWS] * 400)
    sources = [csv_file(tmp_path / "t.csv"), "t.parquet", "t.arrow", "t.jsonl", f"sqlite:///{tmp_path}/t.db?table=t"]
    for source in sources:
        run(dpsketch, "histogram", source, "--key", "o,n")
        assert set(dps.load("out.dps").keys) == {(o, str(n)) for o, _, n in ROWS}, source


def test_a_column_whose_name_holds_a_comma_is_in_quotes(dpsketch: Any, tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"a,b": ["x"] * 500, 'c"': ["y"] * 500}), tmp_path / "t.parquet")
    run(dpsketch, "histogram", "t.parquet", "--key", '"a,b"')
    assert (dps.load("out.dps").keys, dps.load("out.dps").spec.key_columns) == (["x"], ())
    run(dpsketch, "histogram", "t.parquet", "--key", '"a,b","c"""')
    assert (dps.load("out.dps").keys, dps.load("out.dps").spec.key_columns) == ([("x", "y")], ("a,b", 'c"'))
    refused = dpsketch("run", "histogram", "t.parquet", "--key", "a,b", *BUDGET, "-o", "no.dps")
    assert refused.code == 1
    assert "no column 'a'" in refused.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["histogram", "--key", "o,"], "no column before or after"),
        (["histogram", "--key", "o,o"], "twice"),
        (["histogram", "--key", "o,d", "--key-type", "int"], "several columns is text"),
        (["heavy", "--key", "o,d", "--key-bits", "32"], "several columns is text"),
        (["ranges", "--key", "o,d", "--bits", "8"], "name one column"),
        (["moment", "--key", "o,d", "--p", "0.5"], "name one column"),
        (["histogram", "--key", "o,nowhere"], "no column 'nowhere'"),
    ],
)
def test_what_no_compound_key_can_be_is_refused(dpsketch: Any, tmp_path: Path, options: list[str], words: str) -> None:
    csv_file(tmp_path / "t.csv")
    refused = dpsketch("run", options[0], "t.csv", *options[1:], *BUDGET, "-o", "out.dps")
    assert refused.code == (1 if "nowhere" in words else 2)
    assert words in refused.err
    assert not (tmp_path / "out.dps").exists()


@pytest.mark.parametrize("asked", ["ssn", "ssn,b,c", '"ssn,b', '"ssn"x,b', "ssn,b\nc"])
def test_a_question_that_is_no_row_of_the_columns_is_refused_without_quoting_it(
    dpsketch: Any, tmp_path: Path, asked: str
) -> None:
    run(dpsketch, "histogram", csv_file(tmp_path / "t.csv"), "--key", "o,d")
    refused = dpsketch("query", "out.dps", asked)
    assert refused.code == 2
    assert "one CSV row of o, d" in refused.err
    assert "ssn" not in refused.err


def test_partials_of_other_columns_do_not_merge_and_like_keeps_the_columns(dpsketch: Any, tmp_path: Path) -> None:
    source = csv_file(tmp_path / "t.csv")
    for name, key in (("a", "o,d"), ("b", "o,n"), ("c", "o"), ("d", "o,d")):
        assert dpsketch("build", "histogram", source, "--key", key, "-o", f"{name}.sketch").code == 0
    for other in "bc":
        refused = dpsketch("merge", "a.sketch", f"{other}.sketch", "-o", "m.sketch")
        assert refused.code == 1
        assert "key_columns differs" in refused.err
    assert dpsketch("merge", "a.sketch", "d.sketch", "-o", "m.sketch").code == 0
    refused = dpsketch("build", "histogram", source, "--key", "o,n", "--like", "a.sketch", "-o", "e.sketch")
    assert "whose sketch counts keys of o, d" in refused.err
    assert dpsketch("build", "histogram", source, "--key", "o,d", "--like", "a.sketch", "-o", "e.sketch").code == 0
    refused = dpsketch("build", "histogram", source, "--key", "o,d", "--like", "c.sketch", "-o", "f.sketch")
    assert "keys of one column" in refused.err
