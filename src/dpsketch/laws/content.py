"""What the laws of a histogram ask of its records, with the relational steps that bound each unit of privacy.

The steps are one text of SQL, which DuckDB and Spark both run (:class:`Tables`). They read two tables:

- ``keys(place, key, …)``: each key once. Places count up from 0 in the order of the keys, integers by value, texts by
  their bytes. Where the unit is a record it also has ``units``, how much was counted of the key.
- ``pairs(person, place, units, print)``: where the unit is a user, each pair of a user and a key once, its units
  clipped to what one user may add to one key. ``person`` is another value for every other user: if two users were taken
  for one, removing either could move the counts by twice the bound.

**Which keys of a user count.** Of a user with too many keys those count whose words are least. A word is
``xxhash64(seed, print)``, where the print of a pair is the fingerprint of its user XORed with that of its key. Privacy
needs only that a user's choice depends on no other user's records, and a word depends on its own pair and on a fresh
seed. Because it depends on no order either, every engine chooses the same keys for one seed.

**No sum wraps.** Whoever fills the tables refuses records whose units come to more than 2**62 in all, and every sum
here is over some of those units, or over weights of at most 2**20 a pair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.errors import InvalidInput, SourceError
from dpsketch.laws.rounds import unit_weights
from dpsketch.noise import random_words

__all__ = ["BLOCK", "Block", "Content", "RecordContent", "Tables", "UserContent", "fresh_seed", "pair_print"]

BLOCK = 1 << 16
"""The number of keys that get their noise at once, wherever the content lies."""

Columns = tuple[Integers, ...]


class Block(NamedTuple):
    """Some keys of which something counts, by their places, increasing; and how much, 1 or more each."""

    places: Integers
    sums: Integers


class Tables(Protocol):
    """The tables of a histogram in an engine of SQL. Sensitive.

    In a query ``{keys}``, ``{pairs}`` and the names of further tables stand for tables.
    """

    def numbers(self, query: str, **tables: dict[str, Integers]) -> Iterable[Columns]:
        """Run a query and yield its columns, all of whole numbers, in batches of rows."""

    def summed(self, chosen: str, **tables: dict[str, Integers]) -> Iterable[Columns]:
        """Yield places and the sums of units by place, in the order of the places, of what a query chooses.

        ``{some}`` in the query is a condition on ``person``. The engine may run the query several times, each time for
        some of the people, if everybody is in one of the runs.
        """

    def find(self, names: list[Any]) -> Integers:
        """Return the places of keys by their names, −1 for one that nobody has."""

    def names(self, places: Integers) -> list[Any]:
        """Return the names of the keys at these places, which increase."""


class Content(ABC):
    """What a mechanism may ask of the sensitive side. Each answer bounds every unit of privacy anew.

    Blocks come in the order of the keys, :data:`BLOCK` keys each but the last, so that any two contents which hold the
    same draw the same.
    """

    __slots__ = ("_tables",)

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @abstractmethod
    def counts(self, cap: int) -> Iterator[Block]:
        """Yield the units of all keys of which something counts; each unit of privacy counts on at most ``cap``."""

    @abstractmethod
    def sums(self, asked: Integers, cap: int, *, others: bool = True) -> tuple[Integers, int]:
        """Return the units of the keys at these places, which increase, and of all others together, or 0 for these.

        Each unit of privacy counts on at most ``cap`` of the keys asked for, and where it counts on i of them on at
        most cap − i others.
        """

    def weights(self, known: Integers, cap: int) -> Iterator[Block]:
        """Yield the sums of 1/√d over the users who have a key, in steps of 2⁻²⁰; not of the keys at known places.

        Each user counts on at most ``cap`` keys that are not known; d is how many these are. Records have one key, and
        no mechanism weighs them.
        """
        raise InvalidInput("weights are for users with many keys: a record has one.")

    @abstractmethod
    def held(self, asked: Integers) -> tuple[Integers, Integers]:
        """Return of each unit that has keys at these places how many, and one of them drawn at random, by its turn."""


class RecordContent(Content):
    """Counts by key, where a record is on one key. Sensitive."""

    __slots__ = ()

    def counts(self, cap: int) -> Iterator[Block]:
        """Yield the units of all keys; a record is on one."""
        return _blocks(self._tables.numbers("SELECT place, units FROM {keys} ORDER BY place"))

    def sums(self, asked: Integers, cap: int, *, others: bool = True) -> tuple[Integers, int]:
        """Return the units of each key asked for, and of all others."""
        query = "SELECT k.place, k.units FROM {keys} AS k SEMI JOIN {asked} AS a ON k.place = a.place ORDER BY k.place"
        sums = _placed(self._tables.numbers(query, asked={"place": asked}), asked)
        if not others:
            return sums, 0
        total = "SELECT CAST(coalesce(sum(units), 0) AS BIGINT) AS units FROM {keys}"
        return sums, sum(int(units.sum()) for (units,) in self._tables.numbers(total)) - int(sums.sum())

    def held(self, asked: Integers) -> tuple[Integers, Integers]:
        """Return one key for each record."""
        picked = np.repeat(np.arange(len(asked)), self.sums(asked, 1, others=False)[0])
        return np.ones(len(picked), np.int64), picked


class UserContent(Content):
    """Who has which key. Sensitive."""

    __slots__ = ()

    def counts(self, cap: int) -> Iterator[Block]:
        """Yield the units of all keys, of each user on at most ``cap``."""
        return _blocks(self._tables.summed(_chosen(_all(cap), fresh_seed())))

    def sums(self, asked: Integers, cap: int, *, others: bool = True) -> tuple[Integers, int]:
        """Return the units of each key asked for and of all others, of each user on at most ``cap`` keys."""
        places, seeds = {"place": asked}, (fresh_seed(), fresh_seed())
        sums = _placed(self._tables.summed(_chosen(_among(cap), seeds[0]), asked=places), asked)
        if not others:
            return sums, 0
        beside = self._tables.summed(_chosen(_beside(cap), seeds[1]), asked=places)
        return sums, sum(int(units.sum()) for _, units in beside)

    def weights(self, known: Integers, cap: int) -> Iterator[Block]:
        """Yield for each key that is not known the sum of 1/√d over its users, each rounded down."""
        steps = {"held": np.arange(1, cap + 1), "step": unit_weights(cap)[1:]}
        chosen = _chosen(_unlisted(cap), fresh_seed())
        step = f"JOIN {{steps}} AS s ON least(c.held, {cap}) = s.held"
        weighed = f"SELECT place, step AS units FROM ({chosen}) AS c {step}"
        return _blocks(self._tables.summed(weighed, asked={"place": known}, steps=steps))

    def held(self, asked: Integers) -> tuple[Integers, Integers]:
        """Return of each user that has keys at these places how many, and one of them drawn at random, by its turn."""
        least = f"min_by(place, {_word(fresh_seed())})"
        query = f"SELECT count(*) AS held, {least} AS place FROM ({_among(1)}) AS a GROUP BY person"
        nothing = np.empty(0, np.int64)
        found = [(nothing, nothing), *self._tables.numbers(query, asked={"place": asked})]
        held, places = (np.concatenate(each) for each in zip(*found, strict=True))
        return held, np.searchsorted(asked, places)


def fresh_seed() -> int:
    """Return a fresh seed for one choice of keys: a signed integer of 64 bits."""
    return int(random_words(1).view(np.int64)[0])


def pair_print(owner: str, key: str) -> str:
    """Return the print of a pair in SQL, from the fingerprints of its user and its key: one XORed with the other.

    The two engines write XOR in two ways. What one of two numbers has less what both have is the same, bit by bit.
    """
    return f"({owner} | {key}) - ({owner} & {key})"


def _word(seed: int) -> str:
    """Return the number by which a pair is chosen; as text, because the least integer has no literal."""
    return f"xxhash64(CAST('{seed}' AS BIGINT), print)"


def _all(cap: int) -> str:
    """Return all pairs, each with the number of keys that count of its user (``room``)."""
    return f"SELECT person, place, units, print, {cap} AS room FROM {{pairs}}"


def _among(cap: int) -> str:
    """Return the pairs of keys that are asked for."""
    return f"SELECT * FROM ({_all(cap)}) AS p SEMI JOIN {{asked}} AS a ON p.place = a.place"


def _unlisted(cap: int) -> str:
    """Return the pairs of all other keys."""
    return f"SELECT * FROM ({_all(cap)}) AS p ANTI JOIN {{asked}} AS a ON p.place = a.place"


def _beside(cap: int) -> str:
    """Return the pairs of all other keys, for which there is the room that a user's keys among those asked leave."""
    return f"""
    SELECT o.person, o.place, o.units, o.print, greatest({cap} - coalesce(n.held, 0), 0) AS room
    FROM ({_unlisted(cap)}) AS o
    LEFT JOIN (SELECT person, count(*) AS held FROM ({_among(cap)}) AS a GROUP BY person) AS n ON o.person = n.person"""


