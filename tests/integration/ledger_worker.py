"""Processes that spend one budget at once: ledger_worker.py URL DATASET FOLDER PROCESSES CHARGES SECONDS.

Each of PROCESSES children makes CHARGES charges, and after each writes a file into FOLDER that stands for the release:
it carries the charge. For SECONDS, children are killed at random moments, and new ones started. Those that live print
how many charges were accepted and refused.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import mpmath  # noqa: F401  (loaded once, before the processes part)
import psycopg  # noqa: F401

from dpsketch.errors import BudgetExceeded
from dpsketch.ledger import Ledger
from dpsketch.privacy import PureCost, per_record


def spend(url: str, dataset: str, folder: Path, charges: int) -> None:
    ledger = Ledger(url)
    counts = [0, 0]
    for _ in range(charges):
        try:
            charge = ledger.charge(dataset, [PureCost(0.01)], unit=per_record())
        except BudgetExceeded:
            counts[1] += 1
            continue
        counts[0] += 1
        unfinished = folder / f".{os.getpid()}"
        unfinished.write_text(json.dumps(charge.to_json()))
        unfinished.rename(folder / f"{charge.id}.json")
    os.write(1, (json.dumps(counts) + "\n").encode())  # one short write to a pipe is never torn


def start(arguments: tuple[str, str, Path, int]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            spend(*arguments)
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return child


def main() -> int:
    url, dataset, folder, processes, charges, seconds = sys.argv[1:]
    arguments = (url, dataset, Path(folder), int(charges))
    children = {start(arguments) for _ in range(int(processes))}
    chance, end = random.Random(7), time.monotonic() + float(seconds)
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.0, 0.05))
        victim = chance.choice(sorted(children))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        children = children - {victim} | {start(arguments)}
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main())
