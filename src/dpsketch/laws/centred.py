"""A table whose columns carry Gaussian noise: names, head counts, and columns that are centred between their bounds.

For a pair of a unit and a row, and a linear column, let y be a whole number from 0 to R = 2²⁸: where the pair's number
lies between the column's bounds. Published are the head count U = Σ 1 and C = Σ(2y − R). A sum is
mid·U + half·C/R, where mid and half are the middle and the half width of the bounds; a mean is that over U. Centring
lets the head count pay for the middle of a column: no Gaussian mechanism with linear decoding has less error on a sum
at every level of the mean (see ``docs/concepts/tables.md``).

Where a unit may be in nearly all rows of a short public list, head counts are centred as well: published are 2U − N in
each row, and the number N of units (``persons``). A unit in any row then moves all rows by 1, so that its number of
rows no longer matters, and U = ((2U − N) + N)/2.

Quantiles come from a Haar tree of 2^L leaves in every row. A pair has the mass R, which its records share. Published is
the mass of the left half of each node less that of the right half.

1. *Names*, unless they are public: rounds of weights (:mod:`dpsketch.laws.rounds`).
2. Groups that are not listed become one last row, which counts for one of a unit's m rows.
3. *How many rows of a user count*: users by number of rows, in 24 ranges.
4. Each unit keeps at most m rows. Head counts, then each column; before it its shape (:mod:`dpsketch.laws.bounds`),
   from which its bounds are chosen, or how much stated bounds cut.

Privacy
-------
*One unit added or removed.* A pair moves U by 1, C by at most R, and every level of a tree by at most R in L1, hence in
L2. With noise of σ₀, σⱼ for a unit in one row, widened by √m, a unit with m rows moves everything by
Σ = 1/σ₀² + Σ R²/σⱼ² + Σ L·R²/σₗ² in squared standard deviations, whatever m is. Shapes and ranges move by 1 each, and
rounds by 1/σ². Centred head counts of K rows move by K/σ² + 1/σ_N² in place of 1/σ₀². Gaussian mechanisms compose by
adding squares, also where a later one depends on what an earlier one published (Dong, Roth and Su 2022), so that bounds
and m may be chosen from what is public by then.

*One unit replaced.* Where the two units share a row, U does not move, and each column moves by up to twice its bound:
4(Σ − 1/σ₀²). Where they do not, both rows move: 2Σ. So m rows cost at most the larger of the two. Rounds, ranges and
shapes never decrease when a unit is added, so that the squares of the two units add.

*A public list* of K − 1 names has K rows, so that a unit is in at most min(m, K) of them. The law states K, and refuses
another list before it draws.

*Names* may show with probability 1 − e^(−λ). The joint δ is that of :func:`~dpsketch.laws.rounds.rounds_delta` with the
squares of all else added to those of the counts. A group that one unit alone holds is not listed otherwise, and its
records are then in the last row as anyone's are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dpsketch.arrays import Floats, Integers
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, Law, are_integers, is_sane
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.files import Array
from dpsketch.laws.bounds import BINS, Bounds, Shape, shape_table, standing
from dpsketch.laws.choice import BOUNDS, MIDDLES, RANGES
from dpsketch.laws.groups import SCALE, Measure, TableContent
from dpsketch.laws.names import are_names, stored_names
from dpsketch.laws.rounds import LARGEST_CAP, MOST_ROUNDS, WEIGHTS, rounds_delta, weights_table
from dpsketch.noise import RoundedGaussian
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, Neighbours

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = [
    "FOUND", "HELD", "LISTED", "TABLE", "USERS", "CentredTable", "TableState", "are_chosen", "chosen_of",
    "column_of", "haar", "held_table", "measure_table", "persons_table", "shape_of", "users_table",
]  # fmt: skip

TABLE, USERS, PERSONS, HELD, KEPT = "table", "users", "persons", "held", "kept"
LISTED, FOUND = "listed", "found"
# A hair more noise outweighs the rounding of √m and of the sums of squares.
_MARGIN = 1 + 1e-12
_NOTHING: Integers = np.empty(0, np.int64)
# A range of users stands out alone, or together with a neighbour, from this number of deviations on.
_ALONE, _PAIRED = 3.5, 2.5
_FARTHEST = 2.0**52
# The bound that a prediction assumes where a release will choose it.
_GUESS = 16


class TableState(NamedTuple):
    """Input of a table's law. Sensitive, except for the list.

    Attributes
    ----------
    content : TableContent
        The records.
    listed : list
        The names of a public list, each once; empty if names are found.
    """

    content: TableContent
    listed: list[Any]


def users_table(keys: int) -> Table:
    """Return the head counts of all rows."""
    return Table(USERS, None, Move.each(keys, 1))


def persons_table() -> Table:
    """Return the number of units that are in any row."""
    return Table(PERSONS, (1,), Move.each(1, 1))


def held_table() -> Table:
    """Return the users by number of rows."""
    return Table(HELD, (RANGES,), Move.each(1, 1))


def measure_table(measure: Measure, keys: int) -> Table:
    """Return the column of a measure: each of a unit's rows moves by SCALE, or every level of its tree does."""
    levels = max(measure.levels, 1)
    cells = keys * (levels if measure.kind != "quantiles" else (1 << levels) - 1)
    return Table(measure.name, None, Move(keys * levels * SCALE, keys * levels * SCALE**2, cells, SCALE, True))


