"""Collections: starting them, reporting to them, asking them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from dpsketch.answers import answer, top
from dpsketch.errors import InvalidInput
from dpsketch.server.aggregates import Aggregate
from dpsketch.server.models import (
    FAILURES,
    AskKeys,
    AskTop,
    CollectionList,
    CollectionView,
    Confidence,
    Counters,
    History,
    NewCollection,
    Received,
    SharesAnswer,
    TopInAddress,
)
from dpsketch.server.refusals import Refused
from dpsketch.server.releases import document_of
from dpsketch.server.replies import estimates_reply, finite, reply
from dpsketch.server.reports import LARGE, REPORTS_BODY, Sorted, sort_body
from dpsketch.server.service import (
    Asked,
    Service,
    administrator,
    collecting_caller,
    content_type,
    reading_caller,
    service_of,
)

__all__ = ["UNLOGGED", "router"]

UNLOGGED = ("/v1/collections/{identifier}/reports", "/v1/collections/{identifier}/check")
"""Routes whose successes are too many to log; the metrics count them."""

router = APIRouter(prefix="/v1/collections", tags=["collections"], responses=FAILURES, route_class=Asked)

Reading = Annotated[Service, Depends(reading_caller)]
Changing = Annotated[Service, Depends(administrator)]
Reporting = Annotated[Service, Depends(collecting_caller)]


@router.post("/{identifier}/reports", response_model=Received, status_code=202, openapi_extra=REPORTS_BODY)
async def report(request: Request, identifier: str) -> Response:
    """Take reports: one JSON object, or a batch. The answer comes when they are on the disk."""
    service, aggregate = _open_collection(request, identifier)
    sorted_out = await _sorted(request, service, aggregate)
    _check_open(aggregate)  # a body may take its time, and the collection may be closed meanwhile
    outcome = await service.store(aggregate, sorted_out.records) if sorted_out.records else None
    counts = {
        "accepted": outcome.accepted if outcome else 0,
        "repeated": outcome.repeated if outcome else 0,
        "malformed": sorted_out.malformed + (outcome.malformed if outcome else 0),
        "other_spec": sorted_out.other_spec,
    }
    for name in ("repeated", "malformed", "other_spec"):
        aggregate.refused[name] += counts[name]
    service.metrics.count_reports(counts)
    _refuse_if_none(counts)
    return reply(counts, 202)


@router.post("/{identifier}/check", response_model=Received, openapi_extra=REPORTS_BODY)
async def check(request: Request, identifier: str) -> Response:
    """Say what would become of reports, and keep nothing: for whoever writes a client."""
    service, aggregate = _open_collection(request, identifier)
    sorted_out = await _sorted(request, service, aggregate)

    def work() -> dict[str, int]:
        good, fresh = aggregate.sort_out(aggregate.form.from_bytes(sorted_out.records))
        well, new = int(good.sum()), int(fresh.sum())
        bad = sorted_out.malformed + len(good) - well
        return {"accepted": new, "repeated": well - new, "malformed": bad, "other_spec": sorted_out.other_spec}

    counts = work() if len(sorted_out.records) < LARGE else await service.run(work)
    _refuse_if_none(counts)
    return reply(counts)


def _open_collection(request: Request, identifier: str) -> tuple[Service, Aggregate]:
    service = service_of(request)
    service.collect_rate.take(service.caller(request, "collect", "admin").id)
    aggregate = service.aggregates.get(identifier)
    _check_open(aggregate)
    return service, aggregate


def _check_open(aggregate: Aggregate) -> None:
    if aggregate.row.closed:
        raise Refused(409, "closed", "This collection is closed and takes no more reports.")


async def _sorted(request: Request, service: Service, aggregate: Aggregate) -> Sorted:
    kind = content_type(request)
    try:
        return await sort_body(aggregate.form, kind, await request.body(), service.settings.limits.batch, service.run)
    except Refused as refusal:
        if refusal.status_code == 413:
            aggregate.refused["oversized"] += 1
        raise


def _refuse_if_none(counts: dict[str, int]) -> None:
    """Refuse a request of which nothing is good and something is bad."""
    if counts["accepted"] or counts["repeated"]:
        return
    if counts["malformed"]:
        raise Refused(422, "malformed", "No report of this collection's spec was found in the request.")
    if counts["other_spec"]:
        raise Refused(422, "other_spec", "The reports are of another spec; get this collection's spec and report anew.")


def _view(aggregate: Aggregate) -> dict[str, Any]:
    row = aggregate.row
    return {
        "id": row.id,
        "name": row.name,
        "spec": row.spec,
        "spec_fingerprint": aggregate.form.fingerprint,
        "guarantee": finite(aggregate.protocol.guarantee.to_json()),
        "candidates": row.candidates,
        "reports": aggregate.reports,
        "closed": row.closed,
    }


@router.get("", response_model=CollectionList)
async def collections(service: Reporting) -> Response:
    """List the collections."""
    return reply({"collections": [_view(each) for each in service.aggregates]})


@router.post("", response_model=CollectionView, status_code=201)
async def create(asked: NewCollection, service: Changing) -> Response:
    """Start a collection from the spec of a local protocol."""
    candidates: list[str | int] | None = None if asked.candidates is None else list(asked.candidates)
    created = await service.run(lambda: service.aggregates.create(asked.name, asked.spec, candidates))
    return reply(_view(created), 201)


@router.get("/{identifier}", response_model=CollectionView)
async def collection(identifier: str, service: Reporting) -> Response:
    """Return a collection; a device reads its spec here."""
    return reply(_view(service.aggregates.get(identifier)))


@router.post("/{identifier}/close", response_model=CollectionView)
async def close(identifier: str, service: Changing) -> Response:
    """Take no more reports. The answer comes when those that were taken are counted."""
    aggregate = service.aggregates.get(identifier)
    await service.run(lambda: service.aggregates.close(aggregate))
    await service.store(aggregate, b"")  # nothing, behind all that waits
    return reply(_view(aggregate))


@router.get("/{identifier}/estimate", response_model=SharesAnswer)
async def estimate(
    identifier: str,
    service: Reading,
    key: Annotated[list[str] | None, Query(max_length=1000)] = None,
    confidence: Annotated[Confidence, Query()] = 0.95,
) -> Response:
    """Estimate the share of people who hold each key."""
    return await _estimate(
        service, service.aggregates.get(identifier), AskKeys(keys=list(key or []), confidence=confidence)
    )


@router.post("/{identifier}/estimate", response_model=SharesAnswer)
async def estimate_many(identifier: str, asked: AskKeys, service: Reading) -> Response:
    """Estimate the shares of many keys; they do not appear in an address."""
    return await _estimate(service, service.aggregates.get(identifier), asked)


async def _estimate(service: Service, aggregate: Aggregate, asked: AskKeys) -> Response:
    service.check_number(asked.keys)

    def work() -> Response:
        snapshot = aggregate.snapshot()
        found = answer(snapshot, list(asked.keys), asked.confidence, asked.estimator)
        return estimates_reply(found, snapshot.guarantee, joint=False, reports=snapshot.users)

    return await service.run(work)


@router.get("/{identifier}/top", response_model=SharesAnswer)
async def top_keys(identifier: str, service: Reading, asked: TopInAddress) -> Response:
    """List the largest of the collection's candidates."""
    return await _top(service, service.aggregates.get(identifier), asked)


