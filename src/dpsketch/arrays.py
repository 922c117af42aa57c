"""The arrays that most modules pass on, by what they hold."""

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Integers", "Words"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
# Fingerprints, hash keys and random bits: 64 of them.
Words = npt.NDArray[np.uint64]
