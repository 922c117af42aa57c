"""Collections: starting them, reporting to them, asking them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dpsketch import files
from dpsketch.answers import answer, top
from dpsketch.errors import InvalidInput
from dpsketch.local import Collector
from dpsketch.local.tickets import new_key
from dpsketch.results import Estimates
from dpsketch.server import models
from dpsketch.server.aggregates import Aggregate, doubts_of
from dpsketch.server.answers import LARGE as LARGE_ANSWER
from dpsketch.server.answers import (
    SPOOLED_SECONDS,
    estimates_reply,
    file_response,
    finite,
    question,
    reply,
    stream_response,
)
from dpsketch.server.auth import (
    Asked,
    Changing,
    Fetching,
    Reading,
    Visitor,
    body_of,
    content_type,
    service_of,
    spent_ticket,
)
from dpsketch.server.refusals import Refused
from dpsketch.server.reports import LARGE, REPORTS_BODY, Outcome, Sorted, sort_body
from dpsketch.server.storage import CollectionPlan, Ticketing

__all__ = ["router"]

router = APIRouter(prefix="/v1/collections", tags=["collections"], responses=models.FAILURES, route_class=Asked)

_IDENTIFIER = 16  # bytes of a report in an export, at least
_JSON_OVERHEAD = 512  # bytes of names and numbers in the JSON form of a report, beside its raw fields


@router.post(
    "/{identifier}/reports", response_model=models.ReceivedReports, status_code=202, openapi_extra=REPORTS_BODY
)
async def report(request: Request, identifier: str) -> Response:
    """Take reports: one JSON object, or a batch. The answer comes when they are on the disk."""
    visitor, aggregate = _open_collection(request, identifier)
    sorted_out = await _sorted(request, visitor, aggregate)
    _check_open(aggregate)  # a body may take its time, and the collection may be closed meanwhile
    asks = aggregate.row.tickets
    outcome = await _stored(visitor, aggregate, sorted_out.records) if sorted_out.records else Outcome(0, 0, 0)
    counts = {
        "accepted": outcome.accepted,
        "repeated": outcome.repeated,
        "malformed": sorted_out.malformed + outcome.malformed,
        "other_spec": sorted_out.other_spec,
    }
    for name in ("repeated", "malformed", "other_spec"):
        aggregate.refused[name] += counts[name]
    visitor.service.metrics.count_reports(counts)
    if outcome.spent and asks is not None:
        raise spent_ticket(asks)
    if outcome.full:
        raise Refused(409, "full", "This collection has no room for these reports. None of them was stored.")
    _refuse_if_none(counts)
    return reply(counts, 202)


@router.post("/{identifier}/check", response_model=models.ReceivedReports, openapi_extra=REPORTS_BODY)
async def check(request: Request, identifier: str) -> Response:
    """Say what would become of reports, and keep nothing: for whoever writes a client."""
    visitor, aggregate = _open_collection(request, identifier)
    sorted_out = await _sorted(request, visitor, aggregate)

    def work() -> dict[str, int]:
        good, fresh = aggregate.sort_out(aggregate.form.from_bytes(sorted_out.records))
        well, new = int(good.sum()), int(fresh.sum())
        bad = sorted_out.malformed + len(good) - well
        return {"accepted": new, "repeated": well - new, "malformed": bad, "other_spec": sorted_out.other_spec}

    counts = work() if len(sorted_out.records) < LARGE else await visitor.service.run(work)
    _refuse_if_none(counts)
    return reply(counts)


def _open_collection(request: Request, identifier: str) -> tuple[Visitor, Aggregate]:
    """Let through who may report; of whoever has no token no more of a body is read than their reports need."""
    service = service_of(request)
    visitor = service.reporter(request, identifier)
    service.admission.arrival(visitor)
    aggregate = service.aggregates.get(identifier)
    _check_open(aggregate)
    if not visitor.known or visitor.mark is not None:
        body = body_of(request)
        body.limit = min(body.limit, service.admission.batch(visitor) * (_JSON_OVERHEAD + 4 * aggregate.form.size))
    return visitor, aggregate


def _check_open(aggregate: Aggregate) -> None:
    if aggregate.is_closed():
        raise Refused(409, "closed", "This collection is closed and takes no more reports.")


async def _sorted(request: Request, visitor: Visitor, aggregate: Aggregate) -> Sorted:
    service = visitor.service
    most = service.admission.batch(visitor)
    try:
        found = await sort_body(aggregate.form, content_type(request), await request.body(), most, service.run)
    except Refused as refusal:
        if refusal.status_code == 413:
            aggregate.refused["oversized"] += 1
        raise
    service.admission.reports(visitor, aggregate, found.number(aggregate.form.size))
    return found


async def _stored(visitor: Visitor, aggregate: Aggregate, records: bytes) -> Outcome:
    admission, number = visitor.service.admission, len(records) // aggregate.form.size
    admission.reserve(visitor, aggregate, number)
    accepted = 0
    try:
        outcome = await visitor.service.store(aggregate, records, visitor.mark)
        accepted = outcome.accepted
    finally:
        admission.settle(visitor, aggregate, number - accepted)
    return outcome


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
        "closed": aggregate.is_closed(),
        "max_reports": row.plan.max_reports,
        "closes_at": _moment(row.plan.closes),
        "deletes_at": _moment(row.plan.deletes),
        "tickets": None if row.tickets is None else row.tickets.period,
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


@router.get("", response_model=models.CollectionList)
async def collections(visitor: Fetching) -> Response:
    """List the collections."""
    mine = (each for each in visitor.service.aggregates if visitor.caller.concerns(each.row.id))
    return reply({"collections": [_view(each) for each in mine]})


@router.post("", response_model=models.CollectionStarted, status_code=201)
async def create(asked: models.NewCollection, visitor: Changing) -> Response:
    """Start a collection from the spec of a local protocol. Where it asks for tickets, their key is shown this once."""
    service = visitor.service
    candidates: list[str | int] | None = None if asked.candidates is None else list(asked.candidates)
    plan = CollectionPlan(
        asked.max_reports,
        None if asked.closes_at is None else asked.closes_at.timestamp(),
        None if asked.deletes_at is None else asked.deletes_at.timestamp(),
    )
    ticketing = None if asked.tickets is None else Ticketing(new_key(), asked.tickets)
    created = await service.run(lambda: service.aggregates.create(asked.name, asked.spec, candidates, plan, ticketing))
    return reply({**_view(created), "ticket_key": None if ticketing is None else ticketing.key}, 201)


@router.get("/{identifier}", response_model=models.CollectionView)
async def collection(identifier: str, visitor: Fetching) -> Response:
    """Return a collection; a device reads its spec here."""
    return reply(_view(visitor.service.aggregates.get(identifier)))


@router.post("/{identifier}/close", response_model=models.CollectionView)
async def close(identifier: str, visitor: Changing) -> Response:
    """Take no more reports. The answer comes when those that were taken are counted."""
    aggregate = visitor.service.aggregates.get(identifier)
    await visitor.service.close(aggregate)
    return reply(_view(aggregate))


@router.delete("/{identifier}", status_code=204, response_class=Response)
async def delete(identifier: str, visitor: Changing) -> Response:
    """Forget a collection and all its reports, for good."""
    await visitor.service.delete(visitor.service.aggregates.get(identifier))
    return Response(status_code=204)


@router.post("/{identifier}/estimate", response_model=models.SharesAnswer, responses=models.TABLE)
async def estimate_many(identifier: str, asked: models.AskKeys, visitor: Reading) -> Response:
    """Estimate the shares of many keys; they do not appear in an address."""
    aggregate = visitor.service.aggregates.get(identifier)
    visitor.service.check_number(asked.keys)

    def found(snapshot: Collector) -> Estimates:
        return answer(snapshot, list(asked.keys), asked.confidence, asked.estimator)

    return await _shares("shares", visitor, aggregate, asked, found)


@router.get("/{identifier}/estimate", response_model=models.SharesAnswer, responses=models.TABLE)
async def estimate(identifier: str, asked: models.KeysInAddress, visitor: Reading) -> Response:
    """Estimate the share of people who hold each key."""
    return await estimate_many(identifier, asked, visitor)


async def _shares(
    what: str,
    visitor: Visitor,
    aggregate: Aggregate,
    asked: models.AskKeys | models.AskTop,
    found: Callable[[Collector], Estimates],
    joint: bool = False,
) -> Response:
    """Answer with what is found in the reports that have come, and with what of it cannot be."""

    def work() -> Response:
        snapshot = aggregate.snapshot()
        told = found(snapshot)
        doubts = doubts_of(told, snapshot.protocol)
        noted = replace(told, note=" ".join(filter(None, [told.note, doubts.words])))
        more = {"reports": snapshot.users, "implausible": doubts.any, "implausible_keys": doubts.places}
        return estimates_reply(noted, snapshot.guarantee, asked.format, joint=joint, **more)

    return await visitor.answer(question(what, aggregate.row.id, repr(asked)), work, aggregate.reports)


@router.post("/{identifier}/top", response_model=models.SharesAnswer, responses=models.TABLE)
async def top_of_candidates(identifier: str, asked: models.AskTop, visitor: Reading) -> Response:
    """List the largest of some candidates."""
    aggregate = visitor.service.aggregates.get(identifier)
    candidates = aggregate.row.candidates if asked.candidates is None else asked.candidates
    if not candidates:
        raise InvalidInput("this collection has no list of candidates: POST one.")
    visitor.service.check_number(candidates)

    def found(snapshot: Collector) -> Estimates:
        return top(snapshot, asked.n, list(candidates), asked.confidence)

    return await _shares("largest", visitor, aggregate, asked, found, joint=True)


@router.get("/{identifier}/top", response_model=models.SharesAnswer, responses=models.TABLE)
async def top_keys(identifier: str, asked: models.TopInAddress, visitor: Reading) -> Response:
    """List the largest of the collection's candidates."""
    return await top_of_candidates(identifier, asked, visitor)


