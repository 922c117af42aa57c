"""The mechanism: integer tables come in day by day, and what is published of them is drawn once.

It knows nothing of keys. Whoever owns a stream counts today's records into an integer table of a fixed shape, whatever
that stands for, and hands it over in the evening.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dpsketch import files
from dpsketch.arrays import Floats, Integers
from dpsketch.errors import FileRefused, ReleaseRefused
from dpsketch.noise import Noise, RoundedGaussian
from dpsketch.privacy import Budget, Guarantee
from dpsketch.sketches.continual.blocks import Blocks
from dpsketch.sketches.continual.designs import Contribution, Design, Filter
from dpsketch.sketches.continual.pan_private import PanPrivate
from dpsketch.sketches.continual.publications import Publications, mark_of
from dpsketch.sketches.continual.stretches import Stretch
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.permit import Calibration, Part, Permit, Share, additive

__all__ = ["PUBLICATIONS", "STATE", "SeizableStream", "Stream", "Terms", "unpaid"]

PUBLICATIONS = "the publications"
STATE = "the state"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a stream is calibrated for. Public.

    Attributes
    ----------
    design : Design
        What is published.
    contribution : Contribution
        How far one unit moves the days' tables.
    horizon : int
        For how many days.
    shape : tuple of int
        Of a day's table.
    """

    design: Design
    contribution: Contribution
    horizon: int
    shape: tuple[int, ...]

    @property
    def share(self) -> Share:
        """The publications, and how far one unit moves all of them together."""
        bound = self.design.sensitivity(self.contribution, self.horizon)
        return Share(PUBLICATIONS, bound, pieces=self.design.published(self.horizon))


class Stream:
    """Tables published day after day. Sensitive: its buffers are exact.

    Parameters
    ----------
    terms : Terms
        What is published, and for how many days the noise was calibrated.
    permit : Permit
        Paid for all of them together.

    Privacy
    -------
    Each publication is drawn once, under a name of its own, and kept; whatever is asked later is made of what was
    published. A day without records is published as any other: noise on what earlier days add.
    """

    __slots__ = ("_day", "_design", "_horizon", "_marks", "_permit", "_state", "_tables")

    def __init__(self, terms: Terms, permit: Permit) -> None:
        self._design = terms.design
        self._horizon = terms.horizon
        self._permit = permit
        self._state = np.zeros((terms.design.buffers, *terms.shape), np.int64)
        self._tables: list[Integers] = []
        self._marks: list[int] = []
        self._day = 0

    @classmethod
    def calibrated(cls, budget: Budget, terms: Terms) -> Calibration:
        """Return the noise that a budget asks for on all that the stream draws."""
        law = additive(budget, terms.share).law(PUBLICATIONS)
        entered = f" (a record enters {terms.design.largest:,} times)" if terms.design.largest > 1 else ""
        words = f"{law.words} in each publication{entered}, {terms.design.words}"
        return cls._drawing(additive(budget, terms.share, words=words), law, terms)

    @classmethod
    def stated(cls, promise: Guarantee, law: Noise, terms: Terms) -> Calibration:
        """Return the calibration that a file claims, its sensitivity worked out anew; refuse one that does not pay."""
        share = terms.share
        part = Part(PUBLICATIONS, law, share.bound, pieces=share.pieces)
        found = cls._drawing(Calibration.stated(promise, part), law, terms)
        if not found.sound:
            raise unpaid()
        return found

    @classmethod
    def _drawing(cls, found: Calibration, law: Noise, terms: Terms) -> Calibration:
        """Return a calibration of the publications with whatever else is drawn."""
        return found

    @classmethod
    def drawn(cls, design: Design, day: int) -> list[tuple[str, Hashable]]:
        """Return the names of what was drawn by a day, for a permit that goes on from there."""
        names: Iterable[Hashable] = design.names(day) if isinstance(design, Blocks) else range(1, day + 1)
        return [(PUBLICATIONS, name) for name in names]

    @classmethod
    def noise_of(cls, calibration: Calibration) -> Noise:
        """Return the noise in each cell of what is published."""
        return calibration.law(PUBLICATIONS)

    def begin(self) -> Self:
        """Draw what must be there before the first record, once the permit is paid for."""
        return self

    @property
    def design(self) -> Design:
        """What is published."""
        return self._design

    @property
    def horizon(self) -> int:
        """For how many days the noise was calibrated."""
        return self._horizon

    @property
    def permit(self) -> Permit:
        """What was paid for."""
        return self._permit

    @property
    def day(self) -> int:
        """How many days were published."""
        return self._day

    @property
    def law(self) -> Noise:
        """The noise of one draw, in each cell."""
        return self._permit.calibration.law(PUBLICATIONS)

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
        for table in self._tables[self._design.published(max(0, day - 1)) : self._design.published(day)]:
            found.update(table.astype("<i8").tobytes())
        return found.hexdigest()

    @property
    def name(self) -> str:
        """What tells this stream from others: a digest of its first publication, its terms and its charge. Public.

        Of small tables, two streams may publish the same by chance.
        """
        charge = self._permit.charge
        terms = [self._design.to_json(), self._horizon, self.law.to_json(), None if charge is None else charge.digest]
        found = hashlib.sha256(json.dumps(terms, sort_keys=True).encode())
        found.update(self._tables[0].astype("<i8").tobytes())
        return found.hexdigest()[:32]

    def refuse_after_the_end(self) -> None:
        """Refuse a day more than the noise was calibrated for."""
        if self._day >= self._horizon:
            raise ReleaseRefused(
                f"all {self._horizon} days have been published, and the noise was calibrated for so many. Start "
                "another sketch, at its own price."
            )

    def _refuse_before_the_first(self) -> None:
        if self._day == 0:
            raise ReleaseRefused("no day has been published yet: publish_day() ends a day.")

    def end_day(self, today: Integers) -> None:
        """Publish a day. Called within a change of the owner, which an interruption ends."""
        self.refuse_after_the_end()
        self._day += 1
        for piece, table in self._design.step(self._state, today, self._day):
            self._tables.append(self._permit.add_noise(table, PUBLICATIONS, piece))

    def published(self) -> Publications:
        """Return all that was published so far. Public."""
        self._refuse_before_the_first()
        self._marks += [mark_of(table) for table in self._tables[len(self._marks) :]]
        noise = self.noise_of(self._permit.calibration)
        marks = np.array(self._marks, np.uint64)
        return Publications(self.name, self._design, self._day, noise, tuple(self._tables), marks)

    def answer(self, first: int, last: int) -> tuple[Floats, Stretch]:
        """Return the sum of the days ``first`` to ``last``, decoded, and which noise it carries. Costs nothing."""
        return self.published().answer(first, last)

    def arrays(self) -> dict[str, files.Array]:
        """Return what a file keeps of the stream. Sensitive."""
        return {"state": self._state, "published": self.tables}

    def restore(self, document: files.Document, day: int) -> None:
        """Take up a stream where a file left it."""
        count = self._design.published(day)
        self._state[:] = integer_array(document, "state", self._state.shape)
        self._refuse_other_state()
        self._tables = list(integer_array(document, "published", (count, *self._state.shape[1:])))
        self._day = day

    def _refuse_other_state(self) -> None:
        """Refuse buffers that no days leave: where they wrap round, one record moves a publication by any amount."""
        if isinstance(self._design, Filter) and not self._design.holds(self._state):
            raise FileRefused("the file's buffers are not those of a stream of its design.")

    def restore_tree(self, state: Integers, nodes: dict[tuple[int, int], Integers], day: int) -> None:
        """Take up a tree that was kept node by node."""
        design = self._design
        if not isinstance(design, Blocks):
            raise FileRefused("the file's design is not one that dpsketch writes.")
        self._state[:] = state
        self._tables = [nodes[name] for name in design.names(day)]
        self._day = day


