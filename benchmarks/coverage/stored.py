"""Results of cases, one file each, so that the table can be made in several runs.

A result is of the code that made it: with its rows it keeps the names of the project's modules that were loaded for it,
and a digest of them. Once one of them has changed, the rows are *older* than the code. Comments and docstrings do not
count. A module that would be loaded in addition is named by one that has changed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeGuard

from benchmarks.coverage.measuring import Case, Row

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "results" / "coverage"
_COUNTING = {"benchmarks.coverage.data", "benchmarks.coverage.measuring"}
_WRITTEN = {"δ > 0": "approximate", "δ = 0": "pure", "×": "x", "ε = ": "epsilon "}


@dataclass(frozen=True)
class Result:
    """The rows of a case, and whether the code that made them is that of today."""

    rows: list[Row]
    current: bool


def place(case: Case, folder: Path = FOLDER) -> Path:
    """Return the file of a case."""
    name = case.name
    for sign, word in _WRITTEN.items():
        name = name.replace(sign, word)
    return folder / f"{re.sub('[^0-9a-z.]+', '-', name.lower().replace(',', '')).strip('-')}.json"


def loaded_for(case: Case) -> list[str]:
    """Return the files that a case stands on, of all that this process has loaded; of its own module its function."""
    own, function = case.trial.__module__, case.trial.__qualname__.split(".")[0]
    # The package itself is a list of names.
    names = {name for name in sys.modules if name.startswith("dpsketch.")} | _COUNTING
    files = {sys.modules[name].__file__ for name in names if name in sys.modules}
    paths = sorted(Path(file).relative_to(ROOT).as_posix() for file in files if file and file.endswith(".py"))
    return [*paths, f"{own.replace('.', '/')}.py:{function}"]


def keep(case: Case, rows: list[Row], folder: Path = FOLDER) -> None:
    """Write the rows of a case that this process has measured."""
    files = loaded_for(case)
    text = {"case": case.name, "releases": case.releases, "code": _digest(files), "files": " ".join(files)}
    folder.mkdir(parents=True, exist_ok=True)
    written = json.dumps(text | {"rows": [row.to_json() for row in rows]}, indent=1, ensure_ascii=False)
    place(case, folder).write_text(written + "\n")


def result_of(case: Case, folder: Path = FOLDER) -> Result | None:
    """Return what is known of a case; None where nothing is."""
    try:
        found = json.loads(place(case, folder).read_text())
    except FileNotFoundError:
        return None
    same = found["releases"] == case.releases and found["code"] == _digest(found["files"].split())
    return Result([Row.from_json(row) for row in found["rows"]], same)


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
