"""What is audited and what is found: claims, findings, mechanisms that are sampled, and rows of the table."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from dpsketch import accounting
from dpsketch.audit.bounds import Distinguisher, Outputs, lower_bound_from_outputs
from dpsketch.errors import InvalidInput
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import GaussianCost, Guarantee, MomentCost, Neighbours, Unit, per_record, per_user

__all__ = [
    "BOTH", "GAUSSIAN", "PURE", "Attacked", "AuditRow", "Claim", "Finding", "Level", "Mechanism", "claim_of",
    "printed_promise", "spent",
]  # fmt: skip

# What composes at every δ (Gaussian noise, moments) is restated at this one, where few trials see the most.
DELTA = 0.2

_PRINTED = re.compile(r"ε = (?P<epsilon>[0-9.e+-]+)(?:, δ = (?P<delta>[0-9.e+-]+))?, for ")

Level = Literal["record", "user"]
Method = Literal["law", "restated", "sampled"]


class Attacked(TypedDict):
    """A budget as arguments of ``release``."""

    epsilon: float
    delta: float


# Budgets of which few trials see the most.
GAUSSIAN, PURE = Attacked(epsilon=6.0, delta=1e-6), Attacked(epsilon=1.5, delta=0.0)


def spent(claimed: Attacked, noise: float) -> Attacked:
    """Return the budget whose noise is ``noise`` times that of the claimed one; Gaussian if δ is not 0.

    Below 1 this makes a mutant, which claims one budget and draws the noise of a larger one: audits must catch it.
    """
    epsilon, delta = claimed["epsilon"], claimed["delta"]
    if noise == 1.0 or delta == 0:
        return Attacked(epsilon=epsilon / noise, delta=delta)
    return Attacked(
        epsilon=accounting.gaussian_epsilon(accounting.gaussian_mu(epsilon, delta) / noise, delta), delta=delta
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """What a mechanism claims for a pair of neighbours: (ε, δ)."""

    epsilon: float
    delta: float = 0.0


def printed_promise(promise: Guarantee) -> Claim:
    """Read (ε, δ) from the sentence that a guarantee prints: that is what people are told."""
    found = _PRINTED.search(str(promise))
    if found is None:
        raise InvalidInput("this release promises nothing, so there is no claim to audit.")
    return Claim(float(found["epsilon"]), float(found["delta"] or 0))


def claim_of(promise: Guarantee) -> Claim:
    """Restate what a release prints: pure ε as it is, others at the δ of audits.

    Gaussian noise that is just (ε, δ)-private is described by one number, so that the printed pair says what it is at
    any other δ. Moments are restated by what is charged for them, unless the sentence promises more than that.
    """
    printed, charged = printed_promise(promise), list(promise.costs)
    epsilon, delta = printed.epsilon, printed.delta
    if delta == 0:
        moments = any(isinstance(cost, MomentCost) for cost in charged)
        if not moments or not accounting.fits(charged, epsilon=epsilon, delta=0.0):
            return printed
    elif all(isinstance(cost, GaussianCost) for cost in charged) or accounting.compose(charged, delta=delta) > epsilon:
        return Claim(accounting.gaussian_epsilon(accounting.gaussian_mu(epsilon, delta), DELTA), DELTA)
    return Claim(accounting.compose(charged, delta=DELTA), DELTA)


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
    """A mechanism with the pair of neighbours that is worst for it, to be sampled.

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
        outputs = self.without(trials), self.within(trials)
        found, distinguisher = lower_bound_from_outputs(
            *outputs, self.distinguishers, delta=self.claim.delta, confidence=confidence
        )
        return Finding(self.name, self.neighbours, self.claim, found.epsilon, distinguisher, trials, self.shipped)


# Both units under both relations.
BOTH: tuple[tuple[Level, Neighbours], ...] = (
    ("record", "add_remove"), ("record", "replace"), ("user", "add_remove"), ("user", "replace"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuditRow(ABC):
    """A row of the table: a subject that is released at one unit and relation, on several pairs of neighbours.

    Attributes
    ----------
    subject : str
        What is released.
    level, relation
        The unit.
    noise : float
        How much of the noise due is really drawn: 1, except where the audit itself is tested. Where noise cannot be
        taken away, the budget of a release is larger than the one claimed by as much.
    """

    subject: str
    level: Level
    relation: Neighbours
    noise: float = 1.0

    @property
    def name(self) -> str:
        """What it is called."""
        return f"table-{self.subject}-{self.level}-{'replace' if self.relation == 'replace' else 'add'}"

    @property
    def replaced(self) -> bool:
        """Whether a unit is replaced rather than added."""
        return self.relation == "replace"

    def unit_of(self, max_keys: int, max_weight: float = 1.0) -> Unit:
        """Return the unit: a record, or a user, with bounds on keys and on the weight of each."""
        if self.level == "user":
            return per_user(max_keys, max_weight=max_weight, neighbours=self.relation)
        return per_record(max_weight=max_weight, neighbours=self.relation)

    def words(self, pair: str) -> str:
        """Return a pair of neighbours in words, by what the unit is."""
        return f"{pair}, {'replaced' if self.replaced else 'added'}"

    def finding(
        self, pair: tuple[str, str], claim: Claim, found: float, by: str, trials: int, method: Method,
        caught: float | None = None,
    ) -> Finding:  # fmt: skip
        """Return what was found on a pair, given by its name and by what the unit is."""
        name, unit = pair
        return Finding(f"{self.name}-{name}", self.words(unit), claim, found, by, trials, True, method, caught)

    def audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release up to ``trials`` times for each stream, and bound ε from below on each pair of neighbours."""
        return self._audit(whole_number("trials", trials), probability("confidence", confidence))

    @abstractmethod
    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Audit, with numbers that were checked."""
