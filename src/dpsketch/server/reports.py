"""The reports of a request, from its body to the disk.

A body is one JSON object, a JSON array, JSON lines, compact bytes, or an Arrow stream. A request puts its reports into
a queue and waits. One task takes all that waits, sorts out what is malformed or was counted before, writes the rest in
one transaction, counts it, and answers. While a transaction runs, the next group gathers, so that the more requests
there are the fewer commits each costs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dpsketch.local.wire import Form, ParsedMessages
from dpsketch.server.aggregates import Aggregate, Aggregates
from dpsketch.server.database import StorageFailed
from dpsketch.server.refusals import Refused
from dpsketch.server.settings import Limits
from dpsketch.server.storage import Mark, Storage
from dpsketch.server.telemetry import Metrics, log

__all__ = ["LARGE", "REPORTS_BODY", "Collecting", "Outcome", "Sorted", "sort_body"]

T = TypeVar("T")

LARGE = 1 << 16
"""From so many bytes on reports are taken apart in a thread, so that small requests do not wait for them."""

_OBJECT = {
    "type": "object",
    "description": "A report in its JSON form, as a client makes it.",
    "required": ["dpsketch", "spec", "id"],
    "properties": {
        "dpsketch": {"type": "integer", "description": "The version of the form."},
        "spec": {"type": "string", "pattern": "^[0-9a-f]{16}$", "description": "The fingerprint of the spec."},
        "id": {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "128 random bits, drawn for this report."},
    },
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
REPORTS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"oneOf": [_OBJECT, {"type": "array", "items": _OBJECT}]}},
            "application/x-ndjson": {"schema": {"type": "string"}},
            "application/octet-stream": _BINARY,
            "application/vnd.apache.arrow.stream": _BINARY,
        },
    }
}


@dataclass(frozen=True, slots=True)
class Sorted:
    """A request's reports: those that have the form of the spec as compact bytes, and how many have not."""

    records: bytes
    malformed: int = 0
    other_spec: int = 0

    def number(self, size: int) -> int:
        """Return how many reports the request brought, good or bad; ``size`` is that of one."""
        return len(self.records) // size + self.malformed + self.other_spec


async def sort_body(
    form: Form, kind: str, body: bytes, most: int, run: Callable[[Callable[[], Sorted]], Awaitable[Sorted]]
) -> Sorted:
    """Take a body apart by its media type; large ones with ``run``, in a thread."""
    work = _READERS.get(kind or "application/json")
    if work is None:
        words = f"Reports are {', '.join(_READERS)}; octets are the compact form."
        raise Refused(415, "unsupported_media_type", words)
    if len(body) < LARGE:
        return work(form, body, most)
    return await run(lambda: work(form, body, most))


def _from_json(form: Form, body: bytes, most: int) -> Sorted:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return Sorted(b"", malformed=1)
    return _from_messages(form, value if isinstance(value, list) else [value], most)


def _from_lines(form: Form, body: bytes, most: int) -> Sorted:
    _check_number(body.count(b"\n"), most)
    return _from_messages(form, [line for line in body.decode("utf-8", "replace").split("\n") if line.strip()], most)


def _from_messages(form: Form, messages: list[Any], most: int) -> Sorted:
    _check_number(len(messages), most)
    found = [form.record(message) for message in messages]
    records = [each for each in found if isinstance(each, bytes)]
    other = found.count("other_spec")
    return Sorted(b"".join(records), len(found) - len(records) - other, other)