@router.get("/{identifier}/history", response_model=models.History)
async def history(identifier: str, visitor: Reading) -> Response:
    """Show how the width of intervals fell as reports came in, beside what was predicted for a rare key."""
    aggregates = visitor.service.aggregates
    aggregate = aggregates.get(identifier)

    def work() -> Response:
        points = aggregates.history(aggregate)
        last = max(1024, points[-1][0] if points else 0)
        predicted = [(1 << power, aggregate.predicted_width(1 << power)) for power in range(6, last.bit_length() + 1)]
        curves = {
            name: [{"reports": reports, "width": width} for reports, width in curve]
            for name, curve in (("points", points), ("predicted", predicted))
        }
        return reply(finite(curves))

    return await visitor.answer(question("history", identifier), work, aggregate.reports)


@router.get(
    "/{identifier}/stream",
    response_class=Response,
    responses={200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}},
)
async def stream(identifier: str, visitor: Reading) -> Response:
    """Tell how a collection grows: a line of JSON now, and one whenever reports came in, for some minutes.

    A line has the collection, its counters, its history, and the largest of its candidates where there are any.
    """
    aggregates = visitor.service.aggregates
    aggregate = aggregates.get(identifier)

    async def tell() -> dict[str, Any]:
        told: dict[str, Any] = {
            "collection": _view(aggregate),
            "counters": {"accepted": aggregate.reports, **aggregate.refused},
            "history": json.loads(bytes((await history(identifier, visitor)).body)),
            "shares": None,
        }
        if aggregate.row.candidates and aggregate.reports:
            told["shares"] = json.loads(bytes((await top_of_candidates(identifier, models.AskTop(), visitor)).body))
        return told

    def version() -> object:
        return aggregate.reports, aggregate.is_closed(), sum(aggregate.refused.values())

    return stream_response(visitor.service.streams, visitor.key, version, tell)


@router.get(
    "/{identifier}/export",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def export(identifier: str, visitor: Reading) -> Response:
    """Return the collection as a .dps file, from which anyone may estimate.

    A large one that is open is made for callers without a token once in half a minute: it may be that old.
    """
    aggregate = visitor.service.aggregates.get(identifier)

    def work() -> Response:
        content = files.encode(aggregate.snapshot().to_document())
        return file_response(content, {"Content-Disposition": f'attachment; filename="{aggregate.row.id}.dps"'})

    large = aggregate.reports * _IDENTIFIER >= LARGE_ANSWER
    within = SPOOLED_SECONDS if large and visitor.stranger and not aggregate.is_closed() else 0.0
    return await visitor.answer(question("export", identifier), work, aggregate.reports, within)


@router.get("/{identifier}/counters", response_model=models.Counters)
async def counters(identifier: str, visitor: Reading) -> Response:
    """Say how many reports were taken, and how many were refused for which reason."""
    aggregate = visitor.service.aggregates.get(identifier)
    return reply({"accepted": aggregate.reports, **aggregate.refused})
