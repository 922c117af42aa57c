"""Sorting by user: exact, in little memory, and without a trace."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from dpsketch.sources import Batch, Columns, open_source
from reading import records, write


def by_bytes(value: Any) -> Any:
    return (1, b"", 0) if value is None else (0, value.encode(), 0) if isinstance(value, str) else (0, b"", value)


@pytest.mark.parametrize("kind", ["int", "text"])
def test_sorting_orders_by_exact_user_then_key(kind: Any, tmp_path: Path) -> None:
    words = ["", "a", "A", "é", "z", "aa", "a\x00", "😀", "\uffff", None]
    rows = [(words[(i * 7) % 10], (i * 5) % 11 - 5, float(i)) for i in range(500)]
    texts, numbers, weights = zip(*rows, strict=True)
    table = pa.table({"k": texts, "u": numbers, "w": weights})
    path = write(table, tmp_path / "t.parquet")
    columns = Columns(key="k", user="u", weight="w", points=("w",), user_type=kind)
    read = records(path, columns=columns, sort_by_user=True, batch_rows=100, temp_directory=tmp_path)
    expected = [(k, u if kind == "int" else str(u), w, w) for k, u, w in rows]
    assert [(by_bytes(u), by_bytes(k)) for k, u, *_ in read] == sorted(
        (by_bytes(u), by_bytes(k)) for k, u, *_ in expected
    )
    assert sorted(read, key=lambda row: row[2]) == expected
    assert {path.name for path in tmp_path.iterdir()} == {"t.parquet"}


def test_spilled_records_are_private_and_removed(tmp_path: Path) -> None:
    """60 MB of memory cannot sort this source."""
    users = pa.array([(i * 2654435761) % 1_000_003 for i in range(1_500_000)], pa.int64())
    path = write(pa.table({"k": users.cast(pa.string()), "u": users}), tmp_path / "t.parquet")
    spill = tmp_path / "spill"
    spill.mkdir()
    options: dict[str, Any] = {"sort_by_user": True, "memory_limit": "60MB", "temp_directory": spill}
    rows, before, spilled = 0, -1, 0
    for batch in open_source([str(path)], Columns(key="k", user="u"), **options):
        (folder,) = spill.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        spilled = max(spilled, sum(file.stat().st_size for file in folder.iterdir()))
        sorted_users = batch.user.to_pylist() if batch.user is not None else []
        assert before <= sorted_users[0]
        assert sorted_users == sorted(sorted_users)
        rows, before = rows + batch.rows, sorted_users[-1]
    assert rows == 1_500_000
    assert spilled > 0
    assert list(spill.iterdir()) == []


def test_sorting_skips_keys_that_are_missing_before_their_type_is_known(tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    write(pa.table({"k": pa.nulls(3), "u": [1, 2, 3]}), path)
    more = write(pa.table({"k": [7, None], "u": [2, 1]}), tmp_path / "u.arrow")
    batches: list[Batch] = list(open_source([str(path), str(more)], Columns(key="k", user="u"), sort_by_user=True))
    assert [(batch.rows, batch.skipped) for batch in batches] == [(2, 3)]
    (only,) = open_source([str(path)], Columns(key="k", user="u"), sort_by_user=True)
    assert (only.rows, only.skipped) == (0, 3)
