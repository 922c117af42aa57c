"""Few quantiles, named beforehand: exact counts on a public grid, released by the recursive exponential mechanism.

A tree of intervals answers every range and quantile, and pays for all of them. Whoever knows which quantiles will be
asked pays for those alone: among 10⁵ values at ε = 1 the median is off by less than one rank instead of by twenty.
"""

from dpsketch.sketches.quantiles.private import PrivateQuantiles
from dpsketch.sketches.quantiles.sketch import QuantileSketch
from dpsketch.sketches.quantiles.spec import QuantileSpec

__all__ = ["PrivateQuantiles", "QuantileSketch", "QuantileSpec"]
