"""Processes that share one device's file: run by ``test_local_device``, as ``device_worker.py MODE FILE``."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dpsketch import local
from dpsketch.errors import BudgetExceeded

PROTOCOL = local.SubsetHashing(epsilon=1.0, max_items=4, width=4000)
FILE = Path(sys.argv[-1])  # of the process that runs this as a script


def handed_out(message: bytes) -> None:
    """Note a report that left the device, in one write."""
    with (FILE.parent / "handed-out").open("ab", buffering=0) as file:
        file.write(message)


def start(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def together(processes: int, budget: float) -> None:
    """Each opens the file first, and then all report a set of their own at once."""
    ready, go = os.pipe(), os.pipe()

    def work(number: int) -> None:
        os.close(go[1])
        client = local.Client(PROTOCOL, budget, FILE)
        os.write(ready[1], b".")
        os.read(go[0], 1)  # ends when the parent closes the other end
        try:
            handed_out(client.report([f"set of {number}"]))
        except BudgetExceeded:
            return

    children = [start(lambda number=number: work(number)) for number in range(processes)]  # type: ignore[misc]
    for _ in children:
        os.read(ready[0], 1)
    os.close(go[1])
    for child in children:
        _, status = os.waitpid(child, 0)
        assert status == 0


def killed_anywhere(times: int, budget: float) -> None:
    """Report new sets until killed, at any time, again and again, two processes side by side."""
    chance = random.Random(5)
    noted = FILE.parent / "handed-out"
    noted.touch()

    def work(turn: int) -> None:
        client = local.Client(PROTOCOL, budget, FILE)
        for number in range(10_000):
            handed_out(client.report([f"{turn} {number}"]))

    for turn in range(times):
        children = [start(lambda turn=turn, side=side: work(2 * turn + side)) for side in (0, 1)]  # type: ignore[misc]
        before = noted.stat().st_size
        while noted.stat().st_size == before:
            time.sleep(0.001)
        for child in children:
            time.sleep(chance.uniform(0.0, 0.02))
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


if __name__ == "__main__":
    local.Client(PROTOCOL, 1.0).report(["warm"])  # what is slow the first time is inherited
    match sys.argv[1]:
        case "together":
            together(4, 1.0)
        case "killed-anywhere":
            killed_anywhere(5, 1e6)
