"""Processes that spend one budget at once. Run as a script by the tests of the ledger's concurrency.

    ledger_worker.py URL DATASET FOLDER PROCESSES CHARGES SECONDS

Forks PROCESSES children. Each makes CHARGES charges, and after each writes a file into FOLDER that stands for the
release: it carries the charge. Where SECONDS is above 0, the parent kills children at random moments for so long,
starts a new one for each, and then lets the rest finish. Children that live print how many were accepted and refused.
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


def spend(url: str, dataset: str, folder: Path, charges: int) -> tuple[int, int]:
    ledger = Ledger(url)
    accepted = refused = 0
    for _ in range(charges):
        try:
            charge = ledger.charge(dataset, [PureCost(0.01)], unit=per_record())
        except BudgetExceeded:
            refused += 1
            continue
        accepted += 1
        unfinished = folder / f".{os.getpid()}"
        unfinished.write_text(json.dumps(charge.to_json()))
        unfinished.rename(folder / f"{charge.id}.json")
    return accepted, refused


def start(url: str, dataset: str, folder: Path, charges: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            counts = spend(url, dataset, folder, charges)
            # One short write to a pipe is never torn.
            os.write(1, (json.dumps(counts) + "\n").encode())
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    return child


def main(url: str, dataset: str, folder: str, processes: int, charges: int, seconds: float) -> int:
    work = (url, dataset, Path(folder), charges)
    children = {start(*work) for _ in range(processes)}
    chance = random.Random(7)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.0, 0.05))
        victim = chance.choice(sorted(children))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        children.remove(victim)
        children.add(start(*work))
    failed = 0
    for child in children:
        failed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])))
