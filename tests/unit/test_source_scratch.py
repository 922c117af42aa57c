"""Where records are put down: gone with the block, and with the next start where a process was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

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
