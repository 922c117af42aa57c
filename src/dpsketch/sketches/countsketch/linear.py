"""What else a linear table tells: inner products with a public vector, and the second moment.

Both are post-processing of a release. A row of the table is a random projection of the counts x, so its product with
the same projection of a public vector y estimates Σ y·x without bias, and its squared length, less what the noise adds,
estimates F₂ = Σ x².
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import countsketch as kernels
from dpsketch.arrays import Floats
from dpsketch.noise import DiscreteLaplace, Noise
from dpsketch.results import Estimate
from dpsketch.sketches.countsketch.intervals import half_width
from dpsketch.sketches.countsketch.location import MEAN, choose_location

__all__ = ["fourth_cumulant", "inner_product", "second_moment"]


# Rows of fewer cells are narrow: what a few large keys do in one of them is no normal law.
_NARROW = 64


def inner_product(
    table: npt.NDArray[np.int64] | npt.NDArray[np.float64],
    prints: npt.NDArray[np.uint64],
    values: Floats,
    row_keys: npt.NDArray[np.uint64],
    *,
    noise_variance: float,
    confidence: float,
) -> Estimate:
    """Estimate Σ values·counts over distinct keys, in counters.

    The error is found as for a single key: the public vector's projection, turned against the row by any number of
    cells, meets nothing of its own, so what it then picks up is error. All turns of a row are one circular
    correlation. A turned projection cannot show how the vector's own keys collide among themselves; that part,
    ((Σ yx)² − 2Σ y²x²)/width a row, is added to the spread. It grows with the answer itself, so the interval holds all
    answers that the estimate is near enough to.

    In narrow rows own keys collide so often that rows are skewed: their mean is taken, and no estimate of Σ y²x² is
    trusted. How often a few large keys collide in an only row is no normal law; Chebyshev's bound holds for any, and
    says nothing where the row has fewer cells than 1/(1 − confidence).
    """
    rows, width = table.shape
    projected = np.zeros(table.shape)
    kernels.add_weighted(projected, prints, row_keys, values)
    counters = table.astype(np.float64)
    found = np.einsum("ij,ij->i", projected, counters)
    turned = np.fft.irfft(np.fft.rfft(counters, axis=1) * np.conj(np.fft.rfft(projected, axis=1)), n=width, axis=1)
    errors = turned[:, 1:]
    noise_scale = math.sqrt(noise_variance * float(np.mean(np.sum(projected**2, axis=1))))
    narrow = width < _NARROW
    location = MEAN if narrow else choose_location(errors, noise_scale)
    value = float(location(found[np.newaxis, :])[0])
    half = half_width(errors, location, confidence)
    spread = max(float(np.mean(errors**2)), 1e-300)
    alone = np.count_nonzero(values) <= 1
    squares = 0.0 if narrow or rows == 1 else _own_squares(counters, prints, values, row_keys)
    share = 0.0 if alone else (half**2 / spread if rows > 1 else 1 / (1 - confidence)) / width
    low, high = _near_enough(value, half**2, share, 2 * squares)
    return Estimate(value, low, high, confidence)


def _near_enough(value: float, fixed: float, share: float, less: float) -> tuple[float, float]:
    """Return the least and the largest T with (T − value)² ≤ fixed + share·max(0, T² − less)."""
    if share >= 1:
        return -math.inf, math.inf
    half = math.sqrt(fixed)
    inside = share * value**2 + (1 - share) * (fixed - share * less)
    if inside <= 0:
        return value - half, value + half
    reach = math.sqrt(inside)
    return min(value - half, (value - reach) / (1 - share)), max(value + half, (value + reach) / (1 - share))


def _own_squares(
    counters: Floats, prints: npt.NDArray[np.uint64], values: Floats, row_keys: npt.NDArray[np.uint64]
) -> float:
    """Estimate Σ y²x² without bias, as the mean over pairs of rows of the products of their estimates of x."""
    rows = counters.shape[0]
    total = 0.0
    for start in range(0, len(prints), 1 << 16):
        cells = kernels.row_values(counters, prints[start : start + (1 << 16)], row_keys)
        products = (cells.sum(axis=1) ** 2 - (cells**2).sum(axis=1)) / (rows * (rows - 1))
        total += float(values[start : start + (1 << 16)] ** 2 @ products)
    return max(0.0, total)


def second_moment(
    table: npt.NDArray[np.int64] | Floats, *, noise_variance: float, fourth_cumulant: float, confidence: float
) -> Estimate:
    """Estimate F₂ = Σ count² in counters², as the mean over rows of ‖row‖² − width·(noise variance).

    Rows are independent and each is unbiased, so their own spread gives Student's interval. In narrow rows squared
    lengths are skewed, and a few of them may agree by chance; there the interval also holds what the law of χ² allows,
    which sums of squares follow where many keys share a cell.

    A single row's spread is unknown, and where few keys are large it is far from normal. With v and κ for the noise's
    variance and fourth cumulant, its variance is at most 2F₂²/width + 4v·F₂ + width·(2v² + κ), and the interval holds
    all F₂ that Chebyshev's inequality allows. Up to 2/(1 − confidence) cells that is every large one: the interval has
    no upper end. None is possible in the narrowest rows, where two equal keys cancel each other with probability
    1/(2·width).
    """
    rows, width = table.shape
    variance, fourth = noise_variance, fourth_cumulant
    lengths = np.sum(table.astype(np.float64) ** 2, axis=1)
    value = float(lengths.mean()) - width * variance
    if rows == 1:
        low, high = _allowed_by_chebyshev(value, width, variance, fourth, 1 / (1 - confidence))
        return Estimate(value, low, high, confidence)
    from scipy.special import chdtri, stdtrit

    half = -float(stdtrit(rows - 1, (1 - confidence) / 2)) * float(lengths.std(ddof=1)) / math.sqrt(rows)
    low, high = value - half, value + half
    if width < _NARROW:
        size = float(lengths.mean()) / width
        # Noise with heavier tails than the normal law counts as fewer cells.
        freedom = rows * width / (1 + fourth / (2 * size**2)) if size > 0 else 1.0
        tail = (1 - confidence) / 2
        low = min(low, width * (size * freedom / float(chdtri(freedom, tail)) - variance))
        high = max(high, width * (size * freedom / float(chdtri(freedom, 1 - tail)) - variance))
    return Estimate(value, low, high, confidence)


def _allowed_by_chebyshev(
    value: float, width: int, variance: float, fourth: float, times: float
) -> tuple[float, float]:
    """Return the least and the largest F ≥ 0 with (F − value)² ≤ times·(2F²/width + 4vF + width·(2v² + κ))."""
    square = 1 - 2 * times / width
    linear = value + 2 * times * variance
    constant = value**2 - times * width * (2 * variance**2 + fourth)
    inside = linear**2 - square * constant
    # Where F = 0 is allowed the interval begins there, or at an estimate below.
    least = 0.0 if constant <= 0 or inside < 0 else constant / (linear + math.sqrt(inside))
    most = math.inf if square <= 0 else (linear + math.sqrt(max(0.0, inside))) / square
    return min(value, max(0.0, least)), max(value, most)


def fourth_cumulant(law: Noise) -> float:
    """Return κ₄: v + 3v² for discrete Laplace noise of variance v, about 0 for rounded Gaussian noise."""
    return law.variance + 3 * law.variance**2 if isinstance(law, DiscreteLaplace) else 0.0
