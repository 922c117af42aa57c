"""Pictures of what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpsketch import plots


def draw_ratios(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw every ratio as a bar on a logarithmic axis, with a mark at its goal."""
    figure = plots.new_figure(11, 1 + 0.19 * len(rows))
    axes = figure.subplots()
    places = range(len(rows) - 1, -1, -1)
    axes.barh(places, [row["ratio"] for row in rows], left=1e-9, color="#9db8d2", edgecolor="#1f4e79", linewidth=0.5)
    goals = [(place, row["reach"]) for place, row in zip(places, rows, strict=True) if "reach" in row]
    axes.plot([goal for _, goal in goals], [place for place, _ in goals], "k|", markersize=9, label="goal")
    axes.set_yticks(places, [f"{row['benchmark']}: {row['name']}" for row in rows], fontsize=6)
    axes.set_xscale("log")
    axes.set_xlim(min(0.1, *(row["ratio"] / 2 for row in rows)), 2 * max(row["ratio"] for row in rows))
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_ylim(-1, len(rows))
    axes.set_xlabel("ours against theirs; right of 1 is in our favour")
    axes.legend(loc="lower right")
    axes.grid(axis="x", alpha=0.3)
    plots.save(figure, path)


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


def draw_growth(
    series: Mapping[str, tuple[str, Sequence[float], Mapping[str, Sequence[float]]]], path: Path, unit: str
) -> None:
    """Draw one panel a quantity: what was varied, its values, and a line a kind of work."""
    figure = plots.new_figure(4 * len(series), 4)
    panels = figure.subplots(1, len(series), squeeze=False)[0]
    for axes, (title, (label, values, lines)) in zip(panels, series.items(), strict=True):
        for marker, (name, rates) in zip("osD^v", lines.items(), strict=False):
            axes.plot(values, rates, marker=marker, label=name)
        axes.set_xscale("log", base=2 if max(values) / min(values) < 100 else 10)
        axes.set_yscale("log")
        axes.set_title(title)
        axes.set_xlabel(label)
        axes.set_ylabel(unit)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    plots.save(figure, path)
