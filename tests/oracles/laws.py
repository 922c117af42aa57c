"""The probabilities of integer noise, from the definition of its law."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.truncated import Law, TruncatedLaplace


def masses(law: Law, reach: int) -> npt.NDArray[np.float64]:
    """P(Z = z) for z = −reach … reach."""
    z = np.arange(-reach, reach + 1)
    match law:
        case RoundedGaussian(sigma):
            return np.diff([math.erf((x - 0.5) / sigma / math.sqrt(2)) / 2 for x in range(-reach, reach + 2)])
        case DiscreteLaplace(epsilon, sensitivity):
            weights = np.exp(-epsilon / sensitivity * np.abs(z))
        case TruncatedLaplace(rate, bound):
            weights = np.where(np.abs(z) <= bound, np.exp(-rate * np.abs(z)), 0.0)
    found: npt.NDArray[np.float64] = weights / weights.sum()
    return found
