"""Forty forms in which records come, what becomes of each, and the page that says so (docs/reference/inputs.md)."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import os
import sqlite3
import tempfile
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

import dpsketch as dps
from doc_pages import run_command
from dpsketch.errors import DpsketchError

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "inputs.md"
TIMES = 2000
ROWS = [{"k": "a", "n": 1}, {"k": "b", "n": 2}] * TIMES
CSV = "k,n\n" + "a,1\nb,2\n" * TIMES


@dataclass(frozen=True)
class Form:
    """A form of input: ``made`` writes the files of the shell's form, or returns Python's records.

    One of its keys is asked as ``key``; of ``shell`` and ``python``, which say how it is told, one is empty.
    """

    name: str
    made: Callable[[], Any]
    key: Any
    shell: str = ""
    python: str = ""


def csv(path: str, text: str = CSV) -> Callable[[], Any]:
    return lambda: Path(path).write_text(text, encoding="utf-8")


def packed(path: str, pack: Callable[[bytes], bytes]) -> Callable[[], Any]:
    return lambda: Path(path).write_bytes(pack(CSV.encode()))


def parquet(path: str, values: list[Any], kind: pa.DataType | None = None) -> Callable[[], Any]:
    return lambda: pa.parquet.write_table(table(values, kind), path)


def table(values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"k": pa.array(values * TIMES, kind)})


def zipped() -> None:
    with zipfile.ZipFile("t.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.csv", CSV)


def hive() -> None:
    Path("t/day=2026-11-15").mkdir(parents=True)
    pa.parquet.write_table(pa.table({"n": [1] * TIMES}), "t/day=2026-11-15/part.parquet")


def sqlite() -> None:
    with contextlib.closing(sqlite3.connect("t.db")) as database:
        database.execute("CREATE TABLE t (k TEXT, n INTEGER)")
        database.executemany("INSERT INTO t VALUES (:k, :n)", ROWS)
        database.commit()


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


NINE = datetime(2026, 11, 15, 9)
DAY, ID = date(2026, 11, 15), uuid.UUID("6f1c2d3e-0000-4000-8000-0123456789ab")

FORMS = [
    Form("CSV", csv("t.csv"), "a", "t.csv --key k"),
    Form("TSV", csv("t.tsv", CSV.replace(",", "\t")), "a", "t.tsv --key k"),
    Form("CSV, whole-number keys", csv("t.csv"), 1, "t.csv --key n --key-type int"),
    Form("CSV, a key of two columns", csv("t.csv"), ("a", "1"), "t.csv --key k,n"),
    Form("CSV, a column that is not there", csv("t.csv"), "a", "t.csv --key nowhere"),
    Form("CSV in UTF-16", lambda: Path("t.csv").write_text(CSV, encoding="utf-16"), "a", "t.csv --key k"),
    Form("gzip", packed("t.csv.gz", gzip.compress), "a", "t.csv.gz --key k"),
    Form("bz2", packed("t.csv.bz2", bz2.compress), "a", "t.csv.bz2 --key k"),
    Form("zstd", packed("t.csv.zst", lambda data: pa.compress(data, "zstd", asbytes=True)), "a", "t.csv.zst --key k"),
    Form("zip", zipped, "a", "t.zip --key k"),
    Form("JSON lines", csv("t.jsonl", lines(ROWS)), "a", "t.jsonl --key k"),
    Form("a JSON array", csv("t.json", json.dumps(ROWS, indent=1)), "a", "t.json --key k"),
    Form("JSON lines, booleans", csv("t.jsonl", lines([{"k": True}] * TIMES)), "true", "t.jsonl --key k"),
    Form("JSON lines, fractions", csv("t.jsonl", lines([{"k": 0.5}])), "0.5", "t.jsonl --key k"),
    Form("Parquet", parquet("t.parquet", ["a", "b"]), "a", "t.parquet --key k"),
    Form("Arrow, Feather", lambda: pa.feather.write_feather(table(["a"]), "t.feather"), "a", "t.feather --key k"),
    Form("a folder", lambda: (Path("t").mkdir(), csv("t/a.csv")()), "a", "t --key k"),
    Form("a folder with Hive's partitions", hive, "2026-11-15", "t --key day"),
    Form("a glob", csv("t-1.csv"), "a", "'t-*.csv' --key k"),
    Form("a spreadsheet", lambda: Path("t.xlsx").write_bytes(b"PK\x03\x04"), "a", "t.xlsx --key k"),
    Form("a name that says nothing", csv("t.dat"), "a", "t.dat --key k"),
    Form("an SQLite table", sqlite, "a", "'sqlite:///t.db?table=t' --key k"),
    Form("an SQLite query", sqlite, "a", "'sqlite:///t.db?query=SELECT k FROM t WHERE n < 3' --key k"),
    Form("a web address", lambda: None, "a", "https://example.org/t.csv --key k"),
    Form("dates", parquet("t.parquet", [DAY]), "2026-11-15", "t.parquet --key k"),
    Form("timestamps", parquet("t.parquet", [NINE]), "2026-11-15 09:00:00", "t.parquet --key k"),
    Form("timestamps with a zone",
         parquet("t.parquet", [datetime(2026, 11, 15, 9, 30, tzinfo=UTC)], pa.timestamp("ms", "Europe/Paris")),
         "2026-11-15 09:30:00Z", "t.parquet --key k"),
    Form("times of day", parquet("t.parquet", [time(9, 30, 0, 250_000)]), "09:30:00.25", "t.parquet --key k"),
    Form("booleans", parquet("t.parquet", [True]), "true", "t.parquet --key k"),
    Form("decimals", parquet("t.parquet", [Decimal("2.50")]), "2.5", "t.parquet --key k"),
    Form("whole floats", parquet("t.parquet", [7.0, None]), 7, "t.parquet --key k"),
    Form("floats with fractions", parquet("t.parquet", [7.0, 2.5]), 7, "t.parquet --key k"),
    Form("bytes", parquet("t.parquet", [b"abc"]), "abc", "t.parquet --key k"),
    Form("UUIDs", lambda: duckdb.sql(f"SELECT '{ID}'::uuid AS k FROM range({TIMES})").write_parquet("t.parquet"),
         str(ID), "t.parquet --key k"),
    Form("lists in a column", parquet("t.parquet", [["a"]]), "a", "t.parquet --key k"),
    Form("durations", parquet("t.parquet", [1], pa.duration("s")), "1", "t.parquet --key k"),
    Form("a pandas frame", lambda: pd.DataFrame({"k": [DAY] * TIMES}), DAY, python="update(frame, key='k')"),
    Form("pandas categories", lambda: pd.DataFrame({"k": ["a"] * TIMES}).astype("category"), "a",
         python="update(frame, key='k')"),
    Form("pandas integers with gaps", lambda: pd.DataFrame({"k": [7, None] * TIMES}), 7,
         python="update(frame, key='k')"),
    Form("a polars frame", lambda: pl.DataFrame({"k": [True] * TIMES}), True, python="update(frame, key='k')"),
    Form("an Arrow table", lambda: table([Decimal("2.50")]), Decimal("2.5"), python="update(table, key='k')"),
    Form("a DuckDB relation", lambda: duckdb.sql(f"SELECT DATE '2026-11-15' AS k FROM range({TIMES})"), DAY,
         python="update(relation, key='k')"),
    Form("a generator of frames", lambda: (pl.DataFrame({"k": ["a"] * (TIMES // 2)}) for _ in range(2)), "a",
         python="update(frames, key='k')"),
    Form("a list", lambda: [ID] * TIMES, ID, python="update(keys)"),
    Form("a NumPy array", lambda: np.full(TIMES, "2026-11-15T09", "M8[h]"), NINE, python="update(keys)"),
    Form("a list of floats", lambda: [1.0], 1, python="update(keys)"),
    Form("a list of dates and times", lambda: [DAY, NINE], DAY, python="update(keys)"),
    Form("a frame without key=", lambda: pl.DataFrame({"k": ["a"]}), "a", python="update(frame)"),
    Form("a set", lambda: {"a"}, "a", python="update(keys)"),
]  # fmt: skip


def outcome(form: Form) -> str:
    """Try a form in a folder of its own: what its key is in the release, or the sentence of the refusal."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return _by_shell(form) if form.shell else _by_python(form)
        finally:
            os.chdir(before)


