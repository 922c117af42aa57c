"""Densities over a square, as in the paper's Figure 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from dpsketch import plots

from .published import as_published, nonprivate, sketch_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

SQUARE = (-8.0, 8.0)
NO_NOISE = "no noise, 80 rows (the paper's left)"
PAPER = "as published, 80 rows, ε = 1 (the paper's right)"
OURS = "dpsketch, 80 rows, ε = 1, δ = 1e-6"
MORE_ROWS = "dpsketch, 1,000 rows, ε = 1, δ = 1e-6"


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A density over the square, its mean error, and that against the same sketch without noise.

    Both errors are shares of the mean density.
    """

    grid: Floats
    error: float
    noise: float


def densities(points: Floats, size: int) -> dict[str, Picture]:
    """Return the pictures by their titles; cells have width 1, and the paper's rows 50 counters."""
    axis = np.linspace(*SQUARE, size)
    places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    kernel, plain = dps.kernels.Euclidean(2, 1.0), dps.kernels.Euclidean(2, 1.0, directions="independent")
    paper = sketch_of(points, plain, 80, seed=3, width=50)
    few, many = (sketch_of(points, kernel, rows, seed=3, bounds=SQUARE) for rows in (80, 1000))
    releases = {
        NO_NOISE: (paper, nonprivate(paper)),
        PAPER: (paper, as_published(paper, 1.0, np.random.default_rng(3))),
        OURS: (few, few.release(epsilon=1.0, delta=1e-6)),
        MORE_ROWS: (many, many.release(epsilon=1.0, delta=1e-6)),
    }
    exact = kernel.similarity(places, points).mean(axis=1)
    found = {}
    for title, (sketch, private) in releases.items():
        density, clean = private.density(places).value, nonprivate(sketch).density(places).value
        wrong, noise = (float(np.abs(density - truth).mean() / exact.mean()) for truth in (exact, clean))
        found[title] = Picture(density.reshape(size, size), wrong, noise)
    return found


def draw(found: Mapping[str, Picture], points: Floats, *, levels: int = 15) -> Figure:
    """Draw densities over one square side by side, all with the same levels, the points as dots."""
    figure = plots.new_figure(9, 8.4)
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    steps = np.linspace(0, max(float(one.grid.max()) for one in found.values()), levels + 1)
    for place, (title, one) in zip(axes.flat, found.items(), strict=True):
        across = np.linspace(*SQUARE, one.grid.shape[1])
        filled = place.contourf(across, across, one.grid, steps, cmap="Blues", extend="min")
        place.contour(across, across, one.grid, steps[::3], colors="black", linewidths=0.3)
        place.plot(points[:, 0], points[:, 1], ".", color="black", markersize=1.5, alpha=0.25)
        place.set_title(title, fontsize=9, loc="left")
        place.set_aspect("equal")
    figure.colorbar(filled, ax=axes, label="density (mean similarity)", shrink=0.7, format="%.2f")
    return figure
