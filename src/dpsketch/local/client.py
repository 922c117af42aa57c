"""One person's device: it counts what it has revealed over time, and repeats its answer while the set is unchanged.

It may keep its memory in a file, which one process at a time may change. Beside the file lies a lock (``<name>.lock``,
empty, never deleted by us). Whoever wants to report holds it while the file is read, changed and written, so that two
processes cannot spend one budget. A lock belongs to the system's open file: it ends with the process, however that
ends. The file itself is replaced whole (:func:`dpsketch.files.write`), so that it can be read at any time.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from dpsketch import files
from dpsketch.errors import BudgetExceeded, FileRefused, InvalidInput, SensitiveData, SpecMismatch
from dpsketch.local.catalogue import for_people, protocol_from_json
from dpsketch.local.protocol import LocalProtocol, People, read_people
from dpsketch.local.wire import HEAD_BYTES, ID_BYTES
from dpsketch.noise import random_bytes
from dpsketch.numbers import real_number, whole_number
from dpsketch.privacy import Guarantee, PureCost
from dpsketch.processes import OneProcess

__all__ = ["Client", "Memory", "MemoryInFile", "MemoryInProcess", "Terms", "Unchanged", "locked"]

KIND = "local-client"
_PATIENCE = 60.0  # seconds that a process waits for the others; each holds the lock for milliseconds
_PAUSE = 0.005
_SECRET_BYTES = 32
_NOT_OURS = "the file is not the state of a client as dpsketch writes it; nothing was drawn."

Unchanged = Literal["same", "fresh"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a device agreed to when its memory began; none of it changes afterwards."""

    protocol: LocalProtocol
    budget: float
    unchanged: Unchanged

    def to_header(self) -> dict[str, Any]:
        """Return the terms as JSON-ready values."""
        return {"spec": self.protocol.to_json(), "budget": self.budget, "unchanged": self.unchanged}

    @classmethod
    def from_document(cls, document: files.Document) -> Terms:
        """Read the terms of a device's file, whoever wrote it."""
        if document.kind != KIND or not document.sensitive:
            raise FileRefused("the file is not the state of a client.")
        header = document.header
        budget, unchanged = header.get("budget"), header.get("unchanged")
        if not isinstance(budget, float) or unchanged not in ("same", "fresh"):
            raise FileRefused(_NOT_OURS)
        return cls(protocol_from_json(header.get("spec", {})), budget, unchanged)


@dataclass(slots=True)
class Memory:
    """The last set with its answer, the messages sent, and how many draws were charged. Sensitive."""

    secret: bytes = field(default_factory=lambda: random_bytes(_SECRET_BYTES), repr=False)
    made: int = 0
    last: tuple[bytes, bytes] | None = field(default=None, repr=False)  # a digest of the set, and the content drawn
    sent: dict[str, bytes] = field(default_factory=dict, repr=False)

    def to_document(self, terms: Terms) -> files.Document:
        """Return the memory as a document of the file format."""
        arrays: dict[str, Any] = {
            "secret": [self.secret],
            "last": list(self.last or ()),
            "periods": list(self.sent),
            "messages": list(self.sent.values()),
        }
        return files.Document(KIND, True, {**terms.to_header(), "made": self.made}, arrays)

    @classmethod
    def from_document(cls, document: files.Document, terms: Terms) -> Memory:
        """Rebuild a memory, which must be of these terms."""
        if Terms.from_document(document) != terms:
            raise SpecMismatch(
                "the client's file is of another protocol or budget. Open it with those it was made with; "
                "a second budget for one person would add to the first."
            )
        arrays: Mapping[str, Any] = document.arrays
        try:
            last = tuple(bytes(each) for each in arrays["last"])
            memory = cls(
                bytes(arrays["secret"][0]),
                whole_number("made", document.header["made"], low=0, high=2**31),
                (last[0], last[1]) if last else None,
                {str(name): bytes(sent) for name, sent in zip(arrays["periods"], arrays["messages"], strict=True)},
            )
        except (KeyError, IndexError, TypeError, ValueError):
            memory = cls(b"")
        # An answer without a charge would be a budget that was written down by somebody else.
        if len(memory.secret) != _SECRET_BYTES or (memory.last is not None and memory.made == 0):
            raise FileRefused(_NOT_OURS)
        return memory


