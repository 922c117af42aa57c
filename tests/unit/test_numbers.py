"""Numbers are kept as Python's own: NumPy's wrap, and a bound computed in 64 bits can come out too small."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import accounting, files, kernels, ledger, local, noise, plan, privacy
from dpsketch.core.move import Distance, Move, Sensitivity, Table
from dpsketch.errors import InvalidInput
from dpsketch.kinds import KINDS
from dpsketch.laws.designs import Banded, Blocks, Contribution, PanPrivate, Recurrence
from dpsketch.laws.recursion import Recursion
from dpsketch.laws.shares import Share
from dpsketch.laws.sparse import Projection
from dpsketch.sketches.countsketch.spec import Clip, CountSketchSpec
from dpsketch.sketches.density.spec import DensitySpec
from dpsketch.sketches.distinct.bitmap import DistinctSpec
from dpsketch.sketches.heavy.spec import HeavyHittersSpec
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.histogram.votes import VoteHistogramSpec
from dpsketch.sketches.moment.spec import MomentSpec
from dpsketch.sketches.quantiles import QuantileSpec
from dpsketch.sketches.ranges.spec import Domain, RangeSketchSpec
from dpsketch.sketches.sparse.sketch import SparseHistogramSpec
from dpsketch.sketches.table.spec import TableSpec
from dpsketch.sketches.weights import WeightGrid
from numpy_numbers import given, plain

UNIT = dps.per_record()
TYPES = (np.int64, np.int32, np.uint8, np.float64, np.float32)


def test_a_sensitivity_does_not_wrap() -> None:
    """w²·k passes 2⁶³ here: in 64-bit integers the clip, and with it the noise, was 2.2 times too small."""
    unit = dps.per_user(1, max_weight=2**31, neighbours="replace")
    budget = privacy.Budget(1.0, 1e-6)
    true = CountSketchSpec(5, 16, unit)
    for whole in (np.int64(5), np.int32(5), np.uint8(5)):
        found = CountSketchSpec(whole, 16, unit)
        assert found == true
        assert found.tables() == true.tables()
        assert found.laws(budget) == true.laws(budget)
    (law,) = true.laws(budget)
    assert law.noise.sigma == pytest.approx(2 * 2**31 * math.sqrt(5) / accounting.gaussian_mu(1.0, 1e-6), rel=1e-6)


# Every class that keeps numbers it was given, with arguments that are not its defaults.
KEEPING: dict[type, dict[str, Any]] = {
    privacy.Unit: {"level": "user", "max_keys": 3, "max_weight": 2, "neighbours": "replace"},
    privacy.PureCost: {"epsilon": 0.1},
    privacy.GaussianCost: {"mu": 0.1},
    privacy.ZcdpCost: {"rho": 0.1},
    privacy.ApproximateCost: {"epsilon": 0.1, "delta": 0.001},
    privacy.MomentCost: {"p": 0.5, "size": 10, "ratio": 1.1},
    privacy.Guarantee: {
        "epsilon": 1, "delta": 0.1, "unit": UNIT, "costs": (privacy.PureCost(1),), "mechanism": "m", "rho": 0.5,
    },
    noise.RoundedGaussian: {"sigma": 9.4},
    noise.DiscreteLaplace: {"epsilon": 0.1, "sensitivity": 7},
    kernels.Euclidean: {"dim": 2, "bandwidth": (2.1, 1), "power": 2},
    kernels.Manhattan: {"dim": 2, "bandwidth": 2.1, "power": 2},
    kernels.Angular: {"dim": 2, "power": 2},
    kernels.Gaussian: {"dim": 2, "bandwidth": (2.1, 1)},
    kernels.Linear: {"dim": 2},
    Sensitivity: {"l1": 5, "l2": 2.2},
    WeightGrid: {"step": 0.1, "max_weight": 2},
    Clip: {"rows": 5, "width": 16, "max_keys": 3, "max_units": 7},
    CountSketchSpec: {"rows": 5, "width": 16, "unit": UNIT, "seed": 9, "grid": 0.5},
    dps.Share: {"parties": 5, "honest": 0.8, "party": 3},
    Share: {"parties": 5, "honest": 0.8, "party": 2},
    DensitySpec: {
        "kernel": kernels.Euclidean(dim=1, bandwidth=1.0), "rows": 20, "width": 16, "unit": UNIT, "seed": 9,
        "bounds": ((0.1, 3),),
    },
    DistinctSpec: {"buckets": 64, "unit": UNIT, "seed": 9},
    HeavyHittersSpec: {"rows": 5, "width": 16, "unit": UNIT, "key_bits": 16, "seed": 9, "grid": 0.5},
    MomentSpec: {"p": 0.5, "size": 50, "unit": UNIT, "public_total": 100, "grid": 0.5, "seed": 9},
    Domain: {"bits": 8, "start": 3, "outside": "refuse"},
    RangeSketchSpec: {
        "bits": 20, "unit": UNIT, "rows": 5, "width": 16, "start": 3, "level_bits": 3, "seed": 9, "grid": 0.5,
    },
    QuantileSpec: {
        "bits": 20, "unit": UNIT, "quantiles": (Fraction(1, 2),), "start": 3, "interval_share": 0.25, "seed": 9,
        "grid": 0.5,
    },
    Recursion: {
        "name": "answers", "table": Table("counts", (16,), Move.heaped(2, 2)), "neighbours": "replace",
        "quantiles": (Fraction(1, 2),), "epsilon": 0.5, "accounting": "pure", "shift": -3,
    },
    Projection: {"alpha": 2, "scale": 2**47, "top": 9, "rows": 128, "seed": 7},
    HistogramSpec: {"unit": privacy.per_record(), "grid": 0.5, "key_type": "int"},
    VoteHistogramSpec: {"unit": privacy.per_record(), "max_counters": 64, "seed": 7, "key_type": "int"},
    SparseHistogramSpec: {
        "unit": UNIT, "domain": 2**33, "max_value": 100, "expected_keys": 50, "collisions": 0.1,
        "threshold_share": 0.3, "alpha": 3, "seed": 9, "grid": 0.5,
    },
    local.SubsetHashing: {"epsilon": 1, "max_items": 3, "width": 8, "seeds": 16, "seed": 9},
    local.SubsetDirect: {"epsilon": 0.7, "max_items": 3, "domain": 20},
    local.OptimalLocalHashing: {"epsilon": 0.7, "width": 8, "seeds": 16, "seed": 9},
    local.CountMeanSketch: {"epsilon": 0.7, "rows": 4, "width": 8, "seed": 9},
    local.HadamardCountMean: {"epsilon": 0.7, "rows": 4, "width": 8, "seed": 9},
    local.MultiPCMS: {"epsilon": 0.7, "rows": 4, "width": 8, "seed": 9},
    local.PadAndSample: {"epsilon": 0.7, "length": 3, "width": 8, "seeds": 16, "seed": 9},
    local.SampledBit: {"epsilon": 0.7, "width": 8, "rows": 4, "seed": 9},
    local.SetSizes: {"epsilon": 0.7, "largest": 20},
    local.PrefixHeavyHitters: {"epsilon": 0.7, "max_items": 3, "length": 4, "width": 8, "seeds": 16, "seed": 9},
    local.PrivSketchAsPublished: {"epsilon": 0.7, "rows": 4, "width": 8, "seed": 9},
    local.SVIM: {"epsilon": 0.7, "top": 4},
    Move: {"l1": 3, "squared": 5, "cells": 3, "most": 2},
    Distance: {"l1": 3, "squared": 5, "cells": 3, "most": 2},
    Contribution: {"distance": Distance(3, 5, 3, 2), "days": 2, "apart": 4, "step": 2},
    Banded: {"bands": (9, 5, 2)},
    PanPrivate: {"bands": (9, 5, 2)},
    Recurrence: {"rates": (7, 9), "gains": (5, 6), "scale": 4, "guard": 2},
    Blocks: {"sizes": (1, 3, 6)},
    privacy.Budget: {"epsilon": 1, "delta": 0.1},
    ledger.Total: {"epsilon": 1, "delta": 0.1},
    plan.Amount: {"unit": UNIT, "epsilon": 1, "delta": 0.1},
    plan.Guess: {"records": 100, "keys": 7, "skew": 1.1, "users": 20},
}  # fmt: skip

NUMERIC = re.compile(r"\b(int|float)\b")


def numeric_fields(cls: type) -> list[str]:
    fields = dataclasses.fields(cls)
    return [field.name for field in fields if NUMERIC.search(str(field.type)) and "NDArray" not in str(field.type)]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("cls", KEEPING, ids=lambda cls: cls.__name__)
def test_what_is_kept_is_pythons_own(cls: type, kind: type[np.generic]) -> None:
    arguments = KEEPING[cls]
    tried = [name for name in numeric_fields(cls) if name in arguments]
    assert tried
    missing = [field.name for field in dataclasses.fields(cls) if field.name not in arguments]
    assert not [name for name in missing if name in numeric_fields(cls) and name not in ("rho", "key_bytes")]
    numbers = {name: given(value, kind) for name, value in arguments.items() if name in tried}
    found = cls(**{**arguments, **numbers})
    same = cls(**{**arguments, **{name: plain(arguments[name], kind) for name in tried}})
    assert found == same
    for name in tried:
        for value in _each(getattr(found, name)):
            assert type(value) in (int, float, type(None)), f"{cls.__name__} keeps {name} as {type(value)}"
        assert repr(getattr(found, name)) == repr(getattr(same, name))
    if hasattr(cls, "to_json"):
        assert json.dumps(found.to_json()) == json.dumps(same.to_json())


def test_the_spec_of_every_kind_is_tried() -> None:
    """A spec states what one unit moves, so that a number which wraps in it would make the noise too small."""
    specs = {kind.spec for kind in KINDS.values() if kind.spec is not None and numeric_fields(kind.spec)}
    assert specs <= KEEPING.keys() | {TableSpec}  # which is a release's below


def _each(value: Any) -> list[Any]:
    return [inner for each in value for inner in _each(each)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("cls", KEEPING, ids=lambda cls: cls.__name__)
def test_what_is_no_number_is_refused(cls: type) -> None:
    arguments = KEEPING[cls]
    for name in set(numeric_fields(cls)) & set(arguments):
        lists = () if name in ("bandwidth", "domain", "bounds", "bands", "sizes") else (np.array([1, 2]), [1])
        for wrong in (True, math.nan, 1j, "3", np.bool_(True), *lists):
            with pytest.raises(InvalidInput):
                cls(**{**arguments, name: wrong})


SALES = pa.table({"key": ["tea", "rum", "tea"] * 40, "user": list(range(60)) * 2, "x": [1.0, 2.0, 4.0] * 40})
TREE = {"bits": 18, "rows": 3, "width": 16, "level_bits": 3, "seed": 9}


def table(n: Any) -> Any:
    columns = [dps.count(), dps.sum("x", bounds=n((0, 5))), dps.quantiles("x", n([0.3, 0.5]), grid=n(1))]
    sketch = dps.Table(by="key", columns=columns, user="user", max_keys=n(2), max_records=n(3))
    sketch.update(SALES)
    return sketch.release(epsilon=n(1), delta=n(0.001), groups=["tea", "rum"])


def stream(n: Any) -> Any:
    days = {name: n(value) for name, value in {"days": 200, "user_days": 2, "days_apart": 2}.items()}
    size = {"rows": n(3), "width": n(16), "unit": dps.per_user(n(2)), "key_type": "text"}
    sketch = dps.ContinualCountSketch(**size, **days, epsilon=n(1), delta=n(0.001))
    return sketch.day(["tea", "rum"], users=["ann", "bob"])


def merged(n: Any) -> Any:
    share = {"parties": n(3), "honest": n(0.6)}
    parties = [dps.CountSketch(rows=3, width=16, unit=UNIT) for _ in range(2)]
    shares = [
        each.release(epsilon=n(1), delta=n(0.001), share=dps.Share(**share, party=n(party)))
        for party, each in enumerate(parties)
    ]
    return dps.merge_releases(shares, missing=n(1))


# Releases whose numbers all go through ``n``.
RELEASES: dict[str, Callable[[Any], Any]] = {
    "counts": lambda n: dps.CountSketch(rows=n(3), width=n(16), unit=UNIT).release(rho=n(0.1)),
    "ranges": lambda n: dps.RangeSketch(
        unit=dps.per_user(n(200), max_weight=n(3)), **{name: n(value) for name, value in TREE.items()}
    ).release(epsilon=n(0.7), delta=n(0.001)),
    "quantiles": lambda n: dps.QuantileSketch(unit=UNIT, bits=n(6), quantiles=n([0.25, 0.5])).release(
        epsilon=n(1), delta=n(0)
    ),
    "votes": lambda n: dps.VoteHistogram(unit=UNIT, max_counters=n(200)).release(epsilon=n(0.7), delta=n(0.001)),
    "a table": table,
    "a stream": stream,
    "shares": merged,
}


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_of_numpy_scalars_is_that_of_the_numbers_that_they_stand_for(name: str) -> None:
    """To the byte: its spec, its laws, its guarantee and, under one seed, what it published."""
    for kind in (np.uint8, np.float32):
        written = []
        for of in (given, plain):
            with noise.seeded_noise_for_tests_only(5):
                document = RELEASES[name](lambda value, of=of, kind=kind: of(value, kind)).to_document()
            arrays = {each: array for each, array in document.arrays.items() if not each.endswith("ids")}
            written.append(files.encode(dataclasses.replace(document, arrays=arrays)))
        assert written[0] == written[1], kind