def _by_shell(form: Form) -> str:
    form.made()
    code, said = run_command(f"dpsketch run histogram {form.shell} --epsilon 1 --delta 1e-6 --no-ledger -o out.dps")
    if code:
        return said.strip().splitlines()[-1].removeprefix("dpsketch: ")
    return _accepted(dps.load("out.dps"), form)


def _by_python(form: Form) -> str:
    sketch = dps.Histogram(unit=dps.per_record())
    try:
        sketch.update(form.made(), **({"key": "k"} if "key=" in form.python else {}))
    except DpsketchError as error:
        return f"{type(error).__name__}: {error}"
    return _accepted(sketch.release(epsilon=1.0, delta=1e-6), form)


def _accepted(private: Any, form: Form) -> str:
    """Return the key as the release names it, after asking for it."""
    assert private.estimate([form.key]).value[0] > 0.9 * TIMES, form.name
    named = [key for key in private.keys if private.estimate([key]).value[0] == private.estimate([form.key]).value[0]]
    assert named, form.name
    return f"accepted, as `{named[0]!r}`"


def page() -> str:
    """Return the page with every row of its first table tried anew."""
    rows = []
    for form in FORMS:
        how = f"`run histogram {form.shell}`" if form.shell else f"`{form.python}`"
        rows.append(f"| {form.name} | {how} | {outcome(form).replace('|', chr(92) + '|')} |\n")
    head, rule, rest = PAGE.read_text(encoding="utf-8").partition("|---|---|---|\n")
    return head + rule + "".join(rows) + "\n" + rest.partition("\n\n" if rest.startswith("|") else "\n")[2]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
