"""Named quantiles: the grid, the exact draws, and what the public path makes of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

import dpsketch as dps
from dpsketch import files
from dpsketch.core.drawn import Receipt, promise
from dpsketch.errors import BudgetExceeded, FileRefused, InvalidInput, SpecMismatch
from dpsketch.laws import recursion, sampler
from dpsketch.laws.recursion import Mass, Places, Recursion
from dpsketch.privacy import Budget
from dpsketch.sketches import quantiles
from dpsketch.sketches.quantiles import QuantileSpec, ValueGrid
from dpsketch.sketches.ranges.spec import Domain
from oracles import quantiles as oracle

RECORD = dps.per_record()
HALF = Fraction(1, 2)
# No test below fails by chance more than once in a million.
UNLIKELY = 1e-6


def sketch_of(counts: list[int], *, unit: dps.Unit = RECORD, **given: Any) -> Any:
    """A sketch over as many values as there are counts."""
    bits = (len(counts) - 1).bit_length()
    sketch = dps.QuantileSketch(unit=unit, bits=bits, **given)
    values = np.repeat(np.arange(len(counts)), counts)
    sketch.update(values, **({"users": np.arange(len(values))} if unit.level == "user" else {}))
    return sketch


# The grid.


@pytest.mark.parametrize(("bits", "start"), [(20, -7), (21, 0), (24, -(2**23)), (64, 0), (64, -(2**63)), (40, 10**9)])
def test_cells_are_in_order_and_hold_their_values(bits: int, start: int) -> None:
    cells = ValueGrid(Domain(bits, start, "refuse"))
    rng = np.random.default_rng(bits)
    size = (1 << bits) - 1
    anchor = min(max(0, -start), size)
    steps = [sign * (1 << j) + i for j in range(bits) for i in (-1, 0, 1) for sign in (-1, 1)]
    near = [min(max(anchor + step, 0), size) for step in steps]
    offsets = sorted({0, size, *near, *(int(x) % (size + 1) for x in rng.integers(0, 2**63, 500))})
    found = cells.of(np.array(offsets, np.uint64)).tolist()
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] == cells.count - 1
    for offset, cell in zip(offsets, found, strict=True):
        low, high = cells.ends(cell)
        assert low <= start + offset <= high
        distance = min(abs(low - start - anchor), abs(high - start - anchor))
        assert high - low < max(1, distance / 128) + (distance >= 256)


def test_a_wide_domain_has_few_cells_that_leave_no_gap() -> None:
    cells = ValueGrid(Domain(63, 0, "refuse"))
    assert cells.count == 7296
    ends = [cells.ends(cell) for cell in range(cells.count)]
    assert ends[0][0] == 0
    assert ends[-1][1] == 2**63 - 1
    assert all(high + 1 == low for (_, high), (low, _) in pairwise(ends))
    both = ValueGrid(Domain(64, -(2**63), "refuse"))
    ends = [both.ends(cell) for cell in range(both.count)]
    assert all(high + 1 == low for (_, high), (low, _) in pairwise(ends))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 3))
def test_mass_is_that_of_its_places(counts: list[int], ties: int) -> None:
    mass = Mass(np.array(counts, np.int64), ties)
    at = [count for count in counts for _ in range(1 << ties)]
    below = list(accumulate(at, initial=0))
    assert [mass.below(place) for place in range(len(below))] == below
    for wanted in range(below[-1] + 3):
        reaching = [place for place, each in enumerate(below) if each >= wanted]
        assert mass.first_reaching(wanted) == (reaching[0] if reaching else None)
        within = [place for place, each in enumerate(below) if each <= wanted]
        assert mass.last_within(wanted) == (None if within[-1] == len(at) else within[-1])


# The exact draws.


@pytest.mark.parametrize("bits", [8, 96, 384])
def test_weights_enclose_powers(bits: int) -> None:
    with mpmath.workdps(200):
        for j, (low, high) in enumerate(sampler._weights(bits, 2 * bits)):
            exact = mpmath.ldexp(mpmath.exp(mpmath.mpf(-j) / 2), bits)
            assert low <= exact <= high
            assert high - low <= 2


def test_a_level_does_not_depend_on_how_many_bits_are_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """U is one infinite string: read in other pieces it falls into the same level."""
    sizes = [20, 0, 30, 40, 50, 0]

    def reached(level: int) -> int:
        return sum(sizes[level:])

    def drawn(first: int, string: int) -> int:
        left = 4096

        def bits(count: int) -> int:
            nonlocal left
            left -= count
            return string >> left & ((1 << count) - 1)

        monkeypatch.setattr(sampler, "_FIRST_BITS", first)
        monkeypatch.setattr(sampler, "_random_bits", bits)
        return sampler.draw_level(reached)

    rng = np.random.default_rng(5)
    found = []
    for _ in range(300):
        string = int.from_bytes(rng.bytes(512), "big")
        found.append(drawn(96, string))
        assert drawn(1, string) == drawn(8, string) == found[-1]
    assert set(found) == {0, 2, 3, 4}


def unlikely(seen: Counter[Any], law: dict[Any, float], draws: int) -> bool:
    """Whether a χ² test at one in a million refuses the law; rare outcomes are taken together."""
    assert set(seen) <= set(law)
    common = [one for one, chance in law.items() if chance * draws >= 8]
    rest = 1 - sum(law[one] for one in common)
    pairs = [(seen[one], law[one] * draws) for one in common]
    if rest * draws >= 1:
        pairs.append((draws - sum(seen[one] for one in common), rest * draws))
    statistic = sum((found - wanted) ** 2 / wanted for found, wanted in pairs)
    return bool(chi2.sf(statistic, len(pairs) - 1) < UNLIKELY)


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(1)])
def test_a_coin_shows_heads_as_often_as_it_should(exponent: Fraction) -> None:
    """False-positive rate 1e-6."""
    seen = Counter(sampler.draw_coin(exponent) for _ in range(4000))
    heads = math.exp(-exponent)
    assert not unlikely(seen, {True: heads, False: 1 - heads} if exponent else {True: 1.0}, 4000)


def test_a_uniform_number_is_uniform() -> None:
    """False-positive rate 1e-6."""
    seen = Counter(sampler.uniform_below(11) for _ in range(4000))
    assert not unlikely(seen, dict.fromkeys(range(11), 1 / 11), 4000)
    assert sampler.uniform_below(1) == 0
    assert 2**89 < max(sampler.uniform_below(2**90) for _ in range(64)) < 2**90


SPANS: dict[str, oracle.Span] = {
    "add_remove": lambda share, whole: 2 * max(share, 1 - share),
    "replace": lambda share, whole: Fraction(2) if whole else 4 * max(share, 1 - share),
}
USERS = dps.per_user(max_keys=2, max_weight=3)
REPLACED = dps.per_record(neighbours="replace")
LAWS = {
    "median": ([5, 0, 1, 4], [0.5], RECORD, 0.0),
    "seventh decile": ([3, 4, 0, 2], [0.7], RECORD, 0.0),
    "last decile": ([2, 3, 2, 3], [0.9], RECORD, 0.0),
    "first decile": ([2, 0, 9, 5], [0.1], RECORD, 0.0),
    "nothing": ([0, 0, 0, 0], [0.5], RECORD, 0.0),
    "one record": ([0, 1, 0, 0], [0.9], RECORD, 0.0),
    "replaced": ([6, 0, 9, 5], [0.9], REPLACED, 0.0),
    "median replaced": ([9, 1, 2, 6], [0.5], REPLACED, 0.0),
    "users": ([9, 1, 9, 9], [0.7], USERS, 0.0),
    "three": ([8, 0, 2, 8], [0.1, 0.5, 0.9], RECORD, 0.0),
    "three replaced": ([3, 2, 2, 3], [0.1, 0.5, 0.9], REPLACED, 0.0),
    "with ends": ([8, 3, 0, 8], [0.3], RECORD, 0.5),
}  # fmt: skip


@pytest.mark.statistical
@pytest.mark.parametrize("name", LAWS)
def test_releases_follow_the_enumerated_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through ``release``, against the law from the definition. False-positive rate 1e-6 a case; twins below."""
    seen, laws, draws = drawn_laws(name, monkeypatch)
    for part, law in laws.items():
        assert not unlikely(seen[part], law, draws), part


