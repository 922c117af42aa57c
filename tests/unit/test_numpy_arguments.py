"""Every public function, tried with NumPy's scalars, answers as it does to the Python numbers that they stand for.

The functions are found by introspection. A parameter has the value of its name in ``VALUES``, or the one that
``SPECIAL`` states for the function; ``ON`` says on what a method is called, and ``MADE`` how a class is tried.
"""

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
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.privacy import GaussianCost, PureCost
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
UNIT, USERS = dps.per_record(), dps.per_user(2)
WORDS = ["tea", "milk", "rum"]
SETS = [["tea"], ["tea", "milk"], ["rum"]] * 40
LINE, PLANE = kernels.Euclidean(dim=1, bandwidth=1.0), kernels.Euclidean(dim=2, bandwidth=1.0)
SALES = pa.table({"key": ["tea", "rum", "tea"] * 40, "user": list(range(60)) * 2, "x": [1.0, 2.0, 4.0] * 40})
SCORES = np.arange(60.0)
BUDGET = {"epsilon": 1, "delta": 0.001}


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


def sketch_of(kind: type, **arguments: Any) -> Any:
    sketch = kind(unit=UNIT, **arguments)
    numbers = kind in (dps.RangeSketch, dps.QuantileSketch) or "key_bits" in arguments
    sketch.update([3, 3, 5] if numbers else WORDS * 30 if kind is dps.VoteHistogram else WORDS)
    return sketch


def density_of(kernel: Any = LINE, **arguments: Any) -> Any:
    sketch = dps.DensitySketch(kernel=kernel, unit=UNIT, bounds=(0, 9), **{"rows": 20, "width": 16, **arguments})
    sketch.update([[1.0] * kernel.dim, [2.0] * kernel.dim])
    return sketch


def released(build: Callable[..., Any], **arguments: Any) -> Any:
    """The file of a release has the spec, the guarantee and the table."""
    return build(**arguments).release(**BUDGET)


def days_of(keys: list[str] | None = None, unit: dps.Unit = UNIT, **arguments: Any) -> Any:
    """A stream of three days, of public keys or of a CountSketch."""
    if keys is None:
        stream: Any = dps.ContinualCountSketch(unit=unit, key_type="text", **{"rows": 3, "width": 16, **arguments})
    else:
        stream = dps.ContinualSketch(dps.Histogram(unit=unit, key_type="text"), keys=keys, **arguments)
    for day in range(3):
        stream.day(WORDS, **({} if unit is UNIT else {"users": [3 * day + i for i in range(3)]}))
    return stream


def sales(**options: Any) -> dps.Table:
    columns = [dps.count(), dps.sum("x", bounds=(0, 5))]
    table = dps.Table(by="key", columns=columns, user="user", **options)
    table.update(SALES)
    return table


def pan_private(**numbers: Any) -> Any:
    sketch = dps.PanPrivateCountSketch(unit=UNIT, key_type="text", **numbers)
    sketch.update(WORDS)
    return sketch.publish()


def classifier(**numbers: Any) -> Any:
    X, y = np.repeat([[0.0, 0.9], [0.8, 0.1]], 20, axis=0), np.repeat([0, 1], 20)
    sums = "public" in numbers
    arguments = numbers | ({"public": X[::3]} if sums else {"bounds": (0, 1)})
    model = dps.DensityClassifier(classes=[0, 1], unit=UNIT, **arguments).fit(X, y)
    tables = model.sums_.sums if sums else [density.table for density in model.densities_]
    return [model.guarantee_, tables, model.decision_function(X[:2])]


def as_published(**numbers: Any) -> Any:
    sketch = dps.MomentSketchAsPublished(unit=UNIT, **numbers)
    sketch.update(WORDS)
    made = sketch.release_as_published()
    return made.spec, made.value, str(made.guarantee)


def reported(kind: Any, **numbers: Any) -> Any:
    protocol = kind(**numbers)
    return [protocol, protocol.guarantee, json.dumps(protocol.to_json()), protocol.report(people(kind)).to_pydict()]


def people(kind: Any) -> Any:
    single = (local.OptimalLocalHashing, local.CountMeanSketch, local.HadamardCountMean)
    return [[1, 2], [3]] * 40 if kind is local.SubsetDirect else WORDS * 40 if kind in single else SETS


