"""The experiments behind the figures: each returns, for every protocol, its points {x: y}."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch import local

from . import large_budgets as large
from . import metrics
from .data import Collected, Sets, collect
from .drawing import BIT, DIRECT, HASHING, LEAST, MEAN, OLH, PRIVSKETCH, SVIM, UNSAMPLED

__all__ = [
    "ALONE",
    "DEFAULT",
    "SHAPE",
    "Sweep",
    "errors",
    "few_people",
    "frequent_items",
    "over_hashes",
    "recovered",
    "running_times",
    "shapes",
    "sweep",
]

# The paper's ε, and its K and M.
DEFAULT = 3.0
SHAPE = {"rows": 4, "width": 128}
LARGEST = 20.0  # the largest ε that the library takes

POOL, ALONE = "PS-OLH, 4,096 hash functions", "PS-OLH, 65,536 hash functions"

Points = dict[float, float]
Sweep = dict[str, dict[float, Collected]]
Integers = npt.NDArray[np.int64]


def sweep(sets: Sets, epsilons: Iterable[float]) -> Sweep:
    """Run every protocol at every ε on all keys; caps and ℓ are the 90th percentile of sizes."""
    cap = sets.row.cap
    listed = len(sets.keys) if sets.keys[-1] == len(sets.keys) - 1 else tuple(sets.keys.tolist())
    found: Sweep = {name: {} for name in (MEAN, OLH, PRIVSKETCH, HASHING, BIT, DIRECT)}
    for epsilon in epsilons:
        protocols = {
            MEAN: local.MultiPCMS(epsilon, **SHAPE),
            OLH: local.PadAndSample(epsilon, length=cap),
            PRIVSKETCH: local.PrivSketchAsPublished(epsilon, **SHAPE),
            HASHING: local.SubsetHashing(epsilon, max_items=cap),
            BIT: local.SampledBit(epsilon, width=local.best_width(epsilon, sets.mean_size)),
            DIRECT: local.SubsetDirect(epsilon, max_items=cap, domain=listed),
        }
        for name, protocol in protocols.items():
            found[name][epsilon] = collect(protocol, sets)
    return found


def errors(sets: Sets, found: Sweep) -> dict[str, Points]:
    """Return the mean squared errors of a sweep."""
    shares = sets.shares
    return {
        name: {epsilon: metrics.mean_squared_error(made.value, shares) for epsilon, made in points.items()}
        for name, points in found.items()
    }


def over_hashes(protocol: Any, sets: Sets, keys: Integers | None = None, *, draws: int) -> float:
    """Return a protocol's error as a mean over ``draws`` of its hash functions: one draw of few says little."""
    shares = sets.shares if keys is None else sets.shares[keys]
    made = [collect(replace(protocol, seed=seed), sets, keys).value for seed in range(1, draws + 1)]
    return float(np.mean([metrics.mean_squared_error(value, shares) for value in made]))


def frequent_items(
    sets: Sets, found: Sweep, sizes: Iterable[int], repetitions: int
) -> tuple[dict[str, Points], dict[str, Points]]:
    """Return Var and NCR of the top k at the paper's ε; SVIM is run anew for every k.

    A repetition that finds none of the true top k has no Var.
    """
    variance: dict[str, Points] = {name: {} for name in (SVIM, PRIVSKETCH, HASHING)}
    rank: dict[str, Points] = {name: {} for name in variance}
    shares = sets.shares
    for k in sizes:
        values = {name: [found[name][DEFAULT].value] for name in (PRIVSKETCH, HASHING)}
        values[SVIM] = [_mined(sets, k) for _ in range(repetitions)]
        for name, each in values.items():
            variance[name][k] = float(np.nanmean([metrics.top_variance(one, shares, sets.users, k) for one in each]))
            rank[name][k] = float(np.mean([metrics.normalised_cumulative_rank(one, shares, k) for one in each]))
    return variance, rank


def _mined(sets: Sets, k: int) -> npt.NDArray[np.float64]:
    """Run SVIM; what it does not name is put below all that it does."""
    top = local.SVIM(DEFAULT, top=k).run((sets.offsets, sets.items), domain=sets.keys)
    value = np.full(len(sets.keys), -1.0)
    value[np.searchsorted(sets.keys, top.key)] = top.value
    return value


