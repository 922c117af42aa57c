"""Round weights to whole units of a public grid, so that counters stay integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsketch.errors import CounterOverflow, InvalidInput
from dpsketch.hashing import KeyBatch
from dpsketch.numbers import hold_real, real_number, whole_number

# No counter's true value may pass this; the noise, bounded by 2**61, then cannot carry it past 64 bits.
COUNTER_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class WeightGrid:
    """Weights are rounded to multiples of ``step`` and clipped so that none passes ``max_weight``.

    The bound holds after rounding: it is ``max_units`` steps exactly.
    """

    step: float
    max_weight: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", real_number("grid", self.step))
        hold_real(self, "max_weight")
        if not (math.isfinite(self.step) and self.step > 0):
            raise InvalidInput("grid must be a positive, finite number: the step that weights are rounded to.")
        if not 1 <= self.max_units <= 2**40:
            raise InvalidInput(
                f"max_weight ({self.max_weight:g}) must be between 1 and 2**40 steps of the grid ({self.step:g}); "
                "choose grid= accordingly."
            )

    @property
    def max_units(self) -> int:
        """The largest contribution of one record to one counter, in grid units.

        Both numbers are read as the decimals they are written as: 0.3 is three steps of 0.1, which the quotient of the
        two doubles, 2.9999999999999996, is not.
        """
        return math.floor(_decimal_ratio(self.max_weight, self.step))

    @property
    def one(self) -> int:
        """The units of a record without a stated weight (weight 1, clipped like any other)."""
        self.refuse_without_one()
        return min(self.max_units, round(1 / self.step))

    def refuse_without_one(self) -> None:
        """Refuse a grid that does not hold weight 1, which a record without a stated weight has.

        It would be rounded, in every record alike: to 0 on a grid of 3. Where ``max_weight`` is below 1 it is clipped
        to that, as any other weight.
        """
        if self.max_weight >= 1 and _decimal_ratio(1, self.step).denominator != 1:
            raise InvalidInput(
                f"weight 1, which a record without a stated weight has, is not a whole number of steps of the grid "
                f"({self.step:g}). Choose a step that divides 1, such as 0.1; for coarser steps, divide the weights."
            )

    def units(self, weights: Any, n: int) -> npt.NDArray[np.int64]:
        """Turn ``n`` weights into whole grid units, clipped to :attr:`max_units`."""
        steps = real_numbers("weights", weights, n)  # a copy, which is worked on in place
        if np.any(steps < 0):
            raise InvalidInput("weights must not be negative.")
        with np.errstate(over="ignore"):  # what overflows is clipped below
            steps /= self.step
        rounded = np.rint(steps, out=None if self.step == 1 else steps)
        if self.step == 1 and np.any(rounded != steps):
            raise InvalidInput(
                "weights have fractions, and this sketch counts in steps of 1. Say grid=0.01 (say) when building it."
            )
        return np.minimum(rounded, float(self.max_units), out=rounded).astype(np.int64)


@lru_cache  # every batch asks for it, and it takes as long as counting some thousand keys
def _decimal_ratio(over: float, under: float) -> Fraction:
    """Return the ratio of two numbers as the decimals that they are written as."""
    return Fraction(repr(float(over))) / Fraction(repr(float(under)))


class Amounts(NamedTuple):
    """What each kept record of a batch adds: its units on the grid, times the number of equal records."""

    units: npt.NDArray[np.int64] | int
    times: npt.NDArray[np.int64] | int

    @property
    def added(self) -> npt.NDArray[np.int64] | int:
        """Return what each record adds in all; one number if it is the same for all."""
        return self.units * self.times


def weighed(grid: WeightGrid, batch: KeyBatch, weights: Any, counts: Any) -> Amounts:
    """Return what each kept record of a batch adds."""
    n = len(batch.fingerprints) + batch.skipped
    units: npt.NDArray[np.int64] | int = grid.one if weights is None else grid.units(weights, n)
    if not isinstance(units, int) and batch.kept is not None:
        units = units[batch.kept]
    if counts is None:
        return Amounts(units, 1)
    times = whole_counts(counts, n)
    times = times if batch.kept is None else times[batch.kept]
    if int(np.max(units, initial=0)) * int(np.max(times, initial=0)) > COUNTER_LIMIT:
        raise CounterOverflow("a record's weight times its count passes 2**62; nothing was added.")
    return Amounts(units, times)


def real_numbers(name: str, values: Any, n: int) -> npt.NDArray[np.float64]:
    """Return ``n`` finite real numbers as floats of our own; refuse nulls, NaN, infinities, text and booleans."""
    array = _as_numpy(name, values)
    if array.ndim != 1 or len(array) != n:
        raise InvalidInput(f"{name} must be a flat column with one number a key; this one has another length or shape.")
    if array.dtype.kind not in "iuf":
        raise InvalidInput(f"{name} must be numbers, not {array.dtype}.")
    result = array.astype(np.float64)
    if not np.all(np.isfinite(result)):
        raise InvalidInput(f"{name} must be finite: a null, NaN or infinite value was given.")
    return result


def whole_counts(counts: Any, n: int) -> npt.NDArray[np.int64]:
    """Return ``n`` non-negative whole counts."""
    array = _as_numpy("counts", counts)
    if array.ndim != 1 or len(array) != n:
        raise InvalidInput("counts must be a flat column with one number a key; this one has another length or shape.")
    if array.dtype.kind not in "iu":
        raise InvalidInput(f"counts must be whole numbers, not {array.dtype}.")
    if np.any(array < 0):
        raise InvalidInput("counts must not be negative.")
    if np.any(array > COUNTER_LIMIT):
        raise CounterOverflow("a count passes 2**62; nothing was added.")
    return array.astype(np.int64)


def checked_total(mass: int, units: npt.NDArray[np.int64] | int, counts: npt.NDArray[np.int64] | int, n: int) -> int:
    """Return the new total mass, or refuse a batch that could carry a counter past the limit."""
    if isinstance(units, int) and isinstance(counts, int):
        total = mass + units * counts * n
    elif mass + int(np.max(units, initial=0)) * int(np.max(counts, initial=0)) * n <= COUNTER_LIMIT:
        total = mass + int(np.sum(np.broadcast_to(units * counts, (n,)), dtype=np.int64))
    else:
        # The quick bound is not enough: sum exactly.
        pairs = zip(np.broadcast_to(units, (n,)).tolist(), np.broadcast_to(counts, (n,)).tolist(), strict=True)
        total = mass + sum(unit * count for unit, count in pairs)
    if total > COUNTER_LIMIT:
        raise CounterOverflow(
            "these records would carry the sketch past 2**62 units; nothing was added. Use a coarser grid, or several "
            "sketches."
        )
    return total


def _as_numpy(name: str, values: Any) -> npt.NDArray[Any]:
    if hasattr(values, "null_count"):
        nulls = values.null_count() if callable(values.null_count) else values.null_count
        if nulls:
            raise InvalidInput(f"{name} must be finite: a null, NaN or infinite value was given.")
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        array = None
    if array is None or array.dtype.kind == "O":
        raise InvalidInput(f"{name} must be a flat sequence of 64-bit numbers without nulls.")
    return array if array.size else array.astype(np.int64)


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
