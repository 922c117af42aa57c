"""The paper's figures, drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsketch import plots

from .rivals import laplace_density

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

STYLES = (("o", "-"), ("s", "--"), ("^", ":"), ("D", "-."), ("v", "-"), ("x", "--"))


def walk(bits: Sequence[int], estimate: float) -> Figure:
    """Draw the partial sums of Figure 2 and where they peak."""
    figure = plots.new_figure(6, 3.2)
    axes = figure.subplots()
    heights = np.concatenate([[0], np.cumsum(2 * np.array(bits) - 1)])
    peaks = np.flatnonzero(heights == heights.max())
    axes.plot(np.arange(len(heights)), heights, "k-o", markersize=4, label="ones minus zeros so far")
    axes.plot(peaks, heights[peaks], "o", markersize=12, fillstyle="none", color="black", label="peaks")
    axes.axvline(estimate, linestyle="--", color="#1f4e79", label=f"estimate {estimate:g}")
    axes.set(xlabel="index n", ylabel="f(n)", ylim=(-0.3, heights.max() + 0.6))
    axes.legend(loc="lower right", frameon=False)
    return figure


def error_law(published: Floats, ours: Floats, reach: int) -> Figure:
    """Draw Figure 3: the errors' density beside two Laplace laws, on a plain and on a logarithmic scale."""
    figure = plots.new_figure(11, 4.5)
    edges = np.arange(-reach, reach + 1.5, 1.5)
    middle = (edges[1:] + edges[:-1]) / 2
    fine = np.linspace(-reach, reach, 801)
    limit = float(np.quantile(np.abs(published), 0.9))
    for axes, scale in zip(figure.subplots(1, 2), ("linear", "log"), strict=True):
        for errors, style, name in (
            (published, {"color": "black", "linewidth": 1.6}, "ALP as published"),
            (ours, {"color": "#1f4e79", "marker": "o", "markersize": 3.5, "linewidth": 1}, "dpsketch's default"),
        ):
            density = np.histogram(errors, edges)[0] / (len(errors) * 1.5)
            axes.plot(middle, np.where(density > 0, density, np.nan), label=name, **style)
        for width, dash in ((1, ":"), (6, "--")):
            axes.plot(fine, laplace_density(fine, width), dash, color="0.35", label=f"Laplace, scale {width}")
        for side in (-limit, limit):
            axes.axvline(side, color="0.6", linewidth=1, label="90% of the published errors" if side > 0 else None)
        axes.set(xlabel="error of an estimate", ylabel="density", yscale=scale, xlim=(-reach, reach))
        axes.set_ylim(*((0, 0.3) if scale == "linear" else (1e-5, 1)))
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    return figure


def sweeps(panels: Sequence[tuple[str, Sequence[float], dict[str, Sequence[float]]]], names: dict[str, str]) -> Figure:
    """Draw the mean absolute error against one parameter a panel."""
    figure = plots.new_figure(11, 4)
    for axes, (name, x, series) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        lines(axes, x, {names[each]: errors for each, errors in series.items()})
        axes.set(xlabel=name, ylabel="mean absolute error", ylim=(0, None))
        axes.legend(frameon=False)
        if x[0] < 0.5:
            axes.set_xscale("log")
            axes.set_xticks(x, [f"{value:g}" for value in x])
            axes.minorticks_off()
    return figure


def by_value(values: Sequence[float], found: dict[str, tuple[Sequence[float], float | None]]) -> Figure:
    """Draw the mean absolute error against a key's true value; what is found also tells the space, not drawn."""
    figure = plots.new_figure(9, 4.8)
    axes = figure.subplots()
    lines(axes, values, {name: errors for name, (errors, _) in found.items()})
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set(xlabel="true value of a key", ylabel="mean absolute error", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8, handlelength=3.5, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def lines(axes: Any, x: Sequence[float], series: dict[str, Sequence[float]]) -> None:
    """Draw series that differ in marker and dash, ours in colour."""
    for (name, y), (marker, dash) in zip(series.items(), STYLES, strict=False):
        colour = "#1f4e79" if "dpsketch" in name else "black"
        axes.plot(x, y, marker=marker, linestyle=dash, color=colour, markersize=5, label=name)
