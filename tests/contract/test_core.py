"""The core prints no guarantee that the draws of a kind do not have: a kind, a law or a file that is wrong is refused.

Wrong numbers in a kind's own tables are found by ``test_moves``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import mpmath
import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.core.account import Account
from dpsketch.core.codec import decode, encode, stored
from dpsketch.core.laws import Additive, Arrays, ClassCounters, Law
from dpsketch.core.move import Distance, Move, Table
from dpsketch.core.permit import Handle, Permit
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.laws.calibration import additive, noise_for
from dpsketch.laws.designs import Banded, Contribution, PanPrivate
from dpsketch.laws.distinct import Flips
from dpsketch.laws.shares import MergedShares, OneShare, Share, ShareState
from dpsketch.laws.streams import PUBLICATIONS, Found, Published, Seizable
from dpsketch.laws.votes import Votes
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
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

    way: str

    def draw(self, state: Mapping[str, Any], handle: Handle) -> Arrays:
        return {"table": WAYS[self.way][0](handle, state[self.table.name])}


@stored
@dataclass(frozen=True, slots=True)
class OfAFamily(Wrong):
    """A law whose noise an earlier part chooses among two."""

    def slots(self) -> Mapping[str, Any]:
        return {"noise": {1: self.noise, 2: self.noise}}


# Each way, and how it is refused.
WAYS: dict[str, tuple[Callable[[Handle, Any], Any], str]] = {
    "twice": (lambda handle, table: [handle.add(table, "noise") for _ in range(2)], "drawn before"),
    "in two pieces": (lambda handle, table: [handle.add(table, "noise", piece=i) for i in (1, 2)], "drawn before"),
    "another slot": (lambda handle, table: handle.add(table, "quieter"), "no slot"),
    "a member of no family": (lambda handle, table: handle.add(table, "noise", member=3), "no family"),
    "not at all": (lambda handle, table: table, "not drawn"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_law_draws_its_noise_once_as_it_states_it(way: str) -> None:
    law = KIND.laws(ASKED)[0]
    assert isinstance(law, Additive)
    with pytest.raises(ReleaseRefused, match=WAYS[way][1]):
        paid(Wrong(law.table, law.neighbours, law.noise, way)).draw_all(STATE)


def test_a_member_outside_the_family_that_was_paid_for_is_not_drawn() -> None:
    law: Any = KIND.laws(ASKED)[0]
    with pytest.raises(ReleaseRefused, match="no such member"):
        paid(OfAFamily(law.table, law.neighbours, law.noise, "a member of no family")).draw_all(STATE)


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
    for unpaid in (Permit, Handle):
        with pytest.raises(ReleaseRefused, match="paid for"):
            unpaid()


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
    with pytest.raises(ReleaseRefused, match="name of its own"):
        paid(law, law)


def test_an_interrupted_draw_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    permit = paid()
    with monkeypatch.context() as patch:
        patch.setattr(RoundedGaussian, "sample", Mock(side_effect=KeyboardInterrupt))
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


# The public path: sums, windows, shares, forged files. Each was once accepted.

SHAPE: dict[str, Any] = {"rows": 3, "width": 16, "unit": dps.per_record(), "key_type": "int"}
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def stream(days: int = 5) -> Any:
    sketch = dps.ContinualCountSketch(days=days, **SHAPE, **BUDGET)
    for _ in range(2):
        sketch.day(np.arange(50))
    return sketch


def counted(**options: Any) -> Any:
    sketch = dps.CountSketch(**SHAPE)
    sketch.update(np.repeat(7, 10_000))
    return sketch.release(**BUDGET, **options)


def forged(release: Any, change: Callable[[dict[str, Any]], object]) -> Any:
    """Return what a reader makes of a release whose header somebody changed."""
    document = release.to_document()
    header = json.loads(json.dumps(document.header))
    change(header)
    return type(release).from_document(replace(document, header=header))


def test_streams_with_equal_laws_are_paid_for_one_by_one() -> None:
    one, other = stream(), stream()
    together = one.between(1, 1) + (one.between(2, 2) + other.between(1, 1))
    assert together.guarantee.epsilon == pytest.approx((one.total() + other.total()).guarantee.epsilon)
    assert together.guarantee.epsilon > 1.4
    assert (one.between(1, 1) + one.between(2, 2)).guarantee.epsilon == 1.0


def test_a_sum_with_seeded_noise_never_holds() -> None:
    sketch = dps.ContinualCountSketch(days=5, **SHAPE, **BUDGET)
    first = sketch.day(np.arange(50))
    with seeded_noise_for_tests_only(1):
        sketch.day(np.arange(50))
    second = sketch.between(2, 2)
    assert not (first + second).guarantee.holds
    assert not (second + first).guarantee.holds


def test_a_share_is_merged_and_not_added() -> None:
    share = counted(share=Share(4, 0.5, 0))
    for first, second in ((share, counted()), (counted(), share)):
        with pytest.raises(ReleaseRefused, match="merge_releases"):
            first + second


def test_bits_are_priced_on_their_own_table() -> None:
    sketch = dps.DistinctSketch(buckets=16, unit=dps.per_user(10))
    release = sketch.release_mergeable(epsilon=5.0)
    ones, _ = release.spec.tables()

    def change(header: dict[str, Any]) -> None:
        header["receipts"][0]["laws"][0]["table"] = encode(ones)
        header["receipts"][0]["asked"]["epsilon"] = 0.5

    with pytest.raises(FileRefused):
        forged(release, change)


@pytest.mark.parametrize(("name", "value"), [("horizon", 1), ("days", 1), ("apart", 2)])
def test_a_window_is_for_the_days_of_its_stream(name: str, value: int) -> None:
    """Fewer days cost less: a file that states them is held to its law's own conditions."""
    ranges = dps.RangeSketch(bits=8, unit=dps.per_user(2))
    sketch = dps.ContinualSketch(ranges, days=8, user_days=4, days_apart=1, **BUDGET)
    release = sketch.day(np.arange(50), users=np.arange(50))

    def change(header: dict[str, Any]) -> None:
        publications = [part["publications"] for part in header["derived"].values()]
        for each in (header["receipts"][0]["laws"][0], *publications):
            each[name] = value

    with pytest.raises(FileRefused):
        forged(release, change)


