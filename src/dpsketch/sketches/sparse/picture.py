"""A picture of a released sparse histogram: how many keys are how large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpsketch import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["sizes"]


def sizes(values: npt.NDArray[np.float64], keys: npt.NDArray[np.float64], title: str) -> Figure:
    """Draw about how many keys have at least each value."""
    figure = plots.new_figure()
    axes = figure.subplots()
    axes.step(values, keys, where="mid", color="#1f4e79")
    axes.set_xlabel("value")
    axes.set_ylabel("about so many keys have at least this value")
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=9, loc="left", wrap=True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
