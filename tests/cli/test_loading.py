"""What the commands that people wait for load: neither the compiler nor libraries that they have no use for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("numba", "llvmlite", "pandas", "dp_accounting", "scipy.optimize", "scipy.stats", "matplotlib")
CODE = """
import sys
from dpsketch.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger", "--overwrite"]
RUN = {
    "counts": ["run", "counts", "visits.csv", "--key", "page", "-o", "counts.dps"],
    "counts of users": [
        "run", "counts", "visits.csv", "--key", "page", "--user", "visitor", "--max-keys", "5", "-o", "counts.dps"
    ],
    "histogram": ["run", "histogram", "visits.csv", "--key", "page", "-o", "histogram.dps"],
}  # fmt: skip
ASK = {
    "counts": [["query", "counts.dps", "/page/1"], ["inspect", "counts.dps"]],
    "histogram": [["query", "histogram.dps", "/page/1"], ["top", "histogram.dps"]],
}


@pytest.mark.parametrize("kind", RUN)
def test_a_run_and_its_questions_load_little(kind: str, tmp_path: Path) -> None:
    lines = (f"/page/{number * number % 97},v{number % 5_000}" for number in range(20_000))
    (tmp_path / "visits.csv").write_text("page,visitor\n" + "\n".join(lines) + "\n")
    for command in [[*RUN[kind], *BUDGET], *ASK.get(kind, [])]:
        run = subprocess.run(
            [sys.executable, "-c", CODE.format(heavy=HEAVY), *command],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
        assert run.stderr.splitlines()[-1] == "[]", command
