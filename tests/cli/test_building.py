"""Building, merging and releasing step by step: types of keys, what is refused, and advice that works when taken."""

from __future__ import annotations

import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch.sketches.countsketch import addition

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


def write(path: Path, *rows: str) -> str:
    path.write_text("".join(row + "\n" for row in rows))
    return path.name


@pytest.mark.parametrize("keys", [[], [5]])
def test_keys_have_the_type_that_is_declared_whatever_records_there_are(dpsketch: Any, keys: list[int]) -> None:
    """Never that of the values: a source without records looks like one with a record."""
    for declared in ("int64", "string"):
        pa.parquet.write_table(pa.table({"k": pa.array(keys, pa.int64()).cast(declared)}), f"{declared}.parquet")
    Path("t.csv").write_text("k\n" + "".join(f"{key}\n" for key in keys))
    Path("t.jsonl").write_text("".join(f'{{"k": {key}}}\n' for key in keys))
    with closing(sqlite3.connect("t.db")) as base, base:
        base.execute("CREATE TABLE t (k INTEGER)")
        base.executemany("INSERT INTO t VALUES (?)", [(key,) for key in keys])
    for source, expected in (
        ("int64.parquet", "int"),
        ("string.parquet", "text"),
        ("t.csv", "text"),
        ("t.jsonl", "text"),
        ("sqlite:///t.db?table=t", "int"),
        ("sqlite:///t.db?query=SELECT k FROM t", "text"),
    ):
        asked = ["int"] if source in ("t.csv", "t.jsonl") else []
        for key_type in (None, *asked):
            options = ["--key-type", key_type] if key_type else []
            for kind in ("counts", "sparse"):
                run = ("run", kind, source, "--key", "k", *options, *BUDGET, "--no-ledger", "--overwrite")
                made = dpsketch(*run, "-o", "out.dps")
                assert made.code == 0, made.err
                assert dps.load("out.dps").spec.key_type == (key_type or expected)


def test_a_release_without_a_key_type_is_asked_for_text_or_for_integers(dpsketch: Any, tmp_path: Path) -> None:
    sketch = dps.CountSketch(rows=5, width=64, unit=dps.per_record())
    sketch.update([5] * 3000)
    sketch.release(epsilon=1.0, delta=1e-6).save(tmp_path / "numbers.dps")
    write(tmp_path / "keys.txt", "5", "6")
    for command in (["query", "numbers.dps", "5"], ["top", "numbers.dps", "--candidates", "keys.txt"]):
        read = dpsketch(*command, "--json")
        assert "read as text; --key-type int" in read.err
        assert max(one["value"] for one in read.json["estimates"]) < 1000
        read = dpsketch(*command, "--key-type", "int", "--json")
        assert (read.json["estimates"][0]["key"], read.json["estimates"][0]["value"] > 2900) == (5, True)
    assert dpsketch("query", "numbers.dps", "x", "--key-type", "int").code == 2
    typed = dps.CountSketch(rows=5, width=64, unit=dps.per_record(), key_type="text")
    typed.release(epsilon=1.0, delta=1e-6).save(tmp_path / "text.dps")
    assert "counts text keys" in dpsketch("query", "text.dps", "5", "--key-type", "int").err


def test_the_password_of_a_database_is_not_shown(dpsketch: Any) -> None:
    source = "postgresql://me:secret@host?table=visits"
    shown = dpsketch("run", "counts", source, "--key", "key", *BUDGET, "--dry-run", "-o", "out.dps")
    assert shown.code == 0
    assert "secret" not in shown.err + shown.out


def test_parts_that_share_a_secret_end_with_their_merge(dpsketch: Any, tmp_path: Path) -> None:
    source = write(tmp_path / "one.csv", "key", "a")
    options = ["--key", "key", "--p", "0.5", "--size", "20"]
    for output in ("both.sketch", "a.sketch"):
        dpsketch("build", "moment", source, *options, "-o", "a.sketch")
        dpsketch("build", "moment", source, "--key", "key", "--like", "a.sketch", "-o", "b.sketch")
        merged = dpsketch("merge", "a.sketch", "b.sketch", "-o", output)
        assert merged.code == 0, merged.err
        assert sorted(path.name for path in tmp_path.glob("*.sketch")) == [output]
        assert dpsketch("release", output, *BUDGET, "-o", f"{output}.dps").code == 0
        assert list(tmp_path.glob("*.sketch")) == []


@pytest.mark.parametrize("command", ["run", "build"])
def test_an_interrupted_feed_releases_and_saves_nothing(
    command: str, dpsketch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "visits.csv", "page", *"ab" * 500)
    whole = addition.kernels.add_ones

    def interrupted_after(*given: Any) -> None:
        whole(*given)
        raise KeyboardInterrupt

    budget = [*BUDGET, "--dataset", "web"] if command == "run" else []
    arguments = [command, "counts", "visits.csv", "--key", "page", *budget, "-o", "out"]
    monkeypatch.setattr(addition.kernels, "add_ones", interrupted_after)
    assert dpsketch(*arguments).code == 130
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("ledger")) == ["visits.csv"]
    assert dps.Ledger.default().datasets() == []
    monkeypatch.setattr(addition.kernels, "add_ones", whole)
    assert dpsketch(*arguments).code == 0


def test_advice_works_when_it_is_taken(dpsketch: Any, tmp_path: Path) -> None:
    write(tmp_path / "visits.csv", "user_id,hour", *(f"u{i % 50},{i % 12}" for i in range(3000)))
    pure = ("--epsilon", 1, "--delta", 0, "--no-ledger")
    for exact in ((), ("--exact",)):
        asked = ("run", "distinct", "visits.csv", *exact, *pure, "--dry-run", "--json")
        alone = dpsketch(*asked, "--key", "user_id")
        (options,) = re.findall(r"add (--user user_id --max-keys 1):", alone.err)
        advised = dpsketch(*asked, "--key", "user_id", *shlex.split(options))
        assert advised.code == 0, advised.err
        assert "Note" not in advised.err
        assert advised.json["guarantee"]["unit"]["level"] == "user"
        assert advised.json["noise_scale"] == alone.json["noise_scale"], "the hint says that the noise is the same"
    sparse = ("run", "sparse", "visits.csv", "--key", "user_id", "--key-type", "text", *pure, "-o", "s.dps")
    refused = dpsketch(*sparse, "--domain", 100)
    assert refused.code != 0
    (domain,) = re.findall(r"--domain (\S+?)[,.]? ", refused.err)
    assert dpsketch(*sparse, "--domain", domain).code == 0
