"""Limits on what a request may bring and how often: body, time and rate."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from starlette.types import Message, Receive

from dpsketch.server.refusals import Refused

__all__ = ["Bodies", "Rate", "too_large"]


class Rate:
    """A bucket of requests for each caller: so many a second, and two seconds' worth at once."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._most = max(1.0, 2 * per_second)
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> None:
        """Count a request, or refuse it."""
        now = self._clock()
        left, before = self._left.get(caller, (self._most, now))
        left = min(self._most, left + (now - before) * self._per_second)
        if left < 1:
            wait = math.ceil((1 - left) / self._per_second)
            raise Refused(429, "rate_limited", "Too many requests; wait a little.", {"Retry-After": str(wait)})
        self._left[caller] = (left - 1, now)


def too_large(limit: int) -> Refused:
    """Return the refusal of a body that is too large; the connection ends, so that the rest is not read."""
    words = f"The body is larger than {limit} bytes; send less at a time."
    return Refused(413, "too_large", words, {"Connection": "close"})


class Bodies:
    """The bodies that are being received, and the memory that all of them together may take."""

    def __init__(self, most: int, seconds: float) -> None:
        self.most = most
        self.seconds = seconds
        self.held = 0

    def receive(self, receive: Receive, limit: int, declared: str | None) -> Body:
        """Wrap what reads one request's body, whose length may have been declared."""
        return Body(self, receive, limit, int(declared) if declared is not None and declared.isdecimal() else 0)


class Body:
    """Reads one request's body: it ends within its time, within its size, and within the memory of all."""

    __slots__ = ("_bodies", "_declared", "_done", "_end", "_limit", "_receive", "_size")

    def __init__(self, bodies: Bodies, receive: Receive, limit: int, declared: int) -> None:
        self._bodies = bodies
        self._receive = receive
        self._limit = limit
        self._declared = declared
        self._size = 0
        self._done = False
        self._end = asyncio.get_running_loop().time() + bodies.seconds

    async def __call__(self) -> Message:
        """Receive the next part."""
        if self._done:
            return await self._receive()
        if self._declared > self._limit:
            raise too_large(self._limit)  # before any of it is read
        try:
            async with asyncio.timeout_at(self._end):
                message = await self._receive()
        except TimeoutError:
            words = "The body did not arrive in time."
            raise Refused(408, "too_slow", words, {"Connection": "close"}) from None
        if message["type"] == "http.request":
            part = len(message.get("body", b""))
            self._size += part
            self._bodies.held += part
            self._done = not message.get("more_body", False)
            if self._size > self._limit:
                raise too_large(self._limit)
            if self._bodies.held > self._bodies.most:
                raise Refused(503, "busy", "The service is busy; try again.", {"Retry-After": "1"})
        return message

    def release(self) -> None:
        """Give the memory back, when the request is over."""
        self._bodies.held -= self._size
