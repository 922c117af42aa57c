"""How a histogram's release chooses the bound on a user's keys: after names are found, before they are counted.

Only the counts are bounded by the choice, so that it is about the keys that are counted: those of a public list, or
those that were found, which are public by then.

Privacy
-------
A count's noise is that of one key, widened for the bound m: √m times as wide if Gaussian, m times if Laplace. A unit on
at most m keys then shifts the counts by as many deviations as one on a single key, whatever m is, and the rest of the
release costs the same for every choice: (ε′, δ) in all. The choice is pure (:mod:`dpsketch.sketches.bounds`) with
ε − ε′. So at every ε the pair of laws that covers the rest, composed with that of the choice, covers both, in whatever
order and depending on each other however they like: (ε, δ) is kept for every outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, assert_never

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.numbers import real_number
from dpsketch.privacy import ApproximateCost, Budget, Cost, GaussianCost, PureCost, ZcdpCost
from dpsketch.sketches.bounds import LARGEST, SHARE, SPREAD, USERS, Choice, choice_parts, tables
from dpsketch.sketches.histogram.joint import gaussian_excess
from dpsketch.sketches.permit import Part, Permit, Share, additive
from dpsketch.sketches.specs import Sensitivity
from dpsketch.truncated import TruncatedLaplace, law_from_json

if TYPE_CHECKING:
    from dpsketch.sketches.histogram.content import Content
    from dpsketch.sketches.histogram.entries import Entries
    from dpsketch.sketches.histogram.mechanism import Mechanism

__all__ = ["GUESS", "AutoBound", "Choosing", "divided", "list_laws", "widened"]


# What a prediction takes for the bound, which nobody knows before the release.
GUESS = 30
# So much less of δ, and of ε, keeps their promise in floats too.
_LESS = 1 - 1e-9
_LESS_EPSILON = 1 - 1e-12
_MARGIN = 1 + 1e-12


def divided(epsilon: float) -> tuple[float, float]:
    """Return the ε of a choice, and of the rest of its release."""
    return epsilon * SHARE, epsilon * (1 - SHARE) * _LESS_EPSILON


def widened(law: Noise, keys: int) -> Noise:
    """Return the noise of one key widened for a bound of so many."""
    match law:
        case RoundedGaussian(sigma):
            return RoundedGaussian(sigma * math.sqrt(keys) * _MARGIN)
        case DiscreteLaplace(epsilon, sensitivity):
            return DiscreteLaplace(epsilon, sensitivity * keys)
        case never:
            assert_never(never)


def list_laws(budget: Budget, rest: float, each: Sensitivity, form: str | None, spare: float) -> tuple[Noise, ...]:
    """Return the laws of one key's count that a public list may get, at ``rest`` of ε.

    ``each`` is how far a unit on one key moves it, ``spare`` what of δ is spent elsewhere.
    """
    share = Share("the entries", each)
    laws: list[Noise] = []
    match budget.cost:
        case ZcdpCost():
            raise InvalidInput("a bound that is chosen goes with epsilon= and delta=: state these, or max_keys=.")
        case ApproximateCost(_, delta) if delta > 2 * spare and form in (None, "gaussian"):
            laws.append(additive(Budget(rest, (delta - spare) * _LESS), share).law(share.name))
        case _:
            pass
    if form in (None, "laplace"):
        laws.append(additive(Budget(rest, 0.0), share).law(share.name))
    if not laws:
        raise InvalidInput("this budget does not go with that form: Gaussian noise needs delta > 0 or rho.")
    return tuple(laws)


@dataclass(frozen=True, slots=True)
class AutoBound:
    """A bound that a release chooses.

    Attributes
    ----------
    epsilon, rest : float
        What the choice costs, and what is left of ε.
    replace : bool
        Whether neighbours have one unit in place of another.
    laws : tuple of Noise
        What the count of a unit's only key may carry; of several the narrower is taken for the bound that was chosen.
    choice : Choice or None
        What was published to choose it; None before that.
    """

    epsilon: float
    rest: float
    replace: bool
    laws: tuple[Noise, ...]
    choice: Choice | None = None

    def law(self, keys: int) -> Noise:
        """Return what counts carry under a bound of so many keys."""
        return min((widened(law, keys) for law in self.laws), key=lambda law: law.variance)

    def others(self, keys: int) -> Noise:
        """Return what the count of all other keys carries: see the mechanism of a public list."""
        law = self.law(keys)
        return RoundedGaussian(law.sigma * math.sqrt(keys)) if isinstance(law, RoundedGaussian) else law

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the choice."""
        return choice_parts(self.epsilon, replace=self.replace)

    @property
    def words(self) -> str:
        """The choice in a phrase."""
        share = self.epsilon / (self.epsilon + self.rest)
        return f"the bound on a user's keys chosen privately with {share:.0%} of ε (discrete Laplace noise)"

    @property
    def law_words(self) -> str:
        """What counts carry, in a phrase."""
        names = " or ".join(law.words for law in self.laws)
        return f"{names} for one key of a user, widened for the chosen bound"

    def costs(self, each: Sensitivity, spare: float) -> tuple[Cost, ...]:
        """Return what the counts of a public list cost, whichever law they get.

        One of the laws is drawn for each bound, so that the cost is one that covers them all.
        """
        epsilon = delta = 0.0
        for law in self.laws:
            match Part("the entries", law, each).costs[0]:
                case PureCost(own):
                    epsilon = max(epsilon, own)
                case GaussianCost(mu):
                    epsilon, delta = max(epsilon, self.rest), max(delta, float(gaussian_excess(self.rest, mu)))
                case _:
                    raise InvalidInput("the counts of a list carry Laplace or Gaussian noise.")
        delta += spare
        return (ApproximateCost(epsilon, delta) if delta else PureCost(epsilon),)

    def to_json(self) -> dict[str, Any]:
        """Return the bound as JSON-ready values."""
        if self.choice is None:
            raise InvalidInput("no bound was chosen yet.")
        return {"rest": self.rest, "laws": [law.to_json() for law in self.laws], "choice": self.choice.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any], *, replace: bool) -> Self:
        """Rebuild from :meth:`to_json`."""
        choice = Choice.from_json(value["choice"], replace=replace)
        laws = tuple(law_from_json(law) for law in value["laws"])
        rest = real_number("rest", value["rest"])
        plain = tuple(law for law in laws if not isinstance(law, TruncatedLaplace))
        if not 0 < rest < math.inf or not 1 <= len(plain) == len(laws) <= 2:
            raise InvalidInput("this is no bound that a histogram chose: its laws or its ε are not such ones.")
        return cls(choice.epsilon, float(rest), replace, plain, choice)


class Choosing:
    """A release's choice, while it is made: draws its parts by the release's permit. Sensitive.

    Attributes
    ----------
    mechanism : Mechanism
        The release's mechanism: as it was, and with the bound that was chosen from then on.
    """

    def __init__(self, permit: Permit, mechanism: Mechanism, content: Content) -> None:
        self.mechanism = mechanism
        self._permit = permit
        self._content = content

    def choose(self, asked: Integers, keys: int) -> Entries:
        """Choose the bound for counts of the content's keys at these places, where ``keys`` are published in all."""
        bound = self.mechanism.bound
        assert bound is not None
        held, picked = self._content.held(asked)
        users, spread = tables(np.minimum(held, LARGEST), picked, len(asked))
        choice = Choice.of(
            bound.epsilon,
            bound.replace,
            self._permit.add_noise(users, USERS),
            self._permit.add_noise(spread, SPREAD),
        )
        self.mechanism = self.mechanism.settled(choice, keys)
        return self.mechanism.entries
