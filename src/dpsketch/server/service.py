"""One running service: its parts, how it starts, how it ends, and how it answers without blocking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from dpsketch.errors import InvalidInput
from dpsketch.ledger import Ledger
from dpsketch.local import SubsetHashing
from dpsketch.server.aggregates import Aggregate, Aggregates
from dpsketch.server.auth import SCOPES, Caller, Scope, Tokens, require
from dpsketch.server.collecting import Collecting, Outcome
from dpsketch.server.limits import Rate
from dpsketch.server.logs import log
from dpsketch.server.metrics import Metrics
from dpsketch.server.refusals import Refused, StorageFailed
from dpsketch.server.releases import Releases
from dpsketch.server.settings import Settings
from dpsketch.server.storage import Storage

__all__ = [
    "Asked", "Service", "administrator", "anyone", "collecting_caller", "content_type", "reading_caller", "running",
    "service_of",
]  # fmt: skip

T = TypeVar("T")

_THREADS = 4


@dataclass(slots=True)
class Service:
    """The parts of a running service."""

    settings: Settings
    storage: Storage
    tokens: Tokens
    releases: Releases
    aggregates: Aggregates
    collecting: Collecting
    ledger: Ledger | None
    metrics: Metrics
    collect_rate: Rate
    read_rate: Rate
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS, "dpsketch-answer"))

    async def run(self, work: Callable[[], T]) -> T:
        """Do what takes long in a thread.

        Who waits too long is told so. What has not begun by then never will; what has ends in its own time.
        """
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.wait_for(future, self.settings.limits.timeout)
        except TimeoutError:
            raise Refused(503, "too_slow", "The answer took too long; ask for less.", {"Retry-After": "1"}) from None

    async def store(self, aggregate: Aggregate, records: bytes) -> Outcome:
        """Store compact reports; return once they are durable, or say that nobody knows yet."""
        try:
            async with asyncio.timeout(self.settings.limits.timeout):
                return await self.collecting.submit(aggregate, records)
        except TimeoutError:
            words = "The store is slow, and may yet take what was sent; send the same again to be sure."
            raise Refused(503, "too_slow", words, {"Retry-After": "1"}) from None

    def check_number(self, asked: Sized) -> None:
        """Refuse more keys, candidates or points than may be asked about at once."""
        if len(asked) > self.settings.limits.keys:
            raise InvalidInput(f"at most {self.settings.limits.keys} keys or points can be asked about at once.")

    def caller(self, request: Request, *scopes: Scope) -> Caller:
        """Return who asks, if they may."""
        caller = self.tokens.caller(request.headers.get("authorization"))
        require(caller, *scopes)
        return caller


def service_of(request: Request) -> Service:
    """Return the service that a request came to."""
    service: Service = request.app.state.service
    return service


class Asked(APIRoute):
    """A route that reads what is asked only of callers who may do something here.

    FastAPI reads a body before it looks at dependencies, so that strangers could keep it busy with large ones.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def known(request: Request) -> Response:
            service_of(request).caller(request, *SCOPES)
            return await handle(request)

        return known


def content_type(request: Request) -> str:
    """Return what a request says that its body is, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def reading_caller(request: Request) -> Service:
    """Let through who may read, within their rate."""
    return _admitted(request, "read", "admin")


async def administrator(request: Request) -> Service:
    """Let through who may change what is served, within their rate."""
    return _admitted(request, "admin")


async def collecting_caller(request: Request) -> Service:
    """Let through who may report or read, within their rate."""
    return _admitted(request, "collect", "read", "admin")


async def anyone(request: Request) -> Service:
    """Let everyone through, within their rate."""
    service = service_of(request)
    service.read_rate.take(service.tokens.caller(request.headers.get("authorization")).id)
    return service


def _admitted(request: Request, *scopes: Scope) -> Service:
    service = service_of(request)
    service.read_rate.take(service.caller(request, *scopes).id)
    return service


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Service]:
    """Start a service on its store, and end it so that nothing is lost."""
    storage = await asyncio.to_thread(Storage, settings.store)
    try:
        tokens = Tokens(storage, settings.public)
        releases = Releases(storage)
        aggregates = Aggregates(storage)
        metrics = Metrics()
        await asyncio.to_thread(_load, storage, tokens, releases, aggregates, settings)
        collecting = Collecting(storage, aggregates, settings.limits.waiting, metrics)
        service = Service(
            settings=settings,
            storage=storage,
            tokens=tokens,
            releases=releases,
            aggregates=aggregates,
            collecting=collecting,
            ledger=None if settings.ledger is None else Ledger(settings.ledger),
            metrics=metrics,
            collect_rate=Rate(settings.limits.collect_rate),
            read_rate=Rate(settings.limits.read_rate),
        )
        collecting.start()
        refreshing = asyncio.create_task(_refresh(tokens))
        if not settings.public and len(tokens) == 0:
            log("warning", "nobody may use the service yet: make a token with `dpsketch serve token create`")
        log("info", "started", releases=len(releases), collections=sum(1 for _ in aggregates))
        try:
            yield service
        finally:
            refreshing.cancel()
            await collecting.stop()
            log("info", "stopped", reports=sum(each.reports for each in aggregates))
    finally:
        await asyncio.to_thread(storage.close)


def _load(storage: Storage, tokens: Tokens, releases: Releases, aggregates: Aggregates, settings: Settings) -> None:
    storage.claim()
    tokens.refresh()
    releases.load(settings.mounts)
    aggregates.load()
    _warm_up()


def _warm_up() -> None:
    """Compile or load what the first report would otherwise wait for."""
    protocol: Any = SubsetHashing(epsilon=1.0, max_items=1)
    collector = protocol.collector()
    reports = protocol.form.split(b"".join(protocol.to_bytes(protocol.report([["a"], ["b"]])))).columns
    collector.unseen(reports)
    collector.count(reports)
    collector.snapshot().estimate(["a"])


async def _refresh(tokens: Tokens) -> None:
    """Read the tokens again and again, so that new and revoked ones take effect."""
    while True:
        await asyncio.sleep(tokens.refresh_seconds)
        try:
            await asyncio.to_thread(tokens.refresh)
        except StorageFailed as error:
            log("warning", "tokens not read", error=type(error).__name__)
