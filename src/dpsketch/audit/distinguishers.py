"""Distinguishers: how an attacker turns what was published into a score that tells two datasets apart.

Where the output law is known, the likelihood ratio is the most powerful one (Neyman and Pearson). Where it is not, or
where a program might not follow its law, two learn from runs: a linear discriminant, and a table of outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsketch.audit.core import Distinguisher, Outputs, Scores
from dpsketch.noise import DiscreteLaplace, Noise

__all__ = [
    "Moved",
    "additive_likelihood_ratio",
    "frequent_outcomes",
    "known",
    "linear_discriminant",
    "loudest",
    "loudest_pair",
]

_MOST_WEIGHED = 24


@dataclass(frozen=True, slots=True)
class Moved:
    """Some of the published numbers: their noise, their true values, and by how much the neighbour moves them."""

    law: Noise
    base: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]

    def log_ratio(self, values: Outputs) -> Scores:
        """Return the log-likelihood ratio of runs (rows) of these numbers: neighbour against data.

        For a rounded Gaussian it is that of the Gaussian it was rounded from, which is as good as the exact one as soon
        as σ is a grid unit or more.
        """
        centred = values - self.base
        if isinstance(self.law, DiscreteLaplace):
            gain: Scores = np.sum(np.abs(centred) - np.abs(centred - self.shift), axis=1)
            return gain * (self.law.epsilon / self.law.sensitivity)
        projected: Scores = centred @ self.shift
        return projected / self.law.sigma**2


def known(score: Callable[[Outputs], Scores]) -> Distinguisher:
    """Make a distinguisher of a score that needs no learning."""
    return lambda _, __: score


def additive_likelihood_ratio(parts: Sequence[Moved]) -> Distinguisher:
    """Return the likelihood ratio of a release that adds noise, its parts side by side in each run."""
    ends = np.cumsum([len(part.base) for part in parts])

    def score(outputs: Outputs) -> Scores:
        pieces = np.split(outputs, ends[:-1], axis=1)
        total = np.zeros(len(outputs))
        for part, piece in zip(parts, pieces, strict=True):
            total += part.log_ratio(piece)
        return total

    return known(score)


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