class MemoryInProcess(OneProcess):
    """A memory that ends with the process; threads take turns, and a forked child has no part in it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._turn = threading.Lock()

    def look(self) -> Memory:
        """Return the memory as it is."""
        self._refuse_copy()
        return self._memory

    @contextmanager
    def changing(self) -> Iterator[Memory]:
        """Have the memory for oneself."""
        self._refuse_copy()
        with self._turn:
            yield self._memory

    def save(self, memory: Memory) -> None:
        """Keep what was changed: nothing to do."""


class MemoryInFile:
    """A memory in a file, read anew whenever it is used, because others may use it too."""

    def __init__(self, path: str | PathLike[str], terms: Terms) -> None:
        self._path = Path(os.path.realpath(path))  # one lock, by whatever link the file is reached
        self._lock = self._path.with_name(self._path.name + ".lock")
        self._terms = terms
        self._known: tuple[bytes, int] | None = None  # the secret, and the charges seen
        self.look()

    def look(self) -> Memory:
        """Read the file; without one, a new memory.

        Raises
        ------
        FileRefused
            It is damaged, or older than what this process saw before: restored from a copy, or gone.
        """
        known = self._known  # before the read: another thread may write meanwhile
        try:
            document = files.read(self._path, allow_sensitive=True)
        except FileNotFoundError:
            if known is not None:
                raise _rolled_back() from None
            return Memory()
        memory = Memory.from_document(document, self._terms)
        if known is not None and (memory.secret != known[0] or memory.made < known[1]):
            raise _rolled_back()
        self._known = memory.secret, memory.made
        return memory

    @contextmanager
    def changing(self) -> Iterator[Memory]:
        """Have the file for oneself; what is not saved is forgotten."""
        with locked(self._lock):
            yield self.look()

    def save(self, memory: Memory) -> None:
        """Have the memory on the disk before anything else happens."""
        files.write(self._path, memory.to_document(self._terms))
        self._known = memory.secret, memory.made


def _rolled_back() -> FileRefused:
    return FileRefused(
        "the client's file is gone, or older than when this program last used it: somebody deleted it, or put a copy "
        "back. What was reported meanwhile would not be counted. Nothing was drawn; bring the newest file back."
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that one process (and one thread of it) has at a time; the system ends it with the process.

    Raises
    ------
    FileRefused
        Somebody else held it for a minute.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if _acquire(descriptor):
                try:
                    # Had somebody deleted the file in between, the next one would lock another.
                    if _is_at(descriptor, path):
                        yield
                        return
                finally:
                    _give_up(descriptor)
        finally:
            os.close(descriptor)
        if time.monotonic() > end:
            raise FileRefused(
                "another process has kept the client's file locked for a minute; nothing was drawn. End it first."
            )
        time.sleep(_PAUSE)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _acquire(descriptor: int) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _give_up(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _acquire(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _give_up(descriptor: int) -> None:
        # Closing alone would leave the lock to a child that was forked meanwhile.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_SLACK = 1e-12  # relative: ten reports of 0.1 fit into a budget of 1

MEMOISED = (
    "While a set stays unchanged, the device repeats one randomised answer, so repetition reveals nothing more. Every "
    "change costs a new answer, also a change back to an earlier set. A repeated answer is a mark: someone who sees "
    "the reports of two periods can tell which are of one person, and so when the set changed. The promise compares "
    "sequences of sets that change at the same times."
)


class Client:
    """A device that reports one person's sets over time, within a budget of its own.

    Parameters
    ----------
    protocol : LocalProtocol
        The public spec, as the collector announced it. Read its ``epsilon`` before agreeing. What is kept for
        comparison, or does not hold what it states, is refused.
    budget : float
        The most ε that all reports together may reveal about the person.
    path : path, optional
        Where the client keeps its state, in a file that is sensitive. It is locked while a report is made, and written
        before anything is drawn, so that a crash can only over-count and several processes share one budget. A file
        that exists is read, and must be of the same protocol and budget. Have one file a collection: the budgets of
        several add up. Without a path, the client refuses to work in a forked child.
    unchanged : {"same", "fresh"}
        How the device answers a set that is the same as in its last report. "same": with the last randomised answer,
        at no cost, by which the reports of a person can be linked. "fresh": with a new one, which costs ε and links
        nothing.

    Privacy
    -------
    An answer costs ε, charged and on the disk before anything is drawn; when the budget does not cover it,
    :meth:`report` refuses and nothing is revealed by this class (that a device has fallen silent may be noticed by
    whoever waits for it). All randomness is the operating system's.

    With ``unchanged="same"``, a set that did not change since the last report is answered with the *same* randomised
    content under a new identifier, and costs nothing: asking a hundred times does not average the noise away. Every
    change draws a new answer and costs ε, also a change back to an earlier set: were the earlier answer repeated, the
    reports would show that the set returned. For any two sequences of sets that change at the same times, the
    probabilities of all reports together differ by a factor of at most e^(ε · number of answers drawn). Once the budget
    does not cover a change, the device stays silent: the set from before the change is refused as well.

    The content is a mark: among 1,000 people whose sets did not change, the reports of one period are matched to those
    of another for 99% of people with :class:`SubsetHashing` at its defaults. So a collector that never learns names can
    still follow a person until their set changes, and join what else it knows of each report. Use it where the
    collector knows the reporter anyway, or never sees single reports.

    With ``unchanged="fresh"``, every period is a draw of its own: k periods cost k·ε, and linking two of them has no
    more to go on than the sets themselves reveal within that ε.

    The state is as good as its file: whoever puts an old copy back, or deletes it between two runs, has the person
    spend the same budget again. While a client lives, it notices both and refuses. A file that is damaged is refused.

    Examples
    --------
    >>> from dpsketch import local
    >>> client = Client(local.SubsetHashing(epsilon=1.0, max_items=4), budget=2.0)
    >>> monday = client.report(["tea", "milk"], period="monday")
    >>> tuesday = client.report(["milk", "tea"], period="tuesday")
    >>> monday == tuesday, monday[25:] == tuesday[25:], client.spent
    (False, True, 1.0)
    """

    def __init__(
        self,
        protocol: LocalProtocol,
        budget: float,
        path: str | PathLike[str] | None = None,
        *,
        unchanged: Unchanged = "same",
    ) -> None:
        self._protocol = for_people(protocol)
        budget = real_number("budget", budget)
        if not math.isfinite(budget):
            raise InvalidInput("budget must be a finite number: the most ε that all reports together may reveal.")
        if not budget >= self._protocol.epsilon:
            raise InvalidInput(
                f"budget must cover at least one report: the collector asks for ε={self._protocol.epsilon:g} each."
            )
        if unchanged not in ("same", "fresh"):
            raise InvalidInput("unchanged is 'same' or 'fresh'.")
        self._terms: Terms = Terms(self._protocol, float(budget), unchanged)
        self._memory: MemoryInProcess | MemoryInFile = (
            MemoryInProcess(Memory()) if path is None else MemoryInFile(path, self._terms)
        )

    @property
    def protocol(self) -> LocalProtocol:
        """The protocol it reports by."""
        return self._protocol

    @property
    def spent(self) -> float:
        """The ε revealed so far, by this process and all others that use the file."""
        return self._memory.look().made * self._protocol.epsilon

    @property
    def remaining(self) -> float:
        """The ε that is left."""
        return max(0.0, self._terms.budget - self.spent)

    @property
    def guarantee(self) -> Guarantee:
        """What all reports so far promise together."""
        one = self._protocol.guarantee
        made = self._memory.look().made
        return Guarantee(
            epsilon=made * one.epsilon,
            delta=0.0,
            unit=one.unit,
            costs=(PureCost(one.epsilon),) * made,
            mechanism=f"{made} answers of: {one.mechanism}",
            caveat=MEMOISED if one.holds and self._terms.unchanged == "same" else one.caveat,
            holds=one.holds,
        )

    def __repr__(self) -> str:
        return f"<Client of {self._protocol.name}, spec {self._protocol.fingerprint}, sensitive>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SensitiveData("a Client cannot be pickled or copied: two copies would spend one budget. Give it a path.")

    def report(self, items: Any, *, period: str | None = None) -> bytes:
        """Return this person's report as compact bytes, ready to be sent.

        Parameters
        ----------
        items : column of keys
            What the person holds now.
        period : str, optional
            What the report is for, as in "2026-W46". A period has one report: asked again, the very same bytes are
            returned whatever the items are, so that they can be sent again until they arrive.

        Raises
        ------
        BudgetExceeded
            An answer must be drawn and the budget does not cover it. Nothing was drawn.
        FileRefused
            The client's file was damaged, deleted or put back to an older state, or another process holds it. Nothing
            was drawn.
        """
        _check_period(period)
        with self._memory.changing() as memory:
            if period is not None and period in memory.sent:
                return memory.sent[period]
            message = self._protocol.form.head + random_bytes(ID_BYTES) + self._answer(memory, items)
            if period is not None:
                memory.sent[period] = message
            self._memory.save(memory)
        return message

    def _answer(self, memory: Memory, items: Any) -> bytes:
        """Return the content of a report: the last one, or one that is charged, on the disk, and only then drawn."""
        person = self._protocol.read_person(items)
        digest = _digest(read_people([items], self._protocol.key_type), memory.secret)
        if memory.last is not None and memory.last[0] == digest:
            return memory.last[1]
        # The set changed. Whatever ends this report, an answer from before the change must not appear again: it would
        # tell a set that returns from one that does not.
        memory.last = None
        if (memory.made + 1) * self._protocol.epsilon > self._terms.budget * (1 + _SLACK):
            self._memory.save(memory)
            raise BudgetExceeded(
                f"this device has spent ε={memory.made * self._protocol.epsilon:g} of {self._terms.budget:g}; another "
                f"answer would cost {self._protocol.epsilon:g} more. Nothing was drawn or charged."
            )
        memory.made += 1
        self._memory.save(memory)
        columns = {**self._protocol.randomise(person), "id": np.zeros((1, 2), np.uint64)}
        drawn = self._protocol.form.to_bytes(columns)[HEAD_BYTES + ID_BYTES :]
        if self._terms.unchanged == "same":
            memory.last = digest, drawn
        return drawn


def _digest(people: People, secret: bytes) -> bytes:
    """Name a set without keeping it: a keyed hash of its sorted fingerprints."""
    held = np.unique(people.prints).astype("<u8").tobytes()
    return hashlib.blake2b(held, key=secret, digest_size=16).digest()


def _check_period(period: Any) -> None:
    if period is None:
        return
    if not isinstance(period, str):
        raise InvalidInput("period is a text, or None.")
    try:
        period.encode()
    except UnicodeEncodeError:
        raise InvalidInput("period is not valid Unicode (half of a surrogate pair).") from None
