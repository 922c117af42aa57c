"""Pictures of releases. Matplotlib is loaded when one is drawn, with a backend that needs no screen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpsketch.arrays import Floats
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

__all__ = ["audits", "bars", "check_ending", "counters", "curve", "heat_map", "new_figure", "save"]


_INK = "#1f4e79"
_LIGHT = "#9db8d2"
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


class Intervals(Protocol):
    """What bars are drawn of: keys with their estimates and the ends of their intervals."""

    @property
    def key(self) -> Sequence[Any]:
        """The names of the bars."""

    @property
    def value(self) -> Floats:
        """The lengths of the bars."""

    @property
    def low(self) -> Floats:
        """The lower ends of their intervals."""

    @property
    def high(self) -> Floats:
        """The upper ends of their intervals."""

    @property
    def confidence(self) -> float:
        """The probability with which the intervals hold."""


def new_figure(width: float = 8, height: float = 5) -> Figure:
    """Start a figure of our size and margins."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def check_ending(path: str | Path) -> None:
    """Refuse a path whose ending names no picture format, before anything is computed for it."""
    suffix = Path(path).suffix
    if suffix.lstrip(".").lower() not in new_figure().canvas.get_supported_filetypes():
        raise InvalidInput(f"cannot draw into a file ending in {suffix or 'nothing'!r}; use .png, .svg or .pdf.")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure; the format follows the file's ending."""
    check_ending(path)
    figure.savefig(Path(path))


def bars(estimates: Intervals, title: str, across: str | None = None) -> Figure:
    """Draw estimates as horizontal bars with their intervals, the first on top; numeric keys in numeric order.

    ``across`` names the axis; without it, the intervals are said to hold for all at once.
    """
    figure = new_figure(8, 1.2 + 0.28 * max(4, len(estimates.value)))
    axes = figure.subplots()
    order = _numeric_order(estimates.key)
    value, low, high = (side[order] for side in (estimates.value, estimates.low, estimates.high))
    places = np.arange(len(value))[::-1]
    # An end that is infinite or missing has no place on the axis: its whisker is left out. A rounding error may put an
    # end on the wrong side of the value.
    below, above = (np.where(np.isfinite(reach), np.maximum(reach, 0.0), 0.0) for reach in (value - low, high - value))
    axes.barh(places, value, color=(_LIGHT, 0.6), edgecolor=_INK, height=0.7)
    edge = axes.spines["left"].get_edgecolor()  # seen on a dark ground too, where a style asks for one
    axes.errorbar(value, places, xerr=np.vstack([below, above]), fmt="none", ecolor=edge, capsize=3)
    axes.set_yticks(places, [_label(estimates.key[at]) for at in order])
    axes.set_ylim(-0.8, max(1, len(places)) - 0.2)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    together = f"estimated count, with {estimates.confidence:.0%} intervals that hold for all at once"
    axes.set_xlabel(together if across is None else _plain(across))
    axes.axvline(0, color=edge, linewidth=0.8)
    _titles(axes, title)
    return figure


def counters(table: Sequence[int] | np.ndarray[Any, Any], noise_scale: float, title: str) -> Figure:
    """Draw the spread of a release's counters beside that of its noise alone."""
    figure = new_figure()
    axes = figure.subplots()
    values = np.abs(np.asarray(table, dtype=np.float64)).ravel()
    ordered = np.sort(values)
    share = 1 - np.arange(len(ordered)) / len(ordered)
    axes.plot(np.maximum(ordered, 1e-1), share, color=_INK, label="counters of the release")
    from scipy.special import ndtr

    sizes = np.geomspace(0.1, max(10.0, ordered[-1]), 400)
    tails = 2 * ndtr(-sizes / noise_scale)
    axes.plot(sizes, tails, color="black", linestyle="--", label="noise alone")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(0.5 / len(ordered), 1.5)
    axes.set_xlabel("size of a counter")
    axes.set_ylabel("share of counters at least as large")
    axes.legend(frameon=False)
    _titles(axes, title)
    return figure


def curve(
    x: Floats, value: Floats, low: Floats, high: Floats, across: str, up: str, title: str, *, log: bool = False
) -> Figure:
    """Draw values along a line, with the band of their intervals."""
    figure = new_figure()
    axes = figure.subplots()
    axes.fill_between(x, low, high, color=_LIGHT, alpha=0.6, linewidth=0, label="95% interval")
    axes.plot(x, value, color=_INK, marker="o" if len(x) <= 20 else None, label="estimate")
    if log and np.all(low > 0):
        axes.set_yscale("log")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend(frameon=False)
    _titles(axes, title)
    return figure


def heat_map(
    value: Floats,
    bounds: tuple[tuple[float, float], tuple[float, float]],
    names: tuple[str, str],
    title: str,
) -> Figure:
    """Draw a density over a rectangle; negative estimates, which are noise, are drawn as nothing."""
    figure = new_figure(7, 6)
    axes = figure.subplots()
    shown = axes.imshow(
        np.maximum(value, 0), origin="lower", extent=(*bounds[0], *bounds[1]), aspect="auto", cmap="Blues"
    )
    figure.colorbar(shown, ax=axes, label="density")
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    _titles(axes, title)
    return figure


def audits(names: Sequence[str], claimed: Sequence[float], audited: Sequence[float], title: str) -> Figure:
    """Draw the claimed ε of each mechanism and the lower bound that an audit found; one beyond its claim is red."""
    figure = new_figure(8, 1.2 + 0.24 * max(4, len(names)))
    axes = figure.subplots()
    places = np.arange(len(names))[::-1]
    colours = ["#b22222" if found > claim else _INK for found, claim in zip(audited, claimed, strict=True)]
    axes.barh(places, claimed, color=_LIGHT, height=0.7, label="claimed ε")
    axes.scatter(audited, places, color=colours, s=18, zorder=3, label="audited lower bound")
    axes.set_yticks(places, [_label(name) for name in names])
    axes.set_xlabel("ε")
    axes.legend(frameon=False, loc="best")
    _titles(axes, title)
    return figure


def _numeric_order(keys: Sequence[Any]) -> list[int]:
    """Return the places of keys in numeric order if all are numbers or the text of one, else in the order given."""
    places = range(len(keys))
    if not all(isinstance(key, int | float) or (isinstance(key, str) and _NUMBER.fullmatch(key)) for key in keys):
        return list(places)
    return sorted(places, key=lambda at: float(keys[at]))


def _label(key: Any) -> str:
    text = str(key)
    return _plain(text if len(text) <= 32 else text[:31] + "…")


def _plain(text: str) -> str:
    """Return a text that Matplotlib writes as it is: between two dollars it would read a formula."""
    return text.replace("$", r"\$")


def _titles(axes: Any, title: str) -> None:
    axes.set_title(_plain(title), fontsize=9, loc="left", wrap=True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
