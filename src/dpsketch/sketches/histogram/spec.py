"""The public spec of a histogram: its unit, its grid, and what its keys are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.laws import Additive, Law
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.laws.calibration import noise_for
from dpsketch.laws.choice import CHOICE_TABLES
from dpsketch.laws.entries import COUNTS, TOTAL, CentredCounts, CountNoise, EntriesLaw, ListedCounts, people_table
from dpsketch.laws.rounds import WeightedRounds, weights_table
from dpsketch.laws.thresholds import FORMS, CountThreshold, Form
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.privacy import ApproximateCost, Budget, PureCost, Unit, ZcdpCost
from dpsketch.sketches.histogram.calibration import LARGEST_CAP, SHARE, choice_laws, choose, single_counts
from dpsketch.sketches.specs import ReleasePreview, Spec, hold_common

__all__ = ["HistogramSpec"]

# What a histogram takes is as long as its list of keys, which nobody knows before: a guess for the plan's line.
_BYTES_A_KEY = 96
_GUESSED_KEYS = 10_000
# The total's part of ε, where all other keys are asked for beside those that pass a threshold.
_TOTAL_SHARE = 0.1
# A hair less of ε, and of δ, keeps their promise in floats too.
_HAIR = 1 - 1e-12
_LESS = 1 - 1e-9


@stored
@dataclass(frozen=True, slots=True)
class HistogramSpec(Spec):
    """All that two histograms must share to merge. Public.

    Attributes
    ----------
    unit : Unit
        Whose presence a release hides.
    grid : float
        Weights are rounded to multiples of it.
    key_type : {"int", "text"} or None
        What the keys are, as the caller or a column's own type states it; None if neither does.
    key_columns : tuple of str
        The columns of compound keys (see :mod:`dpsketch.compound`); empty where a key is one column.
    """

    unit: Unit
    grid: float = 1
    key_type: KeyType | None = None
    key_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        hold_common(self)

    def arrays(self) -> dict[str, Any]:
        """Return no arrays: the sketch keeps a state of its own."""
        return {}

    @property
    def memory(self) -> int:
        """About so many bytes for ten thousand keys; it grows with the keys, or the pairs of users and keys."""
        return _BYTES_A_KEY * _GUESSED_KEYS

    def tables(self) -> tuple[Table, ...]:
        """Return counts, their total, weights of keys, users, and the tables by which a bound is chosen.

        A unit is on at most ``max_keys`` keys, on each by at most its weight; a user gives weights to fewer.
        """
        unit = self.unit
        counts = Move.each(unit.max_keys, self.weight_grid.max_units)
        found = [Table(COUNTS, None, counts), Table(TOTAL, (1,), Move.heaped(1, counts.l1))]
        if unit.level == "user":
            found += [weights_table(min(unit.max_keys, LARGEST_CAP)), people_table()]
        return (*found, *(CHOICE_TABLES if unit.chosen else ()))

    def shares(self) -> dict[Table, float]:
        """Return the only table of a stream's day: the counts of all keys."""
        return {self.tables()[0]: 1.0}

    def daily(self) -> HistogramSpec:
        """Return the spec of a stream's day: keys of one column, whose type is stated."""
        if self.key_columns:
            raise InvalidInput("a stream counts keys of one column. Join several in one.")
        if self.key_type is None:
            raise InvalidInput(
                "say key_type='text' or 'int' of a histogram whose keys are found day by day, or give a public list, "
                "keys=[…]: a day without records must not differ from others by its type."
            )
        return self

    def law(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None, **options: Any
    ) -> EntriesLaw:
        """Return the law of a release with these arguments; ``options`` as for :meth:`laws`."""
        (law,) = self.laws(Budget(epsilon, delta, rho), **options)
        return law

    def laws(
        self,
        budget: Budget,
        *,
        keys: Sequence[Any] | None = None,
        unknown: bool | None = None,
        others: bool = False,
        names_only: bool = False,
        form: Form | None = None,
    ) -> tuple[EntriesLaw]:
        """Choose the law of a release at this budget, from the spec and the options alone.

        Parameters
        ----------
        budget : Budget
            What may be spent.
        keys, unknown, others, names_only, form
            As :meth:`~dpsketch.Histogram.release` takes them.
        """
        listed = keys is not None
        if form is not None and form not in FORMS:
            raise InvalidInput(f"form is one of {', '.join(FORMS)}, or left out.")
        unknown = not listed if unknown is None else unknown
        if not (listed or unknown):
            raise InvalidInput("nothing would be published: give keys=, or leave unknown= out.")
        if names_only and (others or listed):
            raise InvalidInput("names_only= finds names and publishes no counts: leave others= out, and keys= too.")
        if names_only and self.unit.chosen:
            raise InvalidInput("names_only= publishes no counts, and a choice is about these alone: state max_keys=.")
        if unknown:
            return (self._finding(budget, others, names_only, form),)
        if form not in (None, "laplace", "gaussian"):
            raise InvalidInput("a public list gets Laplace or Gaussian noise on its counts: leave form= out.")
        assert keys is not None
        return (self._listing(budget, len(keys), others, form),)

    def _listing(self, budget: Budget, size: int, others: bool, form: Form | None) -> EntriesLaw:
        """Choose the noise of a public list's counts: the one with the smaller variance, where the budget allows both.

        Where the bound is chosen, it is the noise of one key, and each bound takes the narrower.
        """
        unit, counts, cost = self.unit, self.tables()[0], budget.cost
        epsilon, single, relied = None, counts, None
        if size and not (others or unit.chosen):  # nobody has more keys of the list than it has
            single, relied = replace(counts, move=counts.move.within(min(size, unit.max_keys))), size
        choice: tuple[Additive, ...] = ()
        if unit.chosen:
            if isinstance(cost, ZcdpCost):
                raise InvalidInput("a bound that is chosen goes with epsilon= and delta=: state these, or max_keys=.")
            chosen, epsilon = divided(cost.epsilon)
            choice = choice_laws(chosen, unit.neighbours)
            budget = Budget(epsilon, _LESS * (budget.delta or 0.0))
            single = replace(counts, move=Move.each(1, counts.move.most))
        distance = single.between(unit.neighbours)
        noises = [noise_for(budget, distance)]
        if isinstance(budget.cost, ApproximateCost):
            noises.append(noise_for(Budget(budget.cost.epsilon, 0.0), distance))
        kinds = {"laplace": DiscreteLaplace, "gaussian": RoundedGaussian}
        noises = [noise for noise in noises if form is None or isinstance(noise, kinds[form])]
        if not noises:
            raise InvalidInput("this budget does not go with that form: Gaussian noise needs delta > 0 or rho.")
        if not unit.chosen:
            noises = [min(noises, key=lambda noise: noise.variance)]
        noise = CountNoise(single.move.cells, tuple(noises), others)
        law = ListedCounts(counts, unit.neighbours, noise, epsilon, choice, relied)
        if relied is None or budget.delta == 0 or form == "laplace" or unit.neighbours != "add_remove":
            return law
        return min(law, self._centred(budget, size), key=lambda each: each.count_error)

    def _centred(self, budget: Budget, size: int) -> CentredCounts:
        """Return the law of centred counts that uses a budget up."""
        counts, root = self.tables()[0], math.sqrt(size)
        single = noise_for(budget, Move.each(1, 1).between("add_remove"))
        assert isinstance(single, RoundedGaussian)
        wide, people = (single.sigma * math.sqrt(each) / _HAIR for each in (size + root, root + 1))
        return CentredCounts(
            counts, "add_remove", size, RoundedGaussian(counts.move.most * wide), RoundedGaussian(people)
        )

    def _finding(self, budget: Budget, others: bool, names_only: bool, form: Form | None) -> EntriesLaw:
        """Choose how names on no list are found, and what counts carry."""
        unit, counts, cost = self.unit, self.tables()[0], budget.cost
        match cost:
            case ApproximateCost(epsilon, delta):
                pass
            case PureCost():
                raise InvalidInput(
                    "names that are on no public list need delta > 0, as in delta=1e-6: well below 1 over the number "
                    "of records. With delta=0 give a public list: keys=[…]."
                )
            case ZcdpCost():
                raise InvalidInput("rho= needs a public list, keys=[…]: names on no list need epsilon= and delta=.")
            case never:
                assert_never(never)
        weight, replaced = counts.move.most, unit.neighbours == "replace"
        if unit.chosen:
            if form not in (None, "weighted", "rounds"):
                raise InvalidInput(f"form={form!r} needs a stated max_keys=: a bound is chosen once names are found.")
            chosen, rest = divided(epsilon)
            several = form == "rounds" or (form is None and epsilon >= 1)
            law = single_counts(rest, delta, weight, replaced, several=several)
            return replace(_with_others(law, others), choice=choice_laws(chosen, unit.neighbours))
        if form in ("weighted", "rounds") and unit.level != "user":
            raise InvalidInput("weights and rounds are for users with many keys: a record has one. Leave form= out.")
        if names_only and unit.level != "user":
            raise InvalidInput("names_only= gains nothing where the unit is a record: its count comes with its name.")
        facts = delta, unit.max_keys, weight, replaced
        found = choose(epsilon, *facts, names_only=names_only, form=form)
        if isinstance(found, WeightedRounds):
            return _with_others(found, others)
        if not others:
            return replace(found, names_only=names_only)
        # A hair less, so that the two sum to ε in floats too.
        found = choose(epsilon * ((1 - _TOTAL_SHARE) * _HAIR), *facts, form=form)
        assert isinstance(found, CountThreshold)
        (total,) = (table for table in self.tables() if table.name == TOTAL)
        spent = DiscreteLaplace(epsilon * _TOTAL_SHARE * _HAIR, total.between(unit.neighbours).l1)
        return replace(found, total=spent)

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        return laws[0].words

    def expect(self, *, records: float, keys: int, **budget: Any) -> dict[str, float]:
        """Say in a few numbers what a release is worth for so many records and keys, the i-th as frequent as 1/i.

        Without δ > 0 that is for a public list of all of them.
        """
        from dpsketch.sketches.histogram.predict import Holdings, predict
        from dpsketch.sketches.weights import guessed_counts

        law = self.law(**budget, keys=None if budget.get("delta") or budget.get("rho") else range(keys))
        found = predict(law, Holdings.of(guessed_counts(records, keys, 1.0, None), self.unit, None))
        names = {} if law.cutoff is None else {"names_found": found.found, "threshold": self.grid * law.cutoff}
        return {"error_of_a_count": self.grid * found.error, **names}

    def preview(self, **options: Any) -> ReleasePreview:
        """Say what a release at this budget, with these options, would promise, and how far off a listed count is."""
        law = self.law(**options)
        budget = Budget(options.get("epsilon"), options.get("delta"), options.get("rho"))
        error = self.grid * law.count_error
        return ReleasePreview(promise(self, Receipt(budget, (law,))), error, error)


def divided(epsilon: float) -> tuple[float, float]:
    """Return the ε of a choice, and of the rest of its release."""
    return epsilon * SHARE, epsilon * (1 - SHARE) * _HAIR


def _with_others(law: WeightedRounds, others: bool) -> WeightedRounds:
    return law if law.counts is None else replace(law, counts=replace(law.counts, others=others))
