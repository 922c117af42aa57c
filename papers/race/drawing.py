"""Errors as curves that can be told apart without colour, and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpsketch import plots
from dpsketch.reproduce import Run

from .learning import MANY_ROWS
from .measuring import DEFAULT, GAUSSIAN, NONPRIVATE, ONE_ROW, PUBLISHED, PURE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curves = Mapping[str, Sequence[float]]

_INK, _GREY, _RED = "#1f4e79", "#777777", "#b22222"
_STYLES: dict[str, dict[str, Any]] = {
    NONPRIVATE: {"color": _GREY, "linestyle": ":", "marker": None},
    PUBLISHED: {"color": _RED, "linestyle": "--", "marker": "s"},
    MANY_ROWS: {"color": _RED, "linestyle": ":", "marker": "s", "markerfacecolor": "white"},
    GAUSSIAN: {"color": _RED, "linestyle": "-.", "marker": "^", "markerfacecolor": "white"},
    ONE_ROW: {"color": _INK, "linestyle": ":", "marker": "v", "markerfacecolor": "white"},
    PURE: {"color": _INK, "linestyle": "--", "marker": "o", "markerfacecolor": "white"},
    DEFAULT: {"color": _INK, "linestyle": "-", "marker": "o", "linewidth": 2.2},
    "Bernstein, as published (δ = 0)": {"color": "black", "linestyle": "--", "marker": "x"},
    "Bernstein, sharp bound (δ = 0)": {"color": "black", "linestyle": ":", "marker": "+", "markersize": 8},
    "Bernstein, sharp bound (δ > 0)": {"color": "black", "linestyle": "-", "marker": "D", "markersize": 4},
}


def show(
    run: Run,
    name: str,
    panels: Mapping[str, tuple[Sequence[float], Curves]],
    across: str,
    caption: str,
    up: str = "relative error of a kernel sum (RMSE)",
    *,
    log: bool = True,
) -> None:
    """Put a figure of curves into the report, and a table for each of its panels."""
    run.figure(name, curves(panels, across, up, log=log), caption)
    for title, (x, lines) in panels.items():
        head = [f"{title}; {across} =", *(f"{value:g}" for value in x)]
        run.table(head, [[series, *values] for series, values in lines.items()])


def curves(
    panels: Mapping[str, tuple[Sequence[float], Curves]],
    across: str,
    up: str,
    *,
    log: bool,
) -> Figure:
    """Draw one panel of curves for each title, with one legend; axes are logarithmic, the upper one if ``log``."""
    figure = plots.new_figure(5.2 * len(panels) if len(panels) > 1 else 8, 5.6)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for place, (title, (x, lines)) in zip(axes, panels.items(), strict=True):
        for name, values in lines.items():
            place.plot(x, values, label=name, **{"markersize": 5, **_STYLES[name]})
        place.set_xscale("log")
        if log:
            place.set_yscale("log")
        place.set_xticks(x, [f"{value:g}" for value in x])
        place.minorticks_off()
        place.set_xlabel(across)
        place.set_title(title, fontsize=9, loc="left")
        place.grid(visible=True, alpha=0.3)
        for side in ("top", "right"):
            place.spines[side].set_visible(False)
    axes[0].set_ylabel(up)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure
