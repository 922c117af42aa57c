"""A plain install: what the README's first page types works with it, from the wheel as well."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from doc_pages import ROOT, blocks

SECTION = "## On the command line"
# What comes with extras, and what only tests need: none of it may be missed.
EXTRAS = ["pandas", "polars", "pyspark", "sklearn", "opendp", "psycopg", "pytest"]


def first_page() -> list[str]:
    """The commands of the README's page: those that are run, and those that are not for their length."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    line = text[: text.index(SECTION)].count("\n") + 1
    found = [block for block in blocks(ROOT / "README.md") if block.line > line and block.language == "console"]
    return [command for block in found[:2] for command in block.text.splitlines()]


def served(program: list[str], environment: dict[str, str], folder: Path) -> None:
    """Start a service, read its page, and end it."""
    process = subprocess.Popen(
        [*program, "--port", "0"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        with urllib.request.urlopen(process.stdout.readline().strip(), timeout=60) as answer:
            assert b"dpsketch" in answer.read()
    finally:
        process.terminate()
        process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()


def run_first_page(program: list[str], environment: dict[str, str], folder: Path, *, slow: bool) -> None:
    environment = {**environment, "XDG_DATA_HOME": str(folder / "data"), "DPSKETCH_LEDGER": ""}
    for line in first_page():
        if not line.startswith("dpsketch "):  # what makes the files
            subprocess.run(["sh", "-c", line], cwd=folder, check=True)
            continue
        arguments = shlex.split(line, comments=True)[1:]
        if arguments[0] == "audit":  # 4,000 trials of each take twenty minutes, and it has tests of its own
            arguments += ["--trials", "100"]
        command = [*program, *arguments]
        if arguments[0] == "serve":
            served(command, environment, folder)
        elif slow or arguments[0] not in ("audit", "plan"):
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (arguments, done.stderr)
    assert (folder / "urls.png").stat().st_size > 1_000


def test_the_first_page_needs_no_extra(tmp_path: Path) -> None:
    """All of its commands but plan and audit, which take long, in processes that cannot load what an extra brings."""
    script = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from dpsketch.cli import main
main()
"""
    assert len(first_page()) >= 8
    run_first_page([sys.executable, "-c", script], dict(os.environ), tmp_path, slow=False)


@pytest.mark.full
def test_the_first_page_works_from_the_wheel(tmp_path: Path) -> None:
    """The wheel in an environment of its own, with nothing but what it asks for."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "own"], check=True)
    python = tmp_path / "own" / "bin" / "python"
    wheels = tmp_path / "wheels"
    subprocess.run([python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, ROOT], check=True, env=environment)
    subprocess.run([python, "-m", "pip", "install", "-q", *wheels.glob("*.whl")], check=True, env=environment)
    folder = tmp_path / "work"
    folder.mkdir()
    run_first_page([str(python.with_name("dpsketch"))], environment, folder, slow=True)
    loaded = subprocess.run(
        [python, "-c", "import dpsketch; print(dpsketch.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    assert str(tmp_path) in loaded.stdout
