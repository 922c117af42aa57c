"""Runs pytest again and again, each time in a child of a process that has loaded everything but the library.

Loading NumPy, Numba, Arrow and pytest takes longer than most tests. This process loads them once; for each line of JSON
that it reads, a list of pytest's arguments, a file for its output and a number of seconds, it forks, runs pytest in the
child, and writes pytest's code, or null where it took too long.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any


def load() -> None:
    """Load what the library needs, and nothing of it. Plugins of pytest stay out: it loads them in its own way."""
    for name in (
        "numpy",
        "scipy.special",
        "scipy.optimize",
        "numba",
        "pyarrow.compute",
        "mpmath",
        "pytest",
    ):
        __import__(name)


class Failures:
    """A plugin that lists the tests that failed."""

    def __init__(self) -> None:
        self.tests: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a test that failed, before, in or after its call."""
        if report.failed and report.nodeid not in self.tests:
            self.tests.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file whose tests could not be found."""
        if report.failed:
            self.tests.append(report.nodeid)


def run(arguments: list[str], output: str) -> int:
    """Run pytest in this process, its output in a file, and the tests that failed in another."""
    os.setsid()
    with open(output, "wb") as file:  # noqa: PTH123
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    import pytest

    failures = Failures()
    code = int(pytest.main(arguments, plugins=[failures]))
    with open(output + ".failed", "w") as file:  # noqa: PTH123
        json.dump(failures.tests, file)
    return code


def waited(child: int, seconds: float) -> int | None:
    """Wait for a child; end it, and all that it started, where it takes too long."""
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.02)


def serve() -> None:
    """Answer until there is nothing more to read."""
    load()
    for line in sys.stdin:
        arguments, output, seconds = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 3
            try:
                code = run(arguments, output)
            finally:
                sys.stdout.flush()
                os._exit(code)
        print(json.dumps(waited(child, seconds)), flush=True)


if __name__ == "__main__":
    serve()
