"""Files are read once, and what was checked is what is used."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from dpsketch import files
from dpsketch.errors import FileRefused

LARGE = files.Document("counts", False, {"seed": 7}, {"table": np.arange(1_500_000) * 3001})


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.dps"
    files.write(path, LARGE)
    return path


@pytest.fixture
def copy(large: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(large, tmp_path / "copy.dps"))


def table(path: Path) -> list[int]:
    held = files.read(path, allow_sensitive=False).arrays["table"]
    assert isinstance(held, np.ndarray)
    return [int(held.sum()), len(held)]


@pytest.mark.parametrize("place", [0.03, 0.6, 1])
def test_a_changed_byte_is_found_wherever_it_is(copy: Path, place: float) -> None:
    data = bytearray(copy.read_bytes())
    data[int(place * (len(data) - 1))] ^= 1
    copy.write_bytes(data)
    with pytest.raises(FileRefused, match="damaged"):
        table(copy)


@pytest.mark.parametrize("more", [-5_000_000, 1])
def test_a_file_of_another_length_is_refused(copy: Path, more: int) -> None:
    os.truncate(copy, copy.stat().st_size + more)
    with pytest.raises(FileRefused, match="damaged"):
        table(copy)


def test_a_pipe_is_read_to_its_end(large: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(large.read_bytes()))
    writer.start()
    assert table(pipe) == table(large) == [int(np.sum(LARGE.arrays["table"])), 1_500_000]
    writer.join()


def test_what_becomes_of_a_file_after_it_was_checked_changes_nothing(copy: Path) -> None:
    expected = table(copy)
    document = files.read(copy, allow_sensitive=False)
    with copy.open("r+b") as file:
        file.seek(1 << 16)
        file.write(bytes(1 << 22))
    held = document.arrays["table"]
    assert isinstance(held, np.ndarray)
    assert [int(held.sum()), len(held)] == expected
