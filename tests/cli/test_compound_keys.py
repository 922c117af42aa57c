"""Keys of several columns, and rows that stand for many records: --key a,b and --count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger", "--overwrite"]
SHAPES = {"counts": ["--width", "512"], "heavy": ["--key-bytes", "12", "--width", "512"], "histogram": []}


@pytest.fixture(autouse=True)
def source(tmp_path: Path) -> None:
    rows = ['"a,b",c,1', 'a,"b,c",2', '"q""",x,3', '"",e,4', ",none,5"]
    (tmp_path / "t.csv").write_text("\n".join(["o,d,n", *rows * 400]) + "\n")


def run(dpsketch: Any, kind: str, source: object, *options: str) -> Any:
    made = dpsketch("run", kind, source, *options, *SHAPES[kind], *BUDGET, "-o", "out.dps")
    assert made.code == 0, made.err
    return made


@pytest.mark.parametrize("kind", SHAPES)
def test_a_key_of_two_columns_is_asked_and_answered_as_a_csv_row(dpsketch: Any, kind: str) -> None:
    made = run(dpsketch, kind, "t.csv", "--key", "o,d")
    assert "400 of them skipped" in made.err  # the rows without an o
    asked = ['"a,b",c', 'a,"b,c"', '"q""",x', ",e", '"a","c"']
    found = dpsketch("query", "out.dps", *asked, "--json").json["estimates"]
    assert [row["key"] for row in found] == [["a,b", "c"], ["a", "b,c"], ['q"', "x"], ["", "e"], ["a", "c"]]
    assert [round(row["value"], -2) + 0 for row in found] == [400, 400, 400, 400, 0]
    assert '"a,b",c' in dpsketch("query", "out.dps", '"a,b",c').out
    refused = dpsketch("query", "out.dps", "ssn,b,c")
    assert (refused.code, "one CSV row of o, d" in refused.err, "ssn" in refused.err) == (2, True, False)
    if kind != "counts":
        listed = dpsketch("top", "out.dps", "--json").json["estimates"]
        assert {tuple(row["key"]) for row in listed} == {("a,b", "c"), ("a", "b,c"), ('q"', "x"), ("", "e")}
    if kind == "histogram":
        Path("list.txt").write_text('"a,b",c\n"a","b,c"\n')
        run(dpsketch, kind, "t.csv", "--key", "o,d", "--keys-from", "list.txt")
        assert dps.load("out.dps").keys == [("a,b", "c"), ("a", "b,c")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["histogram", "--key", "o,"], "no column before or after"),
        (["histogram", "--key", "o,d", "--key-type", "int"], "several columns is text"),
        (["ranges", "--key", "o,d", "--bits", "8"], "name one column"),
        (["histogram", "--key", "o", "--count", "n", "--user", "d", "--max-keys", "2"], "how many records of nobody"),
        (["distinct", "--key", "o", "--count", "n"], "--count does not apply to distinct"),
    ],
)
def test_what_no_compound_key_and_no_count_can_be_is_refused(dpsketch: Any, options: list[str], words: str) -> None:
    refused = dpsketch("run", options[0], "t.csv", *options[1:], *BUDGET, "-o", "out.dps")
    assert refused.code == 2
    assert words in refused.err
    assert not Path("out.dps").exists()


@pytest.mark.parametrize("bad", ["-1", "2.5", "x", "99999999999999999999"])
def test_what_is_no_whole_number_is_refused_without_quoting_it(dpsketch: Any, bad: str) -> None:
    Path("bad.csv").write_text(f"k,n\nsecret,{bad}\n")
    refused = dpsketch("run", "histogram", "bad.csv", "--key", "k", "--count", "n", *BUDGET, "-o", "out.dps")
    assert refused.code == 1
    assert "a count that is not a whole number from 0 on" in refused.err
    assert "secret" not in refused.err
    assert bad not in refused.err
    assert not Path("out.dps").exists()
