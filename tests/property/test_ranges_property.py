"""RangeSketch's laws, on trees that hypothesis makes up."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.privacy import Budget
from dpsketch.sketches.ranges import RangeSketch, RangeSketchSpec
from dpsketch.sketches.ranges.spec import range_noise

BITS = 18
values = st.lists(st.one_of(st.integers(0, 2**BITS - 1), st.sampled_from([0, 1, 2**BITS - 1])), max_size=30)
relations = st.sampled_from(["add_remove", "replace"])


def built(keys: list[int], unit: dps.Unit, users: list[int] | None = None, **how: object) -> RangeSketch:
    sketch = RangeSketch(unit=unit, bits=BITS, rows=3, width=8, seed=5)
    sketch.update(np.array(keys, dtype=np.int64), users=None if users is None else np.array(users), **how)
    return sketch


def parts(sketch: RangeSketch) -> list[np.ndarray]:
    """Every level as it would be released, without noise."""
    arrays = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays
    cells, tables = np.asarray(arrays["levels"]).astype(np.int64), np.asarray(arrays["tables"]).astype(np.int64)
    dense = [cells.reshape(1 << depth, -1).sum(axis=1) for depth in sketch.spec.dense_depths]
    return [*dense, *(table.ravel() for table in tables)]


def spent(spec: RangeSketchSpec, one: RangeSketch, other: RangeSketch, budget: dict[str, float]) -> float:
    """The share of a budget that telling two sketches apart takes: μ², or ε, over the whole."""
    noise = range_noise(spec.laws(Budget(**budget)))
    laws = [noise.total] + [noise.dense] * (len(spec.dense_depths) - 1)
    laws += [noise.leaf] * (len(parts(one)) - len(laws))
    share = 0.0
    for law, a, b in zip(laws, parts(one), parts(other), strict=True):
        moved = (a - b).astype(float)
        match law:
            case RoundedGaussian(sigma):
                share += float(moved @ moved) / sigma**2 / (2 * budget["rho"])
            case DiscreteLaplace(epsilon, sensitivity):
                share += float(np.abs(moved).sum()) * epsilon / sensitivity / budget["epsilon"]
    return share


@settings(max_examples=15, deadline=None)
@given(values, values, values)
def test_merge_commutes_and_associates_and_is_one_pass(a: list[int], b: list[int], c: list[int]) -> None:
    unit = dps.per_record()
    left, right, whole = built(a, unit), built(c, unit), built(a + b + c, unit)
    left.merge(built(b, unit))
    left.merge(built(c, unit))
    right.merge(built(b, unit))
    right.merge(built(a, unit))
    for x, y, z in zip(parts(left), parts(right), parts(whole), strict=True):
        assert np.array_equal(x, y)
        assert np.array_equal(x, z)


@settings(max_examples=15, deadline=None)
@given(values, st.integers(0, 2**BITS - 1), st.integers(0, 2**BITS - 1), relations, st.sampled_from([1, 3]))
def test_a_record_stays_within_the_budget(shared: list[int], one: int, other: int, relation: str, weight: int) -> None:
    unit = dps.per_record(max_weight=weight, neighbours=relation)
    before = built([*shared, one], unit, weights=[1] * len(shared) + [weight])
    if relation == "replace":
        after = built([*shared, other], unit, weights=[1] * len(shared) + [weight])
    else:
        after = built(shared, unit)
    for budget in ({"rho": 0.5}, {"epsilon": 1.0, "delta": 0.0}):
        assert spent(before.spec, before, after, budget) <= 1


@settings(max_examples=15, deadline=None)
@given(values, values, values, relations)
def test_a_user_stays_within_the_budget(shared: list[int], mine: list[int], yours: list[int], relation: str) -> None:
    unit = dps.per_user(max_keys=3, max_weight=2, neighbours=relation)
    others = list(range(1, len(shared) + 1))
    before = built(shared + mine, unit, others + [0] * len(mine))
    second = yours if relation == "replace" else []
    after = built(shared + second, unit, others + [0] * len(second))
    for budget in ({"rho": 0.5}, {"epsilon": 1.0, "delta": 0.0}):
        assert spent(before.spec, before, after, budget) <= 1


def test_the_worst_units_spend_all_of_it() -> None:
    """The bound is tight: a user all of whose weight shares a node at each level; and close values come near."""
    unit = dps.per_user(max_keys=4, max_weight=2)
    nobody = built([], unit, [])
    alike = built([77] * 8, dps.per_record())
    assert 0.999 < spent(nobody.spec, alike, nobody, {"rho": 0.5}) <= 1
    close = built([64, 65, 66, 67] * 2, unit, [1] * 8)
    assert 0.8 < spent(nobody.spec, close, nobody, {"rho": 0.5}) <= 1