@router.post("/{identifier}/top", response_model=SharesAnswer)
async def top_of_candidates(identifier: str, asked: AskTop, service: Reading) -> Response:
    """List the largest of some candidates."""
    return await _top(service, service.aggregates.get(identifier), asked)


async def _top(service: Service, aggregate: Aggregate, asked: AskTop) -> Response:
    candidates = aggregate.row.candidates if asked.candidates is None else asked.candidates
    if not candidates:
        raise InvalidInput("this collection has no list of candidates: POST one.")
    service.check_number(candidates)

    def work() -> Response:
        snapshot = aggregate.snapshot()
        found = top(snapshot, asked.n, list(candidates), asked.confidence)
        return estimates_reply(found, snapshot.guarantee, joint=True, reports=snapshot.users)

    return await service.run(work)


@router.get("/{identifier}/history", response_model=History)
async def history(identifier: str, service: Reading) -> Response:
    """Show how the width of intervals fell as reports came in, beside what was predicted for a rare key."""
    aggregate = service.aggregates.get(identifier)

    def work() -> dict[str, Any]:
        points = service.aggregates.history(aggregate)
        last = max(1024, points[-1][0] if points else 0)
        predicted = [(1 << power, aggregate.predicted_width(1 << power)) for power in range(6, last.bit_length() + 1)]
        return {
            name: [{"reports": reports, "width": width} for reports, width in curve]
            for name, curve in (("points", points), ("predicted", predicted))
        }

    return reply(finite(await service.run(work)))


@router.get(
    "/{identifier}/export",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def export(identifier: str, service: Reading) -> Response:
    """Return the collection as a .dps file, from which anyone may estimate."""
    aggregate = service.aggregates.get(identifier)
    content = await service.run(lambda: document_of(aggregate.copy()))
    name = f'attachment; filename="{aggregate.row.id}.dps"'
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": name})


@router.get("/{identifier}/counters", response_model=Counters)
async def counters(identifier: str, service: Reading) -> Response:
    """Say how many reports were taken, and how many were refused for which reason."""
    aggregate = service.aggregates.get(identifier)
    return reply({"accepted": aggregate.reports, **aggregate.refused})
