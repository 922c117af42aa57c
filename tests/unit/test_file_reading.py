"""Files are read once, by a thread of their own where they are large, and what was checked is what is used."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsketch import _digest, files
from dpsketch.errors import FileRefused

LARGE = files.Document("counts", False, {"seed": 7}, {"table": np.arange(1_500_000) * 3001})


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.dps"
    files.write(path, LARGE)
    assert path.stat().st_size > 2 * _digest._APART
    return path


@pytest.fixture
def copy(large: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(large, tmp_path / "copy.dps"))


def table(path: Path) -> list[int]:
    held = files.read(path, allow_sensitive=False).arrays["table"]
    assert isinstance(held, np.ndarray)
    return [int(held.sum()), len(held)]


def test_a_large_file_is_read(large: Path) -> None:
    assert table(large) == [int(np.sum(LARGE.arrays["table"])), 1_500_000]


def test_a_large_file_is_read_where_no_thread_is_to_be_had(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert table(large)[1] == 1_500_000


@pytest.mark.parametrize("place", [0.03, 0.3, 0.6, 0.999_999])
def test_a_changed_byte_is_found_wherever_it_is(copy: Path, place: float) -> None:
    data = bytearray(copy.read_bytes())
    data[int(place * len(data))] ^= 1
    copy.write_bytes(data)
    with pytest.raises(FileRefused, match="damaged"):
        table(copy)


@pytest.mark.parametrize("more", [-1, -5_000_000, 1, 5_000_000])
def test_a_file_of_another_length_is_refused(copy: Path, more: int) -> None:
    os.truncate(copy, copy.stat().st_size + more)
    with pytest.raises(FileRefused, match="damaged"):
        table(copy)


def test_a_pipe_is_read_to_its_end(large: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(large.read_bytes()))
    writer.start()
    assert table(pipe) == table(large)
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


class Changing:
    """A file that someone writes to when its first piece has been read."""

    def __init__(self, file: Any, path: Path, place: int) -> None:
        self._file, self._path, self._place, self._written = file, path, place, False

    def readinto(self, piece: memoryview) -> int:
        size: int = self._file.readinto(piece)
        if not self._written:
            with self._path.open("r+b") as other:
                other.seek(self._place)
                other.write(bytes(100_000))
            self._written = True
        return size


@pytest.mark.parametrize(("place", "found"), [(1 << 17, False), (1 << 22, True)])
def test_a_file_that_changes_while_it_is_read(
    copy: Path, monkeypatch: pytest.MonkeyPatch, place: int, found: bool
) -> None:
    """Bytes that change before they are read are found; those that change afterwards are used as they were checked."""
    expected, inner = table(copy), _digest._read

    def read(file: Any, *others: Any) -> int:
        changing: Any = Changing(file, copy, place)
        return inner(changing, *others)

    monkeypatch.setattr(_digest, "_read", read)
    if found:
        with pytest.raises(FileRefused, match="damaged"):
            table(copy)
    else:
        assert table(copy) == expected


class Failing:
    """A file and a digest that fail."""

    def __init__(self, problem: BaseException) -> None:
        self._problem = problem

    def readinto(self, _: memoryview) -> int:
        raise self._problem

    def update(self, _: memoryview) -> None:
        raise self._problem


@pytest.mark.parametrize("place", [0, 3], ids=["reading", "digest"])
@pytest.mark.parametrize("problem", [OSError("the disk is gone"), KeyboardInterrupt()])
def test_a_failure_is_told_and_ends_the_thread(
    large: Path, monkeypatch: pytest.MonkeyPatch, problem: BaseException, place: int
) -> None:
    inner, threads = _digest._read, threading.active_count()

    def read(*given: Any) -> int:
        return inner(*given[:place], Failing(problem), *given[place + 1 :])

    monkeypatch.setattr(_digest, "_read", read)
    with pytest.raises(type(problem)):
        table(large)
    assert threading.active_count() == threads
