"""Elementary functions with the same bits on every machine.

The C library's ``log`` or ``cos`` may differ in the last bit from one machine to the next, and with it the cell that a
point falls into. The functions here use additions, subtractions, multiplications, divisions and square roots only, each
of which IEEE 754 rounds in exactly one way, in a fixed order and without fused operations. They are good to a few units
in the last place, which is far more than a random projection needs.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel

__all__ = ["chi_quantiles", "circle", "cosine_sine", "exponential", "logarithm", "normals", "uniforms"]

LN2 = 0.6931471805599453
# ln 2 in two parts: the first has 32 significant bits, so that its product with an exponent is exact.
LN2_HIGH = 0.693147180369123816490
LN2_LOW = 1.90821492927058770002e-10
SQRT_HALF = 0.7071067811865476
LN_SQRT_PI = 0.5723649429247001
U11 = np.uint64(11)


@kernel
def _uniform(word: np.uint64) -> float:
    """Turn 64 random bits into a number strictly between 0 and 1."""
    return (float(word >> U11) + 0.5) * 2.0**-53


@kernel
def uniforms(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return a number strictly between 0 and 1 for each word."""
    result = np.empty(len(words))
    for i in range(len(words)):
        result[i] = _uniform(words[i])
    return result


@kernel
def logarithm(x: float) -> float:
    """Return ln x for x > 0: 2·artanh((m−1)/(m+1)) + e·ln 2 with x = m·2ᵉ and m near 1."""
    m, e = math.frexp(x)
    if m < SQRT_HALF:
        m = 2.0 * m
        e -= 1
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    series = 0.0
    for k in range(12, -1, -1):
        series = series * square + 1.0 / (2.0 * k + 1.0)
    return e * LN2_HIGH + (2.0 * s * series + e * LN2_LOW)


@kernel
def exponential(x: float) -> float:
    """Return eˣ for x ≤ 700; 0 below −740."""
    if x < -740.0:
        return 0.0
    k = math.floor(x / LN2 + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    series = 1.0
    for n in range(18, 0, -1):
        series = 1.0 + series * r / n
    return math.ldexp(series, int(k))


@kernel
def cosine_sine(turns: float) -> tuple[float, float]:
    """Return the cosine and sine of π·turns, for turns in [0, 4)."""
    quarter = math.floor(2.0 * turns + 0.5)
    z = (turns - 0.5 * quarter) * math.pi
    square = z * z
    cosine = 1.0
    sine = 1.0
    for n in range(10, 0, -1):
        cosine = 1.0 - cosine * square / ((2.0 * n - 1.0) * (2.0 * n))
        sine = 1.0 - sine * square / ((2.0 * n) * (2.0 * n + 1.0))
    sine = z * sine
    rest = int(quarter) % 4
    if rest == 1:
        return -sine, cosine
    if rest == 2:
        return -cosine, -sine
    if rest == 3:
        return sine, -cosine
    return cosine, sine


@kernel
def circle(turns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the cosines and sines of π·turns, an array of 2 × turns, for turns in [0, 4)."""
    result = np.empty((2, len(turns)))
    for i in range(len(turns)):
        result[0, i], result[1, i] = cosine_sine(turns[i])
    return result


@kernel
def normals(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return half as many standard normal numbers as there are words (Box and Muller, one of each pair)."""
    result = np.empty(len(words) // 2)
    for i in range(len(result)):
        cosine, _ = cosine_sine(2.0 * _uniform(words[2 * i + 1]))
        result[i] = math.sqrt(-2.0 * logarithm(_uniform(words[2 * i]))) * cosine
    return result


@kernel
def _log_gamma(d: int) -> float:
    """Return ln Γ(d/2 + 1) for a whole d ≥ 1."""
    if d % 2 == 0:
        total = 0.0
        for k in range(2, d // 2 + 1):
            total += logarithm(float(k))
        return total
    total = LN_SQRT_PI
    for k in range(d // 2 + 1):
        total += logarithm(k + 0.5)
    return total


@kernel
def _lower_gamma(a: float, y: float, log_gamma: float) -> float:
    """Return the regularised lower incomplete gamma function P(a, y), by its series, whose terms are all positive."""
    term = 1.0
    total = 1.0
    n = 1
    while term > 1e-17 * total:
        term *= y / (a + n)
        total += term
        n += 1
    return exponential(a * logarithm(y) - y - log_gamma) * total


@kernel
def chi_quantiles(levels: npt.NDArray[np.float64], d: int) -> npt.NDArray[np.float64]:
    """Return the quantiles of the length of a standard normal vector in ``d`` dimensions, by bisection."""
    a = 0.5 * d
    log_gamma = _log_gamma(d)
    result = np.empty(len(levels))
    for i in range(len(levels)):
        low = 0.0
        high = 1.0 + a
        while _lower_gamma(a, high, log_gamma) < levels[i] and high < a + 40.0 * math.sqrt(a) + 200.0:
            low = high
            high = 2.0 * high
        for _ in range(200):
            middle = 0.5 * (low + high)
            if middle <= low or middle >= high:
                break
            if _lower_gamma(a, middle, log_gamma) < levels[i]:
                low = middle
            else:
                high = middle
        result[i] = math.sqrt(low + high)
    return result
