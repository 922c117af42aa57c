"""Named quantiles: the grid, the exact draws, and what the public path makes of them."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2

import dpsketch as dps
from dpsketch.errors import InvalidInput
from dpsketch.laws import recursion, sampler
from dpsketch.sketches.quantiles import QuantileSpec, ValueGrid
from dpsketch.sketches.ranges.spec import Domain
from oracles import quantiles as oracle

RECORD = dps.per_record()
# No test below fails by chance more than once in a million.
UNLIKELY = 1e-6


def sketch_of(counts: list[int], *, unit: dps.Unit = RECORD, **given: Any) -> Any:
    """A sketch over as many values as there are counts."""
    sketch = dps.QuantileSketch(unit=unit, bits=(len(counts) - 1).bit_length(), **given)
    sketch.update(np.repeat(np.arange(len(counts)), counts))
    return sketch


# The grid.


@pytest.mark.parametrize(("bits", "start"), [(20, -7), (64, -(2**63)), (40, 10**9)])
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


# The exact draws.


def test_weights_enclose_powers() -> None:
    bits = 96
    with mpmath.workdps(200):
        for j, (low, high) in enumerate(sampler._weights(bits, 2 * bits)):
            exact = mpmath.ldexp(mpmath.exp(mpmath.mpf(-j) / 2), bits)
            assert low <= exact <= high
            assert high - low <= 2


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


SPANS: dict[str, oracle.Span] = {
    "add_remove": lambda share, whole: 2 * max(share, 1 - share),
    "replace": lambda share, whole: Fraction(2) if whole else 4 * max(share, 1 - share),
}
# Several quantiles, and ends of intervals; single ones of all units are held in tests/contract/test_promise_bits.py.
LAWS = {
    "three replaced": ([3, 2, 2, 3], [0.1, 0.5, 0.9], dps.per_record(neighbours="replace"), 0.0),
    "with ends": ([8, 3, 0, 8], [0.3], RECORD, 0.5),
    "three with ends": ([60] * 8, [0.2, 0.5, 0.6], RECORD, 0.5),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", LAWS)
def test_releases_follow_the_enumerated_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through ``release``, against the law from the definition. False-positive rate 1e-6 a case.

    The mutants of another sensitivity or rate show the power.
    """
    ties, epsilon, draws = 2, 2.0, 700
    monkeypatch.setattr(recursion, "TIE_BITS", ties)
    counts, asked, unit, share = LAWS[name]
    made = sketch_of(counts, unit=unit, quantiles=asked, interval_share=share)
    releases = [made.release(epsilon=epsilon, delta=0) for _ in range(draws)]
    exact = [Fraction(str(one)) for one in asked]
    level = epsilon / len(asked).bit_length()

    def law(part: float, shift: int = 0) -> dict[oracle.Cells, float]:
        return oracle.law(counts, exact, level * part, 1, SPANS[unit.neighbours], ties, shift)

    seen = {"answers": Counter(tuple(one.cells.tolist()) for one in releases)}
    laws = {"answers": law(1 - share)}
    for row, sign in ((0, -1), (1, 1)) if share else ():
        seen[str(row)] = Counter(tuple(one.ends[row].tolist()) for one in releases)
        laws[str(row)] = law(share / 2, sign * releases[0].shift)
    for part, wanted in laws.items():
        assert not unlikely(seen[part], wanted, draws), part


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


def test_too_few_records_have_no_interval() -> None:
    release = sketch_of([5, 9, 9, 1], quantiles=[0.5], interval_share=0.4).release(epsilon=1.0, delta=0)
    found = release.quantile(0.5, confidence=0.99)
    assert (found.low, found.high) == (None, None)
    assert release.least_records == 2 * release.shift


@pytest.mark.parametrize("more", ["low", "high"])
def test_an_interval_holds_all_values_of_the_cells_at_its_ends(more: str) -> None:
    """The median is the first value of a wide cell, or the last one of a later cell, by one record.

    So answers lie anywhere between the two. Ends are drawn for ranks more than 1,000 records further: one lies on the
    wrong side with a probability below 1e-9.
    """
    low, high = 2**20, 2**30 - 1
    made = dps.QuantileSketch(unit=RECORD, bits=32, quantiles=[0.5], interval_share=0.5)
    made.update([low, high], counts=[50_000 + (more == "low"), 50_000 + (more == "high")])
    found = [made.release(epsilon=0.1, delta=0).quantile(0.5) for _ in range(5)]
    assert all(one.low <= low and high <= one.high for one in found)


def test_what_is_no_quantile_is_refused() -> None:
    for wrong in ([], [0], [1], [math.nan], ["0.5"], [-0.1], [True], [Fraction(1, 10**31 + 1)]):
        with pytest.raises(InvalidInput):
            dps.QuantileSketch(unit=RECORD, bits=8, quantiles=wrong)
    with pytest.raises(InvalidInput):
        dps.QuantileSketch(unit=RECORD, bits=8, quantiles=[0.5], interval_share=1)


def test_a_release_is_asked_in_words() -> None:
    release = sketch_of([30, 9, 9, 1], quantiles=[0.1, 0.5]).release(epsilon=9.0, delta=0)
    for asked in ("10%", "0.1", "1/10"):
        found = release.answer([asked], confidence=0.9, estimator=None, key_type=None)
        assert found.to_json() == [{"key": asked, "value": 0, "low": None, "high": None}]
        assert found.to_csv().splitlines()[1] == f"{asked},0.0,,"
    assert release.answer([], confidence=0.9, estimator=None, key_type=None).key == ["10%", "50%"]
    for wrong in ("x", "20%", "1/0"):
        with pytest.raises(InvalidInput, match="ask it without keys"):
            release.answer([wrong], confidence=0.9, estimator=None, key_type=None)
