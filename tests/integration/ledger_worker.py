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

URL, DATASET = sys.argv[1:3]
FOLDER, (PROCESSES, CHARGES), SECONDS = Path(sys.argv[3]), map(int, sys.argv[4:6]), float(sys.argv[6])


def spend() -> None:
    ledger = Ledger(URL)
    counts = [0, 0]
    for _ in range(CHARGES):
        try:
            charge = ledger.charge(DATASET, [PureCost(0.01)], unit=per_record())
        except BudgetExceeded:
            counts[1] += 1
            continue
        counts[0] += 1
        unfinished = FOLDER / f".{os.getpid()}"
        unfinished.write_text(json.dumps(charge.to_json()))
        unfinished.rename(FOLDER / f"{charge.id}.json")
    os.write(1, (json.dumps(counts) + "\n").encode())  # one short write to a pipe is never torn


def start() -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            spend()
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return child


children = {start() for _ in range(PROCESSES)}
chance, end = random.Random(7), time.monotonic() + SECONDS
while time.monotonic() < end:
    time.sleep(chance.uniform(0.0, 0.05))
    victim = chance.choice(sorted(children))
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    children = children - {victim} | {start()}
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
