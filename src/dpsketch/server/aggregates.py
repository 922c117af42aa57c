"""Collections in memory: each has a collector that is up to date with the store, so that an estimate reads no table.

Nobody can tell a forged report from an honest one, since an honest one may say anything. But honest reports of n people
lead to shares between 0 and 1, up to noise of a known size, and to shares whose sum is at most what one person may
hold. An estimate that is far outside says that reports were forged, or that the bounds of the spec are wrong.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsketch.answers import answer
from dpsketch.distributions import normal_quantile
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.local import Collector, LocalProtocol, protocol_from_json
from dpsketch.local.catalogue import nonprivate_protocol_from_json
from dpsketch.local.protocol import OneItem
from dpsketch.local.wire import Columns, Form
from dpsketch.results import Estimates
from dpsketch.server.refusals import Refused
from dpsketch.server.storage import COUNTERS, Chunk, CollectionPlan, CollectionRow, Storage, Ticketing

__all__ = ["Aggregate", "Aggregates", "Doubts", "doubts_of"]

# Chunks of fewer bytes than this are small. They are joined into one once they are many, or much together, so that
# reading the store stays quick and joining never keeps the writer long.
_LARGE = 1 << 17
_MANY = 256
_MUCH = 1 << 21
_FIRST_POINT = 64


class Aggregate:
    """One collection: its row, its collector, its chunks in the store, and what was refused.

    One thread counts reports; any thread may take a snapshot, which copies no reports: nobody waits for who estimates
    or exports.
    """

    def __init__(self, row: CollectionRow) -> None:
        self.row = row
        self.protocol: LocalProtocol = nonprivate_protocol_from_json(row.spec)
        self.form: Form = self.protocol.form
        self.refused = dict(row.refused)
        self._saved = dict(row.refused)
        self.reports = 0
        self.small: dict[int, Chunk] = {}
        self._noted = 0  # bits of the number of reports at the last point of the history
        self._collector = Collector(self.protocol)
        self._lock = threading.Lock()

    def is_closed(self) -> bool:
        """Say whether it takes no more reports, because someone closed it or its time is over."""
        ends = self.row.plan.closes
        return self.row.closed or (ends is not None and time.time() >= ends)

    def most(self, of_all: int) -> int:
        """Return how many reports it may hold, where every collection may hold ``of_all``."""
        own = self.row.plan.max_reports
        return of_all if own is None else min(own, of_all)

    def sort_out(self, columns: Columns) -> tuple[Any, Any]:
        """Say which reports are well-formed, and which of those are new."""
        with self._lock:
            good = self._collector.wellformed(columns)
            fresh = np.zeros(len(good), np.bool_)
            fresh[good] = self._collector.unseen({"id": columns["id"][good]})
        return good, fresh

    def count(self, columns: Columns) -> None:
        """Count reports that are in the store; those that were counted before are left out."""
        with self._lock:
            self._collector.count(columns)
            self.reports = self._collector.users

    def snapshot(self) -> Collector:
        """Return what is known now, to be asked and exported while reports come in."""
        with self._lock:
            return self._collector.copy()

    def unsaved(self) -> dict[str, int]:
        """Return by how much the counters of refusals have grown beyond what the store holds."""
        grown = {name: number - self._saved[name] for name, number in self.refused.items()}
        return {name: more for name, more in grown.items() if more}

    def note_saved(self, grown: dict[str, int]) -> None:
        """Note that the store holds so much more of the counters."""
        for name, more in grown.items():
            self._saved[name] += more

    @property
    def memory(self) -> int:
        """Bytes in use for its reports: identifiers, and what the protocol keeps."""
        with self._lock:
            return self._collector.memory

    def add_chunk(self, chunk: Chunk) -> None:
        """Note a chunk of the collection that is in the store."""
        if chunk.reports * self.form.size < _LARGE:
            self.small[chunk.number] = chunk

    def point_is_due(self) -> bool:
        """Say, once, that the number of reports has passed another power of two."""
        before, self._noted = self._noted, self.reports.bit_length()
        return self.reports >= _FIRST_POINT and before != self._noted

    def reference_keys(self) -> list[str | int]:
        """Return the keys whose interval widths stand for all: the candidates, else one that says nothing."""
        if self.row.candidates:
            return self.row.candidates[:100]
        domain = getattr(self.protocol, "domain", None)
        if isinstance(domain, tuple):
            return list(domain[:100])
        return [0] if isinstance(domain, int) or self.protocol.key_type == "int" else ["key"]

    def width(self) -> tuple[int, float] | None:
        """Return the number of reports and the mean width of the reference keys' 95% intervals, where there are any."""
        snapshot = self.snapshot()
        try:
            found = answer(snapshot, list(self.reference_keys()), 0.95, None)
        except (InvalidInput, SpecMismatch):
            return None  # the protocol takes other keys than ours for reference, or there are no reports
        return snapshot.users, float(np.mean(found.high - found.low))

    def predicted_width(self, reports: int) -> float:
        """Predict the width of the 95% interval of a rare key."""
        return float(2 * 1.959963984540054 * np.sqrt(self.protocol.variance(0.0, reports)))


