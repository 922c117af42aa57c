"""One file of every kind, as version 0.1 wrote it: `python tests/kind_vectors.py` writes those that are missing.

A release beside its answers, and a sensitive sketch beside what it holds. Later versions must read each, answer alike,
and write it again to the byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dpsketch as dps
from dpsketch import files, local
from dpsketch.noise import seeded_noise_for_tests_only

FOLDER = Path(__file__).parent / "vectors" / "kinds"

RECORD = dps.per_record(max_weight=2)
USER = dps.per_user(max_keys=2, neighbours="replace")
KEYS = [1, 2, 1, 3, 1, 2, 9, 1]
USERS = ["ann", "ann", "bob", "bob", "cid", "cid", "dan", "eve"]
POINTS = [[0.5, 1.0], [1.5, 1.0], [0.25, 3.0], [2.0, 2.0]]
BUDGET = {"epsilon": 2.0, "delta": 1e-6}
TABLE = {"rows": 3, "width": 8, "unit": RECORD, "key_type": "int"}


def _filled(sketch: Any, *records: Any, **given: Any) -> Any:
    sketch.update(*(records or (np.array(KEYS),)), **given)
    return sketch


def _visits() -> pa.Table:
    """The records as a frame, with values, many times over for each key."""
    times = 40
    values = np.arange(len(KEYS) * times) % 7 + 0.5
    users = [f"{user} {i}" for i in range(times) for user in USERS]
    return pa.table({"key": [f"k{key}" for key in KEYS] * times, "user": users, "x": values})


def _sketches() -> dict[str, Callable[[], Any]]:
    plane = dps.kernels.Euclidean(dim=2, bandwidth=2.0)
    return {
        "histogram": lambda: _filled(dps.Histogram(unit=RECORD), [f"the key of number {key}" for key in KEYS]),
        "histogram-user": lambda: _filled(dps.Histogram(unit=USER, key_type="int"), users=USERS),
        "histogram-votes": lambda: _filled(
            dps.VoteHistogram(unit=dps.per_record(), max_counters=16), [f"the key of number {key}" for key in 9 * KEYS]
        ),
        "histogram-votes-user": lambda: _filled(
            dps.VoteHistogram(unit=USER, max_counters=16, key_type="int"), users=USERS
        ),
        "counts": lambda: _filled(dps.CountSketch(rows=3, width=8, unit=RECORD, grid=0.5, seed=7), weights=[1.5] * 8),
        "counts-user": lambda: _filled(dps.CountSketch(rows=3, width=8, unit=USER), users=USERS),
        "counts-continual": lambda: _filled(dps.ContinualCountSketch(days=4, **TABLE, **BUDGET)),
        "continual": lambda: _filled(
            dps.ContinualSketch(dps.Histogram(unit=RECORD, key_type="int"), keys=[1, 2, 7], days=4, **BUDGET)
        ),
        "continual-found": lambda: _filled(
            dps.ContinualSketch(dps.Histogram(unit=USER, key_type="int"), days=4, user_days=2, **BUDGET), users=USERS
        ),
        "counts-pan-private": lambda: _filled(dps.PanPrivateCountSketch(**TABLE, **BUDGET)),
        "heavy": lambda: _filled(dps.HeavyHitters(rows=3, width=8, key_bits=10, unit=RECORD)),
        "sparse": lambda: _filled(dps.SparseHistogram(domain=2**16, expected_keys=20, unit=RECORD)),
        "moment": lambda: _filled(dps.MomentSketch(p=0.5, size=10, unit=RECORD)),
        "moments": lambda: _filled(dps.MomentProfile(p=[0.5, 1], size=10, unit=RECORD)),
        "density": lambda: _filled(dps.DensitySketch(kernel=plane, rows=4, width=8, unit=dps.per_record()), POINTS),
        "distinct": lambda: _filled(dps.DistinctSketch(buckets=16, unit=USER), users=USERS),
        "distinct-set": lambda: _filled(dps.DistinctSet(unit=RECORD)),
        "distinct-set-user": lambda: _filled(dps.DistinctSet(unit=USER), users=USERS),
        "ranges": lambda: _filled(dps.RangeSketch(bits=14, rows=3, width=8, unit=RECORD)),
        "table": lambda: _filled(
            dps.Table(
                by="key", columns=[dps.count(), dps.sum("x", bounds=(0, 8)), dps.quantiles("x", [0.5], grid=0.5)]
            ),
            _visits(),
        ),
        "table-user": lambda: _filled(
            dps.Table(by="key", user="user", columns=[dps.users(), dps.mean("x"), dps.quantiles("x", [0.5, 0.9])]),
            _visits(),
        ),
        "quantiles": lambda: _filled(
            dps.QuantileSketch(bits=40, start=-9, quantiles=[0.1, 0.5], interval_share=0.5, unit=USER), users=USERS
        ),
    }


def _released(name: str, sketch: Any) -> Any:
    if name in ("counts-continual", "continual", "continual-found"):
        return sketch.publish_day()
    if name == "counts-pan-private":
        return sketch.publish()
    if name == "histogram":
        return sketch.release(**BUDGET, keys=["the key of number 1", "one that nobody has"], unknown=True, others=True)
    return sketch.release(**BUDGET)


def _others() -> dict[str, Callable[[], Any]]:
    sketches = _sketches()

    def reports() -> Any:
        protocol = local.SubsetHashing(epsilon=2.0, max_items=2, width=16)
        return protocol.collector().add(protocol.report([["a"], ["a", "b"], ["b"]]))

    def days(sketch: Any, **users: Any) -> Any:
        sketch.day(KEYS, **users)
        sketch.day(KEYS[:3], **({"users": USERS[:3]} if users else {}))
        return sketch.series()

    def seized() -> Any:
        listed = dps.Histogram(unit=RECORD, key_type="int")
        return days(dps.ContinualSketch(listed, keys=[1, 2, 7], days=4, design="pan-private", **BUDGET))

    return {
        "series": lambda: days(dps.ContinualCountSketch(days=4, first_day="2026-11-15", **TABLE, **BUDGET)),
        "series-found": lambda: days(
            dps.ContinualSketch(dps.Histogram(unit=USER, key_type="int"), days=4, user_days=2, epsilon=90.0, delta=0.1),
            users=USERS,
        ),
        "series-pan-private": seized,
        "counts-share": lambda: sketches["counts"]().release(**BUDGET, share=dps.Share(3, 1.0, 1)),
        "distinct-bitmap": lambda: sketches["distinct"]().release_mergeable(epsilon=1.0),
        "local": reports,
    }


def answers(release: Any) -> dict[str, Any]:
    """What a release says, by every question that it takes without a list of keys, and about a few keys."""
    found: dict[str, Any] = {"epsilon": release.guarantee.epsilon, "words": str(release.guarantee)}
    if hasattr(release, "spec"):
        found["spec"] = release.spec.to_json() if hasattr(release.spec, "to_json") else None
    if isinstance(release, dps.PrivateVoteHistogram):
        found["keys"] = [[str(row.key), row.value, row.low, row.high] for row in release.top(10)]
        found["counts of"] = release.counts
    elif isinstance(release, dps.PrivateHistogram):
        found["keys"] = [[str(row.key), row.value, row.low, row.high] for row in release.top(10)]
        found["others"] = None if release.others is None else release.others.to_json()
    elif isinstance(release, dps.PrivateTable):
        # Quantiles that are drawn in listed rows alone are NaN in the last one.
        others = {name: each if each == each else None for name, each in release.others.items()}
        found |= {"rows": release.to_json(), "others of": others, "bounds": release.facts()["bounds"]}
    elif isinstance(release, dps.PrivateDensity):
        found["estimate"] = release.estimate(POINTS).to_json()
    elif isinstance(release, dps.PrivateRanges):
        found["range"] = release.range(0, 5).to_json()
        found["quantiles"] = [[q.value, q.low, q.high] for q in release.quantiles([0.5, 0.9])]
    elif isinstance(release, dps.PrivateQuantiles):
        found["quantiles"] = [[q.value, q.low, q.high, q.rank_error] for q in release.quantiles()]
    elif isinstance(release, dps.PrivateMomentProfile):
        found["moments"] = [moment.value for moment in release]
    elif isinstance(release, dps.PrivateSeries):
        found["curve"] = release.curve(1, window=1).to_json()
        found["change"] = release.change(1, (2, 2), (1, 1)).to_json()
    elif hasattr(release, "interval"):
        found["statement"] = [release.value, *release.interval(0.95)]
    elif hasattr(release, "estimate"):
        keys = ["a", "c"] if hasattr(release, "protocol") else [1, 2, 7]
        found["estimate"] = release.estimate(keys).to_json()
    return found


def plain(value: Any) -> Any:
    """Write values as JSON holds them: floats to 12 digits, since their last bits are not promised."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items() if key != "counts"}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def write() -> None:
    """Write the vectors that are missing."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in _sketches().items():
        with seeded_noise_for_tests_only(3):
            sketch = make()
            secret = {"include_secret": True} if name.startswith("moment") else {}
            _put(f"{name}.sketch", sketch.to_sensitive_bytes(**secret))
            _put_release(name, _released(name, sketch))
    for name, make in _others().items():
        with seeded_noise_for_tests_only(3):
            _put_release(name, make())


def _put_release(name: str, release: Any) -> None:
    _put(f"{name}.dps", files.encode(release.to_document()))
    _put(f"{name}.json", (json.dumps(plain(answers(release)), ensure_ascii=False, indent=1) + "\n").encode())


def _put(name: str, data: bytes) -> None:
    path = FOLDER / name
    if not path.exists():
        path.write_bytes(data)


if __name__ == "__main__":
    write()
