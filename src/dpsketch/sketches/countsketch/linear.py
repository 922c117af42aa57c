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
from dpsketch.results import Estimate
from dpsketch.sketches.countsketch.intervals import half_width
from dpsketch.sketches.countsketch.locating import choose_location

__all__ = ["inner_product", "second_moment"]

Floats = npt.NDArray[np.float64]


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
    ((Σ yx)² − 2Σ y²x²)/width a row, is added to the spread.
    """
    width = table.shape[1]
    projected = np.zeros(table.shape)
    kernels.add_weighted(projected, prints, row_keys, values)
    counters = table.astype(np.float64)
    found = np.einsum("ij,ij->i", projected, counters)
    turned = np.fft.irfft(np.fft.rfft(counters, axis=1) * np.conj(np.fft.rfft(projected, axis=1)), n=width, axis=1)
    errors = turned[:, 1:]
    noise_scale = math.sqrt(noise_variance * float(np.mean(np.sum(projected**2, axis=1))))
    location = choose_location(errors, noise_scale)
    value = float(location(found[np.newaxis, :])[0])
    spread = max(float(np.mean(errors**2)), 1e-300)
    own = max(0.0, value**2 - 2 * _own_squares(counters, prints, values, row_keys)) / width
    half = half_width(errors, location, confidence)
    if table.shape[0] > 1:
        half *= math.sqrt(1 + own / spread)
    else:
        # How often a few large keys collide in the only row is no normal law; Chebyshev's bound holds for any.
        half = math.sqrt(half**2 + own / (1 - confidence))
    return Estimate(value, value - half, value + half, confidence)


def _own_squares(
    counters: Floats, prints: npt.NDArray[np.uint64], values: Floats, row_keys: npt.NDArray[np.uint64]
) -> float:
    """Estimate Σ y²x² without bias, as the mean over pairs of rows of the products of their estimates of x."""
    rows = counters.shape[0]
    if rows == 1:
        return 0.0
    total = 0.0
    for start in range(0, len(prints), 1 << 16):
        cells = kernels.row_values(counters, prints[start : start + (1 << 16)], row_keys)
        products = (cells.sum(axis=1) ** 2 - (cells**2).sum(axis=1)) / (rows * (rows - 1))
        total += float(values[start : start + (1 << 16)] ** 2 @ products)
    return max(0.0, total)


def second_moment(table: npt.NDArray[np.int64] | Floats, *, noise_variance: float, confidence: float) -> Estimate:
    """Estimate F₂ = Σ count² in counters², as the mean over rows of ‖row‖² − width·(noise variance).

    Rows are independent and each is unbiased, so their own spread gives Student's interval. A single row's spread is
    unknown, and where few keys are large it is far from normal; then the bound 2F₂²/width + 4σ²F₂ + 2·width·σ⁴ on its
    variance is used, with Chebyshev's inequality.
    """
    from scipy.special import stdtrit

    rows, width = table.shape
    found = np.sum(table.astype(np.float64) ** 2, axis=1) - width * noise_variance
    value = float(found.mean())
    if rows > 1:
        half = float(stdtrit(rows - 1, (1 + confidence) / 2)) * float(found.std(ddof=1)) / math.sqrt(rows)
    else:
        size = max(0.0, value)
        variance = 2 * size**2 / width + 4 * noise_variance * size + 2 * width * noise_variance**2
        half = math.sqrt(variance / (1 - confidence))
    return Estimate(value, value - half, value + half, confidence)
