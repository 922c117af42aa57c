"""Named quantiles against a tree, and the rule that chooses: 240 cases of data, size, budget and number of quantiles.

Four data sets of 10³ and 10⁵ records: uniform and lognormal values below 2²⁰; prices, of which 40% are 0 and 40% one of
twelve; delays in minutes. The error is the mean distance of an answer's ranks from the share of all records. "By the
rule" is the error of whichever the planner names, over the better of the two, (x + ½)/(best + ½), in geometric mean.

``python -m benchmarks.quantiles`` writes results/quantiles.json; with ``FILE.csv COLUMN`` it measures that column.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from dpsketch.plan.counters import naming_pays, tree_spec
from dpsketch.privacy import Budget
from dpsketch.sketches.quantiles import QuantileSpec

STORED = Path(__file__).parent / "results" / "quantiles.json"
DATA = {"uniform": (20, 0), "lognormal": (20, 0), "prices": (16, 0), "delays": (12, -2048)}
PRICES = [99, 199, 299, 499, 999, 1499, 1999, 2999, 4999, 9999, 19999, 49999]
SIZES = {1_000: 80, 100_000: 32}  # records, and releases of named quantiles
TREES = 8  # releases of a tree
EPSILONS = (0.1, 1.0, 3.0)
DELTAS = (0.0, 1e-6)
NUMBERS = (1, 3, 9, 33, 99)

Integers = npt.NDArray[np.int64]


def values(name: str, size: int) -> Integers:
    """Return a data set; the same in every run."""
    rng = np.random.default_rng([0, size])
    match name:
        case "uniform":
            found = rng.integers(0, 2**20, size)
        case "lognormal":
            found = np.clip(np.exp(rng.normal(9, 1.2, size)), 0, 2**20 - 1)
        case "prices":
            kind, spread, listed = rng.random(size), rng.integers(0, 2**16, size), rng.choice(np.array(PRICES), size)
            found = np.where(kind < 0.4, 0, np.where(kind < 0.8, listed, spread))
        case _:
            usual = rng.normal(-5, 8, size)
            late = np.where(rng.random(size) < 0.35, rng.exponential(35, size), 0)
            hours = np.where(rng.random(size) < 0.01, rng.exponential(200, size), 0)
            found = np.round(usual + late + hours).clip(-2048, 2047)
    return found.astype(np.int64)


def rank_errors(ordered: Integers, answers: list[int], shares: list[Fraction]) -> float:
    """Return the mean distance of answers' ranks from shares of all."""
    wanted = np.array([float(share) for share in shares]) * len(ordered)
    below, through = (np.searchsorted(ordered, answers, side) for side in ("left", "right"))
    return float(np.maximum(0, np.maximum(below - wanted, wanted - through)).mean())


def shares_of(number: int) -> list[Fraction]:
    """Return evenly spaced quantiles."""
    return [Fraction(i + 1, number + 1) for i in range(number)]


def summary(errors: list[float]) -> list[float]:
    """Return a mean with its standard error."""
    return [float(np.mean(errors)), float(np.std(errors, ddof=1) / math.sqrt(len(errors)))]


def named(data: Integers, bits: int, start: int, budget: Budget, number: int, releases: int) -> list[float]:
    """Measure named quantiles."""
    shares, ordered = shares_of(number), np.sort(data)
    sketch: Any = dps.QuantileSketch(unit=dps.per_record(), bits=bits, start=start, quantiles=shares)
    sketch.update(data)
    made = (sketch.release(epsilon=budget.epsilon, delta=budget.delta) for _ in range(releases))
    return summary([rank_errors(ordered, [one.value for one in each.quantiles()], shares) for each in made])


def tree(data: Integers, bits: int, start: int, budget: Budget, releases: int) -> dict[int, list[float]]:
    """Measure a tree, asked for each number of quantiles in turn."""
    ordered = np.sort(data)
    spec = tree_spec(QuantileSpec(bits, dps.per_record(), (Fraction(1, 2),), start), budget)
    errors: dict[int, list[float]] = {number: [] for number in NUMBERS}
    for seed in range(releases):
        options = {"bits": bits, "start": start, "level_bits": spec.level_bits, "seed": 1000 + seed}
        sketch = dps.RangeSketch(unit=dps.per_record(), **options)
        sketch.update(data)
        release = sketch.release(epsilon=budget.epsilon, delta=budget.delta)
        for number in NUMBERS:
            shares = shares_of(number)
            found = release.quantiles([float(share) for share in shares])
            errors[number].append(rank_errors(ordered, [one.value for one in found], shares))
    return {number: summary(each) for number, each in errors.items()}


def measured() -> Iterator[dict[str, Any]]:
    """Measure all cases."""
    for name, (bits, start) in DATA.items():
        for size, releases in SIZES.items():
            data = values(name, size)
            for epsilon in EPSILONS:
                for delta in DELTAS:
                    budget = Budget(epsilon, delta)
                    trees = tree(data, bits, start, budget, TREES)
                    for number in NUMBERS:
                        spec = QuantileSpec(bits, dps.per_record(), tuple(shares_of(number)), start)
                        yield {
                            "data": name, "records": size, "epsilon": epsilon, "delta": delta, "quantiles": number,
                            "named": named(data, bits, start, budget, number, releases), "tree": trees[number],
                            "naming_pays": naming_pays(spec, budget, size),
                        }  # fmt: skip


def regrets(cases: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return, by the way of choosing, error over the better of both in all cases."""
    found: dict[str, list[float]] = {"rule": [], "always named": [], "always tree": []}
    for case in cases:
        ours, theirs = case["named"][0], case["tree"][0]
        taken = {"rule": ours if case["naming_pays"] else theirs, "always named": ours, "always tree": theirs}
        for way, error in taken.items():
            found[way].append((error + 0.5) / (min(ours, theirs) + 0.5))
    return found


def geometric_mean(numbers: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(math.fsum(map(math.log, numbers)) / len(numbers))


def run() -> Iterator[dict[str, Any]]:
    """Yield the regret of each way of choosing, as it was last measured; measure where nothing is stored."""
    if not STORED.exists():
        main([])
    cases = json.loads(STORED.read_text())
    for way, each in regrets(cases).items():
        ratio = geometric_mean(each)
        row = {"name": f"{way}: error over the better of both, {len(each)} cases", "ours": ratio, "theirs": 1.0}
        yield {**row, "ratio": 1 / ratio, "unit": "geometric mean", **({"reach": 0.8} if way == "rule" else {})}


def column(path: str, name: str) -> None:
    """Print what named quantiles and a tree make of a column of whole numbers between −2,048 and 2,047."""
    import polars as pl

    data = pl.read_csv(path, null_values=["NA"])[name].drop_nulls().clip(-2048, 2047).cast(pl.Int64).to_numpy()
    print(f"{len(data):,} values")
    for epsilon in EPSILONS:
        budget = Budget(epsilon, 0.0)
        trees = tree(data, 12, -2048, budget, TREES)
        for number in NUMBERS:
            ours = named(data, 12, -2048, budget, number, 40)
            print(
                f"ε = {epsilon:g}, {number:2} quantiles: named {ours[0]:.2f}, tree {trees[number][0]:.2f}", flush=True
            )


def main(arguments: list[str]) -> None:
    """Measure, and store what was found."""
    if arguments:
        column(*arguments)
        return
    cases = []
    for case in measured():
        cases.append(case)
        print(json.dumps(case), flush=True)
    STORED.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    for way, each in regrets(cases).items():
        print(f"{way}: {geometric_mean(each):.3f}, worst {max(each):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
