"""A sparse histogram of 10,000 keys out of 2³², values 1 … 100, ε = 1, against OpenDP's ALP queryable, on one core.

Each library gets the data in the container that it takes (arrays here, a dictionary there), ready. Building covers all
from those data to what may be queried. Both state the same guarantee for one record: ε = 1.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.peers import run_peer
from dpsketch.privacy import per_record
from dpsketch.sketches.sparse import PrivateSparseHistogram, SparseHistogram

KEYS = 10_000
ROUNDS = 3

PEER = f"""
import json, time
import opendp.prelude as dp
dp.enable_features("contrib")
data = {{i * 2654435761 % 2**32: i % 100 + 1 for i in range({KEYS})}}
space = (
    dp.map_domain(dp.atom_domain(T="u32"), dp.atom_domain(T="u32")),
    dp.l01inf_distance(dp.absolute_distance(T="u32")),
)
measurement = dp.m.make_alp_queryable(*space, scale=1.0, total_limit=sum(data.values()), value_limit=100)
assert measurement.map((1, 1, 1)) == 1.0
start = time.perf_counter()
queryable = measurement(data)
built = time.perf_counter()
found = [queryable(key) for key in data]
asked = time.perf_counter()
error = sum(abs(value - truth) for value, truth in zip(found, data.values())) / len(data)
print(json.dumps([1 / (built - start), len(data) / (asked - built), error]))
"""


def build(keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> PrivateSparseHistogram:
    histogram = SparseHistogram(unit=per_record(), domain=2**32, max_value=100)
    histogram.update(keys, counts=values)
    return histogram.release(epsilon=1, delta=0)


def ours() -> tuple[float, float, float]:
    number = np.arange(KEYS)
    keys, values = number * 2654435761 % 2**32, number % 100 + 1
    start = time.perf_counter()
    private = build(keys, values)
    built = time.perf_counter()
    found = private.estimate(keys).value
    asked = time.perf_counter()
    return 1 / (built - start), KEYS / (asked - built), float(np.abs(found - values).mean())


def run() -> list[dict[str, Any]]:
    ours()  # compiles, or loads what was compiled
    mine, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(run_peer(PEER))
        mine.append(ours())
    (builds, queries, error), (peer_builds, peer_queries, peer_error) = (
        (max(one[0] for one in side), max(one[1] for one in side), float(np.mean([one[2] for one in side])))
        for side in (mine, theirs)
    )
    return [
        {"name": "build", "ours": builds, "theirs": peer_builds, "ratio": builds / peer_builds, "unit": "builds/s"}
        | {"reach": 50},
        {"name": "query", "ours": queries, "theirs": peer_queries, "ratio": queries / peer_queries, "unit": "keys/s"}
        | {"reach": 100},
        {"name": "accuracy", "ours": error, "theirs": peer_error, "ratio": peer_error / error, "unit": "mean |error|"},
    ]


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:9} {row['ours']:11.4g} against {row['theirs']:8.4g} {row['unit']}: {row['ratio']:.1f}×")
