"""``python -m tests.mutants``: try all mutants on the tests that are known to kill them; fail on a survivor.

A new mutant needs ``--tests``, or a measurement: ``--reach FOLDER`` runs the quick suite and notes which functions each
test calls; ``--matrix FOLDER`` measures from it which tests kill which mutant, and keeps that in ``kills.json``;
``--report FOLDER`` shows what each file of tests costs and kills.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.gate import ROOT, Verdict, judged, unchanged
from tests.mutants.matrix import Reach, fingerprint, killers, needed, store, stored

# Tests that are tried on a mutant, of those that killed it before.
FEW = 8


class Progress:
    """Prints each verdict and keeps its row of the matrix."""

    def __init__(self, total: int, tried: dict[str, int] | None = None) -> None:
        self._rows, self._total, self._done, self._tried = stored(), total, 0, tried

    def __call__(self, verdict: Verdict) -> None:
        self._done += 1
        name = verdict.mutant.name
        row: dict[str, Any] = {} if verdict.outcome == "stale" else {"of": fingerprint(verdict.mutant)}
        known = self._rows.get(name, {})
        if known.get("of") == row.get("of"):
            row = {**known, **row}
        failed = verdict.failed if verdict.outcome == "killed" else ()
        # The one that was fastest to fail comes first, so that it is tried first again.
        row["kills"] = list(dict.fromkeys([*killers(row), *failed]))
        if self._tried is not None:
            row["tried"] = self._tried[name]
        self._rows[name] = row
        store(self._rows, [mutant.name for mutant in MUTANTS])
        seen = verdict.failed[0] if verdict.failed else ""
        print(f"[{self._done}/{self._total}] {name}: {verdict.outcome} ({verdict.seconds:.0f} s) {seen}", flush=True)


def known(mutant: Mutant) -> list[str]:
    """Return tests that killed a mutant before."""
    return killers(stored().get(mutant.name, {}))[:FEW]


def attempt(chosen: Sequence[Mutant], tests: Sequence[str], processes: int) -> int:
    """Try mutants on given tests, or on those that killed them before; name the survivors."""
    named = list(dict.fromkeys(tests or [test for mutant in chosen for test in known(mutant)[:1]]))
    code, failed = unchanged(named)
    if code:
        print(f"these tests fail without any mutant: {failed}")
        return 1
    unknown = [mutant.name for mutant in chosen if not tests and not known(mutant)]
    found = judged(
        [mutant for mutant in chosen if mutant.name not in unknown],
        lambda mutant: tests or known(mutant),
        processes=processes,
        tell=Progress(len(chosen) - len(unknown)),
    )
    left = [verdict for verdict in found if verdict.outcome != "killed"]
    for name in unknown:
        print(f"no test is known to kill {name}: give --tests, or measure it with --matrix")
    for verdict in left:
        print(f"{verdict.outcome}: {verdict.mutant.name} ({verdict.mutant.where}): {verdict.mutant.breaks}")
    print(f"{len(found) - len(left)} of {len(chosen)} mutants were killed")
    return int(bool(left or unknown))


def reach(folder: Path) -> int:
    """Run the quick suite and note which functions each test calls."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.reach", "-n", "3", "--dist", "worksteal"]
    environment = {**os.environ, "DPSKETCH_REACH": str(folder.resolve())}
    return subprocess.run([*command, "-m", "not full"], cwd=ROOT, env=environment, check=False).returncode


def measure(chosen: Sequence[Mutant], reached: Reach, processes: int) -> int:
    """Measure the rows of the matrix that are out of date."""
    rows = stored()
    stale = [mutant for mutant in chosen if not _is_measured(rows.get(mutant.name, {}), mutant)]
    tried = dict[str, int]()

    def tests(mutant: Mutant) -> list[str]:
        found = mutant.found()
        assert found is not None, mutant.name
        wanted = reached.affordable(dict.fromkeys([*killers(rows.get(mutant.name, {})), *reached.of(found)]))
        tried[mutant.name] = len(wanted)
        return wanted

    found = judged(stale, tests, processes=processes, all_of_them=True, tell=Progress(len(stale), tried))
    left = [verdict.mutant.name for verdict in found if verdict.outcome != "killed"]
    print(f"killed by no test within the budget: {', '.join(left) or 'none'}")
    return int(bool(left))


def _is_measured(row: dict[str, Any], mutant: Mutant) -> bool:
    """Say whether a row of the matrix is of this mutant as it is, on all tests within the budget."""
    return "tried" in row and row["of"] == fingerprint(mutant) and bool(killers(row))


def report(reached: Reach) -> None:
    """Print what each file of tests costs and kills; "needed" are the tests of a cheapest choice that kills all."""
    rows, chosen = stored(), set(needed(stored(), reached.seconds))
    files: dict[str, dict[str, float]] = defaultdict(
        lambda: dict.fromkeys(("seconds", "tests", "kills", "needed"), 0.0)
    )
    for test, seconds in reached.seconds.items():
        row = files[test.partition("::")[0]]
        row["seconds"], row["tests"] = row["seconds"] + seconds, row["tests"] + 1
        row["needed"] += test in chosen
    for row in rows.values():
        for file in {test.partition("::")[0] for test in row["kills"]}:
            files[file]["kills"] += 1
    for file, row in sorted(files.items(), key=lambda each: -each[1]["seconds"]):
        numbers = f"{row['tests']:5.0f} tests {row['kills']:4.0f} kills {row['needed']:3.0f} needed"
        print(f"{row['seconds']:8.1f} s {numbers} {file}")


def main() -> int:
    """Parse the command and run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="mutants whose names begin so")
    parser.add_argument("--tests", nargs="+", default=[], metavar="TEST", help="tests to try instead of the known ones")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="number of mutants tried at a time")
    parser.add_argument("--reach", type=Path, metavar="FOLDER", help="run the quick suite, note what each test calls")
    parser.add_argument("--matrix", type=Path, metavar="FOLDER", help="measure which tests kill which mutant")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="cost and kills of each file of tests")
    given = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not given.only or mutant.name.startswith(tuple(given.only))]
    if not chosen:
        parser.error("no mutant has such a name")
    if given.reach:
        return reach(given.reach)
    if given.report:
        report(Reach.load(given.report))
        return 0
    if given.matrix:
        return measure(chosen, Reach.load(given.matrix), given.processes)
    return attempt(chosen, given.tests, given.processes)


if __name__ == "__main__":
    sys.exit(main())
