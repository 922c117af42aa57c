"""A stream's sensitive state in a file: what is counted, what was drawn, and today's own sketch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dpsketch import files
from dpsketch.core.drawn import receipt_to_json
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused
from dpsketch.numbers import whole_number
from dpsketch.privacy import Guarantee
from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.calendar import Calendar
from dpsketch.sketches.continual.portions import Layout
from dpsketch.sketches.continual.series import PrivateSeries, stored_adapter, stored_law, stored_receipt
from dpsketch.sketches.continual.stream import Stream
from dpsketch.sketches.continual.visits import Visits
from dpsketch.sketches.documents import prepaid_header, read_prepaid
from dpsketch.sketches.partials import Partial

__all__ = ["StoredStream"]

# The day's own sketch lies in a file under names that begin so.
_TODAY = "today_"
# A day's counts in a file are no larger; an update adds at most 2**62.
_LARGEST = 2**62 - 1


class StoredStream(Partial):
    """What a stream keeps, and how it is written and read. Sensitive."""

    if TYPE_CHECKING:

        @property
        def guarantee(self) -> Guarantee:
            """What all publications together promise."""

    @property
    def spec(self) -> Any:
        """The public spec of what a day counts."""
        return self._adapter.spec

    @property
    def counts_kind(self) -> str:
        """The name of the kind that a day counts."""
        return self._adapter.kind

    def _start(self, adapter: Adapter, calendar: Calendar, stream: Stream) -> None:
        self._adapter = adapter
        self._layout = Layout(stream.law.stacked, stream.law.scales)
        self._calendar = calendar
        self._stream = stream
        self._today: Any = adapter.start()
        self._visits = Visits(*calendar.limits)
        self._skipped = 0  # on days before today
        self._dropped = 0
        self._answers: PrivateSeries | None = None  # of all days so far

    def _to_document(self) -> files.Document:
        stream = self._stream
        today, arrays = self._today_document()
        header = {
            "spec": self.spec.to_json(),
            "receipt": receipt_to_json(stream.permit.receipt()),
            "days": self._calendar.days,
            "published": stream.day,
            **today,
            "skipped": self._skipped + self._today.skipped_nulls,
            **self._calendar.to_json(),
            **prepaid_header(self._prepaid),
        }
        if self.spec.unit.level == "user":
            header |= {"limits": list(self._calendar.limits), "dropped": self._dropped}
            arrays |= self._visits.arrays()
        return files.Document(self.kind, True, header, {**arrays, **stream.arrays()})

    def _today_document(self) -> tuple[dict[str, Any], dict[str, files.Array]]:
        """Return what a file has of today's sketch, and of what it is one: entries of the header, and arrays."""
        inner = self._today._completed(self._today._to_document())
        header = {"of": self.counts_kind, "options": self._adapter.options()}
        return {**header, "today": inner.header}, {_TODAY + name: array for name, array in inner.arrays.items()}

    @classmethod
    def _stored_adapter(cls, document: files.Document) -> Adapter:
        """Return what a file counts each day."""
        return stored_adapter(document.header)

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
        adapter = cls._stored_adapter(document)
        unit = adapter.spec.unit
        calendar = Calendar.stored(header, unit)
        published = whole_number("published", header["published"], low=0, high=calendar.horizon)
        receipt = stored_receipt(header, adapter, calendar)
        permit = Permit.restored(adapter, receipt, stored_law(receipt).drawn_by(published))
        sketch = cls.__new__(cls)
        sketch._start(adapter, calendar, adapter.stream(permit))
        sketch._prepaid = read_prepaid(document, receipt.charge)
        sketch._skipped = int(header["skipped"])
        sketch._read_today(document)
        sketch._stream.restore(document, published)
        if unit.level == "user":
            sketch._dropped = int(header["dropped"])
            sketch._visits.restore(document)
        return sketch
