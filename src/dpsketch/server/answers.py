"""Answers to questions: computed in threads, kept, shared by all who ask the same, charged to who asks first, and sent.

What a release says never changes, and what a collection says changes only with its reports. So an answer is kept under
what was asked, as the bytes that are sent, with the number of reports where it depends on them. Computing is the
dearest thing a stranger can ask for: each caller has an allowance of it in seconds, and all who have no token compute
one answer at a time. What is large is made once in a while, and strangers who ask for it meanwhile share what there is.
It lies in a file without a name, and is sent to whoever asks a piece at a time.

What a collection says while it grows is a stream of JSON lines, one whenever reports came in, at most one every few
seconds. All who watch a collection share what is computed for it. A stream ends after some minutes, and whoever still
watches asks again, within their rate.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import os
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import pyarrow as pa
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dpsketch.privacy import Guarantee
from dpsketch.results import Estimates
from dpsketch.server.database import StorageFailed
from dpsketch.server.limits import Rate
from dpsketch.server.refusals import Refused
from dpsketch.server.telemetry import Metrics

__all__ = [
    "CSV", "LARGE", "PIECE", "SPOOLED_SECONDS", "Answers", "Pace", "Spooled", "Streams", "estimates_reply",
    "file_response", "finite", "question", "reply", "stream_response",
]  # fmt: skip

CSV = "text/csv"


def reply(value: Any, status: int = 200) -> Response:
    """Return a JSON response; keys that are not UTF-8 have their odd bytes escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_escaped)
    return Response(text.encode(), status, media_type="application/json")


def _escaped(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{type(value).__name__} is not JSON.")


def finite(value: Any) -> Any:
    """Replace numbers that JSON does not have by null, in lists and dictionaries too."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [finite(part) for part in value]
        case dict():
            return {key: finite(part) for key, part in value.items()}
        case _:
            return value


def estimates_reply(
    estimates: Estimates, guarantee: Guarantee, form: Literal["json", "csv"] = "json", *, joint: bool, **more: Any
) -> Response:
    """Return estimates with their intervals and the guarantee; as CSV, the estimates alone."""
    if form == "csv":
        # A table has no room for what is counted, nor for a warning.
        counted = (estimates.counts or guarantee.counts).encode("ascii", "replace").decode()
        headers = {"Content-Disposition": 'attachment; filename="estimates.csv"', "Dpsketch-Counts": counted}
        if more.get("implausible"):
            headers["Dpsketch-Implausible"] = "true"
        return Response(estimates.to_csv().encode("utf-8", "backslashreplace"), media_type=CSV, headers=headers)
    return reply(
        {
            "estimates": finite(estimates.to_json()),
            "confidence": estimates.confidence,
            "counts": estimates.counts or guarantee.counts,
            "joint": joint,
            "note": estimates.note,
            **more,
            "guarantee": finite(guarantee.to_json()),
        }
    )


LARGE = 4 << 20  # bytes from which on an answer goes to a file
PIECE = 1 << 18
"""Bytes that are sent at once: so much of an answer a slow connection holds in memory."""
_RATE = 16 << 20  # bytes a second, of all large answers together


class Pace:
    """Turns at sending: all who send together keep to one rate, because the loop that sends takes reports too."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._next = 0.0

    def wait(self, size: int) -> float:
        """Take the next turn to send so many bytes, and return how many seconds it is off."""
        now = self._clock()
        turn = max(now, self._next)
        self._next = turn + size / self._rate
        return turn - now

    async def turn(self, size: int) -> None:
        """Wait for one's turn."""
        await asyncio.sleep(self.wait(size))


_PACE = Pace(_RATE)  # of the process, as the loop is


def file_response(content: bytes, headers: Mapping[str, str], large: int | None = None) -> Response:
    """Return the bytes of a file as an answer, which from ``large`` bytes on lies on the disk."""
    if len(content) < (LARGE if large is None else large):
        return Response(content, media_type="application/octet-stream", headers=headers)
    found = Spooled(content, headers)
    pa.default_memory_pool().release_unused()  # Arrow would keep the room in which it encoded them
    return found


class Spooled(Response):
    """A large answer on the disk: however many take it, and however slowly, each has one piece of it in memory.

    The file has no name, and is gone with the answer.
    """

    media_type = "application/octet-stream"

    def __init__(self, content: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(b"", headers={**headers, "Content-Length": str(len(content))})
        self._size = len(content)
        try:
            with tempfile.TemporaryFile(buffering=0) as file:
                view = memoryview(content)
                while view:
                    view = view[file.write(view) :]
                self._file = os.dup(file.fileno())
        except OSError:
            raise StorageFailed("the answer is large, and the folder for temporary files does not take it.") from None
        weakref.finalize(self, os.close, self._file)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        sent = StreamingResponse(self._pieces(), headers=dict(self.headers))
        await sent(scope, receive, send)

    async def _pieces(self) -> AsyncIterator[bytes]:
        for start in range(0, self._size, PIECE):
            await _PACE.turn(PIECE)
            # In the loop: the file is so new that the system has it in memory, and a thread would cost more.
            yield os.pread(self._file, PIECE, start)


T = TypeVar("T")

_THREADS = 4
_PUBLIC_THREADS = 1
_KEPT = 16 << 20  # bytes of answers
_BESIDE = 4 << 10  # bytes that an answer takes beside its body: its name, its headers, its place
_SECONDS = 20.0  # seconds' worth of its allowance that a caller may spend at once
_PLACES = {True: 64, False: 16}  # questions of one caller that may wait, by whether the caller has a token
_LOWER = 5  # of nice(1): about a third of the share of the processor
_WAITING = 64  # addresses without a token that may wait for a thread

SPOOLED_SECONDS = 30.0
"""For how long an answer that is on the disk is kept there."""


def question(*parts: object) -> bytes:
    """Return the name under which an answer is kept: a digest of all that it depends on."""
    digest = hashlib.sha256()
    for part in parts:
        text = str(part).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8) + text)
    return digest.digest()


