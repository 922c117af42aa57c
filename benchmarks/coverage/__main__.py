"""Measure how often stated intervals hold: ``python -m benchmarks.coverage [--quick] [--only KIND] [--json FILE]``.

The full form writes its table into docs/explanation/coverage.md. The exit status is 1 where a row is below its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("DPSKETCH_THREADS", "1")

from benchmarks.coverage import counts, densities, lists, page, reports, values
from benchmarks.coverage.measuring import Case, Row, measure

FAMILIES = (counts, lists, values, densities, reports)


def all_cases(only: str | None = None) -> list[Case]:
    """Return every case, or those of the kinds whose name contains a word."""
    every: Iterator[Case] = (case for family in FAMILIES for case in family.cases())
    return [case for case in every if only is None or only.lower() in case.kind.lower()]


def _measured(number: int, only: str | None, quick: bool) -> list[Row]:
    return measure(all_cases(only)[number], quick=quick)


def main() -> int:
    """Run the cases, print the table, and say whether all rows hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of the releases; limits allow for it")
    parser.add_argument("--only", metavar="KIND", help="kinds whose name contains this")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the rows here too")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many at a time; one a core")
    asked = parser.parse_args()
    cases = all_cases(asked.only)
    rows: list[Row] = []
    start = time.monotonic()
    with ProcessPoolExecutor(asked.processes) as pool:
        jobs = [pool.submit(_measured, number, asked.only, asked.quick) for number in range(len(cases))]
        for done, (case, job) in enumerate(zip(cases, jobs, strict=True), start=1):
            rows += job.result()
            for row in rows[-len(job.result()) :]:
                print(page.line(row), flush=True)
            passed = time.monotonic() - start
            print(f"{done}/{len(cases)} {case.kind}, {case.setting} ({passed:.0f} s)", file=sys.stderr, flush=True)
    if asked.json:
        asked.json.write_text(json.dumps([row.to_json() for row in rows], indent=2, ensure_ascii=False) + "\n")
    if not asked.quick and asked.only is None:
        page.write(rows)
    short = [row for row in rows if row.short]
    print(f"{len(rows)} rows, {len(short)} below their limit.")
    for row in short:
        print(page.line(row))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
