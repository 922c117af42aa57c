"""Run every benchmark, keep one file of results, and write the page that people read: ``python -m benchmarks [NAME…]``.

Everything runs on one core unless a row says otherwise. A row is a dictionary: ``name``, ``ours``, ``theirs``,
``ratio`` (above 1 is in our favour; None, like ``theirs``, where nobody else does it), ``unit``, and where a goal was
set, ``reach``: the least ratio that meets it. ``series`` holds what was measured between, for a figure of growth.
``draws`` is how many releases an error was measured on, whose noise differs from run to run: only what three standard
deviations of chance do not explain is then told as a fall.

Each benchmark has a process of its own, one after the other, so that none inherits another's memory, threads or
sessions; how many ``seconds`` it took is kept. One that fails is told at the end, and the others run all the same.

``python -m benchmarks --resume`` goes on with a run of all that was interrupted, or whose benchmarks failed: rows of
that run are kept. ``python -m benchmarks --page`` writes page, figures and README anew from the file, and measures
nothing.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.alone import rows_of
from benchmarks.machine import machine, words

HERE = Path(__file__).parent
STORED = HERE / "results" / "latest.json"
# What takes long, and measures how accurate a method is rather than how fast: it is run by its name only, and a run of
# all others keeps its rows.
BY_NAME = ("histogram_figures",)
# A ratio that fell by more than this share of what is committed is reported.
FALL = 0.1


def main(arguments: list[str]) -> None:
    """Run the named benchmarks (by default all that need no name); the others keep the rows of their last run."""
    from benchmarks import page

    known = benchmarks()
    names = [name for name in arguments if name not in ("--page", "--resume")]
    if unknown := set(names) - set(known):
        raise SystemExit(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(known)}.")
    failed: list[str] = []
    if "--resume" in arguments:
        failed = resume()
    elif "--page" not in arguments:
        failed = measure(names or [name for name in known if name not in BY_NAME], whole=not names)
    results = json.loads(STORED.read_text())
    page.write(results)
    rows = results["rows"]
    short = [row for row in rows if "reach" in row and row["ratio"] < row["reach"]]
    print(f"\n{len(rows)} rows; {sum('reach' in row for row in rows)} have a goal, {len(short)} fall short of it.")
    for row in short:
        print(page.line(row))
    fallen = regressions(rows, committed())
    print(f"{len(fallen)} ratios fell by more than {FALL:.0%} against the committed ones.")
    for row, before in fallen:
        print(f"{page.line(row)} was {before:.2f}×")
    if failed:
        raise SystemExit(f"not measured, because they failed: {', '.join(failed)}. See above, and --resume.")


def benchmarks() -> list[str]:
    """Return the names of what can be run: the modules here whose ``run()`` returns rows."""
    rows = re.compile(r"^def run\(.*\) -> (list|Iterator)\[", re.MULTILINE)
    return sorted(path.stem for path in HERE.glob("*.py") if rows.search(path.read_text()))


def measure(names: list[str], whole: bool) -> list[str]:
    """Run benchmarks, store their rows after each, and return the names of those that failed.

    Parameters
    ----------
    names : list of str
        Which.
    whole : bool
        Whether they are all that there are, but for those that are run by name: then nothing else is kept.
    """
    here = machine()
    stored: dict[str, Any] = {"machine": here, "apart": {}, "seconds": {}, "rows": []}
    if STORED.exists():
        stored |= json.loads(STORED.read_text())
    if not whole:
        return _measure(names, stored, apart=words(here))
    kept = [row for row in stored["rows"] if row["benchmark"] in BY_NAME]
    apart = {row["benchmark"]: stored["apart"].get(row["benchmark"], words(stored["machine"])) for row in kept}
    fresh = {"machine": here, "apart": apart, "seconds": {}, "unfinished": names, "rows": kept}
    return _measure(names, fresh, apart=None)


def resume() -> list[str]:
    """Go on with a run of all benchmarks that did not come to its end; return the names of those that failed."""
    stored = json.loads(STORED.read_text())
    here = machine()
    if not stored.get("unfinished"):
        raise SystemExit("the last run of all benchmarks came to its end; there is nothing to resume.")
    if stored["machine"] | {"load": 0} != here | {"load": 0}:
        raise SystemExit(f"that run was on another machine, or with other versions: {words(stored['machine'])}.")
    stored["resumed"] = [*stored.get("resumed", []), words(here)]
    return _measure(list(stored["unfinished"]), stored, apart=None)


def _measure(names: list[str], stored: dict[str, Any], apart: str | None) -> list[str]:
    from benchmarks.page import line

    os.environ.setdefault("DPSKETCH_THREADS", "1")
    failed = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        try:
            found = rows_of(name)
        except (Exception, SystemExit):  # whatever it is, what the others say does not depend on it
            traceback.print_exc()
            failed.append(name)
            continue
        taken = time.perf_counter() - start
        for row in found:
            print(line(row), flush=True)
        print(f"{name}: {taken:.0f} s", flush=True)
        stored["rows"] = [row for row in stored["rows"] if row["benchmark"] != name] + found
        stored["seconds"] = stored.get("seconds", {}) | {name: round(taken, 1)}
        if apart is not None:
            stored["apart"][name] = apart  # its rows are not of the run that the others are of
        else:
            stored["apart"].pop(name, None)
            stored["unfinished"] = [other for other in stored["unfinished"] if other != name]
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_text(json.dumps(stored, indent=2) + "\n")
    return failed


def committed() -> list[dict[str, Any]]:
    """Return the rows of the last commit; none where there is no history."""
    place = f"HEAD:{STORED.relative_to(HERE.parent)}"
    done = subprocess.run(["git", "show", place], cwd=HERE.parent, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["rows"] if done.returncode == 0 else []


def regressions(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[tuple[dict[str, Any], float]]:
    """Return the rows whose ratio fell, each with the ratio that it had."""
    had = {(row["benchmark"], row["name"]): row["ratio"] for row in before}
    pairs = [(row, had.get((row["benchmark"], row["name"]))) for row in rows]
    return [
        (row, ratio)
        for row, ratio in pairs
        if ratio is not None and row["ratio"] is not None and row["ratio"] < _least_share(row) * ratio
    ]


def _least_share(row: dict[str, Any]) -> float:
    """Return the least share of its former ratio that a row may have without being told of.

    Root mean squares of n releases stray by 1/√(2n) of themselves; two runs have one each for us and for others.
    """
    return min(1 - FALL, math.exp(-3 * math.sqrt(2 / row["draws"]))) if "draws" in row else 1 - FALL


if __name__ == "__main__":
    main(sys.argv[1:])