def drawn_laws(name: str, monkeypatch: pytest.MonkeyPatch, draws: int = 700) -> Any:
    ties, epsilon = 2, 2.0
    monkeypatch.setattr(recursion, "TIE_BITS", ties)
    counts, asked, unit, share = LAWS[name]
    made = sketch_of(counts, unit=unit, quantiles=asked, interval_share=share)
    releases = [made.release(epsilon=epsilon, delta=0) for _ in range(draws)]
    exact = [Fraction(str(one)) for one in asked]
    level = epsilon / len(asked).bit_length()
    weight = int(unit.max_keys * unit.max_weight)

    def law(part: float, shift: int = 0) -> dict[oracle.Cells, float]:
        return oracle.law(counts, exact, level * part, weight, SPANS[unit.neighbours], ties, shift)

    seen = {"answers": Counter(tuple(one.cells.tolist()) for one in releases)}
    laws = {"answers": law(1 - share)}
    for row, sign in ((0, -1), (1, 1)) if share else ():
        seen[str(row)] = Counter(tuple(one.ends[row].tolist()) for one in releases)
        laws[str(row)] = law(share / 2, sign * releases[0].shift)
    return seen, laws, draws


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("last decile", lambda self, share, *, whole: Fraction(1)),
        ("median replaced", lambda self, share, *, whole: 2 * max(share, 1 - share)),
        ("three replaced", lambda self, share, *, whole: Fraction(2)),
    ],
)
def test_another_sensitivity_is_seen(name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recursion, "span", mutant)
    seen, laws, draws = drawn_laws(name, monkeypatch)
    assert unlikely(seen["answers"], laws["answers"], draws)