def test_a_part_of_another_kind_is_refused() -> None:
    sketch = dps.DistinctSketch(buckets=16, unit=dps.per_record())
    bitmap = sketch.release_mergeable(epsilon=1.0).to_document()
    with pytest.raises(FileRefused):
        type(sketch.release(epsilon=1.0, delta=0)).from_document(replace(bitmap, kind="distinct"))


def test_costs_are_never_below_the_exact_ratio() -> None:
    (table,) = dps.CountSketch(**SHAPE).spec.tables()
    distance = table.between("replace")
    for step in range(1, 400):
        for budget in (Budget(step / 97, 0), Budget(step / 97, 1e-6)):
            noise = noise_for(budget, distance, 1 / 3)
            (cost,) = Additive(table, "replace", noise).costs()
            if hasattr(cost, "mu"):
                assert Fraction(cost.mu) >= Fraction(distance.l2) / Fraction(noise.sigma)
            else:
                assert Fraction(cost.epsilon) >= Fraction(noise.epsilon) * distance.l1 / noise.sensitivity


def test_a_stored_seizable_sketch_protects_records_only() -> None:
    sketch = dps.PanPrivateCountSketch(**SHAPE, **BUDGET)
    document = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True)
    header = json.loads(json.dumps(document.header))
    header["spec"]["unit"] = {**header["spec"]["unit"], "level": "user"}
    with pytest.raises((FileRefused, InvalidInput)):
        dps.ContinualSketch.from_document(replace(document, header=header))


COUNTS = dps.CountSketch(**SHAPE).spec
MEDIAN = dps.QuantileSketch(quantiles=[0.5], bits=8, unit=dps.per_record()).spec
MANY = np.zeros((50, 3, 16), np.int64)
NOISE = "add_remove", RoundedGaussian(50.0)
SHARE = OneShare(*COUNTS.tables(), "add_remove", Share(4, 0.5), ASKED)
# A law, its spec, and what is given to it in the place of the table that was paid for. What is left of 0.123 after
# integer noise is 0.123.
OTHER_TABLES: list[tuple[Law, Any, Any, str]] = [
    (COUNTS.laws(ASKED)[0], COUNTS, {"counters": MANY}, "shape"),
    (COUNTS.laws(ASKED)[0], COUNTS, {"counters": np.zeros((3, 16))}, "integers"),
    (ClassCounters(*COUNTS.tables(), *NOISE), COUNTS, np.full((3, 16), 0.123), "integers"),
    (Published(COUNTS.tables(), (1,), *NOISE, Banded((1,)), 1), COUNTS, [(PUBLICATIONS, 1, MANY)], "shape"),
    (SHARE, COUNTS, ShareState(MANY, "a party", ()), "shape"),
    (MEDIAN.laws(ASKED)[0], MEDIAN, {MEDIAN.tables()[0].name: np.ones(3, np.int64)}, "shape"),
]


