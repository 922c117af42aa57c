"""The paper's figures, drawn again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsketch import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

STYLES = (("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"), ("v", "-"), ("x", "--"))
OURS = "#1f4e79"


def pairs(
    x: Sequence[float], found: Mapping[str, tuple[Sequence[float], Sequence[float]]], names: Sequence[str]
) -> Figure:
    """Draw two curves a setting: what the paper bounds by, and what is true."""
    figure = plots.new_figure(9, 4.6)
    axes = figure.subplots()
    for (name, curves), (marker, _) in zip(found.items(), STYLES, strict=False):
        for curve, what, colour, dash in zip(curves, names, ("black", OURS), ("-", "--"), strict=True):
            axes.plot(x, curve, dash, color=colour, marker=marker, markevery=3, markersize=5, label=f"{what}, {name}")
    axes.set(xlabel="p", ylabel="ratio of F_p between neighbours", xlim=(0, 1.02))
    axes.legend(frameon=False, fontsize=8, handlelength=3.5, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def ratios(x: Floats, curves: Mapping[float, Floats], *, log: bool) -> Figure:
    """Draw Figures 2 and 6: the ratio of two stable densities."""
    figure = plots.new_figure(8, 4.4)
    axes = figure.subplots()
    for (p, curve), (marker, dash) in zip(curves.items(), STYLES, strict=False):
        axes.plot(
            x, curve, dash, marker=marker, markevery=(len(x) // 20, len(x) // 8), color="black", label=f"p = {p:g}"
        )
    axes.axhline(1, color="0.7", linewidth=0.8)
    axes.set(xlabel="x", ylabel="density of scale 1 over density of scale 2", xlim=(x[0], x[-1]), ylim=(0, 2.1))
    if log:
        axes.set_xscale("log")
    axes.legend(frameon=False, handlelength=3.5)
    return figure


def budgets(x: Sequence[float], series: Mapping[str, Sequence[float]]) -> Figure:
    """Draw Figure 3: ε against p, on a logarithmic scale."""
    figure = plots.new_figure(8, 5)
    axes = figure.subplots()
    _lines(axes, x, series)
    axes.set(xlabel="p", ylabel="ε", yscale="log", xlim=(0, 1.02))
    axes.legend(frameon=False, fontsize=9, handlelength=3.5, loc="lower left")
    return figure


def by_size(sizes: Sequence[int], panels: Mapping[tuple[str, str], Mapping[float, Sequence[Floats]]]) -> Figure:
    """Draw Figure 4: median and quartiles of the error against the stream's length; a row of panels for each law."""
    figure = plots.new_figure(11, 7.5)
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, ((law, method), lines) in zip(grid.flat, panels.items(), strict=True):
        for i, ((p, runs), (marker, dash)) in enumerate(zip(lines.items(), STYLES, strict=False)):
            low, middle, high = np.quantile(np.array(runs), [0.25, 0.5, 0.75], axis=1)
            axes.errorbar(
                np.array(sizes) * 2 ** (0.08 * (i - 1.5)),
                middle,
                yerr=np.vstack([middle - low, high - middle]),
                marker=marker,
                linestyle=dash,
                capsize=2,
                linewidth=1.2,
                color=OURS if "dpsketch" in method else "black",
                label=f"p = {p:g}",
            )
        axes.set_title(f"{law} keys, {method}", fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, 1)
        axes.legend(frameon=False, handlelength=3.5, ncols=2)
    for axes in grid[1]:
        axes.set_xlabel("records")
    for axes in grid[:, 0]:
        axes.set_ylabel("relative error")
    return figure


def by_exponent(x: Sequence[float], series: Mapping[str, Sequence[float]]) -> Figure:
    """Draw Figure 5: the error against p."""
    figure = plots.new_figure(8, 4.4)
    axes = figure.subplots()
    _lines(axes, x, series)
    axes.set(xlabel="p", ylabel="relative error", xlim=(0, 1.02), ylim=(0, 1))
    axes.legend(frameon=False)
    return figure


def _lines(axes: Any, x: Sequence[float], series: Mapping[str, Sequence[float]]) -> None:
    """Draw series that differ in marker and dash, ours in colour."""
    for (name, y), (marker, dash) in zip(series.items(), STYLES, strict=False):
        colour = OURS if "dpsketch" in name else "black"
        axes.plot(x, y, marker=marker, linestyle=dash, color=colour, markersize=5, label=name)
