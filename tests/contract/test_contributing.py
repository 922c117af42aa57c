"""CONTRIBUTING.md is followed word for word, in a copy of the project: its files, its row, its commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import guide
from doc_pages import assert_alike, blocks, commands
from tests.mutants.catalogue import parsed


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A clone without its history, in an otherwise empty folder."""
    leave = shutil.ignore_patterns("__pycache__", "output")
    for name in ("src", "tests"):
        shutil.copytree(guide.ROOT / name, tmp_path / name, ignore=leave)
    shutil.copy(guide.ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.full
def test_a_newcomer_who_follows_the_page_has_a_kind(copy: Path) -> None:
    guide.follow(copy)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(copy / "src")}
    typed = 0
    for block in blocks(guide.ROOT / "CONTRIBUTING.md"):
        for command, expected in commands(block.text) if block.language == "console" else []:
            if not command.startswith(("git ", "make ", "cd ")):  # a clone and its tests: what this test is itself
                done = subprocess.run(
                    ["bash", "-c", command], cwd=copy, env=environment, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, (command, done.stdout, done.stderr)
                assert_alike(expected, done.stdout + done.stderr, command)
                typed += 1
    assert typed == 7
    assert not (set(guide.SAVED) - {str(path.relative_to(copy)) for path in copy.rglob("*.py")})


def test_the_mutant_of_the_page_applies_to_the_code_of_the_page() -> None:
    (block,) = [one for one in blocks(guide.ROOT / "CONTRIBUTING.md") if one.language == "diff"]
    (mutant,) = parsed(f"# Subject\n\n{block.text}")
    assert guide.SAVED["src/dpsketch/sketches/multiples.py"].count(mutant.old) == 1
