"""Find the code that a mutant changes, by the name of its function and an expression in it.

A mutant names a function, a class or a constant (``Banded.sensitivity``), in whatever module it stands, and quotes the
code to change. White space does not count. So a mutant survives a function's move to another file, another indentation
and another line break; it becomes stale only if the code itself changes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "dpsketch"


@dataclass(frozen=True)
class Place:
    """A named stretch of a file: ``text[start:end]``."""

    path: Path
    start: int
    end: int


@dataclass(frozen=True)
class Match:
    """The one place where a mutant's old code stands."""

    path: Path
    start: int
    end: int

    def replaced(self, new: str) -> str:
        """Return the file's text with other code here; further lines of it are indented as the first."""
        text = self.path.read_text()
        line = text[text.rfind("\n", 0, self.start) + 1 : self.start]
        indent = line[: len(line) - len(line.lstrip())]
        return text[: self.start] + new.replace("\n", "\n" + indent) + text[self.end :]


def matched(where: str, old: str) -> Match | None:
    """Return where the old code stands, or None unless it stands in exactly one place.

    Parameters
    ----------
    where : str
        A qualified name, as in ``Permit.draw``; ``noise:Source.words`` looks only in modules whose dotted name ends
        with ``noise``, and ``noise:`` means all of such a module.
    old : str
        The code, with any white space.
    """
    module, colon, name = where.rpartition(":")
    wanted, _ = _squeezed(old)
    found = []
    for place in _places().get(name, []) if name else _modules():
        dotted = ".".join(place.path.relative_to(PACKAGE).with_suffix("").parts)
        if colon and not f".{dotted}".endswith(f".{module}"):
            continue
        text, at = _squeezed(place.path.read_text()[place.start : place.end])
        first = text.find(wanted)
        while first >= 0:
            last = at[first + len(wanted) - 1] + 1
            found.append(Match(place.path, place.start + at[first], place.start + last))
            first = text.find(wanted, first + 1)
    return found[0] if len(found) == 1 else None


@cache
def _modules() -> list[Place]:
    return [Place(path, 0, len(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]


@cache
def _places() -> dict[str, list[Place]]:
    """Return every function, class, method and assigned name of the package by its qualified name."""
    found: dict[str, list[Place]] = {}
    for module in _modules():
        text = module.path.read_text()
        lines = [0]
        for line in text.splitlines(keepends=True):
            lines.append(lines[-1] + len(line))
        rows = text.splitlines(keepends=True)
        for name, node in _named(ast.parse(text)):
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
            last = node.end_lineno or first
            column = len(rows[last - 1].encode()[: node.end_col_offset].decode())
            found.setdefault(name, []).append(Place(module.path, lines[first - 1], lines[last - 1] + column))
    return found


def _named(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Yield the definitions of a module and of its classes; a function's own functions belong to it."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name, node
            case ast.ClassDef(name=name):
                yield prefix + name, node
                yield from _named(node, f"{prefix}{name}.")
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                yield prefix + name, node
            case ast.If() | ast.Try():
                yield from _named(node, prefix)


def _squeezed(text: str) -> tuple[str, list[int]]:
    """Return a text without white space, but for one space between two words, and where each character stood."""
    kept: list[str] = []
    at: list[int] = []
    space = False
    for index, character in enumerate(text):
        if character.isspace():
            space = True
            continue
        if space and kept and _is_word(kept[-1]) and _is_word(character):
            kept.append(" ")
            at.append(index)
        space = False
        kept.append(character)
        at.append(index)
    return "".join(kept), at


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