def _chosen(rows: str, seed: int) -> str:
    """Return of each person's rows at most ``room``, those with the least words; ``held`` is how many there were."""
    return f"""
    SELECT place, units, held FROM (
        SELECT place, units, room, count(*) OVER (PARTITION BY person) AS held,
            row_number() OVER (PARTITION BY person ORDER BY {_word(seed)}, place) AS turn
        FROM ({rows}) AS r WHERE {{some}}) AS ranked
    WHERE turn <= room"""


def _placed(batches: Iterable[Columns], asked: Integers) -> Integers:
    """Return sums by place as one number for each place that is asked for."""
    sums = np.zeros(len(asked), np.int64)
    for block in _blocks(batches):
        sums[np.searchsorted(asked, block.places)] = block.sums
    return sums


def _blocks(batches: Iterable[Columns]) -> Iterator[Block]:
    """Yield places and sums, :data:`BLOCK` at a time."""
    places = sums = np.empty(0, np.int64)
    for more_places, more_sums in batches:
        places, sums = np.concatenate([places, more_places]), np.concatenate([sums, more_sums])
        if not (np.diff(places) > 0).all() or not (more_sums > 0).all():
            raise SourceError("the records came in another order than was asked for, and nothing is published.")
        while len(places) >= BLOCK:
            yield Block(places[:BLOCK], sums[:BLOCK])
            places, sums = places[BLOCK:], sums[BLOCK:]
    if len(places):
        yield Block(places, sums)