def _from_bytes(form: Form, body: bytes, most: int) -> Sorted:
    _check_number(len(body) // form.size, most)
    return _compact(form, form.split(body))


def _from_arrow(form: Form, body: bytes, most: int) -> Sorted:
    parsed = form.from_stream(body)
    _check_number(len(parsed.columns["id"]), most)
    return _compact(form, parsed)


def _compact(form: Form, parsed: ParsedMessages) -> Sorted:
    return Sorted(form.to_bytes(parsed.columns), parsed.malformed, parsed.other_spec)


_READERS = {
    "application/json": _from_json,
    "application/x-ndjson": _from_lines,
    "application/octet-stream": _from_bytes,
    "application/vnd.apache.arrow.stream": _from_arrow,
}


def _check_number(number: int, most: int) -> None:
    if number > most:
        more = "" if most > 1 else " without a token"
        raise Refused(413, "too_many", f"A request brings at most {most} reports{more}; send them in several.")


_GROUP_BYTES = 32 << 20
_CALM = 1.0  # seconds between writes of the counters


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the reports of a request."""

    accepted: int
    repeated: int
    malformed: int
    spent: int = 0  # new, and with a ticket that was used before
    full: int = 0  # new, and more than the collection has room for; none of them is stored


@dataclass(slots=True)
class _Waiting:
    """The compact reports of one request, and who waits for them."""

    aggregate: Aggregate
    records: bytes
    future: asyncio.Future[Outcome]
    since: float
    mark: Mark | None


def _without_ticket(waiting: _Waiting) -> Outcome:
    """Say what becomes of reports whose ticket was used before: those that are there are told so, others not stored."""
    good, fresh = waiting.aggregate.sort_out(waiting.aggregate.form.from_bytes(waiting.records))
    well, new = int(good.sum()), int(fresh.sum())
    return Outcome(0, well - new, len(good) - well, new)


def _with_little_room(aggregate: Aggregate, requests: list[bytes], room: int) -> tuple[list[Outcome], Any]:
    """Take the new reports of requests one after the other while all of a request fit; return which are taken."""
    taken: set[bytes] = set()
    outcomes, masks = [], []
    for records in requests:
        columns = aggregate.form.from_bytes(records)
        good, fresh = aggregate.sort_out(columns)
        names = [identifier.tobytes() for identifier in columns["id"][fresh]]
        # A report whose first copy was refused with its batch is new where it comes again.
        new = set(names) - taken
        fits = len(taken) + len(new) <= room
        fresh[fresh] = [fits and name in new for name in names]
        taken |= new if fits else set()
        well = int(good.sum())
        accepted, full = (len(new), 0) if fits else (0, len(new))
        outcomes.append(Outcome(accepted, well - len(new), len(good) - well, full=full))
        masks.append(fresh)
    return outcomes, np.concatenate(masks)


class Collecting:
    """The queue of reports and the one task that writes them."""

    def __init__(self, storage: Storage, aggregates: Aggregates, limits: Limits, metrics: Metrics) -> None:
        self._storage = storage
        self._aggregates = aggregates
        self._most = limits.waiting
        self._most_reports = limits.max_reports
        self._metrics = metrics
        self._queue: deque[_Waiting] = deque()
        self._bytes = 0
        self._marks: set[Mark] = set()  # of tickets whose reports wait or are being written
        self._wake = asyncio.Event()
        self._stopping = False
        self._thread = ThreadPoolExecutor(1, "dpsketch-writer")
        self._beside = ThreadPoolExecutor(1, "dpsketch-upkeep")
        self._task: asyncio.Task[None] | None = None
        self._known = storage.newest
        self._behind = False
        self._check: Future[None] | None = None
        self.failed = False  # whether the store is lost, or may be: then nobody is told that it is ready
        self._saved_at = 0.0

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Write all that waits, tidy the store up, and end."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
        await asyncio.get_running_loop().run_in_executor(self._thread, self._tidy)
        self._thread.shutdown()
        await asyncio.to_thread(self._beside.shutdown)

    @property
    def waiting(self) -> tuple[int, int]:
        """How many requests wait to be written, and how many bytes of reports they bring."""
        return len(self._queue), self._bytes

    @property
    def lag(self) -> float:
        """For how many seconds the oldest of them has waited."""
        return time.monotonic() - self._queue[0].since if self._queue else 0.0

    async def between_writes(self, work: Callable[[], None]) -> None:
        """Do something in the writer's thread, where no report is being written meanwhile."""
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def follow(self) -> None:
        """Take note of what other processes that share the store have changed."""
        await self.between_writes(self._follow)

    def _follow(self) -> None:
        self._aggregates.refresh()
        self._catch_up()

    def keep_connected(self) -> None:
        """Have the writer's thread look whether the store takes reports, and get a lost store back."""
        if self._check is None or self._check.done():
            self._check = self._thread.submit(self._keep_connected)

    def _keep_connected(self) -> None:
        try:
            if not self.failed:
                try:
                    self._storage.check_session()
                    return
                except StorageFailed:
                    self.failed = True
            self._recover()
            self._storage.check_session(write=True)
            self.failed = False
        except Exception as error:
            log("warning", "the store is lost", error=type(error).__name__)

    async def submit(self, aggregate: Aggregate, records: bytes, mark: Mark | None = None) -> Outcome:
        """Store compact reports that have the form of their spec; return once they are durable.

        ``mark`` is what a ticket is used up by: where it was, a new report is not stored.
        """
        if mark is not None and mark in self._marks:
            words = "A report with this ticket is being stored; wait for its answer."
            raise Refused(409, "ticket_busy", words, {"Retry-After": "1"})
        if self._bytes + len(records) > self._most or self._stopping:
            raise Refused(503, "busy", "The service is behind with writing; try again.", {"Retry-After": "1"})
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(aggregate, records, future, time.monotonic(), mark))
        if mark is not None:
            self._marks.add(mark)
        self._bytes += len(records)
        self._wake.set()
        return await future

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                group = list(self._take())
                try:
                    outcomes = await loop.run_in_executor(self._thread, self._commit, group)
                except Exception as error:
                    # Whatever it was, nobody is told that their report is stored.
                    self.failed = True
                    words = "the reports were not stored; send them again."
                    reason = str(error) if isinstance(error, StorageFailed) else words
                    log("error", "commit failed", error=type(error).__name__, reason=reason, requests=len(group))
                    for waiting in group:
                        if not waiting.future.done():
                            waiting.future.set_exception(StorageFailed(reason))
                    continue
                finally:
                    self._marks.difference_update(waiting.mark for waiting in group if waiting.mark is not None)
                self.failed = False
                for waiting, outcome in zip(group, outcomes, strict=True):
                    if not waiting.future.done():
                        waiting.future.set_result(outcome)
            if self._stopping:
                return

    def _take(self) -> Iterator[_Waiting]:
        size = 0
        while self._queue and size < _GROUP_BYTES:
            waiting = self._queue.popleft()
            size += len(waiting.records)
            self._bytes -= len(waiting.records)
            yield waiting

    # In the writer's thread.

    def _commit(self, group: list[_Waiting]) -> list[Outcome]:
        """Store and count a group of requests."""
        if self._behind or self.failed:
            self._recover()
        with self._storage.turn():
            if self._storage.shared:
                self._catch_up()
            return self._commit_in_turn(group)

    def _catch_up(self) -> None:
        """Count what other processes have written."""
        self._known = max(self._known, self._aggregates.catch_up(self._known))

    def _commit_in_turn(self, group: list[_Waiting]) -> list[Outcome]:
        marks = [waiting.mark for waiting in group if waiting.mark is not None]
        used = self._storage.used_marks(marks) if marks else set()
        by_collection: dict[Aggregate, list[int]] = defaultdict(list)
        spent = []
        for index, waiting in enumerate(group):
            if waiting.mark in used:
                spent.append(index)
            else:
                by_collection[waiting.aggregate].append(index)
        outcomes: list[Outcome | None] = [None] * len(group)
        newly_used: list[Mark] = []
        chunks: list[tuple[str, int, bytes]] = []
        fresh_records: list[tuple[Aggregate, bytes]] = []
        for aggregate, indices in by_collection.items():
            form = aggregate.form
            requests = [group[index].records for index in indices]
            told, fresh = self._sort_out(aggregate, requests)
            for index, outcome in zip(indices, told, strict=True):
                outcomes[index] = outcome
                mark = group[index].mark
                if outcome.accepted and mark is not None:
                    newly_used.append(mark)
            if new_count := int(np.count_nonzero(fresh)):
                kept = form.by_identifier(np.frombuffer(b"".join(requests), form.dtype)[fresh].tobytes())
                chunks.append((aggregate.row.id, new_count, kept))
                fresh_records.append((aggregate, kept))
        if chunks:
            self._behind = True
            counters = self._counters()
            with self._metrics.commit_seconds.time():
                written = self._storage.append(chunks, counters, newly_used)
            for aggregate in self._aggregates:
                aggregate.note_saved(counters.get(aggregate.row.id, {}))
            for (aggregate, kept), chunk in zip(fresh_records, written, strict=True):
                aggregate.count(aggregate.form.from_bytes(kept))
                aggregate.add_chunk(chunk)
            self._known = self._storage.newest
            self._behind = not self._keep_up([aggregate for aggregate, _ in fresh_records])
            self._metrics.group_size.observe(sum(chunk.reports for chunk in written))
        for index in spent:
            outcomes[index] = _without_ticket(group[index])
        return [outcome for outcome in outcomes if outcome is not None]

    def _sort_out(self, aggregate: Aggregate, requests: list[bytes]) -> tuple[list[Outcome], Any]:
        """Say what becomes of the reports of requests, and which of all of them are to be stored."""
        form = aggregate.form
        good, fresh = aggregate.sort_out(form.from_bytes(b"".join(requests)))
        # Here and not where requests come in: many wait at once, and other processes write as well.
        room = aggregate.most(self._most_reports) - aggregate.reports
        if np.count_nonzero(fresh) > room:
            return _with_little_room(aggregate, requests, room)
        outcomes = []
        start = 0
        for records in requests:
            end = start + len(records) // form.size
            size, well, new = end - start, int(good[start:end].sum()), int(fresh[start:end].sum())
            outcomes.append(Outcome(new, well - new, size - well))
            start = end
        return outcomes, fresh

    def _keep_up(self, changed: list[Aggregate]) -> bool:
        """Have widths noted and join small chunks; say whether the store is as we think it is."""
        try:
            for aggregate in changed:
                if aggregate.point_is_due():
                    self._beside.submit(self._note_width, aggregate)
                self._aggregates.compact(aggregate)
        except Exception as error:
            # The reports themselves are stored and counted, and their senders are to be told so.
            log("warning", "upkeep failed", error=type(error).__name__)
            return False
        return True

    def _note_width(self, aggregate: Aggregate) -> None:
        """Note an interval's width, in a thread of its own: an estimate may take a while, and nobody waits for it."""
        try:
            self._aggregates.note_width(aggregate)
        except Exception as error:
            log("warning", "width not noted", error=type(error).__name__)

    def _recover(self) -> None:
        """Get a lost store back, and count what the failed write may have left in it."""
        self._storage.claim()
        self._aggregates.catch_up(self._known)
        self._behind = False
        self._known = self._storage.newest
        log("info", "store regained")

    def _counters(self, *, all_of_them: bool = False) -> dict[str, dict[str, int]]:
        """Return by how much the counters of refusals have grown since they were saved, once a second at most."""
        now_at = time.monotonic()
        if not all_of_them and now_at - self._saved_at < _CALM:
            return {}
        self._saved_at = now_at
        return {each.row.id: grown for each in self._aggregates if (grown := each.unsaved())}

    def _tidy(self) -> None:
        """Save the counters and join small chunks, so that the next start is quick."""
        try:
            if not (self._behind or self.failed):
                with self._storage.turn():
                    if self._storage.shared:
                        self._catch_up()
                    self._storage.append([], self._counters(all_of_them=True))
                    for aggregate in self._aggregates:
                        self._aggregates.compact(aggregate, all_of_them=True)
        except StorageFailed as error:
            log("warning", "upkeep failed", error=type(error).__name__)
