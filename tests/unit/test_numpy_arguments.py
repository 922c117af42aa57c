"""Every public function, tried with NumPy's scalars, answers as it does to the Python numbers that they stand for."""

from __future__ import annotations

import contextvars
import dataclasses
import inspect
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import accounting, audit, files, kernels, ledger, local, noise, plan, privacy, seeds
from dpsketch.ledger import Ledger
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.privacy import GaussianCost
from dpsketch.sketches.countsketch.spec import CountSketchSpec
from dpsketch.sketches.density.spec import DensitySpec
from dpsketch.sketches.distinct.bitmap import DistinctSpec
from dpsketch.sketches.heavy.spec import HeavyHittersSpec
from dpsketch.sketches.moment.spec import MomentSpec
from dpsketch.sketches.quantiles import QuantileSpec
from dpsketch.sketches.ranges.spec import RangeSketchSpec
from dpsketch.sketches.sparse.sketch import SparseHistogramSpec
from ledgers import begun
from numpy_numbers import given, plain

# Floats are np.float64 beside integers of a kind, and integers np.int64 beside floats of one.
QUICK = (np.uint8, np.float32)
ALL = (np.int64, np.int32, np.uint8, np.float64, np.float32)
UNIT = dps.per_record()
WORDS = ["tea", "milk", "rum"]
LINE, PLANE = kernels.Euclidean(dim=1, bandwidth=1.0), kernels.Euclidean(dim=2, bandwidth=1.0)
SETS = [["tea"], ["tea", "milk"], ["rum"]] * 40


