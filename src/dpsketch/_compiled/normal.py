"""Quantiles of the normal law for many draws of noise.

Logarithms and roots are NumPy's, which computes several at once; the polynomials go through memory fifty times in NumPy
and once here.
"""

from __future__ import annotations

import numpy as np

from dpsketch._compiled.kernel import kernel
from dpsketch.arrays import Floats

__all__ = ["upper_quantiles"]

# The rational approximations of Wichura, "Algorithm AS 241: the percentage points of the normal distribution" (Applied
# Statistics 37, 1988), whose relative error is about 10⁻¹⁶: numerator and denominator, from the highest power down.
_CENTRE_ABOVE, _CENTRE_BELOW = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_TAIL_ABOVE, _TAIL_BELOW = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_FAR_ABOVE, _FAR_BELOW = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.2426609473880784386e-3, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip
_BLOCK = 16_384  # twice as many would be new pages of memory in every step
_CENTRAL = 0.425
_FAR_FROM = 5.0


def upper_quantiles(tails: Floats) -> Floats:
    """Return for each probability, above 0 and at most ½, the point that a normal variable passes with it.

    *Accuracy.* The relative error is below 2⁻⁴⁸, as a test finds against arbitrary precision; no proof is known.

    Examples
    --------
    >>> upper_quantiles(np.array([0.5, 0.025])).round(4)
    array([0.  , 1.96])
    """
    points = np.empty_like(tails)
    for start in range(0, len(tails), _BLOCK):
        block, found = tails[start : start + _BLOCK], points[start : start + _BLOCK]
        r = np.log(block)
        np.negative(r, out=r)
        np.sqrt(r, out=r)
        r -= 1.6
        _near_quantiles(block, r, found)
        if (far := r > _FAR_FROM - 1.6).any():  # less than once in 10¹⁰ draws, which are settled one by one anyway
            x = r[far] - (_FAR_FROM - 1.6)
            found[far] = np.polyval(_FAR_ABOVE, x) / np.polyval(_FAR_BELOW, x)
    return points


@kernel
def _near_quantiles(tails: Floats, r: Floats, points: Floats) -> None:
    """Write the points of the tails, where r is √(−ln tail) − 1.6, as far as those are above e⁻²⁵."""
    for i in range(len(tails)):
        q = 0.5 - tails[i]
        # Both approximations for every point: what a draw costs must not tell how large it is.
        x = _CENTRAL**2 - q * q
        centre = _polynomial(_CENTRE_ABOVE, x) / _polynomial(_CENTRE_BELOW, x) * q
        tail = _polynomial(_TAIL_ABOVE, r[i]) / _polynomial(_TAIL_BELOW, r[i])
        points[i] = tail if q > _CENTRAL else centre


@kernel
def _polynomial(coefficients: tuple[float, ...], x: float) -> float:
    total = x * coefficients[0]
    for power in range(1, 7):
        total = (total + coefficients[power]) * x
    return total + coefficients[7]
