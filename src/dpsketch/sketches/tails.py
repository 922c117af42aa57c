"""The tails of sums of noise: how much wider an interval is where few Laplace draws make up an error.

A sum of many draws is nearly normal. One Laplace draw is not: 1.96 standard deviations hold with 93.8%, not 95%. What
tells between the two is the fourth cumulant κ₄, which adds up as the variance does.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["widening"]

Excess = TypeVar("Excess", float, npt.NDArray[np.float64])


def widening(quantile: float, excess: Excess) -> Excess:
    """Return what to multiply the normal law's quantile by, for an error of the excess kurtosis κ₄/variance².

    Accuracy
    --------
    Cornish and Fisher's term, where it widens. For a single Laplace draw 95% are within 2.118 standard deviations, and
    this makes 2.166 of 1.96. That of a whole draw whose deviation is below 1 is no such law: its interval needs half a
    step more, or ends at whole numbers.
    """
    return 1 + max(0.0, (quantile**2 - 3) / 24) * excess
