"""A kind that does something wrong is refused: each test writes a kind, or a law, for one wrong thing.

The core promises that no kind can print a guarantee that its draws do not have. Wrong numbers in a kind's own tables
are found by ``test_moves``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.core.account import Account
from dpsketch.core.codec import decode, encode, stored
from dpsketch.core.laws import Additive, Arrays, Law
from dpsketch.core.move import Move, Table
from dpsketch.core.permit import Handle, Permit
from dpsketch.errors import FileRefused, ReleaseRefused
from dpsketch.laws.calibration import additive
from dpsketch.noise import RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.privacy import Budget, GaussianCost, PureCost, Unit
from oracles.moves import admits

BUDGETS = [Budget(1.0, 1e-6), Budget(1.0, 0), Budget(rho=0.1)]
ASKED = BUDGETS[0]


@stored
@dataclass(frozen=True)
class TwoTables:
    """The public spec of a kind with two tables."""

    unit: Unit

    def tables(self) -> tuple[Table, ...]:
        return Table("left", (2, 3), Move.each(2, 1, signed=True)), Table("right", (4,), Move.heaped(3, 3))

    def laws(self, budget: Budget) -> tuple[Law, ...]:
        left, right = self.tables()
        return additive(budget, self.unit.neighbours, {left: 0.25, right: 0.75})

    protects = None

    def words(self, laws: tuple[Law, ...]) -> str:
        return "two tables"


KIND = TwoTables(dps.per_record())
STATE = {"left": np.zeros((2, 3), np.int64), "right": np.zeros(4, np.int64)}


def paid(*laws: Law, asked: Budget = ASKED, kind: Any = KIND) -> Permit:
    return Permit.pay(kind, laws or kind.laws(asked), asked, Account(), note="a test")


@stored
@dataclass(frozen=True, slots=True)
class Wrong(Additive):
    """A law that draws in a wrong way."""

    way: str = "right"

    def draw(self, state: Mapping[str, Any], handle: Handle) -> Arrays:
        table = state[self.table.name]
        match self.way:
            case "twice":
                handle.add(table, "noise")
                return {"table": handle.add(table, "noise")}
            case "in two pieces":
                handle.add(table, "noise", piece=1)
                return {"table": handle.add(table, "noise", piece=2)}
            case "another slot":
                return {"table": handle.add(table, "quieter")}
            case "a member of no family":
                return {"table": handle.add(table, "noise", member=3)}
            case "not at all":
                return {"table": table}
        return {"table": handle.add(table, "noise")}


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("twice", "drawn before"),
        ("in two pieces", "drawn before"),
        ("another slot", "no slot"),
        ("a member of no family", "no family"),
        ("not at all", "not drawn"),
    ],
)
def test_a_law_draws_its_noise_once_as_it_states_it(way: str, words: str) -> None:
    law = KIND.laws(ASKED)[0]
    assert isinstance(law, Additive)
    with pytest.raises(ReleaseRefused, match=words):
        paid(Wrong(law.table, law.neighbours, law.noise, way)).draw_all(STATE)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_guarantee_is_composed_from_what_was_drawn(budget: Budget) -> None:
    drawn = paid(asked=budget).draw_all(STATE)
    assert drawn.guarantee.epsilon == pytest.approx(
        budget.epsilon or dps.accounting.compose(drawn.guarantee.costs, delta=1e-6)
    )
    costs = [cost for law in KIND.laws(budget) for cost in law.costs()]
    (charged,) = drawn.guarantee.costs
    if isinstance(charged, GaussianCost):
        assert charged.mu**2 == pytest.approx(sum(cost.mu**2 for cost in costs))
    else:
        assert charged.epsilon == pytest.approx(sum(cost.epsilon for cost in costs))
    assert drawn.guarantee.holds


def test_noise_is_not_drawn_before_it_is_paid_for() -> None:
    with pytest.raises(ReleaseRefused, match="paid for"):
        Permit()
    with pytest.raises(ReleaseRefused, match="paid for"):
        Handle()


def test_a_law_is_drawn_once() -> None:
    permit = paid()
    permit.draw_all(STATE)
    with pytest.raises(ReleaseRefused, match="drawn before"):
        permit.draw(permit.laws[0], STATE)


def test_a_law_that_was_not_paid_for_is_not_drawn() -> None:
    permit = paid()
    first = permit.laws[0]
    assert isinstance(first, Additive)
    with pytest.raises(ReleaseRefused, match="not paid for"):
        permit.draw(replace(first, noise=RoundedGaussian(0.1)), STATE)


def test_a_forgotten_part_promises_nothing() -> None:
    permit = paid()
    left = permit.draw(permit.laws[0], STATE)
    with pytest.raises(ReleaseRefused, match="not drawn"):
        permit.guarantee()
    with pytest.raises(ReleaseRefused, match="not drawn"):
        permit.drawn()
    # Nor can a kind put the exact data in the place of what was drawn.
    with pytest.raises(ValueError, match="read-only"):
        left["table"][:] = STATE["left"]  # type: ignore[index]


def test_a_cost_cannot_be_stated() -> None:
    """No law takes a cost, and half the noise costs twice as much."""
    law = KIND.laws(ASKED)[0]
    assert isinstance(law, Additive)
    with pytest.raises(TypeError):
        Additive(law.table, law.neighbours, law.noise, costs=(PureCost(0.1),))  # type: ignore[call-arg]
    assert isinstance(law.noise, RoundedGaussian)
    quieter = replace(law, noise=RoundedGaussian(law.noise.sigma / 2))
    assert quieter.costs()[0].mu == pytest.approx(2 * law.costs()[0].mu)  # type: ignore[union-attr]
    with pytest.raises(ReleaseRefused, match="cost more"):
        paid(quieter, KIND.laws(ASKED)[1])


def test_a_law_for_a_lighter_table_or_another_relation_is_refused() -> None:
    law = KIND.laws(ASKED)[0]
    assert isinstance(law, Additive)
    lighter = replace(law, table=replace(law.table, move=Move.each(1, 1, signed=True)))
    with pytest.raises(ReleaseRefused, match="another table"):
        paid(lighter)
    with pytest.raises(ReleaseRefused, match="another neighbour relation"):
        paid(law, kind=TwoTables(dps.per_record(neighbours="replace")))


def test_two_laws_of_one_name_are_refused() -> None:
    law = KIND.laws(ASKED)[0]
    with pytest.raises(ReleaseRefused, match="name of its own"):
        paid(law, law)


def test_a_draw_from_a_seed_is_never_a_guarantee() -> None:
    with seeded_noise_for_tests_only(1):
        drawn = paid().draw_all(STATE)
    assert not drawn.guarantee.holds


def test_an_interrupted_draw_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    permit = paid()
    with monkeypatch.context() as patch:
        patch.setattr(RoundedGaussian, "sample", interrupted)
        with pytest.raises(KeyboardInterrupt):
            permit.draw(permit.laws[0], STATE)
    with pytest.raises(ReleaseRefused, match="drawn before"):
        permit.draw(permit.laws[0], STATE)


def test_an_integer_that_no_header_holds_is_written_as_text_in_one_way() -> None:
    for number in (2**64, 2**80, -(2**63) - 1):
        assert encode(number) == str(number)
        assert decode(str(number), int) == number
    for text in ("5", "+18446744073709551616", "018446744073709551616", "1_8446744073709551616", "", "x", 65 * "1"):
        for wrong in (text, text + " "):
            with pytest.raises(FileRefused):
                decode(wrong, int)


@pytest.mark.parametrize("signed", [False, True])
def test_neighbours_differ_by_no_more_than_follows_from_a_move(signed: bool) -> None:
    """All pairs of contributions of a small table, against the bound; the bound is reached."""
    values = range(-2, 3) if signed else range(3)
    units = [np.array([a, b, c]) for a in values for b in values for c in values]
    move = Move(3, 5, 2, 2, signed)
    units = [unit for unit in units if admits(move, unit)]
    apart = move.between("replace")
    differences = [first - second for first in units for second in units]
    assert max(int(np.abs(each).sum()) for each in differences) <= apart.l1
    assert max(int((each**2).sum()) for each in differences) <= apart.squared
    assert max(int(np.abs(each).max()) for each in differences) <= apart.most
    assert max(int(np.count_nonzero(each)) for each in differences) <= apart.cells
    if signed:
        assert max(int((each**2).sum()) for each in differences) == apart.squared


def test_one_cell_that_never_decreases_moves_once() -> None:
    move = Move.heaped(1, 7)
    assert move.between("replace", one_cell=True) == move.between("add_remove")
    assert move.between("replace").squared == 2 * 49
    signed = Move.heaped(1, 7, signed=True)
    assert signed.between("replace", one_cell=True).squared == 4 * 49
