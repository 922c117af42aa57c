"""Text for a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Escape line breaks and control characters, which a key may hold and a terminal would obey.

    Examples
    --------
    >>> print(printable("a\x1b[2J"))
    a\x1b[2J
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
