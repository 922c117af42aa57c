"""Empirical lower bounds on ε: what an attacker really achieves against a mechanism.

A mechanism is run many times on a dataset and on a neighbour of it. A *distinguisher* maps each output to a score; a
threshold on the score, chosen on one half of the runs, is a test of "which of the two was it?". On the other half
Clopper and Pearson's exact intervals bound the test's two error rates, and (ε, δ)-privacy forces
``true positives ≤ e^ε · false positives + δ``; hence a lower bound on ε that is wrong with a stated probability only.

Where the output law is known, the likelihood ratio is the most powerful distinguisher (Neyman and Pearson). Where it is
not, or where a program might not follow its law, some learn from runs: a linear discriminant, and a table of outcomes.

A lower bound above the claimed ε refutes the claim. One below it proves nothing by itself, so every use of it comes
with twins (halved noise, a forgotten factor) that it must catch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch.errors import InvalidInput
from dpsketch.numbers import probability, real_number, whole_number

__all__ = [
    "LEARNERS", "Audit", "Distinguisher", "Outputs", "Scores", "clopper_pearson", "epsilon_lower_bound",
    "frequent_outcomes", "known", "linear_discriminant", "loudest", "loudest_pair",
    "lower_bound_from_outputs", "lower_bound_from_scores",
]  # fmt: skip

Data = TypeVar("Data")
Output = TypeVar("Output")
Scores = npt.NDArray[np.float64]
Outputs = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]
_MOST_WEIGHED = 24
# Learns from runs on the two datasets (or ignores them), and returns a score for each run that it is then shown.
Distinguisher = Callable[[Outputs, Outputs], Callable[[Outputs], Scores]]


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
        The distinguisher: a number that tends to be larger on the neighbour (or smaller; both are tried). The log
        ratio of the two densities where they are known, or any projection of the output (a threshold test).
    trials : int
        Runs on each dataset.
    delta, confidence : float
        The δ granted, and the confidence of the bound.
    """
    trials = whole_number("trials", trials)
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
    delta, confidence = real_number("delta", delta), probability("confidence", confidence)
    _check(len(scores), len(scores_of_neighbour))
    half, half_of_neighbour = len(scores) // 2, len(scores_of_neighbour) // 2
    chosen, _ = _choose_event(scores[:half], scores_of_neighbour[:half_of_neighbour], delta, confidence)
    return _measure(chosen, scores[half:], scores_of_neighbour[half_of_neighbour:], delta, confidence)


def lower_bound_from_outputs(
    outputs: Outputs,
    outputs_of_neighbour: Outputs,
    distinguishers: Mapping[str, Distinguisher],
    *,
    delta: float = 0.0,
    confidence: float = 0.999,
) -> tuple[Audit, str]:
    """Bound ε from below by the best of several distinguishers; return the bound and the distinguisher's name.

    Parameters
    ----------
    outputs, outputs_of_neighbour : numpy.ndarray
        What the attacker saw in independent runs on the two datasets, one run a row.
    distinguishers : mapping of names to distinguishers
        How an attacker turns what was published into scores.
    delta, confidence : float
        The δ granted, and the confidence of the bound.

    Notes
    -----
    A distinguisher learns from the first quarter of the runs, the second quarter chooses among them and their
    thresholds, and the other half, which nothing has looked at, measures the one that was chosen.
    """
    delta, confidence = real_number("delta", delta), probability("confidence", confidence)
    _check(len(outputs), len(outputs_of_neighbour))
    runs = min(len(outputs), len(outputs_of_neighbour))
    quarter, half = runs // 4, runs // 2
    best: tuple[float, str, Callable[[Outputs], Scores], Event] | None = None
    for name, distinguisher in distinguishers.items():
        score = distinguisher(outputs[:quarter], outputs_of_neighbour[:quarter])
        chosen, promise = _choose_event(
            score(outputs[quarter:half]), score(outputs_of_neighbour[quarter:half]), delta, confidence
        )
        if best is None or promise > best[0]:
            best = promise, name, score, chosen
    if best is None:
        raise InvalidInput("an audit needs at least one distinguisher.")
    _, name, score, chosen = best
    found = _measure(chosen, score(outputs[half:]), score(outputs_of_neighbour[half:]), delta, confidence)
    return replace(found, trials=runs), name


def _check(runs: int, runs_of_neighbour: int) -> None:
    if runs < 20 or runs_of_neighbour < 20:
        raise InvalidInput("an audit needs at least 20 runs on each dataset.")


@dataclass(frozen=True, slots=True)
class Event:
    """What a test looks for: a score at or below a threshold, or above it."""

    threshold: float
    below: bool

    def hits(self, scores: Scores) -> int:
        """Count the runs in which the event happened."""
        below = int(np.count_nonzero(scores <= self.threshold))
        return below if self.below else len(scores) - below


def _choose_event(scores: Scores, others: Scores, delta: float, confidence: float) -> tuple[Event, float]:
    """Pick the threshold and side with the best certified bound on the given runs; return it with that bound."""
    pooled = np.unique(np.concatenate([scores, others]))
    thresholds = pooled if len(pooled) <= 512 else pooled[np.linspace(0, len(pooled) - 1, 512).astype(int)]
    # Certified bounds live in the tails: look closely at the extreme order statistics too.
    thresholds = np.unique(np.concatenate([thresholds, pooled[:64], pooled[-64:]]))
    below = np.searchsorted(np.sort(scores), thresholds, side="right")
    below_others = np.searchsorted(np.sort(others), thresholds, side="right")
    n, m = len(scores), len(others)
    bounds = np.stack(
        [
            _certified(below, below_others, n, m, delta, confidence),
            _certified(n - below, m - below_others, n, m, delta, confidence),
        ]
    )
    side, place = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
    return Event(float(thresholds[place]), bool(side == 0)), float(bounds[side, place])


