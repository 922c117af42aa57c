"""Losses where the law of a release is known but for the size of its noise, which is measured on releases.

How far the outputs of two neighbours lie apart is exact; the noise is measured jointly with everything else that was
published in the same release and in the one before it. So noise that is too small, noise that two parts share and noise
that two releases share all show, and none of the library's own sensitivities is used.

**Gaussian noise.** The best linear attacker has μ² = vᵀΣ⁻¹v, with v what the unit moves (0 where it moves nothing, as
in the release before it came) and Σ the covariance of the noise. With the sample covariance S of n runs of d numbers,
n·(vᵀΣ⁻¹v)/(vᵀS⁻¹v) has the χ² law of n − d + 1 degrees of freedom for noise of mean zero (Muirhead 1982, Theorem
3.2.12), whence a lower bound on μ, and on ε at any δ.

**Laplace noise.** What is left of a number's noise after a regression on all others has the scale b; the loss is
Σ |v|/b. Each b follows from the mean size of n draws, whose errors are independent, so that those of the losses add in
squares; z of them below the sum lies the bound that a normal variable passes as rarely as z.

**Other laws.** An attacker gains all that the *privacy loss distribution* of the two outputs tells: per part the two
probabilities of every outcome, and parts that are drawn independently add their losses. Losses are rounded down, so
that ε comes out too small rather than too large. The size of the noise is a *factor* of what is stated. The mean square
of n draws, of squares with a coefficient of variation c, is off by a factor beyond 1 ± z·c/√n with the probability of a
normal variable to pass z. Of all factors that the draws leave possible, the one that is kindest to the claim is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri, ndtr, ndtri

from dpsketch.accounting import gaussian_epsilon
from dpsketch.arrays import Floats
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.truncated import Law, TruncatedLaplace

__all__ = [
    "Outcomes", "above", "bisected", "chances", "epsilon_of", "fitting_factors", "gaussian_bound", "kindest",
    "laplace_bound", "laplace_scale", "least_spread", "noise_factors", "power_of", "reach_of", "seen_numbers",
    "thresholded",
]  # fmt: skip

# The probabilities of the same outcomes under two neighbours.
Outcomes = tuple[Floats, Floats]

_MOST_MOVED, _MOST_BESIDE = 40, 8
_STEP = 5e-4
_MOST_EPSILON = 20.0
_LARGEST_FACTOR = 64.0
_LEAST_SHARE = 0.1


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
    # A regression on this many numbers lowers the residual that much by chance.
    left: Floats = (seen @ precision)[:, places] / np.diag(precision)[places]
    return left * math.sqrt(runs / max(1, runs - numbers))


def laplace_bound(seen: Floats, shift: Floats, confidence: float) -> float:
    """Bound ε from below for Laplace noise."""
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


def laplace_scale(deviation: Any) -> Any:
    """Return the scale b of discrete Laplace noise by its standard deviation, √½/sinh(1/2b)."""
    return 0.5 / np.arcsinh(math.sqrt(0.5) / deviation)


def least_spread(law: Literal["gaussian", "laplace"], noise: Floats, deviation: float, confidence: float) -> float:
    """Return the largest share of a stated standard deviation that the noise of a part may have, by all its draws.

    Squares of Gaussian draws add up to a χ² variable; the sizes of Laplace draws have a mean whose error is normal.
    """
    draws = noise.size
    if law == "gaussian":
        square = float(np.sum(noise**2)) / deviation**2
        return math.sqrt(square / float(chdtri(draws, confidence)))

    scale = float(laplace_scale(deviation))
    varies = math.sqrt(deviation**2 * math.sinh(1 / scale) ** 2 - 1)  # E|Z| is 1/sinh(1/b)
    least = 1 - float(ndtri(confidence)) * varies / math.sqrt(draws)
    mean = float(np.mean(np.abs(noise)))
    if least <= 0 or mean == 0:
        return math.inf if mean else 0.0
    return 1 / math.asinh(least / mean) / scale


def reach_of(law: Law, factor: float = 1.0) -> int:
    """Return beyond which size the noise, ``factor`` times as large as stated, has no probability to speak of."""
    match law:
        case RoundedGaussian(sigma):
            return math.ceil(8 * sigma * factor) + 1
        case DiscreteLaplace(epsilon, sensitivity):
            return math.ceil(30 * factor * sensitivity / epsilon) + 1
        case TruncatedLaplace(_, bound):
            return bound


def chances(law: Law, factor: float, values: npt.NDArray[np.int64]) -> Floats:
    """Return the probability of each value of such noise; a truncated law keeps its bound."""
    sizes = np.abs(values).astype(np.float64)
    match law:
        case RoundedGaussian(sigma):
            width = sigma * factor
            found: Floats = ndtr((0.5 - sizes) / width) - ndtr((-0.5 - sizes) / width)
            return found
        case DiscreteLaplace(epsilon, sensitivity):
            rate = epsilon / sensitivity / factor
            return np.exp(-rate * sizes) * math.tanh(rate / 2)
        case TruncatedLaplace(rate, bound):
            whole = np.exp(-rate / factor * np.abs(np.arange(-bound, bound + 1)))
            return np.where(sizes <= bound, np.exp(-rate / factor * sizes) / whole.sum(), 0.0)


def above(law: Law, factor: float, low: int) -> float:
    """Return the probability of noise of ``low`` or more."""
    reach = reach_of(law, factor)
    return float(chances(law, factor, np.arange(low, max(low, reach) + 1)).sum())


def thresholded(law: Law, factor: float, cutoff: int, counts: tuple[int, int]) -> Outcomes:
    """Return the outcomes of one key under two counts: hidden first, then every noisy count from the cutoff on."""
    reach = reach_of(law, factor)
    shown = np.arange(max(cutoff, min(counts) - reach), max(max(counts) + reach, cutoff) + 1)
    sides = [chances(law, factor, shown - count) if count >= 1 else np.zeros(len(shown)) for count in counts]
    one, other = (np.concatenate([[max(0.0, 1 - float(side.sum()))], side]) for side in sides)
    # What lies beyond the reach is not "hidden": it is left out where a count is far above the cutoff.
    for side, count in ((one, counts[0]), (other, counts[1])):
        if count - reach >= cutoff:
            side[0] = 0.0
    return one, other


def epsilon_of(parts: Sequence[Outcomes], delta: float) -> float:
    """Return the least ε at which independent parts are (ε, δ)-private in both directions; infinite where none is."""
    swapped = [(other, one) for one, other in parts]
    return max(_one_way(parts, delta), _one_way(swapped, delta))


def _one_way(parts: Sequence[Outcomes], delta: float) -> float:
    losses, first, seen = np.ones(1), 0, 1.0
    for one, other in parts:
        both = (one > 0) & (other > 0)
        exact = np.log(one[both] / other[both])
        # A loss beyond the largest counts as that one, and what hardly ever happens here is left out: both lower ε.
        kept = exact > -_MOST_EPSILON
        steps = np.floor(np.minimum(exact[kept], _MOST_EPSILON) / _STEP).astype(np.int64)
        seen *= 1 - float(one[(one > 0) & (other == 0)].sum())
        if not len(steps):
            return math.inf if 1 - seen > delta else 0.0
        masses: Floats = np.bincount(steps - steps.min(), weights=one[both][kept]).astype(np.float64)
        losses, first = _convolved(losses, masses), first + int(steps.min())
    values = (first + np.arange(len(losses))) * _STEP
    # Σ p and Σ p·e^−loss over all losses from each on.
    tails, odds = (np.cumsum(each[::-1])[::-1] for each in (losses, losses * np.exp(-np.maximum(values, -1.0))))

    def excess(epsilon: float) -> float:
        place = int(np.searchsorted(values, epsilon, side="right"))
        if place == len(values):
            return 1 - seen
        return 1 - seen + float(tails[place]) - math.exp(epsilon) * float(odds[place])

    if excess(0.0) <= delta:
        return 0.0
    if excess(_MOST_EPSILON) > delta:
        return math.inf
    return bisected(lambda epsilon: excess(epsilon) > delta, 0.0, _MOST_EPSILON, 1e-5)


def bisected(holds: Callable[[float], bool], low: float, high: float, width: float) -> float:
    """Return the last place, but for ``width``, at which something holds that holds for all smaller ones."""
    while high - low > width:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _convolved(one: Floats, other: Floats) -> Floats:
    length = len(one) + len(other) - 1
    padded = 1 << (length - 1).bit_length()
    product = np.fft.irfft(np.fft.rfft(one, padded) * np.fft.rfft(other, padded), padded)
    return np.maximum(product[:length], 0.0)


def noise_factors(law: Law, noise: Floats, confidence: float) -> tuple[float, float]:
    """Return between which factors of the stated law the noise lies, by the draws of runs (rows) that were seen.

    Only what a regression on all other draws of a run and of the one before it leaves of a draw counts: noise that two
    of them share is none. Each end is wrong with probability at most ``1 - confidence``.
    """
    seen = np.concatenate([noise[1:], noise[:-1]], axis=1)
    squares = own_noise(seen, np.arange(noise.shape[1])) ** 2
    mean = float(squares.mean())
    if mean < 1e-6:
        return 0.0, 0.0
    room = float(ndtri(confidence)) * float(squares.std()) / mean / math.sqrt(squares.size)

    def variance(factor: float) -> float:
        values = np.arange(1, reach_of(law, factor) + 1)
        return 2 * float(np.sum(values**2 * chances(law, factor, values)))

    def factor_of(wanted: float) -> float:
        return largest_factor(lambda factor: variance(factor) <= wanted)

    return factor_of(mean * max(0.0, 1 - room)), factor_of(mean * (1 + room))


def fitting_factors(law: Callable[[float], Floats], drawn: Floats, confidence: float) -> tuple[float, float]:
    """Return between which factors the noise of a law with few outcomes lies, by how often each was drawn.

    ``law`` gives the probabilities of all outcomes for a factor of the noise that is stated. What is compared is the
    mean of −log p under the stated law, which grows with the noise.
    """
    stated = -np.log(np.maximum(law(1.0), 1e-300))
    runs = float(drawn.sum())
    mean = float(stated @ drawn) / runs
    spread = math.sqrt(max(0.0, float(stated**2 @ drawn) / runs - mean**2))
    room = float(ndtri(confidence)) * spread / math.sqrt(runs)

    def factor_of(wanted: float) -> float:
        return largest_factor(lambda factor: factor == 0 or float(law(factor) @ stated) <= wanted)

    return factor_of(mean - room), factor_of(mean + room)


def kindest(loss: Callable[[float], float], factors: tuple[float, float], share: float = 1.0) -> float:
    """Return the least loss over all factors that what was seen leaves possible, or over a share of all of them.

    Less noise shows more of a count, and more noise shows a name more often: neither end is always the kinder one, and
    where the stated noise is possible it is among those that are looked at.
    """
    low, high = (factor * share for factor in factors)
    return min(loss(factor) for factor in {low, high, float(np.clip(1.0, low, high))})


def largest_factor(holds: Callable[[float], bool]) -> float:
    """Return the largest factor, to a thousandth, for which something holds that holds for all smaller ones."""
    low, high = 0.0, 1.0
    while high < _LARGEST_FACTOR and holds(high):
        low, high = high, 2 * high
    return high if high >= _LARGEST_FACTOR else bisected(holds, low, high, 1e-3 * high)


def power_of(epsilon: Callable[[float], float], claimed: float) -> float:
    """Return the largest share of the noise that was seen at which the same audit would refute the claim.

    ``epsilon`` is what the audit finds where the noise is so many times what was seen. 0 where even a tenth is not
    caught: the pair moves nothing, or too little.
    """
    whole = epsilon(1.0)
    if whole > claimed:
        return 1.0
    if whole == 0 or epsilon(_LEAST_SHARE) <= claimed:
        return 0.0
    return bisected(lambda share: epsilon(share) > claimed, _LEAST_SHARE, 1.0, 5e-3)
