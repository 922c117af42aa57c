"""Queries of a table's laws to records that are sorted by user and group, without relational steps.

One machine sorts records in less time than it groups them. They then come user by user, and what a user contributes is
found in one pass over the user's own records (:mod:`dpsketch._compiled.groups`). The answers are those of
:mod:`dpsketch.laws.groups`: the same rows of a user are kept for the same seed, and each kept pair gives the same whole
number.

**One unit, one contribution.** :func:`whole_users` cuts the records into batches that have all records of each of their
users; records in another order are refused. So a user is in one batch, and each row of a user is one pair.
:func:`_choose` keeps at most m rows of each user, by the user's own fingerprint and a fresh seed. Sums by row then add
one bounded number of each pair, as whole numbers of 64 bits, which depend on no order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch import threads
from dpsketch._compiled.groups import add_up, centre, gather, least, leaves_of
from dpsketch._compiled.hashing import hash_integers
from dpsketch.arrays import Floats, Integers, read_only
from dpsketch.errors import InvalidInput, ReleaseRefused, SourceError
from dpsketch.hashing import FINGERPRINT_SEED
from dpsketch.laws.bounds import BINS, EDGES
from dpsketch.laws.choice import RANGES, range_of
from dpsketch.laws.content import BLOCK, Block, fresh_seed
from dpsketch.laws.groups import LARGEST_SCALE, SCALE, STEP, GroupTables, Kept, Measure, TableContent
from dpsketch.laws.rounds import unit_weights

__all__ = ["Records", "SortedContent", "SortedKept", "SortedTables", "whole_users"]

T = TypeVar("T")
B = TypeVar("B")
Mask = npt.NDArray[np.bool_]
# Cells, and the amount to add to each.
Added = tuple[Integers, Integers]

# A total has two limbs: the lower bits, which are never negative, and the rest.
_LIMB = 31


class Records(NamedTuple):
    """Records in the order of users and groups. Sensitive.

    Attributes
    ----------
    persons : numpy.ndarray of int64
        The user of each record, another number for every other user. It never decreases.
    prints : numpy.ndarray of int64
        The fingerprint of each record's user.
    places : numpy.ndarray of int64
        The group of each record. It never decreases within a user.
    values : dict of int to numpy.ndarray of float64
        The columns of values that were asked for, by their numbers.
    """

    persons: Integers
    prints: Integers
    places: Integers
    values: dict[int, Floats]


class SortedTables(GroupTables, Protocol):
    """The tables of records in an engine of SQL that can also sort them. Sensitive."""

    def in_order(self, values: Sequence[int]) -> Iterable[Records]:
        """Yield all records in the order of users and groups, with these columns of values."""


def whole_users(batches: Iterable[Records]) -> Iterator[Records]:
    """Yield the records again, all those of a user in one batch."""
    # A batch is yielded up to its last user; all later records have that user or a larger one. The kernel that reads
    # a batch refuses decreasing users. So no user is in two batches.
    waiting: list[Records] = []
    for batch in batches:
        if not len(batch.persons):
            continue
        if waiting and batch.persons[0] < waiting[-1].persons[-1]:
            raise _out_of_order()
        first = int(np.searchsorted(batch.persons, batch.persons[-1]))  # of the last user, who may have more records
        if (waiting and batch.persons[-1] > waiting[-1].persons[-1]) or first:
            yield _joined([*waiting, _part(batch, slice(0, first))])
            waiting = []
        waiting.append(_part(batch, slice(first, None)))
    if waiting:
        yield _joined(waiting)


def _out_of_order() -> SourceError:
    return SourceError("the records came in another order than was asked for, and nothing is published.")


def _part(batch: Records, rows: slice) -> Records:
    values = {name: value[rows] for name, value in batch.values.items()}
    return Records(batch.persons[rows], batch.prints[rows], batch.places[rows], values)


def _joined(batches: list[Records]) -> Records:
    persons, prints, places = (np.concatenate([batch[field] for batch in batches]) for field in range(3))
    values = {name: np.concatenate([batch.values[name] for batch in batches]) for name in batches[0].values}
    return Records(persons, prints, places, values)


class Pairs(NamedTuple):
    """Each row of each user of a batch once, in the order of users. Sensitive.

    Attributes
    ----------
    users, rows, units, prints : numpy.ndarray of int64
        The user, counted from 0 in the batch, the row, the number of records, and what the pair is chosen by.
    starts, numbers : numpy.ndarray of int64
        Records lie in runs of one user and group: the first record of each, and its pair; −1 if that is not kept.
    length : int
        The number of records.
    values : dict of int to numpy.ndarray of float64
        The values of the records.
    """

    users: Integers
    rows: Integers
    units: Integers
    prints: Integers
    starts: Integers
    numbers: Integers
    length: int
    values: dict[int, Floats]

    @classmethod
    def of(cls, records: Records, rows: Integers, prints: Integers, rest: int) -> Pairs:
        """Return the pairs of records, from the row and the print of each group."""
        n = len(records.persons)
        pairs, starts, numbers = np.empty((4, n), np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        count, runs = gather(*records[:3], rows, prints, rest, pairs, starts, numbers)
        if count < 0:
            raise _out_of_order()
        users, found, units, own = pairs[:, :count]
        return cls(users, found, units, own, starts[:runs], numbers[:runs], n, records.values)

    def kept(self, which: Mask) -> Pairs:
        """Return some of the pairs."""
        # The last entry stands for runs that were left out before.
        number = np.append(np.where(which, np.cumsum(which) - 1, -1), -1)[self.numbers]
        users, rows, units, prints = (column[which] for column in self[:4])
        return Pairs(users, rows, units, prints, self.starts.copy(), number, self.length, self.values)

    def of_records(self) -> Integers:
        """Return the pair of each record."""
        return np.repeat(self.numbers, np.diff(self.starts, append=self.length))

    def own(self, measure: Measure) -> tuple[Integers, Integers, Floats]:
        """Return each record that counts, its pair, and its value."""
        own = self.of_records()
        records = np.flatnonzero(own >= 0)
        return records, own[records], self.values[measure.value][records]

    def record_prints(self, records: Integers, own: Integers) -> Integers:
        """Return another number for each record of a user, from the user's own records; ``own`` are their pairs."""
        first = np.empty(len(self.users) + 1, np.int64)  # the last stands for pairs that are not kept
        first[self.numbers[::-1]] = self.starts[::-1]
        found: Integers = self.prints[own] ^ (records - first[own])
        return found

    def value_of(self, value: int, drawn: Integers, seed: int) -> Floats:
        """Return the value of one record, at random, of each of these pairs of different users.

        Records of a pair are told apart by the order of their values, so that the order in which they came is nothing.
        """
        wanted = np.zeros(len(self.users) + 1, np.bool_)  # the last stands for pairs that are not kept
        wanted[drawn] = True
        own = self.of_records()
        records = np.flatnonzero(wanted[own])
        own, values = own[records], self.values[value][records]
        values = values[np.lexsort((values, own))]
        own = np.sort(own)
        return values[_draw(own, _words(seed, self.prints[own] ^ _turns(own)))]

    def centred(self, measure: Measure, bounds: tuple[float, float], records: int) -> Integers:
        """Return the contribution of each pair to a mean over records."""
        found, values = np.zeros(len(self.units), np.int64), read_only(self.values[measure.value])
        scale = _scale(bounds, SCALE)
        centre(values, self.starts, self.numbers, self.units, *bounds, scale, SCALE, records, found)
        return found

    def leaves(self, measure: Measure, edges: Floats, scale: int) -> Added:
        """Return the leaf in its row, and the mass, of each record that counts."""
        values, cells, amounts = read_only(self.values[measure.value]), *np.empty((2, self.length), np.int64)
        masses = scale // self.units
        count = leaves_of(values, edges, self.starts, self.numbers, self.rows, masses, cells, amounts)
        return cells[:count], amounts[:count]

    def amount(self, measure: Measure, which: Integers) -> Floats:
        """Return the number that each of these pairs has."""
        if measure.kind == "count":
            return self.units[which].astype(np.float64)
        if measure.kind not in ("total", "user_mean"):
            raise InvalidInput("records have no number of their own for that measure.")
        high, low = np.zeros((2, len(self.units)), np.int64)
        add_up(read_only(self.values[measure.value]), self.starts, self.numbers, STEP, _LIMB, high, low)
        amount = np.asarray((high[which] * 2.0**_LIMB + low[which]) * STEP, np.float64)
        return amount / self.units[which] if measure.kind == "user_mean" else amount


