"""A sketch of any linear kind that is published day after day, at one price for all days.

Were each day's total released afresh, a record of the first day would be in all of them, and a year would need noise
for 365 looks at it. Instead a design (:mod:`dpsketch.sketches.continual`) publishes one vector of integers a day under
noise that is correlated from day to day: a year's total has less than three times the noise of a single release, a day
one and a half times, where a binary tree had six and three.

A day is counted by an empty sketch of the kind, whose exact tables go to the stream in the evening
(:mod:`dpsketch.sketches.continual.stream`). A window of what was published is a release of the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.bounding import CountedUsers
from dpsketch.core.account import Prepaid
from dpsketch.core.drawn import receipt_to_json
from dpsketch.core.laws import Law
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput, SensitiveData
from dpsketch.laws.calibration import published
from dpsketch.laws.designs import Design
from dpsketch.laws.streams import Found, Published, Seizable, Vector
from dpsketch.numbers import whole_number
from dpsketch.privacy import Budget, Guarantee, PureCost
from dpsketch.results import Estimates
from dpsketch.sketches.continual.series import (
    Calendar,
    PrivateSeries,
    Visits,
    refuse_users_in,
    stored_kind,
    stored_law,
    stored_receipt,
)
from dpsketch.sketches.continual.stream import NamedStream, SeizableStream, Stream
from dpsketch.sketches.continual.windows import (
    DesignName,
    Objective,
    choose_design,
    daily_shares,
    law_class,
    scales_for,
)
from dpsketch.sketches.frames import read_columns
from dpsketch.sketches.kinds import KINDS, Kind
from dpsketch.sketches.partials import Partial
from dpsketch.sketches.sketch import Sketch
from dpsketch.sketches.specs import fingerprint_of, refuse_choice
from dpsketch.sketches.stored import StoredSketch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.ledger import Charge, Ledger


_STREAMS: dict[type[Law], type[Stream]] = {Published: Stream, Seizable: SeizableStream, Found: NamedStream}
# The day's own sketch lies in a file under names that begin so.
_TODAY = "today_"
# A day's counts in a file are no larger; an update adds at most 2**62.
_LARGEST = 2**62 - 1


class ContinualSketch(Partial):
    """A sketch that is published every day, at one price for all days.

    Parameters
    ----------
    sketch : CountSketch, Histogram, Table, RangeSketch, DensitySketch or HeavyHitters
        An empty one, which says what a day counts: its kind, shape and unit. Where the unit is a user, its bounds are
        for each day. A table states all its bounds, and has no quantiles.
    days : int or None
        Maximum number of published days; the noise grows with its logarithm. None for a stream without an end (a
        million days, to be exact), which needs δ > 0 or ρ.
    epsilon, delta, rho : float
        The guarantee for all publications together. It is fixed, and charged, at the start.
    keys : column of keys, optional
        Of a histogram: the public list of its keys. It must not come from the data. Without one, keys are found day by
        day: a name is published once its noisy total stands out, which needs δ > 0 and a stated ``key_type``, and
        memory for every key that ever came, on every day. Of a table: the public list of its groups, which it needs.
    objective : {"balanced", "totals", "windows"}
        Which answers should have the least noise: running totals, windows of a week, or a balance of totals, weeks and
        single days.
    user_days : int, optional
        Where the unit is a user: on how many days a user counts at most; records of further days are dropped. Without
        it users may come every day, and days are then published by themselves, as nothing is gained by correlation.
    days_apart : int
        Where the unit is a user: how many days after one that counts the next may be; records that come before are
        dropped. 1, the very next, by default; 7 for once a week.
    design : {"recurrence", "banded", "daily", "blocks", "tree", "pan-private"}, optional
        How noise is correlated, where it is not to be chosen by the objective, the days and the budget. Never chosen by
        itself: "pan-private", whose state may be seized once, at √2 times the noise of 32 bands (64 for totals).
    first_day : date or str, optional
        The date of the first day, as in "2026-11-15"; curves then name their days by date.
    ledger, dataset, part : Ledger or URL, str, str, optional
        Where to charge.

    Privacy
    -------
    (ε, δ)-differential privacy of everything published over all days together, for one record of any day, or for all
    that a user adds on the days that count; also if the records of a day are chosen by what was published before. Each
    publication carries fresh noise for the sensitivity that :mod:`dpsketch.laws.designs` proves, is drawn
    once, and whatever is asked is made of publications. With δ = 0 the design is blocks of days. What is counted today,
    the design's buffers and the days of users are exact, hence sensitive; they leave by ``to_sensitive_bytes`` only.
    **Restart from the newest bytes only, written before the day's release is shown**
    (:class:`~dpsketch.sketches.continual.folder.StreamFolder` does so): a day published twice, with noise drawn twice,
    is not covered. A record that the kind refuses leaves the day unpublished, which everyone sees: clean weights and
    keys before. A value outside the domain of a RangeSketch counts as the nearest end, whatever its ``outside`` says.

    With ``design="pan-private"`` the state is under noise as well (:mod:`dpsketch.laws.designs` has
    the proof): records are added to it as they come, and no count of them, skipped ones included, is kept. Its file is
    such a state too. Seized together, a file and the memory of a process that went on from it show what came between.

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
        sketch: Sketch[Any, Any],
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
        kind = KINDS.get(getattr(sketch, "kind", ""))
        if kind is None or not kind.daily or not isinstance(sketch, Sketch):
            daily = ", ".join(kind.sensitive.__name__ for kind in KINDS.values() if kind.daily)
            raise InvalidInput(f"what is published day after day is one of {daily}: give an empty one.")
        if sketch._begun:
            raise InvalidInput("this sketch holds records already: give an empty one, which says what a day counts.")
        budget, account = Budget(epsilon, delta, rho), self._account(ledger, dataset, part)
        today = _first_day(kind, sketch.spec, keys)
        if isinstance(sketch, StoredSketch) and isinstance(today, StoredSketch):
            today.bound_as(sketch)
        refuse_choice(today.spec.unit)
        spec, unit = today.spec, today.spec.unit
        calendar = Calendar.of(unit, days, user_days, days_apart, first_day)
        shares = daily_shares(spec, _names(kind, today))
        tables, scales = tuple(shares), scales_for(shares, pure=isinstance(budget.cost, PureCost))
        vector = Vector(tables, scales, unit.neighbours, *calendar.limits)
        chosen = choose_design(budget, vector.contribution, calendar.days, objective=objective, name=design)
        refuse_users_in(chosen, unit)
        law = published(law_class(tables, chosen), budget, vector, chosen, calendar.horizon)
        lasts = "any number of" if calendar.days is None else calendar.days
        note = f"{kind.name} of up to {lasts} days {fingerprint_of(spec)}"
        permit = Permit.pay(spec, (law,), budget, account, note=note)
        self._prepaid = account.prepaid(permit.charge)
        self._start(kind, today, calendar, permit)
        self._stream.begin()

    def _start(self, kind: Kind, today: Any, calendar: Calendar, permit: Permit) -> None:
        self._counts, self._spec, self._calendar = kind, today.spec, calendar
        self._stream = _STREAMS[type(permit.laws[0])](permit, _names(kind, today))
        self._today = today
        self._visits = Visits(*calendar.limits)
        self._skipped = 0  # on days before today
        self._dropped = 0
        self._answers: PrivateSeries | None = None  # of all days so far

    @property
    def spec(self) -> Any:
        """The public spec of what a day counts."""
        return self._spec

    @property
    def counts_kind(self) -> str:
        """The name of the kind that a day counts."""
        return self._counts.name

    def counts_keys(self, keys: Any) -> bool:
        """Say whether this is the stream's public list of keys, whatever its order."""
        return self._counts.day_path is not None and bool(self._today.lists(keys))

    @property
    def design(self) -> Design:
        """How noise is correlated from day to day; public."""
        return self._stream.design

    @property
    def guarantee(self) -> Guarantee:
        """What all publications together promise."""
        return self._stream.permit.promised()

    @property
    def days(self) -> int | None:
        """How many days may be published; None without an end."""
        return self._calendar.days

    @property
    def user_days(self) -> int | None:
        """On how many days a user counts at most; None where the unit is a record."""
        return None if self.spec.unit.level == "record" else self._calendar.limits[0]

    @property
    def days_apart(self) -> int:
        """How many days after one that counts a user's next may be."""
        return self._calendar.limits[1]

    @property
    def days_published(self) -> int:
        """How many days have been published."""
        return self._stream.day

    @property
    def first_day(self) -> date | None:
        """The date of the first day, where it was stated."""
        return self._calendar.first_day

    def number_of(self, day: date | str) -> int:
        """Return the number of a date, the first day being 1."""
        return self._calendar.number_of(day)

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
        """Bytes of all tables at the end: today's, the design's buffers, and every publication.

        Where keys are found, of those that have come by now. That number is sensitive.
        """
        design, horizon = self._stream.design, self._stream.horizon
        return 8 * self._stream.cells * (1 + design.buffers + design.published(horizon))

    def __repr__(self) -> str:
        days = "any" if self.days is None else self.days
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

    def _add(
        self,
        keys: Any = None,
        *,
        users: Any = None,
        weights: Any = None,
        counts: Any = None,
        key: str | None = None,
        points: Any = None,
        user: str | None = None,
        weight: str | None = None,
        count: str | None = None,
    ) -> None:
        """Add records of today, as part of a change."""
        if self._counts.reads == "groups":
            named = (users, weights, counts, key, points, user, weight, count)
            if any(each is not None for each in named):
                raise InvalidInput("a stream of tables takes a frame with the columns that its table names.")
            for groups, given in self._today._batches(keys):
                self._take(groups, **given)
            return
        if isinstance(key, list | tuple):
            raise InvalidInput(
                "key= names one column; a stream takes no keys of several. Join them into one column first."
            )
        if keys is None and self._today.role == "points":
            keys, points = points, None
        names = {"key": key, "points": points, "user": user, "weight": weight, "count": count}
        given = {"users": users, "weights": weights, "counts": counts}
        kind = {"kind": type(self._today).__name__, "takes": self._today.takes, "role": self._today.role}
        for columns in read_columns(keys, names, given, **kind):
            told = {"weights": columns.weights, "counts": columns.counts}
            self._take(columns.records, columns.users, **{n: each for n, each in told.items() if each is not None})
            if not self.design.keeps_noise:  # a state that may be seized does not count skipped records
                self._skipped += columns.skipped

    def _take(self, records: Any, users: Any, **given: Any) -> None:
        """Add records to today's sketch. Users are remembered first; what is refused leaves all as it was."""
        self._stream.refuse_after_the_end()
        visitors: list[bytes] = []
        dropped = 0
        if self.spec.unit.level == "user" and users is not None:
            users, visitors, dropped = self._visits.allowed(users, self.days_published + 1)
        day = self.days_published + 1
        self._change_today(lambda today: today.update_in_turn([(records, {"users": users, **given})]), visitors, day)
        self._dropped += dropped
        self._skipped -= dropped  # today's sketch took them for records of nobody

    def _change_today(self, change: Callable[[Any], None], visitors: list[bytes], day: int) -> None:
        at_once = self._stream if isinstance(self._stream, SeizableStream) else None
        today = self._today if at_once is None else self._today.empty_like()
        if at_once is not None:
            today._partials = self._today._partials  # what was merged before is refused
        today._prepaid = self._prepaid  # a partial that it absorbs is registered as of the stream's part
        unchanged, begun = self._changed_by is None, today._changes
        self._begin_change()
        before = self._visits.note(visitors, day)
        try:
            change(today)
        except Exception:
            if unchanged and (at_once is not None or today._changes == begun):  # refused before anything was counted
                self._visits.forget(before)
                self._undo_change()
            raise
        if at_once is not None:
            self._today._partials = today._partials
            at_once.take(today._exact())

    def empty_day(self) -> Any:
        """Return an empty sketch of the kind that a day counts, to be filled elsewhere and merged into today."""
        return self._today.empty_like()

    def merge_today(self, part: Any, *, ledger: Ledger | str | None = None, fresh: bool = False) -> None:
        """Add records of today that were counted elsewhere, in a sketch of :meth:`empty_day`; each once.

        Only where the unit is a record: whose days are counted must be known where they are counted. Where the state
        may be seized, it keeps the random ids of parts as well, so as to refuse them if they came again; whoever seizes
        it can count them. The part ends with this.

        Parameters
        ----------
        part : sketch of :meth:`empty_day`
            The records. Where the stream was charged as a part of a dataset, the ledger records this sketch as of that
            part, and refuses one that it knows as of another.
        ledger : Ledger or URL, optional
            The ledger that was charged. Needed where the stream was charged as a part and read from a file.
        fresh : bool
            State that the part was filled for this call, so that nobody can bring it again. A state that may be seized
            then does not keep its ids, and does not grow with the number of parts.
        """
        self._use_ledger(ledger)
        if self.spec.unit.level == "user":
            raise InvalidInput("where users are protected, records of a day come by update, which knows their days.")
        self._stream.refuse_after_the_end()
        known = self._today._partials
        self._change_today(lambda today: today.merge(part), [], self.days_published + 1)
        if isinstance(self._stream, SeizableStream):
            if fresh:
                self._today._partials = known
            part._begin_change()  # never lifted: it refuses everything from here on

    merge = merge_today

    def snapshot(self) -> npt.NDArray[np.int64]:
        """Return a copy of a state that may be seized: what the one who seizes it has. Others may see it once.

        It has one table for each of the coming days that a record of today enters; of a single day, the table itself.
        """
        if not self.design.keeps_noise:
            raise SensitiveData("the state of this stream is exact: only one with design='pan-private' may be seized.")
        self._stream.refuse_after_the_end()
        state = self._stream.state.copy()
        return state[0] if len(state) == 1 else state

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

    publish = publish_day

    def _end_day(self) -> Any:
        self._stream.end_day(self._today._exact())
        done, self._today = self._today, self._today.empty_like()
        self._skipped += done.skipped_nulls
        self._today._counted = CountedUsers(user_type=done._counted.user_type)
        if len(done._partials) > 1:  # what was merged on one day is not merged on another
            self._today._partials |= done._partials
        self._answers = None
        return self._series().total()

    def series(self) -> PrivateSeries:
        """Return all that was published so far as one release, for a file, a page or a service. Costs nothing."""
        return self._series()

    def _series(self) -> PrivateSeries:  # also within a change
        if self._answers is None:
            receipt = self._stream.permit.receipt()
            self._answers = PrivateSeries(
                self.counts_kind, self._spec, self._calendar, self._stream.published(), receipt
            )
        return self._answers

    def total(self) -> Any:
        """Return the release of all days published so far. Costs nothing: it is made of what is public."""
        return self._series().total()

    def between(self, first: int, last: int) -> Any:
        """Return the release of the days ``first`` to ``last``, both included and counted from 1. Costs nothing.

        It is a release of the kind that is counted, and is asked as such.
        """
        return self._series().between(first, last)

    def change(
        self, key: Any, later: tuple[int, int], earlier: tuple[int, int], *, confidence: float = 0.95
    ) -> Estimates:
        """Return how far an answer changed between two windows of days: see :meth:`PrivateSeries.change`."""
        return self._series().change(key, later, earlier, confidence=confidence)

    def curve(
        self, key: Any, *, window: int | None = None, confidence: float = 0.95, together: bool = False
    ) -> Estimates:
        """Return the estimates of one question over time, one for each day: see :meth:`PrivateSeries.curve`."""
        if self.days_published == 0:
            return Estimates([], np.zeros(0), np.zeros(0), np.zeros(0), confidence, self.guarantee.counts)
        return self._series().curve(key, window=window, confidence=confidence, together=together)

    def plot(self, key: Any, *, window: int | None = None, together: bool = False) -> Figure:
        """Draw one question over time: running totals or, with ``window``, sums of so many days."""
        return self._series().plot(key, window=window, together=together)

    def _to_document(self) -> files.Document:
        inner = self._today._completed(self._today._to_document())
        header = {
            "spec": self._spec.to_json(),
            "of": self.counts_kind,
            "receipt": receipt_to_json(self._stream.permit.receipt()),
            "published": self._stream.day,
            "skipped": self._skipped,
            "dropped": self._dropped,
            "today": inner.header,
            **self._calendar.to_json(),
            **({} if self._prepaid is None else {"part": self._prepaid.part}),
        }
        arrays = {_TODAY + name: array for name, array in inner.arrays.items()} | self._stream.arrays()
        if self._spec.unit.level == "user":
            arrays |= self._visits.arrays()
        return files.Document(self.kind, True, header, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        header = document.header
        kind, spec = stored_kind(header)
        arrays = {
            name.removeprefix(_TODAY): array for name, array in document.arrays.items() if name.startswith(_TODAY)
        }
        today = kind.day.from_document(files.Document(kind.name, True, header["today"], arrays))
        if today.spec != spec:
            raise FileRefused("the file's records of today are of another sketch.")
        # With what may still come today they would pass 64 bits, and come out negative.
        if any(np.any((table > _LARGEST) | (table < -_LARGEST)) for table in today._exact().values()):
            raise FileRefused("the file's records of today are more than a day has room for.")
        calendar = Calendar.stored(header, spec.unit)
        published = whole_number("published", header["published"], low=0, high=calendar.horizon)
        receipt = stored_receipt(header, spec, calendar, _names(kind, today))
        sketch = cls.__new__(cls)
        sketch._start(kind, today, calendar, Permit.restored(spec, receipt, stored_law(receipt).drawn_by(published)))
        if (part := header.get("part")) is not None:
            if receipt.charge is None or not isinstance(part, str):
                raise FileRefused("the file's part of a dataset is not one that dpsketch writes.")
            sketch._prepaid = Prepaid(part, receipt.charge)  # its ledger has to be named again
        sketch._stream.restore(document, published)
        sketch._skipped, sketch._dropped = int(header["skipped"]), int(header["dropped"])
        if spec.unit.level == "user":
            sketch._visits.restore(document)
        return sketch


def _first_day(kind: Kind, spec: Any, keys: Any) -> Any:
    """Return the empty sketch of a first day; ``keys`` is the public list of a histogram or a table."""
    if kind.day_path is not None:
        return kind.day.of_keys(spec, keys)
    if keys is not None:
        raise InvalidInput("keys= is the public list of a histogram or a table: leave it out.")
    return kind.day.from_spec(spec.daily())


def _names(kind: Kind, today: Any) -> list[Any] | None:
    """Return the public list of keys that a day's sketch counts, if it has one."""
    listed: list[Any] | None = None if kind.day_path is None else today.listed
    return listed
