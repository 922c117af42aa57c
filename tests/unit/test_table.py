"""Tables: bounds of sums, rows as the service sends them, and the page that compares them with other libraries."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from benchmarks import table_rivals as rivals
from dpsketch.laws.bounds import BINS, EDGES, Shape
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.server import tables
from dpsketch.server.models import AskTable

SALES = pa.table(
    {
        "country": ["FR", "US", "FR", "DE"] * 200,
        "visitor": [i // 4 for i in range(800)],
        "amount": [1.0, 2.0, 3.0, 4.0] * 200,
    }
)


def test_quantiles_without_a_shape_are_published() -> None:
    """No value stands out of the noise: the leaves have no inner edge where the grid is wider than the range."""
    table = dps.Table(by="country", columns=[dps.quantiles("amount", [0.5], grid=1)])
    table.update(SALES.slice(0, 1))
    private = table.release(groups=["FR"], epsilon=1.0, delta=1e-6)
    assert private.to_arrow().num_rows == 1


@pytest.mark.parametrize(
    ("bounds", "delta"), [((0.0, 1e-310), 1e-6), ((0.0, 5e-324), 0.0), ((2.0, 2.0), 0.0), ((2.0**49, 2.0**50), 1e-6)]
)
def test_bounds_of_any_width_bound_a_user(bounds: tuple[float, float], delta: float) -> None:
    """At an ε that hides nothing, a sum is that of clipped totals: no cast of a float that is none adds to it."""
    table = dps.Table(by="country", user="visitor", max_keys=1, columns=[dps.users(), dps.sum("amount", bounds=bounds)])
    table.update(SALES)
    private = table.release(epsilon=1e6, delta=delta, groups=["FR", "US", "DE"])
    found = private.to_arrow()
    for users, total in zip(found["users"].to_pylist(), found["sum_amount"].to_pylist(), strict=True):
        assert 0 <= round(users) <= 200
        wide = bounds[1] - bounds[0]
        assert bounds[0] * users - 0.01 * wide - 1e-6 <= total <= bounds[1] * users + 0.01 * wide + 1e-6


GAUSSIAN, LAPLACE = RoundedGaussian(30.0), DiscreteLaplace(0.05, 1)


def shape(noise: Noise, **deviations: float) -> Shape:
    """Return a shape with some bins at some numbers of deviations; ``p3`` is the bin of 3, ``m3`` that of −3."""
    bins = np.zeros(BINS)
    for name, each in deviations.items():
        value = float(name[1:].replace("_", ".")) * (1 if name[0] == "p" else -1)
        bins[np.searchsorted(EDGES, value, side="right")] = each * np.sqrt(noise.variance)
    return Shape(np.ceil(bins).astype(np.int64), noise)


def chosen(found: Shape, *, mean: bool = False) -> tuple[float, float]:
    """Return the bounds that are chosen for a table of 50 rows with little noise."""
    return found.choose(rows=50, spread=0.01, values=1e4, column=100.0, users=100.0, mean=mean)[:2]


@pytest.mark.parametrize(("noise", "weak", "strong"), [(GAUSSIAN, 5.0, 5.6), (LAPLACE, 10.0, 13.0)])
def test_a_bin_far_beyond_the_others_needs_more_than_chance_gives(noise: Noise, weak: float, strong: float) -> None:
    """One of 300 shapes has a bin of noise at 4.25σ: bounds of a billion would follow from it."""
    assert chosen(shape(noise, p3=40, p1000000=weak))[1] <= 4
    assert chosen(shape(noise, p3=40, p1000000=strong))[1] > 1e5
    assert chosen(shape(noise, p3=40, m1000000=weak))[0] == 0
    assert chosen(shape(noise, p3=40, m1000000=strong))[0] < -1e5
    # Bins on the way lead there, as tails have them.
    assert chosen(shape(noise, p3=40, p30=weak, p300=weak))[1] > 250
    assert shape(noise, p3=3).seen is None


@pytest.mark.parametrize(("name", "value"), [("p2013", 2013.0), ("m5", -5.0)])
@pytest.mark.parametrize("mean", [False, True])
def test_many_equal_values_are_not_cut(name: str, value: float, mean: bool) -> None:
    """A bound inside the bin of all values cut 13% of 300,000 values of 2013, and said that it cut nothing."""
    found = shape(GAUSSIAN, **{name: 400})
    low, high, cut = found.choose(rows=3, spread=0.5, values=3e5, column=1e3, users=1e3, mean=mean)
    assert low <= value <= high
    assert cut == 0
    inside = found.cut(min(0.0, 0.9 * value), max(0.0, 0.9 * value))
    assert inside is not None
    assert inside > 0.05


def test_an_answer_has_a_limited_number_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    table = dps.Table(by=["day", "shop"], columns=[dps.count(), dps.sum("sales", bounds=(0, 10))])
    table.update(pa.table({"day": [1, 2, 3] * 400, "shop": ["north"] * 600 + ["south"] * 600, "sales": [5.0] * 1200}))
    release = table.release(epsilon=4.0, delta=1e-6)

    def ask(**asked: Any) -> Any:
        return json.loads(bytes(tables.rows_reply(release, AskTable(limit=10_000, **asked)).body))

    assert len(ask()["rows"]) == 6
    monkeypatch.setattr(tables, "_MOST_CELLS", 20)
    found = ask()
    assert (len(found["rows"]), len(found["columns"]), found["total"]) == (2, 8, 6)
    monkeypatch.setattr(tables, "_MOST_CELLS", 1)  # more columns than cells: still a row, so that a reader gets on
    assert len(ask(offset=5)["rows"]) == 1
    assert ask(offset=6)["rows"] == []


def test_the_page_has_what_was_measured_and_names_what_was_not() -> None:
    stored = json.loads(rivals.STORED.read_text(encoding="utf-8"))
    written = rivals.PAGE.read_text(encoding="utf-8").split(rivals.START)[1].split(rivals.END)[0]
    assert written.strip() == rivals.tables(stored).strip()
    measured = [f"{each['question']}: {each['library']}, {each['told']}" for each in stored["rows"]]
    asked = [f"{each.question}: {each.library}, {each.told}" for each in rivals.SETTINGS]
    assert sorted([*measured, *stored["lacking"]]) == sorted(asked)
