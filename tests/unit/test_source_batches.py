"""What is skipped of records, and how they are sorted by user without a trace."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from dpsketch.sources import Columns, open_source
from dpsketch.sources.engine import private_folder
from reading import FILES, SECRET, records, refused, write


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


KILLED = """
import sys, time
from pathlib import Path
from dpsketch.sources.engine import private_folder
with private_folder(sys.argv[1]) as folder:
    (Path(folder) / "sorted").write_text("records")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_left_is_removed_at_the_next_start_and_not_before(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    other = tmp_path / "dpsketch-records-of-nobody"
    other.mkdir()
    link = tmp_path / "dpsketch-records-link"
    link.symlink_to(other)
    with private_folder(str(tmp_path)) as name:
        assert (left / "sorted").exists()  # its process lives
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert (left / "sorted").exists()
        with private_folder(str(tmp_path)):
            assert not left.exists()
            assert Path(name).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [link.name, other.name]
