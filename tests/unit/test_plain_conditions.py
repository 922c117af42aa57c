"""Conditions that need no database say of every row what DuckDB says of it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from dpsketch.sources import Columns, open_source, parse_expression
from dpsketch.sources.conditions import PlainCondition, _NoPlainNumberError, _numbers
from dpsketch.sources.engine import connect
from dpsketch.sources.expressions import RowExpression

_TEXTS = ["UA", "ua", "", "Zürich", "z", "é", "日本", "a'b", "5", "10", "U", "UAA", "\U0001f600", "￿", None]
_NUMBERS = ["0", "-0", "5", "5.0", "05", "-3.25", "500", "500.5", "1000", ".5", "7.", "0.1", "123456789012345", None]
_ODD = ["nan", "inf", " 7", "+5", "1e3", "1_000", "x", "", "-", "1.2.3", "0x10", "٣"]


def _quoted(text: str | None) -> str:
    return "" if text is None else '"' + text.replace('"', '""') + '"'


def _rows(path: Path, where: RowExpression) -> list[str | None]:
    batches = open_source([str(path)], Columns(key="line", where=where))
    return [key for batch in batches if batch.key is not None for key in batch.key.to_pylist()]


def _both(path: Path, text: str) -> tuple[list[str | None], list[str | None]]:
    where = parse_expression(text, "--where")
    assert where.plain is not None, text
    return _rows(path, where), _rows(path, replace(where, plain=None))


def _condition(chance: random.Random, depth: int) -> str:
    """Draw a condition over two columns of text and two of numbers."""
    if depth and chance.random() < 0.6:
        parts = [_condition(chance, depth - 1) for _ in range(chance.randint(2, 3))]
        joined = f" {chance.choice(['and', 'or'])} ".join(parts)
        return f"not ({joined})" if chance.random() < 0.3 else f"({joined})"
    text = chance.random() < 0.5
    column = chance.choice(["carrier", "city"] if text else ["distance", "delay"])
    constants = [f"'{each.replace(chr(39), 2 * chr(39))}'" for each in _TEXTS if each is not None]
    one, two = chance.choices(constants if text else ["0", "5", "-3.25", "500", "0.1", "-1", "1000"], k=2)
    relation = chance.choice(["=", "<>", "<", "<=", ">", ">="])
    forms = [
        f"{column} {relation} {one}", f"{one} {relation} {column}", f"{column} in ({one}, {two})",
        f"{column} not in ({one}, {two})", f"{column} between {one} and {two}",
        f"{column} not between {one} and {two}", f"{column} is null", f"{column} is not null",
    ]  # fmt: skip
    return chance.choice(forms)


def _written(path: Path, numbers: list[str | None], chance: random.Random, rows: int = 400) -> None:
    lines = ["line,carrier,city,distance,delay"]
    for i in range(rows):
        fields = [*chance.choices(_TEXTS, k=2), *chance.choices(numbers, k=2)]
        lines.append(",".join([str(i), *map(_quoted, fields)]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("numbers", [_NUMBERS, _NUMBERS + _ODD], ids=["plain fields", "odd fields"])
def test_generated_conditions_keep_the_rows_that_duckdb_keeps(tmp_path: Path, numbers: list[str | None]) -> None:
    chance = random.Random(26)
    path = tmp_path / "t.csv"
    _written(path, numbers, chance)
    sizes = set()
    for _ in range(20):
        ours, theirs = _both(path, _condition(chance, 2))
        assert ours == theirs
        sizes.add(len(ours))
    assert len(sizes) > 8  # they differ, and are not all of the rows or none


def test_each_text_that_is_read_as_a_number_is_the_number_that_duckdb_reads() -> None:
    chance = random.Random(7)
    texts = ["".join(chance.choices("0123456789.-", k=chance.randint(1, 5))) for _ in range(1000)]
    texts += ["".join(chance.choices("0123456789", k=chance.choice([17, 25, 330]))) for _ in range(50)]
    texts += [f"0.{'0' * zeros}{chance.randrange(10**17)}" for zeros in (1, 20, 300, 330)]
    with connect() as connection:
        source = connection.from_arrow(pa.table({"c": texts}))
        theirs = [row[0] for row in source.project("TRY_CAST(c AS DOUBLE)").fetchall()]
    read = 0
    for text, expected in zip(texts, theirs, strict=True):
        try:
            ours = _numbers(pa.array([text]))[0].as_py()
        except _NoPlainNumberError:
            continue
        read += 1
        assert ours == expected, text
    assert read > 300


@pytest.mark.parametrize("text", ["nan", "inf", " 7", "7 ", "+5", "1e3", "1_000", "", "x", "٣"])
def test_a_field_that_may_be_read_in_two_ways_is_left_to_duckdb(text: str) -> None:
    with pytest.raises(_NoPlainNumberError):
        _numbers(pa.array(["5", text]))


def test_a_slice_is_looked_at_alone() -> None:
    assert _numbers(pa.array(["x", "5", None, "y"]).slice(1, 2)).to_pylist() == [5, None]


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 and a = 'x'", "a > 1e300", "a = 1234567890123456", "a = 0.1234567890123456", "a = null", "a = b",
        "a in (1, 'x')", "a in ('x', null)", "a is distinct from 'x'", "length(a) = 1", "a like 'x%'", "a || 'x' = 'y'",
        "a = true", "cast(a as integer) > 5", "(a = 'x') = (b = 'y')", "a = 'x' and length(b) = 2",
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_duckdb(text: str) -> None:
    assert parse_expression(text, "--where").plain is None


def test_a_condition_that_is_asked_first_sees_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("line,a,b\n1,x,5\n2,,6\n3,x,\n4,y,7\n5,x,9\n", encoding="utf-8")
    where = parse_expression("b > 4 and a = 'x'", "--where")
    assert isinstance(where.plain, PlainCondition)
    assert _rows(path, where) == ["1", "5"]


def test_typed_columns_are_left_to_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"line": ["1", "2", "3"], "b": [float("nan"), 5.0, None]}), path)
    assert _rows(path, parse_expression("b > 500", "--where")) == ["1"]  # DuckDB's NaN is above all numbers
