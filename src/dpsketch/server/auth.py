"""Who asks and what they may do: tokens with scopes, tickets, and the visitors of routes.

A collection that asks for tickets takes one report for each subject and period. What the store keeps of a ticket that
was used is a mark: a keyed digest of its subject and the period. The mark is written in the transaction of the report,
so that a report that was acknowledged has used its ticket up, and a ticket whose report was not stored is as good as
before.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from dpsketch.local import tickets
from dpsketch.local.tickets import HEADER
from dpsketch.server.refusals import Refused
from dpsketch.server.storage import SCOPES, Scope, digest_of

if TYPE_CHECKING:
    from dpsketch.server.limits import Body
    from dpsketch.server.service import Service
    from dpsketch.server.storage import Mark, Storage, Ticketing

__all__ = [
    "PERIODS", "Asked", "Caller", "Changing", "Fetching", "Period", "Reading", "Tokens",
    "Visitor", "anyone", "body_of", "check_ticket", "content_type", "current_period", "digest_of",
    "reading_caller", "require", "service_of", "spent_ticket",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever makes a request: the token's id ("" without one), what it may do, where, and until when."""

    id: str
    scopes: frozenset[Scope]
    everywhere: frozenset[Scope] = frozenset()
    collection: str | None = None
    expires: float = math.inf

    def may(self, collection: str | None) -> frozenset[Scope]:
        """Return what it may do about a collection; None stands for all that is not one."""
        here = self.collection is None or self.collection == collection
        return self.scopes if here else self.everywhere

    def concerns(self, collection: str) -> bool:
        """Say whether it may do anything about a collection."""
        return bool(self.may(collection))


class Tokens:
    """The store's tokens, held in memory and read again from time to time."""

    refresh_seconds = 1.0
    """After so long a new or revoked token takes effect."""

    def __init__(self, storage: Storage, public: frozenset[Scope]) -> None:
        self._storage = storage
        self._public = Caller("", public)
        self._known: dict[str, Caller] = {}

    def __len__(self) -> int:
        return len(self._known)

    def caller(self, authorization: str | None) -> Caller:
        """Return who sends this ``Authorization`` header; None stands for no header."""
        if authorization is None:
            return self._public
        scheme, _, token = authorization.partition(" ")
        caller = self._known.get(digest_of(token.strip())) if scheme.lower() == "bearer" else None
        if caller is None or caller.expires <= time.time():
            raise Refused(
                401,
                "unauthorized",
                "The token is not known, or was revoked, or has expired. Ask whoever runs the service for one.",
                {"WWW-Authenticate": "Bearer"},
            )
        return caller

    def refresh(self) -> None:
        """Read the tokens again."""
        known = {}
        for digest, token in self._storage.tokens().items():
            implied = frozenset(SCOPES) if token.scope == "admin" else frozenset({token.scope})
            public = self._public.scopes
            ends = math.inf if token.expires is None else token.expires
            known[digest] = Caller(token.id, implied | public, public, token.collection, ends)
        self._known = known


def require(caller: Caller, *scopes: Scope, collection: str | None = None) -> None:
    """Refuse a caller who has none of the scopes, for a collection or for what is none."""
    allowed = caller.may(collection)
    if allowed.isdisjoint(scopes):
        if not caller.id:
            raise Refused(
                401, "unauthorized", "This needs a token (Authorization: Bearer …).", {"WWW-Authenticate": "Bearer"}
            )
        if not caller.scopes.isdisjoint(scopes):
            raise Refused(403, "forbidden", "This token is for another collection.")
        raise Refused(403, "forbidden", f"This needs a token with the scope {' or '.join(scopes)}.")


Period = Literal["once", "hour", "day", "week"]
PERIODS: tuple[Period, ...] = get_args(Period)
"""How often a subject may report; periods begin at midnight UTC, or at the hour, and a week on Thursday as 1970 did."""

_SECONDS = {"hour": 3600, "day": 86_400, "week": 604_800}


def current_period(ticketing: Ticketing, now: float) -> int:
    """Return the number of the period that a moment is in."""
    return 0 if ticketing.period == "once" else int(now // _SECONDS[ticketing.period])


def check_ticket(ticketing: Ticketing, collection: str, ticket: str | None, now: float) -> tuple[int, str]:
    """Return the period and the mark of a good ticket, or refuse."""
    if ticket is None:
        words = f"This collection asks for a ticket with each report ({tickets.HEADER}); its issuer gives them out."
        raise Refused(401, "ticket_needed", words)
    subject = tickets.subject_of(ticketing.key, collection, ticket, now)
    if subject is None:
        words = "The ticket is not of this collection, or has expired. Ask its issuer for another."
        raise Refused(403, "ticket_refused", words)
    period = current_period(ticketing, now)
    said = f"mark {collection} {period} {subject}".encode()
    return period, hmac.new(ticketing.key.encode(), said, hashlib.sha256).hexdigest()[:32]


def spent_ticket(ticketing: Ticketing) -> Refused:
    """Return the refusal of a second report."""
    often = "" if ticketing.period == "once" else f" a {ticketing.period}"
    words = f"This ticket has had its report; the collection takes one{often} from each. Nothing was stored."
    return Refused(409, "ticket_used", words)


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
    else:
        visitor = service.visitor(request, "collect", "read", "admin", collection=named or own)
    service.admission.spec_rate.take(visitor.key)
    return visitor


Reading = Annotated[Visitor, Depends(reading_caller)]
Changing = Annotated[Visitor, Depends(administrator)]
Fetching = Annotated[Visitor, Depends(device)]


async def anyone(request: Request) -> Visitor:
    """Let everyone through, within their rate."""
    return _admitted(request)


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
