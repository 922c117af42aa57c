"""One person's device: it counts what it has revealed over time, and repeats its answer while the set is unchanged."""

from __future__ import annotations

import hashlib
import math
from os import PathLike
from typing import Any, NoReturn, Self

import numpy as np

from dpsketch import files
from dpsketch.errors import BudgetExceeded, InvalidInput, SensitiveData
from dpsketch.local.catalogue import for_people
from dpsketch.local.device import Memory, MemoryInFile, MemoryInProcess, Terms, Unchanged
from dpsketch.local.protocol import LocalProtocol
from dpsketch.local.sets import People, read_people
from dpsketch.local.wire import HEAD_BYTES, ID_BYTES
from dpsketch.noise import random_bytes
from dpsketch.numbers import real_number
from dpsketch.privacy import Guarantee, PureCost

__all__ = ["Client"]

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

    def to_sensitive_bytes(self) -> bytes:
        """Return the client's state, for safe-keeping on the device."""
        return files.encode(self._memory.look().to_document(self._terms))

    @classmethod
    def from_sensitive_bytes(cls, data: bytes) -> Self:
        """Rebuild a client from :meth:`to_sensitive_bytes`; the one it came from must not be used any more."""
        document = files.decode(data, allow_sensitive=True)
        terms = Terms.from_document(document)
        client = cls(terms.protocol, terms.budget, unchanged=terms.unchanged)
        client._memory = MemoryInProcess(Memory.from_document(document, terms))
        return client


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