def _choose(pairs: Pairs, cap: int, seed: int) -> Mask:
    """Choose the pairs that count: at most ``cap`` of each user, those with the smallest words."""
    kept = np.bincount(pairs.users)[pairs.users] <= cap
    crowded = np.flatnonzero(~kept)
    if len(crowded):
        words = _words(seed, pairs.prints[crowded])
        order = crowded[np.lexsort((pairs.rows[crowded], words, pairs.users[crowded]))]
        kept[order] = _turns(pairs.users[order]) < cap
    return kept


def _draw(users: Integers, words: Integers) -> Integers:
    """Return one place of each user, that of the least word."""
    found = np.empty(len(users), np.int64)
    return found[: least(users, words, found)]


def _turns(users: Integers) -> Integers:
    """Return 0, 1, 2, … for the entries of each user."""
    new = np.ones(len(users), np.bool_)
    np.not_equal(users[1:], users[:-1], out=new[1:])
    first = np.flatnonzero(new)
    turns: Integers = np.arange(len(users)) - np.repeat(first, np.diff(first, append=len(users)))
    return turns


def _words(seed: int, prints: Integers) -> Integers:
    """Return ``xxhash64(seed, print)`` as SQL computes it."""
    start, found = np.empty(1, np.uint64), np.empty(len(prints), np.uint64)
    hash_integers(np.array([seed], np.int64).view(np.uint64), FINGERPRINT_SEED, start)
    hash_integers(prints.view(np.uint64), start[0], found)
    return found.view(np.int64)


