"""The loops of a moment sketch: sum equal keys, then add each key's row of the secret projection.

A row's entries are symmetric p-stable variates (Chambers, Mallows and Stuck 1976) made from ChaCha20 as a keyed
pseudo-random function: the block function of RFC 8439 (Nir and Langley 2018) with a 256-bit key, a 32-bit counter and a
96-bit nonce, 64 bytes out. Loops run over LANES blocks side by side, which the compiler turns into vector instructions.

The elementary functions of the variates are written out, so that eight of these are made side by side. Each is a
polynomial that agrees with the function at Chebyshev's points of its interval, to a relative error below 4e-16.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import fused_kernel, kernel
from dpsketch.arrays import Floats

__all__ = ["LANES", "VARIATES_PER_BLOCK", "aggregate", "chacha20_blocks", "project", "stable_variates"]

VARIATES_PER_BLOCK = 4

_U32 = np.uint64(32)
_U33 = np.uint64(33)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_DOMAIN = np.uint32(0)

LANES = 256
"""Blocks computed side by side; a constant, so that the compiler can see that rows of the state do not overlap."""

HalfWords = npt.NDArray[np.uint32]

_C0 = np.uint32(0x61707865)
_C1 = np.uint32(0x3320646E)
_C2 = np.uint32(0x79622D32)
_C3 = np.uint32(0x6B206574)
_7, _8, _12, _16, _32 = np.uint32(7), np.uint32(8), np.uint32(12), np.uint32(16), np.uint32(32)

_HALF_PI = math.pi / 2
_ONE = np.uint64(0x3FF0000000000000)
_OFFSET = 1.0 - 2.0**-53
_BELOW_ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)
_LN2 = math.log(2)
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_INTEGER = 6755399441055744.0
_U1, _U12, _U20, _U63 = np.uint64(1), np.uint64(12), np.uint64(20), np.uint64(63)
_I52 = np.int64(52)


@kernel
def _rotated(word: np.uint32, left: np.uint32) -> np.uint32:
    return np.uint32((word << left) | (word >> np.uint32(_32 - left)))


@kernel
def _quarter_round(
    a: np.uint32, b: np.uint32, c: np.uint32, d: np.uint32
) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    a = np.uint32(a + b)
    d = _rotated(np.uint32(d ^ a), _16)
    c = np.uint32(c + d)
    b = _rotated(np.uint32(b ^ c), _12)
    a = np.uint32(a + b)
    d = _rotated(np.uint32(d ^ a), _8)
    c = np.uint32(c + d)
    b = _rotated(np.uint32(b ^ c), _7)
    return a, b, c, d


@kernel
def _double_round(x: HalfWords) -> None:
    for i in range(LANES):
        x0, x1, x2, x3 = x[i], x[LANES + i], x[2 * LANES + i], x[3 * LANES + i]
        x4, x5, x6, x7 = x[4 * LANES + i], x[5 * LANES + i], x[6 * LANES + i], x[7 * LANES + i]
        x8, x9, x10, x11 = x[8 * LANES + i], x[9 * LANES + i], x[10 * LANES + i], x[11 * LANES + i]
        x12, x13, x14, x15 = x[12 * LANES + i], x[13 * LANES + i], x[14 * LANES + i], x[15 * LANES + i]
        x0, x4, x8, x12 = _quarter_round(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter_round(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter_round(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter_round(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter_round(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter_round(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter_round(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter_round(x3, x4, x9, x14)
        x[i], x[LANES + i], x[2 * LANES + i], x[3 * LANES + i] = x0, x1, x2, x3
        x[4 * LANES + i], x[5 * LANES + i], x[6 * LANES + i], x[7 * LANES + i] = x4, x5, x6, x7
        x[8 * LANES + i], x[9 * LANES + i], x[10 * LANES + i], x[11 * LANES + i] = x8, x9, x10, x11
        x[12 * LANES + i], x[13 * LANES + i], x[14 * LANES + i], x[15 * LANES + i] = x12, x13, x14, x15


@kernel
def chacha20_blocks(key: HalfWords, inputs: HalfWords, out: HalfWords) -> None:
    """Compute LANES blocks.

    Parameters
    ----------
    key : 8 words
    inputs : 4·LANES words
        The counters of all blocks, then the first, second and third words of their nonces.
    out : 16·LANES words
        The first words of all blocks, then the second ones, and so on.
    """
    for i in range(LANES):
        out[i] = _C0
        out[LANES + i] = _C1
        out[2 * LANES + i] = _C2
        out[3 * LANES + i] = _C3
    for row in range(8):
        for i in range(LANES):
            out[(4 + row) * LANES + i] = key[row]
    for i in range(4 * LANES):
        out[12 * LANES + i] = inputs[i]
    for _ in range(10):
        _double_round(out)
    for i in range(LANES):
        out[i] = np.uint32(out[i] + _C0)
        out[LANES + i] = np.uint32(out[LANES + i] + _C1)
        out[2 * LANES + i] = np.uint32(out[2 * LANES + i] + _C2)
        out[3 * LANES + i] = np.uint32(out[3 * LANES + i] + _C3)
    for row in range(8):
        for i in range(LANES):
            out[(4 + row) * LANES + i] = np.uint32(out[(4 + row) * LANES + i] + key[row])
    for i in range(4 * LANES):
        out[12 * LANES + i] = np.uint32(out[12 * LANES + i] + inputs[i])


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


@kernel
def aggregate(
    fingerprints: npt.NDArray[np.uint64],
    weights: npt.NDArray[np.float64],
    distinct: npt.NDArray[np.uint64],
    totals: npt.NDArray[np.float64],
) -> int:
    """Sum the weights of equal fingerprints; return how many there are, the first of them filled in.

    ``weights`` has one entry a fingerprint, or a single one for all.
    """
    size = 16
    while size < 2 * len(fingerprints):
        size *= 2
    places = np.zeros(size, np.int64)
    mask = np.uint64(size - 1)
    one_weight = len(weights) == 1
    count = 0
    for i in range(len(fingerprints)):
        key = fingerprints[i]
        place = np.uint64((key ^ (key >> _U33)) * _MIX) >> _U32 & mask
        while places[place] != 0 and distinct[places[place] - 1] != key:
            place = np.uint64(place + np.uint64(1)) & mask
        if places[place] == 0:
            distinct[count] = key
            totals[count] = 0.0
            count += 1
            places[place] = count
        totals[places[place] - 1] += weights[0] if one_weight else weights[i]
    return count


@fused_kernel
def project(
    sums: npt.NDArray[np.float64],
    secret: npt.NDArray[np.uint32],
    fingerprints: npt.NDArray[np.uint64],
    weights: npt.NDArray[np.float64],
    p: float,
) -> None:
    """Add ``weights[k]``·X(fingerprint k, row) to every row's sum.

    A key takes ``blocks`` = len(sums)/4 blocks of the cipher; block b gives the variates of the rows b, blocks + b,
    2·blocks + b and 3·blocks + b. Pairs of a key and a block are laid out one after the other over the lanes.
    """
    blocks = len(sums) // VARIATES_PER_BLOCK
    inputs = np.zeros(4 * LANES, np.uint32)
    words = np.empty(16 * LANES, np.uint32)
    variates, scratch = np.empty(LANES, np.float64), np.empty(LANES, np.float64)
    inputs[LANES : 2 * LANES] = _DOMAIN
    key, block = 0, 0
    while key < len(fingerprints):
        first_key, first_block = key, block
        filled = 0
        while filled < LANES and key < len(fingerprints):
            run = min(LANES - filled, blocks - block)
            low = np.uint32(fingerprints[key] & np.uint64(0xFFFFFFFF))
            high = np.uint32(fingerprints[key] >> _U32)
            counters = inputs[filled : filled + run]
            for i in range(run):
                counters[i] = np.uint32(block + i)
            inputs[2 * LANES + filled : 2 * LANES + filled + run] = low
            inputs[3 * LANES + filled : 3 * LANES + filled + run] = high
            filled += run
            block += run
            if block == blocks:
                key, block = key + 1, 0
        chacha20_blocks(secret, inputs, words)
        for slot in range(VARIATES_PER_BLOCK):
            stable_variates(words[4 * slot * LANES : 4 * (slot + 1) * LANES], p, variates, scratch)
            k, b, done = first_key, first_block, 0
            while done < filled:
                run = min(filled - done, blocks - b)
                weight = weights[k]
                rows, drawn = sums[slot * blocks + b : slot * blocks + b + run], variates[done : done + run]
                for i in range(run):
                    rows[i] += weight * drawn[i]
                done += run
                k, b = k + 1, 0
    words[:] = 0
