"""Every figure of a histogram's mechanisms that was worked out beforehand, with other noise, beside what releases give.

Three tables: thresholds, keys and errors of one key a record; thresholds of users; keys and errors of users on three
real files. All go through ``release``, and each figure is held to three standard errors: those of the two means, where
the spread of a mechanism's number of keys is taken from all of its cells together. Thresholds are held to the unit, or
to the last digit that was noted.

``python -m benchmarks histogram_figures`` writes docs/explanation/histogram-figures.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.histogram import Integers, data_sets
from benchmarks.peers import ROOT
from dpsketch.laws.rounds import WEIGHT_ONE, WeightedRounds
from dpsketch.laws.thresholds import CountThreshold
from dpsketch.privacy import per_record, per_user
from dpsketch.sketches.histogram import Histogram
from dpsketch.sketches.histogram.private import PrivateHistogram

PAGE = ROOT / "docs" / "explanation" / "histogram-figures.md"
RELEASES = 4
FORMS = ("truncated", "gaussian", "weighted", "rounds")

# Zipf(1.1). Neighbours, ε, δ; the threshold, the keys found and the rms error of their counts by Laplace, truncated and
# Gaussian noise.
RECORD_FORMS = ("laplace", "truncated", "gaussian")
RECORDS = [
    ("add_remove", 0.1, 1e-6, ((133, 298, 14.5), (110, 362, 14.5), (175, 241, 37.3))),
    ("add_remove", 1, 1e-6, ((15, 2313, 1.39), (15, 2313, 1.39), (22, 1655, 4.4))),
    ("add_remove", 1, 1e-9, ((22, 1595, 1.36), (21, 1669, 1.36), (35, 1056, 5.6))),
    ("add_remove", 3, 1e-6, ((6, 5914, 0.34), (6, 5914, 0.34), (9, 3991, 1.6))),
    ("replace", 0.1, 1e-6, ((264, 161, 30), (218, 194, 31), (246, 181, 53))),
    ("replace", 1, 1e-6, ((28, 1285, 2.9), (28, 1285, 2.9), (30, 1244, 6.2))),
    ("replace", 3, 1e-6, ((11, 3145, 0.9), (11, 3145, 0.9), (12, 2983, 2.3))),
]  # fmt: skip

# δ = 1e-5. ε and keys a user; thresholds of Laplace, truncated, Gaussian, Gaussian under replacement, one round.
USERS: list[tuple[float, int, int, int, int, int | None, float]] = [
    (0.1, 1, 110, 87, 133, 188, 132.15),
    (0.1, 2, 232, 172, 194, 274, 136.54),
    (0.1, 10, 1314, 853, 464, 656, 146.48),
    (1, 1, 13, 12, 18, 25, 16.91),
    (1, 2, 25, 23, 25, 35, 17.19),
    (1, 3, 38, 34, 31, 43, 17.38),
    (1, 10, 133, 110, 58, 81, 18.05),
    (1, 30, 429, 326, 104, 146, 18.73),
    (1, 100, 1544, 1083, 196, None, 19.50),
    (3, 10, 46, 41, 23, 32, 6.93),
    (3, 100, 516, 399, 74, None, 7.33),
]

# δ = 1e-5, caps 1, 10, 30, 100; keys by truncated noise, Gaussian noise, weights, two rounds.
FOUND = {
    ("kosarak's head", 0.1): ((28, 16, 6, 3), (20, 26, 18, 12), (20, 35, 36, 36), (25, 37, 38, 37)),
    ("kosarak's head", 1): ((245, 97, 48, 16), (167, 284, 214, 136), (172, 366, 420, 444), (270, 436, 499, 512)),
    ("kosarak's head", 3): ((593, 416, 169, 48), (373, 746, 750, 544), (410, 887, 1035, 1109), (660, 1193, 1330, 1379)),
    ("retail", 0.1): ((73, 46, 14, 5), (38, 122, 82, 24), (38, 152, 176, 164), (47, 151, 168, 159)),
    ("retail", 1): ((1374, 1021, 362, 52), (846, 2203, 1798, 874), (886, 2463, 2789, 2695), (1230, 3156, 3288, 3173)),
    ("retail", 3): (
        (3543, 3019, 1484, 278), (2270, 4719, 4245, 2614), (2464, 5167, 5578, 5492), (3750, 6783, 6864, 6752)
    ),
    ("gowalla", 0.1): ((1, 2, 0, 0), (0, 10, 12, 4), (0, 8, 15, 15), (1, 7, 12, 13)),
    ("gowalla", 1): ((112, 101, 52, 11), (54, 370, 475, 285), (62, 370, 629, 728), (49, 316, 551, 634)),
    ("gowalla", 3): ((688, 626, 341, 69), (274, 1800, 2351, 1502), (332, 1884, 3121, 3616), (284, 1842, 3025, 3428)),
}  # fmt: skip
CAPS = (1, 10, 30, 100)
FILES = ("kosarak's head", "retail", "gowalla")

# The rms error of Gaussian counts against all users of a key, for caps 10, 30, 100.
GAUSSIAN_ERRORS = {
    ("kosarak's head", 1): (302, 122, 46), ("kosarak's head", 3): (193, 71, 22), ("retail", 1): (304, 26, 38),
    ("retail", 3): (208, 13, 14), ("gowalla", 1): (287, 131, 57), ("gowalla", 3): (149, 69, 28),
}  # fmt: skip

# ε = 1, 100 keys a user, counts of at most 30 with 30% of s²: keys and rms error.
COUNTED = {
    ("kosarak's head", "weighted"): (371, 42), ("kosarak's head", "rounds"): (419, 43),
    ("retail", "weighted"): (2261, 37), ("retail", "rounds"): (2637, 38),
}  # fmt: skip


@dataclass
class Figure:
    """One figure: what was noted, what releases gave, and how far apart the two may be."""

    table: str
    row: str
    form: str
    what: str
    noted: float
    found: float
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether the two are no further apart than they may be."""
        return abs(self.found - self.noted) <= self.allowed


