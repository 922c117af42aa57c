"""Answer from the published days of a stream, and hold users to the days on which they may be counted.

**Users.**

A user's records of a day are dropped where the user was counted on as many days as the bound says, or too few days
ago. What is dropped follows from the user's own records alone, so that nobody's presence changes what another adds.
For that no two users may be taken for one: users are told apart by 128 bits of a keyed BLAKE2b, whose key is drawn
when a stream begins and kept with the sensitive state. Two of n users share them with a probability below n²·2⁻¹²⁹,
10⁻²³ for a hundred million, whoever chose their names.

**The release** is all that a stream has published and nothing else: no buffers, none of today's records, no users. The
stream itself answers through it, so that what its owner sees is what a reader of the file sees.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import files, plots
from dpsketch.arrays import Floats
from dpsketch.bounding import UserColumn, read_users
from dpsketch.core.drawn import (
    Receipt,
    promise,
    receipt_from_json,
    receipt_to_json,
    refuse_other_promise,
    stated_promise,
)
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.hashing import KeyType, key_type_of
from dpsketch.laws.designs import LONGEST, Design
from dpsketch.laws.streams import Published
from dpsketch.noise import random_id
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Guarantee, Unit
from dpsketch.release import Release, without_types
from dpsketch.results import NOISE_ONLY, Estimates
from dpsketch.sketches.continual.stream import not_of_days, read_keys, stored_keys
from dpsketch.sketches.continual.windows import Publications, Stretch, Window, daily_shares, law_class, mark_of
from dpsketch.sketches.kinds import KINDS, Kind
from dpsketch.sketches.partials import integer_array
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.ledger import Charge


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


# Of windows that were asked, so many bytes are kept, and so many windows at least.
_KEPT, _LEAST_KEPT = 2**26, 8
# A curve's intervals that hold for all days at once are widened as those of a top are.
_TAIL_MARGIN = 4


@dataclass(frozen=True, slots=True, eq=False)
class PrivateSeries(Release):
    """All that a stream has published so far. Public.

    Attributes
    ----------
    counts_kind : str
        The name of the kind that a day counts.
    spec
        Its public spec.
    calendar : Calendar
        The days.
    published : Publications
        What was published.
    receipt : Receipt
        What was paid for the stream.
    guarantee : Guarantee
        What all publications together promise, those still to come included; print it.

    Privacy
    -------
    That of the stream, whose publications it is made of. The file of a later day holds that of an earlier one.
    """

    kind: ClassVar[str] = "series"

    counts_kind: str
    spec: Any
    calendar: Calendar
    published: Publications
    receipt: Receipt
    guarantee: Guarantee = field(init=False)
    # What a window has found out about itself is of use when it is asked again.
    _kept: dict[tuple[int, int], Any] = field(default_factory=dict, repr=False)
    _turn: Any = field(default_factory=Lock, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "guarantee", promise(self.spec, self.receipt))

    @property
    def charge(self) -> Charge | None:
        """The ledger's row, if a ledger was charged."""
        return self.receipt.charge

    @property
    def law(self) -> Published:
        """What is published, and under which noise."""
        return stored_law(self.receipt)

    def __repr__(self) -> str:
        shown = f"{self.days_published} days of {self.counts_kind}, spec {fingerprint_of(self.spec)}"
        return f"<PrivateSeries of {shown}: {self.guarantee}>"

    @property
    def days_published(self) -> int:
        """How many days have been published."""
        return self.published.day

    @property
    def design(self) -> Design:
        """How noise is correlated from day to day."""
        return self.published.law.design

    def public_spec(self) -> dict[str, Any]:
        """Return the spec as people read it."""
        spec: dict[str, Any] = without_types(self.spec.to_json())
        return spec

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        begun = self.calendar.first_day
        (last,) = self.calendar.names(range(self.days_published, self.days_published + 1))
        return {
            "of": self.counts_kind,
            "days_published": self.days_published,
            "days": self.calendar.days,
            "first_day": None if begun is None else begun.isoformat(),
            "last_day": last,
            "noise": self.design.words,
        }

    @property
    def counts(self) -> str:
        """What an estimate counts, in the words of the kind."""
        return str(self.total().counts)

    @property
    def takes_either_key(self) -> bool:
        """Whether it was made without a key type, so that a question about keys brings its own."""
        return bool(self.total().takes_either_key)

    @property
    def names_keys(self) -> bool:
        """Whether it can list keys without candidates, where its kind can."""
        return bool(self.total().names_keys)

    def total(self) -> Any:
        """Return the release of all days so far."""
        return self.between(1, self.days_published)

    def between(self, first: int, last: int) -> Any:
        """Return the release of the days ``first`` to ``last``, both included and counted from 1.

        It is a release of the kind that is counted, and is asked as such.
        """
        found = self._kept.get((first, last))
        if found is None:
            found = self._release(*self.published.answer(first, last))
            with self._turn:  # several threads of a service may ask
                while len(self._kept) >= max(_LEAST_KEPT, _KEPT // (8 * self.published.tables[0].size + 1)):
                    del self._kept[next(iter(self._kept))]
                self._kept[first, last] = found
        return found

    def _release(self, vector: Floats, stretch: Stretch, *, signed: bool = False) -> Any:
        window = Window(vector, stretch, self.receipt, self.guarantee, self.published, signed)
        release: Any = KINDS[self.counts_kind].window
        return release.of_window(self.spec, window)

    def change(
        self, key: Any, later: tuple[int, int], earlier: tuple[int, int], *, confidence: float = 0.95
    ) -> Estimates:
        """Return how far an answer changed between two windows of days.

        Parameters
        ----------
        key
            What is asked, as for :meth:`curve`.
        later, earlier : tuple of int
            The first and the last day of each window.
        confidence : float
            Coverage of the interval.

        Accuracy
        --------
        The windows share noise. Of counts and ranges the interval is that of the difference itself; of quantiles and
        densities, which are no differences of counts, it is made of the two intervals, and is wider than it need be.
        It covers the error of the releases only: this is no significance test.
        """
        confidence = probability("confidence", confidence)
        (new, late), (old, early) = self.published.answer(*later), self.published.answer(*earlier)
        changed = self._release(new - old, late.plus(early, -1), signed=True)
        found: Estimates
        if changed.subtracts(key):
            found = changed.ask(key, confidence)
        else:
            each = 1 - (1 - confidence) / 2  # each of the two has half of the doubt
            after, before = (self.between(*days).ask(key, each) for days in (later, earlier))
            low, high = after.low - before.high, after.high - before.low
            found = Estimates(after.key, after.value - before.value, low, high, confidence, after.counts)
        return replace(found, note=NOISE_ONLY)

    def curve(
        self, key: Any, *, window: int | None = None, confidence: float = 0.95, together: bool = False
    ) -> Estimates:
        """Return the estimates of one question over time, one for each day.

        Parameters
        ----------
        key
            A key; of ranges a share, as 0.5 for the median, or a pair (low, high); of a density a point.
        window : int, optional
            Sums of so many days, ending on each day from the first that has so many before it (1: days by themselves).
            Without it, running totals.
        confidence : float
            Coverage of the intervals: of each by itself or, with ``together``, of all of them at once.
        together : bool
            Whether the intervals are to hold for the whole curve. Each is then widened for the number of days
            (Bonferroni), and for the tail of the error law as those of a ``top`` are.
        """
        first = 1 if window is None else whole_number("window", window, low=1, high=self.days_published)
        days = range(first, self.days_published + 1)
        confidence = probability("confidence", confidence)
        each = 1 - (1 - confidence) / (_TAIL_MARGIN * len(days)) if together else confidence
        found = [self.between(1 if window is None else day - window + 1, day).ask(key, each) for day in days]
        value, low, high = (
            np.array([getattr(estimates, name)[0] for estimates in found]) for name in ("value", "low", "high")
        )
        return Estimates(list(self.calendar.names(days)), value, low, high, confidence, found[0].counts)

    def question(self, text: str | int, key_type: KeyType | None = None) -> Any:
        """Return what :meth:`curve` and :meth:`change` take, as the command line and the service write it."""
        return self.total().question(text, key_type)

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Answer what was asked by the total of all days."""
        found: Estimates = self.total().answer(asked, confidence=confidence, estimator=estimator, key_type=key_type)
        return found

    def plot(self, key: Any = None, *, window: int | None = None, together: bool = False) -> Figure:
        """Draw one question over time: running totals or, with ``window``, sums of so many days; or else the total."""
        if key is None:
            total: Figure = self.total().plot()
            return total
        found = self.curve(key, window=window, together=together)
        what = "total so far" if window is None else "each day" if window == 1 else f"the last {window} days"
        days = np.arange(self.days_published - len(found) + 1, self.days_published + 1, dtype=np.float64)
        title = self.title(self.total().question_words(key))
        return plots.curve(days, found.value, found.low, found.high, "day", what, title)

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the total."""
        drawn: Figure = self.total().picture(candidates, n)
        return drawn

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        published = self.published
        header = {
            "spec": self.spec.to_json(),
            "of": self.counts_kind,
            "receipt": receipt_to_json(self.receipt),
            "guarantee": stated_promise(self.guarantee),
            "published": published.day,
            "stream": published.name,
            **self.calendar.to_json(),
        }
        arrays: dict[str, files.Array] = {"published": np.array(published.tables, np.int64)}
        if published.names is not None:
            arrays["names"] = stored_keys(published.names)
        return files.Document(self.kind, False, header, arrays)

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file: its sensitivity is worked out anew, and must be paid for."""
        header = document.header
        kind, spec = stored_kind(header)
        names = None if kind.day_path is None else read_keys(document)
        calendar = Calendar.stored(header, spec.unit)
        day = whole_number("published", header["published"], low=1, high=calendar.horizon)
        receipt = stored_receipt(header, spec, calendar, names)
        law, name = stored_law(receipt), header["stream"]
        if not isinstance(name, str):
            raise not_of_days()
        found = any(table.shape is None for table in law.stacked)
        shape = (len(names or ()),) if found else law.shape
        tables = list(integer_array(document, "published", (law.design.published(day), *shape)))
        marks = np.array([] if found else [mark_of(table) for table in tables], np.uint64)
        published = Publications(name, law, day, tables, marks, names)
        series = cls(kind.name, spec, calendar, published, receipt)
        refuse_other_promise(header, series.guarantee)
        return series


def stored_law(receipt: Receipt) -> Published:
    """Return the only law of a stream's receipt."""
    (law,) = receipt.laws
    if not isinstance(law, Published):
        raise not_of_days()
    return law


def stored_receipt(header: dict[str, Any], spec: Any, calendar: Calendar, names: Sequence[Any] | None) -> Receipt:
    """Read the receipt of a stream; refuse one that is for other days or tables, or that does not pay for its law."""
    receipt = receipt_from_json(header["receipt"])
    law = stored_law(receipt)
    refuse_users_in(law.design, spec.unit)
    listed = None if any(table.shape is None for table in law.stacked) else names
    tables = tuple(daily_shares(spec, listed))
    stated = (law.horizon, (law.days, law.apart), law.stacked, type(law))
    known = (calendar.horizon, calendar.limits, tables, law_class(tables, law.design))
    if stated != known or receipt.caveat is not None:
        raise _unpaid()
    try:
        promise(spec, receipt)
    except ReleaseRefused:
        raise _unpaid() from None
    return receipt


def _unpaid() -> FileRefused:
    return FileRefused("the file's guarantee is not that of a stream with its noise.")


def refuse_users_in(design: Design, unit: Unit) -> None:
    """Refuse users in a state that may be seized."""
    if design.keeps_noise and unit.level == "user":
        raise InvalidInput(
            "a state that may be seized protects records: to hold users to their days it would have to know them, "
            "and a seizure would show who came."
        )


def stored_kind(header: dict[str, Any]) -> tuple[Kind, Any]:
    """Return the kind that a file counts each day, and its spec."""
    kind = KINDS.get(header["of"])
    if kind is None or not kind.daily:
        raise FileRefused("the file holds a stream of a kind that this version does not know; a newer one may.")
    spec = kind.spec.from_json(header["spec"])
    if spec.daily() != spec:
        raise FileRefused("the file's spec is not one of a stream.")
    return kind, spec
