"""Files shared out among tasks: every record in one part, whatever the size of the parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources import Columns, open_files, split_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = np.arange(10_000)
    pyarrow.parquet.write_table(pa.table({"key": rows}), tmp_path / "a.parquet", row_group_size=700)
    pyarrow.parquet.write_table(pa.table({"key": rows[:10] + 10_000}), tmp_path / "b.parquet")
    pa.csv.write_csv(pa.table({"key": rows[:500] + 10_010}), tmp_path / "c.csv")
    return tmp_path


@pytest.mark.parametrize("part_bytes", [1, 5_000, 20_000, 10**9])
def test_every_record_is_in_one_part(folder: Path, part_bytes: int) -> None:
    parts = split_files([str(folder / "*.*")], part_bytes=part_bytes)
    keys = [
        key
        for part in parts
        for batch in open_files(part, Columns(key="key", key_type="int"), batch_rows=300)
        for key in batch.key.to_pylist()
    ]
    assert sorted(keys) == list(range(10_510))
    assert len(parts) == {1: 17, 10**9: 1}.get(part_bytes, len(parts))
    assert all(file.path.is_absolute() for part in parts for file in part)


def test_parts_are_of_about_the_size_asked_for(folder: Path) -> None:
    parts = split_files([str(folder / "a.parquet")], part_bytes=20_000)
    sizes = [sum(file.size for file in part) for part in parts]
    assert len(sizes) > 2
    assert all(size <= 20_000 for size in sizes)
    assert abs(sum(sizes) - (folder / "a.parquet").stat().st_size) < 100


def test_what_one_process_alone_can_read_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be shared out"):
        split_files(["-"], part_bytes=1)
    (folder / "d.parquet").write_bytes((folder / "a.parquet").read_bytes()[:-100])
    with pytest.raises(SourceError, match="damaged"):
        split_files([str(folder / "d.parquet")], part_bytes=1)
