"""What releases print, held against a second opinion on what they drew, over random specs and budgets."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import dpsketch as dps
import second_opinion
from recording import record_of, recording
from second_opinion import Draw, Promise, Record, gaussian_epsilon, opinion

PLANE = dps.kernels.Euclidean(dim=2, bandwidth=1.0)

UNITS = st.builds(
    lambda level, keys, weight, relation: (
        dps.per_user(keys, max_weight=weight, neighbours=relation)
        if level == "user"
        else dps.per_record(max_weight=weight, neighbours=relation)
    ),
    st.sampled_from(["record", "user"]),
    st.integers(1, 20),
    st.integers(1, 9),
    st.sampled_from(["add_remove", "replace"]),
)
ODD = st.integers(0, 4).map(lambda half: 2 * half + 1)
EPSILON = st.floats(0.05, 8.0)
BUDGETS = st.one_of(
    st.builds(lambda epsilon, delta: {"epsilon": epsilon, "delta": delta}, EPSILON, st.floats(1e-9, 1e-3)),
    st.builds(lambda epsilon: {"epsilon": epsilon, "delta": 0.0}, EPSILON),
    st.builds(lambda rho: {"rho": rho}, st.floats(1e-3, 2.0)),
)


def counts(unit: dps.Unit, budget: dict[str, float], rows: int, size: int) -> Record:
    sketch = dps.CountSketch(rows=rows, width=2 + size, unit=unit)
    return released(sketch, budget)


def heavy(unit: dps.Unit, budget: dict[str, float], rows: int, size: int) -> Record:
    return released(
        dps.HeavyHitters(rows=rows, width=2 + size, key_bits=8 + size % 8 + 16 * (size % 2), unit=unit), budget
    )


def ranges(unit: dps.Unit, budget: dict[str, float], rows: int, size: int) -> Record:
    bits = 1 + size % 26
    level_bits = 8 if bits > 12 else 1 + size % 4  # few cells a level, and sketched levels from 17 bits on
    sketch = dps.RangeSketch(bits=bits, level_bits=level_bits, rows=rows, width=8, unit=unit)
    return released(sketch, budget)


def density(unit: dps.Unit, budget: dict[str, float], rows: int, size: int) -> Record:
    pure = budget.get("delta") == 0
    placement: Any = "one_row" if pure and size % 2 else "every_row"
    unit = replace(unit, max_weight=1)
    sketch = dps.DensitySketch(kernel=PLANE, rows=1 + rows, width=8, unit=unit, placement=placement)
    return released(sketch, budget, count_share=0.0 if size % 3 == 0 else 0.1)


def distinct(unit: dps.Unit, budget: dict[str, float], rows: int, size: int) -> Record:
    sketch = dps.DistinctSketch(buckets=16 + size, unit=replace(unit, max_weight=1))
    if "rho" in budget or size % 2:
        return released(sketch, budget)
    with recording() as draws:
        release = sketch.release_mergeable(epsilon=budget["epsilon"])
    return record_of(release, draws)


def sparse(unit: dps.Unit, budget: dict[str, float], rows: int, size: int) -> Record:
    budget = {"epsilon": 0.5, "delta": 1e-6} if "rho" in budget else budget
    budget = {**budget, "epsilon": max(budget["epsilon"], 0.5)}
    known = {"max_value": float(10 * unit.max_weight)} if size % 2 else {}
    return released(dps.SparseHistogram(unit=unit, domain=2**20, expected_keys=4, **known), budget)


def moment(unit: dps.Unit, budget: dict[str, float], rows: int, size: int) -> Record:
    budget = {"epsilon": budget.get("epsilon", 1.0), "delta": 0.0}
    if size % 2:
        return released(dps.MomentSketch(p=0.5 + 0.1 * rows / 3, size=10 + size, unit=unit), budget)
    return released(dps.MomentProfile(p=[0.5, 1], size=10 + size, unit=unit), budget)


def continual(unit: dps.Unit, budget: dict[str, float], rows: int, size: int) -> Record:
    unit, days = as_record(unit), 1 + size % 9
    # What is exact about blocks and bands is held here; what floors add, in tests/unit/test_continual_designs.py.
    names = ["tree", "daily"] if budget.get("delta") == 0 else ["tree", "daily", "banded"]
    shape: Any = {"rows": rows, "width": 8, "unit": unit, "key_type": "int", "design": names[size % len(names)]}
    with recording() as draws:
        sketch = dps.ContinualCountSketch(days=days, **shape, **budget)
        for day in range(days):
            release = sketch.day([day])
    state = np.zeros((sketch.design.buffers, 1), np.int64)
    column: list[int] = []
    for day in range(1, days + 1):
        one = np.array([int(day == 1)])
        column += [int(table[0]) for _, table in sketch.design.step(state, one, day)]
    return record_of(release, draws, "continual", column=column, tables=len(sketch.published))


def pan_private(unit: dps.Unit, budget: dict[str, float], rows: int, size: int) -> Record:
    with recording() as draws:
        sketch = dps.PanPrivateCountSketch(rows=rows, width=8, unit=as_record(unit), key_type="int", **budget)
        sketch.update([size])
        release = sketch.publish()
    return record_of(release, draws, "pan-private")


def as_record(unit: dps.Unit) -> dps.Unit:
    return dps.per_record(max_weight=unit.max_weight, neighbours=unit.neighbours)


def groups(unit: dps.Unit, budget: dict[str, float], rows: int, size: int) -> Record:
    user = unit.level == "user"
    columns = [dps.sum("x", bounds=(0, 1) if size % 2 else None), dps.mean("y", over="users")][: size % 3]
    columns = [
        dps.users(),
        *columns,
        dps.quantiles("x", [0.5, 0.9][: 1 + size % 2], bounds=(0, 1) if size % 2 else None),
    ]
    options = {"user": "u", "max_keys": unit.max_keys} if user else {}
    table = dps.Table(by="g", columns=columns, neighbours=unit.neighbours, **options)
    listed = [f"g{i}" for i in range(rows)]
    with recording() as draws:
        release = table.release(**budget, groups=listed)
    return record_of(release, draws, groups=rows)


def released(sketch: Any, budget: dict[str, float], **options: Any) -> Record:
    with recording() as draws:
        release = sketch.release(**budget, **options)
    return record_of(release, draws)


KINDS = [counts, heavy, ranges, density, distinct, sparse, moment, continual, pan_private, groups]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(unit=UNITS, budget=BUDGETS, rows=ODD, size=st.integers(0, 40))
def test_what_is_printed_is_what_was_drawn(
    kind: Any, unit: dps.Unit, budget: dict[str, float], rows: int, size: int
) -> None:
    """No more was spent than is printed; and not much less, or the budget would be wasted."""
    record = kind(unit, budget, rows, size)
    spent, printed = opinion(record)
    assert spent <= printed * (1 + 1e-9)
    # What is printed is rounded up to four digits; a stability cutoff, a share of a profile and a rounding down of
    # grid and clip may leave a little.
    assert spent > 0.93 * printed, (spent, printed)


def test_it_shares_nothing_with_the_accounting() -> None:
    source = Path(second_opinion.__file__).read_text()
    assert len(source.splitlines()) < 330
    names = [
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert not any(name and name.startswith("dpsketch") for name in names)


def test_the_formula_by_long_hand() -> None:
    """σ of the analytic calibration at (1, 10⁻⁶) is 4.2247 (Balle and Wang's program), and Laplace noise is itself."""
    assert gaussian_epsilon(1 / 4.2247, 1e-6) == pytest.approx(1.0, rel=1e-4)
    assert gaussian_epsilon(1 / 4.2247, 0.0) == math.inf


def record(**changed: Any) -> Record:
    found = counts(dps.per_user(3, neighbours="replace"), {"epsilon": 1.0, "delta": 1e-6}, 3, 14)
    return replace(found, **changed)


@pytest.mark.parametrize("factor", [0.8, 0.5, 0.99])
def test_less_noise_is_seen(factor: float) -> None:
    (draw,) = record().draws
    quiet = Draw(draw.law, {"sigma": factor * draw.numbers["sigma"]}, draw.size)
    spent, printed = opinion(record(draws=[quiet]))
    assert spent > printed * (1 + 1e-6)


def test_another_sentence_is_seen() -> None:
    words = record().words
    assert opinion(record())[0] <= 1 + 1e-9
    spent, printed = opinion(record(words=words.replace("ε = 1", "ε = 0.3333", 1)))
    assert spent > 2 * printed
    spent, printed = opinion(record(words=words.replace(", δ = 1e-06", "", 1)))
    assert spent > printed
    for old, new in [("replaced by another", "added or removed"), ("user with all their records", "record")]:
        with pytest.raises(ValueError, match="another unit"):
            opinion(record(words=words.replace(old, new, 1)))
    with pytest.raises(ValueError, match="promises nothing"):
        Promise.read("NOT PRIVATE: it came from a seed")


def test_a_draw_for_half_of_the_numbers_is_seen() -> None:
    (draw,) = record().draws
    with pytest.raises(ValueError, match="number by number"):
        opinion(record(draws=[replace(draw, size=draw.size // 2)]))
    with pytest.raises(ValueError, match="values to unpack"):
        opinion(record(draws=[draw, draw]))
