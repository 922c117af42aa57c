"""Health, metrics, the page, and what a caller may do."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import FileResponse, Response

import dpsketch
from dpsketch import local
from dpsketch.server.auth import SCOPES
from dpsketch.server.metrics import CONTENT_TYPE
from dpsketch.server.models import FAILURES, LedgerView, SessionView, Status
from dpsketch.server.refusals import StorageFailed
from dpsketch.server.replies import finite, reply
from dpsketch.server.resources import memory_in_use
from dpsketch.server.service import Visitor, anyone, reading_caller, service_of

__all__ = ["PAGE", "router"]

PAGE = Path(__file__).parent / "page"
_CLIENT = Path(local.__file__).parent / "client.js"

router = APIRouter(responses=FAILURES)


@router.get("/health", response_model=Status, tags=["system"])
async def health() -> Response:
    """Say that the process is up."""
    return reply({"status": "up"})


@router.get("/ready", response_model=Status, tags=["system"])
async def ready(request: Request) -> Response:
    """Say that the store answers and takes reports."""
    await service_of(request).readiness.check()
    return reply({"status": "ready"})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    tags=["system"],
)
async def metrics(request: Request) -> Response:
    """Return counters for Prometheus."""
    service = service_of(request)
    service.metrics.releases.set(len(service.releases))
    service.metrics.collections.set(sum(1 for _ in service.aggregates))
    requests, size = service.collecting.waiting
    service.metrics.queue_requests.set(requests)
    service.metrics.queue_bytes.set(size)
    service.metrics.queue_lag.set(service.collecting.lag)
    service.metrics.memory_bytes.set(memory_in_use())
    service.metrics.report_bytes.set(sum(each.memory for each in service.aggregates))
    service.metrics.kept_bytes.set(service.answers.kept)
    with contextlib.suppress(StorageFailed):
        service.metrics.store_bytes.set(await service.readiness.store_size())
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Return the page."""
    return FileResponse(PAGE / "index.html", media_type="text/html; charset=utf-8")


@router.get("/client.js", include_in_schema=False)
async def client() -> Response:
    """Return the JavaScript client that randomises in the browser."""
    return FileResponse(_CLIENT, media_type="text/javascript; charset=utf-8")


@router.get("/v1/session", response_model=SessionView, tags=["session"])
async def session(visitor: Annotated[Visitor, Depends(anyone)]) -> Response:
    """Say what the caller may do."""
    may = visitor.caller.scopes
    return reply({"scopes": [scope for scope in SCOPES if scope in may], "version": dpsketch.__version__})


@router.get("/v1/ledger", response_model=LedgerView, tags=["ledger"])
async def ledger(visitor: Annotated[Visitor, Depends(reading_caller)]) -> Response:
    """Show the budgets: what each dataset may spend, and what it has spent."""
    book = visitor.service.ledger
    if book is None:
        return reply({"datasets": []})

    def work() -> list[dict[str, Any]]:
        return [_budget(book.spent(dataset)) for dataset in book.datasets()]

    return reply({"datasets": finite(await visitor.service.run(work))})


def _budget(spent: Any) -> dict[str, Any]:
    total = spent.total
    return {
        "dataset": spent.dataset,
        "unit": {**spent.unit.to_json(), "words": spent.unit.words},
        "epsilon": None if total is None else total.epsilon,
        "delta": spent.delta,
        "spent_epsilon": spent.epsilon,
        "rho": None if total is None else total.rho,
        "spent_rho": spent.rho,
        "share": spent.share,
        "releases": spent.releases,
        "words": spent.words,
    }
