"""What a local protocol takes as arguments, checked."""

from __future__ import annotations

from typing import Any

from dpsketch.errors import InvalidInput

__all__ = ["LARGEST_SEED", "privacy_parameter", "probability", "whole_number"]

# Below, the odds differ from 1 by too little to be of use; above, a report promises next to nothing.
SMALLEST_EPSILON = 0.001
LARGEST_EPSILON = 20.0

# A spec travels as JSON, and JavaScript reads its numbers exactly up to here.
LARGEST_SEED = 2**53 - 1


def privacy_parameter(epsilon: Any) -> float:
    """Return the ε of a report, or refuse it."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        raise InvalidInput(f"epsilon must be a number, not {type(epsilon).__name__}.")
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise InvalidInput(
            f"epsilon of a local report must lie between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}, not {epsilon!r}."
        )
    return float(epsilon)


def whole_number(name: str, value: Any, *, low: int, high: int) -> int:
    """Return a whole-number argument within its range, or refuse it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidInput(f"{name} must be a whole number, not {type(value).__name__}.")
    number = int(value.__index__())
    if not low <= number <= high:
        raise InvalidInput(f"{name} must lie between {low} and {high}, not {number}.")
    return number


def probability(name: str, value: Any) -> float:
    """Return a number strictly between 0 and 1, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{name} must be a number, not {type(value).__name__}.")
    if not 0 < value < 1:
        raise InvalidInput(f"{name} must lie between 0 and 1, not {value!r}.")
    return float(value)
