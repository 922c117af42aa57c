"""What ε and δ mean to the one whose data it is."""

from __future__ import annotations

import math

from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number
from dpsketch.privacy import Unit, best_guess, percentage

__all__ = ["posterior", "words"]


def posterior(prior: float, epsilon: float) -> float:
    """Return the most an attacker's belief can become from ``prior`` under pure ε, when the odds grow by e^ε.

    Examples
    --------
    >>> round(posterior(0.01, 1.0), 4)
    0.0267
    """
    prior, epsilon = real_number("prior", prior), real_number("epsilon", epsilon)
    if epsilon < 0:
        raise InvalidInput(f"epsilon must be at least 0, not {epsilon!r}.")
    if not 0 <= prior <= 1:
        raise InvalidInput(f"a prior is a probability between 0 and 1, not {prior!r}.")
    return prior / (prior + (1 - prior) * math.exp(-epsilon))


def words(epsilon: float, delta: float = 0.0, unit: Unit | None = None) -> str:
    """Say what (ε, δ) means as how often an attacker is right, before and after.

    Parameters
    ----------
    epsilon, delta : float
        What was spent.
    unit : Unit, optional
        Whose presence is hidden. Without it the sentence speaks of two datasets that are one unit apart.

    Examples
    --------
    >>> import textwrap
    >>> from dpsketch.privacy import per_record
    >>> print(textwrap.fill(words(1.0, 1e-6, per_record()), width=115))
    An attacker who knows everything else and guesses whether any one record is in the data is right 50% of the time
    before, and at most 73.2% of the time after seeing every release.
    """
    secret = "which of two datasets, one unit apart, is the true one" if unit is None else unit.secret
    # Rounded up, so that the sentence promises no more than the number.
    sentence = (
        f"An attacker who knows everything else and guesses {secret} is right 50% of the time before, and at most "
        f"{percentage(best_guess(epsilon, delta))} of the time after seeing every release."
    )
    if delta == 0:
        sentence += f" A belief of 1% becomes at most {percentage(posterior(0.01, epsilon))}."
    return sentence