def content(value: Any) -> Any:
    """Return all that a result says, in a form that tells 1 from 1.0 and both from NumPy's."""
    if hasattr(value, "to_document"):
        document = value.to_document()
        arrays = {name: array for name, array in document.arrays.items() if not name.endswith("ids")}  # random ones
        return files.encode(dataclasses.replace(document, arrays=arrays))
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes() if value.dtype.kind != "O" else repr(value.tolist()))
    if isinstance(value, list | tuple):
        return [content(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: content(getattr(value, field.name)) for field in dataclasses.fields(value)}
    for name in ("specs", "spec", "guarantee", "to_json"):
        if hasattr(value, name):
            found = getattr(value, name)
            return content(found() if callable(found) else found)
    if hasattr(value, "savefig"):
        return [axes.get_title() for axes in value.axes]
    if isinstance(value, dict):
        return [(name, content(each)) for name, each in value.items()]
    assert not isinstance(value, np.generic), f"a {type(value).__name__} was returned"
    return repr(value)


@dataclasses.dataclass(frozen=True)
class Case:
    """A call: what to call it on (made afresh, under seeded noise), and its numbers."""

    name: str
    on: Callable[[], Callable[..., Any]]
    numbers: dict[str, Any]
    others: dict[str, Any] = dataclasses.field(default_factory=dict)

    def run(self, numbers: dict[str, Any]) -> Any:
        with seeded_noise_for_tests_only(5):
            return content(self.on()(**numbers, **self.others))


BUDGETS = ({"epsilon": 1, "delta": 0.001}, {"epsilon": 0.7, "delta": 0}, {"rho": 0.1})


def sketch_of(kind: type, **arguments: Any) -> Any:
    sketch = kind(unit=UNIT, **arguments)
    sketch.update([3, 3, 5] if kind in (dps.RangeSketch, dps.QuantileSketch) or "key_bits" in arguments else WORDS)
    return sketch


def points() -> Any:
    sketch = dps.DensitySketch(
        kernel=dps.kernels.Euclidean(dim=1, bandwidth=1.0), rows=20, width=16, unit=UNIT, bounds=(0, 9)
    )
    sketch.update([[1.0], [2.0]])
    return sketch


def plane() -> Any:
    sketch = dps.DensitySketch(
        kernel=dps.kernels.Euclidean(dim=2, bandwidth=1.0), rows=20, width=16, unit=UNIT, bounds=(0, 9)
    )
    sketch.update([[1.0, 2.0], [2.0, 1.0]])
    return sketch.release(epsilon=1, delta=0.001)


def continual() -> dps.ContinualSketch:
    sketch = dps.ContinualCountSketch(days=4, rows=3, width=16, unit=UNIT, key_type="text", epsilon=1, delta=0.001)
    for _ in range(3):
        sketch.day(WORDS)
    return sketch


def shares() -> list[Any]:
    sketches = [sketch_of(dps.CountSketch, rows=3, width=16) for _ in range(2)]
    shared = enumerate(sketches)
    return [each.release(epsilon=1, delta=0.001, share=dps.Share(3, 0.6, party)) for party, each in shared]


def merged(missing: int) -> Any:
    return dps.merge_releases(shares(), missing=missing)


def collected(protocol: local.LocalProtocol, sets: Any = SETS) -> local.Collector:
    return protocol.collector().add(protocol.report(sets))


SALES = pa.table({"key": ["tea", "rum", "tea"] * 40, "user": list(range(60)) * 2, "x": [1.0, 2.0, 4.0] * 40})


def sales(**options: Any) -> dps.Table:
    columns = [dps.count(), dps.sum("x", bounds=(0, 5))]
    table = dps.Table(by="key", columns=columns, user="user", **options)
    table.update(SALES)
    return table


def asked(**numbers: Any) -> dps.PrivateTable:
    query = "SELECT key, COUNT(*), MEDIAN(x) FROM sales GROUP BY key"
    return dps.sql(query, {"sales": SALES}, user="user", groups=["tea", "rum"], **numbers)


def method_of_a_table(name: str) -> Any:
    return getattr(sales(max_keys=2).release(epsilon=1, delta=0.001, groups=["tea", "rum"]), name)


def released(kind: type, **arguments: Any) -> Any:
    return sketch_of(kind, **arguments).release(epsilon=1, delta=0.001)


def votes(**numbers: Any) -> Any:
    sketch = dps.VoteHistogram(unit=dps.per_record(), **{"max_counters": 16, **numbers})
    sketch.update(WORDS * 30)
    return sketch


RELEASES: dict[str, Callable[[], Any]] = {
    "PrivateHistogram": lambda: sketch_of(dps.Histogram).release(epsilon=1, delta=0, keys=WORDS, others=True),
    "PrivateVoteHistogram": lambda: votes().release(epsilon=9, delta=0.001),
    "PrivateCountSketch": lambda: released(dps.CountSketch, rows=3, width=16),
    "PrivateHeavyHitters": lambda: released(dps.HeavyHitters, rows=3, width=16, key_bytes=4),
    "PrivateSparseHistogram": lambda: released(dps.SparseHistogram, expected_keys=10),
    "PrivateRanges": lambda: released(dps.RangeSketch, bits=6),
    "PrivateQuantiles": lambda: released(dps.QuantileSketch, bits=6, quantiles=[0.25, 0.5]),
    "PrivateDistinct": lambda: released(dps.DistinctSketch, buckets=64),
    "PrivateDistinctCount": lambda: released(dps.DistinctSet),
    "PrivateDistinctBitmap": lambda: sketch_of(dps.DistinctSketch, buckets=64).release_mergeable(epsilon=1),
    "PrivateMoment": lambda: released(dps.MomentSketch, p=0.5, size=20),
    "PrivateMomentProfile": lambda: released(dps.MomentProfile, p=[0.5], size=10),
    "PrivateDensity": lambda: points().release(epsilon=1, delta=0.001),
    "Collector": lambda: collected(local.SubsetHashing(epsilon=1, max_items=2, key_type="text")),
}

ASKED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("PrivateHistogram", "estimate", {"confidence": 0.9}, {"keys": WORDS}),
    ("PrivateHistogram", "top", {"n": 2, "confidence": 0.9}, {}),
    ("PrivateHistogram", "other_keys", {"confidence": 0.9}, {}),
    ("PrivateHistogram", "sum", {"confidence": 0.9}, {"keys": WORDS}),
    ("PrivateHistogram", "plot", {"n": 2}, {}),
    ("PrivateVoteHistogram", "estimate", {"confidence": 0.9}, {"keys": WORDS[:1]}),
    ("PrivateVoteHistogram", "top", {"n": 2, "confidence": 0.9}, {}),
    ("PrivateVoteHistogram", "plot", {"n": 2}, {}),
    ("PrivateCountSketch", "estimate", {"confidence": 0.9}, {"keys": WORDS}),
    ("PrivateCountSketch", "top", {"n": 2, "confidence": 0.9}, {"candidates": WORDS}),
    ("PrivateCountSketch", "decode", {"confidence": 0.9}, {"candidates": WORDS}),
    ("PrivateCountSketch", "plot", {"n": 2}, {"candidates": WORDS}),
    ("PrivateHeavyHitters", "estimate", {"confidence": 0.9}, {"keys": WORDS}),
    ("PrivateHeavyHitters", "decode", {"confidence": 0.9}, {"candidates": WORDS}),
    ("PrivateHeavyHitters", "top", {"n": 2, "threshold": 1, "confidence": 0.9}, {}),
    ("PrivateHeavyHitters", "top", {"n": 2, "threshold": 1.5, "confidence": 0.9}, {"candidates": WORDS}),
    ("PrivateHeavyHitters", "all_records", {"confidence": 0.9}, {}),
    ("PrivateHeavyHitters", "too_long", {"confidence": 0.9}, {}),
    ("PrivateHeavyHitters", "plot", {"n": 2}, {}),
    ("PrivateSparseHistogram", "estimate", {"confidence": 0.9}, {"keys": WORDS}),
    ("PrivateSparseHistogram", "top", {"n": 2, "confidence": 0.9}, {"candidates": WORDS}),
    ("PrivateSparseHistogram", "survivors", {"confidence": 0.9}, {"candidates": WORDS}),
    ("PrivateSparseHistogram", "plot", {"n": 2}, {"candidates": WORDS}),
    ("PrivateRanges", "range", {"low": 2, "high": 9, "confidence": 0.9}, {}),
    ("PrivateRanges", "ranges", {"lows": [2], "highs": [9], "confidence": 0.9}, {}),
    ("PrivateRanges", "rank", {"value": 9, "confidence": 0.9}, {}),
    ("PrivateRanges", "ranks", {"values": [9], "confidence": 0.9}, {}),
    ("PrivateRanges", "total", {"confidence": 0.9}, {}),
    ("PrivateRanges", "quantile", {"share": 0.3, "confidence": 0.9}, {}),
    ("PrivateRanges", "quantiles", {"shares": [0.3, 1], "confidence": 0.9}, {}),
    ("PrivateRanges", "plot", {"points": 5}, {}),
    ("PrivateQuantiles", "quantile", {"share": 0.25, "confidence": 0.9}, {}),
    ("PrivateQuantiles", "quantiles", {"shares": [0.25, 0.5], "confidence": 0.9}, {}),
    ("PrivateQuantiles", "plot", {"confidence": 0.9}, {}),
    ("PrivateDistinct", "interval", {"confidence": 0.9}, {}),
    ("PrivateDistinctBitmap", "interval", {"confidence": 0.9}, {}),
    ("PrivateDistinctCount", "interval", {"confidence": 0.9}, {}),
    ("PrivateMoment", "interval", {"confidence": 0.9}, {}),
    ("PrivateMomentProfile", "curve", {"confidence": 0.9}, {}),
    ("PrivateDensity", "estimate", {"confidence": 0.9}, {"points": [[1.0]]}),
    ("PrivateDensity", "density", {"confidence": 0.9, "records": 2}, {"points": [[1.0]]}),
    ("PrivateDensity", "count", {"confidence": 0.9}, {}),
    ("PrivateDensity", "curve", {"bounds": (0, 1.1), "size": 5, "confidence": 0.9}, {}),
    ("Collector", "estimate", {"confidence": 0.9}, {"keys": WORDS}),
    ("Collector", "top", {"n": 2, "confidence": 0.9}, {"candidates": WORDS}),
]

