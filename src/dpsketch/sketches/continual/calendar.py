"""The days of a stream: how many, on how many of them a unit counts, and their dates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Self

from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.laws.designs import LONGEST
from dpsketch.numbers import whole_number
from dpsketch.privacy import Unit

__all__ = ["Calendar"]


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
        counted, apart = None, 1
        if unit.level == "user":
            stored = header.get("limits")
            if not isinstance(stored, list) or len(stored) != 2 or stored[0] is None:
                raise FileRefused("the file's limits on the days of users are not those that dpsketch writes.")
            counted, apart = stored
        return cls.of(unit, header["days"], counted, apart, header.get("first_day"))

    def to_json(self) -> dict[str, Any]:
        """Return what a header has of it, beside the limits."""
        return {"first_day": None if self.first_day is None else self.first_day.isoformat()}

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
