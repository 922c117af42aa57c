"""Kernels are right where numba compiles nothing: the comparisons with oracles of every file of kernels, once more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Each file with the words that its comparisons have in their names.
COMPARED = {
    "test_bounding.py": "equals_oracle",
    "test_density_kernels.py": "equals_oracle",
    "test_heavy_tree.py": "equals_oracle",
    "test_kernels.py": "equals_oracle",
    "test_local_kernels.py": "oracle or Identifiers",
    "test_sparse_kernels.py": "oracle",
}


def test_kernels_are_right_without_the_compiler() -> None:
    """In a process where every warning is an error; one for all files, because starting it takes longer than most."""
    files = [str(Path(__file__).parent / name) for name in COMPARED]
    chosen = " or ".join(f"({name} and ({words}))" for name, words in COMPARED.items())
    tests = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *files, "-k", chosen]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(tests, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = [line for line in done.stdout.splitlines() if " PASSED " in line]
    assert all(any(name in line for line in passed) for name in COMPARED)