def collected(protocol: Any) -> local.Collector:
    return protocol.collector().add(protocol.report(people(type(protocol))))


def frequencies(kind: Any) -> Any:
    protocol = kind(**{name: value for name, value in SPECIAL[kind.__name__].items() if value is not None})
    asked = [1, 2] if kind is local.SubsetDirect else [1] if kind is local.SetSizes else ["te", "mi"]
    tally, prints = collected(protocol).tally, protocol.fingerprints(asked)
    return lambda **numbers: protocol.frequencies(tally, fingerprints=prints, **numbers)


def in_a_ledger(use: Callable[[str], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return use(f"sqlite:///{folder}/budget.db")


def created(place: str, **total: Any) -> Any:
    book = ledger.Ledger(place)
    book.create("web", unit=UNIT, **total)
    return [book.spent("web").words, book.spent("web")]


def recorded(place: str, **numbers: Any) -> Any:
    book = begun(place)
    charge = book.charge("web", (GaussianCost(1.0),), unit=UNIT)
    book.record_day(charge, publication="x", **numbers)
    return book.last_day(charge)


def merged(**numbers: Any) -> Any:
    parties = [sketch_of(dps.CountSketch, rows=3, width=16) for _ in range(2)]
    shares = [each.release(**BUDGET, share=dps.Share(3, 0.6, party)) for party, each in enumerate(parties)]
    return dps.merge_releases(shares, **numbers)


def found_words() -> Callable[..., Any]:
    protocol = local.PrefixHeavyHitters(epsilon=8, max_items=1, length=2, alphabet="ab")
    collector = protocol.collector().add(protocol.report([["ab"]] * 900))
    return lambda **numbers: protocol.find(collector, **numbers)


def proposed(**numbers: Any) -> Any:
    found = plan.propose("distinct", plan.Amount(UNIT, 1, 0.001), plan.Guess(1000, 50, 1.0), **numbers)
    return [found.shape, found.error, found.memory]


def noisy(seed: int) -> Any:
    with seeded_noise_for_tests_only(seed):
        return noise.random_bytes(8)


def audited(**numbers: Any) -> list[Any]:
    """Audit with noise that is not seeded, as what is seeded claims nothing; so only what is asked for is compared."""
    report = contextvars.Context().run(audit.audit_mechanisms, names=["local-subset-direct"], **numbers)
    return [(each.name, each.trials, each.claim) for each in report.findings]


def mechanism() -> audit.Mechanism:
    def drawn(trials: int) -> Any:
        return noise.RoundedGaussian(9.0).sample(trials)[:, None].astype(float)

    return audit.Mechanism(
        "m", "n", audit.Claim(1.0), drawn, drawn, {"first": lambda a, b: lambda outputs: outputs[:, 0]}
    )


SKETCHES: dict[str, tuple[type, dict[str, Any]]] = {
    "CountSketch": (dps.CountSketch, {"rows": 3, "width": 16}),
    "HeavyHitters": (dps.HeavyHitters, {"rows": 3, "width": 16, "key_bytes": 4}),
    "Histogram": (dps.Histogram, {}),
    "VoteHistogram": (dps.VoteHistogram, {"max_counters": 16}),
    "SparseHistogram": (dps.SparseHistogram, {"expected_keys": 10}),
    "RangeSketch": (dps.RangeSketch, {"bits": 6}),
    "QuantileSketch": (dps.QuantileSketch, {"bits": 6, "quantiles": [0.25, 0.5]}),
    "DistinctSketch": (dps.DistinctSketch, {"buckets": 64}),
    "DistinctSet": (dps.DistinctSet, {}),
    "MomentSketch": (dps.MomentSketch, {"p": 0.5, "size": 20}),
    "MomentProfile": (dps.MomentProfile, {"p": [0.5], "size": 10}),
}
RELEASED = {
    "PrivateCountSketch": "CountSketch",
    "PrivateHeavyHitters": "HeavyHitters", "PrivateSparseHistogram": "SparseHistogram",
    "PrivateRanges": "RangeSketch", "PrivateQuantiles": "QuantileSketch", "PrivateDistinct": "DistinctSketch",
    "PrivateDistinctCount": "DistinctSet", "PrivateMoment": "MomentSketch", "PrivateMomentProfile": "MomentProfile",
}  # fmt: skip


def ready(name: str) -> Any:
    kind, shape = SKETCHES[name]
    return sketch_of(kind, **shape)


ON: dict[str, Callable[[], Any]] = {
    **{name: partial(ready, name) for name in SKETCHES},
    **{private: lambda name=name: ready(name).release(**BUDGET) for private, name in RELEASED.items()},
    "PrivateVoteHistogram": lambda: ready("VoteHistogram").release(epsilon=9, delta=0.001),
    "PrivateHistogram": lambda: ready("Histogram").release(epsilon=1, delta=0, keys=WORDS, others=True),
    "PrivateDistinctBitmap": lambda: ready("DistinctSketch").release_mergeable(epsilon=1),
    "DensitySketch": density_of,
    "PrivateDensity": lambda: released(density_of),
    "ContinualSketch": partial(days_of, WORDS, days=4, **BUDGET),
    "PrivateSeries": lambda: days_of(WORDS, days=4, **BUDGET).series(),
    "Table": sales,
    "PrivateTable": lambda: sales(max_keys=2).release(**BUDGET, groups=["tea", "rum"]),
    "Collector": lambda: collected(local.SubsetHashing(epsilon=1, max_items=2, key_type="text")),
    "SVIM": lambda: local.SVIM(1.0, 4),
    "SizeDistribution": lambda: local.SizeDistribution.from_sizes([1, 2, 3, 3, 9]),
    "Estimates": lambda: dps.Estimates(WORDS, *[np.ones(3)] * 3, 0.9),
    "Audit": lambda: audit.Audit(1.0, 0.0, 0.9, 40),
    "Mechanism": mechanism,
    "RoundedGaussian": lambda: noise.RoundedGaussian(9.4),
    "DiscreteLaplace": lambda: noise.DiscreteLaplace(0.1, 3),
    "SeededSourceForTestsOnly": lambda: noise.SeededSourceForTestsOnly(3),
    "CountSketchSpec": lambda: CountSketchSpec(3, 16, UNIT),
    "DensitySpec": lambda: DensitySpec(LINE, 20, 16, UNIT),
    "DistinctSpec": lambda: DistinctSpec(64, UNIT),
    "HeavyHittersSpec": lambda: HeavyHittersSpec(3, 16, UNIT, key_bits=16),
    "MomentSpec": lambda: MomentSpec(0.5, 10, UNIT),
    "RangeSketchSpec": lambda: RangeSketchSpec(6, UNIT),
    "QuantileSpec": lambda: QuantileSpec(6, UNIT, (Fraction(1, 2),)),
    "SparseHistogramSpec": lambda: SparseHistogramSpec(UNIT),
}
SPECS = {name: build for name, build in ON.items() if name.endswith("Spec")}
PROTOCOLS: list[Any] = [
    local.SubsetHashing, local.SubsetDirect, local.OptimalLocalHashing, local.CountMeanSketch, local.HadamardCountMean,
    local.MultiPCMS, local.PadAndSample, local.SampledBit, local.SetSizes, local.PrefixHeavyHitters,
    local.PrivSketchAsPublished,
]  # fmt: skip
MADE: dict[str, Callable[..., Any]] = {
    **{name: partial(released, partial(sketch_of, kind)) for name, (kind, _) in SKETCHES.items()},
    **{kind.__name__: partial(reported, kind) for kind in PROTOCOLS},
    "DensitySketch": partial(released, density_of),
    "PanPrivateCountSketch": pan_private,
    "ContinualCountSketch": partial(days_of, unit=USERS),
    "ContinualSketch": partial(days_of, unit=USERS),
    "MomentSketchAsPublished": as_published,
    "DensityClassifier": classifier,
    "Table": sales,
    "Client": lambda budget: local.Client(local.SubsetHashing(epsilon=1, max_items=2), budget).remaining,
    "SeededSourceForTestsOnly": lambda seed: noise.SeededSourceForTestsOnly(seed).read(4),
    "seeded_noise_for_tests_only": noisy,
    "merge_releases": merged,
    "propose": proposed,
    "audit_mechanisms": audited,
    "error_by_bound": lambda **numbers: plan.error_by_bound(
        plan.Amount(privacy.per_user(1), 1, 0.001), plan.Guess(1000, 50, 1.0, 100), **numbers
    ).to_json(),
    "epsilon_lower_bound": partial(audit.epsilon_lower_bound, float, 0.0, 1.0, score=lambda output: output),
    "Ledger.create": lambda **total: in_a_ledger(partial(created, **total)),
    "Ledger.record_day": lambda **numbers: in_a_ledger(partial(recorded, **numbers)),
    "PrivateDensity.grid": lambda **numbers: released(density_of, kernel=PLANE).grid(**numbers),
    "PrefixHeavyHitters.find": lambda **numbers: found_words()(**numbers),
    **{f"{kind.__name__}.frequencies": lambda kind=kind, **numbers: frequencies(kind)(**numbers) for kind in PROTOCOLS},
}

# What a parameter of this name is given. None leaves it out.
VALUES: dict[str, Any] = {
    "epsilon": 0.7, "delta": 0.001, "rho": 0.1, "confidence": 0.9, "seed": 9, "grid": 0.5, "rows": 3, "width": 16,
    "n": 2, "seeds": 16, "max_items": 3, "length": 3, "users": 120, "frequency": 0.1, "size": 20, "buckets": 64,
    "p": 0.5, "public_total": 2, "dim": 2, "bandwidth": (1, 2.5), "power": 2, "trials": 40, "count_share": 0.1,
    "first": 1, "last": 2, "day": 2, "window": 2, "later": (2, 3), "earlier": (1, 1), "records": 900, "skew": 1.1,
    "similarity": 0.2, "distinct": 90, "moment": 90, "threshold": 30, "max_keys": 2, "max_records": 3, "weight": 2,
    "max_weight": 3, "bounds": (0, 5), "shares": [0.5, 0.9], "share": 0.5, "max_relative_error": 0.5, "limit": 1,
    "shift": 3, "bits": 18, "start": 2, "level_bits": 3, "interval_share": 0.25, "days": 5, "user_days": 2,
    "days_apart": 2, "parties": 5, "honest": 0.8, "party": 2, "missing": 1, "budget": 3, "mean_items": 20, "top": 4,
    "mu": 0.3, "prior": 0.1, "probability": 0.7, "spread": 0.5, "target_error": 50, "memory": 2**16, "domain": 20,
    "claimed_epsilon": 1, "count": 4, "largest": 20, "points": 5, "low": 2, "high": 9, "value": "x", "span": 9,
    "lows": [2], "highs": [9], "values": [9], "max_counters": 8, "bound": 200, "key": "tea", "keys": WORDS,
    "candidates": WORDS, "groups": ["tea", "rum"], "quantiles": [0.3, 0.5], "costs": [GaussianCost(0.3), PureCost(0.1)],
    "key_bits": 8, "key_bytes": 4, "at_most": 3,
}  # fmt: skip
HASHED = {"epsilon": 0.7, "width": 8, "seeds": 16, "seed": 9}
ROWED = {"epsilon": 0.7, "rows": 4, "width": 8, "seed": 9}
WHOLE = {"epsilon": 1, "delta": 0.001, "rho": None}
LIKE = {"records": 900, "keys": 20}
# Other values of single functions; a list has one entry for each call.
SPECIAL: dict[str, Any] = {
    "SubsetHashing": {**HASHED, "epsilon": 1, "max_items": 3},
    "SubsetDirect": {"epsilon": 0.7, "max_items": 3, "domain": 20},
    "OptimalLocalHashing": HASHED,
    "CountMeanSketch": ROWED,
    "HadamardCountMean": ROWED,
    "MultiPCMS": ROWED,
    "PadAndSample": {**HASHED, "length": 3},
    "SampledBit": ROWED,
    "SampledBit.variance": {"occupied": 0.5},
    "SetSizes": {"epsilon": 0.7, "largest": 20},
    "PrefixHeavyHitters": {**HASHED, "epsilon": 3, "max_items": 3, "length": 2},
    "PrefixHeavyHitters.find": {"threshold": 0.5, "collector": None},
    "PrivSketchAsPublished": ROWED,
    "SVIM.last_phase": {"length": 2, "candidates": [1, 2, 3]},
    "Collector.estimate": {"keys": WORDS},
    "HeavyHitters": [{"key_bits": None}, {"key_bits": 16, "key_bytes": None, "grid": None}],
    "SparseHistogram": {
        "domain": 2**41, "max_value": 20, "expected_keys": 10, "collisions": 0.1, "threshold_share": 0.3, "alpha": 3
    },
    "SparseHistogram.release": [WHOLE, {**WHOLE, "delta": 0}],
    "SparseHistogramSpec.preview": [WHOLE, {**WHOLE, "delta": 0}],
    "VoteHistogram.release": WHOLE,
    "QuantileSpec.least_records": {},
    "CountSketchSpec.expect": {**LIKE, **BUDGET},
    "CountSketchSpec.predict": LIKE,
    "HeavyHittersSpec.predict": LIKE,
    "RangeSketchSpec.expect": {**LIKE, **BUDGET},
    "MomentProfile": {"p": [0.5], "size": 10},
    "MomentSketchAsPublished": {"keys": 5, "records": 9, "rate": 0.5},
    "PrivateHeavyHitters.top": [{"threshold": 1}, {"threshold": 1.5, "candidates": WORDS}],
    "PrivateVoteHistogram.estimate": {"keys": WORDS[:1]},
    "PrivateRanges.range": {},
    "PrivateRanges.rank": {"value": 9},
    "PrivateRanges.quantiles": {"shares": [0.3, 1]},
    "PrivateQuantiles.quantile": {"share": 0.25},
    "PrivateQuantiles.quantiles": {"shares": [0.25, 0.5]},
    "PrivateDensity.curve": {"bounds": (0, 1.1), "size": 5},
    "PrivateDensity.density": {"points": [[1.0]], "records": 2},
    "PrivateDensity.estimate": {"points": [[1.0]]},
    "PrivateDensity.grid": {"size": (4, 5), "bounds": (0, 1.5)},
    "DensitySketch.release": {},
    "ContinualCountSketch": [{"days": 5, "user_days": 2, "days_apart": 2, **BUDGET}, {"days": 5, "rho": 0.1}],
    "PrivateSparseHistogram.survivors": {"candidates": WORDS},
    "PrivateSparseHistogram.top": {"candidates": WORDS},
    "Histogram.release": {"keys": WORDS},
    "DensityClassifier": [
        {"rows": 20, "smoothing": 0.5, "centre_share": 0.1, "rho": None, "bandwidth": None, "dims": None,
         "expected_records": None, "passes": None},
        {"rows": 20, "smoothing": 1, "power": None, "bandwidth": 0.5, "kernel": "euclidean", "epsilon": None,
         "delta": None, "dims": None, "expected_records": None, "passes": None, "centre_share": None},
        {"public": True, "epsilon": 1, "rho": None, "dims": 1, "expected_records": 40, "passes": None, "rows": None,
         "power": None, "bandwidth": None, "smoothing": None, "centre_share": None, "seed": None},
        {"public": True, "epsilon": 1, "rho": None, "dims": None, "expected_records": None, "passes": 2, "rows": None,
         "power": None, "bandwidth": None, "smoothing": None, "centre_share": None, "seed": None},
    ],
    "Ledger.create": {"dataset": None, "unit": None},
    "Ledger.record_day": {"charge": None, "publication": None, "day": 3},
    "Linear": {"dim": 2},
    "per_user": {"max_weight": 2.5},
    "merge_releases": {"releases": None},
    "propose": {"kind": None, "amount": None, "guess": None, "threshold": 3, "bits": 8},
    "error_by_bound": {"amount": None, "guess": None},
    "Client": {"protocol": None},
    "epsilon_lower_bound": {"mechanism": None, "data": None, "neighbour": None, "score": None},
    "lower_bound_from_scores": {"scores": SCORES, "scores_of_neighbour": SCORES + 30},
    "lower_bound_from_outputs": {
        "outputs": SCORES[:, None], "outputs_of_neighbour": SCORES[:, None] + 30,
        "distinguishers": {"first": lambda a, b: lambda outputs: outputs[:, 0]},
    },
    "audit_mechanisms": {"trials": 100},
    "quantiles": {"grid": 1},
    "Table": {"by": None},
    "Table.release": [{"rho": None}, {"epsilon": None, "delta": None, "groups": ["tea", "rum"]}],
    "sql": [{"query": "SELECT key, COUNT(*), MEDIAN(x) FROM sales GROUP BY key", "data": {"sales": SALES},
             "user": "user", "groups": ["tea", "rum"], "grid": {"x": 1}, **budget}
            for budget in (WHOLE, {"epsilon": None, "delta": None})],
    "random_words": {"n": 200},
    "gaussian_delta": {"epsilon": 1},
}  # fmt: skip

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
    # Built and compared field by field in test_numbers.py.
    "Amount ApproximateCost DiscreteLaplace GaussianCost Guess MomentCost PureCost RoundedGaussian Total Unit ZcdpCost",
}
# Sparse histograms and votes have no zero-concentrated guarantee, and refuse the argument whatever it is.
NO_RHO = {"SparseHistogram.release", "SparseHistogramSpec.preview", "VoteHistogram.release"}
NUMERIC = re.compile(r"\b(int|float)\b")


def numeric_parameters(call: Any) -> set[str]:
    kinds = {one.name: str(one.annotation) for one in inspect.signature(call).parameters.values()}
    return {
        name
        for name, kind in kinds.items()
        if NUMERIC.search(kind) and "NDArray" not in kind and "Callable" not in kind
    }


@cache
def public() -> dict[str, Any]:
    """Return every public function and method that takes numbers."""
    found: dict[str, Any] = {}
    modules = (dps, local, kernels, accounting, plan, noise, ledger, audit, seeds, privacy)
    names = {name: getattr(module, name) for module in modules for name in module.__all__}
    for name, value in {**names, **{name: type(build()) for name, build in SPECS.items()}}.items():
        if inspect.isfunction(value):
            found[name] = value
        elif inspect.isclass(value) and not issubclass(value, Exception):
            found |= {} if name in SPECS else {name: value}
            for method, call in inspect.getmembers(value, callable):
                # Answers and pictures by the row pass their numbers on to the methods that are tried.
                own = not method.startswith("_") and method not in {"answer", "ask", "picture", "question"}
                if own and (inspect.isfunction(call) or inspect.ismethod(call)):
                    found[f"{name}.{method}"] = call
    results = set(" ".join(RESULTS).split())
    return {name: call for name, call in found.items() if name not in results and numeric_parameters(call)}


def calls(name: str) -> Iterator[dict[str, Any]]:
    """Yield the arguments of each call; one with ε and δ and one with ρ where a function takes either."""
    call = public()[name]
    parameters = inspect.signature(call).parameters
    special = SPECIAL.get(name, {})
    for stated in special if isinstance(special, list) else [special]:
        wanted = [
            one.name
            for one in parameters.values()
            if one.kind is not one.VAR_KEYWORD
            and (one.name in {*stated, *numeric_parameters(call)} or (one.default is one.empty and one.name in VALUES))
        ]
        found = {each: stated[each] if each in stated else VALUES[each] for each in [*wanted, *stated]}
        found = {each: value for each, value in found.items() if value is not None}
        if {"epsilon", "rho"} <= found.keys():
            yield {each: value for each, value in found.items() if each != "rho"}
            yield {each: value for each, value in found.items() if each not in ("epsilon", "delta")}
        else:
            yield found


@cache
def private(owner: str) -> Any:
    return ON[owner]()


def owner_of(name: str) -> Any:
    """Return what a method is called on: made anew, unless it is a release, which nothing changes."""
    if name.startswith("Private"):
        return private(name)
    return ON[name]() if name in ON else getattr(local, name)(**SPECIAL[name])


def run(name: str, arguments: dict[str, Any]) -> Any:
    with seeded_noise_for_tests_only(5):
        if name in MADE:
            return content(MADE[name](**arguments))
        owner, _, method = name.partition(".")
        if not method:
            return content(public()[name](**arguments))
        return content(getattr(owner_of(owner), method)(**arguments))


@pytest.mark.parametrize("kinds", [QUICK, pytest.param(ALL, marks=pytest.mark.full)], ids=["quick", "all"])
@pytest.mark.parametrize("name", public())
def test_numpy_scalars_are_the_numbers_that_they_stand_for(name: str, kinds: tuple[type[np.generic], ...]) -> None:
    tried: set[str] = {"rho"} if name in NO_RHO else set()
    for arguments in calls(name):
        tried |= arguments.keys()
        expected: dict[str, Any] = {}
        for kind in kinds:
            same = {each: plain(value, kind) for each, value in arguments.items()}
            if repr(same) not in expected:
                expected[repr(same)] = run(name, same)
            found = run(name, {each: given(value, kind) for each, value in arguments.items()})
            assert found == expected[repr(same)], f"{name} differs for {kind.__name__}"
    assert numeric_parameters(public()[name]) <= tried, "say in SPECIAL how to try the others"
