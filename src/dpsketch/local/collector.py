"""The collector: takes reports, refuses what does not belong, and estimates how many people hold a key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import files, plots
from dpsketch.changes import Changeable
from dpsketch.errors import FileRefused, InvalidInput, SpecMismatch
from dpsketch.hashing import KeyType
from dpsketch.local.intervals import Frequencies
from dpsketch.local.protocol import FOR_TESTS, LocalProtocol
from dpsketch.local.tallies import Identifiers, in_order
from dpsketch.local.wire import Columns
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Guarantee
from dpsketch.release import Release, require_keys, typed_keys
from dpsketch.results import Estimates, key_list

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Collector", "Received"]

_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a stream of messages: how many were counted, and how many were refused for which reason."""

    accepted: int
    repeated: int
    other_spec: int
    malformed: int

    @property
    def refused(self) -> int:
        """How many were refused."""
        return self.repeated + self.other_spec + self.malformed


class Collector(Changeable, Release):
    """Collects the reports of one protocol. Everything in it is already private: it may be saved, copied and shared.

    Build it with :meth:`LocalProtocol.collector`. It remembers the identifier of every report it has counted, so that
    no report is counted twice: 32 to 48 bytes a report, beside what its protocol keeps (:attr:`memory`). Interrupted
    while it counts, it refuses to go on, because some reports would be remembered and not counted.

    Examples
    --------
    >>> from dpsketch import local
    >>> protocol = local.SubsetHashing(epsilon=4.0, max_items=2)
    >>> collector = protocol.collector()
    >>> collector.add(protocol.report([["tea", "milk"], ["tea"]] * 500)).users
    1000
    >>> bool(collector.estimate(["tea"]).low[0] > 0.5)
    True
    """

    kind: ClassVar[str] = "local"

    def __init__(self, protocol: LocalProtocol) -> None:
        self._protocol = protocol
        self._form = protocol.form
        self._ids = Identifiers()
        self._tally = protocol.tally()
        self._for_tests = False

    @property
    def protocol(self) -> LocalProtocol:
        """The protocol whose reports it takes."""
        return self._protocol

    @property
    def users(self) -> int:
        """The number of reports counted."""
        return len(self._ids)

    @property
    def memory(self) -> int:
        """Bytes in use for identifiers and counts."""
        return self._ids.memory + self._tally.memory

    @property
    def guarantee(self) -> Guarantee:
        """What each report promised its sender; of no effect for reports that were made with a seed for tests."""
        promised = self._protocol.guarantee
        if self._for_tests and promised.holds:
            return replace(promised, holds=False, caveat=FOR_TESTS)
        return promised

    @property
    def counts(self) -> str:
        """What an estimate counts."""
        return self._protocol.counts

    def __repr__(self) -> str:
        return f"<Collector of {self.users} {self._protocol.name} reports, spec {self._protocol.fingerprint}>"

    def add(self, reports: pa.Table) -> Self:
        """Count a table of reports, all or none of them.

        Raises
        ------
        SpecMismatch
            The reports are of another spec.
        InvalidInput
            One of them is malformed, or was counted before. Nothing was added; :meth:`receive` takes the good ones of
            a mixed lot.
        """
        columns, for_tests = self._form.from_table(reports)
        if columns is None:
            raise SpecMismatch(
                "the reports are of another spec than this collector; nothing was added. "
                "Collect them with the protocol that made them."
            )
        if not bool(np.all(self.wellformed(columns))):
            raise InvalidInput("a report has values that its protocol cannot produce; nothing was added.")
        self._begin_change()
        if not self._ids.insert_all(columns["id"]):
            self._undo_change()
            raise InvalidInput("a report was counted before, or is twice in the table; nothing was added.")
        self._tally.add(columns)
        self._for_tests |= for_tests
        return self

    def receive(self, messages: Iterable[Any]) -> Received:
        """Count messages from people one does not trust: those that are well-formed, of this spec, and new.

        Parameters
        ----------
        messages : iterable
            Each one report: compact bytes, JSON text, or a decoded JSON object.
        """
        accepted = repeated = other = malformed = 0
        stream = iter(messages)
        while batch := list(islice(stream, _BATCH)):
            parsed = self._form.parse(batch)
            good = self.wellformed(parsed.columns)
            fresh = self.count({name: values[good] for name, values in parsed.columns.items()})
            accepted += int(np.count_nonzero(fresh))
            repeated += int(np.count_nonzero(~fresh))
            other += parsed.other_spec
            malformed += parsed.malformed + int(np.count_nonzero(~good))
        return Received(accepted, repeated, other, malformed)

    def wellformed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which reports, taken apart, have an identifier and values that the protocol can produce."""
        has_id: npt.NDArray[np.bool_] = (columns["id"] != 0).any(axis=1)
        return has_id & self._protocol.plausible(columns)

    def unseen(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which well-formed reports :meth:`count` would count; of equal ones in a batch the first."""
        self._begin_change()
        return self._ids.unseen(columns["id"])

    def count(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Count the well-formed reports that were not counted before, and say which they are."""
        self._begin_change()
        fresh = self._ids.insert(columns["id"])
        self._tally.add({name: values[fresh] for name, values in columns.items()})
        return fresh

    def merge(self, other: Collector) -> None:
        """Add another collector of the same spec; the result is that of one which saw both streams."""
        if not isinstance(other, Collector) or other._protocol != self._protocol:
            raise SpecMismatch("cannot merge: the two collect reports of different specs.")
        other._refuse_broken()
        self._begin_change()
        if not self._ids.insert_all(other._ids.rows()):
            self._undo_change()
            raise InvalidInput("cannot merge: a report is in both collectors; nothing was added.")
        self._tally.merge(other._tally)
        self._for_tests |= other._for_tests

    def estimate(self, keys: Any, *, confidence: float = 0.95) -> Estimates:
        """Estimate the share of people who hold each key.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            The keys to look up.
        confidence : float
            Coverage of each interval, for keys chosen without looking at the reports (:meth:`top` otherwise).

        Returns
        -------
        Estimates
            Shares between 0 and 1 (a raw estimate may lie outside). Times :attr:`users` it is a number of people. Where
            the protocol has a cap on items, the shares and intervals are of the clipped sets, as :attr:`counts` says.
        """
        confidence = probability("confidence", confidence)
        found = self._frequencies(self._protocol.fingerprints(keys), confidence)
        return Estimates(key_list(keys), found.value, found.low, found.high, confidence, self.counts)

    def top(self, n: int, *, candidates: Any, confidence: float = 0.95) -> Estimates:
        """Return the ``n`` candidates with the largest estimates, largest first.

        The intervals hold for all candidates at once with the stated confidence (Bonferroni), because those returned
        were selected by the very noise they are about.
        """
        n = whole_number("n", n, low=1, high=2**31)
        confidence = probability("confidence", confidence)
        prints, first = np.unique(self._protocol.fingerprints(candidates), return_index=True)
        if len(first) == 0:
            raise InvalidInput("top needs at least one candidate key.")
        asked = key_list(candidates)
        found = self._frequencies(prints, 1 - (1 - confidence) / len(first))
        order = np.argsort(-found.value, kind="stable")[:n]
        chosen = [asked[first[i]] for i in order]
        return Estimates(chosen, found.value[order], found.low[order], found.high[order], confidence, self.counts)

    def _frequencies(self, prints: npt.NDArray[np.uint64], confidence: float) -> Frequencies:
        if self.users == 0:
            raise InvalidInput("there are no reports yet; add() some first.")
        # A joint confidence next to 1 may be rounded to it, and has no interval then.
        return self._protocol.frequencies(self._tally, self.users, prints, probability("confidence", confidence))

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Estimate the share of people who hold each key, in the words of a question."""
        require_keys(asked)
        if estimator is not None:
            raise InvalidInput("local reports are estimated in one way: leave the estimator out.")
        return self.estimate(typed_keys(asked, self.key_type, key_type), confidence=confidence)

    @property
    def key_type(self) -> KeyType | None:
        """What its keys are, where the protocol says."""
        return self._protocol.key_type

    def plot(self, *, candidates: Any = None, n: int = 20) -> Figure:
        """Draw the ``n`` candidates that most people hold, with their intervals."""
        if candidates is None:
            raise InvalidInput("a collection knows shares, not keys. Give candidates, keys that people may hold.")
        words = f"ε = {self.guarantee.epsilon:g} a report\nCounted: {self.counts}"
        across = "estimated share of people, with 95% intervals that hold for all at once"
        return plots.bars(self.top(n, candidates=candidates), words, across)

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the ``n`` candidates that most people hold."""
        return self.plot(candidates=candidates, n=n)

    def copy(self) -> Collector:
        """Return a collector that goes its own way from here, such as one to be asked and saved while this one counts.

        It takes next to no time: counters are copied, reports and identifiers that are kept are not.
        """
        same = Collector(self._protocol)
        same._ids, same._tally, same._for_tests = self._ids.copy(), self._tally.copy(), self._for_tests
        return same

    @property
    def tally(self) -> Any:
        """What is kept of the reports; for the protocol's own methods."""
        return self._tally

    def save(self, path: str | PathLike[str]) -> None:
        """Write the collector to a ``.dps`` file, from which collecting may go on."""
        files.write(path, self.to_document())

    def to_document(self) -> files.Document:
        """Return the collector as a document of the file format."""
        header = {
            "spec": self._protocol.to_json(),
            "users": self.users,
            "noise_for_tests": self._for_tests,
            "guarantee": self.guarantee.to_json(),
        }
        arrays = {"ids": in_order(self._ids.rows()), **self._tally.arrays()}
        return files.Document(self.kind, False, header, arrays)

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a collector from a decoded file."""
        from dpsketch.local.catalogue import nonprivate_protocol_from_json

        collector = cls(nonprivate_protocol_from_json(document.header["spec"]))
        users = whole_number("users", document.header["users"], low=0, high=2**62)
        ids = document.arrays.get("ids")
        if not isinstance(ids, np.ndarray) or ids.dtype != np.uint64 or ids.shape != (users, 2):
            raise FileRefused("the file's identifiers are not one a report.")
        if not bool(np.all((ids != 0).any(axis=1))) or not collector._ids.insert_all(ids):
            raise FileRefused("the file holds a report's identifier twice, or one that is not valid.")
        collector._tally.load(dict(document.arrays), users)
        collector._for_tests = bool(document.header["noise_for_tests"])
        return collector
