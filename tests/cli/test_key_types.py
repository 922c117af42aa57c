"""The type of keys on the command line: from the source's schema or from --key-type, never from values."""

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


def release(dpsketch: Any, kind: str, source: object, *options: str) -> Any:
    Path("out.dps").unlink(missing_ok=True)
    made = dpsketch("run", kind, source, "--key", "k", *options, *BUDGET, "-o", "out.dps")
    assert made.code == 0, made.err
    return dps.load("out.dps")


@pytest.mark.parametrize("users", [[], ["--user", "u", "--max-keys", "2"]])
@pytest.mark.parametrize("kind", ["counts", "sparse"])
def test_a_source_without_records_has_the_keys_that_its_schema_declares(
    dpsketch: Any, tmp_path: Path, kind: str, users: list[str]
) -> None:
    def parquet(name: str, keys: list[Any], declared: pa.DataType) -> str:
        table = pa.table({"k": pa.array(keys, declared), "u": pa.array(["ann"] * len(keys), pa.string())})
        pa.parquet.write_table(table, tmp_path / name)
        return name

    for declared, expected in ((pa.int64(), "int"), (pa.string(), "text")):
        for keys in ([], [None], ["5"]):
            values = [int(key) if key and expected == "int" else key for key in keys]
            found = release(dpsketch, kind, parquet("t.parquet", values, declared), *users)
            assert found.spec.key_type == expected


def test_keys_in_json_lines_are_text_unless_integers_are_asked_for(dpsketch: Any, tmp_path: Path) -> None:
    source = tmp_path / "t.jsonl"
    for key in ("5", '"5"', "null"):
        source.write_text(f'{{"k": {key}}}\n' * 2000)
        assert release(dpsketch, "counts", source).spec.key_type == "text"
        if key != "null":
            answer = dpsketch("query", "out.dps", "5", "--json").json["estimates"][0]
            assert (answer["key"], answer["value"] > 1900) == ("5", True)
        assert release(dpsketch, "counts", source, "--key-type", "int").spec.key_type == "int"
        if key != "null":
            answer = dpsketch("query", "out.dps", "5", "--json").json["estimates"][0]
            assert (answer["key"], answer["value"] > 1900) == (5, True)


def test_a_table_of_sqlite_declares_its_keys_and_a_query_does_not(dpsketch: Any, tmp_path: Path) -> None:
    for declared, expected in (("INTEGER", "int"), ("TEXT", "text"), ("", "text")):
        for keys in ([], [(None,)], [(5,)]):
            path = tmp_path / "t.db"
            path.unlink(missing_ok=True)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(f"CREATE TABLE t (k {declared})")
                connection.executemany("INSERT INTO t VALUES (?)", keys)
                connection.commit()
            assert release(dpsketch, "counts", f"sqlite:///{path}?table=t").spec.key_type == expected
            assert release(dpsketch, "counts", f"sqlite:///{path}?query=SELECT k FROM t").spec.key_type == "text"


def test_a_release_without_a_key_type_is_asked_for_text_or_for_integers(dpsketch: Any, tmp_path: Path) -> None:
    sketch = dps.CountSketch(rows=5, width=64, unit=dps.per_record())
    sketch.update([5] * 3000)
    sketch.release(epsilon=1.0, delta=1e-6).save(tmp_path / "numbers.dps")
    (tmp_path / "keys.txt").write_text("5\n6\n")
    for command in (["query", "numbers.dps", "5"], ["top", "numbers.dps", "--candidates", "keys.txt"]):
        read = dpsketch(*command, "--json")
        assert "read as text; --key-type int" in read.err
        assert max(one["value"] for one in read.json["estimates"]) < 1000
        read = dpsketch(*command, "--key-type", "int", "--json")
        assert "read as text" not in read.err
        assert (read.json["estimates"][0]["key"], read.json["estimates"][0]["value"] > 2900) == (5, True)
    assert dpsketch("plot", "numbers.dps", "--candidates", "keys.txt", "--key-type", "int", "-o", "a.svg").code == 0
    assert dpsketch("query", "numbers.dps", "x", "--key-type", "int").code == 2
    assert dpsketch("inspect", "numbers.dps", "--json").json["spec"]["key_type"] is None
    typed = dps.CountSketch(rows=5, width=64, unit=dps.per_record(), key_type="text")
    typed.release(epsilon=1.0, delta=1e-6).save(tmp_path / "text.dps")
    assert "counts text keys" in dpsketch("query", "text.dps", "5", "--key-type", "int").err
