"""How the command line starts a RangeSketch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.sketches.ranges.sketch import RangeSketch

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit

__all__ = ["start"]


def start(unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None) -> RangeSketch:
    """Start a tree over the stated range of values."""
    return RangeSketch(**given, unit=unit)
