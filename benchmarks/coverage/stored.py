"""Results of cases, one file each, so that the table can be made in several runs.

A result is of the code that made it: with its rows it keeps the day, the names of the modules that draw noise or
compute answers and ran in a trial, and a digest of them. Once one of them has changed, the rows are *older* than the
code. Comments and docstrings do not count. A module that would run in addition is named by one that has changed.

Left out is what only takes records in, stores, charges or shows. It moves no interval: tests hold what a sketch counts
to exact oracles, and the noise that is drawn to the law that a release states, by which intervals are made.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from benchmarks.coverage.measuring import Case, Row, answers_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "results" / "coverage"
_WRITTEN = {"δ > 0": "approximate", "δ = 0": "pure", "×": "x", "ε = ": "epsilon "}
_DATA = "benchmarks/coverage/data.py"
# Of the folder of a kind, sketch.py takes records in; of streams it puts the days of an answer together.
_COUNTED = re.compile(
    r"src/dpsketch/(noise|truncated|hashing|kernels|_compiled/.*|local/.*|sketches/tails|sketches/continual/.*"
    r"|sketches/(\w+/)+(?!(sketch|ordered|command|picture)\.py)\w+)\.py"
)


@dataclass(frozen=True)
class Result:
    """The rows of a case, whether the code that made them is that of today, and the day."""

    rows: list[Row]
    current: bool
    measured: str


def place(case: Case, folder: Path = FOLDER) -> Path:
    """Return the file of a case."""
    name = case.name
    for sign, word in _WRITTEN.items():
        name = name.replace(sign, word)
    return folder / f"{re.sub('[^0-9a-z.]+', '-', name.lower().replace(',', '')).strip('-')}.json"


def files_of(case: Case) -> list[str]:
    """Return the files that a case stands on: those that run in a trial; of its own module its function."""
    own, function = case.trial.__module__, case.trial.__qualname__.split(".")[0]
    answers_of(case, 0)  # what is loaded late runs as it is loaded
    with _noted() as files:
        answers_of(case, 1)
    paths = {Path(file).relative_to(ROOT).as_posix() for file in files if Path(file).is_relative_to(ROOT)}
    paths = {path for path in paths if path == _DATA or _COUNTED.fullmatch(path)}
    return [*sorted(paths), f"{own.replace('.', '/')}.py:{function}"]


@contextmanager
def _noted() -> Iterator[set[str]]:
    """Note the files whose functions run, compiled ones included."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)
            if frame.f_code.co_qualname == "_Kernel.__call__":
                files.add(sys.modules[frame.f_locals["self"].__module__].__file__ or "")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(before)


def keep(case: Case, rows: list[Row], files: list[str], folder: Path = FOLDER) -> None:
    """Write the rows of a case that were measured today, by these files."""
    today = datetime.now(UTC).date().isoformat()
    text = {"case": case.name, "releases": case.releases, "measured": today, "code": _digest(files)}
    folder.mkdir(parents=True, exist_ok=True)
    rest = {"files": " ".join(files), "rows": [row.to_json() for row in rows]}
    place(case, folder).write_text(json.dumps(text | rest, indent=1, ensure_ascii=False) + "\n")


def result_of(case: Case, folder: Path = FOLDER) -> Result | None:
    """Return what is known of a case; None where nothing is."""
    try:
        found = json.loads(place(case, folder).read_text())
    except FileNotFoundError:
        return None
    same = found["releases"] == case.releases and found["code"] == _digest(found["files"].split())
    return Result([Row.from_json(row) for row in found["rows"]], same, found["measured"])


def _digest(files: list[str]) -> str:
    return hashlib.sha256("".join(f"{file} {_meaning(file)}\n" for file in files).encode()).hexdigest()[:16]


@cache
def _meaning(file: str) -> str:
    """Return a digest of what a module does: of its syntax tree without docstrings, and without other cases."""
    name, _, function = file.partition(":")
    path = ROOT / name
    return "gone" if not path.exists() else meaning(path.read_text(), function)


def meaning(source: str, function: str = "") -> str:
    """Return a digest of source text; where a function that makes cases is named, without all others that do."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            del node.body[0]
    if function:
        tree.body = [node for node in tree.body if not _makes_cases(node) or node.name == function]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _makes_cases(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and node.returns is not None and "Case" in ast.unparse(node.returns)