@stored
@dataclass(frozen=True, slots=True)
class CentredTable(Law):
    """The columns of a table with Gaussian noise, and the names of its groups if they are found.

    Attributes
    ----------
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    keys : int
        The number of rows of a unit that count; the largest that may be chosen if ``chosen``.
    chosen : bool
        Whether the number of rows is chosen.
    measures : tuple of Measure
        The columns.
    users : RoundedGaussian
        The noise of a head count, for a unit in one row; of a centred one, whatever the number of rows.
    noises : tuple of RoundedGaussian
        The noise of each column, for a unit in one row.
    shapes : tuple of RoundedGaussian
        The noise of each column's shape.
    held : RoundedGaussian or None
        The noise of the users by number of rows; None where the unit is a record.
    rounds : tuple of RoundedGaussian
        The noise of each round that finds names; empty if names are public.
    cutoffs : tuple of int
        The least noisy weight of each round that is found.
    cap : int
        The number of groups to which a unit gives weight.
    epsilon : float or None
        The ε at which the δ of names is computed.
    rows : int or None
        The number of rows of a public list, with the last one; None if names are found.
    persons : RoundedGaussian or None
        The noise of the number of units, where head counts are centred.
    """

    name: ClassVar[str] = TABLE

    neighbours: Neighbours
    keys: int
    chosen: bool
    measures: tuple[Measure, ...]
    users: RoundedGaussian
    noises: tuple[RoundedGaussian, ...]
    shapes: tuple[RoundedGaussian, ...]
    held: RoundedGaussian | None = None
    rounds: tuple[RoundedGaussian, ...] = ()
    cutoffs: tuple[int, ...] = ()
    cap: int = 1
    epsilon: float | None = None
    rows: int | None = None
    persons: RoundedGaussian | None = None

    def __post_init__(self) -> None:
        hold_whole(self, "keys", low=1)
        hold_whole(self, "cap", low=1)
        hold_whole(self, "rows", low=1, optional=True)
        hold_real(self, "epsilon", optional=True)
        good = len(self.measures) == len(self.noises) == len(self.shapes)
        good = good and len({measure.name for measure in self.measures}) == len(self.measures)
        good = good and len(self.rounds) == len(self.cutoffs) <= MOST_ROUNDS and self.cap <= LARGEST_CAP
        good = good and bool(self.rounds) is (self.epsilon is not None) and 0 < (self.epsilon or 1) < math.inf
        good = good and all(cutoff >= 1 for cutoff in self.cutoffs) and (not self.chosen or self.held is not None)
        if not good or any(not isinstance(noise, RoundedGaussian) for noise in self._all_noises):
            raise InvalidInput(
                "a table has Gaussian noise for each column and shape, and cutoffs where names are found."
            )
        if self.rows is not None and self.rounds:
            raise InvalidInput("names are found in rounds, or are on a public list with a number of rows.")
        centred = self.rows is not None and self.held is not None and self.neighbours == "add_remove"
        if self.persons is not None and (self.chosen or not centred):
            raise InvalidInput("head counts are centred for users on a public list, who are added or removed.")
        counts = [measure.kind for measure in self.measures]
        if "record_mean" in counts and "count" not in counts[: counts.index("record_mean")]:
            raise InvalidInput("means over records need the count of records before them.")

    @property
    def _all_noises(self) -> tuple[Any, ...]:
        held = () if self.held is None else (self.held,)
        persons = () if self.persons is None else (self.persons,)
        return (self.users, *self.noises, *self.shapes, *held, *persons, *self.rounds)

    @property
    def words(self) -> str:
        """The law in a phrase."""
        names = "a public list of groups"
        if self.rounds:
            names = f"names found by weights in {len(self.rounds)} round{'s' if len(self.rounds) > 1 else ''}"
        heads = f"σ = {self.users.sigma:.4g}·√keys" if self.persons is None else f"centred, σ = {self.head_error:.4g}"
        return f"{names}; centred columns with rounded Gaussian noise (head counts: {heads})"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The head counts, the columns, their shapes, the users by number of rows, and the weights of groups."""
        found = [users_table(self.keys), *(measure_table(measure, self.keys) for measure in self.measures)]
        found += [shape_table(measure.name) for measure in self.measures]
        found += [] if self.held is None else [held_table()]
        found += [] if self.persons is None else [persons_table()]
        return (*found, *([weights_table(self.cap)] if self.rounds else []))

    @property
    def chooses(self) -> bool:
        """Whether the bound on a user's rows is chosen."""
        return self.chosen

    @property
    def head_error(self) -> float:
        """The standard deviation of a head count; for a guess of the bound if it is chosen."""
        return math.sqrt(self.head_variance(_GUESS if self.chosen else self._most))

    @property
    def _most(self) -> int:
        """The number of rows of a unit that count at most, where it is not chosen."""
        return self.keys if self.rows is None else min(self.keys, self.rows)

    @property
    def _bounds(self) -> tuple[int, ...]:
        return BOUNDS if self.chosen else (self._most,)

    def under(self, noise: RoundedGaussian, keys: int) -> RoundedGaussian:
        """Return the noise for units in several rows, from that for units in one."""
        return noise if keys == 1 else RoundedGaussian(noise.sigma * math.sqrt(keys) * _MARGIN)

    def _head(self, keys: int) -> RoundedGaussian:
        """Return the noise of what is published for a head count."""
        return self.under(self.users, keys) if self.persons is None else self.users

    def head_variance(self, keys: int, rows: Any = 1) -> Any:
        """Return the variance of the sum of some rows' head counts, for units in several rows."""
        if self.persons is None:
            return rows * self._head(keys).variance
        return (rows * self.users.variance + rows**2 * self.persons.variance) / 4

    def heads(self, arrays: Arrays) -> Floats:
        """Return the noisy head counts."""
        users = np.asarray(arrays[USERS], np.float64)
        return users if self.persons is None else (users + float(np.asarray(arrays[PERSONS])[0])) / 2

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of rounds, ranges and shapes; and for every bound that of head counts and columns."""
        found: dict[str, Any] = {f"round {place}": noise for place, noise in enumerate(self.rounds, 1)}
        if self.held is not None:
            found[HELD] = self.held
        found |= {f"shape {place}": noise for place, noise in enumerate(self.shapes)}
        if self.persons is not None:
            found[PERSONS] = self.persons
        found[USERS] = {keys: self._head(keys) for keys in self._bounds}
        for place, noise in enumerate(self.noises):
            found[f"column {place}"] = {keys: self.under(noise, keys) for keys in self._bounds}
        return found

    def squares(self, keys: int) -> float:
        """Return the largest move of a unit without the rounds, in squared standard deviations, rounded up."""
        if self.persons is None:
            head = keys / self._head(keys).sigma ** 2
        else:
            assert self.rows is not None
            head = self.rows / self.users.sigma**2 + 1 / self.persons.sigma**2
        columns = [
            keys * max(measure.levels, 1) * (SCALE / self.under(noise, keys).sigma) ** 2
            for measure, noise in zip(self.measures, self.noises, strict=True)
        ]
        single = [1 / noise.sigma**2 for noise in (*self.shapes, *(() if self.held is None else (self.held,)))]
        if self.neighbours == "add_remove":
            return math.fsum([head, *columns, *single]) * _MARGIN
        apart, shared = 2 * math.fsum([head, *columns]), 4 * math.fsum(columns)
        return math.fsum([max(apart, shared), *(2 * each for each in single)]) * _MARGIN

    @property
    def largest_squares(self) -> float:
        """Largest move of a unit without the rounds, over all bounds that may be chosen."""
        return max(map(self.squares, self._bounds))

    def with_names(
        self, rounds: tuple[RoundedGaussian, ...], cutoffs: tuple[int, ...], cap: int, epsilon: float
    ) -> CentredTable:
        """Return the law with rounds that find names."""
        return replace(self, rounds=rounds, cutoffs=cutoffs, cap=cap, epsilon=epsilon)

    @property
    def delta(self) -> float:
        """The joint δ of names and all else at ε, where names are found."""
        assert self.epsilon is not None
        replaces = self.neighbours == "replace"
        rest = self.largest_squares / (2 if replaces else 1)
        return rounds_delta(
            self.rounds, self.cutoffs, epsilon=self.epsilon, cap=self.cap, replace=replaces, counts=rest
        )

    def costs(self) -> tuple[Cost, ...]:
        """Return ε with the joint δ, or μ where names are public."""
        if self.epsilon is not None:
            return (ApproximateCost(self.epsilon, self.delta),)
        return (GaussianCost(math.nextafter(math.sqrt(self.largest_squares), math.inf)),)

    def draw(self, state: TableState, handle: Handle) -> Arrays:
        """Draw names, head counts and columns. Bounds are chosen from the arrays drawn before."""
        content, found, weights = state.content, _NOTHING, _NOTHING
        for place, cutoff in enumerate(self.cutoffs, 1):
            add = handle.adder(f"round {place}")
            for block in content.weights(found, self.cap):
                noisy = add(block.sums)
                passed = noisy >= cutoff
                found, weights = np.append(found, block.places[passed]), np.append(weights, noisy[passed])
            order = np.argsort(found)
            found, weights = found[order], weights[order]
        if self.rows is not None and self.rows != len(state.listed) + 1:
            raise ReleaseRefused("the law was paid for a list of another length. Nothing was drawn.")
        listed = content.find(state.listed) if state.listed else _NOTHING
        names = content.names(found) if len(found) else []
        arrays: dict[str, Array] = {LISTED: stored_names(state.listed), FOUND: stored_names(names), WEIGHTS: weights}
        units = 0
        if self.held is None:
            kept = content.keep(np.concatenate([listed, found]), lambda _: 1)
        else:

            def most(held: Integers) -> int:
                nonlocal units
                units = int(held.sum())
                arrays[HELD] = handle.add(held, HELD)
                if self.chosen:
                    arrays[KEPT] = np.array([self._best_keys(arrays)])
                return self.rows_of_a_user(arrays)

            kept = content.keep(np.concatenate([listed, found]), most)
        keys = self.rows_of_a_user(arrays)
        heads = kept.users()
        if self.persons is not None:
            arrays[PERSONS] = handle.add(np.array([units]), PERSONS)
            heads = 2 * heads - units
        arrays[USERS] = handle.add(heads, USERS, member=keys)
        for place, measure in enumerate(self.measures):
            arrays[shape_of(place)] = handle.add(kept.shape(measure), f"shape {place}")
            if measure.kind == "quantiles" or measure.stated is None:
                arrays[chosen_of(place)] = self._chosen(place, arrays)
            if measure.kind == "quantiles":
                exact = haar(kept.leaves(measure, self.edges(place, arrays).tolist(), SCALE))
            else:
                low, high, _ = self.range_of(place, arrays)
                records = self.records_of_a_user(arrays) if measure.kind == "record_mean" else 1
                exact = kept.centred(measure, (low, high), records)
            arrays[column_of(place)] = handle.add(exact, f"column {place}", member=keys)
        return arrays

    def listed(self, arrays: Arrays) -> int:
        """Return the number of listed groups: rows but the last."""
        return len(arrays[LISTED]) + len(arrays[FOUND])

    def rows_of_a_user(self, arrays: Arrays) -> int:
        """Return how many rows of a unit count: the stated bound, or the one that was chosen."""
        return int(np.asarray(arrays[KEPT])[0]) if self.chosen else self._most

    def _best_keys(self, arrays: Arrays) -> int:
        """Return the bound on a unit's rows with the least predicted error.

        That of a head count is v(m) + √(H/K)·B(m)²/K, where users with d rows lose B(m) = Σ(d − m)⁺ in all, and H is
        the concentration of the groups by their published weights (see :mod:`dpsketch.laws.chosen`).
        """
        held = np.asarray(arrays[HELD], np.float64)
        assert self.held is not None
        seen, rows = _users_held(held, self.held.sigma), max(self.listed(arrays), 1)
        # A user is in no more rows than there are, the last one included.
        enough = min((keys for keys in self._bounds if keys > self.listed(arrays)), default=self._bounds[-1])
        weights = np.maximum(np.asarray(arrays[WEIGHTS], np.float64), 1.0)
        meeting = float((weights**2).sum() / weights.sum() ** 2) if len(weights) else 1 / rows

        def error(keys: int) -> float:
            cut = float(seen @ np.maximum(MIDDLES - keys, 0.0))
            return float(self.head_variance(keys)) + math.sqrt(meeting / rows) * cut**2 / rows

        return min((keys for keys in self._bounds if keys <= enough), key=error)

    def users_cut(self, arrays: Arrays) -> float | None:
        """Return the estimated part of users' rows that the bound cuts; None if nothing stands out of the noise."""
        if self.held is None:
            return 0.0
        seen = _users_held(np.asarray(arrays[HELD], np.float64), self.held.sigma)
        held = float(seen @ MIDDLES)
        cut = float(seen @ np.maximum(MIDDLES - self.rows_of_a_user(arrays), 0.0))
        return cut / held if held else None

    def records_of_a_user(self, arrays: Arrays) -> int:
        """Return how many records of a unit count in one row."""
        for place, measure in enumerate(self.measures):
            if measure.kind == "count":
                return int(self.range_of(place, arrays).high)
        return 1

    def shape(self, place: int, arrays: Arrays) -> Shape:
        """Return the published shape of a column."""
        return Shape(np.asarray(arrays[shape_of(place)]), self.shapes[place])

    def range_of(self, place: int, arrays: Arrays) -> Bounds:
        """Return the bounds of a column, stated or chosen."""
        low, high = self.measures[place].stated or np.asarray(arrays[chosen_of(place)], np.float64).tolist()
        return Bounds(low, high, self.shape(place, arrays).cut(low, high))

    def edges(self, place: int, arrays: Arrays) -> Floats:
        """Return the inner edges of a tree's leaves."""
        return np.asarray(arrays[chosen_of(place)], np.float64)

    def _chosen(self, place: int, arrays: Arrays) -> Floats:
        """Return the bounds of a column, or the edges of a tree.

        They follow from the arrays published before. They are published as well, because two machines may round
        differently, and a reader must take those that the noise was drawn for.
        """
        measure, shape = self.measures[place], self.shape(place, arrays)
        if measure.kind == "quantiles":
            return shape.quantile_edges(1 << measure.levels, measure.grid, measure.stated)
        keys, users = self.rows_of_a_user(arrays), np.maximum(self.heads(arrays), 1.0)
        values = float(users.sum())
        column = (self.under(self.noises[place], keys).sigma / SCALE) ** 2
        if measure.kind == "record_mean":
            records = self.records_of_a_user(arrays)
            column, values = column * records**2, max(float(self._records(arrays).sum()), 1.0)
        rows, meeting = len(users), users[:-1] if len(users) > 1 else users
        concentrated = float((meeting**2).sum() / meeting.sum() ** 2)
        spread = math.sqrt(concentrated / max(len(meeting), 1))
        head = self.head_variance(keys)
        mean = measure.kind in ("user_mean", "record_mean")
        found = shape.choose(rows=rows, spread=spread, values=values, column=column, users=head, mean=mean)
        return np.array([1.0, max(1.0, float(round(found.high)))] if measure.kind == "count" else found[:2])

    def _records(self, arrays: Arrays) -> Floats:
        """Return the noisy counts of records."""
        users = self.heads(arrays)
        for place, measure in enumerate(self.measures):
            if measure.kind == "count":
                low, high, _ = self.range_of(place, arrays)
                column = np.asarray(arrays[column_of(place)], np.float64) / SCALE
                users = (low + high) / 2 * users + (high - low) / 2 * column
        return users

    def fits(self, arrays: Arrays) -> bool:
        """Check the names and shapes of all arrays, since a file is not trusted."""
        wanted = {LISTED, FOUND, WEIGHTS, USERS, *([] if self.held is None else [HELD])}
        wanted |= {name(place) for place in range(len(self.measures)) for name in (shape_of, column_of)}
        chosen = {
            chosen_of(place): ((1 << measure.levels) - 1, "tree") if measure.kind == "quantiles" else (2, measure.kind)
            for place, measure in enumerate(self.measures)
            if measure.kind == "quantiles" or measure.stated is None
        }
        wanted |= set() if self.persons is None else {PERSONS}
        more = {KEPT} if self.chosen else set()
        if set(arrays) != wanted | chosen.keys() | more or not are_names(arrays[LISTED], arrays[FOUND]):
            return False
        if len(arrays[FOUND]) and not self.rounds:
            return False
        rows = self.listed(arrays) + 1
        if self.rows not in (None, rows) or (self.persons is not None and not are_integers(arrays, PERSONS, (1,))):
            return False
        good = are_integers(arrays, WEIGHTS, (len(arrays[FOUND]),)) and are_integers(arrays, USERS, (rows,))
        good = good and (self.held is None or are_integers(arrays, HELD, (RANGES,)))
        good = good and (not self.chosen or (are_integers(arrays, KEPT, (1,)) and int(arrays[KEPT][0]) in BOUNDS))
        good = good and all(are_chosen(arrays[name], *facts) for name, facts in chosen.items())
        for place, measure in enumerate(self.measures):
            shape = (rows,) if measure.kind != "quantiles" else (rows, (1 << measure.levels) - 1)
            good = (
                good
                and are_integers(arrays, shape_of(place), (BINS,))
                and are_integers(arrays, column_of(place), shape)
            )
        return good and all(is_sane(arrays[name]) for name in wanted - {LISTED, FOUND})


