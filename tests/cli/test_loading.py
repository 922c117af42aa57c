"""What the commands that people wait for load: no libraries that they have no use for."""

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
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--no-ledger", "--overwrite"]
RUN = {
    "counts": ["run", "counts", "visits.csv", "--key", "page", "-o", "counts.dps"],
    "counts in few cells": ["run", "counts", "visits.csv", "--key", "page", "--width", "256", "-o", "few.dps"],
    "histogram": ["run", "histogram", "visits.csv", "--key", "page", "-o", "histogram.dps"],
    "distinct": ["run", "distinct", "visits.csv", "--key", "page", "-o", "distinct.dps"],
    "heavy": ["run", "heavy", "visits.csv", "--key", "page", "--key-bytes", "12", "-o", "heavy.dps"],
    "ranges": ["run", "ranges", "visits.csv", "--key", "age", "--bits", "8", "-o", "ranges.dps"],
}  # fmt: skip
ASK = {
    "counts": [
        ["query", "counts.dps", "/page/1"],
        ["inspect", "counts.dps"],
    ],
    "counts in few cells": [["query", "few.dps", "/page/1", "--estimator", which] for which in ("robust", "median")],
    "histogram": [["query", "histogram.dps", "/page/1"], ["top", "histogram.dps"]],
    "distinct": [["query", "distinct.dps"], ["inspect", "distinct.dps"]],
    "ranges": [["query", "ranges.dps", "3:9", "50%"], ["inspect", "ranges.dps"]],
}


def loaded(heavy: tuple[str, ...], command: list[str], folder: Path) -> str:
    """Return which of some modules a command loads."""
    run = subprocess.run(
        [sys.executable, "-c", CODE.format(heavy=heavy), *command],
        capture_output=True, text=True, check=True, cwd=folder,
    )  # fmt: skip
    return run.stderr.splitlines()[-1]


@pytest.mark.parametrize("kind", RUN)
def test_a_run_and_its_questions_load_little(kind: str, tmp_path: Path) -> None:
    """Also where rows have holes."""
    lines = [f"/page/{number * number % 97},v{number % 5_000},{number % 90}" for number in range(20_000)]
    lines += [",v1,30", "/page/1,,30", "/page/1,v1,"]
    (tmp_path / "visits.csv").write_text("page,visitor,age\n" + "\n".join(lines) + "\n")
    grouped = ["duckdb"] if kind == "histogram" else []  # which groups records by exact value
    assert loaded(LIBRARIES, [*RUN[kind], *BUDGET], tmp_path) == str(grouped)
    for question in ASK.get(kind, []):
        assert loaded(UNASKED, question, tmp_path) == "[]", question


def test_a_ledger_in_a_file_needs_neither_driver_nor_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSKETCH_LEDGER", f"sqlite:///{tmp_path}/budget.db")
    (tmp_path / "visits.csv").write_text("page,visitor,age\n" + "/page/1,v1,30\n" * 1_000)
    budget = ["--epsilon", "1", "--delta", "1e-6"]
    commands = [
        ["ledger", "create", "web", "--epsilon", "5", "--delta", "1e-5"],
        [*RUN["counts"], "--dataset", "web", *budget],
        ["ledger", "show"],
        ["ledger", "history", "web"],
        ["ledger", "verify"],
    ]
    for command in commands:
        assert loaded(("psycopg", "duckdb"), command, tmp_path) == "[]", command
