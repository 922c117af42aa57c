"""Large batches on several cores: one thread a part, each with a kernel that has let go of the interpreter's lock.

The number of threads is ``$DPSKETCH_THREADS``, by default the number of cores this process may use. Parts are summed as
integers or written side by side, so the result does not depend on how many there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from threading import Thread, local
from typing import TypeVar

from dpsketch.errors import InvalidInput

__all__ = ["parts", "run", "thread_count"]

T = TypeVar("T")

_MOST = 64
_HERE = local()  # whether this thread has a part already


def thread_count() -> int:
    """Return how many threads a large batch may take.

    Raises
    ------
    InvalidInput
        If ``$DPSKETCH_THREADS`` is set and is not a whole number from 1 to 64.
    """
    asked = os.environ.get("DPSKETCH_THREADS", "")
    if not asked:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(cores, _MOST)
    if not asked.isascii() or not asked.isdigit() or not 1 <= int(asked) <= _MOST:
        raise InvalidInput(f"DPSKETCH_THREADS must be a whole number from 1 to {_MOST}.")
    return int(asked)


def parts(n: int, smallest: int) -> list[slice]:
    """Cut ``n`` items into at most one part a thread, none smaller than ``smallest`` unless there is only one.

    What is one of several parts is not divided again: the cores are taken.

    Examples
    --------
    >>> parts(10, smallest=100)
    [slice(0, 10, None)]
    """
    whole = n < 2 * smallest or getattr(_HERE, "taken", False)
    count = 1 if whole else max(1, min(n // smallest, thread_count()))
    edges = [n * i // count for i in range(count + 1)]
    return [slice(low, high) for low, high in pairwise(edges)]


def run(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run tasks at once, the first one here, and return their results; what one raises is raised when all have ended.

    Threads are made for the call: a pool that is kept would be dead in a forked child. An interrupt waits for those
    that have begun, so that nothing is written behind the back of whoever handles it; a second one does not wait.
    """
    problems: list[BaseException] = []
    results: dict[int, T] = {}

    def guarded(number: int) -> None:
        before = getattr(_HERE, "taken", False)
        _HERE.taken = before or len(tasks) > 1
        try:
            results[number] = tasks[number]()
        except BaseException as problem:
            problems.append(problem)
        finally:
            _HERE.taken = before

    others = [Thread(target=guarded, args=(number,), daemon=True) for number in range(1, len(tasks))]
    try:
        for thread in others:
            thread.start()
        if tasks:
            guarded(0)
    finally:
        for thread in others:
            if thread.ident is not None:
                thread.join()
    if problems:
        raise problems[0]
    return [results[number] for number in range(len(tasks))]
