"""The paper's figures: lines on logarithmic axes, rivals dashed, ours solid and thick; each with its own marker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsketch import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["LOOKS", "Panel", "bars", "lines"]

MEAN, LEAST, OLH, SVIM = "Multi-PCMS-Mean", "Multi-PCMS-Min", "PS-OLH", "SVIM"
PRIVSKETCH, UNSAMPLED = "PrivSketch (not private)", "PrivSketch-noSmp (not private)"
HASHING, BIT, DIRECT = "dpsketch: SubsetHashing", "dpsketch: SampledBit", "dpsketch: SubsetDirect"

LOOKS: dict[str, dict[str, Any]] = {
    MEAN: {"marker": "^", "linestyle": "--", "color": "#7f7f7f"},
    LEAST: {"marker": "v", "linestyle": ":", "color": "#7f7f7f"},
    OLH: {"marker": "s", "linestyle": "--", "color": "#b8860b"},
    SVIM: {"marker": "D", "linestyle": "--", "color": "#b8860b"},
    UNSAMPLED: {"marker": "x", "linestyle": ":", "color": "#b22222"},
    PRIVSKETCH: {"marker": "o", "linestyle": "-.", "color": "#b22222", "markerfacecolor": "white"},
    HASHING: {"marker": "*", "linestyle": "-", "color": "#1f4e79", "linewidth": 2.4, "markersize": 10},
    BIT: {"marker": "P", "linestyle": "-", "color": "#6a9bcc"},
    DIRECT: {"marker": "d", "linestyle": "-", "color": "#4b8b6f"},
}


class Panel(NamedTuple):
    """One set of axes: ``series`` maps a protocol to its points {x: y}."""

    title: str
    across: str
    up: str
    series: Mapping[str, Mapping[float, float]]
    log: str = "xy"


def lines(panels: Sequence[Panel], *, columns: int = 3, wide: bool = False) -> Figure:
    """Draw panels side by side under one legend."""
    rows = -(-len(panels) // columns)
    across = min(columns, len(panels))
    figure = plots.new_figure(8 if wide else 3.9 * across + 0.4, 3.3 * rows + 0.9)
    grid = figure.subplots(rows, across, squeeze=False)
    handles: dict[str, Any] = {}
    for axes, panel in zip(grid.flat, panels, strict=False):
        for name in sorted(panel.series, key=list(LOOKS).index):
            points = panel.series[name]
            [handles[name]] = axes.plot(list(points), list(points.values()), **LOOKS[name])
        _axes(axes, panel)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    ordered = [name for name in LOOKS if name in handles]
    figure.legend(
        [handles[name] for name in ordered], ordered, loc="outside lower center", ncols=3 if wide or across > 1 else 1
    )
    return figure


def _axes(axes: Any, panel: Panel) -> None:
    ticks = sorted({x for points in panel.series.values() for x in points})
    if "x" in panel.log:
        axes.set_xscale("log", base=2)
    if "y" in panel.log:
        axes.set_yscale("log")
    axes.set_xticks(ticks, [f"{x:,.3g}" if x < 1000 else f"{x / 1000:g}k" for x in ticks])
    axes.minorticks_off()
    if panel.up == "NCR":
        axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)
    axes.set_title(panel.title, fontsize=10, loc="left")
    axes.grid(alpha=0.3)


def bars(left: Mapping[str, float], right: Mapping[str, float], titles: tuple[str, str]) -> Figure:
    """Draw two panels of horizontal bars on logarithmic axes, each with its number."""
    figure = plots.new_figure(10.5, 0.9 + 0.38 * max(len(left), len(right)))
    for axes, values, title in zip(figure.subplots(1, 2), (left, right), titles, strict=True):
        names = list(values)[::-1]
        found = axes.barh(names, [values[name] for name in names], color="#9db8d2", edgecolor="#1f4e79", log=True)
        axes.bar_label(found, [f" {values[name]:.2g}" for name in names], fontsize=8)
        axes.set_xlim(min(values.values()) / 3, max(values.values()) * 6)
        axes.set_title(title, fontsize=10, loc="left")
        axes.tick_params(axis="y", labelsize=8)
        axes.minorticks_off()
    return figure
