"""RangeSketch through its public names: what goes in, what is refused, what comes out."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput
from dpsketch.sketches.ranges import RangeSketch
from dpsketch.sketches.ranges.levels import DenseLevel, cell_levels, segments
from oracles import ranges as oracle
from sensitive import everything


def sketch(**changes: object) -> RangeSketch:
    arguments: dict[str, object] = {"unit": dps.per_record(), "bits": 20, "rows": 3, "width": 32, "seed": 7, **changes}
    return RangeSketch(**arguments)


@pytest.mark.parametrize(("bits", "level_bits"), [(17, 1), (1, 2), (64, 2)])
def test_exact_answers_without_noise(bits: int, level_bits: int) -> None:
    """With next to no noise and few values, ranges, ranks and quantiles are exact, whatever the shape of the tree."""
    last = 2**bits - 1
    values = [0, 0, last // 3, last // 2, last // 2, last // 2 + 1, last]
    some = sketch(bits=bits, level_bits=level_bits, width=512, rows=5)
    some.update(np.array(values, dtype=np.uint64), counts=[1000] * len(values))
    private = some.release(epsilon=1e6, delta=0.5)
    cuts = [0, 1, last // 3, last // 2, last]
    for low in cuts:
        for high in cuts:
            if low <= high:
                truth = 1000 * sum(low <= value <= high for value in values)
                assert private.range(low, high).value == pytest.approx(truth, abs=10), (low, high)
    assert private.total().value == pytest.approx(7000, abs=5)
    assert private.rank(last // 2).value == pytest.approx(1000 * sum(value <= last // 2 for value in values), abs=10)
    if bits > 2:
        assert private.quantile(0.5).value == last // 2
        assert private.quantile(0.2).value == 0


def test_the_chain_is_least_squares_over_the_whole_tree() -> None:
    """Against least squares on all leaves at once, for levels that use the whole tree below and levels that do not."""
    bits, depths = 6, (0, 1, 3, 4, 6)
    rng = np.random.default_rng(4)
    variances = [3.0, 1.0, 2.0, 5.0, 0.5]
    counters = [rng.integers(-50, 50, 1 << depth) for depth in depths]
    whole = 3  # levels 0, 1 and 3 are made consistent; 4 and 6 are asked along the paths only, as sketches are
    levels = levels_of(counters, depths, variances, [0.0] * len(depths), whole)
    measured = [
        oracle.Measured(depth, cells, variance, place < whole)
        for place, (cells, depth, variance) in enumerate(zip(counters, depths, variances, strict=True))
    ]
    pairs = [(0, 63), (5, 5), (0, 0), (63, 63), (3, 4), (7, 8), (31, 32), (16, 47), (1, 62), (40, 43), (12, 55)]
    low, high = (np.array(ends, dtype=np.uint64) for ends in zip(*pairs, strict=True))
    found = segments(levels, low, high)
    for weights in ((0.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.3, 0.3, -0.7)):
        values, spreads = found.combined(np.tile(weights, (len(pairs), 1)))
        for place, (first, last) in enumerate(pairs):
            value, variance = oracle.least_squares(measured, bits, first, last, weights)
            assert values[place] == pytest.approx(value, abs=1e-8)
            assert spreads[place] == pytest.approx(variance, rel=1e-8)


def levels_of(
    counters: list[np.ndarray], depths: list[int], variances: list[float], fourths: list[float], whole: int
) -> list[DenseLevel]:
    """The first levels are made consistent; the others are asked along the paths only, as sketches are."""
    given = list(zip(counters, depths, variances, fourths, strict=True))
    levels = cell_levels(*zip(*given[:whole], strict=True))
    for cells, depth, variance, fourth in given[whole:]:
        values = cells.astype(float)
        sums = np.append(0, np.cumsum(values))
        levels.append(DenseLevel(depth, values, values, sums, variance, variance, fourth, fourth))
    return levels


def test_values_outside_are_refused_or_clamped() -> None:
    strict, loose, by_hand = (sketch(start=-100, bits=18, outside=rule) for rule in ("refuse", "clamp", "clamp"))
    end = -100 + 2**18 - 1
    for wrong in ([-101], [end + 1], [0, 2**40], np.array([2**64 - 1], dtype=np.uint64)):
        with pytest.raises(InvalidInput, match="outside") as refusal:
            strict.update(wrong)
        assert str(wrong[-1]) not in str(refusal.value)
    strict.update([-100, end, None])
    assert strict.skipped_nulls == 1
    loose.update(pa.array([-101, -(2**63), end + 1, 2**62, None, 7]))
    loose.update(np.array([2**64 - 1], dtype=np.uint64))
    by_hand.update([-100, -100, end, end, None, 7, end])
    assert everything(loose) == everything(by_hand)


def test_bad_shapes_are_refused() -> None:
    wrong = [{"bits": 65}, {"start": 0.5}, {"start": 2**63}, {"start": -1, "bits": 64}, {"outside": "wrap"}]
    for changes in (*wrong, {"level_bits": 9}, {"bits": 64, "rows": 1023, "width": 2**20}):
        with pytest.raises(InvalidInput):
            sketch(**changes)


def test_queries_are_checked() -> None:
    private = sketch(start=10).release(epsilon=1, delta=1e-6)
    for low, high in ((9, 20), (10, 10 + 2**20), (5.5, 20), (30, 20), (None, 20)):
        with pytest.raises(InvalidInput):
            private.range(low, high)
    with pytest.raises(InvalidInput, match="equally many"):
        private.ranges([10, 11], [12])
    for share, confidence in ((-0.1, 0.9), (math.nan, 0.9), ("0.5", 0.9), (True, 0.9), (0.5, 1)):
        with pytest.raises(InvalidInput):
            private.quantile(share, confidence=confidence)
    assert len(private.ranges([], [])) == 0
    assert private.quantiles([]) == []


def test_quantiles_are_in_order_and_in_the_domain(seeded: None) -> None:
    """Whatever the noise: also on an empty sketch, where it is all there is."""
    for records in (0, 2000):
        some = sketch(bits=18, start=-50)
        some.update(np.arange(records))
        found = some.release(epsilon=0.5, delta=1e-6).quantiles(np.linspace(0, 1, 41))
        assert all(-50 <= one.low <= one.value <= one.high < -50 + 2**18 for one in found)
        assert not records or all(a.value <= b.value for a, b in pairwise(found))
