"""Apply a mutant to a copy of the sources, run the tests that must notice it, and say which of them did."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

from tests.mutants.catalogue import Mutant

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
# A mutant may hang, as one without a lock may; that counts as noticed.
PATIENCE = 120.0

Outcome = Literal["killed", "survived", "stale", "broken"]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    outcome: Outcome
    by: str
    seconds: float
    failed: tuple[str, ...] = ()


class Copy:
    """A copy of the sources, in which one mutant at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self._sources = folder / "src"
        self._runner: subprocess.Popen[str] | None = None
        shutil.copytree(SOURCES, self._sources)  # with times of change: byte code stays valid

    def judge(self, mutant: Mutant, tests: Sequence[str], *, all_of_them: bool = False) -> Verdict:
        """Run tests on a mutant, up to the first that fails or all of them."""
        found = mutant.found()
        if found is None:
            return Verdict(mutant, "stale", "", 0.0)
        path = self._sources / found.path.relative_to(SOURCES)
        began = time.monotonic()
        path.write_text(found.replaced(mutant.new))
        try:
            code, failed = self.run(tests, first=not all_of_them)
            if code == 4:  # a case was renamed: try all cases of its function
                functions = dict.fromkeys(test.partition("[")[0] for test in tests)
                code, failed = self.run([*functions], first=not all_of_them)
        finally:
            shutil.copy2(found.path, path)
        outcome: Outcome = "killed" if code == 1 else "survived" if code == 0 else "broken"
        return Verdict(mutant, outcome, failed[0], time.monotonic() - began, tuple(failed))

    def run(self, tests: Sequence[str], *, first: bool = True, patience: float = PATIENCE) -> tuple[int, list[str]]:
        """Run tests on the copy; return pytest's code (1 for a failure, also of patience) and the tests that failed.

        Where none failed but something else went wrong, the end of the output stands in their place.
        """
        options = ["-q", "-p", "no:cacheprovider", "-m", "not full", "--tb=short", *(["-x"] if first else [])]
        output = self._sources.parent / "output"
        runner = self._running()
        assert runner.stdin is not None
        assert runner.stdout is not None
        runner.stdin.write(json.dumps([[*options, *tests], str(output), patience]) + "\n")
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
    tests: Callable[[Mutant], Sequence[str]],
    *,
    processes: int = 1,
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


def unchanged(tests: Sequence[str]) -> tuple[int, list[str]]:
    """Run tests on a copy of the sources as they are: a test that fails there would kill any mutant."""
    with tempfile.TemporaryDirectory(prefix="dpsketch-mutants-") as folder:
        copy = Copy(Path(folder))
        try:
            return copy.run(tests, patience=math.inf)
        finally:
            copy.close()