PROTOCOLS: list[tuple[type[local.LocalProtocol], dict[str, Any], Any]] = [
    (local.SubsetHashing, {"epsilon": 1, "max_items": 3, "width": 8, "seeds": 16, "seed": 9}, SETS),
    (local.SubsetDirect, {"epsilon": 0.7, "max_items": 3, "domain": 20}, [[1, 2], [3]] * 40),
    (local.OptimalLocalHashing, {"epsilon": 0.7, "width": 8, "seeds": 16, "seed": 9}, WORDS * 40),
    (local.CountMeanSketch, {"epsilon": 0.7, "rows": 4, "width": 8, "seed": 9}, WORDS * 40),
    (local.HadamardCountMean, {"epsilon": 0.7, "rows": 4, "width": 8, "seed": 9}, WORDS * 40),
    (local.MultiPCMS, {"epsilon": 0.7, "rows": 4, "width": 8, "seed": 9}, SETS),
    (local.PadAndSample, {"epsilon": 0.7, "length": 3, "width": 8, "seeds": 16, "seed": 9}, SETS),
    (local.SampledBit, {"epsilon": 0.7, "width": 8, "rows": 4, "seed": 9}, SETS),
    (local.SetSizes, {"epsilon": 0.7, "largest": 20}, SETS),
    (
        local.PrefixHeavyHitters,
        {"epsilon": 3, "max_items": 3, "length": 2, "width": 8, "seeds": 16, "seed": 9},
        SETS,
    ),
    (local.PrivSketchAsPublished, {"epsilon": 0.7, "rows": 4, "width": 8, "seed": 9}, SETS),
]


def protocol_cases() -> Iterator[Case]:
    for kind, numbers, sets in PROTOCOLS:

        def build(kind: Any = kind, sets: Any = sets) -> Callable[..., Any]:
            # The guarantee, the spec, and everyone's report.
            def made(**given: Any) -> Any:
                protocol = kind(**given)
                return [protocol, protocol.guarantee, json.dumps(protocol.to_json()), protocol.report(sets).to_pydict()]

            return made

        def ready(kind: Any = kind, numbers: Any = numbers) -> local.LocalProtocol:
            return kind(**numbers)

        def shares(kind: Any = kind, numbers: Any = numbers, sets: Any = sets) -> Callable[..., Any]:
            protocol = kind(**numbers)
            asked = [1, 2] if kind is local.SubsetDirect else [1] if kind is local.SetSizes else ["te", "mi"]
            tally, prints = collected(protocol, sets).tally, protocol.fingerprints(asked)
            return lambda **numbers: protocol.frequencies(tally, fingerprints=prints, **numbers)

        yield Case(kind.__name__, build, numbers)
        yield Case(f"{kind.__name__}.variance", lambda ready=ready: ready().variance, {"frequency": 0.1, "users": 90})
        yield Case(f"{kind.__name__}.frequencies", shares, {"users": 120, "confidence": 0.9})


