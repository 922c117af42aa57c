"""What ε and δ mean to the one whose data it is."""

from __future__ import annotations

import math

from dpsketch.errors import InvalidInput

__all__ = ["best_guess", "posterior", "words"]


def best_guess(epsilon: float, delta: float = 0.0) -> float:
    """Return the highest probability with which an attacker guesses right, where a coin would be right half the time.

    The attacker knows everything but whether one unit is in the data, holds both for equally likely, and guesses after
    seeing the releases. Nobody is right more often than (e^ε + δ)/(1 + e^ε), and some mechanism attains it.

    Examples
    --------
    >>> round(best_guess(1.0), 3)
    0.731
    """
    _check(epsilon, delta)
    return min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def posterior(prior: float, epsilon: float) -> float:
    """Return the most an attacker's belief can become from ``prior``, when the odds grow by e^ε.

    Examples
    --------
    >>> round(posterior(0.01, 1.0), 4)
    0.0267
    """
    _check(epsilon, 0.0)
    if not 0 <= prior <= 1:
        raise InvalidInput(f"a prior is a probability between 0 and 1, not {prior!r}.")
    return prior / (prior + (1 - prior) * math.exp(-epsilon))


def words(epsilon: float, delta: float = 0.0) -> str:
    """Say what (ε, δ) means as an attacker's best odds, before and after.

    Examples
    --------
    >>> import textwrap
    >>> print(textwrap.fill(words(1.0, 1e-6), width=115))
    An attacker who knows everything else and guesses whether one unit is in the data is right 50% of the time before,
    and at most 73.2% of the time after seeing every release.
    """
    guess = best_guess(epsilon, delta)
    # Rounded up, so that the sentence promises no more than the number.
    sentence = (
        "An attacker who knows everything else and guesses whether one unit is in the data is right 50% of the time "
        f"before, and at most {_percent(guess)} of the time after seeing every release."
    )
    if delta == 0:
        sentence += f" A belief of 1% becomes at most {_percent(posterior(0.01, epsilon))}."
    return sentence


def _percent(probability: float) -> str:
    """Write a probability as a percentage, rounded up to one digit, or to as many as tell it from 100%."""
    for digits in range(1, 13):
        scale = 10**digits
        value = math.ceil(probability * 100 * scale - 1e-9) / scale
        if value < 100:
            return f"{value:.{digits}f}%"
    return "100%"


def _check(epsilon: float, delta: float) -> None:
    if math.isnan(epsilon) or epsilon < 0 or not 0 <= delta <= 1:
        raise InvalidInput(f"({epsilon!r}, {delta!r}) is not a privacy guarantee.")
