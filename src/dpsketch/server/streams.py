"""What a collection says while it grows, in one stream: whoever watches asks once, and is told when something changed.

A stream is JSON lines, one whenever reports came in, at most one every few seconds. All who watch a collection share
what is computed for it. A stream ends after some minutes, and whoever still watches asks again, within their rate.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.responses import Response, StreamingResponse

from dpsketch.server.refusals import Refused

__all__ = ["Streams", "stream_response"]

_EVERY = 3.0  # seconds between lines, at least
_ALIVE = 15.0  # seconds after which an empty line says that nothing has changed
_LONGEST = 600.0
_MOST = 1000
_OWN = 50


class Streams:
    """How many streams there are, and whose."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def open(self, caller: str) -> None:
        """Count a stream, or refuse it."""
        if self._of.get(caller, 0) >= _OWN or sum(self._of.values()) >= _MOST:
            raise Refused(429, "rate_limited", "Too many streams are open; close one.", {"Retry-After": "10"})
        self._of[caller] = self._of.get(caller, 0) + 1

    def close(self, caller: str) -> None:
        """Count one less."""
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]


def stream_response(
    streams: Streams, caller: str, version: Callable[[], object], tell: Callable[[], Awaitable[dict[str, Any]]]
) -> Response:
    """Return a stream that tells what there is, and again whenever its version has changed."""
    streams.open(caller)

    async def lines() -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        end, told_at, told = clock() + _LONGEST, 0.0, None
        try:
            while clock() < end:
                now = version()
                if now != told:
                    told, told_at = now, clock()
                    try:
                        yield json.dumps(await tell(), separators=(",", ":")).encode() + b"\n"
                    except Refused as refusal:
                        error = {"code": refusal.code, "message": str(refusal.detail)}
                        yield json.dumps({"error": error}).encode() + b"\n"
                elif clock() - told_at >= _ALIVE:
                    told_at = clock()
                    yield b"\n"
                await asyncio.sleep(_EVERY)
        finally:
            streams.close(caller)

    return StreamingResponse(lines(), media_type="application/x-ndjson")
