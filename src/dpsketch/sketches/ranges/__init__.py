"""Ranges and quantiles over ordered whole numbers: a tree of intervals, each counted with noise.

Every record is counted at each level of a tree over the domain: at the root, in one of 4 parts of the domain, in one of
16, and so on down to its own value. Levels of at most 2¹⁶ parts have a counter for each; deeper ones are CountSketches.
A range is a sum of few parts of every size, so its error grows with the number of levels and not with its length; and
because each part is also the sum of its own parts, least squares takes the best of all such sums.

References
----------
Hay, Rastogi, Miklau and Suciu (2010), consistency in trees of private counts. Qardaji, Yang and Li, *Understanding
hierarchical methods for differentially private histograms* (2013), the choice of the fan-out. Zhao et al. (2022),
quantiles from levels of private CountSketches. Changed here: noise is integer and exact; the root and the shallow
levels are exact trees; sketched levels are decoded jointly from above; least squares runs along the paths asked for.
"""

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch.sketches.ranges.sketch import PrivateRanges, Quantile, RangeSketch
    from dpsketch.sketches.ranges.spec import RangeSketchSpec, RankError
else:
    __getattr__ = lazy.names(__name__, sketch="PrivateRanges Quantile RangeSketch", spec="RangeSketchSpec RankError")

__all__ = ["PrivateRanges", "Quantile", "RangeSketch", "RangeSketchSpec", "RankError"]
