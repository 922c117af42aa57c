"""Symmetric p-stable variates from random words, by Chambers, Mallows and Stuck (1976).

The elementary functions are written out, so that the compiler can run eight variates side by side. Each is a polynomial
that agrees with the function at Chebyshev's points of its interval, to a relative error below 4e-16.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.chacha import LANES
from dpsketch._compiled.kernel import fused_kernel
from dpsketch.arrays import Floats

__all__ = ["stable_variates"]

_HALF_PI = math.pi / 2
_ONE = np.uint64(0x3FF0000000000000)
_OFFSET = 1.0 - 2.0**-53
_BELOW_ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)
_LN2 = math.log(2)
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_INTEGER = 6755399441055744.0
_U1, _U12, _U20, _U63 = np.uint64(1), np.uint64(12), np.uint64(20), np.uint64(63)
_I52 = np.int64(52)

HalfWords = npt.NDArray[np.uint32]


@fused_kernel
def _sin(x: float) -> float:
    """Return sin x for x in [0, π/2]."""
    y = x * x
    high = -0.00019841266683130672 + y * (
        2.7556952912858047e-06 + y * (-2.503026818882279e-08 + y * 1.54112197466489e-10)
    )
    return x * (0.9999999999999496 + y * (-0.16666666666466673 + y * (0.00833333332035835 + y * high)))


@fused_kernel
def _log(x: float) -> float:
    """Return ln x for a positive, normal x: the power of two apart, then 2·artanh((m−1)/(m+1))."""
    bits = np.float64(x).view(np.int64)
    power = np.int64((bits - _BELOW_ROOT_HALF) >> _I52)
    m = np.int64(bits - (power << _I52)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    y = s * s
    high = 0.2857141602110767 + y * (0.22223434547517906 + y * (0.18121934431215214 + y * 0.16837659970680488))
    return power * _LN2 + s * (2.0000000000000004 + y * (0.6666666666655292 + y * (0.40000000061741614 + y * high)))


@fused_kernel
def _exp(x: float) -> float:
    """Return e^x for |x| < 708."""
    shifted = x * (1 / _LN2) + _INTEGER
    power = np.float64(shifted).view(np.int64)
    whole = shifted - _INTEGER
    r = (x - whole * _LN2_HIGH) - whole * _LN2_LOW
    high = 0.0013888888952314775 + r * (
        0.00019841269890047113
        + r
        * (
            2.4801485482328494e-05
            + r * (2.755724091857897e-06 + r * (2.763263963904103e-07 + r * 2.5110037605963777e-08))
        )
    )
    small = 0.5000000000000019 + r * (
        0.1666666666666668 + r * (0.0416666666664881 + r * (0.008333333333319601 + r * high))
    )
    return np.int64(np.float64(1.0 + r * (1.0 + r * small)).view(np.int64) + (power << _I52)).view(np.float64)


@fused_kernel
def _uniform(high: np.uint64, low: np.uint64) -> float:
    """Return the middle of one of 2⁵² equal parts of (0, 1), chosen by the words' first 52 bits."""
    return np.uint64((high << _U20) | (low >> _U12) | _ONE).view(np.float64) - _OFFSET


@fused_kernel
def _signed(x: float, low: np.uint64) -> float:
    """Return ±x by the last bit of a word, which :func:`_uniform` leaves unused."""
    return np.uint64(np.float64(x).view(np.uint64) | ((low & _U1) << _U63)).view(np.float64)


@fused_kernel
def _by_logarithms(words: HalfWords, p: float, out: Floats) -> None:
    power, inverse = (1 - p) / p, 1 / p
    part, rest = p * _HALF_PI, (1 - p) * _HALF_PI
    for i in range(LANES):
        low = np.uint64(words[LANES + i])
        u = _uniform(np.uint64(words[i]), low)
        v = _uniform(np.uint64(words[2 * LANES + i]), np.uint64(words[3 * LANES + i]))
        # Cosines as sines of the rest to π/2: exact where they are small.
        exponent = power * _log(_sin(_HALF_PI - rest * u) / -_log(v)) - inverse * _log(_sin(_HALF_PI * (1.0 - u)))
        out[i] = _signed(_sin(part * u) * _exp(exponent), low)


@fused_kernel
def _by_powers(words: HalfWords, whole: int, out: Floats, base: Floats) -> None:
    part = _HALF_PI / whole
    rest = _HALF_PI - part
    for i in range(LANES):
        low = np.uint64(words[LANES + i])
        u = _uniform(np.uint64(words[i]), low)
        v = _uniform(np.uint64(words[2 * LANES + i]), np.uint64(words[3 * LANES + i]))
        cosine = _sin(_HALF_PI * (1.0 - u))
        out[i] = _signed(_sin(part * u) / cosine, low)
        base[i] = _sin(_HALF_PI - rest * u) / (-_log(v) * cosine)
    for _ in range(whole - 1):
        for i in range(LANES):
            out[i] *= base[i]


@fused_kernel
def _cauchy(words: HalfWords, out: Floats) -> None:
    for i in range(LANES):
        low = np.uint64(words[LANES + i])
        u = _uniform(np.uint64(words[i]), low)
        out[i] = _signed(_sin(_HALF_PI * u) / _sin(_HALF_PI * (1.0 - u)), low)


@fused_kernel
def stable_variates(words: HalfWords, p: float, out: Floats, scratch: Floats) -> None:
    """Turn four words a lane (the first words of all lanes, then the second ones, …) into one variate a lane.

    Two uniforms of 52 bits: u for the angle θ = πu/2 in (0, π/2), v for the exponential W = −ln v; a bit for the sign.
    Then X = ±sin(pθ)·(cos((1−p)θ)/W)^((1−p)/p) / (cos θ)^(1/p). For p = 1 that is ±tan θ. Where 1/p is whole the powers
    are products; otherwise they are taken in logarithms, with an exponent below 708 for p ≥ 0.1.
    """
    whole = round(1 / p)
    if p == 1.0:
        _cauchy(words, out)
    elif whole * p == 1.0:
        _by_powers(words, whole, out, scratch)
    else:
        _by_logarithms(words, p, out)
