"""Estimates as tables: every kind of key, every library that reads Arrow, CSV and HTML."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import server

KEYS: dict[str, tuple[list[Any], pa.DataType]] = {
    "integers": ([3, -4, 5], pa.int64()),
    "text": (["/a", 'é,\n"x"', "=1+1"], pa.string()),
    "bytes": ([b"\xff\x00", b"a", b"b"], pa.binary()),
    "ranges": ([(0, 9), (10, 19), (0, 2**40)], pa.list_(pa.int64())),
    "sets": ([{"tea"}, {"milk"}, {"rum"}], pa.list_(pa.string())),
    "mixed": (["a", 4, (1, "b")], pa.string()),
}
VALUE = np.array([1234.5, 6.25, -1.0])


def of(keys: list[Any], **more: Any) -> dps.Estimates:
    return dps.Estimates(keys, VALUE, VALUE - 1, VALUE + 1, 0.95, **more)


@pytest.mark.parametrize(("keys", "kind"), KEYS.values(), ids=KEYS)
def test_every_library_reads_every_kind_of_key(keys: list[Any], kind: pa.DataType) -> None:
    found = of(keys)
    table = found.to_arrow()
    assert table.column_names == ["key", "value", "low", "high"]
    assert table.column("key").type == kind
    expected = [list(key) if pa.types.is_list(kind) else key for key in found.key]
    assert table.column("key").to_pylist() == ([str(key) for key in found.key] if kind == pa.string() else expected)
    assert table.column("high").to_pylist() == (VALUE + 1).tolist()
    assert pa.table(found).equals(table)
    assert pl.DataFrame(found).equals(found.to_polars())
    assert pl.DataFrame(found)["key"].to_list() == table.column("key").to_pylist()
    assert [row[1] for row in duckdb.sql("from found").fetchall()] == VALUE.tolist()
    assert found.to_pandas()["key"].tolist() == found.key


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''@a"]
HARMLESS = ["-5", "+3.25", "-1e-7", "'tis", "a=b", "", "'", "/a-b", "é"]


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(StringIO(text, newline="")))


def test_no_cell_of_a_csv_is_a_formula() -> None:
    """A spreadsheet computes what begins with = + - or @; keys come from strangers, and numbers stay numbers."""
    keys, named = FORMULAS + HARMLESS, [("=1", "-5"), ("a", "@b"), ("-x", "c")]
    numbers = -np.arange(len(keys)) - 0.5
    found = dps.Estimates(keys, numbers, numbers, numbers, 0.95)
    _, *rows = cells(found.to_csv())
    assert [row[0] for row in rows] == [f"'{key}" for key in FORMULAS] + HARMLESS
    assert [[float(cell) for cell in row[1:]] for row in rows] == [[number] * 3 for number in numbers.tolist()]
    assert cells(of([-3, -4, -5]).to_csv())[1][0] == "-3"
    header, *rows = cells(of(named).to_csv(key_columns=["=name", "other"]))
    assert header[:2] == ["'=name", "other"]
    assert [tuple(row[:2]) for row in rows] == [("'=1", "-5"), ("a", "'@b"), ("'-x", "c")]


@pytest.mark.skipif(shutil.which("node") is None, reason="the page's CSV: node is not installed")
def test_the_page_writes_the_same_cells() -> None:
    keys = FORMULAS + HARMLESS
    found = dps.Estimates(keys, *np.full((3, len(keys)), -1.5), 0.95)
    module = Path(server.__file__).parent / "page" / "saving.js"
    table = json.dumps([["key", "value", "low", "high"], [list(row) for row in found]])
    program = f"import {{csv}} from {json.dumps(module.as_uri())}; const table = {table};"
    command = ["node", "--input-type=module", "-e", f"{program} process.stdout.write(await csv(...table).text())"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert cells(done.stdout.decode()) == cells(found.to_csv())


def test_in_a_notebook_keys_are_text_and_nothing_else() -> None:
    found = of(["<script>alert(1)</script>", "\"&'", b"<b>"], counts="<i>")
    page = found._repr_html_()
    for tag in ("<script", "<b>", "<i>", "\"&'"):
        assert tag not in page
    assert "&lt;script&gt;" in page
    assert page.count("<tr>") == 4
