"""Publish the days of a stream: integer tables come in day by day, and what is published of them is drawn once.

A stream knows nothing of records. Its owner counts today's records into the tables of a day, and hands them over in the
evening.

**Names** are discovered day by day: a key's name is published once its noisy total passes a threshold.

Every key that ever came has a row: its publications over *all* days from the first on, with noise for days before it
came drawn when it comes, under the same design as a public list. From then on, on **every** day, its decoded total S_t
is held against T_t; on the first day that it passes, the key's name and all its publications so far are shown, and each
later one on its day.

**Privacy.** Let σ be the noise, B_t the weights of the total, W what one unit adds to one key in all, ℓ the keys that
it touches in all, n the days, and

    T_t = W + (½ + floors)·‖B_t‖₁ + σ·‖B_t‖₂·Q⁻¹(δ_T/(n·ℓ)).

Let D' have a unit more than D, and E the event that some key passes on a day when in D' only the unit has touched it. E
follows from the publications alone, and has a probability of at most δ_T in either world: n·ℓ looks, in each of which
rounding and floors move the total by no more than what the second term allows. Off E, what is shown is one function
of the publications in both worlds, that of D's schedule, and the publications are one Gaussian mechanism of μ. So all
that is shown is (ε, δ_G(ε; μ) + δ_T)-private. Where a unit is replaced, there are two such events, one of each unit,
and each gets half of δ_T.

Looking only on days on which a key has records would be wrong, and so would counting its days from its first: a unit
would then change the schedule of keys that others have, which E does not cover.
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
from dpsketch.laws.designs import Design, Filter, PanPrivate
from dpsketch.laws.streams import PUBLICATIONS, STATE, Found, Published
from dpsketch.noise import random_id
from dpsketch.sketches.continual.windows import Publications, Stretch, joined, mark_of
from dpsketch.sketches.partials import integer_array


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
        return [cast("Integers", table) for table in found.values()]

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
    As :mod:`dpsketch.laws.designs` proves. The state is the sums for the coming days, each under
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


class NamedStream(Stream):
    """The publications of keys that are found on the way. Sensitive: keys that did not pass are in it."""

    __slots__ = ("_names", "_nonces", "_passed", "_places", "_salt")

    def __init__(self, permit: Permit, names: None = None) -> None:
        super().__init__(permit)
        self._names: list[Any] = []
        self._places: dict[Any, int] = {}
        self._passed: Integers = np.zeros(0, np.int64)  # on which day a key did; 0 for not yet
        self._salt = random_id()
        self._nonces: list[bytes] = []  # one a day, by which copies that went on apart are told

    @property
    def law(self) -> Found:
        """What is published, and under which noise and thresholds."""
        assert isinstance(self._law, Found)
        return self._law

    @property
    def found(self) -> list[Any]:
        """The keys whose names are public, in their own order."""
        return [self._names[place] for place in self._shown()]

    @property
    def tables(self) -> Integers:
        """All that was published of the keys that were found, in order. Public."""
        shown = self._shown()
        return np.array([table[shown] for table in self._tables], np.int64).reshape(len(self._tables), len(shown))

    @property
    def _filter(self) -> Filter:
        assert isinstance(self.design, Filter)
        return self.design

    def _shown(self, day: int | None = None) -> list[int]:
        """Return the places of the keys that had passed by a day, in the order of the keys."""
        last = self._day if day is None else day
        places = np.flatnonzero((self._passed > 0) & (self._passed <= last))
        return sorted(places.tolist(), key=lambda place: self._names[place])

    def digest_of(self, day: int) -> str:
        """Return a digest of what a day published, and of nothing that it did not: few values could be searched."""
        found = hashlib.sha256(b"names %d " % day)
        # Random, and drawn with the day: while no key is found, nothing else tells two copies apart.
        found.update(self._nonces[day - 1] if 0 < day <= len(self._nonces) else b"")
        for place in self._shown(day):
            name = self._names[place]
            found.update(name if isinstance(name, bytes) else b"%d" % name)
            days = range(day) if self._passed[place] == day else [day - 1]
            found.update(np.array([self._tables[t][place] for t in days], "<i8").tobytes())
        return found.hexdigest()

    @property
    def name(self) -> str:
        """What tells this stream from others. Public."""
        charge = self._permit.charge
        terms = [self._salt, encode(self._law), None if charge is None else charge.digest]
        return hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()[:32]

    def end_day(self, today: Any) -> None:
        """Publish a day: ``today`` says how much each key has. Called within a change of the owner."""
        self.refuse_after_the_end()
        self._day += 1
        self._nonces.append(bytes.fromhex(random_id()))
        self._welcome([name for name in today if name not in self._places])
        counts = np.array([today.get(name, 0) for name in self._names], np.int64)
        steps = self.design.step(self._state, counts, self._day)
        self._tables += self._drawn([(PUBLICATIONS, (self._day, False), table) for _, table in steps])
        total = self._total(self._filter.weights(1, self._day))
        passes = (self._passed == 0) & (total > self.law.threshold(self._day))
        self._passed[passes] = self._day

    def _welcome(self, new: list[Any]) -> None:
        """Give keys that came for the first time a row, with noise of the days before."""
        if not new:
            return
        for name in new:
            self._places[name] = len(self._names)
            self._names.append(name)
        nothing = np.zeros(len(new), np.int64)
        self._state = np.concatenate([self._state, np.zeros((len(self._state), len(new)), np.int64)], axis=1)
        self._passed = np.concatenate([self._passed, nothing])
        before = np.zeros((self._day - 1, len(new)), np.int64)
        (earlier,) = self._drawn([(PUBLICATIONS, (self._day, True), before)])
        self._tables = [np.concatenate(pair) for pair in zip(self._tables, earlier, strict=True)]

    def _total(self, weights: Floats) -> Floats:
        total = np.zeros(len(self._names))
        for weight, table in zip(weights.tolist(), self._tables, strict=False):
            total += weight * table
        return total

    def published(self) -> Publications:
        """Return all that was published of the keys that were found. Public.

        Without marks: while no key is found there is nothing to tell copies by.
        """
        self._refuse_before_the_first()
        shown = self._shown()
        tables, none = [table[shown] for table in self._tables], np.zeros(0, np.uint64)
        return Publications(self.name, self.law, self._day, tables, none, self.found)

    def arrays(self) -> dict[str, files.Array]:
        """Return what a file keeps of the stream, in the order of the keys, which tells nothing. Sensitive."""
        order = sorted(range(len(self._names)), key=lambda place: self._names[place])
        published = np.array([table[order] for table in self._tables], np.int64).reshape(self._day, len(order))
        names = stored_keys([self._names[place] for place in order])
        arrays: dict[str, files.Array] = {"state": self._state[:, order], "published": published, "names": names}
        return {**arrays, "passed": self._passed[order], "salt": [bytes.fromhex(self._salt), *self._nonces]}

    def restore(self, document: files.Document, day: int) -> None:
        """Take up a stream where a file left it."""
        names, salt = read_keys(document), document.arrays.get("salt")
        if not isinstance(salt, list) or len(salt) != 1 + day or not all(isinstance(each, bytes) for each in salt):
            raise not_of_days()
        self._state = integer_array(document, "state", (self.design.buffers, len(names)))
        self._refuse_other_state()
        self._tables = list(integer_array(document, "published", (day, len(names))))
        self._passed = integer_array(document, "passed", (len(names),))
        if np.any((self._passed < 0) | (self._passed > day)):
            raise not_of_days()
        self._names, self._places = names, {name: place for place, name in enumerate(names)}
        first, *nonces = [each for each in salt or [] if isinstance(each, bytes)]
        self._salt, self._nonces = first.hex(), nonces
        self._day = day


def stored_keys(names: Sequence[Any]) -> files.Array:
    """Return keys as a file has them: the bytes of texts, or integers."""
    return list(names) if names and isinstance(names[0], bytes) else np.array(names, np.int64)


def read_keys(document: files.Document) -> list[Any]:
    """Return the keys of a file, which may have been written by anyone."""
    stored = document.arrays.get("names")
    names: list[Any] = stored.tolist() if isinstance(stored, np.ndarray) else list(stored or [])
    known = all(isinstance(each, int | bytes) for each in names) and len({type(each) for each in names}) <= 1
    if not known or len(set(names)) < len(names):
        raise not_of_days()
    return names


def not_of_days() -> FileRefused:
    """Return the refusal of a file whose days or keys no stream has published."""
    return FileRefused("the file's days and keys are not those of a stream.")
