"""How the command line starts a density."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch import kernels
from dpsketch.errors import InvalidInput
from dpsketch.sketches.density.sketch import DensitySketch

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit

__all__ = ["start"]

_ROWS, _WAVES = 500, 1000
_SERIES_DIMS = 3
_KERNELS = {"race": "euclidean", "linear": "linear", "signs": "angular"}  # of features; others are of a Gaussian


def start(unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None) -> DensitySketch:
    """Start a density of the stated kernel over the named columns."""
    shape = dict(given)
    bounds = _bounds(shape.pop("bounds", None))
    marks = _landmarks(shape.pop("landmarks", None), columns)
    features = shape.pop("features", None)
    if features == "auto":
        features = "series" if bounds is not None and len(columns) <= _SERIES_DIMS else "race"
    name = shape.pop("kernel", None) or _KERNELS.get(features, "gaussian" if features else "euclidean")
    parameters: dict[str, Any] = {"dim": len(columns)}
    if "bandwidth" in shape:
        parameters["bandwidth"] = shape.pop("bandwidth")
    elif name in ("euclidean", "manhattan", "gaussian"):
        raise InvalidInput("say how far a point reaches: --bandwidth, in the units of the columns.")
    if "power" in shape or features == "signs":
        parameters["power"] = shape.pop("power", 1)
    if features in (None, "race", "fourier", "signs"):
        shape.setdefault("rows", _ROWS if features in (None, "race") else _WAVES)
    kernel = kernels.named(name, **parameters)
    return DensitySketch(
        kernel=kernel, **shape, unit=unit, bounds=bounds, columns=columns, features=features, landmarks=marks
    )


def _landmarks(path: Path | None, columns: tuple[str, ...]) -> Any:
    """Read public points: the named columns of a CSV or Parquet file."""
    if path is None:
        return None
    from pyarrow import csv, parquet

    try:
        found = parquet.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)
    except (OSError, ValueError):  # Arrow's own errors are among these
        raise InvalidInput(f"--landmarks: {path} cannot be read as a CSV or Parquet file of public points.") from None
    if missing := [name for name in columns if name not in found.column_names]:
        raise InvalidInput(f"--landmarks: {path} has no column {', '.join(map(repr, missing))}.")
    return np.column_stack([np.asarray(found.column(name)) for name in columns])


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
