"""Ctrl-C at any line: raise KeyboardInterrupt when the k-th line of dpsketch is about to run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from types import FrameType
from typing import Any

import dpsketch

_SOURCE = str(Path(dpsketch.__file__).parent)


class _Lines:
    def __init__(self, stop_at: int | None) -> None:
        self.seen = 0
        self._stop_at = stop_at

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_SOURCE):
            return None
        if event == "line":
            self.seen += 1
            if self.seen == self._stop_at:
                raise KeyboardInterrupt
        return self


def _traced(action: Callable[[], object], stop_at: int | None) -> int:
    lines, before = _Lines(stop_at), sys.gettrace()
    sys.settrace(lines)
    try:
        # In a context of its own: an interrupt inside ``seeded_noise_for_tests_only`` would leave its source behind.
        copy_context().run(action)
    finally:
        sys.settrace(before)
    return lines.seen


def interrupted(action: Callable[[], object], line: int) -> bool:
    """Run an action, interrupt it at a line, and say whether it was; False if it ended before."""
    try:
        _traced(action, line)
    except KeyboardInterrupt:
        return True
    return False


def sampled_lines(action: Callable[[], object], most: int) -> list[int]:
    """Run an action through and return numbers of its lines: all, or the last half as many and others evenly spread."""
    count = _traced(action, None)
    return sorted({*range(1, count + 1, -(-2 * count // most)), *range(max(1, count - most // 2), count + 1)})