def _uniform(seed: int, prints: Integers) -> Floats:
    """Return random numbers from 0 to below 1, as SQL computes them."""
    return np.asarray((_words(seed, prints) & ((1 << 30) - 1)) * 2.0**-30, np.float64)


class SortedContent(TableContent):
    """Sorted records of a table, with the queries of its laws. Each answer bounds every user. Sensitive.

    Parameters
    ----------
    tables : SortedTables
        The records.
    values : sequence of int
        The columns of values that are asked for.
    roomy : bool
        Whether the kept pairs of all users may stay in memory. Otherwise each answer computes them again.
    """

    __slots__ = ("_prints", "_roomy", "_sorted", "_values")

    def __init__(self, tables: SortedTables, *, values: Sequence[int], roomy: bool) -> None:
        super().__init__(tables, by_user=True, columns=())
        self._sorted, self._values, self._roomy = tables, tuple(values), roomy
        found = [prints for (prints,) in tables.numbers("SELECT print FROM {keys} ORDER BY place")]
        self._prints = np.concatenate([np.empty(0, np.int64), *found])

    def weights(self, known: Integers, cap: int) -> Iterator[Block]:
        """Yield for each group that is not known the sum of 1/√d over its users, each rounded down."""
        seed, steps, every = fresh_seed(), unit_weights(cap), np.arange(len(self._prints))
        unknown = np.ones(len(every), np.bool_)
        unknown[known] = False

        def weighed(records: Records) -> Added:
            pairs = Pairs.of(records, every, self._prints, -1)
            pairs = pairs.kept(unknown[pairs.rows]) if len(known) else pairs
            held = np.bincount(pairs.users)[pairs.users]
            kept = _choose(pairs, cap, seed)
            return pairs.rows[kept], steps[np.minimum(held[kept], cap)]

        sums = _sums(self._records(()), weighed, len(every))
        places = np.flatnonzero(sums)
        for start in range(0, len(places), BLOCK):
            part = places[start : start + BLOCK]
            yield Block(part, sums[part])

    def keep(self, asked: Integers, most: Callable[[Integers], int]) -> Kept:
        """Map groups to rows, and keep at most some rows of each user."""
        there, rest = np.flatnonzero(asked >= 0), len(asked)
        rows = np.full(len(self._prints), rest, np.int64)
        rows[asked[there]] = there

        def ranges(records: Records) -> Added:
            held = np.bincount(Pairs.of(records, rows, self._prints, rest).users)
            return range_of(held), np.ones_like(held)

        cap = most(_sums(self._records(()), ranges, RANGES))
        seed = fresh_seed()

        def kept(records: Records) -> Pairs:
            pairs = Pairs.of(records, rows, self._prints, rest)
            found = pairs.kept(_choose(pairs, cap, seed))
            if int(np.bincount(found.users).max()) > cap:
                raise ReleaseRefused("a user counts in more rows than its bound allows. Nothing was drawn of them.")
            return found

        if not self._roomy:
            return SortedKept(lambda values: (partial(kept, each) for each in self._records(values)), rest + 1)
        everyone = [*_each(self._records(self._values), kept)]
        return SortedKept(lambda _: (partial(_itself, each) for each in everyone), rest + 1)

    def _records(self, values: Sequence[int]) -> Iterator[Records]:
        return whole_users(self._sorted.in_order(values))


