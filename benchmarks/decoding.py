"""Joint decoding through ``decode``, beside the median, ``estimate``, the former fit, and a bound.

``python -m benchmarks.decoding`` measures every case over 40 fresh seeds (narrow ones more) and keeps the figures in
results/decoding.json, case by case. ``--missing`` goes on where that was interrupted; ``--quick``
takes a tenth of the seeds and keeps nothing, nor does ``--first-seed N``, which takes other tables; ``--only WORDS``
takes the cases whose name has these words; ``--page`` prints the table of the page on decoding, ``--picture FILE``
draws it.

A case holds if each group of keys is covered by 94% of its 95% intervals (all keys; the 30 heaviest; ranks 100–300;
keys that are not there), or by no less than three standard errors between tables below 95%, and if the error is at
most 3% above those of ``estimate`` and, on the first ten tables, of the fit. No decoder can beat the noise that a
histogram would have at the same budget without any sketch: the bound.

Counts of users are those of the users that a table has counted: of one whose keys share cells it leaves some out, and
no answer speaks of those. What is covered of the users who came is kept beside.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from benchmarks.drawing import draw_decoding
from benchmarks.guarded_fit import fitted
from dpsketch import noise
from dpsketch._compiled.countsketch import cells
from dpsketch.bounding import bound
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.sketches.countsketch.spec import CountSketchSpec

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

KEPT = Path(__file__).parent / "results" / "decoding.json"
# No table of these seeds was looked at while the decoder was made.
FIRST_SEED = 70_000
SEEDS, MANY_SEEDS = 40, 200
# The fit takes longer than all else. It is compared with on the same tables, the first ones.
FIT_SEEDS = 10
# σ of a histogram with ε = 1 and δ = 1e-6.
SCALE = 4.22
WORSE = 1.03
LEAST = 94.0
GROUPS = ("all", "heaviest 30", "ranks 100–300", "absent")


@dataclass(frozen=True)
class Data:
    """Counts of candidates, absent ones included, and of keys that nobody lists."""

    counts: Integers
    unlisted: Integers


def zipf(skew: float, keys: int = 5000) -> Callable[[np.random.Generator], Data]:
    """10⁶ records, and a quarter as many absent keys as there are others."""

    def make(rng: np.random.Generator) -> Data:
        shares = np.arange(1, keys + 1) ** -skew
        counts = rng.multinomial(10**6, shares / shares.sum())
        return Data(np.append(counts, np.zeros(keys // 4, np.int64)), np.empty(0, np.int64))

    return make


def half_unlisted(keys: int = 5000) -> Callable[[np.random.Generator], Data]:
    """10⁶ records of which every second key is not among the candidates."""

    def make(rng: np.random.Generator) -> Data:
        counts = zipf(1.05, 2 * keys)(rng).counts[: 2 * keys]
        return Data(np.append(counts[::2], np.zeros(keys // 4, np.int64)), counts[1::2])

    return make


def constant(counts: npt.ArrayLike) -> Callable[[np.random.Generator], Data]:
    """Return the same counts for every seed."""
    held = np.asarray(counts).astype(np.int64)
    return lambda _: Data(held, np.empty(0, np.int64))


def equal(present: int, count: int, absent: int) -> Callable[[np.random.Generator], Data]:
    """Keys of one count."""
    return constant(np.append(np.full(present, count), np.zeros(absent)))


GEOMETRIC = constant(np.append(np.floor(2.0**19 * 0.9 ** np.arange(130)), np.zeros(4870)))


@dataclass(frozen=True)
class Case:
    """A law, a table, a budget.

    ``epsilon`` is that of a Gaussian release with δ = 1e-6 at ε = 1, ten times the noise at 0.1; where ``pure``, of
    a release with Laplace noise. ``seeds`` are those of the full form, and ``fits`` those on which the fit is compared.
    """

    name: str
    data: Callable[[np.random.Generator], Data]
    rows: int
    width: int
    epsilon: float = 1.0
    pure: bool = False
    seeds: int = SEEDS
    fits: int = FIT_SEEDS

    @property
    def title(self) -> str:
        """The case in words."""
        more = ("" if self.epsilon == 1 else f", ε = {self.epsilon:g}") + (", Laplace" if self.pure else "")
        return f"{self.name} {self.rows}×{self.width}{more}"

    @property
    def slow(self) -> bool:
        """Whether a table takes so long that each is kept when it is done."""
        return self.fits < FIT_SEEDS

    @property
    def bound(self) -> float:
        """The noise of a histogram at the same budget."""
        return math.sqrt(2) / self.epsilon if self.pure else SCALE / self.epsilon

    def release(self, seed: int) -> tuple[Any, Integers, Integers, Integers]:
        """Return a release, its candidates, their counts, and what these were before any user was clipped."""
        rng = np.random.default_rng(seed)
        data = self.data(rng)
        keys = rng.choice(2**48, len(data.counts) + len(data.unlisted), replace=False)
        counts = np.append(data.counts, data.unlisted)
        sketch = dps.CountSketch(rows=self.rows, width=self.width, unit=dps.per_record(), seed=seed)
        sketch.update(keys[counts > 0], counts=counts[counts > 0])
        with noise.seeded_noise_for_tests_only(seed):
            private = (
                sketch.release(epsilon=self.epsilon, delta=0)
                if self.pure
                else sketch.release(rho=self.epsilon**2 / (2 * SCALE**2))
            )
        return private, keys[: len(data.counts)], data.counts, data.counts


@cache
def baskets(name: str, most: int) -> tuple[Integers, Integers]:
    """Return users and keys of a set of baskets, of which each user keeps so many keys."""
    root = Path(os.environ["DPSKETCH_DATA"]) / "sets"
    with lzma.open(next(root.glob(f"{name}*.dat.xz")), "rt") as lines:
        kept = [list(dict.fromkeys(line.split()))[:most] for line in lines]
    users = np.repeat(np.arange(len(kept)), [len(items) for items in kept])
    return users, np.array([int(item) for items in kept for item in items])


def left_out(users: Integers, items: Integers, spec: CountSketchSpec) -> tuple[Integers, int]:
    """Return the keys that clipping leaves out, one for each user who loses it, and how many users lose any.

    Those who have two keys in a cell are gone through side by side, first key by first key; the others lose nothing.
    Every key has the weight 1.
    """
    bounds = {"max_keys": spec.unit.max_keys, "max_units": 1, "seed": spec.seed}
    kept = bound(users, fingerprint(items, "int"), spec.weight_grid.one, **bounds)
    buckets, signs = cells(kept.fingerprints, row_keys(spec.seed, spec.rows), spec.width)
    lengths, counted = np.diff(kept.starts), np.ones(len(kept.fingerprints), bool)
    norms, sharing = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), bool)
    runs = np.repeat(np.arange(len(lengths)) * spec.width, lengths)
    for row in range(spec.rows):
        held = np.sort(runs + buckets[:, row])
        sharing[held[1:][held[1:] == held[:-1]] // spec.width] = True
    for place in range(int(lengths.max(where=sharing, initial=0))):
        owners = np.flatnonzero(sharing & (lengths > place))
        here = kept.starts[owners] + place
        gained = np.full(len(here), spec.rows)
        for earlier in range(place):
            there = kept.starts[owners] + earlier
            shared = (buckets[here] == buckets[there]) & counted[there, None]
            gained += 2 * np.sum(shared * signs[here] * signs[there], axis=1, dtype=np.int64)
        fits = norms[owners] + gained <= spec.user_clip.squared
        counted[here] = fits
        norms[owners[fits]] += gained[fits]
    losers = np.count_nonzero(np.add.reduceat(~counted, kept.starts[:-1]))
    return items[kept.rows[~counted]], int(losers)


@dataclass(frozen=True)
class Baskets(Case):
    """Real baskets: a unit is a user with at most ``most`` keys."""

    most: int = 10

    @property
    def bound(self) -> float:
        """The noise of a histogram of users with so many keys."""
        return math.sqrt(self.most) * SCALE / self.epsilon

    def release(self, seed: int) -> tuple[Any, Integers, Integers, Integers]:
        """Return a release, its candidates (a fifth of them absent), and their counts after clipping and before."""
        users, items = baskets(self.name.split()[0], self.most)
        keys, counts = np.unique(items, return_counts=True)
        absent = keys.max() + 1 + np.arange(len(keys) // 4)
        unit = dps.per_user(max_keys=self.most)
        sketch = dps.CountSketch(rows=self.rows, width=self.width, unit=unit, seed=seed)
        sketch.update(items, users=users)
        with noise.seeded_noise_for_tests_only(seed):
            private = sketch.release(rho=self.epsilon**2 / (2 * SCALE**2))
        lost, losers = left_out(users, items, private.spec)
        assert losers == sketch.clipped_users
        candidates, before = np.append(keys, absent), np.append(counts, np.zeros(len(absent), np.int64))
        return private, candidates, before - np.bincount(np.searchsorted(keys, lost), minlength=len(before)), before


@dataclass(frozen=True)
class NearTwins(Case):
    """Candidates that share all cells but one, with equal signs, with one of the first six, and are absent."""

    def release(self, seed: int) -> tuple[Any, Integers, Integers, Integers]:
        """Return a release as of other keys, of which the absent ones were looked for."""
        rng = np.random.default_rng(seed)
        counts = self.data(rng).counts
        present = rng.choice(2**48, 6, replace=False)
        rows, absent = row_keys(seed, self.rows), np.empty(0, np.int64)
        near = [each[:, np.newaxis] for each in cells(fingerprint(present).fingerprints, rows, self.width)]
        while len(absent) < len(counts) - len(present):
            others = rng.choice(2**48, 1 << 16)
            buckets, signs = cells(fingerprint(others).fingerprints, rows, self.width)
            shared = np.sum((buckets == near[0]) & (signs == near[1]), axis=2)
            absent = np.append(absent, others[shared.max(axis=0) == self.rows - 1])
        keys = np.append(present, absent[: len(counts) - 6])
        sketch = dps.CountSketch(rows=self.rows, width=self.width, unit=dps.per_record(), seed=seed)
        sketch.update(present, counts=counts[:6])
        with noise.seeded_noise_for_tests_only(seed):
            return sketch.release(rho=self.epsilon**2 / (2 * SCALE**2)), keys, counts, counts


def cases() -> Iterator[Case]:
    """Yield all cases."""
    yield Case("Zipf 1.05", zipf(1.05), 1, 1024)
    yield Case("Zipf 1.05", zipf(1.05), 3, 256)
    yield Case("Zipf 1.05", zipf(1.05), 3, 1024)
    yield Case("Zipf 1.05", zipf(1.05), 3, 1024, 0.1)
    yield Case("Zipf 1.05", zipf(1.05), 3, 1024, 10)
    yield Case("Zipf 1.05", zipf(1.05), 5, 1024)
    yield Case("Zipf 1.05", zipf(1.05), 5, 8192)
    yield Case("Zipf 1.05", zipf(1.05), 7, 4096)
    yield Case("Zipf 1.05", zipf(1.05), 11, 2000)
    yield Case("Zipf 0.8", zipf(0.8), 3, 256)
    yield Case("Zipf 0.8", zipf(0.8), 5, 1024)
    yield Case("Zipf 0.8", zipf(0.8), 7, 4096)
    yield Case("Zipf 1.3", zipf(1.3), 3, 1024)
    yield Case("flat", equal(2500, 50, 2500), 5, 1024)
    yield Case("flat", equal(2500, 50, 2500), 5, 8192)
    yield Case("50 equal heavy", equal(50, 20_000, 4950), 3, 256)
    yield Case("geometric", GEOMETRIC, 3, 256)
    yield Case("half unlisted", half_unlisted(), 3, 256)
    yield Case("half unlisted", half_unlisted(), 3, 1024)
    yield Case("half unlisted", half_unlisted(), 5, 1024)
    yield Case("half unlisted", half_unlisted(), 11, 2000)
    yield Case("half unlisted, 20,000 keys", half_unlisted(20_000), 3, 1024)
    yield Case("Zipf 1.05, 20,000 keys", zipf(1.05, 20_000), 3, 1024)
    yield Case("Zipf 1.05, 20,000 keys", zipf(1.05, 20_000), 5, 1024)
    yield Case("Zipf 1.05", zipf(1.05), 7, 4096, 0.1)
    for width in (8, 16, 32, 64, 128, 256):
        seeds = MANY_SEEDS if width < 64 else SEEDS
        yield Case("6 equal keys, 200 absent", equal(6, 5000, 200), 3, width, seeds=seeds)
        yield Case("6 equal keys, none absent", equal(6, 5000, 0), 3, width, seeds=seeds)
        yield Case("Zipf 1.05, 250 keys", zipf(1.05, 200), 5, width, seeds=seeds)
    for width in (32, 64, 256):
        yield NearTwins("6 equal keys, 40 near twins", equal(6, 5000, 40), 3, width)
    yield Case("Zipf 1.05", zipf(1.05), 3, 1024, 1.0, True)
    yield Case("Zipf 1.05", zipf(1.05), 5, 1024, 1.0, True)
    yield Case("Zipf 1.05", zipf(1.05), 7, 4096, 0.1, True)
    yield Case("flat", equal(2500, 50, 2500), 5, 1024, 1.0, True)
    for name in ("retail", "kosarak"):
        yield Baskets(f"{name} users", zipf(1.0), 5, 1024)
        # Whoever has two keys in a cell, with equal signs, loses one at this size: more tables tell what that does.
        yield Baskets(f"{name} users", zipf(1.0), 3, 4096, seeds=3 * SEEDS if name == "retail" else SEEDS)
    for rows in (3, 5):
        yield Case("Zipf 1.05, 10⁵ keys", zipf(1.05, 80_000), rows, 1024)
    yield Case("Zipf 1.05, 10⁶ keys", zipf(1.05, 800_000), 5, 1024, fits=1)


def groups(counts: Integers) -> dict[str, Integers]:
    """Return the places of the keys of each group."""
    order, present = np.argsort(-counts, kind="stable"), int(np.count_nonzero(counts))
    return {
        "all": np.arange(len(counts)),
        "heaviest 30": order[: min(30, present)],
        "ranks 100–300": order[99:300] if present >= 300 else order[:0],
        "absent": np.flatnonzero(counts == 0),
    }


class Tally:
    """Of each table of a case: mean square errors of each method and, of ``decode``, what intervals cover, by group."""

    def __init__(self, case: Case, first_seed: int, tables: list[dict[str, dict[str, float]]]) -> None:
        self.case, self.first_seed, self.tables = case, first_seed, tables

    def measure(self) -> None:
        """Measure the next table."""
        seed = self.first_seed + len(self.tables)
        private, keys, counts, before = self.case.release(seed)
        found = private.decode(keys)
        values = {
            "median": private.estimate(keys, estimator="median").value,
            "estimate": private.estimate(keys).value,
            "decode": found.value,
        }
        if len(self.tables) < self.case.fits:
            values |= {"fit": fitted(private, keys), "decode beside the fit": found.value}
        hit, hit_before = ((found.low <= each) & (each <= found.high) for each in (counts, before))
        table: dict[str, dict[str, float]] = {"squares": {}, "covered": {}, "unclipped": {}}
        for group, places in groups(counts).items():
            if len(places):
                table["covered"][group] = float(hit[places].mean())
                table["unclipped"][group] = float(hit_before[places].mean())
                for method, value in values.items():
                    table["squares"][f"{method}, {group}"] = float(np.mean((value[places] - counts[places]) ** 2))
        self.tables.append(table)

    def row(self) -> dict[str, Any]:
        """Return what is kept of the case: root mean squares and means over tables, and all tables if some lack."""
        squares, covered, unclipped = (
            {name: [each[what][name] for each in self.tables if name in each[what]] for name in self.tables[0][what]}
            for what in ("squares", "covered", "unclipped")
        )
        row = {
            "case": self.case.title,
            "first_seed": self.first_seed,
            "seeds": len(self.tables),
            "bound": self.case.bound,
            "errors": {name: math.sqrt(np.mean(each)) for name, each in squares.items()},
            **shares_and_strays(covered, ""),
        }
        if isinstance(self.case, Baskets):
            row |= shares_and_strays(unclipped, " before clipping")
        return row if len(self.tables) >= self.case.seeds else row | {"tables": self.tables}


def shares_and_strays(covered: dict[str, list[float]], words: str) -> dict[str, dict[str, float]]:
    """Return the mean over tables of what is covered of each group, in percent, and the standard errors."""
    several = {group: np.array(each) for group, each in covered.items() if len(each) > 1}
    return {
        f"covered{words}": {group: 100 * float(np.mean(each)) for group, each in covered.items() if each},
        f"strays{words}": {
            group: 100 * float(np.std(each, ddof=1)) / math.sqrt(len(each)) for group, each in several.items()
        },
    }


def shortcomings(row: dict[str, Any]) -> list[str]:
    """Return what a case falls short of."""
    errors, short = row["errors"], []
    for method, ours in (("estimate", "decode"), ("fit", "decode beside the fit")):
        if errors[f"{ours}, all"] > WORSE * errors[f"{method}, all"]:
            short.append(f"error {errors[f'{ours}, all'] / errors[f'{method}, all']:.3f} times that of {method}")
    for group, share in row["covered"].items():
        if share < min(LEAST, 95 - 3 * row["strays"].get(group, 0.0)):
            short.append(f"{group}: {share:.1f}% covered")
    return short


def line(row: dict[str, Any]) -> str:
    """Return a case as a row of the page's table."""
    errors, covered = row["errors"], row["covered"]
    figures = [f"{errors[f'{method}, all']:,.3g}" for method in ("median", "estimate", "fit", "decode")]
    heaviest = [f"{errors[f'{method}, heaviest 30']:,.3g}" for method in ("fit", "decode")]
    shares = [f"{covered[group]:.1f}" if group in covered else "–" for group in GROUPS]
    cells = [
        row["case"],
        f"{row['seeds']} from {row['first_seed']:,}",
        *figures,
        f"{row['bound']:.3g}",
        *heaviest,
        *shares,
    ]
    return "| " + " | ".join(cells) + " |"