class _KeptAnswer(NamedTuple):
    """An answer, what it is of, and when it was asked for."""

    version: int
    since: float
    found: Response


class Answers:
    """Computes answers, and keeps them."""

    def __init__(self, compute_rate: float, timeout: float, metrics: Metrics) -> None:
        self._timeout = timeout
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(_THREADS, "dpsketch-answer", initializer=give_way)
        self._public = asyncio.Semaphore(_PUBLIC_THREADS)
        self._turns: dict[str, asyncio.Lock] = {}
        self._rate = Rate(compute_rate, what="seconds of computing", seconds=_SECONDS, least=_SECONDS / 4)
        self._kept: OrderedDict[bytes, _KeptAnswer] = OrderedDict()
        self._size = 0
        self._pending: dict[tuple[bytes, int], asyncio.Task[Response]] = {}
        self._places: Counter[str] = Counter()  # questions of each caller that wait or are being computed
        self._strangers = 0  # addresses of which a question has its turn

    @property
    def kept(self) -> int:
        """Bytes of the answers that are kept."""
        return self._size

    async def run(self, work: Callable[[], T]) -> T:
        """Do what takes long in a thread.

        Who waits too long is told so. What has not begun by then never will; what has ends in its own time.
        """
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.wait_for(future, self._timeout)
        except TimeoutError:
            raise _slow() from None

    def at_once(self, caller: str, work: Callable[[], T]) -> T:
        """Do something short in the event loop, at the caller's cost."""
        self._rate.take(caller, 0.0)
        start = time.thread_time()
        try:
            return work()
        finally:
            spent = time.thread_time() - start
            self._rate.charge(caller, spent)
            self._metrics.answer_seconds.inc(spent)

    async def answer(
        self, caller: str, known: bool, name: bytes, work: Callable[[], Response], version: int = 0, within: float = 0.0
    ) -> Response:
        """Return a kept answer, or one that is being computed, or compute it at the caller's cost.

        Parameters
        ----------
        caller : str
            Who pays: a token, or an address.
        known : bool
            Whether the caller has a token.
        name : bytes
            What the answer is kept under, from :func:`question`.
        work : callable
            What computes it, in a thread.
        version : int
            What it is of, where that changes; an older answer is not kept beside a newer one.
        within : float
            For how many seconds an answer of another version will do, from when it was asked for.
        """
        kept = self._kept.get(name)
        if kept is not None and (kept.version == version or time.monotonic() < kept.since + within):
            self._kept.move_to_end(name)
            self._metrics.answers.labels("kept").inc()
            return kept.found
        end = asyncio.get_running_loop().time() + self._timeout  # of all that is waited for, not of each
        while (task := self._being_computed(name, version, within)) is not None:
            try:
                return await _in_time(task, end)
            except Refused as refusal:
                if refusal.code != "rate_limited":
                    raise
                # Who asked first had spent all; whoever asks next pays. What has ended is pending until the loop's next
                # turn, and to wait for it takes no turn (from Python 3.12 on): without one this would go on for ever.
                await asyncio.sleep(0)
        self._rate.take(caller, 0.0)
        if self._places[caller] >= _PLACES[known]:
            words = "Too many questions of yours wait for an answer; wait for one."
            raise Refused(429, "rate_limited", words, {"Retry-After": "1"})
        keep = partial(self._keep, name, version, time.monotonic())
        task = asyncio.create_task(self._compute(caller, known, work, keep))
        self._pending[name, version] = task
        self._places[caller] += 1
        task.add_done_callback(lambda _: self._ended(caller, name, version))
        return await _in_time(task, end)

    def _ended(self, caller: str, name: bytes, version: int) -> None:
        self._pending.pop((name, version), None)
        self._places[caller] -= 1
        if not self._places[caller]:
            del self._places[caller]

    def _being_computed(self, name: bytes, version: int, within: float) -> asyncio.Task[Response] | None:
        task = self._pending.get((name, version))
        if task is None and within:
            task = next((each for (asked, _), each in self._pending.items() if asked == name), None)
        return task

    async def _compute(
        self, caller: str, known: bool, work: Callable[[], Response], keep: Callable[[Response], None]
    ) -> Response:
        try:
            if known:
                return await self._paid(caller, work, keep)
            async with (
                asyncio.timeout(self._timeout),
                self._turns.setdefault(caller, asyncio.Lock()),  # one question of an address at a time
            ):
                if self._strangers >= _WAITING:
                    raise Refused(503, "busy", "The service is busy; try again.", {"Retry-After": "1"})
                self._strangers += 1
                try:
                    async with self._public:
                        self._rate.take(caller, 0.0)  # what came before may have cost all
                        return await self._paid(caller, work, keep)
                finally:
                    self._strangers -= 1
        except TimeoutError:
            raise _slow() from None
        finally:
            turn = self._turns.get(caller)
            if turn is not None and not turn.locked():
                del self._turns[caller]

    async def _paid(self, caller: str, work: Callable[[], Response], keep: Callable[[Response], None]) -> Response:
        spent = 0.0

        def timed() -> Response:
            nonlocal spent
            start = time.thread_time()
            try:
                return work()
            finally:
                spent = time.thread_time() - start

        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, timed)
        finally:
            self._rate.charge(caller, spent)
            self._metrics.answer_seconds.inc(spent)
        self._metrics.answers.labels("computed").inc()
        keep(found)
        return found

    def _keep(self, name: bytes, version: int, since: float, found: Response) -> None:
        self._drop(name)
        if len(found.body) > LARGE:
            return
        self._kept[name] = _KeptAnswer(version, since, found)
        self._size += _size(found)
        if isinstance(found, Spooled):  # the disk is not to hold for long what nobody asks for, or was deleted
            asyncio.get_running_loop().call_later(SPOOLED_SECONDS, self._drop_this, name, weakref.ref(found))
        while self._size > _KEPT:
            self._drop(next(iter(self._kept)))

    def _drop(self, name: bytes) -> None:
        before = self._kept.pop(name, None)
        self._size -= 0 if before is None else _size(before.found)

    def _drop_this(self, name: bytes, found: weakref.ref[Spooled]) -> None:
        kept = self._kept.get(name)
        if kept is not None and kept.found is found():
            self._drop(name)

    def stop(self) -> None:
        """End the threads; what they compute is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _size(answer: Response) -> int:
    return len(answer.body) + _BESIDE


async def _in_time(task: asyncio.Task[Response], end: float) -> Response:
    try:
        async with asyncio.timeout_at(end):
            return await asyncio.shield(task)
    except TimeoutError:
        raise _slow() from None


def _slow() -> Refused:
    return Refused(503, "too_slow", "The answer took too long; ask for less.", {"Retry-After": "1"})


def give_way() -> None:
    """Have the system prefer all other threads to this one, where threads have priorities of their own, as on Linux.

    Whoever computes answers gives way so to whoever takes reports.
    """
    if sys.platform.startswith("linux"):
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _LOWER)


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
