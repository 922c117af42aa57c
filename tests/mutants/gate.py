"""Apply a mutant to a copy of the sources, run the tests that must notice it, and say which of them did."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

from tests.mutants.place import Match, matched

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
# A mutant may hang, as one without a lock may; that counts as noticed.
PATIENCE = 600.0

Outcome = Literal["killed", "survived", "stale", "broken"]


@dataclass(frozen=True)
class Mutant:
    """One way to break the library.

    Attributes
    ----------
    name : str
        What it is called.
    where : str
        The function, class or constant that it changes, by its qualified name (see :mod:`tests.mutants.place`).
    old, new : str
        The code that is replaced, which must stand there once, and what replaces it.
    tests : str
        What must fail: files or tests, with ``-k`` if need be, as on pytest's command line.
    breaks : str
        What it breaks, in words.
    top : bool
        Whether it is one of the few that the full suite tries.
    """

    name: str
    where: str
    old: str
    new: str
    tests: str
    breaks: str
    top: bool = False

    @property
    def named(self) -> list[str]:
        """The tests that it names, as arguments of pytest."""
        return [part.replace("␣", " ") for part in self.tests.split()]

    def found(self) -> Match | None:
        """Return where the old code stands; None if it does not stand in exactly one place."""
        return matched(self.where, self.old) if self.old != self.new else None


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    outcome: Outcome
    by: str
    seconds: float
    failed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON-ready values."""
        return {
            "name": self.mutant.name,
            "where": self.mutant.where,
            "breaks": self.mutant.breaks,
            "outcome": self.outcome,
            "by": self.by,
            "seconds": round(self.seconds, 1),
        }


class Copy:
    """A copy of the sources, in which one mutant at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self._sources = folder / "src"
        self._runner: subprocess.Popen[str] | None = None
        shutil.copytree(SOURCES, self._sources)  # with times of change: byte code stays valid

    def judge(self, mutant: Mutant, tests: Sequence[str] = (), *, all_of_them: bool = False) -> Verdict:
        """Try a mutant on the tests that it names, or on others; stop at the first that fails unless told not to."""
        found = mutant.found()
        if found is None:
            return Verdict(mutant, "stale", "", 0.0)
        path = self._sources / found.path.relative_to(SOURCES)
        began = time.monotonic()
        path.write_text(found.replaced(mutant.new))
        try:
            code, failed = self.run(tests or mutant.named, first=not all_of_them)
        finally:
            shutil.copy2(found.path, path)
        outcome: Outcome = "killed" if code == 1 else "survived" if code == 0 else "broken"
        return Verdict(mutant, outcome, failed[0], time.monotonic() - began, tuple(failed))

    def run(self, tests: Sequence[str], *, first: bool = True) -> tuple[int, list[str]]:
        """Run tests on the copy; return pytest's code (1 for a failure, also of patience) and the tests that failed.

        Where none failed but something else went wrong, the end of the output stands in their place.
        """
        options = ["-q", "-p", "no:cacheprovider", "-m", "not full", "--tb=short", *(["-x"] if first else [])]
        output = self._sources.parent / "output"
        runner = self._running()
        assert runner.stdin is not None
        assert runner.stdout is not None
        runner.stdin.write(json.dumps([[*options, *tests], str(output), PATIENCE]) + "\n")
        runner.stdin.flush()
        code = json.loads(runner.stdout.readline())
        if code is None:
            return 1, ["no end in sight"]
        listed = Path(f"{output}.failed")
        failed = list(json.loads(listed.read_text())) if code == 1 and listed.exists() else []
        listed.unlink(missing_ok=True)
        return code, failed or [output.read_text(errors="replace")[-2000:]]

    def _running(self) -> subprocess.Popen[str]:
        """The process that runs pytest, started when it is first needed."""
        if self._runner is None:
            environment = {**os.environ, "PYTHONPATH": str(self._sources), "PYTEST_ADDOPTS": ""}
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # no test that is named here needs one
            # Two mutants of one file and one length within a second would share their byte code.
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
            for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_CURRENT_TEST"):
                environment.pop(name, None)
            self._runner = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("runner.py"))],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._runner

    def close(self) -> None:
        """End the process that runs pytest."""
        if self._runner is not None:
            assert self._runner.stdin is not None
            assert self._runner.stdout is not None
            self._runner.stdin.close()
            self._runner.wait()
            self._runner.stdout.close()
            self._runner = None

    def loaded(self) -> Path:
        """The package that tests on this copy load."""
        code = "import dpsketch; print(dpsketch.__file__)"
        environment = {**os.environ, "PYTHONPATH": str(self._sources)}
        shown = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        return Path(shown.stdout.strip())

    @property
    def sources(self) -> Path:
        """The copied sources."""
        return self._sources


def judged(
    mutants: Sequence[Mutant],
    *,
    processes: int = 1,
    tests: Callable[[Mutant], Sequence[str]] = lambda _: (),
    all_of_them: bool = False,
    tell: Callable[[Verdict], None] = lambda _: None,
) -> list[Verdict]:
    """Try mutants, several at a time, each process in a copy of its own; return the verdicts in order."""
    with tempfile.TemporaryDirectory(prefix="dpsketch-mutants-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(processes):
            copy = Copy(Path(folder) / str(number))
            if not copy.loaded().is_relative_to(copy.sources):
                raise RuntimeError("the tests would load another dpsketch than the copy that is changed.")
            copies.put(copy)

        def judge(mutant: Mutant) -> Verdict:
            copy = copies.get()
            try:
                verdict = copy.judge(mutant, tests(mutant), all_of_them=all_of_them)
            finally:
                copies.put(copy)
            tell(verdict)
            return verdict

        with ThreadPoolExecutor(processes) as pool:
            verdicts = list(pool.map(judge, mutants))
        while not copies.empty():
            copies.get().close()
        return verdicts


def unchanged_pass(mutants: Iterable[Mutant]) -> tuple[int, list[str]]:
    """Run all tests that the mutants name on the sources as they are: what fails there would kill anything."""
    with tempfile.TemporaryDirectory(prefix="dpsketch-mutants-") as folder:
        copy = Copy(Path(folder))
        try:
            for tests in {mutant.tests: mutant.named for mutant in mutants}.values():
                code, failed = copy.run(tests)
                if code:
                    return code, failed
        finally:
            copy.close()
    return 0, []
