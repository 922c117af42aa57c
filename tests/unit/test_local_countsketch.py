"""CountSketch in the local model: reports, what they hold, and their sum."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import noise
from dpsketch.errors import CounterOverflow, InvalidInput, SpecMismatch
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.sketches.countsketch.local_model import LocalCountSketch
from oracles import bounding as oracle

ALMOST_EXACT = {"epsilon": 1e5, "delta": 0.5}


def protocol(**changes: object) -> LocalCountSketch:
    return LocalCountSketch(
        **{"rows": 5, "width": 64, "max_keys": 3, "key_type": "text", "epsilon": 2.0, "delta": 1e-6, **changes}
    )


def test_a_report_is_the_persons_own_sketch_with_noise() -> None:
    own = protocol(**ALMOST_EXACT).report(["tea", "tea", None, "milk"])
    ordinary = dps.CountSketch(rows=5, width=64, unit=dps.per_user(max_keys=3), key_type="text")
    ordinary.update(["tea", "milk"], users=["u", "u"])
    assert np.array_equal(own, ordinary.release(**ALMOST_EXACT).table)
    assert not np.array_equal(protocol().report(["tea"]), protocol().report(["tea"]))
    assert protocol(**ALMOST_EXACT).report([]).any() == np.False_


def test_the_norm_is_clipped_also_where_keys_share_cells() -> None:
    keys = oracle.keys_that_share_cells(12, 11, 3, 4)
    local = protocol(rows=3, width=4, seed=11, max_keys=12, key_type="int", **ALMOST_EXACT)
    limit = local.spec.clip.squared
    assert 0 < np.square(local.report(keys)).sum() <= limit
    assert limit < 3 * 12**2
    assert local.spec.sensitivity.l2 == pytest.approx(2 * math.sqrt(limit))


def test_too_many_keys_are_cut_at_random_and_weights_bounded() -> None:
    local = protocol(max_keys=1, max_weight=2, **ALMOST_EXACT)
    seen = {local.report(["tea", "milk"]).tobytes() for _ in range(60)}
    assert len(seen) == 2  # wrong with probability 2^-59
    heavy = local.report(["tea"], weights=[50])
    assert np.abs(heavy).max() == 2


def test_the_guarantee_is_local() -> None:
    promise = protocol().guarantee
    assert promise.epsilon == 2.0
    assert promise.unit.neighbours == "replace"
    assert "the collector included" in str(promise)
    assert isinstance(protocol(delta=0.0).noise, DiscreteLaplace)
    with pytest.raises(InvalidInput, match="Gaussian"):
        _ = protocol(delta=0.0).noise_as_published
    for wrong in ({"rows": 4}, {"max_keys": 0}, {"key_type": None}, {"epsilon": None}, {"epsilon": -1.0}):
        with pytest.raises(InvalidInput):
            protocol(**wrong)
    with pytest.raises(SpecMismatch):
        protocol().report([1])


def test_the_sum_of_reports(seeded: None) -> None:
    """600 people, half of whom hold "tea": estimated within four standard errors (6e-5), and not claimed private."""
    local = protocol(epsilon=4.0)
    first, second = local.collector(), local.collector()
    for person in range(600):
        (first if person % 3 else second).add(local.report(["tea", "rye"] if person % 2 else ["milk"]))
    first.merge(second)
    assert first.reports == 600
    private = first.collected()
    assert private.noise_scale == pytest.approx(math.sqrt(600 * local.noise.variance), rel=1e-9)
    error = private.noise_scale / math.sqrt(5)
    found = private.estimate(["tea", "milk", "rye", "gin"], estimator="mean").value
    assert np.abs(found - [300, 300, 300, 0]).max() < 4 * error
    assert not private.guarantee.holds


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_the_noise_of_many_reports_is_as_stated(factor: float) -> None:
    """4,000 counters of 200 empty reports: their spread is known to 1.1%. Half the noise is told apart."""
    local = protocol(width=800)
    law = local.noise if factor == 1.0 else local.noise_as_published
    assert isinstance(law, RoundedGaussian)
    collector = local.collector()
    with noise.seeded_noise_for_tests_only(5):
        for _ in range(200):
            collector.add(local.report([]) if factor == 1.0 else law.sample(4000).reshape(5, 800))
    private = collector.collected()
    right = abs(private.table.std() / private.noise_scale - 1) < 0.07
    assert right == (factor == 1.0)


def test_collectors_refuse_what_is_not_theirs() -> None:
    collector = protocol().collector()
    with pytest.raises(InvalidInput, match="no report"):
        collector.collected()
    for wrong in (np.zeros((5, 63), int), np.zeros((5, 64)), [[1]], None):
        with pytest.raises(InvalidInput, match="table of integers"):
            collector.add(wrong)
    for extreme in (2**63 - 1, -(2**63)):
        with pytest.raises(CounterOverflow):
            collector.add(np.full((5, 64), extreme))
    with pytest.raises(SpecMismatch):
        collector.merge(dps.CountSketch(rows=5, width=64, unit=dps.per_record()))
    assert collector.reports == 0
    with pytest.raises(SpecMismatch, match="protocols differ"):
        collector.merge(protocol(epsilon=3.0).collector())
