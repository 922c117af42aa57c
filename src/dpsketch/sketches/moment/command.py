"""How the command line starts a moment, or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.errors import InvalidInput
from dpsketch.sketches.moment.sketch import MomentProfile, MomentSketch

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit

__all__ = ["start"]


def start(
    unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None
) -> MomentSketch | MomentProfile:
    """Start a sketch for one exponent, or a profile for several."""
    shape = {"size": 200, "key_type": key_type, **given}
    exponents = shape.pop("p", None) or []
    if not exponents:
        raise InvalidInput("say which moment: --p 0.5, or several by repeating --p.")
    if len(exponents) == 1:
        return MomentSketch(p=exponents[0], **shape, unit=unit)
    return MomentProfile(p=exponents, **shape, unit=unit)
