"""Run the application in this process, until it is told to stop."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from dpsketch.errors import DpsketchError, InvalidInput
from dpsketch.server.connections import LimitedConfig
from dpsketch.server.settings import Settings

__all__ = ["serve"]

_BACKLOG = 2048
_GRACE = 30  # seconds that open requests have when the service is told to stop
_SWITCH = 0.0005  # seconds: the writer's thread must not keep small requests waiting


class _Server(uvicorn.Server):
    """Uvicorn's server; it says when it listens, and keeps the error that ended it."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen."""
        await super().startup(sockets)
        if self.started:
            self._listening()


def serve(app: FastAPI, host: str, port: int, settings: Settings, listening: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C: then open requests end, what waits is written, and the store is left tidy.

    Parameters
    ----------
    listening : callable
        Is told the address once requests are taken.
    """
    bound = _bind(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{bound.getsockname()[1]}"
    config = LimitedConfig(
        app,
        seconds=settings.limits.timeout,
        most=settings.limits.connections,
        behind_proxy=settings.client_header is not None,
        log_config=None,
        access_log=False,  # it would write addresses and query strings
        proxy_headers=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE,
        backlog=_BACKLOG,
    )
    server = _Server(config, lambda: listening(url))
    sys.setswitchinterval(_SWITCH)
    # Uvicorn raises the signal that stopped it once more when all is done; that one is not to end us in disorder.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with bound, contextlib.suppress(SystemExit):  # with which uvicorn ends where the application does not start
        server.run([bound])
    if not server.started:
        raise _reason(app)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        raise InvalidInput(f"cannot listen on {host}, port {port}: {error.strerror}.") from None
    return bound


def _reason(app: FastAPI) -> DpsketchError:
    """Return why the application did not start."""
    found = getattr(app.state, "failure", None)
    return found if isinstance(found, DpsketchError) else InvalidInput("the service could not start; see its log.")
