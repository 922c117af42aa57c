"""Columns that are not whole numbers, and ids of one person in columns of several types, on the command line."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps

Runner = Callable[..., Any]

PRICES = [1.0, 16.99, 697.0, 3.5]
BUDGET = ("--epsilon", 9, "--delta", "1e-6", "--no-ledger", "-o", "o.dps")


def database(table: pa.Table) -> None:
    with sqlite3.connect("t.db") as connection:
        connection.execute("CREATE TABLE t (price DOUBLE)")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in table["price"].to_pylist()])


SOURCES: dict[str, Callable[[str, pa.Table], Any]] = {
    "t.parquet": lambda path, table: pa.parquet.write_table(table, path),
    "t.csv": lambda path, table: Path(path).write_text(table.to_pandas().to_csv(index=False)),
    "t.jsonl": lambda path, table: Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist())),
    "sqlite:///t.db?table=t": lambda _, table: database(table),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_column_with_fractions_is_refused_from_every_source(dpsketch: Runner, source: str) -> None:
    SOURCES[source](source, pa.table({"price": PRICES * 500}))
    for kind, shape in (("ranges", ("--bits", 17)), ("histogram", ("--key-type", "int"))):
        done = dpsketch("run", kind, source, "--key", "price", *shape, *BUDGET)
        assert done.code == 1
        assert "whole" in done.err
        assert "16.99" not in done.err
        assert not Path("o.dps").exists()


def test_the_remedy_that_the_message_names_counts_all_prices(dpsketch: Runner) -> None:
    SOURCES["t.parquet"]("t.parquet", pa.table({"price": PRICES * 500}))
    run = ("run", "ranges", "t.parquet", "--bits", 17, *BUDGET, "--key")
    for remedy in ("round(100 * price)", "cast(price as varchar)"):
        assert f"as in '{remedy}'" in " ".join(dpsketch(*run, "price").err.split())
    counted = dpsketch(*run, "round(100 * price)")
    assert (counted.code, "Read 2,000 records." in counted.err) == (0, True)


def test_one_person_in_columns_of_two_types_does_not_count_twice(dpsketch: Runner) -> None:
    """200 people, of whom each has one record in both files; ids from 2²⁴ on are not exact as single floats."""

    def written(first: int) -> list[str]:
        people = np.arange(first, first + 200)
        columns = {
            "whole.parquet": pa.array(people),
            "single.parquet": pa.array(people.astype(np.float32)),
            "decimal.parquet": pa.array([Decimal(int(person)) for person in people], pa.decimal128(12, 2)),
        }
        for name, users in columns.items():
            pa.parquet.write_table(pa.table({"key": [name] * 200, "user": users}), name)
        return list(columns)

    command = ("--key", "key", "--user", "user", "--max-keys", 1, *BUDGET)
    whole, single, decimal = written(1)
    for kind in ("histogram", "counts"):
        done = dpsketch("run", kind, whole, single, *command, "--overwrite")
        assert done.code == 0, done.err
        counted = dps.load("o.dps").estimate([whole, single]).value  # type: ignore[union-attr]
        assert abs(sum(counted) - 200) < 20
        assert dpsketch("run", kind, whole, decimal, *command, "--overwrite").code == 1
    written(2**24 - 50)
    for kind in ("histogram", "counts"):
        refused = dpsketch("run", kind, whole, single, *command, "--overwrite")
        assert refused.code == 1
        assert "column 'user' holds something that is not a whole 64-bit number" in " ".join(refused.err.split())