@dataclass
class Cell:
    """Several releases of one mechanism on one data set."""

    table: str
    row: str
    form: str
    noted: int
    seeds: int
    found: list[int]


def releases(sketch: Histogram, **options: Any) -> list[PrivateHistogram]:
    return [sketch.release(**options) for _ in range(RELEASES)]


def error_figure(cell: Cell, rms: float, made: list[PrivateHistogram], truth: Integers, kurtosis: float) -> Figure:
    """Return the rms error of the counts, to three standard errors and what was rounded off when it was noted.

    Errors of a bound's cut are much the same in every release, whose spread is all there is; that of few keys has a
    share of each, and the larger is taken.
    """
    errors = [(release.values - truth[release.keys]).astype(float) for release in made]
    each = [float(np.sqrt(np.mean(one**2))) for one in errors if len(one)]
    found = float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
    size = max(1, len(np.concatenate(errors)) // RELEASES)
    single = max(found * math.sqrt((kurtosis - 1) / 4 / size), float(np.std(each, ddof=1)))
    digits = 10.0 ** -len(str(rms).partition(".")[2]) if "." in str(rms) else 1.0
    allowed = 3 * single * math.sqrt(1 / RELEASES + 1 / cell.seeds) + digits / 2
    return Figure(cell.table, cell.row, cell.form, "rms", rms, found, allowed)


def of_records() -> tuple[list[Figure], list[Cell]]:
    _, stream = data_sets()["Zipf(1.1)"]
    truth = np.bincount(stream)
    figures, cells = [], []
    for relation, epsilon, delta, noted in RECORDS:
        sketch = Histogram(unit=per_record(neighbours=relation), key_type="int")
        sketch.update(stream)
        row = f"{relation}, ε = {epsilon:g}, δ = {delta:g}"
        for form, (cutoff, keys, rms) in zip(RECORD_FORMS, noted, strict=True):
            made = releases(sketch, epsilon=epsilon, delta=delta, form=form)
            cell = Cell("records", row, form, keys, 5, [len(each.keys) for each in made])
            figures.append(Figure("records", row, form, "threshold", cutoff, float(made[0].law.cutoff or 0), 0))
            kurtosis = 3 if form == "gaussian" else 6
            figures.append(error_figure(cell, rms, made, truth, kurtosis))
            cells.append(cell)
    return figures, cells


def of_users() -> list[Figure]:
    """Return the thresholds that a release of next to nothing states."""
    figures = []
    for epsilon, keys, *noted in USERS:
        for (form, relation), value in zip(
            (("laplace", "add_remove"), ("truncated", "add_remove"), ("gaussian", "add_remove"),
             ("gaussian", "replace"), ("weighted", "add_remove")), noted, strict=True,
        ):  # fmt: skip
            if value is None:
                continue
            sketch = Histogram(unit=per_user(keys, neighbours=relation), key_type="int")
            sketch.update([1], users=["a"])
            only = form == "weighted"
            finding = sketch.release(epsilon=epsilon, delta=1e-5, form=form, names_only=only).law
            row = f"{relation}, ε = {epsilon:g}, {keys} keys"
            match finding:
                case CountThreshold(cutoff=cutoff):
                    figures.append(Figure("users", row, form, "threshold", value, cutoff, 0))
                case WeightedRounds(cutoffs=cutoffs):
                    # Noted rounded down to two decimals, or to the nearest.
                    found = cutoffs[0] / WEIGHT_ONE
                    figures.append(Figure("users", row, form, "threshold", value, found, 0.011))
                case _:
                    raise RuntimeError("names are found by no mechanism.")
    return figures


def of_files() -> tuple[list[Figure], list[Cell]]:
    sets = data_sets()
    figures, cells = [], []
    for name in FILES:
        if name not in sets:
            continue
        users, keys = sets[name]
        truth = np.bincount(keys)
        for place, cap in enumerate(CAPS):
            sketch = Histogram(unit=per_user(cap), key_type="int")
            sketch.update(keys, users=users)
            for epsilon in (0.1, 1, 3):
                row = f"{name}, ε = {epsilon:g}, {cap} keys"
                for form, noted in zip(FORMS, FOUND[name, epsilon], strict=True):
                    alone = form in ("weighted", "rounds")
                    made = releases(sketch, epsilon=epsilon, delta=1e-5, form=form, names_only=alone)
                    cell = Cell("files", row, form, noted[place], 3, [len(each.keys) for each in made])
                    cells.append(cell)
                    if form == "gaussian" and cap > 1 and (name, epsilon) in GAUSSIAN_ERRORS:
                        rms = GAUSSIAN_ERRORS[name, epsilon][place - 1]
                        figures.append(error_figure(cell, rms, made, truth, 3))
            if cap == 100:
                for form in ("weighted", "rounds"):
                    if (name, form) in COUNTED:
                        count, rms = COUNTED[name, form]
                        made = releases(sketch, epsilon=1, delta=1e-5, form=form)
                        row = f"{name}, ε = 1, counts of 30 keys"
                        cell = Cell("files", row, form, count, 3, [len(each.keys) for each in made])
                        cells.append(cell)
                        figures.append(error_figure(cell, rms, made, truth, 3))
    return figures, cells


def key_figures(cells: list[Cell]) -> list[Figure]:
    """Return the numbers of keys, each to three standard errors of the two means and half a key of rounding."""
    figures = []
    spreads = {
        form: float(np.mean([np.var(cell.found, ddof=1) / max(1, cell.noted) for cell in cells if cell.form == form]))
        for form in {cell.form for cell in cells}
    }
    for cell in cells:
        variance = spreads[cell.form] * max(1, cell.noted) * (1 / len(cell.found) + 1 / cell.seeds)
        allowed = 3 * math.sqrt(variance) + 0.5
        mean = float(np.mean(cell.found))
        figures.append(Figure(cell.table, cell.row, cell.form, "keys", cell.noted, mean, allowed))
    return figures


def run() -> list[dict[str, Any]]:
    """Return for each table how many of its figures hold."""
    first, cells = of_records()
    third, more = of_files()
    figures = first + of_users() + third + key_figures(cells + more)
    PAGE.write_text(page(figures), encoding="utf-8")
    rows = []
    for table in dict.fromkeys(figure.table for figure in figures):
        here = [figure for figure in figures if figure.table == table]
        held = sum(figure.holds for figure in here)
        rows.append({"name": f"figures of {table} that hold", "ours": held, "theirs": len(here),
                     "ratio": held / len(here), "unit": "figures", "reach": 1.0})  # fmt: skip
    return rows


def page(figures: list[Figure]) -> str:
    """Return all figures as a page."""
    text = [
        "# Figures of histograms",
        "",
        "What each mechanism was worked out to find, with other noise, beside what `release()` gives: means of "
        f"{RELEASES} releases. `python -m benchmarks histogram_figures` writes this page. Thresholds are held to the "
        "unit (those of weights to a hundredth), keys and errors to three standard errors of the two means. "
        f"{sum(figure.holds for figure in figures)} of {len(figures)} figures hold; the others are marked with their "
        "distance in such allowances. Of so many, one or two are outside by chance.",
    ]
    titles = {
        "records": "Zipf(1.1), 500,000 records: threshold; keys; rms error",
        "users": "Thresholds of users, δ = 10⁻⁵",
        "files": "Users of real files, δ = 10⁻⁵: keys; rms error against all users of a key",
    }
    for table, title in titles.items():
        here = [figure for figure in figures if figure.table == table]
        if not here:
            continue
        text += ["", f"## {title}", "", "| case | form | worked out | released |", "|---|---|---|---|"]
        for row, form in dict.fromkeys((figure.row, figure.form) for figure in here):
            group = [figure for figure in here if (figure.row, figure.form) == (row, form)]
            group.sort(key=lambda figure: ("threshold", "keys", "rms").index(figure.what))
            noted = "; ".join(f"{figure.noted:,g}" for figure in group)
            found = "; ".join(_found(figure) for figure in group)
            text.append(f"| {row} | {form} | {noted} | {found} |")
    return "\n".join(text) + "\n"


def _found(figure: Figure) -> str:
    shown = f"{figure.found:,.0f}" if figure.what == "keys" and figure.found >= 100 else f"{figure.found:,.4g}"
    if figure.holds:
        return shown
    return f"**{shown}** ({abs(figure.found - figure.noted) / max(figure.allowed, 1e-9):.2g})"
