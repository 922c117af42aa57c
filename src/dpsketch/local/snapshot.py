"""What a collector knew at one moment: it answers, and takes no more reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.local.consistency import Consistency, make_consistent
from dpsketch.local.ids import in_order
from dpsketch.local.intervals import Frequencies
from dpsketch.local.protocol import LocalProtocol
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Guarantee
from dpsketch.release import require_keys, typed_keys
from dpsketch.results import Estimates, key_list

__all__ = ["Snapshot"]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Answers from the reports that were counted when it was taken; get it from :meth:`Collector.snapshot`.

    Attributes
    ----------
    protocol : LocalProtocol
        The protocol of the reports.
    tally : Tally
        What was kept of them.
    ids : numpy.ndarray
        Their identifiers.
    guarantee : Guarantee
        What each promised its sender.
    for_tests : bool
        Whether some were made with a seed for tests.
    """

    kind: ClassVar[str] = "local"

    protocol: LocalProtocol
    tally: Any
    ids: npt.NDArray[np.uint64]
    guarantee: Guarantee
    for_tests: bool

    @property
    def users(self) -> int:
        """How many reports they are."""
        return len(self.ids)

    def to_document(self) -> files.Document:
        """Return the reports as a document of the file format, from which a collector goes on."""
        header = {
            "spec": self.protocol.to_json(),
            "users": self.users,
            "noise_for_tests": self.for_tests,
            "guarantee": self.guarantee.to_json(),
        }
        return files.Document(self.kind, False, header, {"ids": in_order(self.ids), **self.tally.arrays()})

    @property
    def key_columns(self) -> tuple[str, ...]:
        """No columns: an item is one key."""
        return ()

    @property
    def searches(self) -> bool:
        """Whether keys are searched for: no, candidates are named."""
        return False

    @property
    def counts(self) -> str:
        """What an estimate counts."""
        return self.protocol.counts

    def estimate(self, keys: Any, *, confidence: float = 0.95, consistency: Consistency = "none") -> Estimates:
        """Estimate the share of people who hold each key, as :meth:`Collector.estimate` does."""
        confidence = probability("confidence", confidence)
        prints = self.protocol.fingerprints(keys)
        found = make_consistent(self._frequencies(prints, confidence), consistency, confidence)
        return Estimates(key_list(keys), found.value, found.low, found.high, confidence, self.counts)

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
        stated: KeyType | None = getattr(self.protocol, "key_type", None)
        return stated

    def top(self, n: int, *, candidates: Any, confidence: float = 0.95) -> Estimates:
        """Return the ``n`` candidates with the largest estimates, as :meth:`Collector.top` does."""
        n = whole_number("n", n, low=1, high=2**31)
        confidence = probability("confidence", confidence)
        prints, first = np.unique(self.protocol.fingerprints(candidates), return_index=True)
        if len(first) == 0:
            raise InvalidInput("top needs at least one candidate key.")
        asked = key_list(candidates)
        found = self._frequencies(prints, 1 - (1 - confidence) / len(first))
        order = np.argsort(-found.value, kind="stable")[:n]
        chosen = [asked[first[i]] for i in order]
        return Estimates(chosen, found.value[order], found.low[order], found.high[order], confidence, self.counts)

    def _frequencies(self, prints: Any, confidence: float) -> Frequencies:
        if self.users == 0:
            raise InvalidInput("there are no reports yet; add() some first.")
        return self.protocol.frequencies(self.tally, self.users, prints, confidence)
