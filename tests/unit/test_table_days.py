"""A table for each day, each charged as a part of its dataset: what the days cost together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import BudgetExceeded, ReleaseRefused
from dpsketch.ledger import Ledger

DAYS = ("2026-11-16", "2026-11-17", "2026-11-18")
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "groups": ["FR", "US"]}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "budget.db")
    total: dict[str, Any] = {"epsilon": 1.2, "delta": 1e-6, "parts": "day"}
    ledger.create("records", **total, unit=dps.per_record())
    ledger.create("moved", **total | {"epsilon": 2.0, "delta": 3e-6}, unit=dps.per_record(neighbours="replace"))
    ledger.create("users", **total, unit=dps.per_user(max_keys=2))
    ledger.create("newcomers", **total, unit=dps.per_user(max_keys=2), disjoint_users=True)
    return ledger


def day_of(dataset: str) -> dps.Table:
    """The table of a day, with a user in each of its records."""
    columns = [dps.count(), dps.sum("amount", bounds=(0, 10))]
    unit = {"user": "user", "max_keys": 2, "max_records": 3} if dataset in ("users", "newcomers") else {}
    relation = "replace" if dataset == "moved" else "add_remove"
    table = dps.Table(by="country", columns=columns, neighbours=relation, **unit)
    table.update(pa.table({"country": ["FR", "US"] * 500, "amount": [5.0] * 1000, "user": [*range(500)] * 2}))
    return table


def release(dataset: str, ledger: Ledger, day: str) -> dps.PrivateTable:
    return day_of(dataset).release(**BUDGET, ledger=ledger, dataset=dataset, part=day)


@pytest.mark.parametrize("dataset", ["records", "newcomers"])
def test_days_that_share_no_unit_cost_as_much_as_the_dearest(dataset: str, ledger: Ledger) -> None:
    tables, spent = [], []
    for day in DAYS:
        tables.append(release(dataset, ledger, day))
        spent.append(ledger.spent(dataset).epsilon)
    assert [entry.part for entry in ledger.history(dataset)] == list(DAYS)
    assert spent == [pytest.approx(1.0, rel=1e-3)] * len(DAYS)
    counts = [table.to_arrow().column("count").to_pylist() for table in tables]
    assert all(abs(count - 500) < 200 for day in counts for count in day)
    with pytest.raises(BudgetExceeded):  # this day has spent its share
        release(dataset, ledger, DAYS[0])


def test_days_of_users_add_up(ledger: Ledger) -> None:
    """A user may come every day, so that a second day is more than the total."""
    release("users", ledger, DAYS[0])
    with pytest.raises(BudgetExceeded):
        release("users", ledger, DAYS[1])
    assert [entry.part for entry in ledger.history("users")] == [DAYS[0]]


def test_a_record_that_is_replaced_may_move_from_day_to_day(ledger: Ledger) -> None:
    """Two days count, and never three."""
    for day in DAYS:
        release("moved", ledger, day)
    assert 1.0 < ledger.spent("moved").epsilon <= 2.0


def test_one_table_is_not_two_days(ledger: Ledger) -> None:
    table = day_of("records")
    spend: dict[str, Any] = {**BUDGET, "ledger": ledger, "dataset": "records"}
    table.release(**spend, part=DAYS[0])
    with pytest.raises(ReleaseRefused, match="share no record"):
        table.release(**spend, part=DAYS[1])
