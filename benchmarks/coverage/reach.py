"""What functions of a module mean: their own code, and whatever of the module they can reach by name.

A module falls into pieces: functions, methods, what else a class has, assignments and imports. A piece reaches those
that a name in it may stand for, and too many rather than too few: an attribute stands for every method of that name, a
class for all its methods that Python calls by itself. Of a compiled function also those of other modules that it calls
are reached, and of any function constants of other modules, because nobody sees them run.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_COMPILED = "dpsketch._compiled."
# Whether a function is compiled moves no bit of what it gives.
LOADER = "src/dpsketch/_compiled/kernel.py"


@dataclass(frozen=True)
class _Piece:
    """What of a module is kept or left out as a whole: the names it goes by, and those it uses."""

    names: frozenset[str]
    uses: frozenset[str]
    code: str


@cache
def file_meaning(path: str, names: frozenset[str]) -> str:
    """Return the :func:`meaning` of functions of a file below the project's folder; "gone" where there is none."""
    place = ROOT / path
    return meaning(place.read_text(), names) if place.exists() else "gone"


def meaning(source: str, names: Collection[str] = ()) -> str:
    """Return a digest of what ``f`` or ``Class.method`` of a source text do; without names, of all of it.

    Comments and docstrings do not count. A name that is nowhere in the source stands for all of it.
    """
    pieces = list(_pieces(source))
    known = frozenset().union(*(piece.names for piece in pieces))
    reached = set(names) if names and known.issuperset(names) else set(known)
    kept: list[_Piece] = []
    while near := [piece for piece in pieces if piece.names & reached]:
        kept += near
        pieces = [piece for piece in pieces if not piece.names & reached]
        reached = set().union(*(piece.uses for piece in near))
    return hashlib.sha256("\n".join(sorted(piece.code for piece in kept)).encode()).hexdigest()


def _pieces(source: str) -> Iterator[_Piece]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            del node.body[0]
    for node in tree.body:
        match node:
            case ast.FunctionDef():
                yield _piece({node.name}, node)
            case ast.ClassDef():
                yield from _class_pieces(node)
            case ast.ImportFrom() | ast.Import():
                for alias in node.names:
                    name = alias.asname or alias.name
                    yield _Piece(frozenset({name}), frozenset(), _imported(node, alias))
            case _:
                bound = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and _stored(each)}
                yield _piece(bound or {""}, node)


def _class_pieces(node: ast.ClassDef) -> Iterator[_Piece]:
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    own = {f"{node.name}.{each.name}" for each in methods if each.name.startswith("__")}
    for method in methods:
        yield _piece({f"{node.name}.{method.name}", f".{method.name}"}, method, {node.name})
    node.body = [each for each in node.body if not isinstance(each, ast.FunctionDef)]
    yield _piece({node.name}, node, own)


def _piece(names: set[str], node: ast.AST, uses: Collection[str] = ()) -> _Piece:
    used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    used |= {f".{each.attr}" for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return _Piece(frozenset(names), frozenset(used.union(uses)), f"{sorted(names)} {ast.dump(node)}")


def _imported(node: ast.ImportFrom | ast.Import, alias: ast.alias) -> str:
    module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
    path = f"src/{module.replace('.', '/')}.py"
    unseen = module.startswith(_COMPILED) or (module.startswith("dpsketch") and alias.name.isupper())
    inside = file_meaning(path, frozenset({alias.name})) if unseen and path != LOADER else ""
    return f"{module} {alias.name} {alias.asname} {inside}"


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)
