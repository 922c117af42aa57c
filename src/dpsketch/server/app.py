"""The ASGI application: what happens to every request, and the routes for health, metrics, the page and the ledger."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import dpsketch
from dpsketch import local
from dpsketch.errors import DpsketchError
from dpsketch.local.tickets import HEADER
from dpsketch.server import collection_routes, release_routes
from dpsketch.server.answers import PIECE, finite, reply
from dpsketch.server.auth import Visitor, anyone, reading_caller, service_of
from dpsketch.server.database import StorageFailed
from dpsketch.server.limits import Bodies, RawHeaders, address_of
from dpsketch.server.models import FAILURES, LedgerView, SessionView, Status
from dpsketch.server.refusals import HANDLERS, Refused, error_response
from dpsketch.server.service import Service, running
from dpsketch.server.settings import Limits, Settings, from_environment
from dpsketch.server.storage import SCOPES
from dpsketch.server.telemetry import CONTENT_TYPE, log, memory_in_use, place_of

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

__all__ = ["UNLOGGED", "Guard", "create_app"]

_UNCHANGING = ("GET", "HEAD", "OPTIONS")
_PROBES = ("/health", "/ready")  # load balancers ask these by a machine's address


def check_host(path: str, headers: RawHeaders, settings: Settings) -> None:
    """Refuse a request for another name: a page elsewhere may have its own name lead to this machine."""
    if not settings.hosts or path in _PROBES:
        return
    if _name(headers.get(b"host", b"")) not in settings.hosts:
        words = "The service does not answer to this name. Start it with --allow-host and the name, if it should."
        raise Refused(421, "other_host", words, {"Connection": "close"})


@lru_cache(1024)
def _name(host: bytes) -> str:
    try:
        return urlsplit(f"//{host.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""


def check_site(method: str, headers: RawHeaders, settings: Settings) -> None:
    """Refuse what a page of another site sends, unless it was allowed to; browsers say where a page is from."""
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
    if method in _UNCHANGING or site == b"same-origin":
        return
    if origin is None and site in (None, b"none"):
        return  # no browser sends this without saying so
    text = "" if origin is None else origin.decode("latin-1")
    allowed = text in settings.origins or (origin is not None and "*" in settings.origins)
    if not allowed and not _same(text, headers.get(b"host", b"").decode("latin-1")):
        words = "Pages of other sites may not send anything here. --allow-origin names the sites that may."
        raise Refused(403, "cross_site", words, {"Connection": "close"})


def _same(origin: str, host: str) -> bool:
    return origin.removeprefix("https://").removeprefix("http://") == host != origin


UNLOGGED = (
    "/v1/collections/{identifier}/reports",
    "/v1/collections/{identifier}/check",
    "/health",
    "/ready",
    "/metrics",
)
"""Routes whose successes are too many to log; the metrics count them."""

_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_UPLOAD = "/v1/releases"
_BINARY = (b"application/octet-stream", b"application/vnd.apache.arrow.stream")
_GONE = 499  # what the log calls a request whose sender went away


class Guard:
    """Passes requests on to the application, if they may pass."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        named = settings.client_header
        self._client_header = None if named is None else named.lower().encode("latin-1")
        self._bodies = Bodies(settings.limits.waiting, settings.limits.timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500
        began = False

        async def send_guarded(message: Message) -> None:
            nonlocal status, began
            if message["type"] == "http.response.start":
                status, began = message["status"], True
                message["headers"] = [*message.get("headers", []), *_HEADERS, _caching(scope["path"])]
            # The server copies what it is given, and waits between two messages until the caller has taken enough.
            body = message.get("body", b"")
            last = max(0, len(body) - 1) // PIECE * PIECE
            for start in range(0, last, PIECE):
                piece = body[start : start + PIECE]
                await send({"type": message["type"], "body": piece, "more_body": True})
            if last:
                message = {**message, "body": body[last:]}
            await send(message)

        headers: RawHeaders = dict(scope["headers"])
        limit = _limit(self._settings.limits, scope["path"], headers.get(b"content-type", b""))
        body = self._bodies.receive(receive, limit, headers.get(b"content-length", b"").decode("latin-1"))
        # The server leaves out the body of an answer to HEAD; to us it is GET.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        inner["dpsketch.body"] = body
        inner["dpsketch.address"] = address_of(scope, headers, self._client_header)
        try:
            check_host(scope["path"], headers, self._settings)
            check_site(scope["method"], headers, self._settings)
            await self._app(inner, body, send_guarded)
        except Refused as refusal:
            inner["dpsketch.reason"] = refusal.code
            response = error_response(
                refusal.status_code, refusal.code, str(refusal.detail), dict(refusal.headers or {})
            )
            await response(scope, receive, send_guarded)
        except ClientDisconnect:
            status = _GONE
        except Exception as error:
            log("error", "request failed", error=type(error).__name__, place=place_of(error.__traceback__))
            if not began:
                response = error_response(500, "failed", "Something went wrong here; it was noted.")
                await response(scope, receive, send_guarded)
        finally:
            body.release()
            _note(inner, scope["method"], status, time.perf_counter() - start)


def _limit(limits: Limits, path: str, kind: bytes) -> int:
    """Return how large a body may be; JSON is taken apart object by object, and holds the interpreter meanwhile."""
    if kind.partition(b";")[0].strip().lower() not in _BINARY:
        return limits.max_json
    return limits.max_release if path == _UPLOAD else limits.max_body


def _note(scope: Scope, method: str, status: int, seconds: float) -> None:
    service: Service = scope["app"].state.service
    route = getattr(scope.get("route"), "path", "other")
    service.metrics.requests.labels(route, status).inc()
    service.metrics.request_seconds.labels(route).observe(seconds)
    service.traces.note(method, route, status, seconds)
    if status >= 400:
        service.metrics.refusals.labels(scope.get("dpsketch.reason", f"status {status}")).inc()
    if route not in UNLOGGED or status >= 300:
        log(
            "info" if status < 500 else "error",
            "request",
            method=method,
            route=route,
            status=status,
            milliseconds=round(1000 * seconds, 1),
        )


def _caching(path: str) -> tuple[bytes, bytes]:
    """Let browsers keep the page's own files, if they ask whether those changed; and no answers."""
    kept = path.startswith("/page/") or path in ("/", "/client.js")
    return b"cache-control", b"no-cache" if kept else b"no-store"


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


# FastAPI would send query strings and refused bodies to whatever collector the environment names.
_NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def create_app(settings: Settings | None = None) -> FastAPI:
    """Make the application; it opens its store when the server starts it.

    Parameters
    ----------
    settings : Settings, optional
        What it is told; read from the environment (``DPSKETCH_STORE`` and others) where left out, so that an ASGI
        server can make it: ``uvicorn --factory dpsketch.server:create_app``.
    """
    settings = from_environment() if settings is None else settings

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            async with running(settings) as service:
                app.state.service = service
                yield
        except DpsketchError as error:
            app.state.failure = error  # for whoever started the process
            log("error", "the service did not start", reason=str(error))
            raise
        except Exception as error:
            log("error", "the service failed", error=type(error).__name__, place=place_of(error.__traceback__))
            raise

    app = App(
        title="dpsketch",
        version=dpsketch.__version__,
        summary="Collects local reports, and serves differentially private releases.",
        # Those that most requests ask for come first: routes are tried in order.
        routes=[*collection_routes.router.routes, *release_routes.router.routes, *router.routes],
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=HANDLERS,
        telemetry=_NO_TELEMETRY,
    )
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", HEADER],
        )
    app.add_middleware(Guard, settings=settings)
    return app


class App(FastAPI):
    """The application, whose OpenAPI description names the token and the service's own shape of failures."""

    def openapi(self) -> dict[str, Any]:
        """Describe all routes."""
        if self.openapi_schema is None:
            schema = get_openapi(title=self.title, version=self.version, summary=self.summary, routes=self.routes)
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, methods in schema["paths"].items():
                for operation in methods.values():
                    operation["responses"].pop("422", None)
                    if path.startswith("/v1/"):
                        anyone: list[dict[str, list[str]]] = [{}] if path == "/v1/session" else []
                        operation["security"] = [{"token": []}, *anyone]
            for unused in ("HTTPValidationError", "ValidationError"):
                schema["components"]["schemas"].pop(unused, None)
            self.openapi_schema = schema
        return self.openapi_schema
