"""How far a record goes: which of our functions, in which files, `run counts` passes through from a file to a release.

Run as ``python -m benchmarks.walk [PICTURE.svg]``: it prints the numbers of one small run, and draws them. A
function counts once, when it is first called; a change of file is when the next one of its thread is in another file:
records are read on a thread of their own. What runs while a module loads does not count, nor do comprehensions and
lambdas: they are read where they stand, and newer Pythons do not call them at all. Another tree is measured by
``PYTHONPATH``.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

RECORDS = 1_000


# The steps of the one path, and what belongs to each: the first that fits a file's name is its step.
STEPS = {
    "command line": ("cli/",),
    "read records": ("sources/", "sketches/feed", "sketches/frames"),
    "bound each user": ("bounding/", "sketches/partials", "changes"),
    "hash keys": ("hashing", "seeds", "_compiled/xxh64", "_compiled/kernel"),
    "charge, add noise": ("core/permit", "core/account", "core/laws", "core/move", "ledger/", "accounting/", "noise"),
    "write the release": ("files", "release", "results", "core/", "sketches/countsketch/private"),
    "accumulate": ("sketches/", "threads", "_compiled/"),
    "values of all": ("",),
}
# The order in which a record meets them; values are used by all.
SHOWN = [
    "command line", "read records", "bound each user", "hash keys", "accumulate", "charge, add noise",
    "write the release",
]  # fmt: skip


class Walk(NamedTuple):
    """What was passed: functions by file, and how often the file changed."""

    functions: dict[str, int]
    changes: int

    def __str__(self) -> str:
        return (
            f"{sum(self.functions.values())} functions in {len(self.functions)} files, {self.changes} changes of file"
        )

    def of_step(self, step: str) -> dict[str, int]:
        """Return the functions, by file, of one step."""
        return {name: count for name, count in self.functions.items() if _step(name) == step}


def _step(name: str) -> str:
    return next(step for step, homes in STEPS.items() if name.startswith(homes))


def walk(arguments: list[str]) -> Walk:
    """Run a command of the command line, and follow it and its threads through our own files, imports apart."""
    from dpsketch.cli import main

    home = str(Path(sys.modules["dpsketch"].__file__ or "").parent) + os.sep
    functions: set[tuple[str, str]] = set()
    counts: Counter[str] = Counter()
    last: dict[int, str] = {}  # by thread
    loading: Counter[int] = Counter()
    changes, turn = 0, threading.Lock()

    def follow(frame: FrameType, event: str, _: Any) -> None:
        nonlocal changes
        code, thread = frame.f_code, threading.get_ident()
        if code.co_name == "<module>":
            loading[thread] += {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or loading[thread] or code.co_name.startswith("<"):
            return
        name = code.co_filename.removeprefix(home)
        with turn:
            if name == code.co_filename or (name, code.co_qualname) in functions:
                return
            functions.add((name, code.co_qualname))
            changes += name != last.get(thread)
            last[thread] = name
            counts[name] += 1

    argv, sys.argv = sys.argv, ["dpsketch", *arguments]
    threading.setprofile(follow)
    sys.setprofile(follow)
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        sys.argv = argv
    return Walk(counts, changes)


def counted() -> Walk:
    """Follow `run counts` on a small file."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "visits.csv")
        source.write_text("url\n" + "".join(f"/page{i % 50}\n" for i in range(RECORDS)))
        os.environ |= {"XDG_DATA_HOME": folder, "DPSKETCH_LEDGER": ""}
        budget = ["--epsilon", "1", "--delta", "1e-6"]
        return walk(["run", "counts", str(source), "--key", "url", *budget, "-o", f"{folder}/visits.dps"])


def picture(found: Walk) -> str:
    """Draw the steps as a row of boxes, with what each passes through; what is sensitive lies left of the line."""
    wide, high, gap = 150, 190, 18
    parts = []
    for place, step in enumerate(SHOWN):
        x, files = 10 + place * (wide + gap), found.of_step(step)
        public = step == "write the release"
        lines = [f"{sum(files.values())} functions, {len(files)} files", ""]
        lines += [
            name.removesuffix(".py").removeprefix("sketches/") for name in sorted(files, key=lambda n: -files[n])[:7]
        ]
        parts.append(
            f'<rect x="{x}" y="40" width="{wide}" height="{high}" rx="6" class="{"public" if public else "own"}"/>'
        )
        parts.append(f'<text x="{x + 8}" y="60" class="head">{step}</text>')
        parts += [f'<text x="{x + 8}" y="{80 + 17 * i}">{line}</text>' for i, line in enumerate(lines)]
        if place:
            parts.append(f'<path d="M{x - gap + 2} 135h{gap - 6}l-5 -4m5 4l-5 4" class="arrow"/>')
    edge = 10 + SHOWN.index("write the release") * (wide + gap) - gap / 2
    parts.append(f'<path d="M{edge} 10v235" class="edge"/>')
    parts.append(f'<text x="{edge - 70}" y="24">sensitive</text><text x="{edge + 12}" y="24">public</text>')
    shared = found.of_step("values of all")
    words = f"{sum(shared.values())} functions of {len(shared)} files (budgets, costs, numbers, names) serve all steps"
    parts.append(f'<text x="10" y="258">{found}; {words}.</text>')
    style = (
        "text{font:12px sans-serif;fill:#222}.head{font-weight:bold}.own{fill:#f3e9dc;stroke:#a67c52}"
        ".public{fill:#dcefe3;stroke:#4a8c64}.arrow{fill:none;stroke:#444}.edge{stroke:#b03030;stroke-dasharray:4}"
    )
    size = f'width="{20 + len(SHOWN) * (wide + gap)}" height="270"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>\n' + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    found = counted()
    print(found)
    for step in STEPS:
        files = found.of_step(step)
        print(f"  {step}: {sum(files.values())} functions in {len(files)} files")
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(picture(found), encoding="utf-8")
