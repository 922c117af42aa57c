"""Where the time of a command goes: ``python -m benchmarks.profiles [OTHER/src]`` writes docs/explanation/profiles.md.

A command is run several times; the run that took least is told. Its time falls into Python's own start, the loading of
each library, the loading of our modules (all by ``-X importtime``), and the rest, which is work. Whose work it is comes
from another run under a profiler: own time by our module, that of libraries counting for whoever of ours called them.
The other tree, an earlier version, is measured in turn with this one, by the same commands; one that it does not have
is left out there.
"""

from __future__ import annotations

import json
import pstats
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import machine, words
from benchmarks.page import replace
from benchmarks.startup import COMMANDS, Clock, write_visits

ROOT = Path(__file__).parent.parent
STORED = ROOT / "benchmarks" / "results" / "profiles.json"
PAGE = ROOT / "docs" / "explanation" / "profiles.md"
REPEATS = 5
_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)")
# What is told by name: at least so much of a command, in seconds.
TOLD = 0.02


@dataclass
class Profile:
    """Seconds of one command: in all, by library loaded, and by our modules at work."""

    seconds: float
    start: float
    loaded: dict[str, float]
    work: float
    modules: dict[str, float]


def profile(clock: Clock, arguments: list[str]) -> Profile | None:
    """Return where the time of a command goes, None where it is refused."""
    command = ["-m", "dpsketch", *arguments]
    try:
        clock.seconds(command)  # writes bytecode and machine code
        seconds = min(clock.seconds(command) for _ in range(REPEATS))
    except subprocess.CalledProcessError:
        return None
    start = min(clock.seconds(["-c", "pass"]) for _ in range(REPEATS))
    loaded = min((_loaded(clock, command) for _ in range(REPEATS)), key=lambda found: sum(found.values()))
    work = max(0.0, seconds - start - sum(loaded.values()))
    return Profile(seconds, start, loaded, work, _modules(clock, arguments))


def _loaded(clock: Clock, command: list[str]) -> dict[str, float]:
    """Return the seconds that each library takes to load, without those that it loads."""
    taken: Counter[str] = Counter()
    for line in clock.errors(["-X", "importtime", *command]).splitlines():
        if found := _LINE.match(line):
            taken[found[2].partition(".")[0]] += int(found[1]) / 1e6
    return dict(taken)


def _modules(clock: Clock, arguments: list[str]) -> dict[str, float]:
    """Return the seconds of our modules at work under a profiler, what they call of others included."""
    with tempfile.TemporaryDirectory() as name:
        output = f"{name}/profile"
        clock.errors(["-m", "cProfile", "-o", output, "-m", "dpsketch", *arguments])
        stats: dict[Any, Any] = vars(pstats.Stats(output))["stats"]
    taken: Counter[str] = Counter()
    for (file, _, function), (_, _, own, _, callers) in stats.items():
        if module := _ours(file):
            taken[module] += own if function != "<module>" else 0.0
        else:  # one step up: what is called by another library stays with it
            for (caller, _, calling), (_, _, share, _) in callers.items():
                if (module := _ours(caller)) and calling != "<module>":
                    taken[module] += share
    return dict(taken)


def _ours(file: str) -> str:
    _, _, inside = file.rpartition("/dpsketch/")
    return inside.removesuffix(".py") if inside != file and inside.endswith(".py") else ""


def measure(other: Path | None) -> dict[str, Any]:
    """Profile every command here and in another tree."""
    trees = {"now": ROOT / "src"} | ({"before": other} if other else {})
    found: dict[str, Any] = {"machine": machine(), "commands": {}}
    with tempfile.TemporaryDirectory() as name:
        clocks = {}
        for when, source in trees.items():
            folder = Path(name) / when
            folder.mkdir()
            write_visits(folder / "visits.csv")
            clocks[when] = Clock(folder, source)
        for what, arguments in COMMANDS.items():
            profiles = {when: profile(clock, arguments) for when, clock in clocks.items()}
            found["commands"][what] = {when: asdict(each) for when, each in profiles.items() if each is not None}
            print(f"{what}: {', '.join(f'{when} {each.seconds:.2f} s' for when, each in profiles.items() if each)}")
    return found


def table(found: dict[str, Any]) -> str:
    """Return the page's generated part."""
    text = [f"\nMeasured on {words(found['machine'])}.", "", "| command | | in all | Python | loading | work |"]
    text.append("|---|---|---:|---:|---|---|")
    for what, trees in found["commands"].items():
        text += [_line(what, when, Profile(**trees[when])) for when in ("now", "before") if when in trees]
    return "\n".join(text) + "\n"


def _line(what: str, when: str, told: Profile) -> str:
    loading = f"{sum(told.loaded.values()):.2f}: {_largest(told.loaded)}"
    work = f"{told.work:.2f}: {_largest(told.modules)}"
    return f"| {what if when == 'now' else ''} | {when} | {told.seconds:.2f} | {told.start:.2f} | {loading} | {work} |"


def _largest(seconds: dict[str, float]) -> str:
    told = sorted(((taken, name) for name, taken in seconds.items() if taken >= TOLD), reverse=True)[:4]
    return ", ".join(f"{name} {taken:.2f}" for taken, name in told) or "nothing over 20 ms"


def main(arguments: list[str]) -> None:
    """Measure, unless only the page is asked for, and write the page."""
    if arguments != ["--page"]:
        STORED.write_text(json.dumps(measure(Path(arguments[0]) if arguments else None), indent=1) + "\n")
    replace(PAGE, table(json.loads(STORED.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
