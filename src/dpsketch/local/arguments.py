"""What a local protocol takes as arguments, checked."""

from __future__ import annotations

from typing import Any

from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number, whole_number

__all__ = ["LARGEST_SEED", "privacy_parameter", "share_of"]

# Below, the odds differ from 1 by too little to be of use; above, a report promises next to nothing.
SMALLEST_EPSILON = 0.001
LARGEST_EPSILON = 20.0

# A spec travels as JSON, and JavaScript reads its numbers exactly up to here.
LARGEST_SEED = 2**53 - 1


def privacy_parameter(epsilon: Any) -> float:
    """Return the ε of a report, or refuse it."""
    number = real_number("epsilon", epsilon)
    if not SMALLEST_EPSILON <= number <= LARGEST_EPSILON:
        raise InvalidInput(
            f"epsilon of a local report must lie between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}, not {number!r}."
        )
    return float(number)


def share_of(frequency: Any, users: Any) -> tuple[float, int]:
    """Return a share of people and their number, or refuse them."""
    return float(real_number("frequency", frequency)), whole_number("users", users, low=1)
