"""Tables: which columns they take, in which order, and what their releases say."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.laws.centred import are_chosen

SALES = pa.table(
    {
        "country": ["FR", "US", "FR", "DE"] * 200,
        "visitor": [i // 4 for i in range(800)],
        "amount": [1.0, 2.0, 3.0, 4.0] * 200,
    }
)


@pytest.mark.parametrize("user", [None, "visitor"])
def test_columns_come_in_any_order(user: str | None) -> None:
    asked = [dps.sum("amount"), dps.count(), dps.mean("amount"), dps.quantiles("amount", [0.5])]
    for columns in (asked, asked[::-1], asked[2:] + asked[:2]):
        table = dps.Table(by="country", user=user, columns=columns)
        table.update(SALES)
        private = table.release(epsilon=1.0, delta=1e-6)
        names = [name for column in columns for name in column.names]
        assert [name for name in private.columns if not name.endswith(("_low", "_high"))] == ["country", *names]


@pytest.mark.parametrize("rows", [0, 1])
def test_quantiles_without_a_shape_are_published(rows: int) -> None:
    """No value stands out of the noise: the leaves have no inner edge where the grid is wider than the range."""
    table = dps.Table(by="country", columns=[dps.quantiles("amount", [0.5], grid=1)])
    table.update(SALES.slice(0, rows))
    private = table.release(groups=["FR"], epsilon=1.0, delta=1e-6)
    assert private.to_arrow().num_rows == 1


def test_sum_and_mean_of_records_share_the_bounds_that_one_states() -> None:
    table = dps.Table(by="country", columns=[dps.sum("amount", bounds=(0, 10)), dps.mean("amount")])
    table.update(SALES)
    assert table.release(epsilon=1.0, delta=1e-6).bounds == {"sum_amount": (0.0, 10.0), "mean_amount": (0.0, 10.0)}
    with pytest.raises(dps.InvalidInput, match="two ranges"):
        dps.Table(by="country", columns=[dps.sum("amount", bounds=(0, 10)), dps.mean("amount", bounds=(0, 5))])


@pytest.mark.parametrize("bounds", [(0.0, 1e-310), (0.0, 5e-324), (2.0, 2.0), (2.0**49, 2.0**50)])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
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


def test_what_a_file_calls_chosen_is_bounds() -> None:
    good, tree = np.array([1.0, 4.0]), np.array([1.0, 2.0, np.inf])
    assert are_chosen(good, 2, "total")
    assert are_chosen(good, 2, "count")
    assert are_chosen(tree, 3, "tree")
    for bad, kind in [
        (tree[1:], "total"), (good[::-1], "total"), (good.astype(int), "total"), (good * 1e300, "total"),
        (good * np.nan, "tree"), (good + 1, "count"), (good + 0.5, "count"), (tree[1:], "edges"), (tree, "tree"),
    ]:  # fmt: skip
        assert not are_chosen(bad, 2, kind), (bad, kind)


def test_no_cut_is_reported_where_all_values_lie_at_a_bound() -> None:
    for value in (1.0, 4.0, 100.0):
        table = dps.Table(by="country", columns=[dps.sum("amount", bounds=(0, value))])
        table.update(pa.table({"country": ["FR"] * 20_000, "amount": [value] * 20_000}))
        assert table.release(epsilon=4.0, delta=1e-6).cut["sum_amount"] == pytest.approx(0.0, abs=0.01)


def test_ranges_of_quantiles_are_said() -> None:
    table = dps.Table(by="country", columns=[dps.quantiles("amount", [0.5], bounds=(0, 2))])
    table.update(SALES)
    private = table.release(epsilon=1.0, delta=1e-6)
    assert private.bounds == {"quantile_amount_0.5": (0.0, 2.0)}
    assert "clipped to 0 to 2" in private.meanings["quantile_amount_0.5"]
