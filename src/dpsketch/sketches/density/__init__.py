"""Kernel densities of private points: RACE, released with noise.

A table of ``rows`` × ``width`` integers; row i adds a point to the cell h_i(x), where h_i is drawn from a family that
puts two points into one cell with probability equal to their similarity. So the cell of a query point holds, on
average, the sum of its similarities to all records, and the mean over rows is an unbiased estimate of that sum.

References
----------
Coleman and Shrivastava, *A One-Pass Distributed and Private Sketch for Kernel Sums with Applications to Machine
Learning at Scale* (CCS 2021). Changed here: noise is integer and exact instead of floored, which would bias every
counter by −½; Gaussian noise removes the trade-off in the number of rows; directions are stratified; collisions of a
rehash are subtracted; classes are compared by kernel sums, so that no class size is spent.
"""

from dpsketch.sketches.density.classifier import DensityClassifier
from dpsketch.sketches.density.sketch import Curve, DensityEstimator, DensityGrid, DensitySketch, PrivateDensity
from dpsketch.sketches.density.spec import DensitySpec, best_rows, default_width

__all__ = [
    "Curve",
    "DensityClassifier",
    "DensityEstimator",
    "DensityGrid",
    "DensitySketch",
    "DensitySpec",
    "PrivateDensity",
    "best_rows",
    "default_width",
]
