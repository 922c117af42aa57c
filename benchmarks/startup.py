"""How long a user waits at the keyboard: the import, the help, a question to a release, a run of 200,000 rows.

By the clock. *Warm* is with what was loaded before still in the machine's memory, the best of several. *First use* is
right after an installation, which writes Python's bytecode: no machine code was compiled yet. Rows are a page and a
visitor each, from a CSV file, charged to a ledger of their own. All cores may be used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

REPEATS = 5
ROWS = 200_000
# The seconds that are allowed: a warm import, help or question, a warm run, and the first use of either.
QUESTION, RUN, FIRST = 0.5, 1.0, 2.0
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
IMPORTS = {
    "import dpsketch": ["-c", "import dpsketch"],
    "import and load CountSketch": ["-c", "import dpsketch; dpsketch.CountSketch"],
}
COMMANDS = {
    "dpsketch --help": ["--help"],
    "dpsketch run counts, 200,000 rows": ["run", "counts", "visits.csv", "--key", "page", "-o", "counts.dps", *BUDGET],
    "dpsketch run counts, 200,000 rows of users": [
        "run", "counts", "visits.csv", "--key", "page", "--user", "visitor", "--max-keys", "5", "-o", "users.dps",
        *BUDGET,
    ],
    "dpsketch run histogram, 200,000 rows": [
        "run", "histogram", "visits.csv", "--key", "page", "-o", "histogram.dps", *BUDGET
    ],
    "dpsketch query, counts": ["query", "counts.dps", "/page/1", "/page/2"],
    "dpsketch inspect, counts": ["inspect", "counts.dps"],
    "dpsketch query, histogram": ["query", "histogram.dps", "/page/1", "/page/2"],
    "dpsketch top, histogram": ["top", "histogram.dps"],
    "dpsketch run heavy, 200,000 rows": [
        "run", "heavy", "visits.csv", "--key", "page", "--key-bytes", "12", "-o", "heavy.dps", *BUDGET
    ],
    "dpsketch query, heavy": ["query", "heavy.dps", "/page/1", "/page/2"],
    "dpsketch run distinct, 200,000 rows": [
        "run", "distinct", "visits.csv", "--key", "page", "-o", "distinct.dps", *BUDGET
    ],
    "dpsketch query, distinct": ["query", "distinct.dps"],
    "dpsketch query --decode, counts": ["query", "counts.dps", "/page/1", "/page/2", "--decode"],
}  # fmt: skip


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_visits(folder / "visits.csv")
        clock = Clock(folder)
        starts = IMPORTS | {what: ["-m", "dpsketch", *arguments] for what, arguments in COMMANDS.items()}
        for arguments in starts.values():
            clock.seconds(arguments)  # writes bytecode and machine code, and the releases that are asked
        rows = [
            row(what, min(clock.seconds(arguments) for _ in range(REPEATS)), RUN if "run" in arguments else QUESTION)
            for what, arguments in starts.items()
        ]
        for what, arguments in starts.items():
            if what in IMPORTS:
                continue
            clock.forget_machine_code()
            rows.append(row(f"{what}, first use", clock.seconds(arguments), FIRST))
        return rows


def write_visits(path: Path) -> None:
    """Write the rows: pages by Zipf(1.3), five rows a visitor on average."""
    rng = np.random.default_rng(1)
    pages, visitors = rng.zipf(1.3, ROWS) % 50_000, rng.integers(0, ROWS // 5, ROWS)
    lines = (f"/page/{page},v{visitor}" for page, visitor in zip(pages, visitors, strict=True))
    path.write_text("page,visitor\n" + "\n".join(lines) + "\n")


class Clock:
    """Runs Python in a folder that keeps bytecode, machine code and ledgers to itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._code = folder / "machine-code"
        ours = {"NUMBA_CACHE_DIR": str(self._code), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        # A user has bytecode, and all cores.
        left_out = ("PYTHONDONTWRITEBYTECODE", "DPSKETCH_THREADS")
        self._environment = {name: value for name, value in os.environ.items() if name not in left_out} | ours

    def forget_machine_code(self) -> None:
        """Leave no machine code, as an installation does."""
        shutil.rmtree(self._code, ignore_errors=True)

    def seconds(self, arguments: list[str]) -> float:
        """Return how long a process took; a run charges a ledger of its own."""
        output = arguments[arguments.index("-o") + 1] if "-o" in arguments else "none"
        (self._folder / output).unlink(missing_ok=True)
        ledger = {"XDG_DATA_HOME": str(self._folder / f"{output}-data"), "DPSKETCH_LEDGER": ""}
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments],
            check=True, capture_output=True, cwd=self._folder, env=self._environment | ledger,
        )  # fmt: skip
        return time.perf_counter() - start


def row(what: str, taken: float, allowed: float) -> dict[str, Any]:
    """Return a row against what is allowed."""
    name = f"{what} (against what is allowed)"
    return {"name": name, "ours": taken, "theirs": allowed, "ratio": allowed / taken, "unit": "s", "reach": 1.0}


if __name__ == "__main__":
    for each in run():
        print(f"{each['name']:75} {each['ours']:.2f} of {each['theirs']} s")
