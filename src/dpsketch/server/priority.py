"""The processor: whoever computes answers gives way to whoever takes reports."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

__all__ = ["give_way"]

_LOWER = 5  # of nice(1): about a third of the share


def give_way() -> None:
    """Have the system prefer all other threads to this one, where threads have priorities of their own, as on Linux."""
    if sys.platform.startswith("linux"):
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _LOWER)