class SortedKept(Kept):
    """Bounded contributions of all users, by row. All answers are sums over batches of users. Sensitive.

    Parameters
    ----------
    batches : callable
        Takes columns of values, and returns a function for each batch that computes its kept pairs.
    rows : int
        The number of rows.
    """

    __slots__ = ("_batches",)

    def __init__(self, batches: Callable[[Sequence[int]], Iterable[Callable[[], Pairs]]], rows: int) -> None:
        self._batches, self._rows = batches, rows

    def users(self) -> Integers:
        """Return the number of users in each row."""
        return self._added([], lambda pairs: (pairs.rows, np.ones_like(pairs.rows)), self._rows)

    def shape(self, measure: Measure) -> Integers:
        """Return the bins of one value of each user, drawn at random from its rows."""
        seeds = fresh_seed(), fresh_seed()

        def binned(pairs: Pairs) -> Added:
            drawn = _draw(pairs.users, _words(seeds[0], pairs.prints))
            if measure.kind in ("record_mean", "quantiles"):
                values = pairs.value_of(measure.value, drawn, seeds[1])
            else:
                values = pairs.amount(measure, drawn)
            return np.searchsorted(EDGES, values, side="right"), np.ones_like(drawn)

        return self._added([measure], binned, BINS)

    def centred(self, measure: Measure, bounds: tuple[float, float], records: int) -> Integers:
        """Return the sums by row of 2y − SCALE, where each user's y lies between 0 and SCALE."""

        def moved(pairs: Pairs) -> Added:
            if measure.kind != "record_mean":
                return pairs.rows, 2 * _clipped(
                    pairs.amount(measure, np.arange(len(pairs.rows))), bounds, SCALE
                ) - SCALE
            # Each record gives its centred value times min(c, w)/(c·w), cut towards zero: c of them give SCALE at most.
            return pairs.rows, pairs.centred(measure, bounds, records)

        return self._added([measure], moved, self._rows)

    def cells(self, measures: Sequence[tuple[Measure, tuple[float, float]]], steps: int) -> Integers:
        """Return the sums by row of all products of y or steps − y over the measures: 2^k cells of k measures."""
        corners, seeds = 1 << len(measures), [fresh_seed() for _ in measures]

        def products(pairs: Pairs) -> Added:
            found = np.ones((len(pairs.rows), 1), np.int64)
            for (measure, bounds), seed in zip(measures, seeds, strict=True):
                y = _clipped(
                    pairs.amount(measure, np.arange(len(pairs.rows))), bounds, steps, _uniform(seed, pairs.prints)
                )[:, None]
                found = np.concatenate([found * (steps - y), found * y], axis=1)
            return (pairs.rows[:, None] * corners + np.arange(corners)).ravel(), found.ravel()

        found = self._added([measure for measure, _ in measures], products, self._rows * corners)
        return found.reshape(self._rows, corners)

    def leaves(self, measure: Measure, edges: Sequence[float], scale: int) -> Integers:
        """Return the mass of each leaf by row: a pair of a user and a row has ``scale``, its records alike."""
        leaves, ends = len(edges) + 1, np.asarray(edges, np.float64)
        found = self._added([measure], lambda pairs: pairs.leaves(measure, ends, scale), self._rows * leaves)
        return found.reshape(self._rows, leaves)

    def slots(self, measure: Measure, edges: Sequence[float], firsts: Integers, scale: int) -> Integers:
        """Return the mass of each slot by row, where a record takes one slot of its cell at random."""
        slots, wide, seed = int(firsts[-1]), np.diff(firsts), fresh_seed()

        def masses(pairs: Pairs) -> Added:
            records, own, value = pairs.own(measure)
            cell = np.searchsorted(edges, value, side="right")
            prints = pairs.record_prints(records, own)
            turn = np.floor(_uniform(seed, prints) * wide[cell]).astype(np.int64)
            return pairs.rows[own] * slots + firsts[cell] + turn, (scale // pairs.units)[own]

        return self._added([measure], masses, self._rows * slots).reshape(self._rows, slots)

    def _added(self, measures: Sequence[Measure], step: Callable[[Pairs], Added], size: int) -> Integers:
        values = sorted({measure.value for measure in measures if measure.value >= 0})
        return _sums(self._batches(values), lambda pairs: step(pairs()), size)


def _sums(batches: Iterable[B], step: Callable[[B], Added], size: int) -> Integers:
    """Sum the integer contributions of all batches to the cells."""
    found = np.zeros(size, np.int64)
    for cells, amounts in _each(batches, step):
        np.add.at(found, cells, amounts)
    return found


def _each(batches: Iterable[B], step: Callable[[B], T]) -> Iterator[T]:
    """Apply a step to each batch in parallel threads, and yield the results."""
    waiting = iter(batches)
    while some := list(islice(waiting, threads.thread_count())):
        yield from threads.run([partial(step, batch) for batch in some])


def _itself(pairs: Pairs) -> Pairs:
    return pairs


def _clipped(value: Floats, bounds: tuple[float, float], steps: int, dither: Floats | float = 0.5) -> Integers:
    """Return the positions of values between bounds, in whole steps from 0 to ``steps``."""
    low, high = bounds
    place = np.floor((np.maximum(np.minimum(value, high), low) - low) * _scale(bounds, steps) + dither)
    # Clipped again before the cast, which turns NaN and large numbers into any integer.
    found: Integers = np.clip(np.nan_to_num(place, nan=0.0), 0, steps).astype(np.int64)
    return found


def _scale(bounds: tuple[float, float], steps: int) -> float:
    """Return the number of steps of a unit between bounds."""
    low, high = bounds
    return min(steps / (high - low), LARGEST_SCALE) if high > low else 0.0
