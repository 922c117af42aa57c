"""The sets of the paper's Table 1: six that are made from its figures, and real ones, or what stands in for them."""

from __future__ import annotations

import lzma
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["TABLE_1", "Collected", "Row", "Sets", "collect", "read_sets", "synthetic", "zipf_sets"]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# People whose reports are made at a time: an ordering matrix takes a kilobyte a person or more.
_PART = 20_000
_NINETIETH = 1.2816  # of the standard normal law


class Row(NamedTuple):
    """One line of Table 1: people, keys, and the largest, the smallest and the 90th percentile of set sizes."""

    users: int
    domain: int
    largest: int
    smallest: int
    cap: int


TABLE_1 = {
    "Kosarak": Row(990_002, 41_270, 2498, 1, 15),
    "AOL": Row(521_693, 1_632_788, 61_932, 1, 62),
    "Dataset1": Row(100_000, 100_000, 123, 1, 80),
    "Dataset2": Row(10_000, 100_000, 117, 1, 78),
    "Dataset3": Row(100_000, 20_000, 112, 1, 73),
    "Dataset4": Row(100_000, 40_000, 107, 1, 72),
    "Dataset5": Row(100_000, 60_000, 110, 1, 74),
    "Dataset6": Row(100_000, 80_000, 109, 1, 75),
}


@dataclass(frozen=True, eq=False)
class Sets:
    """Everyone's set, person i holding ``items[offsets[i]:offsets[i + 1]]``, and the keys there are."""

    name: str
    offsets: Integers
    items: Integers
    keys: Integers

    @property
    def users(self) -> int:
        """How many people there are."""
        return len(self.offsets) - 1

    @property
    def shares(self) -> Floats:
        """The share of people who hold each of the keys."""
        return np.bincount(np.searchsorted(self.keys, self.items), minlength=len(self.keys)) / self.users

    @property
    def row(self) -> Row:
        """The line of Table 1 that describes them."""
        sizes = np.diff(self.offsets)
        return Row(self.users, len(self.keys), int(sizes.max()), int(sizes.min()), int(np.percentile(sizes, 90)))

    @property
    def mean_size(self) -> float:
        """The mean size of a set."""
        return len(self.items) / self.users

    def parts(self) -> Iterator[tuple[Integers, Integers]]:
        """Cut the people into parts, as pairs that ``report`` takes."""
        for start in range(0, self.users, _PART):
            offsets = self.offsets[start : start + _PART + 1]
            yield offsets - offsets[0], self.items[offsets[0] : offsets[-1]]


class Collected(NamedTuple):
    """Estimated shares, and the seconds of processor time that making and collecting the reports took."""

    value: Floats
    devices: float
    collector: float


def collect(protocol: Any, sets: Sets, keys: Integers | None = None) -> Collected:
    """Run a protocol over everyone's set and estimate the shares of keys, by default all."""
    collector, spent = protocol.collector(), 0.0
    begin = time.process_time()
    for part in sets.parts():
        start = time.process_time()
        reports = protocol.report(part)
        spent += time.process_time() - start
        collector.add(reports)
    value = collector.estimate(sets.keys if keys is None else keys).value
    return Collected(value, spent, time.process_time() - begin - spent)


def synthetic(name: str, *, shrink: int = 1) -> Sets:
    """Make one of the six synthetic sets; ``shrink`` divides people and keys.

    The paper says that keys follow a Zipf law, not which, nor how sizes are drawn. The smallest, the 90th percentile
    and the largest of every line of Table 1 are those of a normal law cut at 1, centred between the extremes.
    """
    row = TABLE_1[name]
    mean = (row.largest + row.smallest) / 2
    rng = np.random.default_rng(int(name.removeprefix("Dataset")))
    sizes = np.rint(rng.normal(mean, (row.cap - mean) / _NINETIETH, row.users // shrink)).astype(np.int64)
    return zipf_sets(name, np.maximum(sizes, 1), row.domain // shrink, rng)


def zipf_sets(name: str, sizes: Integers, domain: int, rng: np.random.Generator) -> Sets:
    """Draw sets of the given sizes: each the first so many distinct keys of a stream by Zipf's law with exponent 1."""
    users, law = len(sizes), np.cumsum(1 / np.arange(1, domain + 1))
    pairs, missing = np.empty(0, np.int64), sizes
    while missing.any():
        # Drawing just what is missing never passes a size, so the law is that of one stream a person.
        owners = np.repeat(np.arange(users), missing)
        drawn = np.searchsorted(law, rng.random(len(owners)) * law[-1])
        pairs = np.sort(np.concatenate([pairs, owners * domain + drawn]))
        pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])]
        missing = sizes - np.bincount(pairs // domain, minlength=users)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return Sets(name, offsets, pairs % domain, np.arange(domain))


def read_sets(name: str, path: Path, people: int | None = None) -> Sets:
    """Read one set of integers a line from a compressed file, of the first ``people`` lines or of all."""
    with lzma.open(path, "rt") as lines:
        held = [sorted(set(map(int, line.split()))) for line in islice(lines, people)]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(one) for one in held])])
    items = np.array([item for one in held for item in one], np.int64)
    return Sets(name, offsets, items, np.unique(items))
