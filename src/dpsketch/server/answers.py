"""Answers to questions: computed in threads, kept, shared by all who ask the same, and charged to who asks first.

What a release says never changes, and what a collection says changes only with its reports. So an answer is kept under
what was asked, as the bytes that are sent, with the number of reports where it depends on them. Computing is the
dearest thing a stranger can ask for: each caller has an allowance of it in seconds, and all who have no token compute
one answer at a time. What is large is made once in a while, and strangers who ask for it meanwhile share what there is.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from starlette.responses import Response

from dpsketch.server.limits import Rate
from dpsketch.server.metrics import Metrics
from dpsketch.server.refusals import Refused
from dpsketch.server.resources import give_way
from dpsketch.server.spooled import LARGE, Spooled

__all__ = ["SPOOLED_SECONDS", "Answers", "question"]

T = TypeVar("T")

_THREADS = 4
_PUBLIC_THREADS = 1
_KEPT = 16 << 20  # bytes of answers
_BESIDE = 4 << 10  # bytes that an answer takes beside its body: its name, its headers, its place
_SECONDS = 20.0  # seconds' worth of its allowance that a caller may spend at once
_PLACES = {True: 64, False: 16}  # questions of one caller that may wait, by whether the caller has a token
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
        self,
        caller: str,
        known: bool,
        name: bytes,
        work: Callable[[], Response],
        version: int = 0,
        within: float = 0.0,
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