@pytest.mark.statistical
@pytest.mark.parametrize("kept", [True, False])
def test_places_of_one_level_are_weighed(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All scores are below half a level, so that the coin alone tells them apart; without it, all are as likely.

    False-positive rate 1e-6.
    """
    ties, draws, epsilon = 2, 3000, 0.98
    monkeypatch.setattr(recursion, "TIE_BITS", ties)
    if not kept:
        monkeypatch.setattr(recursion, "draw_coin", lambda exponent: True)
    counts = [0, 1, 0, 0]
    made = sketch_of(counts, quantiles=[0.5])
    seen = Counter(tuple(made.release(epsilon=epsilon, delta=0).cells.tolist()) for _ in range(draws))
    exact = oracle.law(counts, [HALF], epsilon, 1, SPANS["add_remove"], ties)
    assert unlikely(seen, exact, draws) is not kept


# What is promised.


@pytest.mark.parametrize("share", [HALF, Fraction(7, 10), Fraction(1, 3), Fraction(1, 10)])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_scores_move_apart_as_far_as_is_paid_for(share: Fraction, relation: Any) -> None:
    """By enumeration of all neighbours of up to five records on four values, nothing among them, and no farther."""
    (law,) = QuantileSpec(2, dps.per_record(neighbours=relation), (share,)).laws(Budget(1.0, 0))
    farthest = Fraction(0)
    for counts in _multisets(4, 5):
        neighbours = [_with(counts, value, 1) for value in range(4)]
        if relation == "replace":  # a record that is nothing may become one
            moved = [(i, j) for i in range(4) for j in range(4) if i != j and counts[i]]
            neighbours += [_with(_with(counts, i, -1), j, 1) for i, j in moved]
        mine = oracle.scores([Fraction(count) for count in counts], share, Fraction(0))
        for other in neighbours:
            theirs = oracle.scores([Fraction(count) for count in other], share, Fraction(0))
            changes = [a - b for a, b in zip(mine, theirs, strict=True)]
            farthest = max(farthest, max(changes) - min(changes))
    assert farthest <= law.span(share, whole=True)
    assert farthest == law.span(share, whole=True) or share not in (HALF, Fraction(7, 10))


def _multisets(values: int, most: int) -> list[tuple[int, ...]]:
    if values == 0:
        return [()]
    return [(first, *rest) for first in range(most + 1) for rest in _multisets(values - 1, most - first)]


def _with(counts: tuple[int, ...], value: int, change: int) -> tuple[int, ...]:
    return tuple(count + change * (i == value) for i, count in enumerate(counts))


def test_levels_cost_what_a_budget_allows() -> None:
    """The loss of one level for 1, 3, 7, 15, 63, 127 and 255 quantiles, at δ = 10⁻⁶."""
    wanted = {
        0.1: [0.1, 0.05, 0.0333, 0.0253, 0.0207, 0.0191, 0.0179],
        1.0: [1, 0.5, 0.333, 0.25, 0.180, 0.167, 0.156],
        3.0: [3, 1.5, 1, 0.75, 0.5, 0.460, 0.430],
    }
    for epsilon, levels in wanted.items():
        for number, level in zip((1, 3, 7, 15, 63, 127, 255), levels, strict=True):
            spec = QuantileSpec(8, RECORD, tuple(Fraction(i + 1, number + 1) for i in range(number)))
            pure = epsilon / number.bit_length()
            for budget, expected in ((Budget(epsilon, 1e-6), level), (Budget(epsilon, 0), pure)):
                laws = spec.laws(budget)
                assert promise(spec, Receipt(budget, laws)).epsilon == budget.epsilon
                assert laws[0].epsilon == pytest.approx(expected, rel=0.003, abs=5e-5)
    spec = QuantileSpec(8, RECORD, (HALF, Fraction(3, 4)), interval_share=0.5)
    for budget in (Budget(rho=0.1), Budget(1.0, 0), Budget(50.0, 1e-6), Budget(0.1, 0.9), Budget(1e300, 1e-6)):
        assert promise(spec, Receipt(budget, spec.laws(budget))).rho == budget.rho


def test_nothing_is_drawn_that_is_not_paid_for(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = dps.Ledger(f"sqlite:///{tmp_path}/budget.db")
    ledger.create("web", epsilon=0.5, delta=0, unit=RECORD)
    monkeypatch.setattr(Places, "draw", lambda *_: pytest.fail("drawn before it was paid for"))
    with pytest.raises(BudgetExceeded):
        sketch_of([3, 4], quantiles=[0.5]).release(epsilon=1.0, delta=0, ledger=ledger, dataset="web")


# The public path.


def test_a_quantile_is_the_fraction_that_it_is_written_as() -> None:
    named = [0.1, np.float64(0.3), Fraction(1, 3), 0.95]
    spec = dps.QuantileSketch(unit=RECORD, bits=4, quantiles=named).spec
    assert spec.quantiles == (Fraction(1, 10), Fraction(3, 10), Fraction(1, 3), Fraction(19, 20))
    assert QuantileSpec.from_json(spec.to_json()) == spec
    release = dps.QuantileSketch.from_spec(spec).release(epsilon=1.0, delta=0)
    assert release.quantile(0.1).share == 0.1
    assert release.quantile(Fraction(1, 3)).share == 1 / 3
    with pytest.raises(InvalidInput, match="were named"):
        release.quantile(1 / 3)


def test_nothing_of_the_domain_is_read_off_the_data() -> None:
    """Without records every value is as likely. False-positive rate 1e-6."""
    made = sketch_of([0] * 16, quantiles=[0.5])
    seen = Counter(int(made.release(epsilon=1.0, delta=0).cells[0]) for _ in range(800))
    assert not unlikely(seen, dict.fromkeys(range(16), 1 / 16), 800)


@pytest.mark.statistical
def test_equal_values_are_cut_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two values share nearly all records: each of nine quantiles is found in all of ten releases; uncut, it is not.

    A quantile that lies 500 records from the next value misses by less than that with probability 1 − e^(−100).
    """
    counts = [0] * 256
    counts[10], counts[200], counts[250] = 4450, 5450, 100
    shares = [i / 10 for i in range(1, 10)]
    right = [10, 10, 10, 10, 200, 200, 200, 200, 200]

    def found() -> int:
        made = sketch_of(counts, quantiles=shares)
        return sum([one.value for one in made.release(epsilon=1.0, delta=0).quantiles()] == right for _ in range(10))

    assert found() == 10
    monkeypatch.setattr(recursion, "TIE_BITS", 0)
    assert found() == 0


@pytest.mark.statistical
@pytest.mark.parametrize("shares", [(0.5,), (0.95,), (0.1, 0.5, 0.9)])
@pytest.mark.parametrize("unit", [RECORD, dps.per_user(max_keys=1, neighbours="replace")], ids=["record", "user"])
def test_intervals_cover(shares: tuple[float, ...], unit: dps.Unit) -> None:
    """The bound is so loose that no interval of 12 releases may miss; the twin below shows that without it many do."""
    data = np.exp(np.random.default_rng(1).normal(7, 1, 20_000)).astype(np.int64)
    made = dps.QuantileSketch(unit=unit, bits=20, quantiles=shares, interval_share=0.5)
    made.update(data, **({"users": np.arange(len(data))} if unit.level == "user" else {}))
    truth = np.quantile(data, shares, method="inverted_cdf")
    missed = 0
    for _ in range(12):
        release = made.release(epsilon=2.0, delta=0)
        assert release.least_records < len(data)
        for one, true in zip(release.quantiles(), truth, strict=True):
            missed += not one.low <= true <= one.high
            assert one.low <= one.value <= one.high
            assert one.high - one.low < true  # an interval that says something
            rank = np.searchsorted(np.sort(data), one.value, "right")
            assert abs(rank - one.share * len(data)) < one.rank_error + np.count_nonzero(data == one.value)
    assert missed == 0


@pytest.mark.statistical
def test_intervals_without_a_shift_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantiles, "rank_errors", lambda law, failure: [0.5] * len(law.quantiles))
    data = np.exp(np.random.default_rng(1).normal(7, 1, 20_000)).astype(np.int64)
    made = dps.QuantileSketch(unit=RECORD, bits=20, quantiles=[0.5], interval_share=0.5)
    made.update(data)
    true = np.quantile(data, 0.5, method="inverted_cdf")
    intervals = [made.release(epsilon=0.1, delta=0).quantile(0.5) for _ in range(12)]
    assert sum(not one.low <= true <= one.high for one in intervals) > 2


