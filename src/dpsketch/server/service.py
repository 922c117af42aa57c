"""One running service: its parts, how it starts, how it ends, and who may ask it for what."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from dpsketch.errors import InvalidInput
from dpsketch.ledger import Ledger
from dpsketch.local import SubsetHashing
from dpsketch.local.tickets import HEADER
from dpsketch.server.aggregates import Aggregate, Aggregates
from dpsketch.server.answers import Answers
from dpsketch.server.auth import SCOPES, Caller, Scope, Tokens, require
from dpsketch.server.commits import Collecting, Outcome
from dpsketch.server.limits import Body, Quota, Rate
from dpsketch.server.logs import log
from dpsketch.server.metrics import Metrics
from dpsketch.server.refusals import Refused, StorageFailed
from dpsketch.server.releases import Releases
from dpsketch.server.resources import return_what_is_freed, settled
from dpsketch.server.settings import Limits, Settings
from dpsketch.server.storage import Storage
from dpsketch.server.streams import Streams
from dpsketch.server.tables import Mark
from dpsketch.server.tickets import check_ticket, current_period
from dpsketch.server.traces import Traces, to_collector

__all__ = [
    "Admission", "Asked", "Changing", "Fetching", "Reading", "Service", "Visitor", "anyone", "content_type",
    "reading_caller", "running", "service_of",
]  # fmt: skip

T = TypeVar("T")


class Admission:
    """How much each caller may ask for and send: rates that count what is asked for, and quotas."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.read_rate = Rate(limits.read_rate)
        self.spec_rate = Rate(limits.spec_rate)
        self._token_rate = Rate(limits.collect_rate, what="reports")
        self._address_rate = Rate(limits.address_rate, what="reports", least=limits.public_batch)
        self._collection_rate = Rate(limits.collection_rate, what="reports", least=limits.public_batch)
        self._quota = Quota(limits.address_quota)

    def batch(self, visitor: Visitor) -> int:
        """Return how many reports a request may bring."""
        if visitor.mark is not None:
            return 1
        return self._limits.batch if visitor.known else self._limits.public_batch

    def arrival(self, visitor: Visitor) -> None:
        """Count a request with reports before its body is read: it has at least one."""
        (self._token_rate if visitor.known else self._address_rate).take(visitor.key)

    def reports(self, visitor: Visitor, aggregate: Aggregate, number: int) -> None:
        """Count what a request turned out to bring, or refuse all of it."""
        if number > 1:
            (self._token_rate if visitor.known else self._address_rate).take(visitor.key, number - 1)
        if visitor.stranger:
            self._collection_rate.take(aggregate.row.id, number)

    def reserve(self, visitor: Visitor, aggregate: Aggregate, number: int) -> None:
        """Set well-formed reports against quotas, or refuse them."""
        if visitor.stranger:
            self._quota.take(f"{aggregate.row.id} {visitor.key}", number)

    def settle(self, visitor: Visitor, aggregate: Aggregate, unused: int) -> None:
        """Give back what was reserved for reports that were there already, or were not stored."""
        if visitor.stranger and unused:
            self._quota.give_back(f"{aggregate.row.id} {visitor.key}", unused)


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
    admission: Admission
    answers: Answers
    readiness: Readiness
    streams: Streams
    traces: Traces
    forgotten: dict[str, int] = field(default_factory=dict)  # the period at which used tickets were last forgotten

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
        if self.forgotten.get(aggregate.row.id) != period:
            await asyncio.to_thread(self.storage.forget_marks, aggregate.row.id, period - 1)
            self.forgotten[aggregate.row.id] = period

    def check_number(self, asked: Sized) -> None:
        """Refuse more keys, candidates or points than may be asked about at once."""
        if len(asked) > self.settings.limits.keys:
            raise InvalidInput(f"at most {self.settings.limits.keys} keys or points can be asked about at once.")

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


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who makes a request: what they may do, whom limits count it for (a token, else an address), and their ticket."""

    service: Service
    caller: Caller
    key: str
    mark: Mark | None = None

    @property
    def known(self) -> bool:
        """Whether they have a token."""
        return bool(self.caller.id)

    @property
    def stranger(self) -> bool:
        """Whether they have neither a token nor a ticket."""
        return not self.known and self.mark is None

    async def answer(
        self, name: bytes, work: Callable[[], Response], version: int = 0, within: float = 0.0
    ) -> Response:
        """Answer a question, from what is kept or at the visitor's cost; ``within`` is how old it may be."""
        return await self.service.answers.answer(self.key, self.known, name, work, version, within)


def service_of(request: Request) -> Service:
    """Return the service that a request came to."""
    service: Service = request.app.state.service
    return service


