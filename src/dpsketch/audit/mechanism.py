"""A mechanism as an audit sees it: two neighbouring datasets, what is published of each, and what was claimed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, TypedDict

import numpy as np
import numpy.typing as npt

from dpsketch import accounting
from dpsketch.audit.core import Distinguisher, Outputs, lower_bound_from_outputs
from dpsketch.audit.distinguishers import Moved, additive_likelihood_ratio, linear_discriminant
from dpsketch.errors import InvalidInput
from dpsketch.noise import Noise
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import GaussianCost, Guarantee, MomentCost

__all__ = [
    "DELTA", "Asked", "Budget", "Claim", "Finding", "Mechanism", "Method", "Parts", "additive", "claim_of",
    "parts_of", "printed_promise", "repeated",
]  # fmt: skip

# What composes at every δ (Gaussian noise, moments) is restated at this one, where few trials see the most.
DELTA = 0.2

_PRINTED = re.compile(r"ε = (?P<epsilon>[0-9.e+-]+)(?:, δ = (?P<delta>[0-9.e+-]+))?, for ")

Method = Literal["law", "restated", "sampled"]

# What is published, part by part, with the noise of each part.
Parts = Sequence[tuple[npt.NDArray[Any], Noise]]


class Asked(TypedDict):
    """A budget as arguments of ``release``."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Claim:
    """What a mechanism claims for a pair of neighbours: (ε, δ)."""

    epsilon: float
    delta: float = 0.0


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of a release, and how much of the noise that it asks for is really drawn.

    A ``noise`` below 1 makes a mutant: a release that claims one budget and has the noise of a larger one. Audits are
    only worth something if they catch it.
    """

    epsilon: float
    delta: float
    noise: float = 1.0

    @classmethod
    def gaussian(cls, noise: float = 1.0) -> Self:
        """Return a budget for Gaussian noise of which few trials see the most."""
        return cls(6.0, 1e-6, noise)

    @classmethod
    def pure(cls, noise: float = 1.0) -> Self:
        """Return a pure budget of which few trials see the most."""
        return cls(1.5, 0.0, noise)

    @property
    def claimed(self) -> Asked:
        """The budget that is claimed."""
        return Asked(epsilon=self.epsilon, delta=self.delta)

    @property
    def spent(self) -> Asked:
        """The budget whose noise is drawn."""
        if self.noise == 1.0:
            return self.claimed
        if self.delta == 0:
            return Asked(epsilon=self.epsilon / self.noise, delta=0.0)
        mu = accounting.gaussian_mu(self.epsilon, self.delta) / self.noise
        return Asked(epsilon=accounting.gaussian_epsilon(mu, self.delta), delta=self.delta)


@dataclass(frozen=True, slots=True)
class Finding:
    """What an audit found.

    Attributes
    ----------
    name, neighbours : str
        The mechanism, and the two datasets in words.
    claim : Claim
        What is claimed, at the δ of the audit.
    audited_epsilon : float
        The lower bound on ε; infinite where no ε covers what was seen (None in JSON).
    distinguisher : str
        The one that told most.
    trials : int
        Runs on each dataset.
    shipped : bool
        False for what is kept for comparison only, as published.
    method : {"law", "restated", "sampled"}
        How the bound was found: by the exact law of the two outputs, with the noise that was seen; by restating the
        promise for the noise that was seen, where names alone are published and tell less than the proof grants; or
        by sampling both outputs, whatever their law.
    caught : float or None
        :attr:`power`, where it was worked out; by default it follows from the bound.
    """

    name: str
    neighbours: str
    claim: Claim
    audited_epsilon: float
    distinguisher: str
    trials: int
    shipped: bool
    method: Method = "sampled"
    caught: float | None = None

    @property
    def power(self) -> float:
        """The largest share of the noise due that this audit would have taken for too little; 0 where none is.

        Where δ is 0, noise of the share f has the loss ε/f; else it is taken for Gaussian noise.
        """
        if self.caught is not None:
            return self.caught
        if self.audited_epsilon >= self.claim.epsilon:
            return 1.0
        if self.audited_epsilon <= 0:
            return 0.0
        if self.claim.delta == 0:
            return self.audited_epsilon / self.claim.epsilon
        seen, due = (accounting.gaussian_mu(e, self.claim.delta) for e in (self.audited_epsilon, self.claim.epsilon))
        return seen / due

    @property
    def verdict(self) -> Literal["holds", "violated"]:
        """Whether the bound refutes the claim."""
        return "violated" if self.audited_epsilon > self.claim.epsilon else "holds"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON-ready values."""
        return {
            "name": self.name,
            "claimed_epsilon": self.claim.epsilon,
            "audited_epsilon": self.audited_epsilon if math.isfinite(self.audited_epsilon) else None,
            "verdict": self.verdict,
            "delta": self.claim.delta,
            "method": self.method,
            "power": round(self.power, 3),
            "distinguisher": self.distinguisher,
            "neighbours": self.neighbours,
            "trials": self.trials,
            "shipped_as_private": self.shipped,
        }


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism with the pair of neighbours that is worst for it.

    Attributes
    ----------
    name, neighbours : str
        What it is called, and the two datasets in words.
    claim : Claim
        What it promises.
    without, within : callable
        Run it so many times, through the public interface, on the dataset and on its neighbour; each row of the result
        is what the attacker saw of one run.
    distinguishers : mapping
        The attackers.
    shipped : bool
        False for what is kept for comparison only, as published.
    """

    name: str
    neighbours: str
    claim: Claim
    without: Callable[[int], Outputs]
    within: Callable[[int], Outputs]
    distinguishers: Mapping[str, Distinguisher]
    shipped: bool = True

    def audit(self, trials: int, confidence: float) -> Finding:
        """Run the mechanism ``trials`` times on each dataset and bound its ε from below."""
        trials, confidence = whole_number("trials", trials), probability("confidence", confidence)
        found, distinguisher = lower_bound_from_outputs(
            self.without(trials),
            self.within(trials),
            self.distinguishers,
            delta=self.claim.delta,
            confidence=confidence,
        )
        return Finding(self.name, self.neighbours, self.claim, found.epsilon, distinguisher, trials, self.shipped)


class _Release(Protocol):
    @property
    def guarantee(self) -> Guarantee: ...


def printed_promise(promise: Guarantee) -> tuple[float, float]:
    """Read (ε, δ) from the sentence that a guarantee prints: that is what people are told."""
    found = _PRINTED.search(str(promise))
    if found is None:
        raise InvalidInput("this release promises nothing, so there is no claim to audit.")
    return float(found["epsilon"]), float(found["delta"] or 0)


def claim_of(promise: Guarantee) -> Claim:
    """Restate what a release prints: pure ε as it is, others at the δ of audits.

    Gaussian noise that is just (ε, δ)-private is described by one number, so that the printed pair says what it is at
    any other δ. Moments are restated by what is charged for them, unless the sentence promises more than that.
    """
    epsilon, delta = printed_promise(promise)
    charged = list(promise.costs)
    if delta == 0:
        covered = any(isinstance(cost, MomentCost) for cost in charged) and accounting.fits(
            charged, epsilon=epsilon, delta=0.0
        )
        return Claim(accounting.compose(charged, delta=DELTA), DELTA) if covered else Claim(epsilon)
    if all(isinstance(cost, GaussianCost) for cost in charged) or accounting.compose(charged, delta=delta) > epsilon:
        return Claim(accounting.gaussian_epsilon(accounting.gaussian_mu(epsilon, delta), DELTA), DELTA)
    return Claim(accounting.compose(charged, delta=DELTA), DELTA)


def repeated(run: Callable[[], npt.NDArray[Any]]) -> Callable[[int], Outputs]:
    """Turn one run into many; a run returns the numbers that are published."""
    return lambda trials: np.array([run() for _ in range(trials)], dtype=np.float64)


def parts_of(release: Any) -> Parts:
    """Return the tables of a release, each with the noise that its law states."""
    return [(part.arrays["table"], part.law.noise) for part in release.drawn.parts.values()]


def additive(
    name: str,
    neighbours: str,
    sketches: tuple[Any, Any],
    budget: Budget,
    parts: Callable[[Any], Parts] = parts_of,
) -> Mechanism:
    """Describe a sketch that is released with additive noise.

    Parameters
    ----------
    name, neighbours : str
        Name and pair in words.
    sketches : pair
        The sensitive sketches of the two datasets.
    budget : Budget
        The budget of each release.
    parts : callable
        What of a release is public, with its noise.
    """
    without, within = sketches
    claimed: _Release = without.release(**budget.claimed)
    # So large a budget draws no noise, and shows what the attacker who knows both datasets knows.
    bare = [parts(sketch.release(epsilon=1e6, delta=1e-6 if budget.delta else 0.0)) for sketch in sketches]
    laws = [law for _, law in parts(without.release(**budget.spent))]
    moved = [
        Moved(law, base.ravel().astype(np.float64), (there.ravel() - base.ravel()).astype(np.float64))
        for law, (base, _), (there, _) in zip(laws, *bare, strict=True)
    ]

    def run(sketch: Any) -> Callable[[], npt.NDArray[Any]]:
        return lambda: np.concatenate([part.ravel() for part, _ in parts(sketch.release(**budget.spent))])

    return Mechanism(
        name,
        neighbours,
        claim_of(claimed.guarantee),
        repeated(run(without)),
        repeated(run(within)),
        {"likelihood ratio": additive_likelihood_ratio(moved), "learned": linear_discriminant},
    )
