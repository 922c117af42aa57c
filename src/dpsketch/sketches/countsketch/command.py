"""How the command line starts a CountSketch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.sketches.countsketch.sketch import CountSketch

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit

__all__ = ["start"]


def start(unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None) -> CountSketch:
    """Start a sketch of the stated rows and width."""
    return CountSketch(**{"rows": 7, "width": 4096, **given}, unit=unit, key_type=key_type)
