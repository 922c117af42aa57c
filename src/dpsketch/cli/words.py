"""Errors as the shell knows their words: what Python calls ``delta=`` is ``--delta`` here."""

from __future__ import annotations

import re

from dpsketch.sketches.kinds import KINDS

__all__ = ["in_options"]

# Arguments that every kind has, and those whose options have other names.
_COMMON = (
    "epsilon",
    "delta",
    "rho",
    "max_keys",
    "max_weight",
    "key_type",
    "neighbours",
    "dataset",
    "part",
    "candidates",
)
_ARGUMENT = re.compile(r"(?<![\w(.])(?P<name>[a-z_]+)=(?P<value>\[…\]|[^\s,;:)\]]*[^\s,;:.)\]])?")
_POWER = re.compile(r"\d+\*\*\d+")
_OTHER = {"keys": "keys-from", "users": "user", "weights": "weight", "counts": "count", "candidates": "candidates"}


def in_options(message: str) -> str:
    """Return a message with options in place of Python's arguments; what stands in parentheses is Python's own.

    Examples
    --------
    >>> in_options("With delta=0 give a public list: keys=[…].")
    'With --delta 0 give a public list: --keys-from FILE.'
    >>> in_options("Use domain=2**64.")
    'Use --domain 18446744073709551616.'
    """
    known = {option.name for kind in KINDS.values() for option in (*kind.options, *kind.release_options)}
    names = {name: name.replace("_", "-") for name in (*known, *_COMMON)} | _OTHER

    def option(found: re.Match[str]) -> str:
        name, value = names.get(found["name"]), (found["value"] or "").replace("[…]", "FILE")
        if _POWER.fullmatch(value):  # an option takes the number, not Python's expression
            value = str(pow(*map(int, value.split("**"))))
        return found[0] if name is None else f"--{name} {value}".rstrip()

    return _ARGUMENT.sub(option, message)
