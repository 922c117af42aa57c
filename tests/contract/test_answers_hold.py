"""What a release answers holds: its intervals are as wide as the law says, and so is every view of it.

Draws repeat from run to run. Each test states how often fresh draws would fail it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.answers import answer, compare
from dpsketch.errors import InvalidInput
from dpsketch.laws.corners import CornerTable
from drawn import law_of

GAUSSIAN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
ONE = dps.per_record()


@pytest.mark.statistical
def test_a_rolled_up_head_count_has_the_deviation_that_it_states() -> None:
    """All rows of a short list share the noise of one number, which adds up with their number.

    The deviation of 100 errors is above 1.3 of the stated one with probability 1e-5; without the shared noise's
    square it is 1.6.
    """
    users, names = 300, [f"g{i}" for i in range(9)]
    table = dps.Table(by="g", columns=[dps.users()], user="u", max_keys=len(names))
    table.update(pa.table({"g": names * users, "u": np.repeat(np.arange(users), len(names))}))
    errors = []
    for _ in range(100):
        release = table.release(**GAUSSIAN, groups=names)
        (row,) = release.rollup().to_arrow().to_pylist()
        errors.append((row["users"] - users * len(names)) / (row["users_high"] - row["users_low"]))
    assert np.sqrt(np.mean(np.square(errors))) * 2 * 1.96 < 1.3


@pytest.mark.statistical
def test_numbers_of_all_other_groups_are_covered_under_laplace_noise() -> None:
    """20 intervals of 95%: more than 8 miss with probability 1e-6."""
    names = ["x"] * 500 + [f"s{i}" for i in range(1000)]
    table = dps.Table(by="a", columns=[dps.sum("v", bounds=(0, 5))])
    table.update(pa.table({"a": names, "v": [1.0] * 500 + [3.0] * 1000}))
    missed = 0
    for _ in range(20):
        release = table.release(epsilon=1.0, delta=1e-9)
        assert isinstance(release.law, CornerTable)
        truth = 3500 - sum(500.0 if name == "x" else 3.0 for name in release.groups)
        missed += not release.others["sum_v_low"] <= truth <= release.others["sum_v_high"]
    assert missed <= 8


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_and_blanks_are_the_same_for_numbers_of_the_other_sign(sign: int) -> None:
    """A rolled-up interval reaches as far as unlisted groups may go, and a blank depends on a number's size."""
    bounds = (0, 5) if sign > 0 else (-5, 0)
    table = dps.Table(by=["a", "b"], columns=[dps.sum("v", bounds=bounds)])
    names = ["big"] * 2000 + [f"s{i}" for i in range(2000)]
    table.update(pa.table({"a": ["x"] * 4000, "b": names, "v": [1.0 * sign] * 2000 + [5.0 * sign] * 2000}))
    release = table.release(**GAUSSIAN)
    (row,) = release.rollup("a").to_arrow().to_pylist()
    assert row["sum_v_low"] <= sign * 12_000 <= row["sum_v_high"]
    (kept,) = release.to_arrow(max_relative_error=0.5).to_pylist()
    assert not math.isnan(kept["sum_v"])
    assert abs(kept["sum_v"] - sign * 2000) < 500


@pytest.mark.parametrize(
    ("clause", "names"), [("LIMIT 2 OFFSET 3", "de"), ("LIMIT 9 OFFSET 4", "ef"), ("OFFSET 2", "cdef"), ("LIMIT 0", "")]
)
def test_limits_show_the_rows_that_a_list_has_there(clause: str, names: str) -> None:
    records = pa.table({"a": list("abcdef") * 500})
    found = dps.sql(f"SELECT a, COUNT(*) AS n FROM f GROUP BY a ORDER BY a {clause}", {"f": records}, **GAUSSIAN)
    assert "".join(found.to_arrow().column("a").to_pylist()) == names


@pytest.mark.parametrize("by", [["g"], ["g", "h"]])
def test_every_view_gives_a_group_its_own_numbers(by: list[str]) -> None:
    """The public list is in no order, and the noise is next to nothing."""
    sizes = {"US": 300, "DE": 100, "FR": 200, "AT": 400}
    table = dps.Table(by=by, columns=[dps.count(), dps.sum("v", bounds=(0, 9))])
    names = [name for name, size in sizes.items() for _ in range(size)]
    table.update(pa.table({"g": names, "h": names, "v": [2.0] * len(names)}))
    listed = list(sizes) if len(by) == 1 else pa.table({"g": list(sizes), "h": list(sizes)})
    release = table.release(rho=1e9, groups=listed)
    text = {name: ",".join([name] * len(by)) for name in sizes}
    for column, each in (("count", 1), ("sum_v", 2)):
        right = pytest.approx({name: each * size for name, size in sizes.items()}, abs=0.1)
        some = release.only(list(text.values())).to_arrow()
        assert some["g"].to_pylist() == list(sizes)
        for rows in (release.to_arrow(), some, release.rollup("g").to_arrow()):
            assert dict(zip(rows["g"].to_pylist(), rows[column].to_pylist(), strict=True)) == right
        found = release.rows.estimates(column)
        assert {str(key).split(",")[0]: value for key, value in zip(found.key, found.value, strict=True)} == right
        asked = answer(release, [text["US"]], 0.95, None)
        assert {key[-1]: value for key, value in zip(asked.key, asked.value, strict=True)}[column] == pytest.approx(
            each * sizes["US"], abs=0.1
        )


