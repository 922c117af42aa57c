"""What ``dpsketch serve --demo`` shows: releases of made-up records, the ledger they were charged to, a collection."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch import kernels
from dpsketch.kinds import Release
from dpsketch.ledger import Ledger
from dpsketch.local import SubsetHashing
from dpsketch.privacy import per_record
from dpsketch.server.aggregates import Aggregates
from dpsketch.server.storage import Storage
from dpsketch.sketches.countsketch import CountSketch
from dpsketch.sketches.density import DensitySketch
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.moment import MomentSketch
from dpsketch.sketches.ranges import RangeSketch

__all__ = ["FRUIT", "prepare"]

FRUIT: list[str | int] = ["apple", "banana", "cherry", "fig", "grape", "lemon", "mango", "pear"]
_SHARES = (0.28, 0.2, 0.16, 0.12, 0.1, 0.07, 0.05, 0.02)
_PEOPLE = 5000
_EPSILON, _DELTA = 0.5, 1e-6


def prepare(folder: Path, store: str) -> str:
    """Fill a folder with releases and a store with a collection; return the ledger's address."""
    ledger_url = f"sqlite:///{folder / 'ledger.db'}"
    ledger = Ledger(ledger_url)
    ledger.create("visits", epsilon=4.0, delta=1e-5, unit=per_record())
    ledger.create("places", epsilon=2.0, delta=1e-5, unit=per_record())
    for name, release in _releases(ledger).items():
        release.save(folder / f"{name}.dps")
    # Beside a release that knows no keys, a public list of some.
    listed = [f"/{section}/{page}" for page in range(4) for section in _SECTIONS]
    (folder / "visits-by-page.keys").write_text("\n".join(listed) + "\n")
    _collection(store)
    return ledger_url


def _releases(ledger: Ledger) -> dict[str, Release]:
    unit = per_record()
    counts = {f"/{section}/{page}": 40_000 // (1 + 5 * page + place) for place, section in enumerate(_SECTIONS)
              for page in range(40)}  # fmt: skip
    pages, visits = list(counts), np.array(list(counts.values()))
    spend: dict[str, Any] = {"epsilon": _EPSILON, "delta": _DELTA, "ledger": ledger, "dataset": "visits"}
    sketch = CountSketch(rows=7, width=2048, unit=unit)
    sketch.update(pages, counts=visits)
    heavy = HeavyHitters(rows=5, width=1024, key_bytes=10, unit=unit)
    heavy.update(pages, counts=visits)
    distinct = DistinctSketch(unit=unit)
    distinct.update(pages)
    moment = MomentSketch(p=0.5, size=200, unit=unit)
    moment.update(pages, counts=visits)
    seconds = RangeSketch(bits=10, unit=unit)
    seconds.update(_durations())
    places = DensitySketch(
        kernel=kernels.Euclidean(dim=2, bandwidth=1.0), rows=400, unit=unit, bounds=[(0, 10), (0, 10)],
        columns=("east", "north"),
    )  # fmt: skip
    places.update(_places())
    return {
        "visits-by-page": sketch.release(**spend),
        "frequent-pages": heavy.release(**spend),
        "different-pages": distinct.release(**{**spend, "delta": 0}),
        "skew-of-visits": moment.release(**spend),
        "seconds-on-page": seconds.release(**spend),
        "places": places.release(**{**spend, "epsilon": 1.0, "dataset": "places"}),
    }


_SECTIONS = ("news", "shop", "help", "blog", "docs")


def _durations() -> list[int]:
    """Seconds on a page: many short visits, a few long ones."""
    return [min(1023, int(8 * math.exp(0.0009 * rank))) for rank in range(5000) for _ in range(8)]


def _places() -> npt.NDArray[np.float64]:
    """Points around three towns, on spirals that thin out."""
    towns = ((2.5, 3.0, 0.9, 9000), (7.0, 6.5, 1.3, 12000), (6.5, 1.8, 0.5, 4000))
    parts = []
    for east, north, spread, people in towns:
        place = (np.arange(people) + 0.5) / people
        radius = spread * np.sqrt(-2 * np.log(1 - place))
        angle = np.pi * (3 - math.sqrt(5)) * np.arange(people)
        parts.append(np.column_stack([east + radius * np.cos(angle), north + radius * np.sin(angle)]))
    points: npt.NDArray[np.float64] = np.clip(np.concatenate(parts), 0, 10)
    return points


def _collection(store: str) -> None:
    """Start the collection and report for people who are made up, so that there is something to see."""
    storage = Storage(store)
    try:
        storage.claim()
        aggregates = Aggregates(storage)
        protocol = SubsetHashing(epsilon=2.0, max_items=1, key_type="text")
        aggregate = aggregates.create("Favourite fruit", protocol.to_json(), FRUIT)
        people = [[fruit] for fruit, share in zip(FRUIT, _SHARES, strict=True) for _ in range(int(share * _PEOPLE))]
        messages = protocol.to_bytes(protocol.report(people))
        at = 0
        for power in range(6, len(messages).bit_length() + 1):
            part, at = messages[at : 1 << power], min(len(messages), 1 << power)
            content = aggregate.form.by_identifier(b"".join(part))
            storage.append([(aggregate.row.id, len(part), content)], {})
            aggregate.count(aggregate.form.from_bytes(content))
            aggregates.note_width(aggregate)
    finally:
        storage.close()
