"""A payment for one release: used again while nothing was written, closed once, never trusted when it was edited."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dpsketch.errors import BudgetExceeded, LedgerError, ReleaseRefused
from dpsketch.ledger import Charge, Ledger, Payment, binding_of
from dpsketch.privacy import PureCost, Unit, per_record, per_user

RECORD = per_record()
IDS = frozenset({"a" * 32, "b" * 32})
COSTS = [PureCost(1.0)]


@pytest.fixture
def ledger(path: Path) -> Ledger:
    ledger = Ledger(path)
    ledger.create("web", epsilon=1.5, delta=0, unit=RECORD)
    return ledger


def pay(ledger: Ledger, binding: str = "x", *, costs: list[PureCost] = COSTS, unit: Unit = RECORD) -> Payment:
    payment = Payment(ledger, binding)
    payment.charge("web", costs, unit=unit, note="n")
    return payment


def test_an_open_charge_is_used_again_and_a_closed_one_is_not(ledger: Ledger) -> None:
    first, second = pay(ledger), pay(ledger)
    assert (first.resumed, second.resumed) == (False, True)
    assert first.made == second.made == Charge("web", 1, ledger.history("web")[0].digest)
    assert [entry.written for entry in ledger.history("web")] == [False]
    second.close()
    assert [entry.written for entry in ledger.history("web")] == [True]
    with pytest.raises(BudgetExceeded):
        pay(ledger)
    ledger.charge("web", [PureCost(0.25)], unit=RECORD)  # without a binding it is delivered when it is made
    assert [entry.written for entry in ledger.history("web")] == [True, None]
    assert ledger.verify() == []


def test_of_several_that_hold_one_charge_one_may_write(ledger: Ledger) -> None:
    def closed(payment: Payment) -> bool:
        try:
            payment.close()
        except ReleaseRefused:
            return False
        return True

    payments = [pay(ledger) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(closed, payments)) == 1


def test_a_charge_is_for_one_binding_one_cost_one_unit(ledger: Ledger) -> None:
    pay(ledger, costs=[PureCost(0.5)])
    cheap, heavy = [PureCost(0.1)], per_record(max_weight=2)
    others: list[dict[str, Any]] = [{"binding": "y", "costs": cheap}, {"costs": cheap}, {"unit": heavy, "costs": cheap}]
    for number, other in enumerate(others, 2):
        payment = pay(ledger, **other)
        assert (payment.resumed, payment.made is not None and payment.made.id) == (False, number)
    with pytest.raises(ReleaseRefused, match="cannot be added up"):
        pay(ledger, unit=per_user(1))


def test_a_binding_names_partials_budget_and_spec() -> None:
    known = {"budget": {"epsilon": 1.0}, "specs": [{"rows": 7}]}
    bindings = {
        binding_of(IDS, **known),
        binding_of(frozenset({"a" * 32}), **known),
        binding_of(IDS, **{**known, "budget": {"epsilon": 2.0}}),
        binding_of(IDS, **{**known, "specs": [{"rows": 5}]}),
    }
    assert len(bindings) == 4
    assert binding_of(frozenset(sorted(IDS, reverse=True)), **known) in bindings


def test_a_payment_pays_for_one_release(ledger: Ledger) -> None:
    payment = pay(ledger, costs=[PureCost(0.1)])
    with pytest.raises(LedgerError, match="one release only"):
        payment.charge("web", [PureCost(0.1)], unit=RECORD)
    with pytest.raises(LedgerError, match="has not been made"):
        Payment(ledger, "x").close()


def test_what_may_be_released_once_is_paid_for_once(ledger: Ledger) -> None:
    def paid(binding: str, cost: float = 0.25) -> Payment:
        payment = Payment(ledger, binding)
        payment.charge("web", [PureCost(cost)], unit=RECORD, note="n", once=["secret", "other"])
        return payment

    with pytest.raises(BudgetExceeded):
        paid("x", 2.0)
    paid("x")
    assert paid("x").resumed  # nothing was written for it
    for refused in (
        lambda: paid("y"),
        lambda: ledger.charge("web", COSTS, unit=RECORD, once=["secret"]),
        lambda: ledger.charge("new", COSTS, unit=RECORD, once=["other", "third"]),
    ):
        with pytest.raises(ReleaseRefused, match="as row 1 of dataset 'web'"):
            refused()
    paid("x").close()
    with pytest.raises(ReleaseRefused, match="charged before"):
        paid("x")
    assert len(ledger.history("web")) == 1
    assert ledger.datasets() == ["web"]


@pytest.mark.parametrize("change", ["name = 'y'", "charge = 'y'", "digest = 'z'", "id = 7"])
def test_an_edited_row_of_what_is_released_once_is_found(ledger: Ledger, tamper: Any, change: str) -> None:
    ledger.charge("web", [PureCost(0.25)], unit=RECORD, once=["secret"])
    tamper(f"UPDATE dpsketch_once SET {change}")
    assert ledger.verify() != []
    if "name" not in change:
        with pytest.raises((LedgerError, ReleaseRefused)):
            ledger.charge("web", [PureCost(0.25)], unit=RECORD, once=["secret"])


@pytest.mark.parametrize("change", ["state = 'charged'", "binding = 'x'", "charge = 'y'", "digest = 'z'", "id = 2"])
def test_an_edited_row_opens_nothing(ledger: Ledger, tamper: Any, change: str) -> None:
    """A written release that someone marks as unwritten is not drawn again for free; nor is one whose row is gone."""
    pay(ledger, "w" if "binding" in change else "x").close()
    tamper(f"UPDATE dpsketch_delivery SET {change}")
    with pytest.raises((LedgerError, BudgetExceeded)):
        pay(ledger)
    assert len(ledger.history("web")) == 1
    assert ledger.verify() != []
    tamper("DELETE FROM dpsketch_delivery")
    with pytest.raises(BudgetExceeded):
        pay(ledger)