class Aggregates:
    """All collections of a store."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._all: dict[str, Aggregate] = {}

    def load(self) -> None:
        """Read all collections and count all their reports."""
        self._all = {row.id: Aggregate(row) for row in self._storage.collections()}
        self._count(self._storage.chunks())

    def catch_up(self, known: int) -> int:
        """Count what is in the store and newer than a chunk, and return the newest number that is there.

        That is whatever a failed write left there after all, or what another process wrote.
        """
        newer = self._storage.chunks(known)
        self._count(newer)
        return newer[-1].number if newer else known

    def _count(self, chunks: list[Chunk]) -> None:
        grouped: dict[str, list[Chunk]] = defaultdict(list)
        for chunk in chunks:
            if chunk.collection in self._all:
                grouped[chunk.collection].append(chunk)
        for name, own in grouped.items():
            aggregate = self._all[name]
            for content in self._storage.contents([chunk.number for chunk in own]):
                aggregate.count(aggregate.form.from_bytes(content))
            for chunk in own:
                aggregate.add_chunk(chunk)
            aggregate.point_is_due()

    def __iter__(self) -> Iterator[Aggregate]:
        return iter(list(self._all.values()))

    def find(self, identifier: str) -> Aggregate | None:
        """Return a collection, if there is one."""
        return self._all.get(identifier)

    def get(self, identifier: str) -> Aggregate:
        """Return a collection, or refuse."""
        found = self.find(identifier)
        if found is None:
            raise Refused(404, "not_found", "There is no such collection.")
        return found

    def create(
        self,
        name: str,
        spec: dict[str, Any],
        candidates: list[str | int] | None,
        plan: CollectionPlan | None = None,
        tickets: Ticketing | None = None,
    ) -> Aggregate:
        """Start a collection."""
        protocol = protocol_from_json(spec)
        if candidates is not None:
            protocol.fingerprints(candidates)
        row = CollectionRow(
            secrets.token_hex(8),
            name,
            protocol.to_json(),
            candidates,
            False,
            dict.fromkeys(COUNTERS, 0),
            plan or CollectionPlan(),
            tickets,
        )
        created = Aggregate(row)
        self._storage.add_collection(row)
        self._all[row.id] = created
        return created

    def close(self, aggregate: Aggregate) -> None:
        """Take no more reports for a collection."""
        self._storage.close_collection(aggregate.row.id)
        aggregate.row = replace(aggregate.row, closed=True)

    def delete(self, aggregate: Aggregate) -> None:
        """Forget a collection and all its reports; no write for it may be under way."""
        self._storage.delete_collection(aggregate.row.id)
        self._all.pop(aggregate.row.id, None)

    def refresh(self) -> None:
        """Take note of collections that another process started, closed or deleted."""
        rows = {row.id: row for row in self._storage.collections()}
        for identifier in set(self._all) - set(rows):
            self._all.pop(identifier, None)
        for identifier, row in rows.items():
            known = self._all.get(identifier)
            if known is None:
                self._all[identifier] = Aggregate(row)
                self._count(self._storage.chunks(collection=identifier))
            elif known.row.closed != row.closed:
                known.row = replace(known.row, closed=row.closed)

    def compact(self, aggregate: Aggregate, *, all_of_them: bool = False) -> None:
        """Join a collection's small chunks into one; the order in which they came is lost, as it should be."""
        small = aggregate.small
        size = aggregate.form.size * sum(chunk.reports for chunk in small.values())
        if len(small) < 2 or not (all_of_them or len(small) >= _MANY or size >= _MUCH):
            return
        numbers = list(small)
        content = aggregate.form.by_identifier(b"".join(self._storage.contents(numbers)))
        joined = self._storage.replace(numbers, (aggregate.row.id, len(content) // aggregate.form.size, content))
        aggregate.small = {}
        aggregate.add_chunk(joined)

    def note_width(self, aggregate: Aggregate) -> None:
        """Keep a point of the history."""
        point = aggregate.width()
        if point is not None:
            self._storage.add_history(aggregate.row.id, *point)

    def history(self, aggregate: Aggregate) -> list[tuple[int, float]]:
        """Return the number of reports and the width of intervals over time, from about a hundred reports until now."""
        points = self._storage.history(aggregate.row.id)
        if aggregate.reports >= _FIRST_POINT and (not points or points[-1][0] < aggregate.reports):
            now = aggregate.width()
            points += [] if now is None else [now]
        return points


_DEVIATIONS = 6.0
"""How far outside is too far: with honest reports, fewer than one estimate in 10⁸ is."""

_WORDS = (
    "Shares lie outside what honest reports can lead to, far beyond noise: reports were probably forged, "
    "or sent more than once for a person. Do not rely on these estimates."
)


@dataclass(frozen=True, slots=True)
class Doubts:
    """What cannot be: the places of such estimates in the answer, and whether the whole cannot be."""

    places: list[int]
    any: bool

    @property
    def words(self) -> str:
        """What to tell a reader; nothing where all is possible."""
        return _WORDS if self.any else ""


def doubts_of(found: Estimates, protocol: LocalProtocol) -> Doubts:
    """Look for shares that cannot be."""
    deviations = normal_quantile(found.confidence)
    if len(found) == 0 or deviations == 0:  # at confidence 0 an interval says nothing of its deviation
        return Doubts([], False)
    # Joint intervals are wider than this says, so that less is flagged, never more.
    deviation = (found.high - found.low) / (2 * deviations)
    margin = _DEVIATIONS * np.maximum(deviation, 1e-12)
    outside = (found.value - margin > 1) | (found.value + margin < 0)
    most = getattr(protocol, "max_items", 1 if isinstance(protocol, OneItem) else None)
    too_much = False
    if most is not None and len(set(found.key)) == len(found):
        # The sum's deviation is at most the sum of the deviations, whatever the estimates have to do with one another.
        too_much = bool(found.value.sum() - margin.sum() > most)
    return Doubts(np.flatnonzero(outside).tolist(), bool(outside.any()) or too_much)