def ledger_of(**total: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        book = Ledger(f"sqlite:///{folder}/budget.db")
        book.create("web", unit=UNIT, **total)
        return [book.spent("web").words, book.spent("web")]


def proposed(**numbers: Any) -> Any:
    guess, amount = plan.Guess(1000, 50, 1.0), plan.Amount(UNIT, 1, 0.001)
    found = plan.propose("distinct", amount, guess, **numbers)
    return [found.shape, found.error, found.memory]


def curved(**numbers: Any) -> Any:
    guess, amount = plan.Guess(1000, 50, 1.0, 100), plan.Amount(privacy.per_user(1), 1, 0.001)
    return plan.error_by_bound(amount, guess, **numbers).to_json()


def noisy(seed: int) -> Any:
    with seeded_noise_for_tests_only(seed):
        return noise.random_bytes(8)


def sizes() -> local.SizeDistribution:
    return local.SizeDistribution.from_sizes([1, 2, 3, 3, 9])


def found_words() -> Callable[..., Any]:
    protocol = local.PrefixHeavyHitters(epsilon=8, max_items=1, length=2, alphabet="ab")
    collector = collected(protocol, [["ab"]] * 900)
    return lambda **numbers: protocol.find(collector, **numbers)


def runs(**numbers: Any) -> Any:
    return audit.epsilon_lower_bound(lambda data: float(data), 0.0, 1.0, score=lambda output: output, **numbers)


def classifier(**numbers: Any) -> Any:
    X, y = np.repeat([[0.0, 9.0], [8.0, 1.0]], 20, axis=0), np.repeat([0, 1], 20)
    model = dps.DensityClassifier(bounds=(0, 10), classes=[0, 1], unit=UNIT, **numbers).fit(X, y)
    tables = [density.table for density in model.densities_]
    return [model.guarantee_, *tables, model.centre_, model.kernel_sums(X[:2])]


def linear_classifier(**numbers: Any) -> Any:
    X, y = np.repeat([[0.0, 0.9], [0.8, 0.1]], 20, axis=0), np.repeat([0, 1], 20)
    model = dps.DensityClassifier(classes=[0, 1], public=X[::3], unit=UNIT, **numbers).fit(X, y)
    return [model.guarantee_, model.sums_.sums, model.decision_function(X[:2])]


def pan_private(**numbers: Any) -> Any:
    sketch = dps.PanPrivateCountSketch(unit=UNIT, key_type="text", **numbers)
    sketch.update(WORDS)
    return sketch.publish()


def days(**numbers: Any) -> Any:
    return dps.ContinualCountSketch(unit=UNIT, key_type="text", **numbers).day(WORDS)


def visited(**numbers: Any) -> Any:
    sketch = dps.ContinualCountSketch(unit=dps.per_user(2), key_type="text", epsilon=1, delta=0.001, **numbers)
    return sketch.day(WORDS, users=list(range(len(WORDS))))


CHANGE = {"later": (2, 3), "earlier": (1, 1), "confidence": 0.9}


def listed_days(**numbers: Any) -> Any:
    histogram = dps.Histogram(unit=dps.per_user(2), key_type="text")
    sketch = dps.ContinualSketch(histogram, keys=WORDS, **numbers)
    return sketch.day(WORDS, users=list(range(len(WORDS))))


def listed() -> dps.ContinualSketch:
    histogram = dps.Histogram(unit=UNIT, key_type="text")
    sketch = dps.ContinualSketch(histogram, keys=WORDS, days=4, epsilon=1, delta=0.001)
    for _ in range(3):
        sketch.day(WORDS)
    return sketch


def recorded(**numbers: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        book = begun(f"sqlite:///{folder}/budget.db")
        charge = book.charge("web", (GaussianCost(1.0),), unit=UNIT)
        book.record_day(charge, publication="x", **numbers)
        return book.last_day(charge)


def as_published(**numbers: Any) -> Any:
    sketch = dps.MomentSketchAsPublished(unit=UNIT, **numbers)
    sketch.update(WORDS)
    made = sketch.release_as_published()
    return made.spec, made.value, str(made.guarantee)


def mechanism() -> audit.Mechanism:
    return audit.Mechanism(
        "m",
        "n",
        audit.Claim(1.0),
        lambda trials: noise.RoundedGaussian(9.0).sample(trials)[:, None].astype(float),
        lambda trials: noise.RoundedGaussian(9.0).sample(trials)[:, None].astype(float),
        {"first": lambda a, b: lambda outputs: outputs[:, 0]},
    )


def fixed(call: Any) -> Callable[[], Any]:
    return lambda: call


def making(kind: type) -> Callable[[], Any]:
    """Build a sketch and release it: the file has the spec, the guarantee and the table."""

    def made(**numbers: Any) -> Any:
        return sketch_of(kind, **numbers).release(epsilon=1, delta=0.001)

    return lambda: made


def density_of(**numbers: Any) -> Any:
    sketch = dps.DensitySketch(kernel=LINE, unit=UNIT, **numbers)
    sketch.update([[1.0]])
    return sketch.release(epsilon=1, delta=0.001)


SPEC = {"seed": 9, "grid": 0.5}
LIKE = {"records": 900, "keys": 20, "skew": 1.1}
SPECS: dict[str, Callable[[], Any]] = {
    "CountSketchSpec": lambda: CountSketchSpec(3, 16, UNIT),
    "DensitySpec": lambda: DensitySpec(LINE, 20, 16, UNIT),
    "DistinctSpec": lambda: DistinctSpec(64, UNIT),
    "HeavyHittersSpec": lambda: HeavyHittersSpec(3, 16, UNIT, key_bits=16),
    "MomentSpec": lambda: MomentSpec(0.5, 10, UNIT),
    "RangeSketchSpec": lambda: RangeSketchSpec(6, UNIT),
    "QuantileSpec": lambda: QuantileSpec(6, UNIT, (Fraction(1, 2),)),
    "SparseHistogramSpec": lambda: SparseHistogramSpec(UNIT),
}
PREVIEWED = [
    ("CountSketchSpec", "preview", {}),
    ("CountSketchSpec", "predict", LIKE),
    ("DensitySpec", "preview", {"count_share": 0.1, "records": 90, "similarity": 0.2}),
    ("DistinctSpec", "preview", {"distinct": 90}),
    ("HeavyHittersSpec", "preview", {}),
    ("HeavyHittersSpec", "predict", {"threshold": 30, **LIKE}),
    ("MomentSpec", "preview", {"moment": 90}),
    ("RangeSketchSpec", "preview", {}),
    ("RangeSketchSpec", "predict_rank_error", {"records": 90, "span": 9, "confidence": 0.9}),
    ("RangeSketchSpec", "expect", {"records": 90, "keys": 9}),
    ("CountSketchSpec", "expect", {"records": 90, "keys": 9}),
    ("QuantileSpec", "preview", {}),
    ("SparseHistogramSpec", "preview", {}),
]
SCORES = np.arange(60.0)


def audited(**given: Any) -> list[Any]:
    """Audit with noise that is not seeded, as what is seeded claims nothing; so only what is asked for is compared."""
    report = contextvars.Context().run(audit.audit_mechanisms, **given)
    return [(each.name, each.trials, each.claim) for each in report.findings]


CASES = [
    Case("per_record", fixed(dps.per_record), {"max_weight": 3}),
    Case("per_user", fixed(dps.per_user), {"max_keys": 3, "max_weight": 2.5}),
    Case("Histogram", making(dps.Histogram), {"grid": 0.5}),
    Case("VoteHistogram", fixed(votes), {"max_counters": 8, "seed": 9}),
    Case("CountSketch", making(dps.CountSketch), {"rows": 3, "width": 16, **SPEC}),
    Case("HeavyHitters", making(dps.HeavyHitters), {"rows": 3, "width": 16, "key_bytes": 4, **SPEC}),
    Case("HeavyHitters", making(dps.HeavyHitters), {"rows": 3, "width": 16, "key_bits": 16, "seed": 9}),
    Case(
        "SparseHistogram",
        making(dps.SparseHistogram),
        {
            "domain": 2**41,
            "max_value": 20,
            "expected_keys": 10,
            "collisions": 0.1,
            "threshold_share": 0.3,
            "alpha": 3,
            **SPEC,
        },
    ),
    Case(
        "RangeSketch",
        making(dps.RangeSketch),
        {"bits": 18, "rows": 3, "width": 16, "start": 2, "level_bits": 3, **SPEC},
    ),
    Case(
        "QuantileSketch",
        making(dps.QuantileSketch),
        {"bits": 18, "quantiles": [0.3, 0.5], "start": 2, "interval_share": 0.25, **SPEC},
    ),
    Case("DistinctSketch", making(dps.DistinctSketch), {"buckets": 64, "seed": 9}),
    Case("MomentSketch", making(dps.MomentSketch), {"p": 0.5, "size": 20, "public_total": 2, **SPEC}),
    Case("MomentProfile", making(dps.MomentProfile), {"p": [0.5], "size": 10, "public_total": 2, **SPEC}),
    Case("MomentSketchAsPublished", fixed(as_published), {"p": 0.5, "size": 20, "records": 9, "keys": 5, "rate": 0.5}),
    Case("DensitySketch", fixed(density_of), {"rows": 20, "width": 16, "seed": 9, "bounds": (0, 2.5)}),
    Case("PanPrivateCountSketch", fixed(pan_private), {"rows": 3, "width": 16, **SPEC, **BUDGETS[0]}),
    Case("PanPrivateCountSketch", fixed(pan_private), {"rows": 3, "width": 16, "rho": 0.1}),
    Case("ContinualCountSketch", fixed(days), {"days": 5, "rows": 3, "width": 16, **SPEC, **BUDGETS[0]}),
    Case("ContinualCountSketch", fixed(days), {"days": 5, "rows": 3, "width": 16, "rho": 0.1}),
    Case("ContinualCountSketch", fixed(visited), {"days": 5, "rows": 3, "width": 16, "user_days": 2, "days_apart": 2}),
    Case("ContinualSketch.curve", lambda: continual().curve, {"window": 2, "confidence": 0.9}, {"key": "a"}),
    Case("ContinualSketch.plot", lambda: continual().plot, {"window": 2}, {"key": "a"}),
    Case("ContinualSketch.change", lambda: continual().change, CHANGE, {"key": "a"}),
    Case("ContinualSketch", fixed(listed_days), {"days": 5, "user_days": 2, "days_apart": 2, **BUDGETS[0]}),
    Case("ContinualSketch", fixed(listed_days), {"days": 5, "user_days": 2, "rho": 0.1}),
    Case("ContinualSketch.curve", lambda: listed().curve, {"window": 2, "confidence": 0.9}, {"key": WORDS[0]}),
    Case("ContinualSketch.plot", lambda: listed().plot, {"window": 2}, {"key": WORDS[0]}),
    Case("ContinualSketch.change", lambda: listed().change, CHANGE, {"key": WORDS[0]}),
    Case("ContinualSketch.between", lambda: listed().between, {"first": 1, "last": 2}),
    Case("PrivateSeries.between", lambda: listed().series().between, {"first": 1, "last": 2}),
    Case("PrivateSeries.change", lambda: listed().series().change, CHANGE, {"key": WORDS[0]}),
    Case("PrivateSeries.curve", lambda: listed().series().curve, {"window": 2, "confidence": 0.9}, {"key": WORDS[0]}),
    Case("PrivateSeries.plot", lambda: listed().series().plot, {"window": 2}, {"key": WORDS[0]}),
    Case("ContinualSketch.publication_of", lambda: listed().publication_of, {"day": 2}),
    Case("Ledger.record_day", fixed(recorded), {"day": 3}),
    Case("ContinualSketch.between", lambda: continual().between, {"first": 1, "last": 3}),
    Case("ContinualSketch.publication_of", lambda: continual().publication_of, {"day": 2}),
    Case(
        "DensityClassifier",
        fixed(classifier),
        {"rows": 20, "power": 2, "smoothing": 0.5, "centre_share": 0.1, "seed": 9, **BUDGETS[0]},
    ),
    Case(
        "DensityClassifier", fixed(linear_classifier), {"epsilon": 1, "delta": 0.1, "dims": 1, "expected_records": 40}
    ),
    Case("DensityClassifier", fixed(linear_classifier), {"epsilon": 1, "delta": 0.1, "passes": 2}),
    Case("DensityClassifier", fixed(classifier), {"rows": 20, "smoothing": 1, "seed": 9, "rho": 0.1}),
    Case(
        "DensityClassifier",
        fixed(lambda **numbers: classifier(kernel="euclidean", **numbers)),
        {"rows": 20, "bandwidth": 0.5, **BUDGETS[1]},
    ),
    Case("Share", fixed(dps.Share), {"parties": 5, "honest": 0.8, "party": 2}),
    Case("merge_releases", fixed(merged), {"missing": 1}),
    Case(
        "DistinctSketch.release_mergeable",
        lambda: sketch_of(dps.DistinctSketch, buckets=64).release_mergeable,
        {"epsilon": 1, "delta": 0},
    ),
    *(
        Case(f"{kind.__name__}.release", lambda kind=kind, shape=shape: sketch_of(kind, **shape).release, budget)
        for kind, shape in (
            (dps.CountSketch, {"rows": 3, "width": 16}),
            (dps.HeavyHitters, {"rows": 3, "width": 16, "key_bytes": 4}),
            (dps.RangeSketch, {"bits": 6}),
            (dps.DistinctSketch, {"buckets": 64}),
            (dps.DistinctSet, {}),
            (dps.MomentSketch, {"p": 0.5, "size": 20}),
            (dps.MomentProfile, {"p": [0.5], "size": 10}),
        )
        for budget in BUDGETS
    ),
    *(
        Case("QuantileSketch.release", lambda: sketch_of(dps.QuantileSketch, bits=6, quantiles=[0.5]).release, budget)
        for budget in BUDGETS
    ),
    Case("QuantileSpec.least_records", lambda: SPECS["QuantileSpec"]().least_records, {"shift": 3}),
    *(
        Case("Histogram.release", lambda: sketch_of(dps.Histogram).release, budget, {"keys": WORDS})
        for budget in BUDGETS
    ),
    Case("VoteHistogram.release", lambda: votes().release, BUDGETS[0]),
    *(Case("SparseHistogram.release", lambda: sketch_of(dps.SparseHistogram).release, one) for one in BUDGETS[:2]),
    *(Case("DensitySketch.release", lambda: points().release, {"count_share": 0.1, **budget}) for budget in BUDGETS),
    *(
        Case("MomentProfile.preview", lambda: dps.MomentProfile(p=[0.5], size=10, unit=UNIT).preview, budget)
        for budget in BUDGETS
    ),
    *(
        Case(f"{kind}.{method}", lambda kind=kind, method=method: getattr(RELEASES[kind](), method), numbers, others)
        for kind, method, numbers, others in ASKED
    ),
    *(
        Case(
            f"{kind}.{method}",
            lambda kind=kind, method=method: getattr(SPECS[kind](), method),
            {"epsilon": None, "delta": None, "rho": None, **budget, **more},
        )
        for kind, method, more in PREVIEWED
        for budget in (BUDGETS[:2] if kind == "SparseHistogramSpec" else BUDGETS[::2])
    ),
    Case("PrivateDensity.grid", lambda: plane().grid, {"size": (4, 5), "confidence": 0.9, "bounds": (0, 1.5)}),
    *(Case("Ledger.create", fixed(ledger_of), budget) for budget in BUDGETS),
    *protocol_cases(),
    Case("SVIM", fixed(local.SVIM), {"epsilon": 1, "top": 4}),
    Case("SVIM.last_phase", fixed(partial(local.SVIM(1.0, 4).last_phase, candidates=[1, 2, 3])), {"length": 2}),
    Case(
        "SampledBit.variance",
        lambda: local.SampledBit(epsilon=1, width=8).variance,
        {"frequency": 0.1, "users": 90, "occupied": 0.5},
    ),
    Case("PrefixHeavyHitters.find", found_words, {"threshold": 0.5, "at_most": 3, "confidence": 0.9}),
    Case("SizeDistribution.loss", lambda: sizes().loss, {"max_items": 2}),
    Case("SizeDistribution.quantile", lambda: sizes().quantile, {"share": 0.5}),
    Case(
        "Client",
        fixed(lambda budget: local.Client(local.SubsetHashing(epsilon=1, max_items=2), budget).remaining),
        {"budget": 3},
    ),
    Case("best_width", fixed(local.best_width), {"epsilon": 1, "mean_items": 20}),
    Case("Euclidean", fixed(kernels.Euclidean), {"dim": 2, "bandwidth": (1, 2.5), "power": 2}),
    Case("Manhattan", fixed(kernels.Manhattan), {"dim": 2, "bandwidth": 2.5, "power": 2}),
    Case("Angular", fixed(kernels.Angular), {"dim": 2, "power": 2}),
    Case("Gaussian", fixed(kernels.Gaussian), {"dim": 2, "bandwidth": (1, 2.5)}),
    Case("Linear", fixed(kernels.Linear), {"dim": 2}),
    Case("best_guess", fixed(privacy.best_guess), {"epsilon": 1, "delta": 0.1}),
    Case("posterior", fixed(accounting.posterior), {"prior": 0.1, "epsilon": 1}),
    Case("words", fixed(accounting.words), {"epsilon": 0.7, "delta": 0.1}),
    Case("compose", fixed(accounting.compose), {"delta": 0.001}, {"costs": [privacy.GaussianCost(0.3)]}),
    *(
        Case("fits", fixed(accounting.fits), budget, {"costs": [privacy.GaussianCost(0.3), privacy.PureCost(0.1)]})
        for budget in BUDGETS
    ),
    Case("gaussian_delta", fixed(accounting.gaussian_delta), {"epsilon": 1, "mu": 0.3}),
    Case("gaussian_epsilon", fixed(accounting.gaussian_epsilon), {"mu": 0.3, "delta": 0.001}),
    Case("gaussian_mu", fixed(accounting.gaussian_mu), {"epsilon": 1, "delta": 0.001}),
    Case("zcdp_mu", fixed(accounting.zcdp_mu), {"rho": 0.1}),
    Case("error_by_bound", fixed(curved), {"spread": 0.5}),
    Case(
        "propose",
        fixed(proposed),
        {
            "target_error": 50,
            "memory": 2**16,
            "threshold": 3,
            "key_bits": 8,
            "key_bytes": 4,
            "p": 0.5,
            "dim": 2,
            "similarity": 0.1,
            "bits": 8,
            "start": 2,
        },
    ),
    Case("RoundedGaussian.sample", lambda: noise.RoundedGaussian(9.4).sample, {"size": 5}),
    Case("DiscreteLaplace.sample", lambda: noise.DiscreteLaplace(0.1, 3).sample, {"size": 5}),
    Case("SeededSourceForTestsOnly", fixed(lambda seed: noise.SeededSourceForTestsOnly(seed).read(4)), {"seed": 3}),
    Case("SeededSourceForTestsOnly.read", lambda: noise.SeededSourceForTestsOnly(3).read, {"count": 4}),
    Case("seeded_noise_for_tests_only", fixed(noisy), {"seed": 3}),
    Case("random_below", fixed(noise.random_below), {"bound": 200, "n": 5}),
    Case("random_bytes", fixed(noise.random_bytes), {"n": 5}),
    Case("random_words", fixed(noise.random_words), {"n": 200}),
    Case("epsilon_lower_bound", fixed(runs), {"trials": 40, "delta": 0.001, "confidence": 0.9}),
    Case(
        "lower_bound_from_scores",
        fixed(audit.lower_bound_from_scores),
        {"delta": 0.001, "confidence": 0.9},
        {"scores": SCORES, "scores_of_neighbour": SCORES + 30},
    ),
    Case(
        "lower_bound_from_outputs",
        fixed(audit.lower_bound_from_outputs),
        {"delta": 0.001, "confidence": 0.9},
        {
            "outputs": SCORES[:, None],
            "outputs_of_neighbour": SCORES[:, None] + 30,
            "distinguishers": {"first": lambda a, b: lambda outputs: outputs[:, 0]},
        },
    ),
    Case("Audit.verdict", lambda: audit.Audit(1.0, 0.0, 0.9, 40).verdict, {"claimed_epsilon": 1}),
    Case("Mechanism.audit", lambda: mechanism().audit, {"trials": 40, "confidence": 0.9}),
    Case(
        "audit_mechanisms",
        fixed(audited),
        {"trials": 100, "confidence": 0.9},
        {"names": ["local-subset-direct"]},
    ),
    Case("Estimates.plot", lambda: dps.Estimates(WORDS, *[np.ones(3)] * 3, 0.9).plot, {"n": 2}),
    Case("percentage", fixed(privacy.percentage), {"probability": 0.7}),
    *(Case(each.__name__, fixed(each), {"weight": 2}) for each in (dps.count, dps.users)),
    *(
        Case(each.__name__, fixed(each), {"weight": 2, "bounds": (0, 5)}, {"value": "x"})
        for each in (dps.sum, dps.mean)
    ),
    Case(
        "quantiles",
        fixed(dps.quantiles),
        {"shares": [0.5, 0.9], "bounds": (0, 5), "grid": 1, "weight": 2},
        {"value": "x"},
    ),
    Case("Table", fixed(sales), {"max_keys": 2, "max_records": 3}),
    *(Case("Table.release", lambda: sales().release, budget, {"groups": ["tea", "rum"]}) for budget in BUDGETS[::2]),
    Case("Table.release", lambda: sales(max_keys=2).release, BUDGETS[1], {"groups": ["tea", "rum"]}),
    Case("sql", fixed(asked), {"epsilon": 1, "delta": 0.001, "max_keys": 2, "max_records": 3, "grid": {"x": 1}}),
    Case("sql", fixed(asked), {"rho": 0.1}),
    *(
        Case(f"PrivateTable.{name}", partial(method_of_a_table, name), {"confidence": 0.9, "max_relative_error": 0.5})
        for name in ("to_arrow", "to_csv", "to_json", "to_pandas", "to_polars", "to_text")
    ),
    Case("PrivateTable.to_text", partial(method_of_a_table, "to_text"), {"limit": 1}),
    Case("PrivateTable.others_at", partial(method_of_a_table, "others_at"), {"confidence": 0.9}),
    Case("PrivateTable.plot", partial(method_of_a_table, "plot"), {"n": 1}),
    *(
        Case("Budget", fixed(privacy.Budget), {"epsilon": None, "delta": None, "rho": None, **budget})
        for budget in BUDGETS
    ),
]

# Values that the library hands out, and what takes no number itself.
RESULTS = {
    "Audit Charge CapLoss Claim Entry Estimate Estimates Finding Guarantee LocalProtocol Mechanism PrivateDensity",
    "PrivateDistinct PrivateDistinctBitmap PrivateMoment Problem Proposal Quantile Received Report Spent",
    "PrivateDistinctCount PrivateSeries PrivateSeries.question PrivateTable.widened",
    "PrivateHistogram PrivateHistogram.of PrivateQuantiles BoundCurve",
    "LocalProtocol.frequencies LocalProtocol.variance Collector.plot Payment.create",
    "Payment.record_day",
    # What the specs compute with numbers of their own.
    "DensitySpec.laws DensitySpec.shares DistinctSpec.distinct_for DistinctSpec.error DistinctSpec.ones",
    "DistinctSpec.variance_of_ones MomentSpec.ratio",
}
# Sparse histograms and votes have no zero-concentrated guarantee, and refuse the argument whatever it is.
REFUSED = {"SparseHistogram.release": {"rho"}, "VoteHistogram.release": {"rho"}}
# Built and compared field by field in test_numbers.py.
ELSEWHERE = {"Amount", "ApproximateCost", "DiscreteLaplace", "GaussianCost", "Guess", "MomentCost", "PureCost"}
ELSEWHERE |= {"RoundedGaussian", "Total", "Unit", "ZcdpCost", *SPECS}
NUMERIC = re.compile(r"\b(int|float)\b")


def numeric_parameters(call: Any) -> set[str]:
    parameters = inspect.signature(call).parameters.values()
    found = {one.name: str(one.annotation) for one in parameters}
    return {
        name
        for name, kind in found.items()
        if NUMERIC.search(kind) and "NDArray" not in kind and "Callable" not in kind
    }


@cache
def public() -> dict[str, set[str]]:
    """Return every public function and method that takes numbers, with their names."""
    found: dict[str, set[str]] = {}
    modules = (dps, local, kernels, accounting, plan, noise, ledger, audit, seeds, privacy)
    names = {name: getattr(module, name) for module in modules for name in module.__all__}
    for name, value in {**names, **{name: type(build()) for name, build in SPECS.items()}}.items():
        if inspect.isfunction(value):
            found[name] = numeric_parameters(value)
        elif inspect.isclass(value) and not issubclass(value, Exception):
            found[name] = numeric_parameters(value)
            for method, call in inspect.getmembers(value, callable):
                if not method.startswith("_") and (inspect.isfunction(call) or inspect.ismethod(call)):
                    found[f"{name}.{method}"] = numeric_parameters(call)
    return {name: numbers for name, numbers in found.items() if numbers}


def test_every_public_number_is_tried_here() -> None:
    results = set(" ".join(RESULTS).split()) | ELSEWHERE
    tried: dict[str, set[str]] = {}
    for case in CASES:
        tried.setdefault(case.name, set()).update(case.numbers)
    # Answers and pictures by the row pass their numbers on to the methods that are tried.
    left = {
        name: numbers - tried.get(name, set()) - REFUSED.get(name, set())
        for name, numbers in public().items()
        if name not in results and name.rsplit(".")[-1] not in {"answer", "ask", "picture", "question"}
    }
    forgotten = {name: numbers for name, numbers in left.items() if numbers}
    assert not forgotten, f"say in CASES how to call {forgotten}"
    assert not set(tried) - set(public()), "a case tries what is not public, or takes no number"


def compare(case: Case, kinds: tuple[type[np.generic], ...]) -> None:
    expected: dict[str, Any] = {}
    for kind in kinds:
        numbers = {name: plain(value, kind) for name, value in case.numbers.items()}
        if repr(numbers) not in expected:
            expected[repr(numbers)] = case.run(numbers)
        found = case.run({name: given(value, kind) for name, value in case.numbers.items()})
        assert found == expected[repr(numbers)], f"{case.name} differs for {kind.__name__}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_numpy_scalars_are_the_numbers_that_they_stand_for(case: Case) -> None:
    compare(case, QUICK)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_so_are_those_of_every_size(case: Case) -> None:
    compare(case, ALL)
