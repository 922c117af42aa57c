"""What the laws of a histogram's entries share, and the law of a public list's counts.

Names come from a public list, from a threshold on noisy counts (:mod:`~dpsketch.laws.thresholds`), or
from rounds of weights (:mod:`~dpsketch.laws.rounds`). Counts carry the threshold's noise, or noise of
their own where their keys are public by then.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, assert_never

import numpy as np

from dpsketch import accounting
from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.core.laws import Additive, Arrays, Law, additive_cost, are_integers, is_sane
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.files import Array
from dpsketch.laws.choice import BOUNDS, CHOICE_TABLES, LARGEST, tables
from dpsketch.laws.chosen import Choice
from dpsketch.laws.names import are_names, stored_names
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.numbers import hold_whole
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, Neighbours, PureCost
from dpsketch.truncated import Law as CountLaw

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle
    from dpsketch.laws.content import Content

__all__ = [
    "COUNTS", "ENTRIES", "TOTAL", "CentredCounts", "CountNoise", "EntriesLaw", "HistogramState", "ListedCounts",
    "people_table",
]  # fmt: skip

# The part of a release, and the tables that its laws are for.
ENTRIES, COUNTS, TOTAL, PEOPLE = "entries", "counts", "total", "people"
# The arrays of the part beside the table, and those of a chosen bound.
LISTED, FOUND, TABLE, OTHERS, BOUND = "listed", "found", "table", "others", "bound"
# A hair more noise outweighs the rounding of √m.
_MARGIN = 1 + 1e-12
# The bound that a prediction assumes where a release will choose it.
_GUESS = 32
NOTHING: Integers = np.empty(0, np.int64)


class HistogramState(NamedTuple):
    """What a law is drawn of. Sensitive, but for the list.

    Attributes
    ----------
    content : Content
        The records, in the order of their keys.
    listed : list
        The names of a public list, each once; integers, texts or bytes.
    places : numpy.ndarray of int64
        The place of each listed key in the content; −1 for one that nobody has.
    names : callable
        Takes places, which increase, and returns the names of their keys.
    """

    content: Content
    listed: list[Any]
    places: Integers
    names: Callable[[Integers], list[Any]]

    @property
    def known(self) -> Integers:
        """The places of the listed keys, increasing."""
        return np.unique(self.places[self.places >= 0])

    def on_list(self, asked: Integers, sums: Integers) -> Integers:
        """Return the counts of the list, from those of places that hold all of it; a key that nobody has counts 0."""
        counts = np.zeros(len(self.places), np.int64)
        there = self.places >= 0
        counts[there] = sums[np.searchsorted(asked, self.places[there])]
        return counts

    def published(self, found: Integers) -> dict[str, Array]:
        """Return the names as arrays: those of the list, and those of places that were found."""
        return {LISTED: stored_names(self.listed), FOUND: stored_names(self.names(found))}


@dataclass(frozen=True, slots=True)
class EntriesLaw(Law):
    """A law of a histogram's entries: names, noisy counts, and perhaps a count of all other keys.

    Attributes
    ----------
    table : Table
        The counts of all keys.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    """

    name: ClassVar[str] = ENTRIES
    finds: ClassVar[bool] = True
    """Whether keys may be published that are on no list."""

    table: Table
    neighbours: Neighbours

    if TYPE_CHECKING:

        @property
        def cutoff(self) -> int | None:
            """The least noisy count that is published, if there is one stage."""

        @property
        def total(self) -> DiscreteLaplace | None:
            """The noise of the total from which all other keys are computed, if there is one."""

    @property
    @abstractmethod
    def form(self) -> str:
        """The law by the name that forces it; "list" for a public list."""

    @property
    def replaces(self) -> bool:
        """Whether neighbours have one unit in place of another, rather than one more or less."""
        return self.neighbours == "replace"

    @property
    def keys(self) -> int:
        """The number of keys that one unit moves at most."""
        return self.table.move.cells

    @property
    def weight(self) -> int:
        """The units by which one unit of privacy moves each key at most."""
        return self.table.move.most

    def bound(self, arrays: Arrays | None = None) -> int:
        """Return the bound on a unit's keys in the counts; without arrays, a guess where it is chosen."""
        return self.keys

    def counts_in(self, arrays: Arrays) -> Any:
        """Return the noisy counts, those of the list first."""
        return arrays[TABLE]

    @property
    def shared_variance(self) -> float:
        """The variance of noise that all counts have in common."""
        return 0.0

    @abstractmethod
    def noise_under(self, bound: int) -> CountLaw | None:
        """Return the noise of one count under a bound; None if names only are published."""

    def others_under(self, bound: int) -> Noise | None:
        """Return the noise of the count of all other keys under a bound; None if it is not drawn with the counts."""
        return None

    @property
    def count_error(self) -> float:
        """The standard deviation of a count, in units; infinite if there are none."""
        noise = self.noise_under(self.bound())
        return math.inf if noise is None else math.sqrt(noise.variance)

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there are different names of one type, as many counts, and what else the law draws."""
        has_counts = self.noise_under(self.bound()) is not None
        extra = {OTHERS} if self.others_under(self.bound()) or self.total else set()
        extra |= {TABLE} if has_counts else set()
        if set(arrays) != {LISTED, FOUND} | extra | self._more or not are_names(arrays[LISTED], arrays[FOUND]):
            return False
        listed, found = len(arrays[LISTED]), len(arrays[FOUND])
        good = (self.finds or not found) and (has_counts or not listed)
        good = good and (not has_counts or are_integers(arrays, TABLE, (listed + found,)))
        return good and (OTHERS not in extra or are_integers(arrays, OTHERS, (1,)))

    @property
    def _more(self) -> set[str]:
        """The names of further arrays."""
        return set()


@stored
@dataclass(frozen=True, slots=True)
class CountNoise:
    """The noise on counts of keys that are public by the time they are counted.

    Attributes
    ----------
    keys : int
        The bound on a unit's keys that ``noises`` are for.
    noises : tuple of Noise
        The noise of one count. Of two, each bound takes the narrower.
    others : bool
        Whether all other keys are counted together as well.

    Privacy
    -------
    For another bound m, Gaussian noise is √(m/keys) times as wide, Laplace noise m/keys times. Nothing relies on that:
    :meth:`cost` computes what each bound costs from its own noise.

    All other keys are one more cell. A unit that counts on i ≤ m named keys, by w each, adds at most (m − i)·w to it.
    With Gaussian noise of σ on counts and σ' on the cell, its squared shift i·w²/σ² + (m − i)²·w²/σ'² is convex in i,
    hence at most that of i = m or of i = 0; with Laplace noise its loss is linear in i. So the unit costs at most what
    one with named keys only costs, or one with other keys only. σ' = σ√m makes the two equal: the cell is free.
    """

    keys: int
    noises: tuple[Noise, ...]
    others: bool = False

    def __post_init__(self) -> None:
        hold_whole(self, "keys", low=1)
        if not 1 <= len(self.noises) <= 2 or not isinstance(self.others, bool):
            raise InvalidInput("counts carry one noise, or the narrower of two.")

    def under(self, bound: int) -> Noise:
        """Return the noise of a count under a bound."""
        return min((self._widened(noise, bound) for noise in self.noises), key=lambda noise: noise.variance)

    def others_under(self, bound: int) -> Noise | None:
        """Return the noise of the count of all other keys under a bound."""
        if not self.others:
            return None
        noise = self.under(bound)
        return (
            RoundedGaussian(noise.sigma * math.sqrt(bound) * _MARGIN) if isinstance(noise, RoundedGaussian) else noise
        )

    def _widened(self, noise: Noise, bound: int) -> Noise:
        if bound == self.keys:
            return noise
        match noise:
            case RoundedGaussian(sigma):
                return RoundedGaussian(sigma * math.sqrt(bound / self.keys) * _MARGIN)
            case DiscreteLaplace(epsilon, sensitivity):
                return DiscreteLaplace(epsilon, -(-sensitivity * bound // self.keys))
            case never:
                assert_never(never)

    def cost(self, bound: int, weight: int, neighbours: Neighbours) -> PureCost | GaussianCost:
        """Return what counts cost under a bound, and all other keys with them."""
        named = additive_cost(self.under(bound), Move.each(bound, weight).between(neighbours))
        beside = self.others_under(bound)
        others = named if beside is None else additive_cost(beside, Move.heaped(1, bound * weight).between(neighbours))
        match named, others:
            case PureCost(one), PureCost(other):
                return PureCost(max(one, other))
            case GaussianCost(one), GaussianCost(other):
                return GaussianCost(max(one, other))
            case _:
                raise InvalidInput("counts and all other keys carry noise of one law.")


@dataclass(frozen=True, slots=True)
class CountingLaw(EntriesLaw):
    """A law whose counts are of keys that are public by then, under a bound that is stated or chosen privately.

    Privacy
    -------
    A chosen bound is published by the two tables of :mod:`dpsketch.laws.choice`, which are pure. The noise of every
    bound that may be chosen is declared beforehand, and the counts are charged what the dearest of them costs. So at
    every ε the pair of laws that covers the rest, composed with that of the choice, covers both, in whatever order and
    however they depend on each other.
    """

    cutoff: ClassVar[None] = None
    total: ClassVar[None] = None

    if TYPE_CHECKING:

        @property
        def counts(self) -> CountNoise | None:
            """The noise of the counts; None if names only are published."""

        @property
        def choice(self) -> tuple[Additive, ...]:
            """The laws of the two tables by which the bound is chosen; none if it is stated."""

        @property
        def epsilon(self) -> float | None:
            """The ε at which a δ is computed."""

    def __post_init__(self) -> None:
        choice = tuple(law.table for law in self.choice)
        laplace = all(isinstance(law.noise, DiscreteLaplace) for law in self.choice)
        same = all(law.neighbours == self.neighbours for law in self.choice)
        if choice not in ((), CHOICE_TABLES) or not laplace or not same or (self.choice and self.counts is None):
            raise InvalidInput("a bound is chosen by two tables with Laplace noise, for counts.")
        if self.counts is not None and max(self._bounds) > self.keys:
            raise InvalidInput("counts are bounded to no more keys than a unit moves.")

    @property
    def chooses(self) -> bool:
        """Whether the bound is chosen."""
        return bool(self.choice)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The counts, and the tables of a choice."""
        return self._counted_tables()

    def _counted_tables(self) -> tuple[Table, ...]:
        return (*(() if self.counts is None else (self.table,)), *(law.table for law in self.choice))

    @property
    def _bounds(self) -> tuple[int, ...]:
        """The bounds under which keys may be counted."""
        assert self.counts is not None
        return BOUNDS if self.choice else (self.counts.keys,)

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of the choice, and for each bound that of the counts and of all other keys."""
        found: dict[str, Any] = {law.name: law.noise for law in self.choice}
        if self.counts is not None:
            found[COUNTS] = {bound: self.counts.under(bound) for bound in self._bounds}
            if self.counts.others:
                found[OTHERS] = {bound: self.counts.others_under(bound) for bound in self._bounds}
        return found

    def bound(self, arrays: Arrays | None = None) -> int:
        """Return the bound on a unit's keys in the counts; without arrays, a guess where it is chosen."""
        if self.counts is None:
            return self.keys
        if not self.choice:
            return self.counts.keys
        return _GUESS if arrays is None else int(np.asarray(arrays[BOUND])[0])

    def noise_under(self, bound: int) -> Noise | None:
        """Return the noise of one count under a bound."""
        return None if self.counts is None else self.counts.under(bound)

    def others_under(self, bound: int) -> Noise | None:
        """Return the noise of the count of all other keys under a bound."""
        return None if self.counts is None else self.counts.others_under(bound)

    def draw_counts(self, state: HistogramState, found: Integers, handle: Handle) -> dict[str, Array]:
        """Return the noisy counts of the list and of the keys that were found; a bound is chosen first, if it is."""
        arrays = state.published(found)
        if self.counts is None:
            return arrays
        known = state.known
        asked = np.union1d(known, found)
        if self.choice:
            held, picked = state.content.held(asked)
            exact = tables(np.minimum(held, LARGEST), picked, len(asked))
            for law, each in zip(self.choice, exact, strict=True):
                arrays[law.name] = handle.add(each, law.name)
            arrays[BOUND] = np.array([self.chosen(arrays)])
        bound = self.bound(arrays)
        sums, rest = state.content.sums(asked, bound, others=self.counts.others)
        add = handle.adder(COUNTS, member=bound)
        noisy = add(sums[np.searchsorted(asked, found)])
        if self.counts.others:
            arrays[OTHERS] = handle.add(np.array([rest]), OTHERS, member=bound)
        arrays[TABLE] = np.concatenate([add(state.on_list(asked, sums)), noisy])
        return arrays

    def chosen(self, arrays: Arrays) -> int:
        """Return the bound that published tables come to, which any reader can compute again."""
        assert self.counts is not None
        variances = {bound: self.counts.under(bound).variance for bound in self._bounds}
        keys = len(arrays[LISTED]) + len(arrays[FOUND])
        return Choice.of(self.choice, arrays).bound(keys, variances, weight=self.weight)

    @property
    def _more(self) -> set[str]:
        return {BOUND, *(law.name for law in self.choice)} if self.choice else set()

    def fits(self, arrays: Arrays) -> bool:
        """Say whether names and counts fit each other, and the bound is the one that was chosen."""
        if not EntriesLaw.fits(self, arrays):
            return False
        if not self.choice:
            return True
        good = are_integers(arrays, BOUND, (1,)) and Choice.fits(self.choice, arrays)
        return good and self.bound(arrays) == self.chosen(arrays)

    def choice_costs(self) -> tuple[Cost, ...]:
        """Return what the choice costs."""
        return tuple(cost for law in self.choice for cost in law.costs())

    @property
    def count_words(self) -> str:
        """What counts carry where the bound is chosen, and how it is, in a phrase."""
        assert self.counts is not None
        assert self.epsilon is not None
        noises = " or ".join(noise.words for noise in self.counts.noises)
        paid = math.fsum(cost.epsilon for cost in self.choice_costs() if isinstance(cost, PureCost))
        return (
            f"counts with {noises} for one key of a user, widened for the chosen bound; the bound on a user's keys "
            f"chosen privately with {paid / (paid + self.epsilon):.0%} of ε (discrete Laplace noise)"
        )


