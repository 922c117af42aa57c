"""Pictures of what was measured."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpsketch import plots


def draw_ratios(rows: Sequence[tuple[str, float]], path: Path, across: str) -> None:
    """Draw ratios as bars from 1 on a logarithmic axis, in one colour above and another below."""
    figure = plots.new_figure(9, 1.1 + 0.3 * len(rows))
    axes = figure.subplots()
    places = range(len(rows) - 1, -1, -1)
    for place, (_, ratio) in zip(places, rows, strict=True):
        above = ratio >= 1
        axes.barh(place, ratio - 1, left=1, color="#9db8d2" if above else "#e3b7a0",
                  edgecolor="#1f4e79" if above else "#8a4b2a", linewidth=0.6, height=0.72)  # fmt: skip
        words = f"{ratio:,.0f}×" if ratio >= 9.95 else f"{ratio:.2g}×"
        axes.annotate(words, (ratio, place), (4 if above else -4, 0), textcoords="offset points",
                      ha="left" if above else "right", va="center", fontsize=8)  # fmt: skip
    axes.set_yticks(places, [label for label, _ in rows], fontsize=8)
    axes.set_xscale("log")
    ratios = [ratio for _, ratio in rows]
    axes.set_xlim(min(0.5, *ratios) / 5, max(2.0, *ratios) * 4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}×")
    axes.axvline(1, color="black", linewidth=0.9)
    _finish(axes, len(rows), across, path)


def draw_shares(rows: Sequence[tuple[str, float, float | None]], path: Path, across: str) -> None:
    """Draw shares of a limit as bars from 0, with a line at the limit and marks at goals: label, share and goal."""
    figure = plots.new_figure(9, 1.1 + 0.3 * len(rows))
    axes = figure.subplots()
    places = range(len(rows) - 1, -1, -1)
    axes.barh(places, [share for _, share, _ in rows], color="#9db8d2", edgecolor="#1f4e79", linewidth=0.6, height=0.72)
    for place, (_, share, goal) in zip(places, rows, strict=True):
        axes.annotate(f"{share:.0%}", (0, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
        if goal is not None:
            axes.plot([goal], [place], "|", color="#d1495b", markersize=15, markeredgewidth=2)
    axes.plot([], [], "|", color="#d1495b", markersize=10, markeredgewidth=2, label="goal")
    axes.legend(loc="lower right", fontsize=8)
    axes.set_yticks(places, [label for label, _, _ in rows], fontsize=8)
    axes.set_xlim(0, max(1.15, *(1.05 * share for _, share, _ in rows)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.axvline(1, color="black", linewidth=0.9)
    _finish(axes, len(rows), across, path)


def _finish(axes: Any, rows: int, across: str, path: Path) -> None:
    axes.set_ylim(-0.7, rows - 0.3)
    axes.set_xlabel(across)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    plots.save(axes.figure, path)


def draw_decoding(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the errors of each case on a logarithmic axis: the median, the former fit, decode, and the bound."""
    figure = plots.new_figure(9, 1.5 + 0.27 * len(rows))
    axes = figure.subplots()
    places = list(range(len(rows) - 1, -1, -1))
    marks = {"median": ("o", "#8a8a8a"), "fit": ("D", "#1f77b4"), "decode": ("s", "#d1495b")}
    names = {"median": "median", "fit": "least-squares fit", "decode": "decode"}
    for method, (marker, colour) in marks.items():
        values = [row["errors"][f"{method}, all"] for row in rows]
        axes.plot(values, places, marker, color=colour, markersize=6, label=names[method])
    bounds = [row["bound"] for row in rows]
    axes.plot(bounds, places, "k|", markersize=11, label="bound: noise of a histogram")
    axes.set_yticks(places, [f"{row['case']} ({row['seeds']})" for row in rows], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("root mean square error over all candidates (seeds in brackets)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.5 / (1.5 + 0.27 * len(rows)) - 0.04), ncols=4, fontsize=8)
    plots.save(figure, path)


def draw_growth(series: Sequence[dict[str, Any]], path: Path, note: str = "") -> None:
    """Draw one panel a quantity: seconds against what was varied, both logarithmic, and the slope of the last half."""
    panels: dict[str, list[dict[str, Any]]] = {}
    for each in series:
        panels.setdefault(each["label"], []).append(each)
    columns = 3
    figure = plots.new_figure(10, 3.1 * -(-len(panels) // columns))
    grid = figure.subplots(-(-len(panels) // columns), columns, squeeze=False).ravel()
    for axes, (label, lines) in zip(grid, panels.items(), strict=False):
        for marker, each in zip("osD^v", lines, strict=False):
            values, seconds = each["values"], each["seconds"]
            name = each["what"].rpartition(", ")[2]
            axes.plot(values, seconds, marker=marker, label=f"{name}: slope {slope(values, seconds):.2f}")
        axes.set_xscale("log", base=2 if max(values) / min(values) < 100 else 10)
        axes.set_yscale("log")
        axes.margins(y=0.25)
        axes.set_xlabel(label)
        axes.set_ylabel("seconds an update")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    if note:
        figure.suptitle("\n".join(textwrap.wrap(note, 120)), fontsize=8, color="#8a4b2a")
    plots.save(figure, path)


def slope(values: Sequence[float], seconds: Sequence[float]) -> float:
    """Return by which power of what was varied time grows: the least-squares slope of the upper half, both logarithmic.

    Examples
    --------
    >>> slope([1, 10, 100, 1000], [5.0, 5.0, 50.0, 500.0])
    1.0
    """
    first = min(len(values) - 2, len(values) // 2)
    x, y = ([math.log(each) for each in column[first:]] for column in (values, seconds))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((each - mean_x) ** 2 for each in x)
    return round(sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread, 6)
