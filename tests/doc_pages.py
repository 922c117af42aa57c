"""Run the examples of a page: its Python blocks in order, its console blocks as a person would type them."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsketch.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\s*$")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_SERVES = "<!-- it serves until it is stopped -->"
_NUMBER = re.compile(r"[-+]?\d[\d,.:]*(e[-+]?\d+)?%?")
_DIGEST = re.compile(r"\b[0-9a-f]{12,64}\b")
# Installation is what `make demo` and `make test` themselves are about.
_INSTALLS = ("make ", "pip ", "git ")


@dataclass(frozen=True)
class Block:
    """A fenced block: why it is not run, if it says so, and whether it serves until it is stopped."""

    language: str
    text: str
    line: int
    not_run: str | None
    serves: bool


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found, lines, start, before, language = [], [], None, "", ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if start is None and fence:
            start, language, lines = number, fence[1], []
        elif start is not None and line.startswith("```"):
            reason = _NOT_RUN.match(before)
            found.append(Block(language, "\n".join(lines), start, reason and reason[1], before == _SERVES))
            start, before = None, ""
        elif start is not None:
            lines.append(line)
        elif line.strip():
            before = line.strip()
    assert start is None, f"{page} ends inside a block"
    return found


def run_page(page: Path, names: dict[str, Any]) -> None:
    """Run all blocks of a page in the current folder; Python blocks share their names.

    A text block that follows a Python block is what it prints. Outputs are compared but for their numbers, since noise
    is noise. An output line that ends in … stands for a longer one.
    """
    printed: str | None = None
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        if block.not_run is not None:
            continue
        if block.language == "python":
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile(block.text, where, "exec"), names)
            printed = out.getvalue()
            continue
        if block.serves:
            run_services(block.text, where)
        elif block.language == "console":
            run_console(block.text, where)
        elif block.language == "text" and printed:
            assert_alike(block.text, printed, where)
        printed = None


def run_console(text: str, where: str) -> None:
    """Run a console block: lines after ``$`` are commands, others what they print; without ``$`` all are commands."""
    for command, expected in commands(text):
        if command.startswith(_INSTALLS):
            continue
        code, printed = run_command(command)
        assert bool(code) is ("dpsketch: " in expected), f"{where}: {command} exited with {code}: {printed}"
        if expected:
            assert_alike(expected, printed, f"{where}: {command}")


def run_services(text: str, where: str) -> None:
    """Start each command of a block, wait for its address, and stop it in order; on a free port, not on the page's."""
    for command, expected in commands(text):
        words = f"exec env {command.partition('#')[0].strip()} --port 0"
        with subprocess.Popen(
            ["bash", "-c", words], env=_environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as service:
            giving_up = threading.Timer(120, service.kill)
            giving_up.start()
            assert service.stdout is not None
            said: list[str] = []
            for line in service.stdout:
                said.append(line)
                if "http://" in line:
                    service.terminate()
            giving_up.cancel()
        address = [line for line in said if "http://" in line]
        assert address, f"{where}: {command} never served: {''.join(said)}"
        if expected:
            assert_alike(expected, address[0], f"{where}: {command}")


def commands(text: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with what it prints."""
    joined = text.replace("\\\n", " ")
    if not re.search(r"^\$ ", joined, re.MULTILINE):
        return [(line, "") for line in joined.splitlines() if line.strip()]
    parts = re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2].strip("\n")) for part in parts]


def run_command(command: str) -> tuple[int, str]:
    """Run a command; dpsketch itself in this process, which is quicker, everything else by a shell."""
    words = shlex.split(command, comments=True)
    if words[0] != "dpsketch" or {"|", ">", "<"} & set(words):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=_environment(), check=False)
        return done.returncode, done.stdout + done.stderr
    out, arguments = io.StringIO(), sys.argv
    sys.argv = words
    try:
        with redirect_stdout(out), redirect_stderr(out):
            main()
        code: Any = 0
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv = arguments
    return int(code or 0), out.getvalue()


def _environment() -> dict[str, str]:
    """Return what a reader's shell has, in which dpsketch is installed."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def assert_alike(expected: str, printed: str, where: str) -> None:
    """Compare outputs line by line, but for numbers and the width of tables."""
    wanted, got = _shape(expected), _shape(printed)
    assert len(wanted) == len(got), f"{where} printed other lines:\n{printed}"
    for one, other in zip(wanted, got, strict=True):
        same = other.startswith(one[:-1].rstrip()) if one.endswith("…") else one == other
        assert same, f"{where} printed\n{other}\nnot\n{one}"


def _shape(text: str) -> list[str]:
    plain = (_NUMBER.sub("0", _DIGEST.sub("digest", line)) for line in text.splitlines())
    return [bare for line in plain if (bare := re.sub(r"[─━═\s]+", " ", line).strip())]