def test_two_tables_are_compared_number_by_number() -> None:
    """In whatever order each has its columns and its groups."""
    columns = [dps.count(), dps.sum("v", bounds=(0, 9)), dps.mean("v", bounds=(0, 9))]
    found = []
    for each, groups, times in ((columns, ["x", "y"], 1), (columns[::-1], ["y", "x"], 2)):
        table = dps.Table(by="a", columns=each)
        table.update(pa.table({"a": ["x"] * 100 * times + ["y"] * 300, "v": [2.0] * 100 * times + [3.0] * 300}))
        found.append(table.release(rho=1e9, groups=groups))
    change, _ = compare(*found, [], 0.95)
    right = {("x", "count"): 100, ("x", "sum_v"): 200, ("x", "mean_v"): 0}
    right |= {("y", "count"): 0, ("y", "sum_v"): 0, ("y", "mean_v"): 0}
    for side in (change.value, change.low, change.high):
        assert dict(zip(map(tuple, change.key), side, strict=True)) == pytest.approx(right, abs=0.1)


def test_means_over_users_and_over_records_are_not_compared() -> None:
    records = pa.table({"a": ["x"] * 4000, "u": [0] * 2000 + list(range(1, 2001)), "v": [10.0] * 2000 + [0.0] * 2000})
    columns = [dps.mean("v", bounds=(0, 10), over=over) for over in ("users", "records")]  # type: ignore[arg-type]
    tables = [dps.Table(by="a", columns=[column], user="u", max_keys=1, max_records=2000) for column in columns]
    for table in tables:
        table.update(records)
    users, others = (table.release(epsilon=5.0, delta=1e-6, groups=["x"]) for table in tables)
    with pytest.raises(InvalidInput):
        compare(users, others, ["x"], 0.95)


def test_a_change_of_a_quantile_has_the_doubt_of_both_ends() -> None:
    stream = dps.ContinualSketch(dps.RangeSketch(bits=10, unit=ONE), days=4, **GAUSSIAN)
    stream.day(list(range(100)) * 20)
    stream.day(list(range(200)) * 20)
    later, before = (stream.between(day, day).quantile(0.5, confidence=0.975) for day in (2, 1))
    change = stream.change(0.5, (2, 2), (1, 1))
    assert change.low[0] <= later.low - before.high
    assert change.high[0] >= later.high - before.low


def test_the_change_of_a_key_that_was_not_found_reaches_below_zero() -> None:
    stream = dps.ContinualSketch(dps.Histogram(unit=ONE, key_type="text"), days=4, **GAUSSIAN)
    stream.day(["a"] * 500 + ["q"] * 15)
    stream.day(["a"] * 500)
    assert "q" not in stream.total().keys
    change = stream.change("q", (2, 2), (1, 1))
    assert change.low[0] <= -15 <= change.high[0]


def test_a_name_of_one_user_on_many_days_is_not_shown() -> None:
    """The budget is so large that noise is next to nothing: what hides the name is that 20 days of a user count."""
    unit = dps.per_user(max_keys=1)
    stream = dps.ContinualSketch(
        dps.Histogram(unit=unit, key_type="text"), days=25, epsilon=5000.0, delta=1e-6, user_days=20
    )
    for day in range(20):
        stream.day(["secret", "known", *["known"] * 60], users=["ann", *(f"{day} {i}" for i in range(61))])
    names = stream.total().keys
    assert "known" in names
    assert "secret" not in names


# Where an answer's error is the stated noise alone, its interval is exactly as wide as that law says.

SMALL = {"epsilon": 0.002}


def listed(form: Any, delta: float) -> tuple[Any, Any]:
    histogram = dps.Histogram(unit=ONE, key_type="int")
    histogram.update([7], counts=[10**7])
    release = histogram.release(**SMALL, delta=delta, keys=[7], form=form, others=True)
    return lambda confidence: release.estimate([7], confidence=confidence), release.noise


def distinct(budget: dict[str, float]) -> tuple[Any, Any]:
    sketch = dps.DistinctSet(unit=ONE)
    sketch.update(np.arange(200_000))
    release = sketch.release(**budget)
    return release.interval, release.noise


def series() -> tuple[Any, Any]:
    stream = dps.ContinualSketch(
        dps.Histogram(unit=ONE, key_type="int"), keys=[7], days=2, design="daily", **SMALL, delta=1e-6
    )
    stream.day([7], counts=[10**7])
    found = stream.series()
    return lambda confidence: found.between(1, 1).estimate([7], confidence=confidence), found.law.noise


CASES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "histogram, gaussian": lambda: listed("gaussian", 1e-6),
    "histogram, laplace": lambda: listed("laplace", 1e-6),
    "distinct-set, laplace": lambda: distinct({**SMALL, "delta": 0.0}),
    "distinct-set, gaussian": lambda: distinct({"rho": 1e-6}),
    "a day of a series": series,
}


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("name", CASES)
def test_an_interval_is_as_wide_as_its_law(name: str, confidence: float) -> None:
    """By the law the noise stays within it at least so often, and within 3% less not: draws see no 3%."""
    ask, noise = CASES[name]()
    law, found = law_of(noise), ask(confidence)
    low, high = found if isinstance(found, tuple) else (float(found.low[0]), float(found.high[0]))
    half = np.array([(high - low) / 2])

    def held(reach: np.ndarray) -> float:
        return float((law.below(np.floor(reach)) - law.below(-np.floor(reach) - 1))[0])

    assert low > 0
    # An end that is no whole number may cost what lies between it and the next one.
    assert confidence - 1e-4 < held(half) < confidence + 1e-3
    assert held(0.97 * half) < confidence
