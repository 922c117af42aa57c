"""How the report shows errors: the paper's two kinds of picture, series over a parameter, and tables of quantiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dpsketch import plots
from dpsketch.reproduce import Run

__all__ = ["Panel", "density", "distributions", "error_table", "named", "quantile", "root_mean_square", "series"]

Floats = npt.NDArray[np.float64]
Samples = Mapping[str, Floats]

_LEVELS = (0.5, 0.9, 0.95, 0.99)
_DASHES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (3, 1)))
_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860")
_ACROSS = {"density": "estimation error", "errors": "estimation error (up to)", "sizes": "size of the error (up to)"}
_POINTS = 401
_BINS = 4000


def quantile(errors: Floats, level: float = 0.9) -> float:
    """Return what a share ``level`` of the errors stays within."""
    return float(np.quantile(np.abs(errors), level))


def root_mean_square(errors: Floats) -> float:
    """Return the root mean square of some errors."""
    return math.sqrt(float(np.mean(np.square(errors))))


def named(found: Mapping[str, Mapping[int, Floats]], only: int | None = None) -> tuple[Samples, Samples]:
    """Return the series of a comparison by their names: the paper's, and ours, of ``only`` so many rows."""
    ours = {"dpsketch estimate": found["robust"], "dpsketch decode": found["joint"]}
    added = {f"{name}, k={k}": one[k] for name, one in ours.items() for k in one if only in (None, k)}
    return {f"k={k}": errors for k, errors in found["median"].items()}, added


def error_table(run: Run, *groups: Samples, scale: float = 1.0) -> None:
    """Add a table of the errors' quantiles, in units of ``scale``; one line a sample."""
    run.table(
        ["", *(f"{level:.0%} of errors within" for level in _LEVELS), "root mean square"],
        [
            [label, *(quantile(errors, level) / scale for level in _LEVELS), root_mean_square(errors) / scale]
            for samples in groups
            for label, errors in samples.items()
        ],
    )


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes with distributions of errors.

    Attributes
    ----------
    title : str
        What is above it.
    published, ours : mapping of str to numpy.ndarray
        The errors of the paper's series, and those of the series that are added.
    reach : float
        The axis goes from ``-reach`` to ``reach``, or from 0.
    gaussian : float or None
        Deviation of the Gaussian mechanism at the same budget, to be drawn beside them.
    """

    title: str
    published: Samples
    ours: Samples
    reach: float
    gaussian: float | None = None


def distributions(
    run: Run, name: str, caption: str, panels: Sequence[Panel], kind: Literal["density", "errors", "sizes"]
) -> None:
    """Add a figure: smoothed densities, or the share of errors (or of their sizes) up to each value."""
    figure = plots.new_figure(6.5 * len(panels) if len(panels) > 1 else 7, 4.5)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        points = np.linspace(0 if kind == "sizes" else -panel.reach, panel.reach, _POINTS)
        published = {label: _curve(sample, points, kind) for label, sample in panel.published.items()}
        ours = {label: _curve(sample, points, kind) for label, sample in panel.ours.items()}
        normal = None if panel.gaussian is None else _normal(points, panel.gaussian, kind)
        _draw(axes, points, published, ours, normal)
        axes.set_xlim(points[0], points[-1])
        # The Gaussian of Fig. 4 leaves the picture at the top, there as here; the other curves do not.
        top = max(float(np.max(curve)) for curve in (*published.values(), *ours.values()))
        axes.set_ylim(0, 1.05 * top if kind == "density" else 1.02)
        axes.ticklabel_format(axis="both", scilimits=(-3, 5))
        axes.set_xlabel(_ACROSS[kind])
        axes.set_ylabel("density" if kind == "density" else "proportion")
        _finish(axes, panel.title)
    run.figure(name, figure, caption)


def series(
    run: Run,
    name: str,
    caption: str,
    points: Sequence[float],
    published: Mapping[str, Sequence[float]],
    ours: Mapping[str, Sequence[float]],
    labels: tuple[str, str],
) -> None:
    """Add a figure of numbers over a parameter, both on logarithmic axes."""
    from matplotlib.ticker import LogLocator

    figure = plots.new_figure(7, 4.5)
    axes = figure.subplots()
    _draw(axes, points, published, ours, None)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(points, [f"{point:g}" for point in points], minor=False)
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    _finish(axes, "")
    run.figure(name, figure, caption)


def density(sample: Floats, points: Floats) -> Floats:
    """Return a Gaussian kernel density estimate by Scott's rule, which the paper's plots use.

    The sample is counted in bins far narrower than the kernel, so that a million values cost no more than a thousand.
    """
    bandwidth = float(np.std(sample, ddof=1)) * len(sample) ** -0.2
    edges = np.linspace(points[0] - 6 * bandwidth, points[-1] + 6 * bandwidth, _BINS + 1)
    weights, _ = np.histogram(sample, edges)
    centres = (edges[1:] + edges[:-1]) / 2
    kernel = np.exp(-0.5 * ((points[:, None] - centres[None, :]) / bandwidth) ** 2)
    estimate: Floats = kernel @ weights / (len(sample) * bandwidth * math.sqrt(2 * math.pi))
    return estimate


def _curve(sample: Floats, points: Floats, kind: Literal["density", "errors", "sizes"]) -> Floats:
    match kind:
        case "density":
            return density(sample, points)
        case "errors" | "sizes":
            ordered = np.sort(np.abs(sample) if kind == "sizes" else sample)
            return np.searchsorted(ordered, points, side="right") / len(ordered)
        case _:
            assert_never(kind)


def _normal(points: Floats, deviation: float, kind: Literal["density", "errors", "sizes"]) -> Floats:
    z = points / deviation
    match kind:
        case "density":
            height: Floats = np.exp(-0.5 * z**2) / (deviation * math.sqrt(2 * math.pi))
            return height
        case "errors":
            return np.asarray(ndtr(z))
        case "sizes":
            return np.asarray(2 * ndtr(z) - 1)
        case _:
            assert_never(kind)


def _draw(axes: Any, points: Any, published: Mapping[str, Any], ours: Mapping[str, Any], normal: Floats | None) -> None:
    """Draw the paper's series in colours and dashes, ours in black with markers: readable in grey."""
    few = len(points) <= 20
    for place, (label, curve) in enumerate(published.items()):
        style = {"linestyle": _DASHES[place % len(_DASHES)], "color": _COLOURS[place % len(_COLOURS)]}
        axes.plot(points, curve, linewidth=1.4, label=label, marker="x" if few else None, **style)
    if normal is not None:
        axes.plot(points, normal, linestyle=":", color="black", linewidth=1.8, label="Std. Gaussian")
    every = 1 if few else len(points) // 20
    for place, (label, curve) in enumerate(ours.items()):
        marks = {"marker": "os^"[place % 3], "markersize": 4, "markevery": (0 if few else place * every // 2, every)}
        fill = "black" if place == 0 else "white"
        axes.plot(points, curve, color="black", linewidth=0.9, label=label, markerfacecolor=fill, **marks)


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=9, loc="left")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
