"""What the commands that people wait for load: neither the compiler nor libraries that they have no use for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# What no run of some thousand records has a use for: the compiler, and libraries for more.
LIBRARIES = (
    "pandas", "duckdb", "dp_accounting", "scipy", "matplotlib", "pydantic", "pyarrow.parquet", "sqlalchemy", "psycopg",
)  # fmt: skip
NEVER = ("numba", "llvmlite", *LIBRARIES)
# What a question has no use for: it reads a file, computes its guarantee and its answer, and prints a table.
UNASKED = (*NEVER, "pyarrow.compute", "pyarrow.csv")
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
        ["query", "counts.dps", "/page/1", "/page/2", "--decode"],
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
    assert loaded(NEVER, [*RUN[kind], *BUDGET], tmp_path) == "[]"
    for question in ASK.get(kind, []):
        assert loaded(UNASKED, question, tmp_path) == "[]", question


def test_a_ledger_in_a_file_needs_neither_driver_nor_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSKETCH_LEDGER", f"sqlite:///{tmp_path}/budget.db")
    (tmp_path / "visits.csv").write_text("page,visitor,age\n" + "/page/1,v1,30\n" * 1_000)
    budget = ["--epsilon", "1", "--delta", "1e-6"]
    commands = [
        ["ledger", "create", "web", "--epsilon", "5", "--delta", "1e-5"],
        [*RUN["counts"], "--dataset", "web", *budget],
        [*RUN["histogram"], "--dataset", "web", *budget],
        ["ledger", "show"],
        ["ledger", "history", "web"],
        ["ledger", "verify"],
    ]
    for command in commands:
        assert loaded(("sqlalchemy", "psycopg", "numba", "duckdb"), command, tmp_path) == "[]", command


@pytest.mark.full
def test_what_is_compiled_beforehand_is_what_is_used(tmp_path: Path) -> None:
    """After ``demo --compile`` neither a tree nor joint decoding compiles anything, however much there is to do."""
    (tmp_path / "visits.csv").write_text("page\n" + "/page/1\n/page/2\n" * 5_000)
    code = tmp_path / "machine-code"
    commands = [
        ["demo", "--compile"],
        ["run", "heavy", "visits.csv", "--key", "page", "--key-bytes", "12", "-o", "tree.dps", *BUDGET],
        ["top", "tree.dps"],
        [*RUN["counts"], *BUDGET],
        ["query", "counts.dps", "/page/1", "--decode"],
    ]
    held = []
    for command in commands:
        run = subprocess.run(
            [sys.executable, "-c", "import numba\nfrom dpsketch.cli import main\nmain()", *command],
            capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ | {"NUMBA_CACHE_DIR": str(code)},
        )  # fmt: skip
        held.append(sorted(path.name for path in code.rglob("*.nbc")))
        if command[0] == "demo":
            assert run.stderr.count("Compiling, ") == 7
    assert held[0]
    assert held == [held[0]] * len(commands)
