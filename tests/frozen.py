"""Answers and guarantees of seeded releases, frozen: ``python tests/frozen.py`` writes them anew.

A restructuring must change none of them. Each case is one kind, unit, neighbour relation and budget; what is kept is
what the public interface says: the guarantee with its costs, and the answers to a few questions with their intervals.
Under one seed of the noise these agree only if the tables, the laws and the order of the draws do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dpsketch as dps
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.privacy import cost_to_json

FILE = Path(__file__).parent / "vectors" / "frozen.json"

BUDGETS: dict[str, dict[str, float]] = {
    "pure": {"epsilon": 1.5, "delta": 0},
    "approximate": {"epsilon": 1.5, "delta": 1e-5},
    "rho": {"rho": 0.2},
}
ALL, NAMED = ("pure", "approximate", "rho"), ("approximate",)
RELATIONS = ("add_remove", "replace")
N = 3000
_random = np.random.default_rng(11)
KEYS = np.minimum(_random.zipf(1.5, N), 500)
USERS = _random.integers(0, 400, N)
WEIGHTS = _random.integers(0, 5, N)
POINTS = _random.normal(size=(N, 2))
PLANE = dps.kernels.Euclidean(dim=2, bandwidth=1.0)

Start = Callable[[Any], Any]


def _units(relation: Any, *, weight: int = 3) -> dict[str, Any]:
    return {
        "record": dps.per_record(max_weight=weight, neighbours=relation),
        "user": dps.per_user(4, max_weight=weight, neighbours=relation),
    }


def _of(kind: Any, **options: Any) -> Start:
    return lambda unit: kind(unit=unit, **options)


FEW, TWO = ["1", "2", "7"], ("pure", "approximate")
WAVES = dps.kernels.Gaussian(2, 1.0)
# How a sketch of a unit starts, what is asked of its release, its budgets, and whether its records have weights.
KINDS: dict[str, tuple[Start, list[str], tuple[str, ...], str]] = {
    "counts": (_of(dps.CountSketch, rows=5, width=64, key_type="int"), [*FEW, "499"], ALL, "weighted"),
    "counts-grid": (_of(dps.CountSketch, rows=3, width=32, grid=0.5, key_type="int"), ["1", "2"], NAMED, "weighted"),
    "heavy": (_of(dps.HeavyHitters, rows=3, width=64, key_bits=24), FEW, ALL, "weighted"),
    "ranges": (_of(dps.RangeSketch, bits=10), ["0:3", "4:100", "50%"], ALL, "weighted"),
    "ranges-tables": (_of(dps.RangeSketch, bits=20, rows=3, width=64), ["0:3", "4:100"], TWO, "weighted"),
    "quantiles": (_of(dps.QuantileSketch, bits=16, quantiles=[0.5, 0.9], interval_share=0.3), [], ALL, "weighted"),
    "distinct": (_of(dps.DistinctSketch, buckets=64), [], ALL, "plain"),
    "distinct-set": (_of(dps.DistinctSet), [], ALL, "plain"),
    "sparse": (_of(dps.SparseHistogram, domain=2**20, expected_keys=200, key_type="int"), FEW, TWO, "weighted"),
    "density": (_of(dps.DensitySketch, kernel=PLANE, rows=16, width=32), ["0,0", "1,1"], ALL, "points"),
    "density-waves": (_of(dps.DensitySketch, kernel=WAVES, rows=40), ["0,0", "1,1"], ALL, "points"),
    "histogram": (_of(dps.Histogram, key_type="int"), ["1", "2", "3"], NAMED, "weighted"),
    "histogram-votes": (_of(dps.VoteHistogram, max_counters=64, key_type="int"), ["1", "2", "3"], NAMED, "plain"),
}
# Releases with options of their own.
OPTIONS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "histogram-list": ("histogram", {"keys": [1, 2, 3, 600]}, ALL),
    "histogram-gaussian": ("histogram", {"form": "gaussian"}, NAMED),
    "histogram-laplace": ("histogram", {"form": "laplace"}, NAMED),
    "histogram-list-others": ("histogram", {"keys": [1, 2, 3], "others": True}, TWO),
}


def _filled(sketch: Any, level: str, records: str) -> Any:
    given: dict[str, Any] = {} if level == "record" else {"users": USERS}
    if records == "weighted":
        given["weights"] = WEIGHTS
    sketch.update(POINTS if records == "points" else KEYS, **given)
    return sketch


def _told(release: Any, asked: list[str]) -> dict[str, Any]:
    promise = release.guarantee
    found = release.answer(asked, confidence=0.9, estimator=None, key_type=None)
    return {
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "rho": promise.rho,
        "costs": [cost_to_json(cost) for cost in promise.costs],
        "key": [str(key) for key in found.key],
        "value": np.asarray(found.value).tolist(),
        "low": np.asarray(found.low).tolist(),
        "high": np.asarray(found.high).tolist(),
    }


def cases() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield each case by name, and what computes it."""
    for relation in RELATIONS:
        for kind, (start, asked, budgets, records) in KINDS.items():
            for level, unit in _units(relation, weight=1 if records != "weighted" else 3).items():
                for budget in budgets:
                    yield (
                        f"{kind} {level} {relation} {budget}",
                        _released(start, unit, level, records, asked, budget, {}),
                    )
                if kind in ("counts", "ranges", "density", "heavy"):
                    yield f"{kind} {level} {relation} days", _streamed(start, unit, level, records, asked)
        for name, (kind, options, budgets) in OPTIONS.items():
            start, asked, _, records = KINDS[kind]
            for level, unit in _units(relation).items():
                for budget in budgets:
                    yield (
                        f"{name} {level} {relation} {budget}",
                        _released(start, unit, level, records, asked, budget, options),
                    )
        unit = dps.per_user("auto", neighbours=relation)
        start, asked, _, _ = KINDS["histogram"]
        yield f"histogram-auto {relation}", _released(start, unit, "user", "plain", asked, "approximate", {})
        many = dps.per_user(20, neighbours=relation)
        yield f"histogram-rounds {relation}", _released(start, many, "user", "plain", asked, "approximate", {})


def _released(
    start: Start, unit: Any, level: str, records: str, asked: list[str], budget: str, options: dict[str, Any]
) -> Callable[[], dict[str, Any]]:
    def made() -> dict[str, Any]:
        with seeded_noise_for_tests_only(7):
            sketch = _filled(start(unit), level, records)
            return _told(sketch.release(**BUDGETS[budget], **options), asked)

    return made


def _streamed(start: Start, unit: Any, level: str, records: str, asked: list[str]) -> Callable[[], dict[str, Any]]:
    def made() -> dict[str, Any]:
        with seeded_noise_for_tests_only(7):
            days = {} if level == "record" else {"user_days": 2}
            stream = dps.ContinualSketch(start(unit), days=8, epsilon=2.0, delta=1e-6, **days)
            for _ in range(2):
                _filled(stream, level, records)
                stream.publish_day()
            return _told(stream.total(), asked)

    return made


def main() -> None:
    """Write the file."""
    FILE.write_text(json.dumps({name: made() for name, made in cases()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
