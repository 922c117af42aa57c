"""One device, several processes, and ends that nobody chose: the budget in the file holds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dpsketch import files, local
from dpsketch.errors import BudgetExceeded, DpsketchError, FileRefused
from dpsketch.local import client as module

PROTOCOL = local.SubsetHashing(epsilon=1.0, max_items=4, width=4000)

# Four processes open one file, and then each reports a set of its own at once; the reports are printed.
TOGETHER = """
import os, sys
from dpsketch import local
from dpsketch.errors import BudgetExceeded

def work(number):
    os.close(go[1])
    client = local.Client(protocol, 1.0, sys.argv[1])
    os.write(ready[1], b".")
    os.read(go[0], 1)  # ends when the parent closes the other end
    try:
        os.write(1, client.report([f"set of {number}"]).hex().encode() + b"\\n")
    except BudgetExceeded:
        pass

protocol = local.SubsetHashing(epsilon=1.0, max_items=4, width=4000)
local.Client(protocol, 1.0).report(["warm"])  # what is slow the first time is inherited
ready, go = os.pipe(), os.pipe()
for number in range(4):
    if os.fork() == 0:
        code = 1
        try:
            work(number)
            code = 0
        finally:
            os._exit(code)
os.close(ready[1])
for _ in range(4):
    os.read(ready[0], 1)
os.close(go[1])
assert [os.wait()[1] for _ in range(4)] == [0] * 4
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes of one device: no fork here")
def test_four_processes_spend_one_budget(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TOGETHER, str(tmp_path / "device")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    client = local.Client(PROTOCOL, 1.0, tmp_path / "device")
    assert (client.spent, client.remaining) == (1.0, 0.0)
    with pytest.raises(BudgetExceeded):
        client.report(["another"])


def test_a_link_leads_to_the_same_lock_and_budget(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "device")
    first, second = (local.Client(PROTOCOL, 1.0, tmp_path / name) for name in ("device", "link"))
    first.report(["a"])
    with pytest.raises(BudgetExceeded):
        second.report(["b"])
    assert [each.name for each in tmp_path.glob("*.lock")] == ["device.lock"]


def test_threads_spend_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ask for one period, and each is slow enough to be overtaken."""
    client, fast = local.Client(PROTOCOL, 3.0), module.random_bytes
    monkeypatch.setattr(module, "random_bytes", lambda count: (time.sleep(0.05), fast(count))[1])
    with ThreadPoolExecutor(4) as pool:
        sent = set(pool.map(lambda name: client.report([name], period="monday"), "abcd"))
    assert (len(sent), client.spent) == (1, 1.0)


def test_a_copy_put_back_or_a_file_deleted_is_noticed_while_the_client_lives(tmp_path: Path) -> None:
    path = tmp_path / "device"
    client = local.Client(PROTOCOL, 3.0, path)
    client.report(["a"])
    old = path.read_bytes()
    client.report(["b"])
    new = path.read_bytes()
    path.write_bytes(old)
    with pytest.raises(FileRefused, match="older"):
        client.report(["c"])
    path.unlink()
    with pytest.raises(FileRefused, match="gone"):
        client.report(["c"])
    other = tmp_path / "other"
    for name in ("x", "y", "z"):
        local.Client(PROTOCOL, 3.0, other).report([name])
    path.write_bytes(other.read_bytes())  # another person's file, with more charges
    with pytest.raises(FileRefused):
        client.report(["c"])
    path.write_bytes(new)
    client.report(["c"])
    assert client.spent == 3.0


def cut(keep: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[:keep])


def forged(**change: Any) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        document = files.read(path, allow_sensitive=True)
        files.write(path, files.Document(document.kind, True, {**document.header, **change}, document.arrays))

    return write


@pytest.mark.parametrize(
    "damage",
    [cut(0), cut(100), cut(-1), forged(made=-1), forged(made=None), forged(budget=9.0), forged(spec={}),
     forged(unchanged="forget"), forged(spec=local.PrivSketchAsPublished(1.0).to_json())],
)  # fmt: skip
def test_a_damaged_or_forged_file_is_refused_and_nothing_is_drawn(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = tmp_path / "device"
    client = local.Client(PROTOCOL, 2.0, path)
    client.report(["a"])
    damage(path)
    for use in (lambda: local.Client(PROTOCOL, 2.0, path), lambda: client.report(["b"])):
        with pytest.raises(DpsketchError):
            use()
