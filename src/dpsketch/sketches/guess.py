"""A guess at the data, from which errors are predicted before anything is read or spent."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number, whole_number
from dpsketch.sketches.weights import real_numbers

__all__ = ["guessed_counts"]


def guessed_counts(records: float | None, keys: int | None, skew: float | None, counts: Any) -> npt.NDArray[np.float64]:
    """Return a guess at all keys' counts, from Zipf's law or as given, largest first.

    The guess is public: it must come from what is known without the data.
    """
    law = (records, keys, skew)
    if counts is not None and law == (None, None, None):
        values = np.asarray(counts)
        guessed = real_numbers("counts", values, len(values) if values.ndim == 1 else -1)
        if np.any(guessed < 0):
            raise InvalidInput("counts must not be negative.")
        return -np.sort(-guessed)
    if counts is not None or records is None or keys is None or skew is None:
        raise InvalidInput("say how the data may look: records=, keys= and skew=, or counts= instead of the three.")
    records, skew = real_number("records", records), real_number("skew", skew)
    keys = whole_number("keys", keys)
    if not (records > 0 and 1 <= keys <= 2**31 and 0 <= skew <= 20):
        raise InvalidInput("records must be positive, keys between 1 and 2**31, and skew between 0 and 20.")
    shares = np.arange(1, keys + 1, dtype=np.float64) ** -float(skew)
    guess: npt.NDArray[np.float64] = records * shares / shares.sum()
    return guess
