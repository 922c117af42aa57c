"""The JSON header of a file: written in one way only, and read without trust."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from dpsketch._arrow_stream import forged

__all__ = ["ZEROS", "header_fault", "header_text", "parsed_header"]

ZEROS = b"0" * 64
"""What stands in the place of the digest while it is worked out."""
_MAX_DEPTH = 32
_SURROGATE = re.compile("[\ud800-\udfff]")


def header_text(envelope: dict[str, Any]) -> bytes:
    r"""Return the header's text, in which the digest's marker occurs exactly once.

    The marker is ``"sha256":"``. Its first quote cannot close a string (a letter follows), so it opens one or is an
    escaped quote inside one; either way its ``s`` stands inside a string, and is not itself escaped. There ``\u0073``
    means the same, so that what the caller wrote is replaced without changing its meaning, and no new marker arises.
    """

    def dump(value: Any) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)

    parts = [f"{dump(key)}:{dump(envelope[key])}".replace('"sha256":"', '"\\u0073ha256":"') for key in sorted(envelope)]
    return ("{" + ",".join([*parts, f'"sha256":"{ZEROS.decode()}"']) + "}").encode()


def parsed_header(text: bytes) -> dict[str, Any]:
    """Return what a header's text says; refuse text that dpsketch would not write."""

    def refuse(_: str) -> NoReturn:
        raise ValueError

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) != len(mapping := dict(pairs)):
            raise ValueError
        return mapping

    try:
        value = json.loads(text.decode("ascii"), parse_constant=refuse, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise forged("its header is not JSON as dpsketch writes it") from None
    if not isinstance(value, dict):
        raise forged("its header is not a JSON object")
    if fault := header_fault(value):
        raise forged(f"its header holds {fault}")
    return value


def header_fault(value: object, depth: int = 0) -> str | None:
    """Say what in a header would not come back as it was written, if anything."""
    if depth > _MAX_DEPTH:
        return f"more than {_MAX_DEPTH} levels"
    match value:
        case str():
            return "text that is not Unicode" if not value.isascii() and _SURROGATE.search(value) else None
        case None | bool():
            return None
        case int():
            return None if -(1 << 63) <= value < 1 << 64 else "an integer of more than 64 bits"
        case float():
            return None if math.isfinite(value) else "a float that is not finite"
        case list():
            items = value
        case dict():
            if not all(isinstance(key, str) for key in value):
                return "a key that is not text"
            items = [*value, *value.values()]
        case _:
            return f"a {type(value).__name__}"
    for item in items:  # a loop: a header has a hundred values, and whoever loads a small file waits for them
        if fault := header_fault(item, depth + 1):
            return fault
    return None
