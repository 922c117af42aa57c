"""What happens to every request: who may send it, limits on its body, headers on its answer, one line in the log."""

from __future__ import annotations

import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpsketch.server.clients import RawHeaders, address_of, check_host, check_site
from dpsketch.server.limits import Bodies
from dpsketch.server.logs import log, place_of
from dpsketch.server.refusals import Refused, error_response
from dpsketch.server.service import Service
from dpsketch.server.settings import Limits, Settings
from dpsketch.server.spooled import PIECE

__all__ = ["UNLOGGED", "Guard"]

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
        return limits.json_body
    return limits.release_body if path == _UPLOAD else limits.body


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
