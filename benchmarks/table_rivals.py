"""A private GROUP BY beside OpenDP, PipelineDP and Tumult Analytics: groups found, and errors, at one budget.

The three questions of benchmarks/table_data.py, at ε = 1 and δ = 10⁻⁶ for all columns together. Every library gets
every setting of :data:`SETTINGS`, and the page shows each at its best: with the most groups, and with the least error
of each column among settings that find at least half as many groups. The rivals get stated bounds. Ours get the same
ones, and choose their own in rows of their own. Errors are against the raw records, over large groups that were found;
beside each rival are our errors over the large groups that both found.

``python -m benchmarks.table_rivals FOLDER`` writes results/table_rivals.json and docs/explanation/table-peers.md.
Releases are kept in the folder, and those that are there already are not drawn again. ``--drawn FOLDER`` draws nothing;
``--page`` alone writes the page anew. The environments are those of ``make bench``.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dpsketch as dps
from benchmarks.machine import machine, words
from benchmarks.page import replace
from benchmarks.peers import ROOT, run_peer
from benchmarks.table_data import CASES, TableCase, load, score
from benchmarks.table_rivals_code import BEGIN, CODES

STORED = Path(__file__).parent / "results" / "table_rivals.json"
PAGE = ROOT / "docs" / "explanation" / "table-peers.md"
START, END = "<!-- results: written by benchmarks/table_rivals.py -->", "<!-- end of results -->"
EPSILON, DELTA = 1.0, 1e-6
OURS = "dpsketch"
COLUMNS = ("users", "count", "sum", "mean", "median")
# A setting is compared by its errors if it finds at least this part of the groups that the library's best finds.
HALF = 0.5
# A rival's error is marked if it is below this part of ours.
CLEARLY = 0.9
# At one time: a rival's process computes on one core, or on two.
AT_ONCE = 2


class Bounds(NamedTuple):
    """What a question states: ranges of a summed value, of a pair's total and of an averaged value; and a step."""

    summed: tuple[float, float]
    pair: tuple[float, float]
    averaged: tuple[float, float]
    grid: float


BOUNDS = {
    "A": Bounds((0, 5000), (0, 5000), (-60, 180), 1.0),
    "B": Bounds((0, 5000), (0, 30_000), (-30, 90), 1.0),
    "C": Bounds((0, 100), (0, 200), (0, 100), 0.5),
}


class Setting(NamedTuple):
    """A library with what it was told for one question.

    ``how`` is the noise, or for ours who chooses the bounds. ``shape`` is what a row is: a record, or a pair of a user
    and a group; a mean is over these. ``m`` and ``w`` are the groups of a user, and the records of a user in a group.
    ``names`` is how many times a column's share of the budget the names have, where a library lets one choose.
    """

    library: str
    question: str
    how: str
    shape: str = "records"
    m: int | None = None
    w: int | None = None
    names: int = 1
    releases: int = 20

    @property
    def file(self) -> str:
        """The name of the file that keeps its releases, one a line."""
        return "-".join(str(each) for each in self[:-1]) + ".jsonl"

    @property
    def told(self) -> str:
        """The setting in words."""
        over = ", mean over users" if self.shape == "pairs" else ""
        if self.library == OURS:
            return f"bounds {self.how}{over}" + (', names="more"' if self.names > 1 else "")
        capped = "" if self.m is None else f", m = {self.m}, w = {self.w}"
        rows = ", pairs" if self.shape == "pairs" else ""
        names = f", names × {self.names}" if self.names > 1 else ""
        return f"{self.how}{capped}{rows}{names}"


