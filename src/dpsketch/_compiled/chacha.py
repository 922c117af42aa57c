"""ChaCha20 as a keyed pseudo-random function, many blocks at a time.

The block function of RFC 8439 (Nir and Langley 2018): 256-bit key, 32-bit counter, 96-bit nonce, 64 bytes out. The
loops run over LANES blocks side by side, which the compiler turns into vector instructions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel

__all__ = ["LANES", "chacha20_blocks"]

LANES = 256
"""Blocks computed side by side; a constant, so that the compiler can see that rows of the state do not overlap."""

HalfWords = npt.NDArray[np.uint32]

_C0 = np.uint32(0x61707865)
_C1 = np.uint32(0x3320646E)
_C2 = np.uint32(0x79622D32)
_C3 = np.uint32(0x6B206574)
_7, _8, _12, _16, _32 = np.uint32(7), np.uint32(8), np.uint32(12), np.uint32(16), np.uint32(32)


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
