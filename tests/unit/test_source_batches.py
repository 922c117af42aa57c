"""How records come: the size of batches, what is skipped, progress, and stopping early."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from dpsketch.sources import Columns, Progress, open_source
from reading import FILES, SECRET, refused, write


@pytest.mark.parametrize("suffix", FILES)
def test_records_without_a_user_or_a_number_are_skipped_and_counted(suffix: str, tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": ["a", "b", None, "d"],
            "u": [1, None, 3, None],
            "x": [0.0, 2.0**53 + 1, 2.0, None],
            "t": ["1", "0.5", SECRET, ""],
        }
    )
    path = write(table, tmp_path / f"s.{suffix}")
    for options in ({}, {"sort_by_user": True}):
        (batch,) = open_source([str(path)], Columns(key="k", user="u", user_type="int"), **options)
        assert (batch.key.to_pylist(), batch.user.to_pylist(), batch.skipped) == (["a", None], [1, 3], 2)
    for columns in (Columns(points=("x",)), Columns(key="k", weight="x")):
        (batch,) = open_source([str(path)], columns)
        assert (batch.rows, batch.skipped) == (3, 1)
        assert (batch.weight or batch.points[0]).to_pylist() == [0.0, 2.0**53, 2.0]
    message = refused(path, columns=Columns(key="k", weight="t"))
    assert "number" in message
    assert "'t'" in message


def test_a_last_batch_reports_what_was_skipped_at_the_end(tmp_path: Path) -> None:
    path = write(pa.table({"k": ["a", "b"], "u": ["x", None]}), tmp_path / "s.parquet")
    first, last = open_source([str(path)], Columns(key="k", user="u"), batch_rows=1)
    assert (first.rows, first.skipped, last.rows, last.skipped) == (1, 0, 0, 1)
    assert last.key is not None
    assert last.key.type == pa.string()
    empty = write(pa.table({"k": ["a"], "u": pa.array([None], pa.string())}), tmp_path / "none.parquet")
    for options in ({}, {"sort_by_user": True}):
        (only,) = open_source([str(empty)], Columns(key="k", user="u"), **options)
        assert (only.rows, only.skipped) == (0, 1)


@pytest.mark.parametrize("asked", ["table=t", "query=SELECT k FROM t"])
def test_a_database_is_read_in_batches_of_the_size_asked(asked: str, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE t (k INTEGER)")
        base.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(1000)])
    batches = open_source([f"sqlite:///{path}?{asked}"], Columns(key="k", key_type="int"), batch_rows=256)
    assert [batch.rows for batch in batches] == [256, 256, 256, 232]


@pytest.mark.parametrize("suffix", FILES)
def test_progress_reaches_its_total_and_batches_are_no_larger_than_asked(suffix: str, tmp_path: Path) -> None:
    paths = [write(pa.table({"k": range(n)}), tmp_path / f"{n}.{suffix}") for n in (1000, 3000)]
    told: list[Progress] = []
    sources = [str(path) for path in paths]
    sizes = [batch.rows for batch in open_source(sources, Columns(key="k"), batch_rows=64, progress=told.append)]
    assert (sum(sizes), max(sizes)) == (4000, 64)
    total = sum(path.stat().st_size for path in paths)
    assert told[-1] == Progress(total, total, "bytes")
    done = [step.done for step in told]
    assert done == sorted(done)


def test_giving_up_does_not_wait_for_a_silent_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    rows = b"k\n" + b"a\n" * (2 << 20)  # two blocks; of the third nothing comes, nor an end

    def write_all() -> None:
        done = 0
        while done < len(rows):
            done += os.write(writing, rows[done:])

    writer = threading.Thread(target=write_all)
    writer.start()
    with os.fdopen(reading, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        batches = open_source(["-"], Columns(key="k"))
        taken = 0
        while taken < (1 << 20) - 1:  # the rows of the first block, so that the second is read from the pipe
            taken += next(batches).rows
        writer.join()
        closer = threading.Thread(target=batches.close)
        closer.start()
        closer.join(60)
        assert not closer.is_alive()
        os.close(writing)
        for thread in threading.enumerate():
            if thread.name == "dpsketch-reader":
                thread.join()
