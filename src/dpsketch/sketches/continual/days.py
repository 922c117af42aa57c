"""The days of a stream: how many, on how many of them a unit counts, their dates, and on which users were counted.

A user's records of a day are dropped where the user was counted on as many days as the bound says, or too few days
ago. What is dropped follows from the user's own records alone, so that nobody's presence changes what another adds.
For that no two users may be taken for one: users are told apart by 128 bits of a keyed BLAKE2b, whose key is drawn
when a stream begins and kept with the sensitive state. Two of n users share them with a probability below n²·2⁻¹²⁹,
10⁻²³ for a hundred million, whoever chose their names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import files
from dpsketch.bounding import UserColumn, read_users
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import key_type_of
from dpsketch.laws.designs import LONGEST
from dpsketch.noise import random_id
from dpsketch.numbers import whole_number
from dpsketch.privacy import Unit
from dpsketch.sketches.documents import integer_array

__all__ = ["Calendar", "Visits"]

_DIGEST = 16


@dataclass(frozen=True, slots=True)
class Calendar:
    """The days of a stream, and those of a unit. Public.

    Attributes
    ----------
    days : int or None
        How many days may be published; None without an end.
    limits : tuple of int
        On how many days a unit counts, and how far apart.
    first_day : date or None
        The date of the first day, where it was stated.
    """

    days: int | None
    limits: tuple[int, int] = (1, 1)
    first_day: date | None = None

    @classmethod
    def of(cls, unit: Unit, days: int | None, counted: int | None, apart: int, first_day: date | str | None) -> Self:
        """Return a calendar as it is asked for; refuse limits that go with the other unit."""
        days, begun = _checked_days(days), _checked_date(first_day)
        apart = whole_number("days_apart", apart, low=1, high=LONGEST)
        if unit.level == "record":
            if counted is not None or apart != 1:
                raise InvalidInput(
                    "user_days= and days_apart= go with unit=dps.per_user(max_keys=…): a record has one day."
                )
            return cls(days, (1, 1), begun)
        if counted is not None:
            return cls(days, (whole_number("user_days", counted, low=1, high=LONGEST), apart), begun)
        if days is None:
            raise InvalidInput("without an end a user's days must be bounded: say user_days= as well, or days=.")
        return cls(days, (-(-days // apart), apart), begun)

    @classmethod
    def stored(cls, header: dict[str, Any], unit: Unit) -> Self:
        """Read the calendar of a file, which may have been written by anyone."""
        limits = header["limits"]
        if not isinstance(limits, list) or len(limits) != 2 or limits[0] is None:
            raise FileRefused("the file's limits on the days of users are not those that dpsketch writes.")
        counted, apart = (None, 1) if unit.level == "record" else limits
        return cls.of(unit, header["days"], counted, apart, header["first_day"])

    def to_json(self) -> dict[str, Any]:
        """Return what a header has of it."""
        begun = None if self.first_day is None else self.first_day.isoformat()
        return {"days": self.days, "limits": list(self.limits), "first_day": begun}

    @property
    def horizon(self) -> int:
        """For how many days noise is calibrated."""
        return LONGEST if self.days is None else self.days

    def number_of(self, day: date | str) -> int:
        """Return the number of a date, the first day being 1."""
        asked = _checked_date(day)
        if self.first_day is None or asked is None:
            raise InvalidInput("this stream counts its days from 1: it was begun without first_day=.")
        return (asked - self.first_day).days + 1

    def names(self, days: range) -> Iterator[Any]:
        """Yield the names of days: their dates, or else their numbers."""
        for day in days:
            yield day if self.first_day is None else (self.first_day + timedelta(day - 1)).isoformat()


def _checked_days(days: int | None) -> int | None:
    return None if days is None else whole_number("days", days, low=1, high=LONGEST)


def _checked_date(day: date | str | None) -> date | None:
    if isinstance(day, datetime):
        return day.date()
    if day is None or isinstance(day, date):
        return day
    try:
        return date.fromisoformat(day)
    except (TypeError, ValueError):
        raise InvalidInput("a day is a date, as in 2026-11-15.") from None


class Visits:
    """The days of every user who was counted. Sensitive.

    Parameters
    ----------
    days : int
        On how many days a user may be counted.
    apart : int
        How many days after one of them the next may be, at least.
    """

    __slots__ = ("_apart", "_days", "_key", "_seen")

    def __init__(self, days: int, apart: int) -> None:
        self._days = days
        self._apart = apart
        self._key = bytes.fromhex(random_id() + random_id())
        self._seen: dict[bytes, tuple[int, int]] = {}  # how many days, and which was the last

    def __repr__(self) -> str:
        return "<Visits; sensitive, content not shown>"

    def allowed(self, users: Any, day: int) -> tuple[UserColumn, list[bytes], int]:
        """Return the users column without those who may not be counted today, who may, and how many records go.

        Those who were counted today already stay: that they come in one update is checked where they are counted.
        """
        read = read_users(users)
        column = read.column.combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        kind = key_type_of(column.type)
        if kind is None:  # nobody
            return read, [], 0
        if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
            column = column.cast(pa.large_binary())
        encoded = (column.cast(pa.large_binary()) if kind == "text" else column).dictionary_encode()
        digests = [self._digest(value) for value in encoded.dictionary.to_pylist()]
        welcome = np.array([self._may_come(digest, day) for digest in digests], dtype=bool)
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        dropped = np.zeros(len(codes), dtype=bool)
        dropped[codes >= 0] = ~welcome[codes[codes >= 0]]
        kept = [digest for digest, may in zip(digests, welcome.tolist(), strict=True) if may]
        left = pa.chunked_array([pa.compute.if_else(pa.array(~dropped), column, None)])
        return UserColumn(left, read.user_type), kept, int(dropped.sum())

    def note(self, digests: list[bytes], day: int) -> dict[bytes, tuple[int, int]]:
        """Remember that these users were counted on a day; return what was known of those whose entry changed."""
        before = {}
        for digest in digests:
            days, last = self._seen.get(digest, (0, 0))
            if last != day:
                before[digest] = days, last
                self._seen[digest] = days + 1, day
        return before

    def forget(self, before: dict[bytes, tuple[int, int]]) -> None:
        """Take back what :meth:`note` remembered, for records that were refused."""
        for digest, entry in before.items():
            if entry[0]:
                self._seen[digest] = entry
            else:
                del self._seen[digest]

    def _may_come(self, digest: bytes, day: int) -> bool:
        days, last = self._seen.get(digest, (0, 0))
        return days == 0 or last == day or (days < self._days and day - last >= self._apart)

    def _digest(self, user: Any) -> bytes:
        value = user if isinstance(user, bytes) else (int(user) & (2**64 - 1)).to_bytes(8, "little")
        return hashlib.blake2b(value, digest_size=_DIGEST, key=self._key).digest()

    def arrays(self) -> dict[str, files.Array]:
        """Return what a file keeps, in an order that says nothing. Sensitive."""
        seen = sorted(self._seen.items())
        days: npt.NDArray[np.int64] = np.array([entry for _, entry in seen], np.int64).reshape(len(seen), 2)
        return {"visitors": [self._key, *(digest for digest, _ in seen)], "visits": days}

    def restore(self, document: files.Document) -> None:
        """Take up what a file kept."""
        stored = document.arrays.get("visitors")
        if not isinstance(stored, list) or not stored or not all(isinstance(each, bytes) for each in stored):
            raise _not_ours()
        key, *digests = [each for each in stored if isinstance(each, bytes)]
        days = integer_array(document, "visits", (len(digests), 2))
        good = len(key) == 2 * _DIGEST and all(len(each) == _DIGEST for each in digests)
        if not good or len(set(digests)) < len(digests) or np.any((days < 1) | (days > LONGEST)):
            raise _not_ours()
        self._key = key
        self._seen = {digest: (int(n), int(last)) for digest, (n, last) in zip(digests, days, strict=True)}


def _not_ours() -> FileRefused:
    return FileRefused("the file's record of users is not one that dpsketch writes.")
