"""Where records are put down: gone with the block, and with the next start where a process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpsketch.errors import SourceError
from dpsketch.sources.engine import private_folder

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


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="temp_directory="), private_folder(str(tmp_path / "none")):
        pass


def test_a_folder_without_a_lock_is_removed_unless_it_may_be_one_that_is_being_made(tmp_path: Path) -> None:
    young, old = tmp_path / "dpsketch-records-young", tmp_path / "dpsketch-records-old"
    for folder in (young, old):
        folder.mkdir()
        (folder / "sorted").write_text("records")
    os.utime(old, (time.time() - 3600,) * 2)
    with private_folder(str(tmp_path)):
        assert young.exists()
        assert not old.exists()


def test_the_lock_of_a_folder_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with private_folder(str(tmp_path)) as name:
        (Path(name) / "sorted").write_text("records")
        left: list[list[str]] = []
        monkeypatch.setattr(
            "shutil.rmtree", lambda folder, **_: left.append(sorted(each.name for each in Path(folder).iterdir()))
        )
    assert left == [[".lock"]]
