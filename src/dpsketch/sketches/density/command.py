"""How the command line starts a density."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch import kernels
from dpsketch.errors import InvalidInput
from dpsketch.sketches.density.sketch import DensitySketch

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit

__all__ = ["start"]


def start(unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None) -> DensitySketch:
    """Start a density of the stated kernel over the named columns."""
    shape = {"rows": 500, **given}
    name = shape.pop("kernel", "euclidean")
    parameters: dict[str, Any] = {"dim": len(columns)}
    if "bandwidth" in shape:
        parameters["bandwidth"] = shape.pop("bandwidth")
    elif name in ("euclidean", "manhattan"):
        raise InvalidInput("say how far a point reaches: --bandwidth, in the units of the columns.")
    if "power" in shape:
        parameters["power"] = shape.pop("power")
    bounds = _bounds(shape.pop("bounds", None))
    kernel = kernels.named(name, **parameters)
    return DensitySketch(kernel=kernel, **shape, unit=unit, bounds=bounds, columns=columns)


def _bounds(text: str | None) -> list[tuple[float, float]] | None:
    """Read public bounds such as 0:10,-5:5."""
    if text is None:
        return None
    pairs = []
    for part in text.split(","):
        low, colon, high = part.partition(":")
        try:
            pairs.append((float(low), float(high)))
        except ValueError:
            colon = ""
        if not colon:
            raise InvalidInput("--bounds are pairs low:high, one for each column, as in 0:10,-5:5.")
    return pairs
