"""Estimates as tables: every kind of key, every library that reads Arrow, text, CSV, HTML and pictures."""

from __future__ import annotations

import csv
import sys
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput

KEYS: dict[str, tuple[list[Any], pa.DataType]] = {
    "integers": ([3, -4, 5], pa.int64()),
    "integers past 2**63": ([2**64 - 1, 4, 5], pa.uint64()),
    "integers of both kinds": ([2**64 - 1, -4, 5], pa.string()),
    "text": (["/a", 'é,\n"x"', "=1+1"], pa.string()),
    "bytes": ([b"\xff\x00", b"a", b"b"], pa.binary()),
    "numbers": ([0.5, 1.0, 2.0], pa.float64()),
    "ranges": ([(0, 9), (10, 19), (0, 2**40)], pa.list_(pa.int64())),
    "points": ([[0.5, 1.0], [1.0, 2.0], [2.0, 3.0]], pa.list_(pa.float64())),
    "sets": ([{"tea"}, {"milk"}, {"rum"}], pa.list_(pa.string())),
    "frozen sets": ([frozenset({"tea"}), frozenset(), frozenset({"rum"})], pa.string()),
    "mixed": (["a", 4, (1, "b")], pa.string()),
}
VALUE = np.array([1234.5, 6.25, -1.0])


def of(keys: list[Any], **more: Any) -> dps.Estimates:
    return dps.Estimates(keys, VALUE, VALUE - 1, VALUE + 1, 0.95, **more)


@pytest.fixture(params=KEYS.values(), ids=KEYS)
def made(request: pytest.FixtureRequest) -> tuple[dps.Estimates, pa.DataType]:
    keys, kind = request.param
    return of(keys), kind


def test_every_kind_of_key_is_an_arrow_column(made: tuple[dps.Estimates, pa.DataType]) -> None:
    found, kind = made
    table = found.to_arrow()
    assert table.column_names == ["key", "value", "low", "high"]
    assert table.column("key").type == kind
    expected = [list(key) if pa.types.is_list(kind) else key for key in found.key]
    assert table.column("key").to_pylist() == ([str(key) for key in found.key] if kind == pa.string() else expected)
    assert table.column("high").to_pylist() == (VALUE + 1).tolist()


def test_every_library_reads_it_as_it_is(made: tuple[dps.Estimates, pa.DataType]) -> None:
    found, _ = made
    table = found.to_arrow()
    assert pa.table(found).equals(table)
    assert pl.DataFrame(found).equals(found.to_polars())
    assert pl.DataFrame(found)["value"].to_list() == VALUE.tolist()
    assert pl.DataFrame(found)["key"].to_list() == table.column("key").to_pylist()
    relation = duckdb.sql("from found")
    assert relation.columns == ["key", "value", "low", "high"]
    assert [row[1] for row in relation.fetchall()] == VALUE.tolist()
    assert found.to_pandas()["key"].tolist() == found.key
    assert pd.DataFrame(found).columns.tolist() == ["key", "value", "low", "high"]


def test_every_kind_of_key_is_written_as_csv(made: tuple[dps.Estimates, pa.DataType], tmp_path: Path) -> None:
    found, _ = made
    text = found.to_csv()
    header, *rows = csv.reader(StringIO(text))
    assert header == ["key", "value", "low", "high"]
    decoded = [key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key) for key in found.key]
    assert [row[0] for row in rows] == decoded
    assert [float(row[1]) for row in rows] == VALUE.tolist()
    found.to_csv(tmp_path / "found.csv")
    assert (tmp_path / "found.csv").read_bytes() == text.encode()


def test_nothing_found_is_a_table_too() -> None:
    none = of(["a", "b", "c"])[:0]
    assert len(none) == 0
    assert not list(none)
    assert none.to_csv() == "key,value,low,high\n"
    assert none.to_polars().shape == (0, 4)
    assert duckdb.sql("from none").fetchall() == []
    assert repr(none) == "0 estimates, 95% intervals"
    assert "<tbody></tbody>" in none._repr_html_()
    none.plot()


def test_rows_come_one_by_one_by_number_and_by_slice() -> None:
    found = of(["a", "b", "c"], counts="records")
    rows = list(found)
    assert rows == list(found.rows()) == [found[0], found[1], found[np.int64(2)]]
    assert found[-1] == ("c", -1.0, -2.0, 0.0)
    assert found[-1].key == "c"
    assert found[0]._fields == ("key", "value", "low", "high")
    assert type(found[0].value) is type(rows[0].value) is float
    part = found[::-2]
    assert (part.key, part.value.tolist(), part.confidence, part.counts) == (["c", "a"], [-1, 1234.5], 0.95, "records")
    with pytest.raises(IndexError):
        found[3]


def test_it_prints_as_an_aligned_table() -> None:
    found = of(["/a", "/long", "x" * 100], counts="records")
    headline, *lines = repr(found).splitlines()
    assert headline == "3 estimates, 95% intervals, of records"
    assert len({len(line) for line in lines}) == 1
    assert [line.split()[1:] for line in lines[:2]] == [["value", "low", "high"], ["1,234", "1,234", "1,236"]]
    many = dps.Estimates(list(range(5000)), *[np.arange(5000.0)] * 3, 0.9)
    assert repr(many).splitlines()[-1] == "  … and 4,990 more"
    assert repr(found[:1]).startswith("1 estimate, ")


def test_in_a_notebook_keys_are_text_and_nothing_else() -> None:
    found = of(["<script>alert(1)</script>", "\"&'", b"<b>"], counts="<i>")
    page = found._repr_html_()
    for tag in ("<script", "<b>", "<i>", "\"&'"):
        assert tag not in page
    assert "&lt;script&gt;" in page
    assert page.count("<tr>") == 4
    many = dps.Estimates(list(range(5000)), *[np.arange(5000.0)] * 3, 0.9)
    assert many._repr_html_().count("<tr>") == 51
    assert "4,950 more" in many._repr_html_()
    assert dps.Estimate(3.0, 1.0, 5.0, 0.95)._repr_html_() == "<b>3</b> (1 to 5, 0.95 confidence)"


def test_it_draws_its_first_rows(made: tuple[dps.Estimates, pa.DataType]) -> None:
    found, _ = made
    (axes,) = found.plot(n=2).axes
    assert len(axes.patches) == 2
    with pytest.raises(InvalidInput, match="n must"):
        found.plot(n=0)


def test_a_key_is_no_formula() -> None:
    of([r"$\wrong$", "$", "$x$"]).plot().savefig(BytesIO())


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_without_its_library_says_which_extra_brings_it(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    found = dps.Estimates(["a"], np.ones(1), np.zeros(1), np.full(1, 2.0), 0.95)
    with pytest.raises(InvalidInput, match=rf"{library} is not installed: pip install 'dpsketch\[frames\]'"):
        getattr(found, f"to_{library}")()
