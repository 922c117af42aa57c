"""A plugin of pytest that notes which functions of the library each test calls, and how long the test takes.

``python -m tests.mutants --reach`` runs the quick suite with it. A kernel counts as called where it is called from
Python, with the kernels that its code names.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

_LIBRARY = "/src/dpsketch/"


class Noting:
    """Writes one line of JSON a test: its id, its seconds, and the functions of the library that it called."""

    def __init__(self, folder: Path) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
        self._file = (folder / f"{worker}.jsonl").open("a", encoding="utf-8")
        self._names: dict[CodeType, str] = {}
        self._called: set[CodeType] = set()
        from dpsketch._compiled.kernel import _Jitable, _Kernel

        self._wrappers = {_Kernel.__call__.__code__, _Jitable.__call__.__code__}

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        self._called.add(code)
        if code in self._wrappers:
            self._called.add(frame.f_locals["self"].__wrapped__.__code__)

    def _name(self, code: CodeType) -> str:
        if code not in self._names:
            _, found, module = code.co_filename.partition(_LIBRARY)
            self._names[code] = f"{module}:{code.co_qualname}" if found else ""
        return self._names[code]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note one test."""
        self._called.clear()
        began = time.monotonic()
        threading.settrace(self._note)
        sys.settrace(self._note)  # type: ignore[arg-type]
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            called = sorted({self._name(code) for code in list(self._called)} - {""})
            self._file.write(json.dumps([item.nodeid, round(time.monotonic() - began, 3), called]) + "\n")
            self._file.flush()


def pytest_configure(config: pytest.Config) -> None:
    """Note tests in the processes that run them."""
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Noting(Path(os.environ["DPSKETCH_REACH"])), "noting")
