"""Disjoint parts of a dataset: what they cost together, held to exact mechanisms; their names; their rows."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import dpsketch as dps
from dpsketch.errors import BudgetExceeded, InvalidInput, LedgerError, ReleaseRefused
from dpsketch.ledger import Ledger, Payment
from dpsketch.ledger.parts import Division, worst_histories
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, MomentCost, Neighbours, PureCost, Unit, ZcdpCost

RECORD, REPLACED = dps.per_record(), dps.per_record(neighbours="replace")
USER = dps.per_user(max_keys=1)
MONDAY, TUESDAY, WEDNESDAY = "2026-11-16", "2026-11-17", "2026-11-18"

Records = tuple[int, ...]  # the part that each record is in


def neighbours(relation: Neighbours) -> Iterator[tuple[Records, Records]]:
    """All neighbouring datasets of up to two records in three parts."""
    datasets = [each for size in range(3) for each in itertools.combinations_with_replacement(range(3), size)]
    for one, other in itertools.product(datasets, repeat=2):
        added, removed = Counter(other) - Counter(one), Counter(one) - Counter(other)
        changes = (added.total(), removed.total())
        if changes in ({(1, 0), (0, 1)} if relation == "add_remove" else {(1, 1)}):
            yield one, other


def odds_of(records: Records, releases: list[tuple[int | None, float]]) -> list[float]:
    """The law of all releases together: each is the parity of its part's records, by randomised response.

    A release of the whole is of the parity of part 1's records, which a record's move may change as well.
    """
    law = [1.0]
    for part, epsilon in releases:
        parity = records.count(1 if part is None else part) % 2
        truth = 1 / (1 + math.exp(-epsilon))
        ones = truth if parity else 1 - truth
        law = [odds * chance for odds in law for chance in (ones, 1 - ones)]
    return law


def exact_epsilon(relation: Neighbours, releases: list[tuple[int | None, float]]) -> float:
    return max(
        math.log(ours / theirs)
        for one, other in neighbours(relation)
        for ours, theirs in zip(odds_of(one, releases), odds_of(other, releases), strict=True)
    )


RELEASES: list[list[tuple[int | None, float]]] = [
    [(0, 0.5), (1, 0.7), (2, 0.3)],
    [(0, 0.5), (1, 0.7), (0, 0.4), (2, 0.3)],
    [(None, 0.2), (0, 0.25), (1, 0.5), (1, 0.25)],
]


def charged(ledger: Ledger, unit: Unit, delta: float, releases: list[tuple[int | None, float]]) -> float:
    ledger.create("web", epsilon=50, delta=delta, unit=unit, parts="shop")
    for part, epsilon in releases:
        ledger.charge("web", [PureCost(epsilon)], unit=unit, part=None if part is None else f"shop {part}")
    return ledger.spent("web").epsilon


@pytest.mark.parametrize("unit", [RECORD, REPLACED], ids=lambda unit: unit.neighbours)
@pytest.mark.parametrize("releases", RELEASES)
def test_what_is_spent_is_what_the_mechanisms_show(
    ledger: Ledger, unit: Unit, releases: list[tuple[int | None, float]]
) -> None:
    """Exactly: over all neighbouring datasets and all outputs; in ρ as well where costs are stated in it."""
    assert charged(ledger, unit, 0, releases) == pytest.approx(exact_epsilon(unit.neighbours, releases), rel=1e-12)
    ledger.create("in rho", rho=50, unit=unit, parts="shop")
    for part, epsilon in releases:
        ledger.charge("in rho", [ZcdpCost(epsilon)], unit=unit, part=None if part is None else f"shop {part}")
    assert ledger.spent("in rho").rho == pytest.approx(exact_epsilon(unit.neighbours, releases))


def test_a_move_between_parts_shows_more_than_the_largest_part() -> None:
    """The twin: the largest part alone, or all parts together, is not what replacing a record shows."""
    releases = RELEASES[0]
    assert exact_epsilon("add_remove", releases) == pytest.approx(0.7)
    assert exact_epsilon("replace", releases) == pytest.approx(0.7 + 0.5)


COSTS: list[Cost] = [
    PureCost(0.5), ApproximateCost(0.4, 1e-8), GaussianCost(0.2), ZcdpCost(0.05), MomentCost(0.5, 50, 1.05),
]  # fmt: skip


@pytest.mark.parametrize("cheap", COSTS, ids=lambda cost: type(cost).__name__)
@pytest.mark.parametrize("dear", COSTS, ids=lambda cost: type(cost).__name__)
def test_no_part_costs_more_than_is_spent(ledger: Ledger, dear: Cost, cheap: Cost) -> None:
    """Two cheap charges of one part hide no charge of another part, of whatever kind they are."""
    for name, parts in (("alone", {MONDAY: [dear]}), ("both", {MONDAY: [dear], TUESDAY: [cheap, cheap]})):
        ledger.create(name, epsilon=50, delta=1e-5, unit=RECORD, parts="day")
        for part, costs in parts.items():
            for cost in costs:
                ledger.charge(name, [cost], unit=RECORD, part=part)
    assert ledger.spent("both").epsilon >= ledger.spent("alone").epsilon


def test_every_day_may_spend_the_total_and_no_day_more(ledger: Ledger) -> None:
    ledger.charge("web", [PureCost(0.25)], unit=RECORD)  # before the parts were stated: of the whole
    ledger.create("web", epsilon=2, delta=0, unit=RECORD, parts="day")
    for day in range(1, 31):
        ledger.charge("web", [PureCost(0.75)], unit=RECORD, part=f"2026-11-{day:02}")
    spent = ledger.spent("web")
    assert (spent.releases, spent.parts, spent.epsilon) == (31, 30, 1.0)
    assert spent.words == "ε=1.00 of 2.00 at δ=0 spent in 31 releases of 30 parts by day: the dearest part counts"
    # What is released of all records counts for every part, the dearest among them.
    with pytest.raises(BudgetExceeded, match=r"A release of its kind fits with ε up to 0\.99"):
        ledger.charge("web", [PureCost(1.5)], unit=RECORD)
    ledger.charge("web", [PureCost(0.5)], unit=RECORD)
    assert ledger.spent("web").epsilon == 1.5
    assert ledger.verify() == []


def test_the_two_dearest_count_where_a_record_may_move(ledger: Ledger) -> None:
    ledger.create("web", epsilon=2, delta=0, unit=REPLACED, parts="day")
    for day, epsilon in ((MONDAY, 0.75), (TUESDAY, 1.0), (WEDNESDAY, 0.5)):
        ledger.charge("web", [PureCost(epsilon)], unit=REPLACED, part=day)
    assert ledger.spent("web").epsilon == 1.75
    with pytest.raises(BudgetExceeded, match=r"would reach 2\.25"):
        ledger.charge("web", [PureCost(0.75)], unit=REPLACED, part=WEDNESDAY)
    ledger.charge("web", [PureCost(0.25)], unit=REPLACED, part=MONDAY)
    assert ledger.spent("web").epsilon == 2.0


def test_users_compose_over_parts_unless_each_is_in_one(ledger: Ledger) -> None:
    ledger.create("visits", epsilon=2, delta=0, unit=USER, parts="day")
    ledger.create("homes", epsilon=2, delta=0, unit=USER, parts="country", disjoint_users=True)
    for day, country in ((MONDAY, "de"), (TUESDAY, "fr")):
        ledger.charge("visits", [PureCost(1.0)], unit=USER, part=day)
        ledger.charge("homes", [PureCost(1.0)], unit=USER, part=country)
    assert (ledger.spent("visits").epsilon, ledger.spent("homes").epsilon) == (2.0, 1.0)
    assert ledger.spent("visits").words.endswith("which compose: a user may be in several")
    for unit, parts in ((RECORD, "day"), (USER, None)):
        with pytest.raises(InvalidInput, match="each user is in one part"):
            ledger.create("other", epsilon=2, delta=0, unit=unit, parts=parts, disjoint_users=True)


@pytest.mark.parametrize("seed", range(6, 12))
def test_no_worst_history_is_left_out(seed: int) -> None:
    """Against all parts, and all pairs of parts, by brute force, at two δs."""
    chance = random.Random(seed)

    kinds: list[list[Cost]] = [
        [PureCost(0.1), PureCost(0.3), PureCost(0.5)],
        [ZcdpCost(0.01), ZcdpCost(0.1)],
        [ApproximateCost(0.1, 1e-4), ApproximateCost(0.4, 1e-7), ApproximateCost(0.4, 1e-4)],
        [GaussianCost(0.1), GaussianCost(0.2), GaussianCost(0.4)],
        [MomentCost(0.5, 4, 1.01), MomentCost(0.5, 4, 1.02)],
    ]
    costs = [cost for kind in chance.sample(kinds, 2) for cost in kind]

    def cost() -> Cost:
        return chance.choice(costs)

    parts = {str(name): Counter(cost() for _ in range(chance.randint(1, 3))) for name in range(9)}
    whole = Counter([cost()] if seed % 2 else [])
    single = [whole + each for each in parts.values()]
    pairs = [whole + one + other for one, other in itertools.combinations(parts.values(), 2)]
    for unit, everything in ((RECORD, single), (REPLACED, pairs)):
        found = worst_histories(whole, parts, unit, Division("shop"))
        assert all(each in everything for each in found)
        assert len(found) < len(everything)
        for delta in (1e-5, 1e-2):
            assert max(_renyi(each, delta) for each in found) >= max(_renyi(each, delta) for each in everything) - 1e-9


def _renyi(costs: Counter[Cost], delta: float) -> float:
    """A bound for every kind of cost that is quick: the others are minima of it and slower ones."""
    from dpsketch.accounting.composition import Tally, renyi_epsilon

    return renyi_epsilon(Tally.of(costs), delta)


@pytest.mark.parametrize(
    ("by", "part"), [("day", "15.11.2026"), ("day", "２026-11-15"), ("month", MONDAY), ("shop", " a")]
)
def test_a_part_that_could_have_two_names_is_refused(ledger: Ledger, by: str, part: str) -> None:
    ledger.create("web", epsilon=2, delta=0, unit=RECORD, parts=by)
    with pytest.raises(InvalidInput):
        ledger.charge("web", [PureCost(1.0)], unit=RECORD, part=part)


def test_a_name_that_nearly_is_a_known_one_is_neither_that_part_nor_another(ledger: Ledger) -> None:
    ledger.create("web", epsilon=2, delta=0, unit=RECORD, parts="country")
    ledger.charge("web", [PureCost(1.0)], unit=RECORD, part="New Zealand")
    for name in ("new zealand", "New  Zealand", "NewZealand", "Ｎew Zealand"):
        with pytest.raises(InvalidInput, match="One part must have one name"):
            ledger.charge("web", [PureCost(1.0)], unit=RECORD, part=name)
    ledger.charge("web", [PureCost(1.0)], unit=RECORD, part="New Zealand")
    ledger.charge("web", [PureCost(1.0)], unit=RECORD, part="Old Zealand")
    assert [entry.part for entry in ledger.history("web")] == ["New Zealand", "New Zealand", "Old Zealand"]
    assert ledger.preview("web", [PureCost(1.0)], unit=RECORD, part="Old Zealand").allowed
    assert not ledger.preview("web", [PureCost(1.0)], unit=RECORD, part="New Zealand").allowed


def test_a_dataset_without_parts_has_none(ledger: Ledger) -> None:
    ledger.create("web", epsilon=2, delta=0, unit=RECORD)
    for name in ("web", "nobody created"):
        with pytest.raises(ReleaseRefused, match="not divided into parts"):
            ledger.charge(name, [PureCost(1.0)], unit=RECORD, part=MONDAY)
    assert ledger.datasets() == ["web"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE dpsketch_member SET part = '2026-11-17'",
        "UPDATE dpsketch_entry SET costs = replace(costs, '2026-11-16', '2026-11-17')",
        "UPDATE dpsketch_entry SET total = replace(total, '\"disjoint_users\":false', '\"disjoint_users\":true')",
    ],
)
def test_an_edited_record_of_who_is_in_which_part_is_found(ledger: Ledger, tamper: Any, change: str) -> None:
    ledger.create("web", epsilon=2, delta=0, unit=RECORD, parts="day")
    ledger.charge("web", [PureCost(0.5)], unit=RECORD, part=MONDAY, partials=["p"])
    tamper(change)
    assert len(ledger.verify()) == 1
    with pytest.raises(LedgerError, match=r"cannot be trusted|not as they were written"):
        ledger.charge("web", [PureCost(0.5)], unit=RECORD, part=TUESDAY, partials=["p"])


def test_an_open_charge_is_for_one_part(ledger: Ledger) -> None:
    ledger.create("web", epsilon=2, delta=0, unit=RECORD, parts="day")
    first = Payment(ledger, "binding")
    first.charge("web", [PureCost(0.5)], unit=RECORD, part=MONDAY)
    again, other = Payment(ledger, "binding"), Payment(ledger, "binding")
    again.charge("web", [PureCost(0.5)], unit=RECORD, part=MONDAY)
    other.charge("web", [PureCost(0.5)], unit=RECORD, part=TUESDAY)
    assert (again.resumed, other.resumed) == (True, False)
