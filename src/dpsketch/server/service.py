"""One running service: its parts, how it starts, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from starlette.requests import Request

from dpsketch.errors import InvalidInput
from dpsketch.ledger import Ledger
from dpsketch.local import SubsetHashing
from dpsketch.local.tickets import HEADER
from dpsketch.server.aggregates import Aggregate, Aggregates
from dpsketch.server.answers import Answers, Streams
from dpsketch.server.auth import Tokens, Visitor, check_ticket, current_period, require
from dpsketch.server.database import StorageFailed
from dpsketch.server.limits import Admission
from dpsketch.server.refusals import Refused
from dpsketch.server.releases import Releases
from dpsketch.server.reports import Collecting, Outcome
from dpsketch.server.settings import Settings
from dpsketch.server.storage import Mark, Scope, Storage
from dpsketch.server.telemetry import Metrics, Traces, log, to_collector

__all__ = ["Service", "running"]

T = TypeVar("T")


class Service:
    """The parts of a running service on an open store. Making one blocks: it reads all that the store holds."""

    def __init__(self, settings: Settings, storage: Storage) -> None:
        own = settings.limits.for_one_of(settings.workers)
        self.settings = settings
        self.storage = storage
        self.traces = to_collector() if settings.telemetry else Traces()
        self.metrics = Metrics()
        self.tokens = Tokens(storage, settings.public)
        self.releases = Releases(storage)
        self.aggregates = Aggregates(storage)
        storage.claim()
        self.tokens.refresh()
        self.releases.load(settings.mounts)
        self.aggregates.load()
        _warm_up()
        self.collecting = Collecting(storage, self.aggregates, settings.limits, self.metrics)
        self.ledger = None if settings.ledger is None else Ledger(settings.ledger)
        self.admission = Admission(own)
        self.answers = Answers(own.compute_rate, own.timeout, self.metrics)
        self.readiness = Readiness(storage, self.collecting, min(5.0, settings.limits.timeout))
        self.streams = Streams()
        self._forgotten: dict[str, int] = {}  # the period at which used tickets of a collection were last forgotten

    async def run(self, work: Callable[[], T]) -> T:
        """Do what takes long in a thread."""
        return await self.answers.run(work)

    async def store(self, aggregate: Aggregate, records: bytes, mark: Mark | None = None) -> Outcome:
        """Store compact reports; return once they are durable, or say that nobody knows yet."""
        try:
            async with asyncio.timeout(self.settings.limits.timeout):
                return await self.collecting.submit(aggregate, records, mark)
        except TimeoutError:
            words = "The store is slow, and may yet take what was sent; send the same again to be sure."
            raise Refused(503, "too_slow", words, {"Retry-After": "1"}) from None

    async def close(self, aggregate: Aggregate) -> None:
        """Take no more reports for a collection; return when those that were taken are counted."""
        await self.run(lambda: self.aggregates.close(aggregate))
        await self.store(aggregate, b"")  # nothing, behind all that waits

    async def delete(self, aggregate: Aggregate) -> None:
        """Forget a collection and all its reports."""
        await self.close(aggregate)
        await self.collecting.between_writes(lambda: self.aggregates.delete(aggregate))
        log("info", "collection deleted", reports=aggregate.reports)

    async def keep_house(self) -> None:
        """Take note of new and revoked tokens and of what other processes changed; delete what is over."""
        self.collecting.keep_connected()
        await asyncio.to_thread(self.tokens.refresh)
        await asyncio.to_thread(self.releases.look)
        if self.settings.shared:
            await self.collecting.follow()
            await asyncio.to_thread(self.releases.refresh)
        for aggregate in self.aggregates:
            if aggregate.row.tickets is not None and aggregate.row.tickets.period != "once":
                await self._forget_marks(aggregate, current_period(aggregate.row.tickets, time.time()))
            ends = aggregate.row.plan.deletes
            if ends is not None and time.time() >= ends:
                await self.delete(aggregate)

    async def _forget_marks(self, aggregate: Aggregate, period: int) -> None:
        """Forget used tickets once a period, and not yet those of the last one: a request may have begun in it."""
        if self._forgotten.get(aggregate.row.id) != period:
            await asyncio.to_thread(self.storage.forget_marks, aggregate.row.id, period - 1)
            self._forgotten[aggregate.row.id] = period

    def check_number(self, asked: Sized) -> None:
        """Refuse more keys, candidates or points than may be asked about at once."""
        if len(asked) > self.settings.limits.max_keys:
            raise InvalidInput(f"at most {self.settings.limits.max_keys} keys or points can be asked about at once.")

    def visitor(self, request: Request, *scopes: Scope, collection: str | None = None) -> Visitor:
        """Return who asks, if they may; ``collection`` is what the request is about."""
        caller = self.tokens.caller(request.headers.get("authorization"))
        if scopes:
            require(caller, *scopes, collection=collection)
        return Visitor(self, caller, caller.id or f"from {request.scope['dpsketch.address']}")

    def reporter(self, request: Request, collection: str) -> Visitor:
        """Return who reports to a collection, if they may: by a token or as everyone, or by a ticket where it asks."""
        asked = self.aggregates.find(collection)
        if asked is None or asked.row.tickets is None:
            return self.visitor(request, "collect", "admin", collection=collection)
        visitor = self.visitor(request)
        period, mark = check_ticket(asked.row.tickets, collection, request.headers.get(HEADER), time.time())
        return replace(visitor, mark=Mark(collection, period, mark))


# Numbers of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def return_what_is_freed() -> bool:
    """Have the C library give large blocks back when they are freed, and say whether it will.

    glibc keeps a heap for each thread, and after the first large block that is freed it takes the next ones from these
    heaps, whose holes it never returns: a service that computes in threads would grow for hours. Two heaps are enough
    here, and blocks from 256 kB on are mapped, and unmapped. Other C libraries have other habits, and are left alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(*each) for each in ((_ARENA_MAX, 2), (_MMAP_THRESHOLD, 1 << 18), (_TRIM_THRESHOLD, 1 << 20)))


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """Have Python look for garbage only among what comes from here on.

    What libraries brought at the start, some 200,000 objects, stays for as long as the process. To look through all of
    it takes more than a tenth of a second, in which no report is taken, and it would be done every few seconds.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Readiness:
    """Whether the store answers and takes reports, asked in a thread of its own that waits for no other work."""

    _fresh = 1.0  # seconds for which an answer is good

    def __init__(self, storage: Storage, collecting: Collecting, timeout: float) -> None:
        self._storage = storage
        self._collecting = collecting
        self._timeout = timeout
        self._thread = ThreadPoolExecutor(1, "dpsketch-ready")
        self._at = -math.inf
        self._asking: asyncio.Future[None] | None = None

    async def check(self) -> None:
        """Fail where the store does not answer in time, or where the last write failed and none succeeded since."""
        if self._collecting.failed:
            raise StorageFailed("the store takes no reports now.")
        loop = asyncio.get_running_loop()
        if loop.time() - self._at < self._fresh:
            return
        if self._asking is None or self._asking.done():
            self._asking = loop.run_in_executor(self._thread, self._storage.ping)
        try:
            await asyncio.wait_for(asyncio.shield(self._asking), self._timeout)
        except TimeoutError:
            raise StorageFailed("the store did not answer in time.") from None
        except StorageFailed:
            self._collecting.failed = True  # the writing session is probably lost, too
            raise
        self._at = loop.time()

    async def store_size(self) -> int:
        """Return how many bytes the store takes on the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._storage.size)

    def stop(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Service]:
    """Start a service on its store, and end it so that nothing is lost."""
    return_what_is_freed()
    storage = await asyncio.to_thread(lambda: Storage(settings.store, shared=settings.shared))
    try:
        service = await asyncio.to_thread(Service, settings, storage)
        service.collecting.start()
        housekeeping = asyncio.create_task(_keep_house(service))
        if not settings.public and len(service.tokens) == 0:
            log("warning", "nobody may use the service yet: make a token with `dpsketch serve token create`")
        log("info", "started", releases=len(service.releases), collections=sum(1 for _ in service.aggregates))
        try:
            with settled():
                yield service
        finally:
            housekeeping.cancel()
            await service.collecting.stop()
            service.answers.stop()
            service.readiness.stop()
            await asyncio.to_thread(service.traces.stop)
            log("info", "stopped", reports=sum(each.reports for each in service.aggregates))
    finally:
        await asyncio.to_thread(storage.close)


def _warm_up() -> None:
    """Compile or load what the first report would otherwise wait for."""
    protocol: Any = SubsetHashing(epsilon=1.0, max_items=1)
    collector = protocol.collector()
    reports = protocol.form.split(b"".join(protocol.to_bytes(protocol.report([["a"], ["b"]])))).columns
    collector.unseen(reports)
    collector.count(reports)
    collector.copy().estimate(["a"])


async def _keep_house(service: Service) -> None:
    while True:
        await asyncio.sleep(service.tokens.refresh_seconds)
        try:
            await service.keep_house()
        except Exception as error:
            # Whatever it was: were it to end here, tokens that are revoked would stay good.
            log("warning", "housekeeping failed", error=type(error).__name__)
