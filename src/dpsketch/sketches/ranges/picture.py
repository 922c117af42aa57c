"""A picture of a released RangeSketch: how many records have at most each value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpsketch import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.sketches.ranges.private import PrivateRanges

__all__ = ["cumulative"]


def cumulative(release: PrivateRanges, points: int, confidence: float) -> Figure:
    """Draw the cumulative curve from the first to the last percent of the records, and a little beyond."""
    start, end = release.spec.start, release.spec.domain.end
    first, last = (one.value for one in release.quantiles([0.01, 0.99]))
    margin = max(1, (last - first) // 10)
    low, high = max(start, first - margin), min(end, last + margin)
    values = sorted({low + (high - low) * i // (points - 1) for i in range(points)})
    found = release.ranks(values, confidence=confidence)
    figure = plots.new_figure()
    axes = figure.subplots()
    places = np.array(values, dtype=np.float64)
    axes.fill_between(places, found.low, found.high, color="#9db8d2", label=f"{confidence:.0%} interval at each value")
    axes.plot(places, found.value, color="#1f4e79", label="records with at most this value")
    axes.set_xlabel("value")
    axes.set_ylabel("records")
    axes.legend(frameon=False, loc="upper left")
    axes.set_title(release.title("cumulative counts"), fontsize=9, loc="left", wrap=True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
