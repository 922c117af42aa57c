"""What the README's first page types works with the wheel, and with none of the extras."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from doc_pages import ROOT, blocks

SECTION = "## On the command line"
# What comes with extras, and what only tests need: none of it may be missed.
SERVICE = ["fastapi", "uvicorn", "uvloop", "httptools", "prometheus_client"]
EXTRAS = ["pandas", "polars", "pyspark", "sklearn", "opendp", "psycopg", "pytest", *SERVICE]

# A process that cannot load what an extra brings.
WITHOUT_EXTRAS = f"""
import importlib.machinery, sys

class Missing(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {EXTRAS!r} else super().find_spec(name, path, target)

sys.meta_path[:] = [Missing if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
from dpsketch.cli import main
main()
"""


def first_page() -> list[str]:
    """The commands of the README's page: those that are run, and those that are not for their length."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    line = text[: text.index(SECTION)].count("\n") + 1
    found = [block for block in blocks(ROOT / "README.md") if block.line > line and block.language == "console"]
    return [command for block in found[:2] for command in block.text.splitlines()]


def run_first_page(program: list[str], environment: dict[str, str], folder: Path) -> None:
    """Type the commands in a folder, but ``plan`` and ``audit``, which take long."""
    environment = {**environment, "XDG_DATA_HOME": str(folder / "data"), "DPSKETCH_LEDGER": ""}
    assert len(first_page()) >= 8
    for line in first_page():
        if not line.startswith("dpsketch "):  # what makes the files
            subprocess.run(["sh", "-c", line], cwd=folder, check=True)
            continue
        arguments = shlex.split(line, comments=True)[1:]
        if arguments[0] not in ("audit", "plan"):
            command = [*program, *arguments]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (arguments, done.stderr)
    assert (folder / "urls.png").stat().st_size > 1_000


def test_the_first_page_works_from_the_wheel_and_needs_no_extra(tmp_path: Path) -> None:
    """In processes that load this package from the wheel, and what it asks for from here."""
    site, folder, pip = tmp_path / "site", tmp_path / "work", [sys.executable, "-m", "pip"]
    folder.mkdir()
    command = [*pip, "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No matching distribution found for hatchling" in done.stderr:
        pytest.skip("the wheel cannot be built: hatchling, its build backend, cannot be fetched")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "-q", "--no-deps", "-t", site, wheel], check=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run_first_page([sys.executable, "-c", WITHOUT_EXTRAS], environment, folder)
    sources = {path.relative_to(ROOT / "src") for path in (ROOT / "src" / "dpsketch").rglob("*") if path.is_file()}
    assert {path for path in sources if "__pycache__" not in path.parts and not (site / path).is_file()} == set()


@pytest.mark.parametrize("arguments", [["--demo"], ["token", "list"]])
def test_the_service_names_its_extra(tmp_path: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, "serve", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "pip install 'dpsketch[serve]'" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
