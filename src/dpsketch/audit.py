"""Empirical lower bounds on ε: what an attacker really achieves against a mechanism.

A mechanism is run many times on a dataset and on a neighbour of it. A *distinguisher* maps each output to a score; a
threshold on the score, chosen on one half of the runs, is a test of "which of the two was it?". On the other half
Clopper and Pearson's exact intervals bound the test's two error rates, and (ε, δ)-privacy forces
``true positives ≤ e^ε · false positives + δ``; hence a lower bound on ε that is wrong with a stated probability only.

A lower bound above the claimed ε refutes the claim. One below it proves nothing by itself, so every use of it comes
with twins (halved noise, a forgotten factor) that it must catch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch.errors import InvalidInput

__all__ = ["Audit", "epsilon_lower_bound", "likelihood_ratio", "lower_bound_from_scores"]

Data = TypeVar("Data")
Output = TypeVar("Output")
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    Attributes
    ----------
    epsilon : float
        The lower bound on ε at ``delta``; 0 where nothing was found.
    delta : float
        The δ that the mechanism is granted.
    confidence : float
        The bound is above the true ε with probability at most ``1 - confidence``.
    trials : int
        Runs on each of the two datasets.
    """

    epsilon: float
    delta: float
    confidence: float
    trials: int

    def verdict(self, claimed_epsilon: float) -> Literal["holds", "violated"]:
        """Say whether the bound refutes a claimed ε."""
        return "violated" if self.epsilon > claimed_epsilon else "holds"


def likelihood_ratio(
    log_density: Callable[[Any], float], log_density_of_neighbour: Callable[[Any], float]
) -> Callable[[Any], float]:
    """Build the most powerful distinguisher from the two output laws, where they are known."""
    return lambda output: log_density_of_neighbour(output) - log_density(output)


def epsilon_lower_bound(
    mechanism: Callable[[Data], Output],
    data: Data,
    neighbour: Data,
    *,
    score: Callable[[Output], float],
    trials: int,
    delta: float = 0.0,
    confidence: float = 0.999,
) -> Audit:
    """Bound a mechanism's ε from below by running it on two neighbouring datasets.

    Parameters
    ----------
    mechanism : callable
        Runs once with fresh noise and returns what an attacker sees.
    data, neighbour
        Two neighbouring datasets, chosen to be as far apart as the relation allows.
    score : callable
        The distinguisher: a number that tends to be larger on the neighbour (or smaller; both are tried). Use
        :func:`likelihood_ratio` where the density is known, or any projection of the output (a threshold test).
    trials : int
        Runs on each dataset.
    delta, confidence : float
        The δ granted, and the confidence of the bound.
    """
    scores = np.array([score(mechanism(data)) for _ in range(trials)], dtype=np.float64)
    scores_of_neighbour = np.array([score(mechanism(neighbour)) for _ in range(trials)], dtype=np.float64)
    return lower_bound_from_scores(scores, scores_of_neighbour, delta=delta, confidence=confidence)


def lower_bound_from_scores(
    scores: Scores, scores_of_neighbour: Scores, *, delta: float = 0.0, confidence: float = 0.999
) -> Audit:
    """Bound ε from below given the distinguisher's scores of independent runs on the two datasets.

    The first halves choose a test (a threshold and a direction), the second halves measure it, so the choice costs
    no confidence.
    """
    if len(scores) < 20 or len(scores_of_neighbour) < 20:
        raise InvalidInput("an audit needs at least 20 runs on each dataset.")
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must lie between 0 and 1, not {confidence!r}.")
    half, half_of_neighbour = len(scores) // 2, len(scores_of_neighbour) // 2
    chosen = _choose_test(scores[:half], scores_of_neighbour[:half_of_neighbour], delta, confidence)
    hits, hits_of_neighbour = chosen(scores[half:]), chosen(scores_of_neighbour[half_of_neighbour:])
    epsilon = _certified(
        hits, hits_of_neighbour, len(scores) - half, len(scores_of_neighbour) - half_of_neighbour, delta, confidence
    )
    return Audit(max(0.0, epsilon), delta, confidence, min(len(scores), len(scores_of_neighbour)))


def _choose_test(scores: Scores, others: Scores, delta: float, confidence: float) -> Callable[[Scores], int]:
    """Pick the threshold, side and direction with the best certified bound on the given runs."""
    pooled = np.unique(np.concatenate([scores, others]))
    thresholds = pooled if len(pooled) <= 512 else pooled[np.linspace(0, len(pooled) - 1, 512).astype(int)]
    # Certified bounds live in the tails: look closely at the extreme order statistics too.
    thresholds = np.unique(np.concatenate([thresholds, pooled[:64], pooled[-64:]]))
    ordered, ordered_others = np.sort(scores), np.sort(others)
    below = np.searchsorted(ordered, thresholds, side="right")
    below_others = np.searchsorted(ordered_others, thresholds, side="right")
    best = (-math.inf, thresholds[0], True)
    for threshold, hits, hits_others in zip(thresholds, below, below_others, strict=True):
        for low, (a, b) in ((True, (hits, hits_others)), (False, (len(scores) - hits, len(others) - hits_others))):
            bound = _certified(int(a), int(b), len(scores), len(others), delta, confidence)
            if bound > best[0]:
                best = (bound, threshold, low)
    _, threshold, low = best
    if low:
        return lambda values: int(np.count_nonzero(values <= threshold))
    return lambda values: int(np.count_nonzero(values > threshold))


def _certified(
    hits: int, hits_of_neighbour: int, runs: int, runs_of_neighbour: int, delta: float, confidence: float
) -> float:
    """Turn the counts of one event under the two datasets into a bound on ε (either may be the likelier)."""
    # Four one-sided intervals, each wrong with probability (1 - confidence) / 4.
    wrong = (1 - confidence) / 4
    low, high = _clopper_pearson(hits, runs, wrong)
    low_of_neighbour, high_of_neighbour = _clopper_pearson(hits_of_neighbour, runs_of_neighbour, wrong)
    bounds = [
        math.log((likely - delta) / rare) if likely > delta else -math.inf
        for likely, rare in ((low, high_of_neighbour), (low_of_neighbour, high))
    ]
    return max(bounds)


def _clopper_pearson(hits: int, runs: int, wrong: float) -> tuple[float, float]:
    """Return one-sided lower and upper bounds on a probability, each wrong with probability ``wrong``."""
    from scipy.special import betaincinv

    low = float(betaincinv(hits, runs - hits + 1, wrong)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, runs - hits, 1 - wrong)) if hits < runs else 1.0
    return low, high
