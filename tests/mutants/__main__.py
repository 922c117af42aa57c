"""``python -m tests.mutants``: try all mutants, say who killed what, fail on a survivor."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.gate import ROOT, Verdict, judged, unchanged_pass
from tests.mutants.page import write_table

PAGE = ROOT / "docs" / "explanation" / "mutants.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only mutants that begin so")
    parser.add_argument("--top", action="store_true", help="only those that every run of the suite tries")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts there")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="so many at a time")
    parser.add_argument("--unchanged", action="store_true", help="only run the named tests on the sources as they are")
    given = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not given.only or mutant.name.startswith(tuple(given.only))]
    chosen = [mutant for mutant in chosen if mutant.top or not given.top]
    if not chosen:
        parser.error("no mutant has such a name")
    if given.unchanged:
        code, by = unchanged_pass(chosen)
        print(f"the tests fail without any mutant: {by}" if code else "all tests pass without a mutant")
        return int(code != 0)
    done = 0

    def tell(verdict: Verdict) -> None:
        nonlocal done
        done += 1
        where = f"[{done}/{len(chosen)}] {verdict.mutant.name}: {verdict.outcome}"
        print(f"{where} ({verdict.seconds:.0f} s) {verdict.by}", flush=True)

    verdicts = judged(chosen, processes=given.processes, tell=tell)
    if given.json:
        given.json.write_text(json.dumps([verdict.to_json() for verdict in verdicts], indent=1) + "\n")
    left = [verdict for verdict in verdicts if verdict.outcome != "killed"]
    if not left:
        write_table(PAGE, verdicts, [mutant.name for mutant in MUTANTS])
    for verdict in left:
        print(f"{verdict.outcome}: {verdict.mutant.name} ({verdict.mutant.where}): {verdict.mutant.breaks}")
    print(f"{len(verdicts) - len(left)} of {len(verdicts)} mutants were killed")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
