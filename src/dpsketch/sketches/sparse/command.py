"""How the command line starts a sparse histogram."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.sketches.sparse.sketch import SparseHistogram

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit

__all__ = ["start"]


def start(unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None) -> SparseHistogram:
    """Start a histogram; it has no shape that must be stated."""
    return SparseHistogram(**given, unit=unit, key_type=key_type)
