"""How a day is published: integer tables come in day by day, and what is published of them is drawn once.

A stream knows nothing of records. Its owner counts today's records into the tables of a day, and hands them over in the
evening.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Sequence
from typing import Any, Self, cast

import numpy as np

from dpsketch import files
from dpsketch.arrays import Floats, Integers
from dpsketch.core.codec import encode
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, ReleaseRefused
from dpsketch.laws.designs import Design, Filter
from dpsketch.laws.pan_private import PanPrivate
from dpsketch.laws.streams import PUBLICATIONS, STATE, Published
from dpsketch.sketches.continual.windows import Publications, Stretch, joined, mark_of
from dpsketch.sketches.documents import integer_array

__all__ = ["SeizableStream", "Stream"]


class Stream:
    """Tables published day after day. Sensitive: its buffers are exact.

    Parameters
    ----------
    permit : Permit
        Paid for all publications together; its only law says what is published, and for how many days.
    names : sequence, optional
        The public list of keys that the cells of its table count, where they count keys.

    Privacy
    -------
    Each publication is drawn once, under a name of its own, and kept. Whatever is asked later is made of what was
    published. A day without records is published as any other: noise on what earlier days add.
    """

    __slots__ = ("_day", "_law", "_listed", "_marks", "_permit", "_state", "_tables")

    def __init__(self, permit: Permit, names: Sequence[Any] | None = None) -> None:
        (law,) = permit.laws
        assert isinstance(law, Published)
        self._law = law
        self._permit = permit
        self._listed = names
        self._state = np.zeros((law.design.buffers, *law.shape), np.int64)
        self._tables: list[Integers] = []
        self._marks: list[int] = []
        self._day = 0

    def begin(self) -> Self:
        """Draw what must be there before the first record, once the permit is paid for."""
        return self

    @property
    def law(self) -> Published:
        """What is published, and under which noise."""
        return self._law

    @property
    def design(self) -> Design:
        """How the days enter the publications."""
        return self._law.design

    @property
    def horizon(self) -> int:
        """For how many days the noise was calibrated."""
        return self._law.horizon

    @property
    def permit(self) -> Permit:
        """What was paid for."""
        return self._permit

    @property
    def day(self) -> int:
        """How many days were published."""
        return self._day

    @property
    def tables(self) -> Integers:
        """All that was published, in order. Public."""
        return np.array(self._tables, np.int64).reshape((len(self._tables), *self._state.shape[1:]))

    @property
    def state(self) -> Integers:
        """The buffers. Sensitive: exact, unless the design says otherwise."""
        return self._state

    @property
    def cells(self) -> int:
        """Of how many cells a day's table is, by now."""
        return math.prod(self._state.shape[1:])

    @property
    def digest(self) -> str:
        """A digest of what the last day published, for a ledger to know it by. Public."""
        return self.digest_of(self._day)

    def digest_of(self, day: int) -> str:
        """Return a digest of what a day published. Public."""
        found = hashlib.sha256(b"%d" % day)
        for table in self._tables[self.design.published(max(0, day - 1)) : self.design.published(day)]:
            found.update(table.astype("<i8").tobytes())
        return found.hexdigest()

    @property
    def name(self) -> str:
        """What tells this stream from others: a digest of its first publication, its terms and its charge. Public.

        Of small tables, two streams may publish the same by chance.
        """
        charge = self._permit.charge
        terms = [encode(self._law), None if charge is None else charge.digest]
        found = hashlib.sha256(json.dumps(terms, sort_keys=True).encode())
        found.update(self._tables[0].astype("<i8").tobytes())
        return found.hexdigest()[:32]

    def refuse_after_the_end(self) -> None:
        """Refuse a day more than the noise was calibrated for."""
        if self._day >= self.horizon:
            all_days = "the only day was" if self.horizon == 1 else f"all {self.horizon} days were"
            raise ReleaseRefused(
                f"{all_days} published, which ended it: the noise was calibrated for no more. Start another sketch, at "
                "its own price."
            )

    def _refuse_before_the_first(self) -> None:
        if self._day == 0:
            raise ReleaseRefused("no day has been published yet: publish_day() ends a day.")

    def end_day(self, today: Any) -> None:
        """Publish a day: its exact tables by name. Called within a change of the owner, which an interruption ends."""
        self.refuse_after_the_end()
        self._day += 1
        steps = self.design.step(self._state, joined(self._law, today), self._day)
        self._tables += self._drawn([(PUBLICATIONS, piece, table) for piece, table in steps])

    def _drawn(self, pieces: list[tuple[str, Hashable, Integers]]) -> list[Integers]:
        """Return pieces with noise."""
        found = self._permit.draw(self._law, pieces)
        return [cast(Integers, table) for table in found.values()]

    def published(self) -> Publications:
        """Return all that was published so far. Public."""
        self._refuse_before_the_first()
        self._marks += [mark_of(table) for table in self._tables[len(self._marks) :]]
        marks = np.array(self._marks, np.uint64)
        return Publications(self.name, self._law, self._day, tuple(self._tables), marks, self._listed)

    def answer(self, first: int, last: int) -> tuple[Floats, Stretch]:
        """Return the sum of the days ``first`` to ``last``, decoded, and which noise it carries. Costs nothing."""
        return self.published().answer(first, last)

    def arrays(self) -> dict[str, files.Array]:
        """Return what a file keeps of the stream. Sensitive."""
        return {"state": self._state, "published": self.tables}

    def restore(self, document: files.Document, day: int) -> None:
        """Take up a stream where a file left it."""
        count = self.design.published(day)
        self._state[:] = integer_array(document, "state", self._state.shape)
        self._refuse_other_state()
        self._tables = list(integer_array(document, "published", (count, *self._state.shape[1:])))
        self._day = day

    def _refuse_other_state(self) -> None:
        """Refuse buffers that no days leave: where they wrap round, one record moves a publication by any amount."""
        if isinstance(self.design, Filter) and not self.design.holds(self._state):
            raise FileRefused("the file's buffers are not those of a stream of its design.")


class SeizableStream(Stream):
    """A stream whose state carries noise from the start, and may be seized once.

    Privacy
    -------
    As :mod:`dpsketch.laws.pan_private` proves. The state is the sums for the coming days, each under
    noise that was drawn when it began. Whoever seizes it learns which days were published, which everyone knows, and
    these sums; not how many records came, nor whether any did. Sums for days after the last are under noise as well.
    """

    __slots__ = ()

    @property
    def _bands(self) -> PanPrivate:
        assert isinstance(self.design, PanPrivate)
        return self.design

    def begin(self) -> Self:
        """Draw the noise from which the sums for the coming days start."""
        for place in range(len(self._state)):
            self._await(place, place + 1)
        return self

    def _await(self, place: int, day: int) -> None:
        """Start the sums for a coming day."""
        (self._state[place],) = self._drawn([(STATE, day, np.zeros(self._state.shape[1:], np.int64))])

    def take(self, records: Any) -> None:
        """Add tables of today's records to the sums for the coming days, as they come: nothing exact is kept of today.

        Called within a change of the owner.
        """
        self._bands.take(self._state, joined(self._law, records))

    def end_day(self, today: Any) -> None:
        """Publish a day, and start the sums for one day more; the sums that were published are gone."""
        super().end_day(today)
        if self._day < self.horizon:
            self._await(len(self._state) - 1, self._day + len(self._state))
