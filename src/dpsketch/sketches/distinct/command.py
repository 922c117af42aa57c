"""How the command line starts a distinct count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.sketches.distinct.sketch import DistinctSketch

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit

__all__ = ["start"]


def start(unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None) -> DistinctSketch:
    """Start a bitmap of the stated number of buckets."""
    return DistinctSketch(**given, unit=unit, key_type=key_type)
