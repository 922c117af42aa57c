"""What the process takes of the machine: memory that it holds and gives back, and a thread's turn at the processor."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["give_way", "memory_in_use", "return_what_is_freed", "settled"]

# Numbers of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LOWER = 5  # of nice(1): about a third of the share


def memory_in_use() -> int:
    """Return how many bytes of memory the process holds; where the system does not say, the most that it held."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def return_what_is_freed() -> bool:
    """Have the C library give large blocks back when they are freed, and say whether it will.

    glibc keeps a heap for each thread, and after the first large block that is freed it takes the next ones from these
    heaps, whose holes it never returns: a service that computes in threads would grow for hours. Two heaps are enough
    here, and blocks from 256 kB on are mapped, and unmapped. Other C libraries have other habits, and are left alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(*each) for each in ((_ARENA_MAX, 2), (_MMAP_THRESHOLD, 1 << 18), (_TRIM_THRESHOLD, 1 << 20)))


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """Have Python look for garbage only among what comes from here on.

    What libraries brought at the start, some 200,000 objects, stays for as long as the process. To look through all of
    it takes more than a tenth of a second, in which no report is taken, and it would be done every few seconds.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def give_way() -> None:
    """Have the system prefer all other threads to this one, where threads have priorities of their own, as on Linux.

    Whoever computes answers gives way so to whoever takes reports.
    """
    if sys.platform.startswith("linux"):
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _LOWER)