class Asked(APIRoute):
    """A route that reads what is asked only of callers who may do something here, and at their cost.

    FastAPI reads a body before it looks at dependencies, so that strangers could keep it busy with large ones. It also
    validates bodies in the event loop without charging anyone, so that this route validates them itself.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        model: Any = self.body_field.field_info.annotation

        async def known(request: Request) -> Response:
            service = service_of(request)
            visitor = service.visitor(request, *SCOPES, collection=_collection(request))
            question = _Question(request.scope, request.receive)
            body = await question.body()
            try:
                question.asked = service.answers.at_once(visitor.key, lambda: model.model_validate_json(body))
            except ValidationError as error:
                service.admission.read_rate.take(visitor.key)  # the dependencies, which take it, are not reached
                found = error.errors(include_url=False, include_context=False, include_input=False)
                raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in found]) from None
            return await handle(question)

        return known


class _Question(Request):
    """A request whose JSON was validated already."""

    asked: BaseModel

    async def json(self) -> BaseModel:
        """Return the validated body, which FastAPI takes as it is."""
        return self.asked


def content_type(request: Request) -> str:
    """Return what a request says that its body is, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def reading_caller(request: Request) -> Visitor:
    """Let through who may read, within their rate."""
    return _admitted(request, "read", "admin")


async def administrator(request: Request) -> Visitor:
    """Let through who may change what is served, within their rate."""
    return _admitted(request, "admin")


async def device(request: Request) -> Visitor:
    """Let through who may report or read and fetches a spec, within a rate of its own."""
    service = service_of(request)
    # A token for one collection sees that one in the list.
    own = service.tokens.caller(request.headers.get("authorization")).collection
    named = _collection(request)
    asked = None if named is None else service.aggregates.find(named)
    if asked is not None and asked.row.tickets is not None and HEADER in request.headers:
        visitor = service.reporter(request, asked.row.id)
        service.admission.spec_rate.take(visitor.key)
        return visitor
    visitor = service.visitor(request, "collect", "read", "admin", collection=named or own)
    service.admission.spec_rate.take(visitor.key)
    return visitor


Reading = Annotated[Visitor, Depends(reading_caller)]
Changing = Annotated[Visitor, Depends(administrator)]
Fetching = Annotated[Visitor, Depends(device)]


async def anyone(request: Request) -> Visitor:
    """Let everyone through, within their rate."""
    service = service_of(request)
    visitor = service.visitor(request)
    service.admission.read_rate.take(visitor.key)
    return visitor


def _admitted(request: Request, *scopes: Scope) -> Visitor:
    service = service_of(request)
    visitor = service.visitor(request, *scopes, collection=_collection(request))
    service.admission.read_rate.take(visitor.key)
    return visitor


def _collection(request: Request) -> str | None:
    """Return the collection that an address names."""
    named = request.url.path.startswith("/v1/collections/")
    return request.path_params.get("identifier") if named else None


def body_of(request: Request) -> Body:
    """Return what reads a request's body."""
    body: Body = request.scope["dpsketch.body"]
    return body


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
    own = settings.limits.for_one_of(settings.workers)
    traces = to_collector() if settings.telemetry else Traces()
    storage = await asyncio.to_thread(lambda: Storage(settings.store, shared=settings.shared))
    try:
        tokens = Tokens(storage, settings.public)
        releases = Releases(storage)
        aggregates = Aggregates(storage)
        metrics = Metrics()
        await asyncio.to_thread(_load, storage, tokens, releases, aggregates, settings)
        collecting = Collecting(storage, aggregates, settings.limits, metrics)
        service = Service(
            settings=settings,
            storage=storage,
            tokens=tokens,
            releases=releases,
            aggregates=aggregates,
            collecting=collecting,
            ledger=None if settings.ledger is None else Ledger(settings.ledger),
            metrics=metrics,
            admission=Admission(own),
            answers=Answers(own.compute_rate, own.timeout, metrics),
            readiness=Readiness(storage, collecting, min(5.0, settings.limits.timeout)),
            streams=Streams(),
            traces=traces,
        )
        collecting.start()
        housekeeping = asyncio.create_task(_keep_house(service))
        if not settings.public and len(tokens) == 0:
            log("warning", "nobody may use the service yet: make a token with `dpsketch serve token create`")
        log("info", "started", releases=len(releases), collections=sum(1 for _ in aggregates))
        try:
            with settled():
                yield service
        finally:
            housekeeping.cancel()
            await collecting.stop()
            service.answers.stop()
            service.readiness.stop()
            await asyncio.to_thread(traces.stop)
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


async def _keep_house(service: Service) -> None:
    while True:
        await asyncio.sleep(service.tokens.refresh_seconds)
        try:
            await service.keep_house()
        except Exception as error:
            # Whatever it was: were it to end here, tokens that are revoked would stay good.
            log("warning", "housekeeping failed", error=type(error).__name__)