COLUMNS = (
    *("case", "seeds", "median", "`estimate`", "fit", "`decode`", "bound", "heaviest 30: fit", "`decode`"),
    *("covered: all", "heaviest 30", "ranks 100–300", "absent"),
)
HEAD = "| " + " | ".join(COLUMNS) + " |\n|---|" + "--:|" * (len(COLUMNS) - 1)


def kept_rows() -> dict[str, dict[str, Any]]:
    """Return what was kept, case by case."""
    return {row["case"]: row for row in json.loads(KEPT.read_text())} if KEPT.exists() else {}


def keep(row: dict[str, Any]) -> None:
    """Write a case among those that were kept."""
    order = [one.title for one in cases()]
    rows = sorted((kept_rows() | {row["case"]: row}).values(), key=lambda one: order.index(one["case"]))
    KEPT.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def main(arguments: list[str]) -> None:
    """Measure, or print or draw what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding")
    parser.add_argument("--quick", action="store_true", help="a tenth of the seeds; nothing is kept")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="other tables than those kept")
    parser.add_argument("--missing", action="store_true", help="the cases that were not kept yet, with all their seeds")
    parser.add_argument("--only", default="", help="the cases whose name has these words")
    parser.add_argument("--page", action="store_true", help="print the table of what was kept")
    parser.add_argument("--picture", help="draw what was kept")
    asked = parser.parse_args(arguments)
    kept = kept_rows()
    if asked.page:
        print(HEAD, *map(line, kept.values()), sep="\n")
    elif asked.picture:
        draw_decoding(list(kept.values()), Path(asked.picture))
    else:
        print(HEAD)
        chosen = [case for case in cases() if asked.only in case.title]
        if asked.missing:
            done = {(row["case"], row.get("first_seed"), row["seeds"]) for row in kept.values()}
            chosen = [case for case in chosen if (case.title, FIRST_SEED, case.seeds) not in done]
        for case in chosen:
            seeds = max(1, case.seeds // 10) if asked.quick else case.seeds
            keeps = not asked.quick and asked.first_seed == FIRST_SEED
            begun = kept.get(case.title, {}) if asked.missing else {}
            tables = begun.get("tables", []) if begun.get("first_seed") == FIRST_SEED else []
            tally = Tally(case, asked.first_seed, tables)
            while len(tally.tables) < seeds:
                tally.measure()
                if keeps and (len(tally.tables) == seeds or case.slow):
                    keep(tally.row())
            row = tally.row()
            print(line(row), *shortcomings(row), flush=True)
            strays = row.get("strays before clipping", {})
            for group, share in row.get("covered before clipping", {}).items():
                print(f"  of the users who came, {group}: {share:.1f} ± {strays.get(group, math.nan):.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
