"""One release's mechanism: how names are found, what counts carry, and what that promises together.

Names come from a public list, from a threshold on noisy counts, or from rounds of weights (see
:mod:`~dpsketch.sketches.histogram.thresholds`, where the proofs are). Counts carry the threshold's noise, or noise of
their own where their keys are public by then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Self, assert_never, get_args

from dpsketch import accounting
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.privacy import ApproximateCost, Budget, Cost, PureCost, ZcdpCost
from dpsketch.sketches.bounds import LARGEST, Choice
from dpsketch.sketches.histogram.choice import GUESS, AutoBound, divided, list_laws
from dpsketch.sketches.histogram.collision import collision_chance
from dpsketch.sketches.histogram.entries import Entries
from dpsketch.sketches.histogram.rounds import WeightedRounds
from dpsketch.sketches.histogram.thresholds import Threshold, choose, single_counts
from dpsketch.sketches.permit import Calibration, Part, Share, additive
from dpsketch.sketches.specs import Sensitivity
from dpsketch.truncated import Law, TruncatedLaplace

__all__ = ["ENTRIES", "FORMS", "TOTAL", "Form", "Mechanism", "Reach", "unfit"]

Form = Literal["truncated", "laplace", "gaussian", "weighted", "rounds"]
FORMS: tuple[Form, ...] = get_args(Form)

ENTRIES, TOTAL = "the entries", "the total"
# No histogram holds more records than this; so many texts meet in a secret hash with this chance at most.
_MOST_RECORDS = 2**40
COLLISION = collision_chance(_MOST_RECORDS)
# The total's part of ε, where all other keys are asked for beside those that pass a threshold.
_TOTAL_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Reach:
    """What one unit of privacy can change: so many keys, by so many units each.

    Attributes
    ----------
    keys, units : int
        The bounds.
    replace : bool
        Whether neighbours have one unit in place of another, so that two contributions move.
    users : bool
        Whether the unit is a user.
    chosen : bool
        Whether the release chooses how many keys a user counts on.
    """

    keys: int
    units: int
    replace: bool
    users: bool
    chosen: bool = False

    @property
    def sensitivity(self) -> Sensitivity:
        """How far it moves the counts.

        Contributions are not negative, so that two of them differ by √2 times one in L2 at most, not by twice.
        """
        times = 2 if self.replace else 1
        l2 = self.units * math.sqrt(times * self.keys)
        return Sensitivity(times * self.keys * self.units, math.nextafter(l2, math.inf))

    @property
    def single(self) -> Sensitivity:
        """How far a unit on one key moves the counts."""
        return replace(self, keys=1).sensitivity


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The public parameters of one release.

    Attributes
    ----------
    finding : Threshold, WeightedRounds or None
        How names are found; None where only those of a public list are published.
    noise : Law or None
        What counts carry; None where names only are published.
    counted : int
        On so many keys a unit of privacy counts in the published counts.
    others : Noise or None
        What the count of all other keys carries, where it is published with the counts.
    total : DiscreteLaplace or None
        What the total carries from which all other keys are worked out, where it is.
    reach : Reach
        What one unit of privacy can change.
    hashed : bool
        Whether keys of a list may have been told apart by several secret hashes, whose failing is paid for then.
    epsilon, delta, rho
        What is promised.
    bound : AutoBound or None
        Where the release chooses how many keys a user counts on; the counts are of ``counted`` keys from then on.
    """

    finding: Threshold | WeightedRounds | None
    noise: Law | None
    counted: int
    others: Noise | None
    total: DiscreteLaplace | None
    reach: Reach
    hashed: bool
    epsilon: float
    delta: float
    rho: float | None
    bound: AutoBound | None = None

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
        reach: Reach,
        *,
        listed: bool,
        unknown: bool | None,
        others: bool,
        names_only: bool,
        form: Form | None,
        hashed: bool,
    ) -> Self:
        """Choose the parameters, by public facts alone.

        Parameters
        ----------
        budget, reach
            What may be spent, and what one unit of privacy can change.
        listed, unknown : bool
            Whether a public list is answered, and whether keys on no list are published if they pass.
        others, names_only, form
            As :meth:`~dpsketch.Histogram.release` takes them.
        hashed : bool
            Whether keys may have been told apart by several secret hashes, whose failing must be paid for then also
            where names come from a list.
        """
        if form is not None and form not in FORMS:
            raise InvalidInput(f"form is one of {', '.join(FORMS)}, or left out.")
        unknown = not listed if unknown is None else unknown
        if not (listed or unknown):
            raise InvalidInput("nothing would be published: give keys=, or leave unknown= out.")
        if names_only and (others or listed):
            raise InvalidInput("names_only= finds names and publishes no counts: leave others= out, and keys= too.")
        if reach.chosen:
            return cls._of_chosen(budget, reach, unknown, others, names_only, form, hashed)
        if not unknown:
            return cls._of_list(budget, reach, others, form, hashed)
        match budget.cost:
            case ApproximateCost(epsilon, delta):
                return cls._of_unknown(epsilon, delta, reach, others, names_only, form)
            case PureCost():
                raise InvalidInput(
                    "names that are on no public list need delta > 0, as in delta=1e-6: well below 1 over the number "
                    "of records. With delta=0 give a public list: keys=[…]."
                )
            case ZcdpCost():
                raise InvalidInput("rho= needs a public list, keys=[…]: names on no list need epsilon= and delta=.")
            case never:
                assert_never(never)

    @classmethod
    def _of_list(cls, budget: Budget, reach: Reach, others: bool, form: Form | None, hashed: bool) -> Self:
        """Choose the noise of a public list's counts: the one with the smaller variance, where the budget allows both.

        Privacy
        -------
        All other keys are one more cell. In L1 it is free, as a unit has so many units in all. In L2 a unit that
        counts on i listed keys adds at most m − i times w to it, and i + (m−i)²/m ≤ m: scaled by 1/√m it is free too.
        """
        if form not in (None, "laplace", "gaussian"):
            raise InvalidInput("a public list gets Laplace or Gaussian noise on its counts: leave form= out.")
        share = Share(ENTRIES, reach.sensitivity)
        asked = budget
        if hashed:
            match budget.cost:
                case ApproximateCost(epsilon, delta) if delta > 2 * COLLISION:
                    asked = Budget(epsilon, delta - COLLISION)
                case _:
                    raise _several_hashes()
        plans = [additive(asked, share)]
        if isinstance(asked.cost, ApproximateCost):
            plans.append(additive(Budget(asked.cost.epsilon, 0.0), share))
        laws = {"laplace": DiscreteLaplace, "gaussian": RoundedGaussian}
        plans = [plan for plan in plans if form is None or isinstance(plan.law(ENTRIES), laws[form])]
        if not plans:
            raise InvalidInput("this budget does not go with that form: Gaussian noise needs delta > 0 or rho.")
        plan = min(plans, key=lambda each: each.law(ENTRIES).variance)
        noise = plan.law(ENTRIES)
        rest: Noise | None = None
        if others:
            wide = RoundedGaussian(noise.sigma * math.sqrt(reach.keys)) if isinstance(noise, RoundedGaussian) else noise
            rest = wide
        delta = budget.cost.delta if hashed and isinstance(budget.cost, ApproximateCost) else plan.delta
        return cls(None, noise, reach.keys, rest, None, reach, hashed, plan.epsilon, delta, plan.rho)

    @classmethod
    def _of_unknown(
        cls, epsilon: float, delta: float, reach: Reach, others: bool, names_only: bool, form: Form | None
    ) -> Self:
        """Choose how names are found, and what counts carry."""
        if delta <= 2 * COLLISION:
            raise _small_delta()
        if form in ("weighted", "rounds") and not reach.users:
            raise InvalidInput("weights and rounds are for users with many keys: a record has one. Leave form= out.")
        if names_only and not reach.users:
            raise InvalidInput("names_only= gains nothing where the unit is a record: its count comes with its name.")

        def found(share: float) -> Threshold | WeightedRounds:
            return choose(
                epsilon * share, delta - COLLISION, reach.keys, reach.units, reach.replace,
                names_only=names_only, mechanism=form,
            )  # fmt: skip

        finding = found(1.0)
        noise: Law | None
        if isinstance(finding, WeightedRounds):
            noise, counted = finding.counts_law, finding.counts_keys
            if names_only:
                noise, counted = None, reach.keys
            rest = None
            if others and noise is not None:
                rest = RoundedGaussian(noise.sigma * math.sqrt(counted))
            return cls(finding, noise, counted, rest, None, reach, False, epsilon, delta, None)
        if not others:
            noise = None if names_only else finding.law
            return cls(finding, noise, reach.keys, None, None, reach, False, epsilon, delta, None)
        # A hair less, so that the two sum to ε in floats too.
        finding = found((1 - _TOTAL_SHARE) * (1 - 1e-12))
        assert isinstance(finding, Threshold)
        total = DiscreteLaplace(epsilon * _TOTAL_SHARE * (1 - 1e-12), reach.sensitivity.l1)
        return cls(finding, finding.law, reach.keys, None, total, reach, False, epsilon, delta, None)

    @classmethod
    def _of_chosen(
        cls,
        budget: Budget,
        reach: Reach,
        unknown: bool,
        others: bool,
        names_only: bool,
        form: Form | None,
        hashed: bool,
    ) -> Self:
        """Choose what finds names and what one key's count carries; the bound is chosen in between."""
        cost, finding = budget.cost, None
        if names_only:
            raise InvalidInput("names_only= publishes no counts, and a choice is about these alone: state max_keys=.")
        if unknown and not isinstance(cost, ApproximateCost):
            raise InvalidInput(
                "names that are on no public list need epsilon= with delta > 0 (1e-6, say: well below 1 over the "
                "number of records). Else give a public list: keys=[…]."
            )
        if not unknown and form not in (None, "laplace", "gaussian"):
            raise InvalidInput("a public list gets Laplace or Gaussian noise on its counts: leave form= out.")
        if isinstance(cost, ZcdpCost):
            raise InvalidInput("a bound that is chosen goes with epsilon= and delta=: state these, or max_keys=.")
        chosen, rest = divided(cost.epsilon)
        delta = cost.delta if isinstance(cost, ApproximateCost) else 0.0
        if unknown:
            if delta <= 2 * COLLISION:
                raise _small_delta()
            if form not in (None, "weighted", "rounds"):
                raise InvalidInput(f"form={form!r} needs a stated max_keys=: a bound is chosen once names are found.")
            many = form == "rounds" or (form is None and cost.epsilon >= 1)
            finding = single_counts(rest, delta - COLLISION, reach.units, reach.replace, several=many)
            assert finding.counts_law is not None
            laws: tuple[Noise, ...] = (finding.counts_law,)
        else:
            if hashed and delta <= 2 * COLLISION:
                raise _several_hashes()
            laws = list_laws(budget, rest, reach.single, form, COLLISION if hashed else 0.0)
            delta = delta if hashed or any(isinstance(law, RoundedGaussian) for law in laws) else 0.0
        bound = AutoBound(chosen, rest, reach.replace, laws)
        # What the widest bound would need is refused now, not once a release is paid for.
        bound.others(LARGEST) if others else bound.law(LARGEST)
        wide = bound.others(GUESS) if others else None
        hashed = hashed and not unknown
        return cls(finding, bound.law(GUESS), GUESS, wide, None, reach, hashed, cost.epsilon, delta, None, bound)

    def settled(self, choice: Choice, keys: int) -> Self:
        """Return the mechanism with the bound that a choice comes to, where ``keys`` counts are published."""
        assert self.bound is not None
        bound = replace(self.bound, choice=choice)
        counted = choice.bound(keys, lambda most: bound.law(most).variance, weight=self.reach.units)
        others = None if self.others is None else bound.others(counted)
        return replace(self, noise=bound.law(counted), counted=counted, others=others, bound=bound)

    @property
    def words(self) -> str:
        """The mechanism in a phrase, as a part of a release."""
        if self.bound is not None:
            found = self.finding
            names = found.name_words if isinstance(found, WeightedRounds) else "a public list of keys"
            return f"{names}; counts with {self.bound.law_words}"
        if self.finding is not None:
            return self.finding.words
        assert self.noise is not None
        return f"a public list of keys; {self.noise.words}"

    @property
    def form(self) -> str:
        """The mechanism by the name that forces it; "list" for a public list."""
        return "list" if self.finding is None else self.finding.name

    @property
    def finds(self) -> bool:
        """Whether keys may be published that are on no list."""
        return self.finding is not None

    @property
    def cutoff(self) -> int | None:
        """From which noisy count on a key is published, in a release of one stage."""
        return self.finding.cutoff if isinstance(self.finding, Threshold) else None

    @property
    def count_error(self) -> float:
        """The standard deviation of a count, in units; infinite where there are none."""
        return math.inf if self.noise is None else math.sqrt(self.noise.variance)

    @property
    def entries(self) -> Entries:
        """The law of the entries."""
        return Entries(self.finding, self.noise, self.counted, self.others, self.words, self._entry_costs)

    @property
    def calibration(self) -> Calibration:
        """The parts of a release by this mechanism."""
        parts = [Part(ENTRIES, self.entries)]
        if self.total is not None:
            l1 = self.reach.sensitivity.l1
            parts.append(Part(TOTAL, self.total, Sensitivity(l1, float(l1))))
        words = "; ".join(part.law.words for part in parts)
        if self.bound is not None:
            parts += self.bound.parts
            words = f"{words}; {self.bound.words}"
        costs = tuple(cost for part in parts for cost in part.costs)
        chooses = self.bound is not None
        return Calibration(tuple(parts), costs, self.epsilon, self.delta, self.rho, words, chooses=chooses)

    @property
    def _entry_costs(self) -> tuple[Cost, ...]:
        """What the names and counts cost, by the laws that they are drawn from."""
        if self.finding is not None:
            return (ApproximateCost(self.finding.epsilon, self.finding.delta + COLLISION),)
        if self.bound is not None:
            return self.bound.costs(self.reach.single, COLLISION if self.hashed else 0.0)
        if isinstance(self.noise, TruncatedLaplace | None):
            raise unfit()
        plain = Part(ENTRIES, self.noise, self.reach.sensitivity).costs
        if not self.hashed:
            return plain
        return (ApproximateCost(self.epsilon, accounting.composed_delta(plain, epsilon=self.epsilon) + COLLISION),)


def _small_delta() -> InvalidInput:
    return InvalidInput("delta is below 1e-13, where a secret hash of the keys may fail: state a larger one.")


def _several_hashes() -> InvalidInput:
    return InvalidInput(
        "long text keys of partials that were started apart are told apart by several secret hashes, which fail with a "
        "chance below 1e-14. State epsilon= with delta= (1e-12, say), or start partials with empty_like()."
    )


def unfit() -> InvalidInput:
    """Say that parts of a mechanism do not go together."""
    return InvalidInput("this is no mechanism of a histogram: its parts do not fit each other or its guarantee.")