# Releases of Tumult, and those of PipelineDP on C, take a minute and more.
SETTINGS = (
    Setting(OURS, "A", "stated"),
    Setting(OURS, "A", "chosen"),
    Setting("OpenDP", "A", "Laplace"),
    Setting("OpenDP", "A", "Gaussian"),
    Setting("PipelineDP", "A", "Laplace"),
    Setting("PipelineDP", "A", "Gaussian"),
    Setting("Tumult", "A", "Laplace", names=2, releases=5),
    Setting(OURS, "B", "stated", "records", 27, 20),
    Setting(OURS, "B", "stated", "pairs", 27, 20),
    Setting(OURS, "B", "stated", "pairs", 27, 20, 2),
    Setting(OURS, "B", "chosen"),
    Setting(OURS, "B", "chosen", "pairs"),
    Setting("OpenDP", "B", "Gaussian", "records", 27, 20),
    Setting("OpenDP", "B", "Gaussian", "pairs", 27, 20),
    Setting("OpenDP", "B", "Gaussian", "pairs", 10, 20),
    Setting("PipelineDP", "B", "Gaussian", "records", 27, 20, 2),
    Setting("PipelineDP", "B", "Gaussian", "pairs", 27, 20),
    Setting("PipelineDP", "B", "Gaussian", "pairs", 27, 20, 2),
    Setting("PipelineDP", "B", "Gaussian", "pairs", 10, 20, 2),
    Setting("Tumult", "B", "Laplace", "pairs", 5, 20, 5, 5),
    Setting("Tumult", "B", "Gaussian", "pairs", 10, 20, 5, 5),
    Setting(OURS, "C", "stated", "records", 20, 2),
    Setting(OURS, "C", "stated", "pairs", 20, 2),
    Setting(OURS, "C", "stated", "pairs", 20, 2, 2),
    Setting(OURS, "C", "chosen"),
    Setting("OpenDP", "C", "Gaussian", "records", 5, 2),
    Setting("OpenDP", "C", "Gaussian", "pairs", 5, 2),
    Setting("OpenDP", "C", "Gaussian", "pairs", 20, 2),
    Setting("PipelineDP", "C", "Gaussian", "records", 20, 2, 2, 5),
    Setting("PipelineDP", "C", "Gaussian", "pairs", 20, 2, 2, 5),
    Setting("PipelineDP", "C", "Gaussian", "pairs", 5, 2, 2, 5),
    Setting("Tumult", "C", "Gaussian", "pairs", 5, 2, 5, 3),
)

Names = Sequence[tuple[Any, ...]]


class Found(NamedTuple):
    """One release: its seconds, the groups that it found, and its numbers of each."""

    seconds: float
    names: Names
    columns: dict[str, Sequence[float]]

    def score(self, case: TableCase, among: Iterable[tuple[Any, ...]] | None = None) -> dict[str, float]:
        """Return its errors, over its own groups or over those among others."""
        if among is None:
            return score(case, self.names, self.columns)
        wanted = set(among)
        kept = [place for place, name in enumerate(self.names) if name in wanted]
        columns = {name: [each[place] for place in kept] for name, each in self.columns.items()}
        return score(case, [self.names[place] for place in kept], columns)


def ours(setting: Setting, case: TableCase) -> list[Any]:
    """Draw one of our releases, as a line of the rivals'."""
    bounds, by_user = BOUNDS[case.name], setting.question != "A"
    pair, averaged = (bounds.pair, bounds.averaged) if setting.how == "stated" else (None, None)
    over: Any = {"over": "users" if setting.shape == "pairs" else "records"} if by_user else {}
    columns = [
        *([dps.users(name="users")] if by_user else []),
        dps.count(name="count"),
        dps.sum(case.summed, bounds=pair, name="sum"),
        dps.mean(case.averaged, bounds=averaged, name="mean", **over),
        dps.quantiles(case.averaged, [0.5], grid=bounds.grid, name="median"),
    ]
    capped: Any = {"user": case.user, "max_keys": setting.m, "max_records": setting.w} if by_user else {}
    start = time.perf_counter()
    table = dps.Table(by=list(case.by), columns=columns, **capped)
    table.update(case.records)
    private = table.release(epsilon=EPSILON, delta=DELTA, names="more" if setting.names > 1 else "less")
    frame = private.to_arrow()
    spent = time.perf_counter() - start
    places = {name: place for place, name in enumerate(case.names)}
    listed = [places[name] for name in zip(*(frame[name].to_pylist() for name in case.by), strict=True)]
    return [spent, listed, {name: frame[name].to_pylist() for name in COLUMNS if name in frame.column_names}]


