"""What every test stands on: fixtures, and random bits that repeat from run to run."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import shake_128
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

import dpsketch
from dpsketch import noise

# The quick suite tries the same examples in every run, the full one new ones each time.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.register_profile("fresh", print_blob=True, deadline=None)


class RepeatedBits:
    """Bits in place of the operating system's that depend on the test alone, so that no verdict is a matter of luck.

    The library takes them for the system's own. A forked child gets fresh ones, as it would from the system.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process = os.getpid()
        self._name, self._calls = b"", 0

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Read the stream of one test or fixture, and then go on with the one that was interrupted."""
        before = self._name, self._calls
        self._name, self._calls = name.encode(), 0
        try:
            yield
        finally:
            self._name, self._calls = before

    def read(self, count: int) -> bytes:
        """Return the next ``count`` bytes of the running test's stream."""
        if os.getpid() != self._process:
            return os.urandom(count)
        with self._turn:
            self._calls += 1
            return shake_128(self._name + b" %d" % self._calls).digest(count)


_BITS = RepeatedBits()


class Turns:
    """Let workers compile the kernels of a file one after the other: all but the first find the machine code on disk.

    Left alone they compile the same kernels at the same time; and numba's index of a kernel, which they write without
    a lock, can name the code of one signature for another. No two files of kernels import each other: nobody waits for
    ever.
    """

    def __init__(self) -> None:
        self._sources = str(Path(dpsketch.__file__).parent)
        self._mine: set[str] = set()
        self._compile = Dispatcher.compile

    def begin(self) -> None:
        """Compile in turns from now on."""

        def in_turn(dispatcher: Any, signature: Any) -> Any:
            with global_compiler_lock, self._turn(dispatcher.py_func.__code__.co_filename):
                return self._compile(dispatcher, signature)

        Dispatcher.compile = in_turn

    @contextmanager
    def _turn(self, file: str) -> Iterator[None]:
        if file in self._mine or not file.startswith(self._sources):
            yield
            return
        with Path(file).open("rb") as source:
            fcntl.flock(source, fcntl.LOCK_EX)
            self._mine.add(file)
            try:
                yield
            finally:
                self._mine.remove(file)


def pytest_configure(config: pytest.Config) -> None:
    """Put the repeated bits in place, unless fresh ones are asked for (``DPSKETCH_FRESH_NOISE=1``)."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        Turns().begin()
    fresh = bool(os.environ.get("DPSKETCH_FRESH_NOISE"))
    hypothesis.settings.load_profile("fresh" if fresh else "same")
    if not fresh:
        noise._OperatingSystemSource.read = lambda _, count: _BITS.read(count)  # type: ignore[method-assign]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run what races real processes (servers, signals, clusters, browsers) first, and let it try twice.

    First, because other workers compute while it waits, and because what is first is never given to another worker, so
    that there is one cluster of Spark. The random bits are the same in both tries: no statistical verdict gets a second
    chance. ``make test-full`` gives none at all, and neither do mutants, which are run without plugins.
    """
    home = Path(__file__).parent / "integration"
    items.sort(key=lambda item: (home not in item.path.parents, item.path.name != "test_spark.py"))
    if os.environ.get("DPSKETCH_FRESH_NOISE") or not config.pluginmanager.hasplugin("rerunfailures"):
        return
    for item in items:
        if home in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give each test a stream named after it, whichever worker runs it and whatever ran before."""
    with _BITS.of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail the test that leaves a seeded source behind: all later releases of this worker would say so."""
    result = yield
    if noise.noise_is_for_tests():
        noise._source.set(noise._OPERATING_SYSTEM)
        pytest.fail(f"{item.nodeid} left a seeded source of noise behind")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[None]:
    """Give a fixture that several tests share a stream of its own: which test asks first is chance."""
    with _BITS.of(f"{fixturedef.baseid} {fixturedef.argname} {request.node.nodeid}"):
        return (yield)


@pytest.fixture
def seeded() -> Iterator[None]:
    """Noise that repeats and says so: releases made from it promise nothing."""
    with noise.seeded_noise_for_tests_only(20220818):
        yield
