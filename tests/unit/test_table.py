"""Tables: which columns they take, in which order, and what their releases say."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dpsketch as dps

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