def rival(setting: Setting, case: TableCase, path: Path, runs: int) -> None:
    """Draw a rival's releases in its environment; it adds them to the file at the path."""
    data = path.parent / f"{case.name}.npz"
    environment, code = CODES[setting.library]
    stated: dict[str, Any] = BOUNDS[case.name]._asdict() | {"epsilon": EPSILON, "delta": DELTA, "path": str(data)}
    asked: dict[str, Any] = setting._asdict() | {"runs": runs, "kept": str(path)}
    asked |= {"m": setting.m or 1, "w": setting.w or 1}
    run_peer(BEGIN.format(**stated, **asked) + code, environment)


def draw(setting: Setting, case: TableCase, folder: Path) -> None:
    """Draw the releases of a setting that the folder lacks."""
    path = folder / setting.file
    missing = setting.releases - (len(path.read_text().splitlines()) if path.exists() else 0)
    if missing <= 0:
        return
    if setting.library != OURS:
        rival(setting, case, path, missing)
    for _ in range(missing if setting.library == OURS else 0):
        with path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(ours(setting, case)) + "\n")
    print(f"{setting.library}, {setting.question}: {setting.told}", flush=True)


def kept(setting: Setting, case: TableCase, folder: Path) -> list[Found]:
    """Return the releases of a setting in the folder."""
    path = folder / setting.file
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = (json.loads(line) for line in lines[: setting.releases])
    return [Found(spent, [case.names[place] for place in listed], columns) for spent, listed, columns in found]


def together(scores: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the root mean square of root mean squares over releases, and the mean of all else."""
    found = {}
    for name in dict.fromkeys(name for each in scores for name in each):
        values = np.array([each[name] for each in scores if name in each])
        found[name] = float(np.sqrt(np.mean(values**2)) if name.endswith("_rms") else np.mean(values))
    return found


def row(setting: Setting, case: TableCase, releases: list[Found], mine: list[Found] | None) -> dict[str, Any]:
    """Return what is kept of a setting; with our releases, also the errors of both over the groups that both found."""
    found: dict[str, Any] = {**setting._asdict(), "releases": len(releases), "told": setting.told}
    found["seconds"] = float(np.mean([each.seconds for each in releases]))
    found["all"] = together([each.score(case) for each in releases])
    if mine is not None:
        pairs = [(each, mine[place % len(mine)]) for place, each in enumerate(releases)]
        common = [set(each.names) & set(own.names) for each, own in pairs]
        found["common"] = {
            "theirs": together([each.score(case, both) for (each, _), both in zip(pairs, common, strict=True)]),
            "ours": together([own.score(case, both) for (_, own), both in zip(pairs, common, strict=True)]),
        }
    return found


def measure(folder: Path) -> None:
    """Draw what the folder lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = {name: load(name) for name in CASES}
    for case in cases.values():
        np.savez(
            folder / f"{case.name}.npz",
            groups=case.groups,
            users=case.users,
            summed=case.values(case.summed),
            averaged=case.values(case.averaged),
        )
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda each: draw(each, cases[each.question], folder), SETTINGS))


def results(folder: Path) -> dict[str, Any]:
    """Return what is kept of the releases in the folder."""
    cases = {name: load(name) for name in CASES}
    found = {each: kept(each, cases[each.question], folder) for each in SETTINGS}
    rows = []
    for setting, releases in found.items():
        mine = next(
            found[each]
            for each in SETTINGS
            if (each.library, each.question, each.how, each.shape, each.names)
            == (OURS, setting.question, "stated", setting.shape, 1)
        )
        if releases:
            rows.append(row(setting, cases[setting.question], releases, None if setting.library == OURS else mine))
    lacking = [f"{each.question}: {each.library}, {each.told}" for each, releases in found.items() if not releases]
    large = {name: int((case.truth.count >= case.large).sum()) for name, case in cases.items()}
    return {"epsilon": EPSILON, "delta": DELTA, "machine": machine(), "large": large, "lacking": lacking, "rows": rows}


