"""Reproducing the papers: every figure and table that they print, the numbers checked, ours beside them.

What a paper claims, the script that reproduces it and the numbers that are expected of it lie in ``papers/<name>``.
This module finds them, runs the script, checks every number and writes the report: Markdown, and one HTML page that
needs no other file.
"""

from __future__ import annotations

import base64
import html
import importlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dpsketch import plots
from dpsketch.errors import InvalidInput
from dpsketch.noise import seeded_noise_for_tests_only

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PAPERS", "Expected", "Reproduced", "Reproduction", "Run", "Tolerance", "find_papers", "reproduce", "shown",
    "write_index", "write_report",
]  # fmt: skip

PAPERS = ("countsketch", "alp", "moments", "privsketch", "race")

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid #bbb; padding: .3rem .6rem; text-align: left; vertical-align: top; }
th { background: #eef2f6; }
img { max-width: 100%; border: 1px solid #ddd; }
code { background: #f2f2f2; padding: 0 .2rem; }
"""


def shown(value: float) -> str:
    """Return a number as reports print it: with four significant digits, but large whole numbers whole.

    Examples
    --------
    >>> shown(888317.0), shown(1234.5), shown(0.123456)
    ('888,317', '1,234', '0.1235')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 and float(value).is_integer() else f"{value:,.4g}"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The closed interval in which a number must lie."""

    low: float
    high: float

    def hold(self, value: float) -> bool:
        """Say whether a number lies inside; what is not a number never does."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{shown(self.low)} to {shown(self.high)}"


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a paper.

    Attributes
    ----------
    what : str
        What it measures, in words, with its unit.
    paper : float or None
        What the paper prints, where it prints it as a number.
    reproduced, ours : Limits or None
        Where the paper's method, reproduced, must lie, and where the library's default at the same budget must.
    needs : tuple of str
        Files of the data folder without which it cannot be measured.
    full_only : bool
        Whether the quick form leaves it out.
    """

    what: str
    paper: float | None
    reproduced: Tolerance | None
    ours: Tolerance | None
    needs: tuple[str, ...] = ()
    full_only: bool = False


@dataclass(frozen=True, slots=True)
class Reproduced:
    """One number, measured: the paper's method reproduced, and the library's default at the same budget."""

    name: str
    number: Number
    reproduced: float | None
    ours: float | None

    @property
    def complaints(self) -> list[str]:
        """What is outside its limits, in words."""
        found = []
        for side, value, limits in (
            ("reproduced", self.reproduced, self.number.reproduced),
            ("dpsketch", self.ours, self.number.ours),
        ):
            if limits is not None and not limits.hold(math.nan if value is None else value):
                found.append(f"{self.name} ({side}): {'nothing' if value is None else shown(value)}, expected {limits}")
        return found


@dataclass(frozen=True, slots=True)
class Expected:
    """The content of a paper's ``expected.json``, for one form of the run.

    Attributes
    ----------
    title : str
        The paper: authors, title, year.
    headline : str
        Its main claim, in one sentence.
    headline_number : str
        The name of the number that stands for it.
    numbers : dict
        Every number, by name.
    """

    title: str
    headline: str
    headline_number: str
    numbers: dict[str, Number]

    @classmethod
    def read(cls, path: Path, *, quick: bool) -> Expected:
        """Read ``expected.json``. Limits under ``quick`` replace the others in the quick form."""
        document = json.loads(path.read_text(encoding="utf-8"))
        numbers = {name: _number(entry, quick=quick) for name, entry in document["numbers"].items()}
        if document["headline_number"] not in numbers:
            raise InvalidInput(f"{path.name} names a headline number that it does not list.")
        return cls(document["title"], document["headline"], document["headline_number"], numbers)


def _number(entry: dict[str, Any], *, quick: bool) -> Number:
    limits = entry | (entry.get("quick", {}) if quick else {})
    return Number(
        what=entry["what"],
        paper=entry.get("paper"),
        reproduced=_limits(limits.get("reproduced")),
        ours=_limits(limits.get("ours")),
        needs=tuple(entry.get("needs", ())),
        full_only=bool(entry.get("full_only", False)),
    )


def _limits(pair: list[float] | None) -> Tolerance | None:
    return None if pair is None else Tolerance(float(pair[0]), float(pair[1]))


class Run:
    """One run of a paper's script.

    Attributes
    ----------
    quick : bool
        Whether the form of a minute is asked for, instead of the full one.
    outcomes : dict
        The numbers recorded so far.
    left_out : list of str
        What could not be done, and why.
    """

    def __init__(
        self, expected: Expected, folder: Path, *, quick: bool, progress: Callable[[str], None] = lambda text: None
    ) -> None:
        self.quick = quick
        self.outcomes: dict[str, Reproduced] = {}
        self.left_out: list[str] = []
        self._expected = expected
        self._folder = folder
        self._progress = progress
        self._parts: list[str] = []

    def section(self, title: str, *paragraphs: str) -> None:
        """Begin a section of the report, usually one figure or table of the paper."""
        self._progress(title)
        self._parts.append("\n\n".join([f"## {title}", *paragraphs]))

    def text(self, *paragraphs: str) -> None:
        """Add Markdown paragraphs."""
        self._parts.extend(paragraphs)

    def figure(self, name: str, figure: Figure, caption: str) -> None:
        """Save a figure as PNG and show it in the report."""
        plots.save(figure, self._folder / f"{name}.png")
        alternative = caption.translate({ord("["): "(", ord("]"): ")"})
        self._parts.append(f"![{alternative}]({name}.png)\n\n*{caption}*")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table; numbers are shown with four significant digits, whole numbers whole."""
        self._parts.append(markdown_table(columns, rows))

    def number(self, name: str, reproduced: float | None, *, ours: float | None = None) -> None:
        """Record a number that ``expected.json`` names: the paper's method reproduced, and ours beside it."""
        if name not in self._expected.numbers or name in self.outcomes:
            raise InvalidInput(f"{name!r} is not a number of expected.json, or was recorded before.")
        values = (None if value is None else float(value) for value in (reproduced, ours))
        self.outcomes[name] = Reproduced(name, self._expected.numbers[name], *values)

    def data(self, *paths: str) -> Path | None:
        """Return the first of some files that the data folder ($DPSKETCH_DATA) holds; where it has none, report it."""
        folder = os.environ.get("DPSKETCH_DATA")
        for path in paths:
            if folder is not None and (Path(folder) / path).is_file():
                return Path(folder) / path
        why = "the file is not there; $DPSKETCH_DATA names the folder of real data"
        self.leave_out(f"what needs {' or '.join(paths)}", why)
        return None

    def leave_out(self, what: str, why: str) -> None:
        """Say what the run does not do, and why."""
        line = f"{what}: {why}"
        if line not in self.left_out:
            self.left_out.append(line)

    def missing(self) -> list[str]:
        """Return the expected numbers that this run owed and did not record."""
        return [
            name
            for name, number in self._expected.numbers.items()
            if name not in self.outcomes
            and not (self.quick and number.full_only)
            and not any(need in line for need in number.needs for line in self.left_out)
        ]

    @property
    def body(self) -> str:
        """The report's sections in Markdown."""
        return "\n\n".join(self._parts)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [list(columns), ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case _:
            return shown(float(value))


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What came out of one paper's run.

    Attributes
    ----------
    paper, title, headline : str
        The folder's name, the paper, and its main claim.
    introduction, body : str
        The folder's README and what the script reports, in Markdown.
    outcomes : dict
        The numbers, by name.
    headline_outcome : Outcome or None
        The one that stands for the paper's main claim; None where the run had to leave it out.
    failures : list of str
        Numbers outside their limits, and expected numbers that were not measured.
    left_out : list of str
        What could not be done, and why.
    quick : bool
        The form of the run.
    seconds : float
        How long it took.
    """

    paper: str
    title: str
    headline: str
    introduction: str
    body: str
    outcomes: dict[str, Reproduced]
    headline_outcome: Reproduced | None
    failures: list[str]
    left_out: list[str]
    quick: bool
    seconds: float


def find_papers() -> Path:
    """Return the folder of the papers: beside the package where it is installed, else at the root of the project."""
    inside = Path(__file__).parent / "papers"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "papers"


def reproduce(
    paper: str,
    folder: Path,
    *,
    quick: bool,
    papers: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Reproduction:
    """Run a paper's script; its figures go to ``folder``.

    The noise is seeded by the paper's name, so that a report can be made again to the last digit; nothing in it is
    about anyone, as all data is public.

    Parameters
    ----------
    paper : str
        One of :data:`PAPERS`.
    folder : Path
        Where figures are written; it is made.
    quick : bool
        The short form, with wider limits where ``expected.json`` says so.
    papers : Path, optional
        The folder of the papers, if not the one that comes with the package.
    progress : callable
        Told what is being done.
    """
    home = (find_papers() if papers is None else papers) / paper
    if paper not in PAPERS or not home.is_dir():
        raise InvalidInput(f"there is no paper {paper!r} here; those known are {', '.join(PAPERS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    expected = Expected.read(home / "expected.json", quick=quick)
    run = Run(expected, folder, quick=quick, progress=progress)
    start = time.perf_counter()
    with seeded_noise_for_tests_only(int.from_bytes(paper.encode()[:7], "big")):
        _script(home).reproduce(run)
    complaints = [line for outcome in run.outcomes.values() for line in outcome.complaints]
    return Reproduction(
        paper=paper,
        title=expected.title,
        headline=expected.headline,
        introduction=(home / "README.md").read_text(encoding="utf-8").strip(),
        body=run.body,
        outcomes=run.outcomes,
        headline_outcome=run.outcomes.get(expected.headline_number),
        failures=complaints + [f"{name}: not measured" for name in run.missing()],
        left_out=run.left_out,
        quick=quick,
        seconds=time.perf_counter() - start,
    )


def _script(home: Path) -> ModuleType:
    """Import ``reproduce.py`` of a paper's folder as part of a package, so that it can import its neighbours."""
    name = f"dpsketch_paper_{home.name}"
    for loaded in [module for module in sys.modules if module.startswith(f"{name}.")]:
        del sys.modules[loaded]  # of another folder, perhaps
    package = ModuleType(name)
    package.__path__ = [str(home)]
    sys.modules[name] = package
    return importlib.import_module(f"{name}.reproduce")


def write_report(found: Reproduction, folder: Path) -> None:
    """Write ``report.md``, ``report.html`` and ``numbers.json`` beside the figures."""
    lines = [found.introduction]
    if found.quick:
        lines.append("*This is the quick form: fewer repetitions, smaller data, wider limits.*")
    lines += ["## Numbers", _numbers(found), found.body]
    if found.left_out:
        lines += ["## Left out", "\n".join(f"- {line}" for line in found.left_out)]
    if found.failures:
        lines += ["## Outside its limits", "\n".join(f"- {line}" for line in found.failures)]
    lines.append(f"*Made by `dpsketch reproduce {found.paper}{' --quick' if found.quick else ''}`.*")
    _write(folder, "report", found.title, "\n\n".join(lines))
    numbers = {
        name: {"paper": one.number.paper, "reproduced": one.reproduced, "ours": one.ours}
        for name, one in found.outcomes.items()
    }
    document = {"paper": found.paper, "quick": found.quick, "numbers": numbers, "failures": found.failures}
    (folder / "numbers.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def write_index(found: Sequence[Reproduction], folder: Path) -> None:
    """Write ``index.md`` and ``index.html``: one line a paper."""
    lines = [
        "# The five papers, reproduced",
        "Each report has the paper's figures and tables, made again with the same axes and series, ours added. "
        "Every number is checked against limits that lie beside the script. `dpsketch reproduce all` makes them.",
        summary(found, "{paper}/report.md"),
    ]
    _write(folder, "index", "The five papers, reproduced", "\n\n".join(lines))


def summary(found: Sequence[Reproduction], link: str) -> str:
    """Return one table: a paper's headline, reproduced, and ours at the same budget."""
    rows = []
    for one in found:
        outcome = one.headline_outcome
        rows.append(
            [
                f"[{one.paper}]({link.format(paper=one.paper)})",
                one.headline,
                "–" if outcome is None else outcome.number.what,
                None if outcome is None else outcome.number.paper,
                None if outcome is None else outcome.reproduced,
                None if outcome is None else outcome.ours,
            ]
        )
    return markdown_table(["paper", "headline", "number", "printed", "reproduced", "ours at the same budget"], rows)


def _numbers(found: Reproduction) -> str:
    rows = [
        [
            one.number.what,
            one.number.paper,
            one.reproduced,
            one.ours,
            "; ".join(
                f"{side} {limits}"
                for side, limits in (("reproduced", one.number.reproduced), ("ours", one.number.ours))
                if limits is not None
            ),
        ]
        for one in found.outcomes.values()
    ]
    return markdown_table(["number", "paper", "reproduced", "dpsketch default", "limits"], rows)


def _write(folder: Path, name: str, title: str, markdown: str) -> None:
    from markdown_it import MarkdownIt

    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(markdown + "\n", encoding="utf-8")
    body = MarkdownIt("commonmark").enable("table").render(markdown)
    body = re.sub(r'src="([^":]+\.png)"', lambda match: f'src="{_inline(folder / match[1])}"', body)
    body = re.sub(r'href="([^":]+)\.md"', r'href="\1.html"', body)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )
    (folder / f"{name}.html").write_text(page, encoding="utf-8")


def _inline(picture: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode("ascii")