def shape_of(place: int) -> str:
    """Return the name of a column's shape among the arrays."""
    return f"shape{place}"


def column_of(place: int) -> str:
    """Return the name of a column among the arrays."""
    return f"column{place}"


def chosen_of(place: int) -> str:
    """Return the name of a column's chosen bounds, or of the edges of its tree, among the arrays."""
    return f"chosen{place}"


def are_chosen(array: Any, size: int, kind: str) -> bool:
    """Say whether numbers of a file are bounds or edges of a column: increasing, and within reach.

    Edges of a tree may be infinite, and the bounds of a count are whole numbers from 1 on.
    """
    found = np.asarray(array)
    if found.dtype != np.float64 or found.shape != (size,) or np.isnan(found).any():
        return False
    if kind == "count" and (found[0] != 1 or found[1] != np.floor(found[1])):
        return False
    inside = found[found < np.inf] if kind == "tree" else found
    return bool((found[1:] >= found[:-1]).all() and (np.abs(inside) <= _FARTHEST).all())


def haar(mass: Integers) -> Integers:
    """Return the left half less the right half of every node, level by level from the root, of leaves by row.

    Examples
    --------
    >>> haar(np.array([[5, 1, 2, 0]])).tolist()
    [[4, 4, 2]]
    """
    levels = []
    while mass.shape[1] > 1:
        left, right = mass[:, 0::2], mass[:, 1::2]
        levels.append(left - right)
        mass = left + right
    return np.concatenate(levels[::-1], axis=1)


def _users_held(held: Floats, sigma: float) -> Floats:
    """Return users by number of rows, up to the last range that stands out of the noise."""
    stands = standing(held / sigma, _ALONE, _PAIRED)
    if not stands.any():
        return np.zeros_like(held)
    last = int(np.flatnonzero(stands)[-1])
    return np.where(np.arange(len(held)) <= last, np.maximum(held, 0.0), 0.0)
