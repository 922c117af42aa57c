"""Lower bounds on ε where the law of the noise is known: by what one unit moves, and by the noise that was seen.

A release that adds noise shows a table plus draws. What an attacker gains from a pair of neighbours follows from how
far the two tables lie apart and from the noise; the first is exact, the second is measured on releases, jointly with
everything else that was published in the same release and in the one before it. So noise that is too small, noise that
two parts share and noise that two releases share all show, and none of the library's own sensitivities is used.

**Gaussian noise.** The best linear attacker has μ² = vᵀΣ⁻¹v, with v what the unit moves (0 where it moves nothing, as
in the release before it came) and Σ the covariance of the noise. With the sample covariance S of n runs of d numbers,
n·(vᵀΣ⁻¹v)/(vᵀS⁻¹v) has the χ² law of n − d + 1 degrees of freedom for noise of mean zero (Muirhead 1982, Theorem
3.2.12), whence a lower bound on μ, and on ε at any δ.

**Laplace noise.** What is left of a number's noise after a regression on all others has the scale b; the loss is
Σ |v|/b. Each b follows from the mean size of n draws, whose errors are independent, so that those of the losses add in
squares; z of them below the sum lies the bound that a normal variable passes as rarely as z.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpsketch.accounting import gaussian_epsilon
from dpsketch.arrays import Floats

__all__ = ["gaussian_bound", "laplace_bound", "least_spread", "own_noise", "seen_numbers"]

_MOST_MOVED = 40
_MOST_BESIDE = 8


def seen_numbers(noise: Floats, moved: Floats) -> tuple[Floats, Floats]:
    """Choose the numbers that the attacker looks at, and pair each run with the one before it.

    Parameters
    ----------
    noise : numpy.ndarray
        The noise of each run (rows), number by number.
    moved : numpy.ndarray
        By how much the unit moves each number.

    Returns
    -------
    seen, shift
        The noise of what is looked at, in pairs of runs, the release before the unit came last; and how far each of
        these numbers is moved.
    """
    size = np.abs(moved)
    loud = np.argsort(-size, kind="stable")[: min(_MOST_MOVED, int(np.count_nonzero(size)))]
    silent = np.flatnonzero(size == 0)
    beside = silent[:: max(1, len(silent) // _MOST_BESIDE)][:_MOST_BESIDE]
    used = np.concatenate([loud, beside])
    pairs = len(noise) // 2
    before, after = noise[: 2 * pairs : 2, used], noise[1 : 2 * pairs : 2, used]
    return np.concatenate([after, before], axis=1), np.concatenate([moved[used], np.zeros(len(used))])


def gaussian_bound(seen: Floats, shift: Floats, delta: float, confidence: float) -> float:
    """Bound ε at ``delta`` from below for Gaussian noise."""
    from scipy.special import chdtri

    runs, numbers = seen.shape
    if not np.any(shift):
        return 0.0
    # Noise that is the same everywhere leaves a covariance without an inverse: then something shows without noise.
    covariance = seen.T @ seen / runs
    loudest = float(np.trace(covariance)) / numbers
    if float(np.linalg.eigvalsh(covariance)[0]) <= 1e-9 * loudest:
        covariance += np.eye(numbers) * 1e-9 * max(loudest, 1e-12)
    square = float(shift @ np.linalg.solve(covariance, shift))
    least = float(chdtri(runs - numbers + 1, confidence)) / runs
    return float(gaussian_epsilon(math.sqrt(square * least), delta)) if square < 1e12 else math.inf


def own_noise(seen: Floats, places: npt.NDArray[np.intp]) -> Floats:
    """Return what a regression on all other numbers leaves of the noise of some."""
    runs, numbers = seen.shape
    covariance = seen.T @ seen / runs + np.eye(numbers) * 1e-9
    precision = np.linalg.inv(covariance)
    # A regression on so many numbers takes that much off by chance.
    left: Floats = (seen @ precision)[:, places] / np.diag(precision)[places]
    return left * math.sqrt(runs / max(1, runs - numbers))


def laplace_bound(seen: Floats, shift: Floats, confidence: float) -> float:
    """Bound ε from below for Laplace noise."""
    from scipy.special import ndtri

    places = np.flatnonzero(shift)
    if not len(places):
        return 0.0
    sizes = np.abs(own_noise(seen, places))
    mean, steps = np.maximum(sizes.mean(axis=0), 1e-12), np.abs(shift[places])
    # E|Z| = 1/sinh(1/b) for discrete Laplace noise of scale b; the losses of numbers with noise of their own add.
    found = float(np.sum(steps * np.arcsinh(1 / mean)))
    slopes = steps / (mean * np.sqrt(1 + mean**2))
    error = float(np.linalg.norm(slopes * sizes.std(axis=0))) / math.sqrt(len(seen))
    return max(0.0, found - float(ndtri(confidence)) * error)


def least_spread(law: Literal["gaussian", "laplace"], noise: Floats, deviation: float, confidence: float) -> float:
    """Return the largest share of a stated standard deviation that the noise of a part may have, by all its draws.

    Squares of Gaussian draws add up to a χ² variable; the sizes of Laplace draws have a mean whose error is normal.
    """
    from scipy.special import chdtri, ndtri

    draws = noise.size
    if law == "gaussian":
        square = float(np.sum(noise**2)) / deviation**2
        return math.sqrt(square / float(chdtri(draws, confidence)))

    def mean_of(scale: float) -> float:
        return 1 / math.sinh(1 / scale)

    # The variance of discrete Laplace noise of scale b is ½/sinh²(1/2b), and E|Z| is 1/sinh(1/b).
    scale = 0.5 / math.asinh(math.sqrt(0.5) / deviation)
    varies = math.sqrt(deviation**2 / mean_of(scale) ** 2 - 1)
    least = 1 - float(ndtri(confidence)) * varies / math.sqrt(draws)
    mean = float(np.mean(np.abs(noise)))
    if least <= 0 or mean == 0:
        return math.inf if mean else 0.0
    return 1 / math.asinh(least / mean) / scale
