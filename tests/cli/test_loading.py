"""What the commands that people wait for load: no libraries that they have no use for. Each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What no run of some thousand records has a use for.
LIBRARIES = (
    "pandas", "duckdb", "dp_accounting", "scipy.special", "matplotlib", "pydantic", "pyarrow.parquet", "psycopg",
)  # fmt: skip
# What a question has no use for: it reads a file, computes its guarantee and its answer, and prints a table.
UNASKED = ("numba", "llvmlite", *LIBRARIES, "pyarrow.csv")
CODE = """
import sys
from dpsketch.cli import main
for arguments in {commands}:
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, stop.code
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
LEDGER = ["--ledger", "sqlite:///budget.db"]
BUDGET = ["--epsilon", "1", "--delta", "1e-6", *LEDGER]
RUN = {
    "counts": ["run", "counts", "visits.csv", "--key", "page", "--width", "256", "-o", "counts.dps"],
    "histogram": ["run", "histogram", "visits.csv", "--key", "page", "-o", "histogram.dps"],
    "ranges": ["run", "ranges", "visits.csv", "--key", "age", "--bits", "8", "-o", "ranges.dps"],
}
ASK = {
    "counts": [["query", "counts.dps", "/page/1", "--estimator", "robust"], ["inspect", "counts.dps"]],
    "histogram": [["query", "histogram.dps", "/page/1"], ["top", "histogram.dps"]],
    "ranges": [["query", "ranges.dps", "3:9", "50%"], ["inspect", "ranges.dps"]],
}


def loaded(heavy: tuple[str, ...], commands: list[list[str]], folder: Path) -> str:
    """Return which of some modules some commands load."""
    run = subprocess.run(
        [sys.executable, "-c", CODE.format(heavy=heavy, commands=commands)],
        capture_output=True, text=True, check=True, cwd=folder,
    )  # fmt: skip
    return run.stderr.splitlines()[-1]


@pytest.mark.parametrize("kind", RUN)
def test_a_run_and_its_questions_load_little(kind: str, tmp_path: Path) -> None:
    """Also where rows have holes; and a ledger in a file needs neither a driver nor a library."""
    lines = [f"/page/{number * number % 97},v{number % 5_000},{number % 90}" for number in range(5_000)]
    lines += [",v1,30", "/page/1,,30", "/page/1,v1,"]
    (tmp_path / "visits.csv").write_text("page,visitor,age\n" + "\n".join(lines) + "\n")
    grouped = ["duckdb"] if kind == "histogram" else []  # which groups records by exact value
    created = ["ledger", "create", "visits.csv", "--epsilon", "5", "--delta", "1e-5", *LEDGER]
    told = [["ledger", command, *LEDGER] for command in ("show", "verify")]
    assert loaded(LIBRARIES, [created, [*RUN[kind], *BUDGET], *told], tmp_path) == str(grouped)
    assert loaded(UNASKED, ASK[kind], tmp_path) == "[]"
