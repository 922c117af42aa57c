"""Measure how often stated intervals hold: ``python -m benchmarks.coverage [--only PATTERN] [--again] [--quick]``.

Cases whose result is stored, and was made by today's code, are not run again. What is stored is written into
docs/explanation/coverage.md. The exit status is 1 where a row is below its limit or a case has no row.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

os.environ.setdefault("DPSKETCH_THREADS", "1")

from benchmarks.coverage import page, stored
from benchmarks.coverage.cases import all_cases, measured
from benchmarks.coverage.measuring import Row


def main() -> int:
    """Run the cases, print their rows, write the page, and say whether all rows hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of the releases, not stored")
    parser.add_argument("--only", metavar="PATTERN", help="cases whose 'kind, data, noise' match this expression")
    parser.add_argument("--again", action="store_true", help="also cases whose stored result is of today's code")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page from what is stored")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many at a time; one a core")
    asked = parser.parse_args()
    wanted = [] if asked.page else list(all_cases(asked.only))
    if not asked.quick and not asked.again:
        wanted = [each for each in wanted if not ((known := stored.result_of(each[2])) and known.current)]
    rows: list[Row] = []
    start = time.monotonic()
    pool = ProcessPoolExecutor(asked.processes, mp_context=multiprocessing.get_context("spawn"))
    with pool:
        jobs = {pool.submit(measured, family, place, asked.quick): case for family, place, case in wanted}
        for done, job in enumerate(as_completed(jobs), start=1):
            # One that fails leaves its case without a result, and the others go on.
            failure = job.exception()
            found = [] if failure else job.result()
            rows += found
            for row in found:
                print(page.line(row), flush=True)
            words = f"{jobs[job].name} ({time.monotonic() - start:.0f} s)"
            print(f"{done}/{len(jobs)} {words}{f': {failure}' if failure else ''}", file=sys.stderr, flush=True)
    missing = 0
    if not asked.quick:
        results = {case.name: stored.result_of(case) for _, _, case in all_cases()}
        page.write(results)
        missing = sum(each is None for each in results.values())
        rows = [row for each in results.values() if each is not None for row in each.rows]
    short = [row for row in rows if row.short]
    print(f"{len(rows)} rows, {len(short)} below their limit; {missing} cases have none.")
    for row in short:
        print(page.line(row))
    return 1 if short or missing else 0


if __name__ == "__main__":
    sys.exit(main())
