"""The local model: every protocol's shares of people, its lists, and the sizes of sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.coverage.measuring import RELEASES, Answer, Case
from dpsketch import local

PEOPLE = 4000
KEYS = 1000
ITEMS = 4
# Local reports need more budget than a release for their answers to say anything.
EPSILON = 2.0
BUDGET = "local"

SETS: dict[str, Any] = {
    "SubsetHashing": local.SubsetHashing(epsilon=EPSILON, max_items=ITEMS, key_type="int"),
    "SubsetDirect": local.SubsetDirect(epsilon=EPSILON, max_items=ITEMS, domain=KEYS, key_type="int"),
    "SampledBit": local.SampledBit(epsilon=EPSILON, width=64, key_type="int"),
    "MultiPCMS": local.MultiPCMS(epsilon=EPSILON, rows=4, width=512, key_type="int"),
    "PadAndSample": local.PadAndSample(epsilon=EPSILON, length=ITEMS, key_type="int"),
}
SINGLE: dict[str, Any] = {
    "OptimalLocalHashing": local.OptimalLocalHashing(epsilon=EPSILON, key_type="int"),
    "CountMeanSketch": local.CountMeanSketch(epsilon=EPSILON, rows=256, width=256, key_type="int"),
    "HadamardCountMean": local.HadamardCountMean(epsilon=EPSILON, rows=256, width=256, key_type="int"),
}


def people_holding(seed: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Give everyone so many different keys, small ones more often; return them, and each key's share of people."""
    rng = np.random.default_rng(seed)
    first = np.minimum(rng.zipf(1.3, PEOPLE) - 1, KEYS - 1)
    held = (first[:, np.newaxis] + np.cumsum(np.arange(items) * 37)) % KEYS
    return held, np.bincount(held.ravel(), minlength=KEYS) / PEOPLE


def shares(name: str, protocol: Any, items: int) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        held, truth = people_holding(seed, items)
        # Fresh hash functions, where there are any.
        each = replace(protocol, seed=seed) if hasattr(protocol, "seed") else protocol
        collector = each.collector().add(each.report(held[:, 0] if items == 1 else held.tolist()))
        found = collector.estimate(np.arange(KEYS))
        yield Answer.of("estimate", truth, found)
        some = np.argsort(-truth)[:20]
        frequent = (truth[some], found.value[some], found.low[some], found.high[some])
        yield Answer("estimate, the 20 most frequent", *frequent)
        top = collector.top(20, candidates=np.arange(KEYS))
        yield Answer.of("top 20, jointly", truth[np.array(top.key)], top, joint=True)

    yield Case(name, f"{PEOPLE:,} people, {items} keys each, ε = {EPSILON:g}", BUDGET, RELEASES, trial)


def sizes() -> Iterator[Case]:
    protocol = local.SetSizes(epsilon=EPSILON, largest=50)

    def trial(seed: int) -> Iterator[Answer]:
        many = np.random.default_rng(seed).geometric(0.15, PEOPLE).clip(max=50)
        collector = protocol.collector().add(protocol.report([list(range(size)) for size in many.tolist()]))
        truth = (many[:, np.newaxis] > protocol.thresholds).mean(axis=0)
        yield Answer.of("estimate", truth, collector.estimate(protocol.thresholds))

    yield Case("SetSizes", f"{PEOPLE:,} people, ε = {EPSILON:g}", BUDGET, RELEASES, trial)


def strings() -> Iterator[Case]:
    words = ["tea", "milk", "rum", "mate", "kir", "ale", "tar", "item"]
    weights = np.array([40, 25, 12, 8, 6, 4, 3, 2]) / 100

    def trial(seed: int) -> Iterator[Answer]:
        protocol = local.PrefixHeavyHitters(
            epsilon=4.0, max_items=1, length=4, alphabet="".join(sorted(set("".join(words)))), seed=seed
        )
        held = np.random.default_rng(seed).choice(len(words), PEOPLE, p=weights)
        truth = dict(zip(words, np.bincount(held, minlength=len(words)) / PEOPLE, strict=True))
        collector = protocol.collector().add(protocol.report([[words[i]] for i in held]))
        yield Answer.of("estimate", list(truth.values()), collector.estimate(words))
        found = protocol.find(collector)
        yield Answer.of("find, jointly", [truth.get(key, 0.0) for key in found.key], found, joint=True)

    yield Case("PrefixHeavyHitters", f"{PEOPLE:,} people, ε = 4", BUDGET, RELEASES, trial)


def mining() -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        held, truth = people_holding(seed, ITEMS)
        found = local.SVIM(epsilon=4.0, top=10).run(held.tolist(), domain=np.arange(KEYS))
        yield Answer.of("run, each key", truth[np.array(found.key)], found)

    yield Case("SVIM", f"{PEOPLE:,} people, {ITEMS} keys each, ε = 4", BUDGET, RELEASES, trial)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for name, protocol in SETS.items():
        yield from shares(name, protocol, ITEMS)
    for name, protocol in SINGLE.items():
        yield from shares(name, protocol, 1)
    yield from sizes()
    yield from strings()
    yield from mining()
