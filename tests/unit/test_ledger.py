"""The ledger on SQLite: totals, charges and refusals."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from dpsketch import accounting
from dpsketch.errors import BudgetExceeded, InvalidInput, LedgerError, ReleaseRefused
from dpsketch.ledger import Ledger, Total
from dpsketch.privacy import ApproximateCost, GaussianCost, MomentCost, PureCost, Unit, ZcdpCost, per_record, per_user

RECORD = per_record()


def test_charges_add_up_to_the_total_and_not_beyond(ledger: Ledger) -> None:
    ledger.create("web", epsilon=1.0, delta=0, unit=RECORD)
    charges = [ledger.charge("web", [PureCost(0.1)], unit=RECORD, note=f"day {day}") for day in range(10)]
    assert [charge.id for charge in charges] == list(range(1, 11))
    assert charges[0].total == Total(1.0, 0)
    spent = ledger.spent("web")
    assert (spent.epsilon, spent.delta, spent.releases, spent.share) == (1.0, 0.0, 10, 1.0)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.charge("web", [PureCost(1e-6)], unit=RECORD)
    assert str(caught.value).startswith(
        "dataset 'web' has spent ε=1.000000 of 1.000000 at δ=0; this release would reach 1.000001. "
        "Nothing was charged or released."
    )
    assert ledger.spent("web") == spent


def test_refusals_that_no_smaller_budget_would_help(ledger: Ledger) -> None:
    ledger.create("pure", epsilon=5.0, delta=0, unit=RECORD)
    with pytest.raises(BudgetExceeded, match="δ above 0"):
        ledger.charge("pure", [GaussianCost(0.01)], unit=RECORD)
    ledger.create("rho", rho=5.0, unit=RECORD)
    with pytest.raises(BudgetExceeded, match="no ρ stands for"):
        ledger.charge("rho", [ApproximateCost(0.1, 1e-9)], unit=RECORD)
    ledger.create("tight", epsilon=5.0, delta=1e-9, unit=RECORD)
    with pytest.raises(BudgetExceeded, match="would reach ∞"):
        ledger.charge("tight", [ApproximateCost(0.1, 1e-6)], unit=RECORD)
    assert [ledger.spent(name).releases for name in ledger.datasets()] == [0, 0, 0]
    ledger.charge("tight", [ApproximateCost(0.1, 1e-9)], unit=RECORD)
    with pytest.raises(BudgetExceeded, match="not so much δ left"):
        ledger.charge("tight", [ApproximateCost(0.1, 1e-9)], unit=RECORD)


def test_what_a_refusal_says_to_fit_does(ledger: Ledger) -> None:
    ledger.create("web", epsilon=2, delta=0, unit=RECORD)
    ledger.charge("web", [PureCost(1.3)], unit=RECORD)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.charge("web", [PureCost(1.9)], unit=RECORD)
    said = float(str(caught.value).partition("ε up to ")[2].partition(" at")[0])
    assert not ledger.preview("web", [PureCost(said * 1.1)], unit=RECORD).allowed
    ledger.charge("web", [PureCost(said)], unit=RECORD)


def test_a_total_in_rho_is_compared_in_rho(ledger: Ledger) -> None:
    ledger.create("web", rho=0.5, unit=RECORD)
    for _ in range(5):
        ledger.charge("web", [GaussianCost(accounting.zcdp_mu(0.1))], unit=RECORD)
    assert ledger.spent("web").words == "ρ=0.50 of 0.50 spent in 5 releases"
    with pytest.raises(BudgetExceeded, match=r"has spent ρ=0\.\d+ of 0\.\d+; this release would reach 0\.\d+\."):
        ledger.charge("web", [PureCost(0.1)], unit=RECORD)


def test_every_kind_of_cost_survives_the_ledger(ledger: Ledger) -> None:
    """NumPy's numbers are stored as Python's; names and notes may be any text; bounds on users may differ."""
    costs = [
        PureCost(np.float32(0.5)),
        GaussianCost(np.int64(1)),
        ZcdpCost(0.01),
        ApproximateCost(0.1, 1e-9),
        MomentCost(np.float64(0.5), np.int32(20), 2),
    ]
    name, note = "données d'été; DROP TABLE dpsketch_entry --", "naïve 'quotes' \"and\" 文字"
    unit = per_user(50, max_weight=3)
    ledger.create(name, epsilon=50.0, delta=1e-6, unit=per_user(5))
    ledger.charge(name, costs, unit=unit, note=note)
    [entry] = ledger.history(name)
    assert entry.costs == tuple(costs)
    assert (entry.note, entry.unit, ledger.spent(name).unit) == (note, unit, per_user(5))
    assert ledger.spent(name).epsilon == accounting.compose(costs, delta=1e-6)
    json.dumps(entry.to_json())
    assert ledger.verify() == []


def test_a_dataset_that_nobody_created_is_recorded_without_a_total(ledger: Ledger) -> None:
    assert ledger.charge("new", [PureCost(7.0)], unit=RECORD).total is None
    assert ledger.spent("new").words == "ε=7.00 at δ=0 spent in 1 release; no total was set"


def test_a_total_can_be_set_late_but_only_once_and_only_if_it_holds(ledger: Ledger) -> None:
    ledger.charge("web", [PureCost(0.5)], unit=RECORD)
    with pytest.raises(LedgerError, match="already passed that total"):
        ledger.create("web", epsilon=0.4, delta=0, unit=RECORD)
    with pytest.raises(ReleaseRefused, match="cannot be added up"):
        ledger.create("web", epsilon=1.0, delta=0, unit=per_user(3))
    ledger.create("web", epsilon=1.0, delta=0, unit=RECORD)
    assert ledger.charge("web", [PureCost(0.5)], unit=RECORD).id == 3
    with pytest.raises(BudgetExceeded):
        ledger.charge("web", [PureCost(0.5)], unit=RECORD)
    with pytest.raises(LedgerError, match="never changed"):
        ledger.create("web", epsilon=2.0, delta=0, unit=RECORD)
    assert ledger.verify() == []


@pytest.mark.parametrize("unit", [per_user(5), per_record(neighbours="replace")])
def test_units_that_cannot_be_added_up_are_refused(ledger: Ledger, unit: Unit) -> None:
    ledger.create("web", epsilon=1.0, delta=0, unit=RECORD)
    for use in (ledger.charge, ledger.preview):
        with pytest.raises(ReleaseRefused, match="cannot be added up"):
            use("web", [PureCost(0.1)], unit=unit)
    assert ledger.spent("web").releases == 0


def test_charges_that_are_refused(ledger: Ledger) -> None:
    for costs, words in (([], "at least one cost"), ([PureCost(math.inf)], "finite"), ([PureCost(-1.0)], "of range")):
        with pytest.raises(InvalidInput, match=words):
            ledger.charge("web", costs, unit=RECORD)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="note"):
        ledger.charge("web", [PureCost(1.0)], unit=RECORD, note="x\ny")
    with pytest.raises(InvalidInput, match="needs a budget"):
        ledger.create("web", unit=RECORD)
    for name in ("", "x" * 201, "a\nb"):
        with pytest.raises(InvalidInput, match="dataset's name"):
            ledger.charge(name, [PureCost(1.0)], unit=RECORD)
        with pytest.raises(InvalidInput, match="dataset's name"):
            ledger.create(name, epsilon=1.0, delta=0, unit=RECORD)
    assert ledger.datasets() == []


def test_the_file_has_a_write_ahead_log_and_every_commit_is_synchronised(ledger: Ledger, path: Path) -> None:
    ledger.charge("web", [PureCost(1.0)], unit=RECORD)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with closing(ledger._store._open()) as inner:
        assert inner.rows("PRAGMA synchronous") == [(2,)]


def test_a_file_that_is_no_ledger_is_refused_in_a_sentence(path: Path) -> None:
    path.write_bytes(b"this is not a database, and long enough to be looked at as one" * 20)
    for place in (path, path.with_name("a" * 300), path / "below a file.db"):
        with pytest.raises(
            LedgerError, match=r"could not be used|cannot be kept there.*DPSKETCH_LEDGER=sqlite:///|there is no ledger"
        ):
            Ledger(place).charge("web", [PureCost(1.0)], unit=RECORD)
