"""Classes by a density sketch each: all tables under one guarantee, and the score of a point in them.

A kernel sum is the size of a class times its density at the point. Angular sums are compared as cosines of vectors are:
with T the noisy table of a class less its mean, R rows and a noise of variance σ² in the mean over rows, ‖T‖²/R is the
squared length of the class's part in feature space and Dσ² more, D the number of counters. A sum is divided by
√(max(‖T‖²/R − Dσ², 0) + 4σ²√(2D)), so that a class neither wins by its size nor by its noise, and where noise hides
every class's length, plain sums are compared. Of power 1, a record counts ±1 in one cell a row instead of 1 in one of
two: the noise of a score has half of the variance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.errors import InvalidInput
from dpsketch.kernels import Angular, Kernel, named
from dpsketch.numbers import real_number
from dpsketch.privacy import Unit, per_record
from dpsketch.sketches.density.calibration import TABLE
from dpsketch.sketches.density.centre import private_centre
from dpsketch.sketches.density.functions import row_functions
from dpsketch.sketches.density.points import VectorBatch
from dpsketch.sketches.density.private import PrivateDensity
from dpsketch.sketches.density.sketch import DensitySketch
from dpsketch.sketches.density.spec import DensitySpec, default_width, read_bounds
from dpsketch.sketches.permit import Permit

__all__ = ["add_classes", "angular_scores", "angular_sums", "class_kernel", "density_spec", "scaled_between"]


_SCALED = (-1.0, 1.0)
_FLOOR = 4.0  # deviations of a squared length where there is nothing but noise


def scaled_between(X: Floats, bounds: Any) -> Floats:
    """Return features moved into public bounds, and scaled from them to [−1, 1]."""
    found = read_bounds(bounds, X.shape[1])
    if found is None:
        raise InvalidInput("say bounds=: public bounds of the features. None may be read from the data.")
    lows, highs = np.array(found).T
    return np.asarray((np.clip(X, lows, highs) - (lows + highs) / 2) / ((highs - lows) / 2))


def class_kernel(name: str | None, features: int, power: int, bandwidth: float | None) -> Kernel:
    """Return the kernel of a classifier by its name."""
    match name:
        case "angular" | None:
            if features < 2:
                raise InvalidInput("the data have 1 feature, n_features = 1; an angular kernel needs two or more.")
            return named("angular", dim=features, power=power)
        case "euclidean" | "manhattan":
            if bandwidth is None:
                raise InvalidInput(f"the {name} kernel needs bandwidth=, in halves of a feature's range.")
            return named(name, dim=features, power=power, bandwidth=bandwidth)
        case _:
            raise InvalidInput(f"kernel is 'linear', 'angular', 'euclidean' or 'manhattan', not {name!r}.")


def density_spec(
    kernel: Kernel, features: int, rows: int, smoothing: float, unit: Unit | None, seed: int
) -> DensitySpec:
    """Return the spec of every class's sketch."""
    if not 0 <= real_number("smoothing", smoothing) < np.inf:
        raise InvalidInput("smoothing must be a number of at least 0.")
    unit = per_record() if unit is None else unit
    if isinstance(kernel, Angular) and kernel.power == 1:
        return DensitySpec(kernel, rows, 1, unit, seed, features="signs")
    return DensitySpec(kernel, rows, default_width(kernel, read_bounds(_SCALED, features)), unit, seed)


def add_classes(
    spec: DensitySpec, permit: Permit, scaled: Floats, codes: npt.NDArray[np.intp], classes: int, centre: Floats | None
) -> tuple[Floats, list[npt.NDArray[np.int64]]]:
    """Count the records of each class around a centre, a private one where none is given, and draw what is released."""
    if centre is None:
        centre = private_centre(scaled, permit)
    tables = []
    for code in range(classes):
        sketch = DensitySketch.from_spec(spec)
        sketch._add_bounded(VectorBatch(scaled[codes == code] - centre, None, 0))
        tables.append(permit.add_noise(sketch._table, TABLE, code))
    return centre, tables


def angular_sums(densities: list[PrivateDensity], points: Floats, smoothing: float) -> Floats:
    """Return kernel sums of points in each class, less what points at a right angle have; planes are blurred."""
    spec = densities[0].spec
    if not isinstance(spec.kernel, Angular):
        raise AssertionError("only angular rows are planes")
    functions = row_functions(spec.kernel, spec.rows, spec.seed)
    tables, batch = np.stack([density.table for density in densities]), VectorBatch(points, None, 0)
    if spec.features == "signs":  # ±1 in one cell is ±½ in either of two
        return functions.smoothed_sums(batch, np.concatenate([-tables, tables], axis=2), smoothing) / 2
    return np.asarray(functions.smoothed_sums(batch, tables, smoothing) - tables.mean(axis=(1, 2)))


def angular_scores(densities: list[PrivateDensity], sums: Floats) -> Floats:
    """Return sums as they would be if all classes were of one length: the mean of what their lengths are taken for."""
    tables = np.stack([density.table for density in densities]).astype(np.float64)
    if densities[0].spec.features != "signs":
        tables -= tables.mean(axis=(1, 2), keepdims=True)
    _, rows, width = tables.shape
    noise = densities[0].noise.variance / rows
    squares = np.sum(tables**2, axis=(1, 2)) / rows - noise * rows * width
    lengths = np.sqrt(np.maximum(squares, 0) + _FLOOR * noise * math.sqrt(2 * rows * width))
    return np.asarray(sums * (lengths.mean() / lengths))
