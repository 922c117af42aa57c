"""What a search for frequent keys lists, law by law, beside the search before messages: keys gained, lost, and absent.

The former search fitted the keys that stand out by least squares and took its threshold from the tables as released.
Its lists of the same releases, which hash seeds and seeded noise fix, are kept in results/heavy_lists.json with a
digest of each release, so that nothing else is compared. 10⁶ or 2·10⁵ records, ε = 1 and δ = 1e-6 unless a law says
otherwise.

``python -m benchmarks heavy_lists`` measures and writes docs/explanation/heavy-lists.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import dpsketch as dps
from benchmarks.peers import ROOT
from dpsketch import noise
from dpsketch.sketches.heavy.search import FoundKeys, search

Integers = npt.NDArray[np.int64]

PAGE = ROOT / "docs" / "explanation" / "heavy-lists.md"
KEPT = Path(__file__).parent / "results" / "heavy_lists.json"
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Law:
    """A law of counts, a tree, a budget; ``data`` makes keys and counts of a seed."""

    name: str
    data: Callable[[int], tuple[list[Any], Integers]]
    rows: int
    width: int
    space: dict[str, int]
    epsilon: float = 1.0
    delta: float = 1e-6
    seeds: tuple[int, ...] = SEEDS

    @property
    def title(self) -> str:
        """The law in words."""
        budget = "" if self.epsilon == 1 else f", ε = {self.epsilon:g}"
        return f"{self.name}, {self.rows}×{self.width}{budget}{'' if self.delta else ', Laplace'}"

    def release(self, seed: int) -> tuple[dps.PrivateHeavyHitters, list[Any], Integers]:
        """Return a release, and the keys that are there with their counts."""
        keys, counts = self.data(seed)
        keys, counts = [key for key, count in zip(keys, counts, strict=True) if count], counts[counts > 0]
        sketch = dps.HeavyHitters(unit=dps.per_record(), rows=self.rows, width=self.width, seed=seed, **self.space)
        sketch.update(pa.array(keys, pa.uint64() if isinstance(keys[0], int) else pa.string()), counts=counts)
        with noise.seeded_noise_for_tests_only(seed):
            return sketch.release(epsilon=self.epsilon, delta=self.delta), keys, counts


def zipf(records: int, skew: float, keys: int = 20_000, bits: int = 32) -> Callable[[int], tuple[list[Any], Integers]]:
    """Keys drawn first, then how often each occurs."""

    def make(seed: int) -> tuple[list[Any], Integers]:
        rng = np.random.default_rng(seed)
        shares = np.arange(1, keys + 1) ** -skew
        names = rng.choice(2**bits, keys, replace=False).tolist()
        return names, rng.multinomial(records, shares / shares.sum())

    return make


def zipf_named(name: Callable[[np.random.Generator], Any]) -> Callable[[int], tuple[list[Any], Integers]]:
    """10⁶ records, Zipf(1.1) on 10⁵ keys, each drawn by itself."""

    def make(seed: int) -> tuple[list[Any], Integers]:
        rng = np.random.default_rng(seed)
        shares = np.arange(1, 10**5 + 1) ** -1.1
        names: dict[Any, None] = {}
        while len(names) < 10**5:
            names[name(rng)] = None
        return list(names), rng.multinomial(10**6, shares / shares.sum())

    return make


def spread(bits: int, counts: Callable[[int], Integers]) -> Callable[[int], tuple[list[Any], Integers]]:
    """Give counts of a seed to keys drawn from all that so many bits have."""

    def make(seed: int) -> tuple[list[Any], Integers]:
        found = counts(seed)
        return np.random.default_rng(seed).choice(2**bits, len(found), replace=False).tolist(), found

    return make


def flat(keys: int) -> Callable[[int], Integers]:
    """Return counts of about 50, by seed."""
    return lambda seed: np.random.default_rng(seed).poisson(50, keys)


def wide_integer(rng: np.random.Generator) -> int:
    return int(rng.integers(0, 2**64 - 1, dtype=np.uint64, endpoint=True))


def word(rng: np.random.Generator) -> str:
    return "".join(map(chr, rng.integers(97, 123, rng.integers(4, 25))))


def laws() -> Iterator[Law]:
    """Yield all laws."""
    few, many = 2 * 10**5, 10**6
    yield Law("Zipf 1.05", zipf(many, 1.05), 5, 4096, {"key_bits": 32})
    yield Law("Zipf 1.05", zipf(many, 1.05), 3, 1024, {"key_bits": 32})
    yield Law("Zipf 0.8", zipf(many, 0.8), 3, 1024, {"key_bits": 32})
    for skew in (1.1, 0.8, 1.5):
        yield Law(f"Zipf {skew:g}", zipf(few, skew), 7, 1024, {"key_bits": 32})
    yield Law("Zipf 1.1", zipf(few, 1.1), 7, 1024, {"key_bits": 32}, epsilon=0.3)
    yield Law("Zipf 1.1", zipf(few, 1.1), 7, 1024, {"key_bits": 32}, delta=0.0)
    for keys, bits in ((2000, 16), (250, 12)):
        yield Law(f"{keys:,} keys of about 50", spread(bits, flat(keys)), 5, 512, {"key_bits": bits})
    yield Law("500 keys of 5,000", spread(24, lambda _: np.full(500, 5000)), 7, 1024, {"key_bits": 24})
    mixed = np.append(np.full(50, 20_000), np.full(1950, 20))
    yield Law("50 keys of 20,000, 1,950 of 20", spread(24, lambda _: mixed), 5, 512, {"key_bits": 24})
    yield Law("Zipf 1.05", zipf(many, 1.05, bits=24), 1, 1024, {"key_bits": 24})
    yield Law("Zipf 1.1, 64 bits", zipf_named(wide_integer), 7, 4096, {"key_bits": 64}, seeds=(1,))
    yield Law("Zipf 1.1, texts", zipf_named(word), 7, 4096, {"key_bytes": 24}, seeds=(2,))


@dataclass
class Row:
    """Lists of one law: keys that are there and keys that are not, formerly and now; those gained and lost.

    Keys are withheld if they pass the threshold and their interval reaches zero: some are there, some are absent.
    """

    law: Law
    right: int = 0
    absent: int = 0
    former_right: int = 0
    former_absent: int = 0
    lost: int = 0
    gained: int = 0
    missed: int = 0
    withheld: int = 0
    withheld_absent: int = 0
    lost_withheld: int = 0

    def add(self, seed: int, former: dict[str, Any]) -> None:
        """Add the lists of one release."""
        private, keys, counts = self.law.release(seed)
        if digest(private) != former["release"]:
            raise RuntimeError(f"{self.law.title}, seed {seed}: this is not the release that was searched formerly.")
        places = {key: place for place, key in enumerate(keys)}
        found = private.top()
        now = {places[key] for key in found.key if key in places}
        before = set(former["places"])
        self.right += len(now)
        self.absent += len(found) - len(now)
        self.former_right += len(before)
        self.former_absent += former["absent"]
        self.lost += len(before - now)
        self.gained += len(now - before)
        truth = np.array([counts[places[key]] if key in places else 0 for key in found.key])
        self.missed += int(np.count_nonzero((truth < found.low) | (found.high < truth)))
        doubtful = withheld(search(private, private.lowest_threshold), found.confidence)
        there = {places[key] for key in doubtful if key in places}
        self.withheld += len(there)
        self.withheld_absent += len(doubtful) - len(there)
        self.lost_withheld += len((before - now) & there)


def withheld(found: FoundKeys, confidence: float) -> list[Any]:
    """Return the keys that pass the threshold of a search and that are not listed all the same."""
    if found.decoded is None:
        return []
    return found.keys.take(np.flatnonzero(found.values <= found.half_widths(confidence))).plain()


def digest(private: dps.PrivateHeavyHitters) -> str:
    """Return what tells one release from another."""
    return hashlib.sha256(private.tables.tobytes() + private.dense.tobytes()).hexdigest()[:16]


def share(right: int, absent: int) -> float:
    """Return the precision of a list; one without keys has no wrong ones."""
    return right / (right + absent) if right + absent else 1.0


def run() -> list[dict[str, Any]]:
    """Return keys found and precision, now and formerly."""
    former = {(each["law"], each["seed"]): each for each in json.loads(KEPT.read_text())}
    measured, rows = [], []
    for law in laws():
        row = Row(law)
        for seed in law.seeds:
            row.add(seed, former[law.title, seed])
        measured.append(row)
        goal = {"reach": 1.0} if law.rows > 1 else {}
        was, now = share(row.former_right, row.former_absent), share(row.right, row.absent)
        rows += [
            {"name": f"{law.title}: keys found", "ours": row.right, "theirs": row.former_right,
             "ratio": row.right / row.former_right if row.former_right else None, "unit": "keys", **goal},
            {"name": f"{law.title}: precision", "ours": now, "theirs": was,
             "ratio": now / was, "unit": "", "reach": 1.0},
        ]  # fmt: skip
    for made in rows:
        if made["ratio"] is None:
            made.pop("reach", None)
    PAGE.write_text(page(measured), encoding="utf-8")
    return rows


def page(measured: list[Row]) -> str:
    """Return all laws as a page."""
    several = [row for row in measured if row.law.rows > 1]
    lost, gained = sum(row.lost for row in several), sum(row.gained for row in several)
    now, before = sum(row.right for row in several), sum(row.former_right for row in several)
    withheld_now, absent = sum(row.lost_withheld for row in several), sum(row.withheld_absent for row in several)
    rows_of_absent = " and ".join(sorted({str(row.law.rows) for row in several if row.withheld_absent}))
    lists = sum(len(row.law.seeds) for row in several if not row.withheld_absent)
    fewer = [
        row.law.title
        for row in several
        if row.right < row.former_right or share(row.right, row.absent) < share(row.former_right, row.former_absent)
    ]
    less = (
        f"Fewer keys, or less precision, than before: {'; '.join(fewer)}."
        if fewer
        else ("No law has fewer keys or less precision than before.")
    )
    text = [
        "# Lists of frequent keys, law by law",
        "",
        "What `top` of HeavyHitters lists, beside the search that fitted keys by least squares and took its threshold "
        "from the tables as they were released, on the same releases: keys that are there and keys that are not, "
        "summed over the seeds. `python -m benchmarks heavy_lists` writes this page. ε = 1, δ = 10⁻⁶ unless a row says "
        "otherwise.",
        "",
        f"With three rows and more {now:,} keys are found where there were {before:,}: {gained:,} are new, and {lost} "
        f"are no longer listed. {less} With one row nothing tells a heavy key from those that share its cell at every "
        "level, and nothing is listed; of what used to be, the column of absent keys says how many were not there.",
        "",
        f"The {lost} are there, and lie at the edge of what can be told. {withheld_now} of them pass the threshold "
        "of the search, and are *withheld*: their interval, which allows for the errors of keys that were decoded "
        f"together and holds for all keys looked at, reaches zero. The other {lost - withheld_now} are read below "
        "the threshold, in the last level or in one above it, whose noise and cells are others; the former search had "
        "another reading of them. To list what is withheld would not be sound: of "
        f"{sum(row.withheld + row.withheld_absent for row in several)} such keys {absent} are absent, all of them in "
        f"laws with {rows_of_absent} rows, and these laws' own lists hold with the probability promised and no more "
        "([of 30 lists 27 did](decoding.md#lists)). With more rows none is, but "
        f"{lists} lists cannot show that fewer than one in twenty would fail, which is what is promised. The former "
        "lists had no such allowance: their intervals came from what a fit leaves of the very cells it was fitted to. "
        "Whoever has a name in mind asks for it: `top(candidates=…)` looks at these keys only, and allows for no "
        "others.",
        "",
        "| law | seeds | found | formerly | gained | lost | absent | formerly | intervals missed "
        "| withheld: there | absent |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in measured:
        listed = (row.right, row.former_right, row.gained, row.lost, row.absent, row.former_absent, row.missed)
        figures = (*listed, row.withheld, row.withheld_absent)
        text.append(f"| {row.law.title} | {len(row.law.seeds)} | {' | '.join(f'{each:,}' for each in figures)} |")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    for one in run():
        print(one)
