"""The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every bit of a word moves every other.

It is one-to-one, so that different words stay different. For words in kernels, and for arrays of them in NumPy.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import part

__all__ = ["mix", "mix_upper"]

Z = TypeVar("Z", np.uint64, npt.NDArray[np.uint64])

M1 = np.uint64(0xBF58476D1CE4E5B9)
M2 = np.uint64(0x94D049BB133111EB)
U27 = np.uint64(27)
U30 = np.uint64(30)
U31 = np.uint64(31)


@part
def mix_upper(z: Z) -> Z:
    """Mix the bits of a word, but for the last shift: the upper half is that of :func:`mix`, at a step less."""
    z = (z ^ (z >> U30)) * M1
    return (z ^ (z >> U27)) * M2


@part
def mix(z: Z) -> Z:
    """Mix the bits of a word."""
    z = mix_upper(z)
    return z ^ (z >> U31)