def test_without_drawn_ends_there_is_no_interval() -> None:
    release = sketch_of([5, 9, 9, 1], quantiles=[0.5]).release(epsilon=1.0, delta=0)
    one = release.quantile(0.5, confidence=0.9)
    assert (one.low, one.high) == (None, None)
    assert release.least_records is None
    ends = sketch_of([5, 9, 9, 1], quantiles=[0.5], interval_share=0.4).release(epsilon=1.0, delta=0)
    assert (ends.quantile(0.5, confidence=0.99).low, ends.quantile(0.5, confidence=0.99).high) == (None, None)
    assert ends.least_records == 2 * ends.shift


def test_weights_and_ends_of_the_domain() -> None:
    sketch = dps.QuantileSketch(unit=RECORD, bits=8, quantiles=[0.5], start=-3, outside="clamp", grid=0.5, seed=4)
    sketch.update([-100, 500, 2], weights=[0.5, 1, 1])
    release = sketch.release(rho=1e6)
    assert isinstance(release, dps.PrivateQuantiles)
    assert release.quantile(0.5).value == 2
    with pytest.raises(SpecMismatch):
        sketch.merge(dps.RangeSketch(unit=RECORD, bits=8))


@pytest.mark.parametrize("wrong", [[], [0], [1], [0.5, 1.5], [math.nan], ["0.5"], [-0.1], [0.5, math.inf], [True]])
def test_what_is_no_quantile_is_refused(wrong: list[Any]) -> None:
    with pytest.raises(InvalidInput):
        dps.QuantileSketch(unit=RECORD, bits=8, quantiles=wrong)
    with pytest.raises(InvalidInput):
        dps.QuantileSketch(unit=RECORD, bits=8, quantiles=[0.5], interval_share=1)


