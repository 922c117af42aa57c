"""Private CountSketch: counts over a key space too large to list.

A table of ``rows`` × ``width`` integers; row i adds a record of key x, with sign s_i(x), to cell h_i(x). Released with
noise, a row's signed cell is an unbiased estimate of x's count, and the rows together a robust one.

References
----------
Pagh and Thorup, *Improved Utility Analysis of Private CountSketch* (2022). Changed here: noise is integer and exact,
the sensitivity under replacement is 2w√k (the two records may share every cell), and the estimate is a location
estimate with known noise scale instead of the plain median, which remains as ``estimator="median"``.
"""

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch.laws.shares import Share
    from dpsketch.sketches.countsketch.private import Estimator, PrivateCountSketch
    from dpsketch.sketches.countsketch.sketch import (
        ContinualCountSketch,
        CountSketch,
        PanPrivateCountSketch,
        merge_releases,
    )
    from dpsketch.sketches.countsketch.spec import CountSketchSpec
else:
    __getattr__ = lazy.names(
        __name__, private="Estimator PrivateCountSketch", spec="CountSketchSpec",
        sketch="ContinualCountSketch CountSketch PanPrivateCountSketch Share merge_releases",
    )  # fmt: skip

__all__ = [
    "ContinualCountSketch",
    "CountSketch",
    "CountSketchSpec",
    "Estimator",
    "PanPrivateCountSketch",
    "PrivateCountSketch",
    "Share",
    "merge_releases",
]
