"""``python -m tests.mutants``: try all mutants, say who killed what, fail on a survivor.

``--reach FOLDER`` runs the quick suite and notes which functions each test calls. ``--matrix FOLDER`` measures from it
which tests kill which mutant, for all mutants whose row in ``kills.json`` is out of date. ``--report FOLDER`` says what
each file of tests costs and kills.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.mutants.catalogue import MUTANTS
from tests.mutants.gate import ROOT, Mutant, Verdict, judged, unchanged_pass
from tests.mutants.matrix import Reach, fingerprint, needed, store, stored
from tests.mutants.page import write_table

PAGE = ROOT / "docs" / "explanation" / "mutants.md"


def reach(folder: Path) -> int:
    """Run the quick suite and note which functions each test calls."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.reach", "-n", "3", "--dist", "worksteal"]
    environment = {**os.environ, "DPSKETCH_REACH": str(folder.resolve())}
    return subprocess.run([*command, "-m", "not full"], cwd=ROOT, env=environment, check=False).returncode


def told(total: int, names: list[str]) -> Callable[[Verdict], None]:
    """Return what prints each verdict, and keeps the test that killed a mutant."""
    rows, done = stored(), 0

    def tell(verdict: Verdict) -> None:
        nonlocal done
        done += 1
        name = verdict.mutant.name
        print(f"[{done}/{total}] {name}: {verdict.outcome} ({verdict.seconds:.0f} s) {verdict.by}", flush=True)
        if verdict.outcome != "stale":
            now = fingerprint(verdict.mutant)
            row = rows[name] if rows.get(name, {}).get("of") == now else {"of": now, "kills": []}
            killed = verdict.failed if verdict.outcome == "killed" else ()
            rows[name] = {**row, "kills": sorted({*row["kills"], *killed})}
            store(rows, names)

    return tell


def _is_measured(row: dict[str, Any], mutant: Mutant) -> bool:
    """Say whether a row of the matrix is of this mutant as it is, and of all tests within the budget."""
    return "tried" in row and row["of"] == fingerprint(mutant)


def measure(chosen: list[Mutant], reached: Reach, processes: int, names: list[str]) -> int:
    """Measure the rows of the matrix that are out of date, and keep each as soon as it is known."""
    rows = stored()
    stale = [mutant for mutant in chosen if not _is_measured(rows.get(mutant.name, {}), mutant)]
    done, tried = 0, dict[str, int]()

    def tests(mutant: Mutant) -> list[str]:
        found = mutant.found()
        assert found is not None
        known = rows.get(mutant.name, {}).get("kills", [])
        wanted = reached.affordable(dict.fromkeys([*known, *reached.of(found)])) or mutant.named
        tried[mutant.name] = len(wanted)
        return wanted

    def tell(verdict: Verdict) -> None:
        nonlocal done
        done += 1
        name, now = verdict.mutant.name, fingerprint(verdict.mutant)
        known = rows[name]["kills"] if rows.get(name, {}).get("of") == now else []
        kills = sorted({*known, *(verdict.failed if verdict.outcome == "killed" else ())})
        rows[name] = {"of": now, "tried": tried[name], "kills": kills}
        store(rows, names)
        where = f"[{done}/{len(stale)}] {name}: {verdict.outcome}"
        print(f"{where} by {len(kills)} tests ({verdict.seconds:.0f} s)", flush=True)

    judged(stale, processes=processes, tests=tests, all_of_them=True, tell=tell)
    left = [mutant.name for mutant in chosen if not rows[mutant.name]["kills"]]
    print(f"killed by no test within the budget: {', '.join(left) or 'none'}")
    return int(bool(left))


def report(reached: Reach) -> None:
    """Print what each file of tests costs and kills; "needed" are the kills of a cheapest choice of tests."""
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
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only mutants that begin so")
    parser.add_argument("--top", action="store_true", help="only those that the full suite tries")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts there")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="number of mutants tried at a time")
    parser.add_argument("--reach", type=Path, metavar="FOLDER", help="run the quick suite, note what each test calls")
    parser.add_argument("--matrix", type=Path, metavar="FOLDER", help="measure which tests kill which mutant")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="what each file of tests costs and kills")
    parser.add_argument("--unchanged", action="store_true", help="only run the named tests on the sources as they are")
    given = parser.parse_args()
    names = [mutant.name for mutant in MUTANTS]
    if given.reach:
        return reach(given.reach)
    if given.report:
        report(Reach.load(given.report))
        return 0
    chosen = [mutant for mutant in MUTANTS if not given.only or mutant.name.startswith(tuple(given.only))]
    chosen = [mutant for mutant in chosen if mutant.top or not given.top]
    if not chosen:
        parser.error("no mutant has such a name")
    if given.matrix:
        return measure(chosen, Reach.load(given.matrix), given.processes, names)
    if given.unchanged:
        code, by = unchanged_pass(chosen)
        print(f"the tests fail without any mutant: {by}" if code else "all tests pass without a mutant")
        return int(code != 0)
    verdicts = judged(chosen, processes=given.processes, tell=told(len(chosen), names))
    if given.json:
        given.json.write_text(json.dumps([verdict.to_json() for verdict in verdicts], indent=1) + "\n")
    left = [verdict for verdict in verdicts if verdict.outcome != "killed"]
    if not left:
        write_table(PAGE, verdicts, names)
    for verdict in left:
        print(f"{verdict.outcome}: {verdict.mutant.name} ({verdict.mutant.where}): {verdict.mutant.breaks}")
    print(f"{len(verdicts) - len(left)} of {len(verdicts)} mutants were killed")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