@pytest.mark.parametrize("asked", ["10%", "0.1", "1/10"])
def test_a_release_is_asked_in_words(asked: str) -> None:
    release = sketch_of([30, 9, 9, 1], quantiles=[0.1, 0.5]).release(epsilon=9.0, delta=0)
    found = release.answer([asked], confidence=0.9, estimator=None, key_type=None)
    assert (found.key, found.value.tolist()) == ([asked], [0])
    assert np.isnan([found.low, found.high]).all()
    assert "no intervals" in repr(found)
    assert found.to_json() == [{"key": asked, "value": 0, "low": None, "high": None}]
    assert found.to_csv().splitlines()[1] == f"{asked},0.0,,"
    assert found.to_arrow().column("low").null_count == 1
    everything = release.answer([], confidence=0.9, estimator=None, key_type=None)
    assert everything.key == ["10%", "50%"]
    for wrong in ("x", "20%", "1/0"):
        with pytest.raises(InvalidInput, match="ask it without keys"):
            release.answer([wrong], confidence=0.9, estimator=None, key_type=None)


def test_wide_values_are_answered_by_the_middle_of_their_cell() -> None:
    sketch = dps.QuantileSketch(unit=RECORD, bits=63, quantiles=[0.5], interval_share=0.5)
    assert sketch.spec.memory == 8 * 7296
    sketch.update(np.full(1000, 10**15))
    one = sketch.release(epsilon=50.0, delta=0).quantile(0.5)
    assert one.value == pytest.approx(10**15, rel=1 / 128)
    assert one.low <= 10**15 <= one.high


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no loss": lambda header: header["receipts"][0]["laws"][0].update(epsilon=0),
    "more loss": lambda header: header["receipts"][0]["laws"][0].update(epsilon=0.9),
    "a loss in words": lambda header: header["receipts"][0]["laws"][0].update(epsilon="1"),
    "no accounting": lambda header: header["receipts"][0]["laws"][0].update(accounting="none"),
    "another accounting": lambda header: header["receipts"][0]["laws"][0].update(accounting="rho"),
    "shifted answers": lambda header: header["receipts"][0]["laws"][0].update(shift=3),
    "ends of another shift": lambda header: header["receipts"][0]["laws"][2].update(shift=1),
    "ends that are answers": lambda header: header["receipts"][0]["laws"][1].update(name="more"),
    "fewer quantiles": lambda header: header["receipts"][0]["laws"][0].update(quantiles=["1/5"]),
    "other quantiles": lambda header: header["receipts"][0]["laws"][0].update(quantiles=["1/5", "1/3"]),
    "a quantile twice": lambda header: header["receipts"][0]["laws"][0].update(quantiles=["1/5", "1/5"]),
    "a lighter unit": lambda header: header["receipts"][0]["laws"][0]["table"]["move"].update(l1=0),
    "a smaller grid": lambda header: header["receipts"][0]["laws"][0]["table"].update(shape=[2]),
    "no table": lambda header: header["receipts"][0]["laws"][0]["table"].update(shape=None),
    "another relation": lambda header: header["receipts"][0]["laws"][0].update(neighbours="replace"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_law_is_refused(forgery: str) -> None:
    whole = sketch_of([5, 9, 9, 1], quantiles=[0.2, 0.5], interval_share=0.5).release(epsilon=1.0, delta=0)
    document = whole.to_document()
    header = json.loads(json.dumps(document.header))
    FORGERIES[forgery](header)
    with pytest.raises(FileRefused):
        dps.load(files.encode(replace(document, header=header)))


def test_forged_cells_are_refused() -> None:
    release = sketch_of([5, 9, 9, 1], quantiles=[0.2, 0.5], interval_share=0.5).release(epsilon=1.0, delta=0)
    whole = release.to_document()
    assert dps.load(files.encode(whole)).quantiles() == release.quantiles()
    for cells in ([-1, 2], [1, 4], [2, 1], [1], [1.0, 2.0]):
        with pytest.raises(FileRefused):
            dps.load(files.encode(replace(whole, arrays={**whole.arrays, "answers__cells": np.array(cells)})))
    with pytest.raises(FileRefused):
        dps.load(files.encode(replace(whole, arrays={name: whole.arrays[name] for name in list(whole.arrays)[:2]})))


def test_a_quantile_of_too_many_digits_is_refused() -> None:
    """A file could not hold it."""
    small = Fraction(1, 10**31)
    spec = QuantileSpec(4, RECORD, (small, 1 - small))
    assert QuantileSpec.from_json(spec.to_json()) == spec
    with pytest.raises(InvalidInput, match="31 digits"):
        QuantileSpec(4, RECORD, (Fraction(1, 10**31 + 1),))
