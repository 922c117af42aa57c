"""Results of cases, one file each, so that the table can be made in several runs.

A result is of the code that made it: with its rows it keeps the day, the functions that draw noise or compute answers
and ran in a trial, and a digest of them and what they reach. Once one of them has changed, the rows are *older* than
the code. Comments and docstrings do not count. A function that would run in addition is named by one that has changed.

Left out is what only takes records in, stores, charges or shows. It moves no interval: tests hold what a sketch counts
to exact oracles, and the noise that is drawn to the law that a release states, by which intervals are made.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.coverage.measuring import Case, Row, answers_of
from benchmarks.coverage.reach import LOADER, ROOT, file_meaning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

FOLDER = ROOT / "benchmarks" / "results" / "coverage"
_WRITTEN = {"δ > 0": "approximate", "δ = 0": "pure", "×": "x", "ε = ": "epsilon "}
_DATA = "benchmarks/coverage/data.py"
_COUNTED = re.compile(
    r"src/dpsketch/(noise|truncated|hashing|kernels|_compiled/.*|local/.*|sketches/quantiles"
    r"|sketches/(\w+/)+(?!command\.py)\w+)\.py"
)


@dataclass(frozen=True)
class Result:
    """The rows of a case, whether the code that made them is that of today, and the day."""

    rows: list[Row]
    current: bool
    measured: str


def place(case: Case, folder: Path = FOLDER) -> Path:
    """Return the file of a case."""
    name = case.name
    for sign, word in _WRITTEN.items():
        name = name.replace(sign, word)
    return folder / f"{re.sub('[^0-9a-z.]+', '-', name.lower().replace(',', '')).strip('-')}.json"


def functions_of(case: Case) -> list[str]:
    """Return what a case stands on: its own function, and those that run in a trial, as ``file:name,name``."""
    own, function = case.trial.__module__, case.trial.__qualname__.split(".")[0]
    answers_of(case, 0)  # what is loaded late runs as it is loaded
    with _noted() as ran:
        answers_of(case, 1)
    names: dict[str, set[str]] = {}
    for file, name in ran:
        if Path(file).is_relative_to(ROOT):
            names.setdefault(Path(file).relative_to(ROOT).as_posix(), set()).add(name)
    counted = [path for path in sorted(names) if path == _DATA or (_COUNTED.fullmatch(path) and path != LOADER)]
    places = [f"{path}:{','.join(sorted(names[path]))}" for path in counted]
    return [*places, f"{own.replace('.', '/')}.py:{function}"]


@contextmanager
def _noted() -> Iterator[set[tuple[str, str]]]:
    """Note the files and names of functions that run, compiled ones included."""
    ran: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            ran.add((frame.f_code.co_filename, frame.f_code.co_qualname.split(".<")[0]))
            if frame.f_code.co_qualname == "_Kernel.__call__":
                kernel = frame.f_locals["self"]
                ran.add((sys.modules[kernel.__module__].__file__ or "", kernel.__name__))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield ran
    finally:
        sys.setprofile(before)


def keep(case: Case, rows: list[Row], functions: list[str], folder: Path = FOLDER) -> None:
    """Write the rows of a case that were measured today, by these functions."""
    today = datetime.now(UTC).date().isoformat()
    text = {"case": case.name, "releases": case.releases, "measured": today, "code": _digest(functions)}
    folder.mkdir(parents=True, exist_ok=True)
    rest = {"functions": " ".join(functions), "rows": [row.to_json() for row in rows]}
    place(case, folder).write_text(json.dumps(text | rest, indent=1, ensure_ascii=False) + "\n")


def result_of(case: Case, folder: Path = FOLDER) -> Result | None:
    """Return what is known of a case; None where nothing is."""
    try:
        found = json.loads(place(case, folder).read_text())
    except FileNotFoundError:
        return None
    functions = found.get("functions", "").split()  # older results name files only
    same = found["releases"] == case.releases and found["code"] == _digest(functions)
    return Result([Row.from_json(row) for row in found["rows"]], same, found["measured"])


def _digest(functions: list[str]) -> str:
    text = "".join(f"{place} {_meaning(place)}\n" for place in functions)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _meaning(place: str) -> str:
    path, _, names = place.partition(":")
    return file_meaning(path, frozenset(names.split(",")))
