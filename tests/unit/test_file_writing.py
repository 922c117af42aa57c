"""How a file comes onto the disk, whole or not at all, for the right eyes; what was checked is what is used."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.files import Document


def document(**arrays: Any) -> Document:
    return Document("counts", False, {"seed": 7}, arrays)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o027])
def test_the_mode_follows_the_content(tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sensitive file is private before its first byte."""
    seen = []
    real = os.open

    def watched(path: str, flags: int, permissions: int = 0o777) -> int:
        descriptor = real(path, flags, permissions)
        state = os.fstat(descriptor)
        if stat.S_ISREG(state.st_mode):
            seen.append((stat.S_IMODE(state.st_mode), state.st_size))
        return descriptor

    (tmp_path / "wide.sketch").write_bytes(b"")
    (tmp_path / "wide.sketch").chmod(0o666)
    before = os.umask(umask)
    try:
        files.write(tmp_path / "public.dps", document())
        monkeypatch.setattr(os, "open", watched)
        for name in ("part.sketch", "wide.sketch"):
            files.write(tmp_path / name, Document("counts", True, {}, {}))
    finally:
        os.umask(before)
    assert seen == [(0o600, 0)] * 2
    assert mode(tmp_path / "public.dps") == 0o666 & ~umask
    assert mode(tmp_path / "part.sketch") == mode(tmp_path / "wide.sketch") == 0o600


def test_a_link_stays_a_link_and_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link.dps").symlink_to(tmp_path / "out.dps")
    files.write(tmp_path / "link.dps", document())
    assert (tmp_path / "link.dps").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="not a regular file"):
        files.write(tmp_path / "pipe", document())


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, failure: BaseException
) -> None:
    path = tmp_path / "out.dps"
    files.write(path, document(a=np.arange(3)))
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(os, step, fail)
    if step == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(type(failure)):
        files.write(path, document(a=np.arange(4)))
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.dps"]


LARGE = files.Document("counts", False, {"seed": 7}, {"table": np.arange(1_500_000) * 3001})


@pytest.fixture
def large(tmp_path: Path) -> Path:
    files.write(tmp_path / "large.dps", LARGE)
    return tmp_path / "large.dps"


def total_of(path: Path) -> list[int]:
    held = files.read(path, allow_sensitive=False).arrays["table"]
    assert isinstance(held, np.ndarray)
    return [int(held.sum()), len(held)]


@pytest.mark.parametrize("place", [0.03, 0.6, 1])
def test_a_changed_byte_is_found_wherever_it_is(large: Path, place: float) -> None:
    data = bytearray(large.read_bytes())
    data[int(place * (len(data) - 1))] ^= 1
    large.write_bytes(data)
    with pytest.raises(FileRefused, match="damaged"):
        total_of(large)


def test_what_becomes_of_a_file_after_it_was_checked_changes_nothing(large: Path) -> None:
    expected = total_of(large)
    document = files.read(large, allow_sensitive=False)
    with large.open("r+b") as file:
        file.seek(1 << 16)
        file.write(bytes(1 << 22))
    held = document.arrays["table"]
    assert isinstance(held, np.ndarray)
    assert [int(held.sum()), len(held)] == expected