def running_times(sets: Sets) -> tuple[dict[str, float], dict[str, float]]:
    """Return the processor's seconds for one report made alone, and for collecting and decoding everyone's."""
    cap = sets.row.cap
    protocols: dict[str, Any] = {
        MEAN: local.MultiPCMS(DEFAULT, **SHAPE),
        PRIVSKETCH: local.PrivSketchAsPublished(DEFAULT, **SHAPE),
        POOL: local.PadAndSample(DEFAULT, length=cap),
        ALONE: local.PadAndSample(DEFAULT, length=cap, seeds=65_536),
        HASHING: local.SubsetHashing(DEFAULT, max_items=cap),
    }
    person, device, collector = [sets.items[: sets.offsets[1]].tolist()], {}, {}
    for name, protocol in protocols.items():
        start = time.process_time()
        for _ in range(50):
            protocol.report(person)
        device[name] = (time.process_time() - start) / 50
        collector[name] = collect(protocol, sets).collector
    start = time.process_time()
    _mined(sets, 50)
    collector[f"{SVIM}, with its reports"] = time.process_time() - start
    return device, collector


def few_people(sets: Sets, epsilons: Iterable[float], keys: Integers) -> dict[str, Points]:
    """Return the errors of the sketch protocols at budgets that the library takes, and beyond."""
    names = (MEAN, LEAST, UNSAMPLED, PRIVSKETCH, HASHING)
    found: dict[str, Points] = {name: {} for name in names}
    rng = np.random.default_rng(7)
    sketches = large.Sketches.of(sets, SHAPE["rows"], SHAPE["width"], rng)
    for epsilon in epsilons:
        if epsilon <= LARGEST:
            values = _shape_values(sets, epsilon, keys, **SHAPE)
            values[HASHING] = collect(local.SubsetHashing(epsilon, max_items=sets.row.cap), sets, keys).value
        else:
            mean, least = large.multi_pcms(sketches, keys, epsilon, rng)
            values = {
                MEAN: mean,
                LEAST: least,
                UNSAMPLED: large.privsketch_unsampled(sketches, keys, epsilon, rng),
                PRIVSKETCH: large.privsketch_sampled(sketches, keys, epsilon, rng),
            }
        for name, value in values.items():
            found[name][epsilon] = metrics.mean_squared_error(value, sets.shares[keys])
    return found


def shapes(cases: dict[float, tuple[Sets, Integers, int, int]]) -> dict[str, Points]:
    """Return the errors at the paper's ε for each x: people's sets, keys to look up, rows and width of the sketch."""
    found: dict[str, Points] = {name: {} for name in (MEAN, LEAST, UNSAMPLED, PRIVSKETCH, HASHING)}
    known: dict[int, float] = {}  # ours has neither rows nor width: once for each of the sets
    for x, (sets, keys, rows, width) in cases.items():
        shares = sets.shares[keys]
        for name, value in _shape_values(sets, DEFAULT, keys, rows, width).items():
            found[name][x] = metrics.mean_squared_error(value, shares)
        if id(sets) not in known:
            made = collect(local.SubsetHashing(DEFAULT, max_items=sets.row.cap), sets, keys)
            known[id(sets)] = metrics.mean_squared_error(made.value, shares)
        found[HASHING][x] = known[id(sets)]
    return found


def _shape_values(sets: Sets, epsilon: float, keys: Integers, rows: int, width: int) -> dict[str, Any]:
    protocols: dict[str, Any] = {
        MEAN: local.MultiPCMS(epsilon, rows=rows, width=width),
        LEAST: local.MultiPCMS(epsilon, rows=rows, width=width, decoder="min"),
        UNSAMPLED: local.PrivSketchAsPublished(epsilon, rows=rows, width=width, variant="unsampled"),
        PRIVSKETCH: local.PrivSketchAsPublished(epsilon, rows=rows, width=width),
    }
    return {name: collect(protocol, sets, keys).value for name, protocol in protocols.items()}


def recovered(items: int, domain: int, people: int) -> float:
    """Return the share of people whose whole set is read off the ordering matrix; sets are uniform, ε is 0.001."""
    rng = np.random.default_rng([items, domain])
    held = [sorted(rng.choice(domain, items, replace=False).tolist()) for _ in range(people)]
    protocol = local.PrivSketchAsPublished(0.001, **SHAPE)
    found = local.recover_sets(protocol, protocol.report(held), np.arange(domain))
    return sum(one == true for one, true in zip(found, held, strict=True)) / people