def best(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one library that have the most groups, or the least error of a column."""
    most = max(rows, key=lambda each: each["all"]["groups"])
    enough = [each for each in rows if each["all"]["groups"] >= HALF * most["all"]["groups"]]
    chosen = [most]
    for name in (f"{column}_rms" for column in COLUMNS):
        scored = [each for each in enough if name in each["all"]]
        chosen += [min(scored, key=lambda each: each["all"][name])] if scored else []
    return [each for each in rows if each in chosen]


def number(value: float | None) -> str:
    """Return two significant digits, without a leading zero."""
    if value is None or math.isnan(value):
        return "–"
    digits = 0 if value == 0 else max(0, 1 - math.floor(math.log10(value)))
    text = f"{value:.{digits}f}"
    return text.removeprefix("0") if text.startswith("0.") else text


def errors(scores: dict[str, float], columns: Sequence[str]) -> list[str]:
    """Return the errors of columns as cells, "rms / median"."""
    cells = []
    for column in columns:
        rms, median = scores.get(f"{column}_rms"), scores.get(f"{column}_median_error")
        cells.append("–" if rms is None else f"{number(rms)} / {number(median)}")
    return cells


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one question that the page shows: all of ours, and those in which a rival is at its best."""
    found = []
    for library in dict.fromkeys(each["library"] for each in rows):
        own = [each for each in rows if each["library"] == library]
        found += own if library == OURS else best(own)
    return found


def tables(stored: dict[str, Any]) -> str:
    """Return the tables of all questions for the page."""
    titles = {
        "A": "A. Flights by carrier and destination, a record protected",
        "B": "B. Flights by destination, a plane protected",
        "C": "C. Events by country and day, a user protected",
    }
    parts = []
    for question, title in titles.items():
        columns = [column for column in COLUMNS if question != "A" or column != "users"]
        lines = []
        for each in shown([each for each in stored["rows"] if each["question"] == question]):
            groups, large = (f"{each['all'][part]:,.0f}" for part in ("groups", "large"))
            cells = dict(zip(columns, errors(each["all"], columns), strict=True))
            if "common" in each:
                theirs, mine = each["common"]["theirs"], each["common"]["ours"]
                for column in columns:
                    beside = number(mine.get(f"{column}_rms"))
                    mark = "**" if _clearly_less(theirs, mine, column) else ""
                    cells[column] += "" if cells[column] == "–" else f" ({mark}{beside}{mark})"
            name = f"{each['library']}, {each['told']} [{each['releases']}]"
            lines.append([name, groups, large, *cells.values()])
        parts += [f"## {title}", _table(["", "groups", f"large, of {stored['large'][question]}", *columns], lines)]
    parts += ["## Where a rival wins", *wins(stored["rows"])]
    parts.append(f"Measured on {words(stored['machine'])}.")
    if stored["lacking"]:
        parts.append(f"Not measured yet: {'; '.join(stored['lacking'])}.")
    return "\n" + "\n\n".join(parts) + "\n"


def wins(rows: list[dict[str, Any]]) -> list[str]:
    """Return a list of the shown rivals' numbers that are better than ours with stated bounds."""
    lines = []
    for question in CASES:
        here = [each for each in rows if each["question"] == question]
        own = [each for each in here if (each["library"], each["how"], each["names"]) == (OURS, "stated", 1)]
        for each in (each for each in shown(here) if "common" in each):
            theirs, mine = each["common"]["theirs"], each["common"]["ours"]
            found = [
                f"{column} {number(theirs[f'{column}_rms'])} against {number(mine[f'{column}_rms'])}"
                for column in COLUMNS
                if _clearly_less(theirs, mine, column)
            ]
            groups, most = each["all"]["groups"], max(one["all"]["groups"] for one in own)
            found += [f"groups {groups:,.0f} against {most:,.0f}"] if groups > most else []
            if found:
                lines.append(f"- {question}: {each['library']}, {each['told']}: {', '.join(found)}.")
    return ["\n".join(lines) or "Nowhere, by these measures."]


def _clearly_less(theirs: dict[str, float], mine: dict[str, float], column: str) -> bool:
    """Return whether the rival's error of a column is at least a tenth below ours."""
    name = f"{column}_rms"
    return name in theirs and theirs[name] < CLEARLY * mine[name]


def main(arguments: list[str]) -> None:
    """Measure and store, and write the page."""
    if arguments != ["--page"]:
        *drawn, folder = arguments
        if not drawn:
            measure(Path(folder))
        STORED.write_text(json.dumps(results(Path(folder)), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    replace(PAGE, tables(json.loads(STORED.read_text(encoding="utf-8"))), START, END)


if __name__ == "__main__":
    main(sys.argv[1:])
