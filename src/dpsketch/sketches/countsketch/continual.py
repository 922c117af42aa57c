"""Counts published day after day, at one price for all days.

Were each day's total released afresh, a record of the first day would be in all of them, and a year would need noise
for 365 looks at it. Instead a design (:mod:`dpsketch.sketches.continual`) publishes one table a day under noise that is
correlated from day to day: a year's total has less than three times the noise of a single release, a day one and a half
times, where a binary tree had six and three.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch import files, plots
from dpsketch._compiled import countsketch as kernels
from dpsketch.bounding import Bounded, CountedUsers, bound
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType, fingerprint, row_keys
from dpsketch.noise import noise_from_json
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Budget, Guarantee, Unit
from dpsketch.results import Estimates
from dpsketch.sketches.continual.blocks import Blocks
from dpsketch.sketches.continual.choice import DesignName, Objective, choose_design, design_from_json
from dpsketch.sketches.continual.designs import LONGEST, Contribution, Design
from dpsketch.sketches.continual.stream import Stream, checked_days, drawn_pieces, stated
from dpsketch.sketches.continual.visits import Visits
from dpsketch.sketches.countsketch.private import PrivateCountSketch
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED, CountSketchSpec, stated_type, text_spec
from dpsketch.sketches.documents import integer_array, read_charge, read_guarantee, release_header
from dpsketch.sketches.frames import takes_frames
from dpsketch.sketches.partials import Partial
from dpsketch.sketches.permit import Permit
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.sketches.weights import checked_total, record_units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.ledger import Charge, Ledger

__all__ = ["ContinualCountSketch", "contribution_of"]

KIND = "counts-continual"

# A curve's intervals that hold for all days at once are widened as those of a top are.
_TAIL_MARGIN = 4


def contribution_of(spec: CountSketchSpec, days: int, apart: int) -> Contribution:
    """Return how far one unit moves the tables of the days: a record one of them, a user so many, so far apart."""
    weight, replaced = spec.weight_grid.max_units, spec.unit.neighbours == "replace"
    if spec.clip is None:
        return Contribution(spec.rows * weight, spec.rows * weight**2, spec.rows, replaced=replaced)
    cells = spec.rows * spec.unit.max_keys
    return Contribution(cells * weight, spec.clip.squared, cells, days, apart, replaced)


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """Records of today that were checked, and what the sketch is to note with them. Sensitive."""

    fingerprints: npt.NDArray[np.uint64]
    units: npt.NDArray[np.int64]
    mass: int
    skipped: int
    bounded: Bounded | None = None
    counted: CountedUsers | None = None
    visitors: tuple[bytes, ...] = ()
    dropped: int = 0


class ContinualCountSketch(Partial):
    """A CountSketch that is published every day, at one price for all days.

    Parameters
    ----------
    days : int or None
        At most so many days will be published; the noise grows with the logarithm of it. None for a stream without an
        end (a million days, to be exact), which needs δ > 0 or ρ.
    rows, width, unit, seed, grid
        As for :class:`~dpsketch.CountSketch`. Where the unit is a user, its bounds are for each day.
    key_type : {"int", "text"}
        What the keys are. State it: a day without records must not differ from others by its type. Without it keys are
        text, with a warning; a later version will ask for it.
    epsilon, delta, rho : float
        The guarantee for all publications together. It is fixed, and charged, at the start.
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
    is not covered.

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
    >>> shape = {"rows": 5, "width": 64, "unit": dps.per_record(), "key_type": "text"}
    >>> sketch = ContinualCountSketch(days=365, **shape, epsilon=1.0, delta=1e-6)
    >>> sketch.update(["tea", "tea", "milk"])
    >>> monday = sketch.publish_day()
    >>> tuesday = sketch.day(["tea"] * 5)
    >>> change = sketch.between(2, 2) - sketch.between(1, 1)
    >>> sketch.days_published, sketch.design.name
    (2, 'recurrence')
    """

    kind: ClassVar[str] = "counts-continual"

    def __init__(
        self,
        *,
        days: int | None,
        rows: int,
        width: int,
        unit: Unit,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
        key_type: KeyType | None = None,
        objective: Objective = "balanced",
        user_days: int | None = None,
        days_apart: int = 1,
        design: DesignName | None = None,
        first_day: date | str | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> None:
        spec = CountSketchSpec(rows, width, unit, seed, grid, stated_type(key_type, type(self).__name__))
        spec.weight_grid.refuse_without_one()
        budget, days = Budget(epsilon, delta, rho), checked_days(days)
        begun = _checked_date(first_day)
        limits = _checked_limits(spec, days, user_days, days_apart)
        contribution = contribution_of(spec, *limits)
        chosen = choose_design(budget, contribution, days, objective=objective, name=design)
        stream = Stream.begin(
            budget,
            chosen,
            contribution,
            LONGEST if days is None else days,
            (spec.rows, spec.width),
            unit=unit,
            account=self._account(ledger, dataset, part),
            note=f"counts of up to {'any number of' if days is None else days} days {fingerprint_of(spec)}",
        )
        self._start(spec, days, limits, stream, begun)

    def _start(
        self,
        spec: CountSketchSpec,
        days: int | None,
        limits: tuple[int, int],
        stream: Stream,
        first_day: date | None,
    ) -> None:
        self._spec = spec
        self._days = days
        self._limits = limits
        self._stream = stream
        self._first_day = first_day
        self._row_keys = row_keys(spec.seed, spec.rows)
        self._today = np.zeros((spec.rows, spec.width), dtype=np.int64)
        self._counted = CountedUsers()
        self._visits = Visits(*limits)
        self._mass = 0
        self._skipped = 0
        self._dropped = 0
        self._asked: dict[tuple[int, int], PrivateCountSketch] = {}  # what an answer has found out about itself

    @property
    def spec(self) -> CountSketchSpec:
        """The public spec."""
        return self._spec

    @property
    def design(self) -> Design:
        """How noise is correlated from day to day; public."""
        return self._stream.design

    @property
    def guarantee(self) -> Guarantee:
        """What all publications together promise."""
        caveat = f"It covers all publications of up to {self._stream.horizon} days."
        if self._spec.unit.level == "user":
            counted, apart = self._limits
            often = f"at most {counted} days" + (f", at least {apart} days apart" if apart > 1 else "")
            caveat += f" A user counts on {often}, with at most that on each; records of other days are dropped."
        permit = self._stream.permit
        return permit.calibration.guarantee(self._spec.unit, caveat=caveat, for_tests=permit.for_tests)

    @property
    def days(self) -> int | None:
        """How many days may be published; None without an end."""
        return self._days

    @property
    def user_days(self) -> int | None:
        """On how many days a user counts at most; None where the unit is a record."""
        return None if self._spec.unit.level == "record" else self._limits[0]

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
        return self._skipped

    @property
    def dropped_records(self) -> int:
        """How many records were dropped because their user had counted on other days. Sensitive."""
        return self._dropped

    @property
    def memory(self) -> int:
        """Bytes of all tables at the end: today's, the design's buffers, and every publication."""
        design, horizon = self._stream.design, self._stream.horizon
        return self._spec.memory * (1 + design.buffers + design.published(horizon))

    def __repr__(self) -> str:
        spec, days = self._spec, "any" if self._days is None else self._days
        return (
            f"<ContinualCountSketch {spec.rows}×{spec.width}, {self.days_published} of {days} days, "
            f"spec {fingerprint_of(spec)}, sensitive>"
        )

    @takes_frames
    def update(self, keys: Any, *, users: Any = None, weights: Any = None, counts: Any = None) -> None:
        """Add records of today, as :meth:`dpsketch.CountSketch.update` does; late ones count on the day they arrive.

        Where the unit is a user, all records of a user's day come in one update, and those of a user who may not count
        today are dropped.
        """
        prepared = self._prepare(keys, users, weights, counts)
        self._begin_change()
        self._add(prepared)

    def _prepare(self, keys: Any, users: Any, weights: Any, counts: Any) -> Prepared:
        """Check records; change nothing."""
        self._stream.refuse_after_the_end()
        batch = fingerprint(keys, self._spec.key_type)
        if self._spec.unit.level == "record":
            if users is not None:
                raise InvalidInput("this sketch protects records: users= goes with unit=dps.per_user(max_keys=…).")
            units = record_units(self._spec.weight_grid, batch, weights, counts)
            mass = checked_total(self._mass, units, 1, len(units))
            return Prepared(batch.fingerprints, units, mass, batch.skipped)
        if users is None:
            raise InvalidInput("this sketch protects users: say users= as well, whose each record is.")
        if counts is not None:
            raise InvalidInput("counts= are records of nobody, and this sketch protects users: use weights=.")
        grid, clip = self._spec.weight_grid, self._spec.user_clip
        amounts = grid.one if weights is None else grid.units(weights, len(batch.fingerprints) + batch.skipped)
        welcome, visitors, dropped = self._visits.allowed(users, self.days_published + 1)
        bounded = bound(
            welcome,
            batch,
            amounts,
            max_keys=clip.max_keys,
            max_units=clip.max_units,
            seed=self._spec.seed,
            user_type=self._counted.user_type,
        )
        mass = checked_total(self._mass, bounded.units, 1, len(bounded.units))
        return Prepared(
            bounded.fingerprints,
            bounded.units,
            mass,
            bounded.skipped - dropped,
            bounded,
            self._counted.extended(bounded),
            tuple(visitors),
            dropped,
        )

    def _add(self, batch: Prepared) -> None:
        self._mass = batch.mass
        self._skipped += batch.skipped
        if batch.bounded is None or batch.counted is None:
            kernels.add_weighted(self._today, batch.fingerprints, self._row_keys, batch.units)
            return
        self._visits.note(list(batch.visitors), self.days_published + 1)
        self._counted = batch.counted
        self._dropped += batch.dropped
        self._spec.user_clip.add(self._today, batch.bounded, self._row_keys)

    def publish_day(self, *, state: str | PathLike[str] | None = None) -> PrivateCountSketch:
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

    def _end_day(self) -> PrivateCountSketch:
        self._stream.end_day(self._today)
        self._today[:] = 0
        self._counted = CountedUsers(user_type=self._counted.user_type)
        return self._between(1, self.days_published)

    @takes_frames
    def day(self, keys: Any, *, users: Any = None, weights: Any = None, counts: Any = None) -> PrivateCountSketch:
        """Add a whole day's records and publish it: :meth:`update` and :meth:`publish_day` as one change."""
        prepared = self._prepare(keys, users, weights, counts)
        self._begin_change()
        self._add(prepared)
        return self._end_day()

    def total(self) -> PrivateCountSketch:
        """Return the release of all days published so far. Costs nothing: it is made of what is public."""
        return self.between(1, max(1, self.days_published))

    def between(self, first: int, last: int) -> PrivateCountSketch:
        """Return the release of the days ``first`` to ``last``, both included and counted from 1. Costs nothing.

        Answers of one stream may be added and subtracted: their noise is known to be shared.
        """
        return self._between(first, last)

    def _between(self, first: int, last: int) -> PrivateCountSketch:
        table, stretch = self._stream.answer(first, last)
        charge = self._stream.permit.charge
        return PrivateCountSketch(self._spec, table, (), self.guarantee, charge, stretches=(stretch,))

    def curve(
        self, key: Any, *, window: int | None = None, confidence: float = 0.95, together: bool = False
    ) -> Estimates:
        """Return the estimates of one key over time, one for each day. Costs nothing.

        Parameters
        ----------
        key : int or str
            The key.
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
        found = []
        for day in days:
            asked = 1 if window is None else day - window + 1, day
            if asked not in self._asked:
                self._asked[asked] = self._between(*asked)
            found.append(self._asked[asked].estimate([key], confidence=each))
        value, low, high = (
            np.array([getattr(estimates, name)[0] for estimates in found]) for name in ("value", "low", "high")
        )
        names: list[Any] = list(days)
        if self._first_day is not None:
            names = [(self._first_day + timedelta(day - 1)).isoformat() for day in days]
        return Estimates(names, value, low, high, confidence, self._spec.unit.counts)

    def plot(self, key: Any, *, window: int | None = None, together: bool = False) -> Figure:
        """Draw one key over time: running totals or, with ``window``, sums of so many days."""
        found = self.curve(key, window=window, together=together)
        what = "total so far" if window is None else "each day" if window == 1 else f"the last {window} days"
        words = f"ε = {self.guarantee.epsilon:g}, δ = {self.guarantee.delta:g}"
        days = np.arange(self.days_published - len(found) + 1, self.days_published + 1, dtype=np.float64)
        return plots.curve(days, found.value, found.low, found.high, "day", what, f"{key!r}, {words}")

    def _to_document(self) -> files.Document:
        stream = self._stream
        header = release_header(
            self._spec.to_json(),
            self.guarantee,
            stream.permit.charge,
            days=self._days,
            published=stream.day,
            noise=stream.law.to_json(),
            mass=str(self._mass),
            skipped=self._skipped,
        )
        arrays: dict[str, files.Array] = {"today": self._today}
        if self._is_tree:
            nodes = dict(zip(_nodes(stream.design, stream.day), stream.tables, strict=True))
            ordered = np.array([nodes[name] for name in sorted(nodes)], np.int64).reshape(stream.tables.shape)
            return files.Document(KIND, True, header, {**arrays, "open": stream.state, "nodes": ordered})
        header["design"] = stream.design.to_json()
        header["first_day"] = None if self._first_day is None else self._first_day.isoformat()
        if self._spec.unit.level == "user":
            header |= {"limits": list(self._limits), "users": self._counted.to_json(), "dropped": self._dropped}
            arrays |= {"users": self._counted.to_array(), **self._visits.arrays()}
        return files.Document(KIND, True, header, {**arrays, **stream.arrays()})

    @property
    def _is_tree(self) -> bool:
        """Whether this is a stream of records as the first version had them, which is written as that did."""
        plain = self._days is not None and self._first_day is None and self._spec.unit.level == "record"
        return plain and self.design == Blocks.tree(self._stream.horizon)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        header = document.header
        days = checked_days(header["days"])
        horizon = LONGEST if days is None else days
        published = whole_number("published", header["published"], low=0, high=horizon)
        spec = text_spec(CountSketchSpec.from_json(header["spec"]))
        old = "design" not in header
        design = Blocks.tree(horizon) if old else design_from_json(header["design"])
        limits = (1, 1)
        if spec.unit.level == "user":
            stored = header.get("limits")
            if not isinstance(stored, list) or len(stored) != 2 or stored[0] is None:
                raise FileRefused("the file's limits on the days of users are not those that dpsketch writes.")
            limits = _checked_limits(spec, days, *stored)
        promise, law = read_guarantee(document), noise_from_json(header["noise"])
        found = stated(promise, law, design, contribution_of(spec, *limits), horizon)
        drawn, seeded = drawn_pieces(design, published), not promise.holds
        permit = Permit(found, spec.unit, read_charge(document), drawn=drawn, for_tests=seeded)
        stream = Stream(design, horizon, permit, (spec.rows, spec.width))
        sketch = cls.__new__(cls)
        sketch._start(spec, days, limits, stream, _checked_date(header.get("first_day")))
        sketch._mass = int(header["mass"])
        sketch._skipped = int(header["skipped"])
        sketch._today[:] = integer_array(document, "today", sketch._today.shape)
        if old:
            names = sorted(_nodes(design, published))
            tables = integer_array(document, "nodes", (len(names), *sketch._today.shape))
            state = integer_array(document, "open", stream.state.shape)
            stream.restore_tree(state, dict(zip(names, tables, strict=True)), published)
            return sketch
        stream.restore(document, published)
        if spec.unit.level == "user":
            sketch._dropped = int(header["dropped"])
            sketch._counted = CountedUsers.from_stored(document.arrays["users"], header["users"])
            sketch._visits.restore(document)
        return sketch


def _nodes(design: Design, day: int) -> Iterator[tuple[int, int]]:
    return design.names(day) if isinstance(design, Blocks) else iter(())


def _checked_date(day: date | str | None) -> date | None:
    if isinstance(day, datetime):
        return day.date()
    if day is None or isinstance(day, date):
        return day
    try:
        return date.fromisoformat(day)
    except (TypeError, ValueError):
        raise InvalidInput("a day is a date, as in 2026-11-15.") from None


def _checked_limits(spec: CountSketchSpec, days: int | None, counted: int | None, apart: int) -> tuple[int, int]:
    """Return on how many days a unit counts, and how far apart; refuse what goes with the other unit."""
    apart = whole_number("days_apart", apart, low=1, high=LONGEST)
    if spec.unit.level == "record":
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
