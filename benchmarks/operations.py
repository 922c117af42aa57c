"""Everything a sketch does, one after the other: update, release, query, decode, merge, save, load.

Merging, saving and loading are held against NumPy doing the same with arrays of as many bytes: ``+=``, ``np.save`` (and
``fsync``, as ours does) and ``np.load``. Ours also check the spec, the digest and every array; of a merge that takes
some 50 µs, whatever the size. The other rows stand alone: they are rates, for a sketch of the size named.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpsketch as dps
from dpsketch import local

ROUNDS = 5
ASKED = 100_000
PARTIAL = 100_000  # records of a partial: a table that nobody has written to yet would be mapped while it is added


@dataclass(frozen=True)
class Work:
    """One kind of sketch: how to make it, what it is given, how it is released and asked."""

    make: Callable[[], Any]
    records: Any
    release: dict[str, float]
    ask: Callable[[Any], object]
    asked: int


def works() -> dict[str, Work]:
    rng = np.random.default_rng(1)
    numbers = rng.zipf(1.2, 1_000_000) % 2**31
    keys = np.arange(ASKED)
    points = rng.normal(size=(200_000, 2))
    record = dps.per_record()
    gaussian = {"epsilon": 1.0, "delta": 1e-6}
    pure = {"epsilon": 1.0, "delta": 0}
    kernel = dps.kernels.Euclidean(dim=2, bandwidth=1.0)
    return {
        "counts 5×65,536": Work(
            lambda: dps.CountSketch(rows=5, width=65_536, unit=record),
            numbers, gaussian, lambda release: release.estimate(keys), ASKED,
        ),
        "heavy 7×4096, 32 bits": Work(
            lambda: dps.HeavyHitters(rows=7, width=4096, unit=record, key_bits=32),
            numbers, gaussian, lambda release: release.top(100), 100,
        ),
        "sparse": Work(
            lambda: dps.SparseHistogram(unit=record, domain=2**32, expected_keys=100_000),
            numbers, pure, lambda release: release.estimate(keys), ASKED,
        ),
        "moment p=.5, size 50": Work(
            lambda: dps.MomentSketch(p=0.5, size=50, unit=record),
            numbers, gaussian, lambda release: release.interval(0.95), 1,
        ),
        "density 500 rows": Work(
            lambda: dps.DensitySketch(kernel=kernel, rows=500, unit=record, bounds=[(-5, 5), (-5, 5)]),
            points, gaussian, lambda release: release.density(points[:10_000]), 10_000,
        ),
        "distinct 4096": Work(
            lambda: dps.DistinctSketch(unit=record), numbers, pure, lambda release: release.interval(0.95), 1
        ),
        "ranges 32 bits": Work(
            lambda: dps.RangeSketch(unit=record, bits=32),
            numbers, gaussian, lambda release: [release.quantile(share) for share in (0.25, 0.5, 0.75)], 3,
        ),
    }  # fmt: skip


def seconds(work: Callable[[], object]) -> float:
    work()
    found = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - start)
    return found


def alone(name: str, amount: int, duration: float, unit: str) -> dict[str, Any]:
    return {"name": name, "ours": amount / duration, "theirs": None, "ratio": None, "unit": unit}


def beside(name: str, ours: float, theirs: float) -> dict[str, Any]:
    return {"name": name, "ours": ours * 1e3, "theirs": theirs * 1e3, "ratio": theirs / ours, "unit": "ms"}


def save_array(path: Path, array: Any) -> None:
    with path.open("wb") as file:
        np.save(file, array)
        file.flush()
        os.fsync(file.fileno())


def of_kind(kind: str, work: Work, folder: Path) -> list[dict[str, Any]]:
    filled = work.make()
    filled.update(work.records)
    adding = work.make()
    rows = [alone(f"{kind}: update", len(work.records), seconds(lambda: adding.update(work.records)), "records/s")]

    def begun() -> Any:
        # A moment sketch ends with its release, so each round begins with a sketch of its own.
        fresh = work.make()
        fresh.update(work.records[:1000])
        return fresh

    partials = [filled.empty_like() for _ in range(ROUNDS + 1)]  # each can be merged but once
    for partial in partials:
        partial.update(work.records[:PARTIAL])
    waiting = iter(partials)
    merging = seconds(lambda: filled.merge(next(waiting)))
    plain, others = np.ones(filled.spec.memory // 8), iter(np.ones((ROUNDS + 1, filled.spec.memory // 8)))
    adding_up = seconds(lambda: plain.__iadd__(next(others)))
    beginning = seconds(begun)
    releasing = max(1e-9, seconds(lambda: begun().release(**work.release)) - beginning)
    rows.append(alone(f"{kind}: release", 1, releasing, "releases/s"))
    release = filled.release(**work.release)
    rows.append(alone(f"{kind}: query", work.asked, seconds(lambda: work.ask(release)), "answers/s"))
    if kind.startswith("counts"):
        keys = np.arange(10_000)
        rows.append(alone(f"{kind}: decode", len(keys), seconds(lambda: release.decode(keys)), "answers/s"))
    ours, array = folder / "ours.dps", folder / "array.npy"
    rows.append(beside(f"{kind}: merge against +=", merging, adding_up))
    saving = seconds(lambda: release.save(ours))
    flat = np.zeros(ours.stat().st_size // 8)
    rows.append(beside(f"{kind}: save against np.save", saving, seconds(lambda: save_array(array, flat))))
    rows.append(
        beside(f"{kind}: load against np.load", seconds(lambda: dps.load(ours)), seconds(lambda: np.load(array)))
    )
    return rows


def of_collector(folder: Path) -> list[dict[str, Any]]:
    protocol = local.SubsetHashing(epsilon=1.0, max_items=8)
    people, items = 100_000, np.random.default_rng(2).integers(0, 1000, (100_000, 8))
    sets = [np.unique(row).tolist() for row in items]
    reports = protocol.report(sets)
    keys = np.arange(1000)

    def collected() -> Any:
        collector = protocol.collector()
        collector.add(reports)
        return collector

    filled = collected()
    path = folder / "collector.dps"
    return [
        alone("local: report", people, seconds(lambda: protocol.report(sets)), "people/s"),
        alone("local: collect", people, seconds(collected), "reports/s"),
        alone("local: query", people * len(keys), seconds(lambda: filled.estimate(keys)), "reports × keys/s"),
        alone("local: save", people, seconds(lambda: filled.save(path)), "reports/s"),
        alone("local: load", people, seconds(lambda: dps.load(path)), "reports/s"),
    ]


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [row for kind, work in works().items() for row in of_kind(kind, work, folder)]
        return rows + of_collector(folder)
