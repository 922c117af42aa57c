"""The kill matrix: which quick tests notice which mutant, kept as data in ``kills.json``.

A row is measured on the tests that reach the function of its mutant, the fastest first, within a budget of seconds. It
is measured again only if the mutant or that function has changed.
"""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.mutants.catalogue import Mutant
from tests.mutants.gate import ROOT
from tests.mutants.place import PACKAGE, Match

DATA = Path(__file__).with_name("kills.json")
# Seconds of tests that are tried on a mutant, by what they take without one.
BUDGET = 20.0


@dataclass(frozen=True)
class Reach:
    """Which tests call a function, and how long each test takes."""

    tests: dict[str, list[str]]
    seconds: dict[str, float]

    @classmethod
    def load(cls, folder: Path) -> Reach:
        """Read what the plugin wrote; of a test that ran twice, the last run."""
        called: dict[str, list[str]] = {}
        seconds: dict[str, float] = {}
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                test, taken, functions = json.loads(line)
                called[test], seconds[test] = functions, taken
        tests = defaultdict(list)
        for test in sorted(called, key=lambda each: seconds[each]):
            for function in _with_kernels(called[test]):
                tests[function].append(test)
        return cls(dict(tests), seconds)

    def of(self, found: Match) -> list[str]:
        """Return the tests that call the code that a mutant changes, the fastest first; of a constant, its module."""
        module = found.path.relative_to(PACKAGE).as_posix()
        name = _name_at(found.path, found.start)
        reached = self.tests.get(f"{module}:{name}") if name else None
        if reached is not None:
            return reached
        wanted = {test for function, tests in self.tests.items() if function.startswith(f"{module}:") for test in tests}
        return sorted(wanted, key=lambda each: self.seconds[each])

    def affordable(self, tests: Iterable[str]) -> list[str]:
        """Return the first of these tests, as many as the budget allows."""
        chosen, spent = [], 0.0
        for test in tests:
            spent += self.seconds.get(test, 0.0) + 0.005
            if chosen and spent > BUDGET:
                break
            chosen.append(test)
        return chosen


@cache
def _functions(path: Path) -> list[tuple[int, int, str, ast.AST]]:
    """Return the functions of a file by their place: the outermost first."""
    text = path.read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[tuple[int, int, str, ast.AST]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                inner = f"{prefix}{child.name}."
                if not isinstance(child, ast.ClassDef):
                    found.append((starts[first - 1], starts[child.end_lineno or first], prefix + child.name, child))
                    inner += "<locals>."
                visit(child, inner)
            else:
                visit(child, prefix)

    visit(ast.parse(text), "")
    return found


def _name_at(path: Path, place: int) -> str:
    """Return the qualified name of the innermost function at a place; empty outside of all functions."""
    inside = [name for start, end, name, _ in _functions(path) if start <= place < end]
    return inside[-1] if inside else ""


def text_at(path: Path, place: int) -> str:
    """Return the text of the innermost function at a place; outside of all functions, that of the file."""
    inside = [(start, end) for start, end, _, _ in _functions(path) if start <= place < end]
    text = path.read_text()
    return text[slice(*inside[-1])] if inside else text


@cache
def _kernels() -> dict[str, set[str]]:
    """Return the kernels that each kernel names: calls between compiled functions are not seen from Python."""
    named: dict[str, set[str]] = {}
    for path in sorted((PACKAGE / "_compiled").glob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for *_, name, node in _functions(path):
            named[f"{module}:{name}"] = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    by_name: dict[str, set[str]] = defaultdict(set)
    for function in named:
        by_name[function.partition(":")[2]].add(function)
    return {function: {each for name in names for each in by_name.get(name, ())} for function, names in named.items()}


def _with_kernels(functions: Iterable[str]) -> set[str]:
    """Return functions with all kernels that they lead to."""
    found: set[str] = set()
    waiting = list(functions)
    while waiting:
        function = waiting.pop()
        if function not in found:
            found.add(function)
            waiting += _kernels().get(function, ())
    return found


def fingerprint(mutant: Mutant) -> str:
    """Return a digest of a mutant and of the function that it changes."""
    found = mutant.found()
    assert found is not None, mutant.name
    text = "\0".join([text_at(found.path, found.start), mutant.old, mutant.new])
    return sha256(text.encode()).hexdigest()[:12]


def stored() -> dict[str, Any]:
    """Return the matrix: by a mutant's name its fingerprint, the tests that killed it, and the number that were tried.

    A row without ``tried`` has only the tests that stopped a run of all mutants.
    """
    return dict(json.loads(DATA.read_text(encoding="utf-8"))) if DATA.exists() else {}


def killers(row: dict[str, Any]) -> list[str]:
    """Return the tests of a row that still exist."""
    return [test for test in row.get("kills", []) if _exists(test.partition("[")[0])]


@cache
def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
    return f"def {name.rpartition('::')[2]}(" in text


def store(rows: dict[str, Any], names: Iterable[str]) -> None:
    """Keep the rows of these mutants, in their order."""
    kept = {name: rows[name] for name in names if name in rows}
    DATA.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")


def needed(rows: dict[str, Any], seconds: dict[str, float]) -> list[str]:
    """Return a cheap choice of tests that kills all that is killed: the test with most new kills a second, repeatedly.

    Examples
    --------
    >>> rows = {"a": {"kills": ["x", "y"]}, "b": {"kills": ["y"]}}
    >>> needed(rows, {"x": 1.0, "y": 1.0})
    ['y']
    """
    kills: dict[str, set[str]] = defaultdict(set)
    for name, row in rows.items():
        for test in row["kills"]:
            kills[test].add(name)
    left, chosen = {name for name, row in rows.items() if row["kills"]}, []
    while left:
        best = max(kills, key=lambda test: (len(kills[test] & left) / (0.05 + seconds.get(test, 1.0)), test))
        chosen.append(best)
        left -= kills[best]
    return chosen
