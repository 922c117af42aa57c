"""A sketch that is published day after day, at one price for all days, whatever kind it is.

Were each day's total released afresh, a record of the first day would be in all of them, and a year would need noise
for 365 looks at it. Instead a design (:mod:`dpsketch.sketches.continual`) publishes one vector of integers a day under
noise that is correlated from day to day: a year's total has less than three times the noise of a single release, a day
one and a half times, where a binary tree had six and three.

What is in the vector, and what a window of it answers, an adapter of the kind says
(:mod:`dpsketch.sketches.continual.adapters`). Everything else is the same for all kinds, and is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch import files, plots
from dpsketch.bounding import CountedUsers
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.noise import noise_from_json
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Budget, Guarantee, PureCost, Unit
from dpsketch.results import Estimates
from dpsketch.sketches.account import Account
from dpsketch.sketches.base import Accumulator
from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.choice import DesignName, Objective, choose_design, design_from_json
from dpsketch.sketches.continual.designs import LONGEST, Design
from dpsketch.sketches.continual.portions import Layout
from dpsketch.sketches.continual.stream import Stream, checked_days
from dpsketch.sketches.continual.visits import Visits
from dpsketch.sketches.documents import read_charge, read_guarantee, release_header
from dpsketch.sketches.frames import takes_frames
from dpsketch.sketches.kinds import KINDS
from dpsketch.sketches.partials import Partial
from dpsketch.sketches.permit import Calibration, Permit
from dpsketch.sketches.specs import fingerprint_of, refuse_choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.ledger import Charge, Ledger

__all__ = ["ContinualSketch"]

# A curve's intervals that hold for all days at once are widened as those of a top are.
_TAIL_MARGIN = 4
# The day's own sketch lies in a file under names that begin so.
_TODAY = "today_"
# A day's counts in a file are no larger; an update adds at most 2**62.
_LARGEST = 2**62 - 1


class ContinualSketch(Partial):
    """A sketch that is published every day, at one price for all days.

    Parameters
    ----------
    sketch : CountSketch, Histogram, RangeSketch, DensitySketch or HeavyHitters
        An empty one, which says what a day counts: its kind, shape and unit. Where the unit is a user, its bounds are
        for each day.
    days : int or None
        At most so many days will be published; the noise grows with the logarithm of it. None for a stream without an
        end (a million days, to be exact), which needs δ > 0 or ρ.
    epsilon, delta, rho : float
        The guarantee for all publications together. It is fixed, and charged, at the start.
    keys : column of keys, optional
        Of a histogram: the public list of its keys. It must not come from the data. Without one, keys are found day by
        day: a name is published once its noisy total stands out, which needs δ > 0 and a stated ``key_type``, and
        memory for every key that ever came, on every day.
    objective : {"balanced", "totals", "windows"}
        Which answers should have the least noise: running totals, windows of a week, or a balance of totals, weeks and
        single days.
    user_days : int, optional
        Where the unit is a user: on how many days a user counts at most; records of further days are dropped. Without
        it users may come every day, and days are then published by themselves, as nothing is gained by correlation.
    days_apart : int
        Where the unit is a user: how many days after one that counts the next may be; records that come before are
        dropped. 1, the very next, by default; 7 for once a week.
    design : {"recurrence", "banded", "daily", "blocks", "tree"}, optional
        How noise is correlated, where it is not to be chosen by the objective, the days and the budget.
    first_day : date or str, optional
        The date of the first day, as in "2026-11-15"; curves then name their days by date.
    ledger, dataset, part : Ledger or URL, str, str, optional
        Where to charge.

    Privacy
    -------
    (ε, δ)-differential privacy of everything published over all days together, for one record of any day, or for all
    that a user adds on the days that count; also if the records of a day are chosen by what was published before. Each
    publication carries fresh noise for the sensitivity that :mod:`dpsketch.sketches.continual.designs` proves, is drawn
    once, and whatever is asked is made of publications. With δ = 0 the design is blocks of days. What is counted today,
    the design's buffers and the days of users are exact, hence sensitive; they leave by ``to_sensitive_bytes`` only.
    **Restart from the newest bytes only, written before the day's release is shown**
    (:class:`~dpsketch.sketches.continual.folder.StreamFolder` does so): a day published twice, with noise drawn twice,
    is not covered. A record that the kind refuses, as a value outside the domain of a RangeSketch, leaves the day
    unpublished, which everyone sees: say ``outside="clamp"``, and clean weights and keys before.

    Accuracy
    --------
    In units of the noise of one release, root mean square over all days, by default: 30 days 1.98 for totals, 2.02 for
    weeks, 1.35 for single days; 365 days 2.83, 2.33 and 1.50; 10,000 days 3.99, 2.58 and 1.61.

    A day's cell is held to what 64 bits have room for. A recurrence for at most 1,000 days holds five hundred million
    of the heaviest records in it, a longer one, or one without an end, eleven million; of weights on a grid of more
    than a hundred thousand steps fewer, and one without room for a million is not chosen. What a day has beyond that in
    one cell is not counted, silently, as a word of it would tell of the data; intervals do not cover it.
    ``design="daily"`` has room.

    Examples
    --------
    >>> import dpsketch as dps
    >>> delays = dps.RangeSketch(bits=10, unit=dps.per_record())
    >>> sketch = dps.ContinualSketch(delays, days=365, epsilon=1.0, delta=1e-6)
    >>> monday = sketch.day(list(range(100)) * 50)
    >>> tuesday = sketch.day(list(range(200)) * 50)
    >>> 90 <= sketch.between(2, 2).quantile(0.5).value <= 110
    True
    >>> len(sketch.curve(0.5, window=1))
    2
    """

    kind: ClassVar[str] = "continual"

    def __init__(
        self,
        sketch: Accumulator[Any],
        *,
        days: int | None,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        keys: Any = None,
        objective: Objective = "balanced",
        user_days: int | None = None,
        days_apart: int = 1,
        design: DesignName | None = None,
        first_day: date | str | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> None:
        row = KINDS.get(getattr(sketch, "kind", ""))
        if row is None or row.daily is None or not isinstance(sketch, Accumulator):
            daily = ", ".join(kind.sensitive.__name__ for kind in KINDS.values() if kind.daily is not None)
            raise InvalidInput(f"what is published day after day is one of {daily}: give an empty one.")
        if sketch._begun:
            raise InvalidInput("this sketch holds records already: give an empty one, which says what a day counts.")
        refuse_choice(sketch.spec.unit)
        adapter, account = row.daily.of(sketch, keys), self._account(ledger, dataset, part)
        limits, terms = (days, user_days, days_apart), (objective, design, first_day)
        self._open(adapter, Budget(epsilon, delta, rho), limits, terms, account)

    def _open(
        self,
        adapter: Adapter,
        budget: Budget,
        limits: tuple[int | None, int | None, int],
        terms: tuple[Objective, DesignName | None, date | str | None],
        account: Account,
    ) -> None:
        """Charge for all days, and start."""
        objective, name, first_day = terms
        unit, days, begun = adapter.spec.unit, checked_days(limits[0]), _checked_date(first_day)
        held = _checked_limits(unit, days, *limits[1:])
        layout = adapter.layout(pure=isinstance(budget.cost, PureCost))
        contribution = layout.contribution(unit, *held)
        chosen = choose_design(budget, contribution, days, objective=objective, name=name)
        stream = adapter.begin(
            budget,
            chosen,
            contribution,
            LONGEST if days is None else days,
            layout.shape,
            unit=unit,
            account=account,
            note=f"{adapter.kind} of up to {'any number of' if days is None else days} days "
            f"{fingerprint_of(adapter.spec)}",
        )
        self._start(adapter, layout, days, held, stream, begun)

    def _start(
        self,
        adapter: Adapter,
        layout: Layout,
        days: int | None,
        limits: tuple[int, int],
        stream: Stream,
        first_day: date | None,
    ) -> None:
        self._adapter = adapter
        self._layout = layout
        self._days = days
        self._limits = limits
        self._stream = stream
        self._first_day = first_day
        self._today: Any = adapter.start()
        self._visits = Visits(*limits)
        self._skipped = 0  # on days before today
        self._dropped = 0
        self._asked: dict[tuple[int, int], Any] = {}  # what an answer has found out about itself

    @property
    def spec(self) -> Any:
        """The public spec of what a day counts."""
        return self._adapter.spec

    @property
    def counts_kind(self) -> str:
        """The name of the kind that a day counts."""
        return self._adapter.kind

    def counts_keys(self, keys: Any) -> bool:
        """Say whether this is the stream's public list of keys, whatever its order."""
        return self._adapter.counts_keys(keys)

    @property
    def design(self) -> Design:
        """How noise is correlated from day to day; public."""
        return self._stream.design

    @property
    def guarantee(self) -> Guarantee:
        """What all publications together promise."""
        caveat = f"It covers all publications of up to {self._stream.horizon} days."
        if self.spec.unit.level == "user":
            counted, apart = self._limits
            often = f"at most {counted} days" + (f", at least {apart} days apart" if apart > 1 else "")
            caveat += f" A user counts on {often}, with at most that on each; records of other days are dropped."
        permit = self._stream.permit
        return permit.calibration.guarantee(self.spec.unit, caveat=caveat, for_tests=permit.for_tests)

    @property
    def days(self) -> int | None:
        """How many days may be published; None without an end."""
        return self._days

    @property
    def user_days(self) -> int | None:
        """On how many days a user counts at most; None where the unit is a record."""
        return None if self.spec.unit.level == "record" else self._limits[0]

    @property
    def days_apart(self) -> int:
        """How many days after one that counts a user's next may be."""
        return self._limits[1]

    @property
    def days_published(self) -> int:
        """How many days have been published."""
        return self._stream.day

    @property
    def first_day(self) -> date | None:
        """The date of the first day, where it was stated."""
        return self._first_day

    def number_of(self, day: date | str) -> int:
        """Return the number of a date, the first day being 1."""
        asked = _checked_date(day)
        if self._first_day is None or asked is None:
            raise InvalidInput("this stream counts its days from 1: it was begun without first_day=.")
        return (asked - self._first_day).days + 1

    @property
    def charge(self) -> Charge | None:
        """The ledger's row, where a ledger was charged."""
        return self._stream.permit.charge

    @property
    def published(self) -> npt.NDArray[np.int64]:
        """All that was published, as it was: one integer table after the other. Public; answers are made of it."""
        self._refuse_broken()
        return self._stream.tables

    @property
    def publication(self) -> str:
        """A digest of what the last day published, for a ledger to know it by. Public."""
        self._refuse_broken()
        return self._stream.digest

    def publication_of(self, day: int) -> str:
        """Return a digest of what a day published, for a ledger to know it by. Public."""
        return self._stream.digest_of(whole_number("day", day, low=1, high=max(1, self.days_published)))

    @property
    def skipped_nulls(self) -> int:
        """How many records had a null key or user and were skipped. Sensitive: for the data holder's eyes."""
        return self._skipped + int(self._today.skipped_nulls)

    @property
    def dropped_records(self) -> int:
        """How many records were dropped because their user had counted on other days. Sensitive."""
        return self._dropped

    @property
    def memory(self) -> int:
        """Bytes of all tables at the end: today's, the design's buffers, and every publication."""
        design, horizon = self._stream.design, self._stream.horizon
        cells = sum(each.size for each in self._layout.portions)
        return 8 * cells * (1 + design.buffers + design.published(horizon))

    def __repr__(self) -> str:
        days = "any" if self._days is None else self._days
        return (
            f"<{type(self).__name__} of {self.counts_kind}, {self.days_published} of {days} days, "
            f"spec {fingerprint_of(self.spec)}, sensitive>"
        )

    def update(self, *records: Any, **columns: Any) -> None:
        """Add records of today, as the kind's own ``update`` does; late ones count on the day they arrive.

        Where the unit is a user, all records of a user's day come in one update, and those of a user who may not count
        today are dropped.
        """
        self._add(*records, **columns)

    def day(self, *records: Any, **columns: Any) -> Any:
        """Add a whole day's records and publish it: :meth:`update` and :meth:`publish_day` as one change."""
        self._add(*records, **columns)
        self._begin_change()
        return self._end_day()

    def _add(self, *records: Any, **columns: Any) -> None:
        add: Any = self._add_points if KINDS[self.counts_kind].reads == "points" else self._add_keys
        add(*records, **columns)

    @takes_frames
    def _add_keys(self, keys: Any, *, users: Any = None, weights: Any = None, counts: Any = None) -> None:
        self._take(keys, users, weights=weights, counts=counts)

    @takes_frames
    def _add_points(self, points: Any, *, users: Any = None) -> None:
        self._take(points, users)

    def _take(self, records: Any, users: Any, **given: Any) -> None:
        """Add records to today's sketch. Users are remembered first; what is refused leaves all as it was."""
        self._stream.refuse_after_the_end()
        visitors: list[bytes] = []
        records, dropped = self._adapter.records(records), 0
        if self.spec.unit.level == "user" and users is not None:
            users, visitors, dropped = self._visits.allowed(users, self.days_published + 1)
        day = self.days_published + 1
        self._change_today(lambda today: today.update(records, users=users, **given), visitors, day)
        self._dropped += dropped
        self._skipped -= dropped  # today's sketch took them for records of nobody

    def _change_today(self, change: Callable[[Any], None], visitors: list[bytes], day: int) -> None:
        unchanged, begun = self._changed_by is None, self._today._changes
        self._begin_change()
        before = self._visits.note(visitors, day)
        try:
            change(self._today)
        except Exception:
            if unchanged and self._today._changes == begun:  # refused before anything was counted
                self._visits.forget(before)
                self._undo_change()
            raise

    def empty_day(self) -> Any:
        """Return an empty sketch of the kind that a day counts, to be filled elsewhere and merged into today."""
        return self._adapter.start()

    def merge_today(self, part: Any) -> None:
        """Add records of today that were counted elsewhere, in a sketch of :meth:`empty_day`; each once.

        Only where the unit is a record: whose days are counted must be known where they are counted.
        """
        if self.spec.unit.level == "user":
            raise InvalidInput("where users are protected, records of a day come by update, which knows their days.")
        self._stream.refuse_after_the_end()
        self._change_today(lambda today: today.merge(part), [], self.days_published + 1)

    def publish_day(self, *, state: str | PathLike[str] | None = None) -> Any:
        """End the day: publish what the design makes of it, and return the release of the total so far.

        Interrupted, the sketch refuses to go on: nothing is drawn twice, and no day counted twice.

        Parameters
        ----------
        state : path, optional
            Where the new state is written, as :meth:`save_sensitive` does, before anything of the day can be seen.
        """
        self._stream.refuse_after_the_end()
        self._begin_change()
        release = self._end_day()
        if state is not None:
            files.write(state, self._completed(self._to_document()))
        return release

    def _end_day(self) -> Any:
        self._stream.end_day(self._layout.joined(self._adapter.counted(self._today)))
        done, self._today = self._today, self._adapter.start()
        self._skipped += done.skipped_nulls
        self._today._counted = CountedUsers(user_type=done._counted.user_type)
        if len(done._partials) > 1:  # what was merged on one day is not merged on another
            self._today._partials |= done._partials
        self._carry(done)
        self._asked.clear()  # names that were found today have answers for days before
        return self._between(1, self.days_published)

    def _carry(self, done: Any) -> None:
        """Take over into a new day what a kind keeps of the one before."""

    def total(self) -> Any:
        """Return the release of all days published so far. Costs nothing: it is made of what is public."""
        return self.between(1, max(1, self.days_published))

    def between(self, first: int, last: int) -> Any:
        """Return the release of the days ``first`` to ``last``, both included and counted from 1. Costs nothing.

        It is a release of the kind that is counted, and is asked as such.
        """
        return self._between(first, last)

    def _between(self, first: int, last: int) -> Any:
        vector, stretch = self._stream.answer(first, last)
        return self._adapter.release(self._layout.window(vector, stretch, self.guarantee, self.charge))

    def change(
        self, key: Any, later: tuple[int, int], earlier: tuple[int, int], *, confidence: float = 0.95
    ) -> Estimates:
        """Return how far an answer changed between two windows of days. Costs nothing.

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
        """
        confidence = probability("confidence", confidence)
        (new, late), (old, early) = self._stream.answer(*later), self._stream.answer(*earlier)
        stretch = late.plus(early, -1)
        window = self._layout.window(new - old, stretch, self.guarantee, self.charge, signed=True)
        releases = (self._adapter.release(window), self._between(*later), self._between(*earlier))
        return self._adapter.change(*releases, key, confidence)

    def curve(
        self, key: Any, *, window: int | None = None, confidence: float = 0.95, together: bool = False
    ) -> Estimates:
        """Return the estimates of one question over time, one for each day. Costs nothing.

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
        first = 1 if window is None else whole_number("window", window, low=1, high=max(1, self.days_published))
        days = range(first, self.days_published + 1)
        confidence = probability("confidence", confidence)
        each = 1 - (1 - confidence) / (_TAIL_MARGIN * len(days)) if together and days else confidence
        found = [
            self._adapter.read(self._answered(1 if window is None else day - window + 1, day), key, each)
            for day in days
        ]
        value, low, high = (
            np.array([getattr(estimates, name)[0] for estimates in found]) for name in ("value", "low", "high")
        )
        counts = found[0].counts if found else self.spec.unit.counts
        return Estimates(list(self._names(days)), value, low, high, confidence, counts)

    def _answered(self, first: int, last: int) -> Any:
        if (first, last) not in self._asked:
            self._asked[first, last] = self._between(first, last)
        return self._asked[first, last]

    def _names(self, days: range) -> Iterator[Any]:
        for day in days:
            yield day if self._first_day is None else (self._first_day + timedelta(day - 1)).isoformat()

    def plot(self, key: Any, *, window: int | None = None, together: bool = False) -> Figure:
        """Draw one question over time: running totals or, with ``window``, sums of so many days."""
        found = self.curve(key, window=window, together=together)
        what = "total so far" if window is None else "each day" if window == 1 else f"the last {window} days"
        words = f"ε = {self.guarantee.epsilon:g}, δ = {self.guarantee.delta:g}"
        days = np.arange(self.days_published - len(found) + 1, self.days_published + 1, dtype=np.float64)
        title = f"{self._adapter.words(key)}, {words}"
        return plots.curve(days, found.value, found.low, found.high, "day", what, title)

    def _to_document(self) -> files.Document:
        stream = self._stream
        today, arrays = self._today_document()
        header = release_header(
            self.spec.to_json(),
            self.guarantee,
            stream.permit.charge,
            days=self._days,
            published=stream.day,
            noise=stream.law.to_json(),
            **today,
            skipped=self._skipped + self._today.skipped_nulls,
        )
        header["design"] = stream.design.to_json()
        header["first_day"] = None if self._first_day is None else self._first_day.isoformat()
        if self.spec.unit.level == "user":
            header |= {"limits": list(self._limits), "dropped": self._dropped}
            arrays |= self._visits.arrays()
        return files.Document(self.kind, True, header, {**arrays, **stream.arrays()})

    def _today_document(self) -> tuple[dict[str, Any], dict[str, files.Array]]:
        """Return what a file has of today's sketch, and of what it is one: entries of the header, and arrays."""
        inner = self._today._completed(self._today._to_document())
        header = {"of": self.counts_kind, "options": self._adapter.options(), "scales": list(self._layout.scales)}
        return {**header, "today": inner.header}, {_TODAY + name: array for name, array in inner.arrays.items()}

    @classmethod
    def _stored_adapter(cls, document: files.Document) -> tuple[Adapter, Layout]:
        """Return what a file counts each day."""
        header = document.header
        row = KINDS.get(header["of"])
        if row is None or row.daily is None:
            raise FileRefused("the file holds a stream of a kind that this version does not know; a newer one may.")
        adapter = row.daily.stored(header["spec"], header["options"])
        return adapter, adapter.stored_layout(header["scales"])

    def _read_today(self, document: files.Document) -> None:
        """Take up today's sketch from a file."""
        arrays = {
            name.removeprefix(_TODAY): array for name, array in document.arrays.items() if name.startswith(_TODAY)
        }
        inner = files.Document(self._today.kind, True, document.header["today"], arrays)
        today = type(self._today).from_document(inner)
        if today.spec != self._today.spec:
            raise FileRefused("the file's records of today are of another sketch.")
        self._refuse_large(today)
        self._today = today
        self._skipped -= today.skipped_nulls

    def _refuse_large(self, today: Any) -> None:
        """Refuse counts of a file that would pass 64 bits with what may still come today, and come out negative."""
        counted = self._adapter.counted(today).values()
        if any(np.any((table > _LARGEST) | (table < -_LARGEST)) for table in counted):
            raise FileRefused("the file's records of today are more than a day has room for.")

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        header = document.header
        days = checked_days(header["days"])
        horizon = LONGEST if days is None else days
        published = whole_number("published", header["published"], low=0, high=horizon)
        adapter, layout = cls._stored_adapter(document)
        design, unit = cls._stored_design(document, horizon), adapter.spec.unit
        limits = (1, 1)
        if unit.level == "user":
            stored = header.get("limits")
            if not isinstance(stored, list) or len(stored) != 2 or stored[0] is None:
                raise FileRefused("the file's limits on the days of users are not those that dpsketch writes.")
            limits = _checked_limits(unit, days, *stored)
        promise, law = read_guarantee(document), noise_from_json(header["noise"])
        charge, seeded, contribution = read_charge(document), not promise.holds, layout.contribution(unit, *limits)

        def permit_of(found: Calibration, drawn: list[tuple[str, Any]]) -> Permit:
            return Permit(found, unit, charge, drawn=drawn, for_tests=seeded)

        stream = adapter.resume(promise, law, design, contribution, horizon, published, permit_of, layout.shape)
        sketch = cls.__new__(cls)
        sketch._start(adapter, layout, days, limits, stream, _checked_date(header.get("first_day")))
        sketch._skipped = int(header["skipped"])
        sketch._read_today(document)
        sketch._read_stream(document, published)
        if unit.level == "user":
            sketch._dropped = int(header["dropped"])
            sketch._visits.restore(document)
        return sketch

    @classmethod
    def _stored_design(cls, document: files.Document, horizon: int) -> Design:
        return design_from_json(document.header["design"])

    def _read_stream(self, document: files.Document, published: int) -> None:
        self._stream.restore(document, published)


def _checked_date(day: date | str | None) -> date | None:
    if isinstance(day, datetime):
        return day.date()
    if day is None or isinstance(day, date):
        return day
    try:
        return date.fromisoformat(day)
    except (TypeError, ValueError):
        raise InvalidInput("a day is a date, as in 2026-11-15.") from None


def _checked_limits(unit: Unit, days: int | None, counted: int | None, apart: int) -> tuple[int, int]:
    """Return on how many days a unit counts, and how far apart; refuse what goes with the other unit."""
    apart = whole_number("days_apart", apart, low=1, high=LONGEST)
    if unit.level == "record":
        if counted is not None or apart != 1:
            raise InvalidInput(
                "user_days= and days_apart= go with unit=dps.per_user(max_keys=…): a record has one day."
            )
        return 1, 1
    if counted is not None:
        return whole_number("user_days", counted, low=1, high=LONGEST), apart
    if days is None:
        raise InvalidInput("without an end a user's days must be bounded: say user_days= as well, or days=.")
    return -(-days // apart), apart