class SeizableStream(Stream):
    """A stream whose state carries noise from the start, and may be seized once.

    Privacy
    -------
    As :mod:`dpsketch.sketches.continual.pan_private` proves. The state is the sums for the coming days, each under
    noise that was drawn when it began. Whoever seizes it learns which days were published, which everyone knows, and
    these sums; not how many records came, nor whether any did. Sums for days after the last are under noise as well.
    """

    __slots__ = ()

    @classmethod
    def _drawing(cls, found: Calibration, law: Noise, terms: Terms) -> Calibration:
        """Return the two parts, of which one record is in one only: before the seizure, or after it."""
        (published,) = found.parts
        state = Part(STATE, law, published.bound, pieces=terms.horizon + terms.design.buffers - 1)
        return replace(found, parts=(published, state), either=True)

    @classmethod
    def drawn(cls, design: Design, day: int) -> list[tuple[str, Hashable]]:
        """Return the names of what was drawn by a day: the sums for the days after it as well."""
        return super().drawn(design, day) + [(STATE, coming) for coming in range(1, day + design.buffers + 1)]

    @classmethod
    def noise_of(cls, calibration: Calibration) -> Noise:
        """Return a law with the variance of two draws, 2·(σ² + 1/12): a rounded Gaussian of τ² = 2σ² + 1/12."""
        law = calibration.law(PUBLICATIONS)
        return RoundedGaussian(math.sqrt(2 * law.variance - 1 / 12))

    @property
    def _bands(self) -> PanPrivate:
        assert isinstance(self._design, PanPrivate)
        return self._design

    def begin(self) -> Self:
        """Draw the noise from which the sums for the coming days start."""
        for place in range(len(self._state)):
            self._await(place, place + 1)
        return self

    def _await(self, place: int, day: int) -> None:
        """Start the sums for a coming day."""
        self._state[place] = self._permit.add_noise(np.zeros(self._state.shape[1:], np.int64), STATE, day)

    def take(self, records: Integers) -> None:
        """Add records of today to the sums for the coming days, as they come: nothing exact is kept of today.

        Called within a change of the owner.
        """
        self._bands.take(self._state, records)

    def end_day(self, today: Integers) -> None:
        """Publish a day, and start the sums for one day more; the sums that were published are gone."""
        super().end_day(today)
        if self._day < self._horizon:
            self._await(len(self._state) - 1, self._day + len(self._state))


def unpaid() -> FileRefused:
    """Return the refusal of a file whose noise does not pay for its promise."""
    return FileRefused("the file's guarantee is not that of a stream with its noise.")
