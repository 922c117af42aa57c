"""Share one budget among the parts of a sketch that are released together."""

from __future__ import annotations

import math
from typing import assert_never

from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.sketches.specs import Sensitivity

__all__ = ["part_noise"]

# A trillionth more than needed outweighs every rounding here and in the sum of the shares.
_MARGIN = 1 + 1e-12


def part_noise(whole: Noise, bound: Sensitivity, share: float) -> Noise:
    """Return the noise of a part that gets a share of the budget.

    Parameters
    ----------
    whole : Noise
        The noise that the whole budget asks for at sensitivity 1.
    bound : Sensitivity
        How far one unit moves the part.
    share : float
        The part's share of μ² for Gaussian noise, of ε for Laplace noise.

    Privacy
    -------
    Gaussian noise of scale σⱼ on parts of L2 sensitivity Δⱼ is one Gaussian mechanism with μ² = Σ Δⱼ²/σⱼ²; Laplace
    noise on parts costs the sum of their εs. Shares that sum to at most 1 therefore cost at most the whole.

    Examples
    --------
    >>> part_noise(RoundedGaussian(4.0), Sensitivity(3, 3.0), 1 / 4).variance > (2 * 3 * 4.0) ** 2
    True
    """
    match whole:
        case RoundedGaussian(sigma):
            return RoundedGaussian(sigma * bound.l2 / math.sqrt(share) * _MARGIN)
        case DiscreteLaplace(epsilon):
            return DiscreteLaplace(epsilon * share / _MARGIN, bound.l1)
        case _:
            assert_never(whole)