@stored
@dataclass(frozen=True, slots=True)
class ListedCounts(CountingLaw):
    """Noise on the counts of a public list, and on that of all other keys.

    Attributes
    ----------
    counts : CountNoise
        The noise.
    epsilon : float or None
        The ε at which a δ is computed, where a bound is chosen.
    choice : tuple of Additive
        The laws by which the bound is chosen; none if it is stated.
    size : int or None
        The number of keys on the list, where the bound on a unit's keys relies on it.
    """

    finds: ClassVar[bool] = False

    counts: CountNoise
    epsilon: float | None = None
    choice: tuple[Additive, ...] = ()
    size: int | None = None

    def __post_init__(self) -> None:
        CountingLaw.__post_init__(self)
        hold_whole(self, "size", low=1, optional=True)
        if (self.epsilon is None) is self.chooses:
            raise InvalidInput("an ε is stated where a δ is computed, and only there.")
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise InvalidInput("epsilon must be positive and finite.")

    @property
    def form(self) -> str:
        """The law by its name."""
        return "list"

    @property
    def words(self) -> str:
        """The law in a phrase."""
        return f"a public list of keys; {self.count_words if self.choice else self.counts.noises[0].words}"

    def costs(self) -> tuple[Cost, ...]:
        """Return what the noise costs; of the dearest bound, if it is chosen."""
        found = [self.counts.cost(bound, self.weight, self.neighbours) for bound in self._bounds]
        if self.epsilon is None:
            return (found[0],)
        epsilon = max((cost.epsilon for cost in found if isinstance(cost, PureCost)), default=0.0)
        mu = max((cost.mu for cost in found if isinstance(cost, GaussianCost)), default=0.0)
        if not mu:
            return (PureCost(epsilon), *self.choice_costs())
        delta = accounting.gaussian_delta(self.epsilon, mu)
        return (ApproximateCost(max(epsilon, self.epsilon), delta), *self.choice_costs())

    def draw(self, state: HistogramState, handle: Handle) -> Arrays:
        """Return the counts of the list with noise."""
        hold_size(self.size, state)
        return self.draw_counts(state, NOTHING, handle)

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is a count for each key of the list."""
        return CountingLaw.fits(self, arrays) and self.size in (None, len(arrays[LISTED]))


@stored
@dataclass(frozen=True, slots=True)
class CentredCounts(EntriesLaw):
    """Gaussian noise on the counts of a short public list, of which a unit may hold nearly all keys.

    Of a list of G keys, with the counts S of units that add at most w to each, and the number N of units that hold any
    key of the list, 2S − w·N is published for each key, and N. A count is ((2S − w·N) + w·N)/2. A unit moves each of
    the G numbers by at most w, on however many keys it is, and N by 1. With noise σ = w·√G·s/√θ and s/√(1 − θ), the
    deviation of a count is least at θ = √G/(√G + 1): it is w·s·(√G + 1)/2, where m keys a unit cost w·s·√m. This is
    correlated noise (Lebeda 2024, arXiv 2408.06853): the noise of N is in all counts.

    Attributes
    ----------
    size : int
        The number G of keys on the list.
    centred : RoundedGaussian
        The noise of 2S − w·N.
    people : RoundedGaussian
        The noise of N.

    Privacy
    -------
    Whoever is added moves 2S − w·N by 2x − w in each of G cells, where 0 ≤ x ≤ w, and N by 1; whoever holds no key of
    the list moves nothing. The squares add. Under replace twice the move of one cell is no more than plain counts
    need, so that only add/remove is offered.
    """

    finds: ClassVar[bool] = False
    cutoff: ClassVar[None] = None
    total: ClassVar[None] = None

    size: int
    centred: RoundedGaussian
    people: RoundedGaussian

    def __post_init__(self) -> None:
        hold_whole(self, "size", low=1)
        good = isinstance(self.centred, RoundedGaussian) and isinstance(self.people, RoundedGaussian)
        if not good or self.replaces:
            raise InvalidInput("centred counts have Gaussian noise, for units that are added or removed.")

    @property
    def form(self) -> str:
        """The law by its name."""
        return "list"

    @property
    def words(self) -> str:
        """The law in a phrase."""
        return f"a public list of keys; centred counts with rounded Gaussian noise, σ = {self.count_error:.4g} in all"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The counts, and the number of units that have any."""
        return (self.table, people_table())

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of the centred counts, and of the number of units."""
        return {COUNTS: self.centred, PEOPLE: self.people}

    def costs(self) -> tuple[Cost, ...]:
        """Return what each of the two costs."""
        move = Move.each(self.size, self.weight).between("add_remove")
        return additive_cost(self.centred, move), additive_cost(self.people, people_table().between("add_remove"))

    def draw(self, state: HistogramState, handle: Handle) -> Arrays:
        """Return the centred counts of the list, and the number of units, with noise."""
        hold_size(self.size, state)
        known = state.known
        people = len(state.content.held(known)[0])
        sums, _ = state.content.sums(known, self.bound(), others=False)
        centred = 2 * state.on_list(known, sums) - self.weight * people
        arrays = state.published(NOTHING)
        return arrays | {TABLE: handle.add(centred, COUNTS), PEOPLE: handle.add(np.array([people]), PEOPLE)}

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is a count for each key of the list, and a number of units."""
        good = EntriesLaw.fits(self, arrays) and self.size == len(arrays[LISTED])
        return good and are_integers(arrays, PEOPLE, (1,)) and self._add_up(arrays)

    def _add_up(self, arrays: Arrays) -> bool:
        """Say whether counts and the number of units are small enough to be added."""
        return is_sane(arrays[TABLE]) and is_sane([self.weight * int(np.asarray(arrays[PEOPLE])[0])])

    @property
    def _more(self) -> set[str]:
        return {PEOPLE}

    def bound(self, arrays: Arrays | None = None) -> int:
        """Return the number of keys of a unit that count. More would cost no more, but a count would mean less."""
        return min(self.keys, self.size)

    def counts_in(self, arrays: Arrays) -> Any:
        """Return the noisy counts."""
        return (np.asarray(arrays[TABLE]) + self.weight * int(np.asarray(arrays[PEOPLE])[0])) / 2

    def noise_under(self, bound: int) -> CountLaw | None:
        """Return the noise of one count."""
        return RoundedGaussian(math.hypot(self.centred.sigma, self.weight * self.people.sigma) / 2)

    @property
    def shared_variance(self) -> float:
        """The variance of the noise that all counts have in common: that of the number of units."""
        return self.weight**2 * self.people.variance / 4


def people_table() -> Table:
    """Return the number of units that hold a key of the list."""
    return Table(PEOPLE, (1,), Move.each(1, 1))


def hold_size(size: int | None, state: HistogramState) -> None:
    """Refuse a list of another length than was paid for."""
    if size is not None and size != len(state.listed):
        raise ReleaseRefused("the law was paid for a list of another length. Nothing was drawn.")
