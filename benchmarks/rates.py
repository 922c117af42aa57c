"""Rates and starts beside an earlier version, in one run: ``python -m benchmarks.rates OTHER/src``.

The versions take turns: a round is one interpreter each for all the work (`benchmarks.rates_work`), and one each for
every start. Time is the processor's, which other work on the machine hardly stretches, and the best round counts. Rates
are to stay within 3%, import and help to be no slower, and a question to take a third. ``--page`` writes the table
anew from what was measured last.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from benchmarks.machine import machine, words
from benchmarks.page import replace
from benchmarks.startup import COMMANDS, IMPORTS, Clock, write_visits

ROOT = Path(__file__).parent.parent
STORED = ROOT / "benchmarks" / "results" / "rates.json"
PAGE = ROOT / "docs" / "explanation" / "profiles.md"
MARKS = ("<!-- rates: made by `python -m benchmarks.rates OTHER/src`, not by hand -->", "<!-- end of rates -->")
WORK = ["-P", str(ROOT / "benchmarks" / "rates_work.py")]
ROUNDS = 7
RATE, QUESTION = 0.97, 3.0
RELEASE = COMMANDS["dpsketch run counts, 200,000 rows"]
# What is started, and how many times as fast it is to be; 2% are what equal starts differ by.
STARTS = {
    "import dpsketch": (IMPORTS["import dpsketch"], 0.98),
    "dpsketch --help": (["-m", "dpsketch", "--help"], 0.98),
    "dpsketch query, counts": (["-m", "dpsketch", *COMMANDS["dpsketch query, counts"]], QUESTION),
}


def measure(other: Path) -> dict[str, Any]:
    """Let this tree and another take turns."""
    found: dict[str, Any] = {"machine": machine(), "rounds": ROUNDS}
    with tempfile.TemporaryDirectory() as name:
        clocks = {}
        for when, source in {"before": other.resolve(), "now": ROOT / "src"}.items():
            folder = Path(name, when)
            folder.mkdir()
            write_visits(folder / "visits.csv")
            clocks[when] = clock = Clock(folder, source)
            for arguments in (WORK, ["-m", "dpsketch", *RELEASE], *(start for start, _ in STARTS.values())):
                clock.errors(arguments)  # writes bytecode, machine code, and the release that is asked
        rounds = [{when: _round(clock) for when, clock in clocks.items()} for _ in range(ROUNDS)]
    found["rows"] = [
        _row(what, [each["before"][what] for each in rounds], [each["now"][what] for each in rounds])
        for what in rounds[0]["now"]
    ]
    return found


def _round(clock: Clock) -> dict[str, float]:
    """Return rates, and starts a second, of one version."""
    rates: dict[str, float] = json.loads(clock.errors(WORK).splitlines()[-1])
    return rates | {what: 1 / _processor(clock, arguments) for what, (arguments, _) in STARTS.items()}


def _processor(clock: Clock, arguments: list[str]) -> float:
    """Return the processor time of a process."""
    before = getrusage(RUSAGE_CHILDREN)
    clock.errors(arguments)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _row(what: str, before: list[float], now: list[float]) -> dict[str, Any]:
    goal = STARTS[what][1] if what in STARTS else RATE
    return {"name": what, "before": max(before), "now": max(now), "ratio": max(now) / max(before), "goal": goal}


def table(found: dict[str, Any]) -> str:
    """Return the page's generated part."""
    text = [f"\nMeasured on {words(found['machine'])}; the best of {found['rounds']} rounds."]
    text += ["", "| | before | now | ratio | goal |", "|---|---:|---:|---:|---:|", *map(_line, found["rows"])]
    short = [row["name"] for row in found["rows"] if row["ratio"] < row["goal"]]
    text += ["", f"Short of the goal: {', '.join(short)}." if short else "None falls short."]
    return "\n".join(text) + "\n"


def _line(row: dict[str, Any]) -> str:
    if row["name"] in STARTS:
        before, now = (f"{1e3 / row[when]:,.0f} ms" for when in ("before", "now"))
    else:
        before, now = (f"{row[when] / 1e6:.3g} M/s" for when in ("before", "now"))
    return f"| {row['name']} | {before} | {now} | {row['ratio']:.3f} | {row['goal']:g} |"


def main(arguments: list[str]) -> None:
    """Measure, unless only the page is asked for, and write the page."""
    if arguments != ["--page"]:
        STORED.write_text(json.dumps(measure(Path(arguments[0])), indent=1) + "\n", encoding="utf-8")
    told = table(json.loads(STORED.read_text(encoding="utf-8")))
    replace(PAGE, told, *MARKS)
    print(told)


if __name__ == "__main__":
    main(sys.argv[1:])
