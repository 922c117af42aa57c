"""The mechanism: integer tables come in day by day, and what is published of them is drawn once.

It knows nothing of keys. Whoever owns a stream counts today's records into an integer table of a fixed shape, whatever
that stands for, and hands it over in the evening.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.errors import FileRefused, ReleaseRefused
from dpsketch.noise import Noise
from dpsketch.numbers import whole_number
from dpsketch.privacy import Budget, Guarantee, Unit
from dpsketch.sketches.account import Account
from dpsketch.sketches.continual.blocks import Blocks
from dpsketch.sketches.continual.designs import LONGEST, Contribution, Design, Filter
from dpsketch.sketches.continual.stretches import Stretch
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.permit import Calibration, Part, Permit, Share, additive, obtain

__all__ = ["PUBLICATIONS", "Stream", "calibrated", "stated"]

PUBLICATIONS = "the publications"

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def calibrated(budget: Budget, design: Design, contribution: Contribution, horizon: int) -> Calibration:
    """Return the noise that a budget asks for on all publications of a stream."""
    share = Share(PUBLICATIONS, design.sensitivity(contribution, horizon), pieces=design.published(horizon))
    law = additive(budget, share).law(PUBLICATIONS)
    entered = f" (a record enters {design.largest:,} times)" if design.largest > 1 else ""
    return additive(budget, share, words=f"{law.words} in each publication{entered}, {design.words}")


def stated(promise: Guarantee, law: Noise, design: Design, contribution: Contribution, horizon: int) -> Calibration:
    """Return the calibration that a file claims, its sensitivity worked out anew; refuse one that does not pay."""
    bound = design.sensitivity(contribution, horizon)
    part = Part(PUBLICATIONS, law, bound, pieces=design.published(horizon))
    found = Calibration.stated(promise, part)
    if not found.sound:
        raise FileRefused("the file's guarantee is not that of a stream with its noise.")
    return found


class Stream:
    """Tables published day after day. Sensitive: its buffers are exact.

    Parameters
    ----------
    design : Design
        What is published.
    horizon : int
        For how many days the noise was calibrated.
    permit : Permit
        Paid for all of them together.
    shape : tuple of int
        Of a day's table.

    Privacy
    -------
    Each publication is drawn once, under a name of its own, and kept; whatever is asked later is made of what was
    published. A day without records is published as any other: noise on what earlier days add.
    """

    __slots__ = ("_day", "_design", "_digests", "_horizon", "_permit", "_state", "_tables")

    def __init__(self, design: Design, horizon: int, permit: Permit, shape: tuple[int, ...]) -> None:
        self._design = design
        self._horizon = horizon
        self._permit = permit
        self._state = np.zeros((design.buffers, *shape), np.int64)
        self._tables: list[Integers] = []
        self._digests: list[int] = []
        self._day = 0

    @classmethod
    def begin(
        cls,
        budget: Budget,
        design: Design,
        contribution: Contribution,
        horizon: int,
        shape: tuple[int, ...],
        *,
        unit: Unit,
        account: Account,
        note: str,
    ) -> Stream:
        """Charge for all days, and start a stream."""
        found = calibrated(budget, design, contribution, horizon)
        return cls(design, horizon, obtain(found, unit, account, note=note), shape)

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
        """The noise in each cell of a publication."""
        return self._permit.calibration.law(PUBLICATIONS)

    @property
    def tables(self) -> Integers:
        """All that was published, in order. Public."""
        return np.array(self._tables, np.int64).reshape((len(self._tables), *self._state.shape[1:]))

    @property
    def state(self) -> Integers:
        """The exact buffers. Sensitive."""
        return self._state

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
        if not self._tables:
            raise ReleaseRefused("no day has been published yet: publish_day() ends a day.")
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

    def end_day(self, today: Integers) -> None:
        """Publish a day. Called within a change of the owner, which an interruption ends."""
        self.refuse_after_the_end()
        self._day += 1
        for piece, table in self._design.step(self._state, today, self._day):
            self._tables.append(self._permit.add_noise(table, PUBLICATIONS, piece))

    def answer(self, first: int, last: int) -> tuple[Floats, Stretch]:
        """Return the sum of the days ``first`` to ``last``, decoded, and which noise it carries. Costs nothing."""
        if self._day == 0:
            raise ReleaseRefused("no day has been published yet: publish_day() ends a day.")
        last = whole_number("last", last, low=1, high=self._day)
        first = whole_number("first", first, low=1, high=last)
        stretch = Stretch(self.name, self.law, self._design.weights(first, last), self._marks(last))
        return self.decoded(stretch), stretch

    def _marks(self, day: int) -> npt.NDArray[np.uint64]:
        """Return a digest of each table published by a day. Public, as they are."""
        for table in self._tables[len(self._digests) :]:
            digest = hashlib.sha256(table.astype("<i8").tobytes()).digest()
            self._digests.append(int.from_bytes(digest[:8], "little"))
        return np.array(self._digests[: self._design.published(day)], np.uint64)

    def decoded(self, stretch: Stretch) -> Floats:
        """Return the weighted sum of the publications."""
        total = np.zeros(self._state.shape[1:])
        for weight, table in zip(stretch.weights.tolist(), self._tables, strict=False):
            if weight:
                total += weight * table
        return total

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


def drawn_pieces(design: Design, day: int) -> list[tuple[str, Any]]:
    """Return the names of what was drawn by a day, for a permit that goes on from there."""
    names: Any = design.names(day) if isinstance(design, Blocks) else range(1, day + 1)
    return [(PUBLICATIONS, name) for name in names]


def checked_days(days: int | None) -> int | None:
    """Return a stream's days as they were asked for: None without an end."""
    return None if days is None else whole_number("days", days, low=1, high=LONGEST)
