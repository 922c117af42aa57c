"""How the command line starts a distinct count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.errors import InvalidInput
from dpsketch.sketches.distinct.sketch import DistinctSketch

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit
    from dpsketch.sketches.distinct.exact import DistinctSet

__all__ = ["start"]


def start(
    unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None
) -> DistinctSketch | DistinctSet:
    """Start a bitmap of the stated number of buckets, or a set."""
    shape = dict(given)
    if not shape.pop("exact", False):
        return DistinctSketch(**shape, unit=unit, key_type=key_type)
    if "buckets" in shape:
        raise InvalidInput("an exact count has no bitmap: leave --buckets out, or --exact.")
    from dpsketch.sketches.distinct.exact import DistinctSet

    return DistinctSet(unit=unit, key_type=key_type)
