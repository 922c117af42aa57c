"""Run the application in this process, until it is told to stop, with limits on each connection.

Uvicorn alone waits without end for a head, for a body, and for an answer to be taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dpsketch.errors import DpsketchError, InvalidInput
from dpsketch.server.limits import network_of
from dpsketch.server.refusals import error_response
from dpsketch.server.settings import Settings

__all__ = ["ConnectionPlaces", "Limited", "LimitedConfig", "serve"]

_MOST = 64 << 10  # bytes of address and headers
_PROBES = (b"/health", b"/ready")
_GRACE = 2.0  # seconds beyond a body's time, in which the application says that it is over
_LEAST_SHARE = 16  # connections of one address that count, at least: a browser opens six


class ConnectionPlaces:
    """The connections of each address that have a place, and those that wait for one.

    A connection keeps its place until it ends, whatever else its address opens.

    Parameters
    ----------
    share : float
        How many connections of one address have a place. As many more may wait, and serve probes.

    Attributes
    ----------
    counted : int
        How many connections of all addresses have a place.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._placed: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self.counted = 0

    def enter(self, address: str) -> bool:
        """Give a new connection a place, or have it wait; say whether it has one."""
        self._waiting[address] += 1
        return self.take(address)

    def take(self, address: str) -> bool:
        """Give a waiting connection a place, and say whether there was one."""
        if self._placed[address] >= self._share:
            return False
        self._placed[address] += 1
        self.counted += 1
        _less(self._waiting, address)
        return True

    def full(self, address: str) -> bool:
        """Say whether more connections of the address wait than may."""
        return self._waiting[address] > self._share

    def leave(self, address: str, *, placed: bool) -> None:
        """Forget a connection that ended."""
        self.counted -= placed
        _less(self._placed if placed else self._waiting, address)


def _less(counted: Counter[str], address: str) -> None:
    """Count one less, and forget an address that has none."""
    counted[address] -= 1
    if not counted[address]:
        del counted[address]


class LimitedConfig(uvicorn.Config):
    """Uvicorn's settings, with those of :class:`Limited`; behind a proxy all callers have its address."""

    def __init__(self, app: Any, *, seconds: float, most: int, behind_proxy: bool, **kwargs: Any) -> None:
        super().__init__(app, **{**kwargs, "http": Limited})
        self.seconds = seconds
        self.most = most
        self.places = ConnectionPlaces(math.inf if behind_proxy else max(_LEAST_SHARE, most // 4))


async def _overloaded(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"Retry-After": "1", "Connection": "close"}
    await error_response(503, "busy", "The service has too many connections; try again.", headers)(scope, receive, send)


class Limited(HttpToolsProtocol):
    """Uvicorn's protocol for connections that end where nothing goes on for some seconds, and of which there are few.

    The head of a request must arrive whole in that time, and be of a bounded size; then its body, whether or not
    anybody reads it. A connection whose request was answered before its body arrived is ended. Of an answer that waits
    in memory some must be taken in that time. Where there are too many connections, all but health is refused. One
    address takes a quarter of the connections at most, so that others find room; a connection that was served is served
    on, whatever else its address opens.
    """

    def __init__(self, config: LimitedConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._seconds = config.seconds
        self._limit = config.most
        self._places = config.places
        self._address = ""
        self._placed = False
        self._size = 0
        self._end: asyncio.TimerHandle | None = None
        self._left = 0
        self._stalled: asyncio.TimerHandle | None = None
        self._in_head = True
        self._arriving = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._address = network_of(self.client[0]) if self.client else ""
        self._placed = self._places.enter(self._address)
        if not self._placed and self._places.full(self._address):
            transport.abort()
        self._wait(self._seconds if self._placed else _GRACE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_waiting()
        self._flowing()
        self._places.leave(self._address, placed=self._placed)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a head."""
        super().on_message_begin()
        self._in_head = self._arriving = True
        self._size = 0
        self._wait(self._seconds)

    def on_headers_complete(self) -> None:
        """Begin to wait for a body, and refuse the request where there are too many."""
        self._in_head = False
        self._wait(self._seconds + _GRACE)
        self._placed = self._placed or self._places.take(self._address)
        crowded = max(self._places.counted, len(self.tasks)) > self._limit or not self._placed
        app = self.app
        if crowded and self.url.partition(b"?")[0] not in _PROBES:
            self.app = _overloaded
        try:
            super().on_headers_complete()
        finally:
            self.app = app

    def on_message_complete(self) -> None:
        """Wait for the answer, which has limits of its own."""
        self._arriving = False
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Give the rest of a body that nobody reads a moment to arrive."""
        super().on_response_complete()
        if self._arriving and not self.transport.is_closing():
            self._wait(_GRACE)

    def data_received(self, data: bytes) -> None:
        """Read, and count the bytes of a head."""
        super().data_received(data)
        if self._in_head:
            self._size += len(data)
            if self._size > _MOST:
                self.send_400_response("The head of the request is too large.")
        # Uvicorn stops its own timer at any byte, and starts it again only after an answer.
        resting = self.cycle is None or self.cycle.response_complete
        if resting and self._end is None and self.timeout_keep_alive_task is None:
            self._wait(self.timeout_keep_alive)

    def shutdown(self) -> None:
        """End in order; a stream ends at once, and a body that has not arrived has a moment left."""
        super().shutdown()
        if self.cycle is not None and self.cycle.scope["path"].endswith("/stream"):
            self.transport.close()
        elif self._arriving:
            self._wait(_GRACE)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._end = self.loop.call_later(seconds, self._let_go)

    def _stop_waiting(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _let_go(self) -> None:
        self._end = None
        self.transport.close()

    def pause_writing(self) -> None:
        """Watch whether the answer is taken."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Stop watching."""
        self._flowing()
        super().resume_writing()

    def _watch(self) -> None:
        self._left = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(self._seconds, self._look_again)

    def _look_again(self) -> None:
        if self.transport.get_write_buffer_size() < self._left:
            self._watch()
        else:
            self.transport.abort()  # to close it would wait for whoever takes nothing

    def _flowing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


_BACKLOG = 2048
_SHUTDOWN = 30  # seconds that open requests have when the service is told to stop
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
        most=settings.limits.max_connections,
        behind_proxy=settings.client_header is not None,
        log_config=None,
        access_log=False,  # it would write addresses and query strings
        proxy_headers=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_SHUTDOWN,
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