@pytest.mark.parametrize(("law", "spec", "state", "words"), OTHER_TABLES)
def test_noise_is_drawn_for_the_table_that_was_paid_for(law: Law, spec: Any, state: Any, words: str) -> None:
    with pytest.raises(ReleaseRefused, match=words):
        paid(law, kind=spec, asked=getattr(law, "asked", ASKED)).draw(law, state)


def test_a_law_that_draws_nothing_has_no_permit() -> None:
    """A permit for a sum of shares would promise something of any table that it is given."""
    law = MergedShares(*COUNTS.tables(), "add_remove", Share(1, 1.0), ASKED, 1)
    with pytest.raises(ReleaseRefused, match="draws nothing"):
        paid(law, kind=COUNTS, asked=law.asked)


def test_a_state_carries_noise_only_in_a_design_that_proves_it() -> None:
    """The noise of a state is free, because its design says how far state and publications move together."""
    stated = COUNTS.tables(), (1,), *NOISE
    with pytest.raises(InvalidInput, match="seized"):
        Seizable(*stated, Banded((2, 1)), 9)
    with pytest.raises(InvalidInput, match="seized"):
        Published(*stated, PanPrivate((2, 1)), 9)


def test_a_seized_state_shows_days_after_the_last() -> None:
    """A user of several days is in all sums for the coming days, also if these are never published."""
    design, unit = PanPrivate(tuple(range(20, 10, -1))), Contribution(Distance(1, 1, 1, 1), days=10)
    moved = np.convolve(np.ones(10), design.bands)
    assert design.sensitivity(unit, 10).l2 >= np.linalg.norm(moved) * (1 - 1e-12)


def test_found_keys_have_no_table_of_a_stated_length() -> None:
    """In a table of one cell a user moves one key: found keys are as many as the data have."""
    spec = dps.Histogram(unit=dps.per_user(8), key_type="int").spec
    counts = spec.tables()[0]
    one = Table(counts.name, (1,), counts.move.within(1))
    assert one.covers(counts)
    with pytest.raises(InvalidInput, match="length"):
        Found((one,), (1,), "add_remove", RoundedGaussian(20.0), Banded((1,)), 1, epsilon=1.0, names=1e-7)


@pytest.mark.parametrize("asked", [Budget(1.0, 0), Budget(rho=1.0)], ids=["pure", "rho"])
@pytest.mark.parametrize("noise", [DiscreteLaplace(1.0, 1), RoundedGaussian(100.0)], ids=["Laplace", "Gaussian"])
def test_names_are_never_pure(noise: Any, asked: Budget) -> None:
    """A cutoff far out has a δ that no float holds; it is not 0."""
    spec = dps.VoteHistogram(unit=dps.per_record(), max_counters=64).spec
    law = Votes(*spec.tables(), "add_remove", noise, 10_000, 1.0, 0.0)
    with pytest.raises(ReleaseRefused, match="cost more"):
        paid(law, kind=spec, asked=asked)


@pytest.mark.parametrize("threshold", [1, 2**9, 2**62, 2**63 - 2**40, 2**63 - 2**20 - 1, 2**63 - 1])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_flipped_bits_cost_no_less_than_their_odds(threshold: int, neighbours: Any) -> None:
    spec = dps.DistinctSketch(buckets=16, unit=dps.per_record(neighbours=neighbours)).spec
    (cost,) = Flips(spec.tables()[1], neighbours, threshold).costs()
    with mpmath.workprec(200):
        shown = mpmath.mpf(threshold) / 2**63
        loss = -mpmath.log(shown) + (mpmath.log(2 - shown) if neighbours == "replace" else 0)
        assert loss <= cost.epsilon <= loss * (1 + 1e-14)
