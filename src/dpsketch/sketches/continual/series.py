"""The published days of a stream as one release: totals, windows, curves and changes, to be asked by anyone.

It is all that a stream has published and nothing else: no buffers, none of today's records, no users. The stream itself
answers through it, so that what its owner sees is what a reader of the file sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpsketch import files, plots
from dpsketch.core.drawn import (
    Receipt,
    promise,
    receipt_from_json,
    receipt_to_json,
    refuse_other_promise,
    stated_promise,
)
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.hashing import KeyType
from dpsketch.laws.designs import Design
from dpsketch.laws.streams import Found, Published
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Guarantee, Unit
from dpsketch.release import Release, without_types
from dpsketch.results import NOISE_ONLY, Estimates
from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.calendar import Calendar
from dpsketch.sketches.continual.names import not_of_days, read_keys, stored_keys
from dpsketch.sketches.continual.portions import Layout, Window
from dpsketch.sketches.continual.publications import Publications, mark_of
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.kinds import KINDS
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.ledger import Charge

__all__ = ["PrivateSeries", "refuse_users_in", "stored_adapter", "stored_law", "stored_receipt"]

# Of windows that were asked, so many bytes are kept, and so many windows at least.
_KEPT, _LEAST_KEPT = 2**26, 8
# A curve's intervals that hold for all days at once are widened as those of a top are.
_TAIL_MARGIN = 4


@dataclass(frozen=True, slots=True, eq=False)
class PrivateSeries(Release):
    """All that a stream has published so far: public, to be queried for ever.

    Attributes
    ----------
    adapter : Adapter
        What is counted each day.
    calendar : Calendar
        Its days.
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

    adapter: Adapter
    calendar: Calendar
    published: Publications
    receipt: Receipt
    guarantee: Guarantee = field(init=False)
    # What a window has found out about itself is of use when it is asked again.
    _kept: dict[tuple[int, int], Any] = field(default_factory=dict, repr=False)
    _turn: Any = field(default_factory=Lock, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "guarantee", promise(self.adapter, self.receipt))

    @property
    def charge(self) -> Charge | None:
        """The ledger's row, if a ledger was charged."""
        return self.receipt.charge

    @property
    def law(self) -> Published:
        """What is published, and under which noise."""
        return stored_law(self.receipt)

    @property
    def layout(self) -> Layout:
        """What a day's vector is made of."""
        return Layout(self.law.stacked, self.law.scales)

    def __repr__(self) -> str:
        shown = f"{self.days_published} days of {self.counts_kind}, spec {fingerprint_of(self.spec)}"
        return f"<PrivateSeries of {shown}: {self.guarantee}>"

    @property
    def spec(self) -> Any:
        """The public spec of what a day counts."""
        return self.adapter.spec

    @property
    def counts_kind(self) -> str:
        """The name of the kind that a day counts."""
        return self.adapter.kind

    @property
    def days_published(self) -> int:
        """How many days have been published."""
        return self.published.day

    @property
    def design(self) -> Design:
        """How noise is correlated from day to day."""
        return self.published.design

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

    def _release(self, vector: Any, stretch: Any, *, signed: bool = False) -> Any:
        tables, laws = self.layout.split(vector), self.layout.laws(stretch)
        window = Window(tables, laws, stretch, self.receipt, self.guarantee, self.published, signed)
        return self.adapter.release(window)

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
        found = self.adapter.change(changed, self.between(*later), self.between(*earlier), key, confidence)
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
        found = [
            self.adapter.read(self.between(1 if window is None else day - window + 1, day), key, each) for day in days
        ]
        value, low, high = (
            np.array([getattr(estimates, name)[0] for estimates in found]) for name in ("value", "low", "high")
        )
        return Estimates(list(self.calendar.names(days)), value, low, high, confidence, found[0].counts)

    def question(self, text: str | int, key_type: KeyType | None = None) -> Any:
        """Return what :meth:`curve` and :meth:`change` take, as the command line and the service write it."""
        return self.adapter.asked(text, key_type)

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
        title = self.title(self.adapter.question_words(key))
        return plots.curve(days, found.value, found.low, found.high, "day", what, title)

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the total."""
        drawn: Figure = self.total().picture(candidates, n)
        return drawn

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        published, calendar = self.published, self.calendar
        header = {
            "spec": self.spec.to_json(),
            "of": self.counts_kind,
            "options": self.adapter.options(),
            "receipt": receipt_to_json(self.receipt),
            "guarantee": stated_promise(self.guarantee),
            "days": calendar.days,
            "limits": list(calendar.limits),
            "published": published.day,
            "stream": published.name,
            "ceiling": None if published.ceiling is None else list(published.ceiling),
            **calendar.to_json(),
        }
        arrays: dict[str, files.Array] = {"published": np.array(published.tables, np.int64)}
        if published.names is not None:
            arrays["names"] = stored_keys(published.names)
        return files.Document(self.kind, False, header, arrays)

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file: its sensitivity is worked out anew, and must be paid for."""
        header = document.header
        adapter = stored_adapter(header)
        calendar = Calendar.stored(header, adapter.spec.unit)
        day = whole_number("published", header["published"], low=1, high=calendar.horizon)
        receipt = stored_receipt(header, adapter, calendar)
        law = stored_law(receipt)
        name, ceiling = header["stream"], _ceiling(header["ceiling"])
        names = None if ceiling is None else read_keys(document)
        if not isinstance(name, str) or (ceiling is None) is isinstance(law, Found):
            raise not_of_days()
        shape = law.shape if names is None else (len(names),)
        tables = list(integer_array(document, "published", (law.design.published(day), *shape)))
        marks = np.array([mark_of(table) for table in tables] if names is None else [], np.uint64)
        published = Publications(name, law.design, day, law.answer_noise, tables, marks, names, ceiling)
        series = cls(adapter, calendar, published, receipt)
        refuse_other_promise(header, series.guarantee)
        return series


def stored_law(receipt: Receipt) -> Published:
    """Return the only law of a stream's receipt."""
    (law,) = receipt.laws
    if not isinstance(law, Published):
        raise not_of_days()
    return law


def stored_receipt(header: dict[str, Any], adapter: Adapter, calendar: Calendar) -> Receipt:
    """Read the receipt of a stream; refuse one that is for other days or tables, or that does not pay for its law."""
    receipt = receipt_from_json(header["receipt"])
    law, unit = stored_law(receipt), adapter.spec.unit
    refuse_users_in(law.design, unit)
    stated = (law.horizon, (law.days, law.apart), law.stacked, type(law))
    known = (calendar.horizon, calendar.limits, adapter.tables(), adapter.law_class(law.design))
    if stated != known or receipt.caveat is not None:
        raise _unpaid()
    try:
        promise(adapter, receipt)
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


def stored_adapter(header: dict[str, Any]) -> Adapter:
    """Return what a file counts each day."""
    row = KINDS.get(header["of"])
    if row is None or row.daily is None:
        raise FileRefused("the file holds a stream of a kind that this version does not know; a newer one may.")
    adapter: Adapter = row.daily.stored(header["spec"], header["options"])
    return adapter


def _ceiling(stored: Any) -> tuple[float, float] | None:
    if stored is None:
        return None
    pair = isinstance(stored, list) and len(stored) == 2 and all(isinstance(each, float) for each in stored)
    if not pair or not np.isfinite(stored).all():
        raise not_of_days()
    return stored[0], stored[1]
