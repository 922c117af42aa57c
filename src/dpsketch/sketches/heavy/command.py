"""How the command line starts a tree of sketches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.errors import InvalidInput
from dpsketch.sketches.heavy.sketch import HeavyHitters

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit

__all__ = ["start"]


def start(unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None) -> HeavyHitters:
    """Start a tree for keys of the stated length."""
    if "key_bits" not in given and "key_bytes" not in given:
        raise InvalidInput("say how long keys may be: --key-bits 64 for integers, or --key-bytes 24 (say) for text.")
    return HeavyHitters(**{"rows": 7, "width": 4096, **given}, unit=unit)