def _measure(event: Event, scores: Scores, others: Scores, delta: float, confidence: float) -> Audit:
    hits, hits_others = np.array([event.hits(scores)]), np.array([event.hits(others)])
    bound = float(_certified(hits, hits_others, len(scores), len(others), delta, confidence)[0])
    return Audit(max(0.0, bound), delta, confidence, 2 * min(len(scores), len(others)))


def _certified(
    hits: Counts, hits_others: Counts, runs: int, runs_others: int, delta: float, confidence: float
) -> Scores:
    """Turn the counts of events under the two datasets into bounds on ε (either may be the likelier)."""
    # Four one-sided intervals, each wrong with probability (1 - confidence) / 4.
    wrong = (1 - confidence) / 4
    low, high = clopper_pearson(hits, runs, wrong)
    low_others, high_others = clopper_pearson(hits_others, runs_others, wrong)
    with np.errstate(divide="ignore"):
        bounds: Scores = np.maximum(
            np.log(np.maximum(low - delta, 0.0) / high_others), np.log(np.maximum(low_others - delta, 0.0) / high)
        )
    return bounds


def clopper_pearson(hits: Counts, runs: int, wrong: float) -> tuple[Scores, Scores]:
    """Return one-sided lower and upper bounds on probabilities, each wrong with probability ``wrong``."""
    from scipy.special import betaincinv

    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1, wrong), 0.0)
    high = np.where(hits < runs, betaincinv(hits + 1, np.maximum(runs - hits, 1), 1 - wrong), 1.0)
    return low, high


def known(score: Callable[[Outputs], Scores]) -> Distinguisher:
    """Make a distinguisher of a score that needs no learning."""
    return lambda _, __: score


def linear_discriminant(outputs: Outputs, others: Outputs) -> Callable[[Outputs], Scores]:
    """Learn Fisher's linear discriminant: the projection along which the two clouds of runs differ most."""
    # Of more numbers than the runs can weigh, only the loudest are used.
    used = np.argsort(_loudness(outputs, others), kind="stable")[::-1][:_MOST_WEIGHED]
    outputs, others = outputs[:, used], others[:, used]
    centre, other_centre = outputs.mean(axis=0), others.mean(axis=0)
    pooled = np.concatenate([outputs - centre, others - other_centre])
    scale = pooled.std(axis=0)
    scale[scale == 0] = 1.0
    scaled = pooled / scale
    # A ridge of the order of the sampling error keeps the inverse tame where runs are few.
    width = scaled.shape[1]
    covariance = scaled.T @ scaled / len(scaled) + np.eye(width) * np.sqrt(width / len(scaled))
    direction = np.linalg.solve(covariance, (other_centre - centre) / scale) / scale
    return lambda shown: shown[:, used] @ direction


def loudest(outputs: Outputs, others: Outputs) -> Callable[[Outputs], Scores]:
    """Learn which single published number differs most, and put a threshold on it."""
    place = int(np.argmax(_loudness(outputs, others)))
    return lambda shown: shown[:, place].astype(np.float64)


def loudest_pair(outputs: Outputs, others: Outputs) -> Callable[[Outputs], Scores]:
    """Learn which two published numbers differ most, and add them up, each in its direction and unit."""
    pair = np.argsort(_loudness(outputs, others), kind="stable")[::-1][:2]
    steps = others[:, pair].mean(axis=0) - outputs[:, pair].mean(axis=0)
    spread = outputs[:, pair].var(axis=0) + others[:, pair].var(axis=0)
    weights = steps / np.where(spread == 0, np.inf, spread)
    return lambda shown: shown[:, pair] @ weights


def _loudness(outputs: Outputs, others: Outputs) -> Scores:
    """Return by how many standard deviations each published number differs."""
    spread = np.sqrt(outputs.var(axis=0) + others.var(axis=0))
    spread[spread == 0] = np.inf
    loudness: Scores = np.abs(others.mean(axis=0) - outputs.mean(axis=0)) / spread
    return loudness


def frequent_outcomes(outputs: Outputs, others: Outputs) -> Callable[[Outputs], Scores]:
    """Learn how often each outcome occurs, for mechanisms of few outcomes; score by the smoothed log-ratio."""
    outcomes, places = np.unique(np.concatenate([outputs, others]), axis=0, return_inverse=True)
    places = places.ravel()
    counts = np.bincount(places[: len(outputs)], minlength=len(outcomes))
    other_counts = np.bincount(places[len(outputs) :], minlength=len(outcomes))
    ratios = np.log((other_counts + 1.0) / (counts + 1.0))
    learned = {outcome.tobytes(): float(ratio) for outcome, ratio in zip(outcomes, ratios, strict=True)}
    return lambda shown: np.array([learned.get(np.ascontiguousarray(run).tobytes(), 0.0) for run in shown])


# For what has no law, or might not follow it.
LEARNERS: Mapping[str, Distinguisher] = {
    "frequent outcomes": frequent_outcomes, "threshold": loudest, "pair": loudest_pair, "learned": linear_discriminant,
}  # fmt: skip
