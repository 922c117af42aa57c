"""One person's device: it counts what it has revealed over time, and repeats itself rather than reveal more."""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np

from dpsketch import files
from dpsketch.errors import BudgetExceeded, FileRefused, InvalidInput, SensitiveData, SpecMismatch
from dpsketch.local.catalogue import protocol_from_json
from dpsketch.local.protocol import LocalProtocol
from dpsketch.local.sets import People, read_people
from dpsketch.local.wire import HEAD_BYTES, ID_BYTES
from dpsketch.noise import random_bytes
from dpsketch.numbers import real_number, whole_number
from dpsketch.privacy import Guarantee, PureCost

__all__ = ["Client"]

KIND = "local-client"
_SLACK = 1e-12  # relative: ten reports of 0.1 fit into a budget of 1

MEMOISED = (
    "An unchanged set is answered with the same randomised answer, so that repetition reveals nothing more about it. "
    "Whoever links one person's reports over time sees when the set changed: the promise is about what was held, given "
    "the times of change."
)


class Client:
    """A device that reports one person's sets over time, within a budget of its own.

    Parameters
    ----------
    protocol : LocalProtocol
        The public spec, as the collector announced it. Read its ``epsilon`` before agreeing.
    budget : float
        The most ε that all reports together may reveal about the person.
    path : path, optional
        Where the client keeps its state, in a file that is sensitive. It is written before a report is returned, so
        that a crash can only over-count. A file that exists is read, and must be of the same protocol and budget.

    Privacy
    -------
    A new set costs ε, charged before anything is drawn; when the budget does not cover it, :meth:`report` refuses and
    nothing is revealed by this class (that a device has fallen silent may be noticed by whoever waits for it). A set
    that was reported before is answered with the *same* randomised content under a new identifier, and costs nothing:
    asking a hundred times does not average the noise away. Two sequences of sets with the same times of change are told
    apart by a factor of at most e^(ε · number of different sets). The times of change themselves are not hidden from
    whoever links the reports of one person. All randomness is the operating system's.

    Examples
    --------
    >>> from dpsketch import local
    >>> client = Client(local.SubsetHashing(epsilon=1.0, max_items=4), budget=2.0)
    >>> monday = client.report(["tea", "milk"], period="monday")
    >>> tuesday = client.report(["milk", "tea"], period="tuesday")
    >>> monday == tuesday, monday[25:] == tuesday[25:], client.spent
    (False, True, 1.0)
    """

    def __init__(self, protocol: LocalProtocol, budget: float, path: str | PathLike[str] | None = None) -> None:
        if not isinstance(protocol, LocalProtocol) or not protocol.guarantee.epsilon > 0:
            raise InvalidInput("protocol must be a local protocol such as SubsetHashing(…).")
        budget = real_number("budget", budget)
        if not budget >= protocol.epsilon:
            raise InvalidInput("budget must be a number that covers at least one report's epsilon.")
        self._protocol = protocol
        self._budget = float(budget)
        self._path = None if path is None else Path(path)
        self._secret = random_bytes(32)
        self._made = 0
        self._answers: dict[str, bytes] = {}
        self._sent: dict[str, bytes] = {}
        if self._path is not None and self._path.exists():
            self._load(files.read(self._path, allow_sensitive=True))

    @property
    def protocol(self) -> LocalProtocol:
        """The protocol it reports by."""
        return self._protocol

    @property
    def spent(self) -> float:
        """The ε revealed so far."""
        return self._made * self._protocol.epsilon

    @property
    def remaining(self) -> float:
        """The ε that is left."""
        return max(0.0, self._budget - self.spent)

    @property
    def guarantee(self) -> Guarantee:
        """What all reports so far promise together."""
        one = self._protocol.guarantee
        return Guarantee(
            epsilon=self.spent,
            delta=0.0,
            unit=one.unit,
            costs=(PureCost(one.epsilon),) * self._made,
            mechanism=f"{self._made} answers of: {one.mechanism}",
            caveat=MEMOISED if one.holds else one.caveat,
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
            The set is new and the budget does not cover another report. Nothing was drawn.
        """
        if period is not None and not isinstance(period, str):
            raise InvalidInput("period is a text, or None.")
        if period is not None and period in self._sent:
            return self._sent[period]
        person = self._protocol.read_person(items)
        digest = self._digest(read_people([items], self._protocol.key_type))
        form = self._protocol.form
        if digest not in self._answers:
            self._charge()
            columns = {**self._protocol.randomise(person), "id": np.zeros((1, 2), np.uint64)}
            self._answers[digest] = form.to_bytes(columns)[HEAD_BYTES + ID_BYTES :]
        message = form.head + random_bytes(ID_BYTES) + self._answers[digest]
        if period is not None:
            self._sent[period] = message
        self._save()
        return message

    def _charge(self) -> None:
        if (self._made + 1) * self._protocol.epsilon > self._budget * (1 + _SLACK):
            raise BudgetExceeded(
                f"this device has spent ε={self.spent:g} of {self._budget:g}; a report of a new set would cost "
                f"{self._protocol.epsilon:g} more. Nothing was drawn or charged."
            )
        self._made += 1
        self._save()

    def _digest(self, people: People) -> str:
        """Name a set without keeping it: a keyed hash of its sorted fingerprints."""
        held = np.unique(people.prints).astype("<u8").tobytes()
        return hashlib.blake2b(held, key=self._secret, digest_size=16).hexdigest()

    def _save(self) -> None:
        if self._path is not None:
            files.write(self._path, self._document())

    def _document(self) -> files.Document:
        header = {"spec": self._protocol.to_json(), "budget": self._budget, "made": self._made}
        arrays: dict[str, Any] = {
            "secret": [self._secret],
            "sets": list(self._answers),
            "answers": list(self._answers.values()),
            "periods": list(self._sent),
            "messages": list(self._sent.values()),
        }
        return files.Document(KIND, True, header, arrays)

    def _load(self, document: files.Document) -> None:
        if document.kind != KIND or not document.sensitive:
            raise FileRefused("the file is not the state of a client.")
        if protocol_from_json(document.header["spec"]) != self._protocol or document.header["budget"] != self._budget:
            raise SpecMismatch(
                "the client's file is of another protocol or budget. Open it with those it was made with; "
                "a second budget for one person would add to the first."
            )
        arrays: dict[str, Any] = document.arrays
        self._made = whole_number("made", document.header["made"], low=0, high=2**31)
        self._secret = bytes(arrays["secret"][0])
        self._answers = {
            str(name): bytes(answer) for name, answer in zip(arrays["sets"], arrays["answers"], strict=True)
        }
        self._sent = {str(name): bytes(sent) for name, sent in zip(arrays["periods"], arrays["messages"], strict=True)}

    def to_sensitive_bytes(self) -> bytes:
        """Return the client's state, for safe-keeping on the device."""
        return files.encode(self._document())

    @classmethod
    def from_sensitive_bytes(cls, data: bytes) -> Self:
        """Rebuild a client from :meth:`to_sensitive_bytes`; the one it came from must not be used any more."""
        document = files.decode(data, allow_sensitive=True)
        if document.kind != KIND:
            raise FileRefused("these bytes are not the state of a client.")
        client = cls(protocol_from_json(document.header["spec"]), float(document.header["budget"]))
        client._load(document)
        return client
