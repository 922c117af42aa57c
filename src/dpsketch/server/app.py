"""The ASGI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import dpsketch
from dpsketch.errors import DpsketchError
from dpsketch.server import collection_routes, release_routes, system_routes
from dpsketch.server.limits import Bodies
from dpsketch.server.logs import log, place_of
from dpsketch.server.refusals import HANDLERS, error_response
from dpsketch.server.service import Service, running
from dpsketch.server.settings import Settings

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

__all__ = ["create_app"]

_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_UPLOAD = "/v1/releases"
_GONE = 499  # what the log calls a request whose sender went away
# FastAPI would send query strings and refused bodies to whatever collector the environment names.
_NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def create_app(settings: Settings) -> FastAPI:
    """Make the application; it opens its store when the server starts it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            async with running(settings) as service:
                app.state.service = service
                yield
        except DpsketchError as error:
            app.state.failure = error  # for whoever started the process
            raise

    app = App(
        title="dpsketch",
        version=dpsketch.__version__,
        summary="Collects local reports, and serves differentially private releases.",
        # Those that most requests ask for come first: routes are tried in order.
        routes=[*collection_routes.router.routes, *release_routes.router.routes, *system_routes.router.routes],
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=HANDLERS,
        telemetry=_NO_TELEMETRY,
    )
    app.mount("/page", StaticFiles(directory=system_routes.PAGE), name="page")
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(Guard, settings=settings)
    return app


class Guard:
    """What happens to every request: limits on its body, headers on its answer, and one line in the log."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._limits = settings.limits
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
            await send(message)

        limit = self._limits.release_body if scope["path"] == _UPLOAD else self._limits.body
        body = self._bodies.receive(receive, limit, Headers(scope=scope).get("content-length"))
        try:
            await self._app(scope, body, send_guarded)
        except ClientDisconnect:
            status = _GONE
        except Exception as error:
            log("error", "request failed", error=type(error).__name__, place=place_of(error.__traceback__))
            if not began:
                response = error_response(500, "failed", "Something went wrong here; it was noted.")
                await response(scope, receive, send_guarded)
        finally:
            body.release()
            self._note(scope, status, time.perf_counter() - start)

    @staticmethod
    def _note(scope: Scope, status: int, seconds: float) -> None:
        service: Service = scope["app"].state.service
        route = getattr(scope.get("route"), "path", "other")
        service.metrics.requests.labels(route, status).inc()
        service.metrics.request_seconds.labels(route).observe(seconds)
        if route not in collection_routes.UNLOGGED or status >= 300:
            log(
                "info" if status < 500 else "error",
                "request",
                method=scope["method"],
                route=route,
                status=status,
                milliseconds=round(1000 * seconds, 1),
            )


def _caching(path: str) -> tuple[bytes, bytes]:
    """Let browsers keep the page's own files, if they ask whether those changed; and no answers."""
    kept = path.startswith("/page/") or path in ("/", "/client.js")
    return b"cache-control", b"no-cache" if kept else b"no-store"


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
