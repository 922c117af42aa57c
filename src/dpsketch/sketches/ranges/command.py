"""How the command line starts a RangeSketch."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsketch.errors import InvalidInput
from dpsketch.sketches.quantiles import QuantileSketch
from dpsketch.sketches.ranges.sketch import RangeSketch

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit

__all__ = ["listed_shares", "start"]


def start(unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None) -> Any:
    """Start a tree over the stated range of values, or what counts for named quantiles."""
    if "quantiles" not in given:
        if "interval_share" in given:
            raise InvalidInput("--interval-share goes with --quantiles: the intervals of a tree cost nothing.")
        return RangeSketch(**given, unit=unit)
    tree = [name for name in ("rows", "width", "level_bits") if name in given]
    if tree:
        flag = tree[0].replace("_", "-")
        raise InvalidInput(f"--{flag} shapes the tree that answers any question: leave it or --quantiles out.")
    return QuantileSketch(**{**given, "quantiles": listed_shares(given["quantiles"])}, unit=unit)


def listed_shares(text: str) -> list[Fraction]:
    """Read the quantiles of an option, as in 0.5,0.9."""
    try:
        return [Fraction(one.strip()) for one in text.split(",")]
    except (ValueError, ZeroDivisionError):
        pass
    raise InvalidInput("--quantiles takes numbers between 0 and 1, as in 0.5,0.9.")
