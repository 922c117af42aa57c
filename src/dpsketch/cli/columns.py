"""How --key names its columns: one, or several that are one key together."""

from __future__ import annotations

import re

from dpsketch.errors import InvalidInput

__all__ = ["computed_parts", "key_parts"]

# Text in double quotes, what stands in parentheses (quotes of both kinds may hold one), or anything but a comma.
_QUOTED = r'"(?:[^"]|"")*"'
_TOKEN = re.compile(rf"""{_QUOTED}|\(|\)|'(?:[^']|'')*'|,|.""", re.DOTALL)
_ONE_NAME = re.compile(rf"\s*({_QUOTED})\s*")


def key_parts(text: str) -> tuple[str, ...]:
    """Return the columns that --key names, separated by commas; a name that holds a comma is in double quotes.

    A comma inside parentheses belongs to an expression, and separates nothing.

    Examples
    --------
    >>> key_parts("origin,dest"), key_parts('"last, first"'), key_parts('"a,b",c')
    (('origin', 'dest'), ('last, first',), ('a,b', 'c'))
    """
    names = tuple(map(_name, _split(text)))
    if not all(names):
        raise InvalidInput("--key names no column before or after a comma. A name that holds a comma is in quotes.")
    if len(set(names)) < len(names):
        raise InvalidInput("--key names a column twice. Name each once.")
    return names


def computed_parts(text: str) -> list[str]:
    """Return those parts of --key that are computed: whatever has parentheses and is not in double quotes.

    Examples
    --------
    >>> computed_parts("origin,date_trunc('hour', ts)"), computed_parts('"date (UTC)"')
    (["date_trunc('hour', ts)"], [])
    """
    return [part for part in _split(text) if "(" in part and _ONE_NAME.fullmatch(part) is None]


def _split(text: str) -> list[str]:
    """Split at commas that stand neither in quotes nor in parentheses."""
    parts, depth, held = [], 0, ""
    for token in _TOKEN.findall(text):
        if token == "," and depth == 0:
            parts.append(held)
            held = ""
            continue
        depth += {"(": 1, ")": -1}.get(token, 0)
        held += token
    return [*parts, held]


def _name(part: str) -> str:
    quoted = _ONE_NAME.fullmatch(part)
    return part if quoted is None else quoted.group(1)[1:-1].replace('""', '"')
