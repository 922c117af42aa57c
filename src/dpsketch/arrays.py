"""The arrays that most modules pass on, by what they hold."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Integers", "Words", "read_only"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
# Fingerprints, hash keys and random bits: 64 of them.
Words = npt.NDArray[np.uint64]

Item = TypeVar("Item", bound=np.generic)


def read_only(array: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """Return a view that cannot be written to.

    For what is kept for all who ask, and for kernels: numba compiles anew for each mixture of the two kinds of array.
    """
    view = array.view()
    view.flags.writeable = False
    return view
