"""Every form of one table, with nulls in all columns, gives the tables that ``update`` makes of it in memory."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dpsketch as dps
from dpsketch import cli, files
from reading import FILES, Pipe, text_of, write

ODD = ["a,b", 'q"uote', "line\nend", "tab\tin", "ä日本", "plain", " space ", "null", "NaN", "true", "1", "\\N"]
ROWS = [
    {
        "key": None if i % 50 == 7 else ODD[i % len(ODD)] if i % 3 else f"Page {i * i % 71}",
        "n": None if i % 41 == 3 else i * 7919 % 1009,
        "user": None if i % 60 == 9 else f"user {i * 31 % 97}",
        "weight": None if i % 70 == 11 else float(1 + i % 5),
        "count": 1 + i % 4,
    }
    for i in range(400)
]
TABLE = pa.Table.from_pylist(
    ROWS,
    pa.schema({"key": pa.string(), "n": pa.int64(), "user": pa.string(), "weight": pa.float64(), "count": pa.int64()}),
)

# The options of a command, and what makes the same sketch of the table in memory.
SHAPES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "text": (["--key", "key"], {"key": "key"}),
    "whole numbers": (["--key", "n", "--key-type", "int"], {"key": "n"}),
    "several columns": (["--key", "key,n"], {"key": ("key", "n")}),
    "weights": (["--key", "key", "--weight", "weight"], {"key": "key", "weight": "weight"}),
    "counts": (["--key", "key", "--count", "count"], {"key": "key", "count": "count"}),
    "users": (["--key", "key", "--user", "user"], {"key": "key", "user": "user"}),
    "users' weights": (["--key", "n", "--user", "user", "--weight", "weight", "--key-type", "int"],
                       {"key": "n", "user": "user", "weight": "weight"}),
    "condition": (["--key", "key", "--where", "user = 'user 31' or key like 'P%'"], {"key": "key"}),
    "computed": (["--key", "lower(key)"], {"key": "key"}),
}  # fmt: skip


@cache
def expected(shape: str) -> dict[str, list[int]]:
    """Count the table in memory."""
    table, names = TABLE, SHAPES[shape][1]
    if shape == "condition":
        mask = pc.or_kleene(pc.equal(table["user"], "user 31"), pc.starts_with(table["key"], "P"))
        table = table.filter(mask)
    if shape == "computed":
        table = table.set_column(0, "key", pc.utf8_lower(table["key"]))
    unit = dps.per_user(max_keys=3, max_weight=4) if "user" in names else dps.per_record(max_weight=4)
    sketch = dps.CountSketch(rows=3, width=64, unit=unit, seed=7)
    sketch.update(table, **names)
    return tables(sketch.to_sensitive_bytes())


def tables(data: bytes) -> dict[str, list[int]]:
    """Return the arrays of a sketch and how much it counted; not how many rows its reader left out."""
    document = files.decode(data, allow_sensitive=True)
    found = {name: np.asarray(array).ravel().tolist() for name, array in document.arrays.items() if name != "partials"}
    return found | {"mass": [int(document.header["mass"])], "users": sorted(found.get("users", []))}


def in_parts(folder: Path, suffix: str, place: str) -> Path:
    """Write the table as four files below a folder."""
    for i in range(4):
        path = folder / f"{place.format(i)}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write(TABLE.slice(100 * i, 100), path)
    return folder


def archive(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as target:
        target.writestr("a.csv", text_of(TABLE.slice(0, 150), ".csv"))
        target.writestr("below/b.jsonl", text_of(TABLE.slice(150), ".jsonl"))
    return path


def database(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE t (key TEXT, n INTEGER, "user" TEXT, weight REAL, count INTEGER)')
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [tuple(row.values()) for row in ROWS])
    return f"sqlite:///{path}"


FORMS: dict[str, Callable[[Path], str | Path]] = {
    **{name: lambda place, name=name: write(TABLE, place / f"t.{name}") for name in [*FILES, "jsonl.bz2", "tsv.gz"]},
    "a folder": lambda place: in_parts(place / "t", "csv", "sub{0}/part"),
    "a folder of Hive's": lambda place: in_parts(place / "t", "parquet", "day={0}/part"),
    "a glob": lambda place: in_parts(place, "tsv", "t-{0}") / "t-*.tsv",
    "an archive": lambda place: archive(place / "t.zip"),
    "a table": lambda place: database(place / "t.db") + "?table=t",
    "a query": lambda place: database(place / "t.db") + "?query=SELECT * FROM t WHERE true",
}
# A database is asked in its own SQL.
OWN_SQL = ("a table", "a query")


def built(source: str, shape: str, place: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> dict[str, list[int]]:
    """Count a source by the command line."""
    output = place / "out.sketch"
    options, names = SHAPES[shape]
    unit = ["--max-keys", "3"] if "user" in names else []
    table = ["--rows", "3", "--width", "64", "--seed", "7", "--max-weight", "4"]
    words = ["build", "counts", source, *options, *unit, *table, *more, "--overwrite", "-o", str(output)]
    monkeypatch.setattr(sys, "argv", ["dpsketch", *words])
    with contextlib.suppress(SystemExit):
        cli.main()
    return tables(output.read_bytes())


@pytest.mark.parametrize("form", FORMS)
def test_every_source_gives_the_tables_of_update(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All shapes of CSV, JSON lines and Parquet; of their packed and partitioned forms three, which differ in path."""
    source = str(FORMS[form](tmp_path))
    shapes = (
        SHAPES if form in ("csv", "jsonl", "parquet", "a table") else ["several columns", "users' weights", "computed"]
    )
    for shape in shapes:
        if form not in OWN_SQL or shape not in ("condition", "computed"):
            assert built(source, shape, tmp_path, monkeypatch) == expected(shape), shape


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "arrow", "arrows"])
def test_every_pipe_gives_the_tables_of_update(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipe: Pipe
) -> None:
    data = write(TABLE, tmp_path / f"t.{suffix}").read_bytes()
    for shape in ("several columns", "users' weights", "condition"):
        pipe(data)
        form = ["--format", suffix.removesuffix("s") if suffix == "arrows" else suffix]
        assert built("-", shape, tmp_path, monkeypatch, *form) == expected(shape), shape
