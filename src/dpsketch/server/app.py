"""The ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles

import dpsketch
from dpsketch.errors import DpsketchError
from dpsketch.local.tickets import HEADER
from dpsketch.server import collection_routes, release_routes, system_routes
from dpsketch.server.guard import Guard
from dpsketch.server.logs import log, place_of
from dpsketch.server.refusals import HANDLERS
from dpsketch.server.service import running
from dpsketch.server.settings import Settings, from_environment

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

__all__ = ["create_app"]

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
