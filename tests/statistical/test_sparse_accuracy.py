"""How accurate a sparse histogram is, and the sampler of its threshold on small and endless domains.

Every test states its false-positive rate. Noise is seeded, so a pass is a pass for ever. The paper's own figures are
those of its reproduction.
"""

from __future__ import annotations

import math
from unittest import mock

import mpmath
import numpy as np
import pytest
from scipy.stats import binom, chisquare

import dpsketch as dps
from dpsketch._compiled import sparse as kernels
from dpsketch.core.move import Distance
from dpsketch.laws import sparse as module
from dpsketch.laws.sparse import SCALE_BITS, Projection, draw_binomial
from dpsketch.noise import DiscreteLaplace
from dpsketch.privacy import Budget
from dpsketch.sketches.sparse.estimators import false_rate, pure

ALPHA = 3


def test_a_real_table_in_the_published_mode(seeded: None) -> None:
    """The mechanism itself, on real values up to 44 with collisions .1: mean absolute error 4.58 (MATH), ± .25, which
    is five standard errors of 16,000 queries (false alarms below 1e-6); with ε halved it is far off."""

    def error(epsilon: float) -> float:
        rows, probes, found = 2**17, 1000, []
        for seed in range(16):
            projection = Projection(ALPHA, int(epsilon / (100 * ALPHA) * 2**SCALE_BITS), 4400, rows, seed)
            heavy = round(-rows * math.log(0.9)) - probes // 2
            positions = np.arange(probes + heavy, dtype=np.uint64)
            values = np.random.default_rng(seed).integers(0, 4401, probes)
            table = projection.draw(positions, np.concatenate([values, np.full(heavy, 10**9)]))
            peaks = kernels.walk(kernels.read(table, positions[:probes], projection.column_keys))
            found.append(np.abs(peaks / projection.columns_a_unit - values).mean() / 100)
        return float(np.mean(found))

    assert error(1.0) == pytest.approx(4.58, abs=0.25)
    assert error(0.5) > 6


# The sampler of a threshold.

RECORD = Distance(1, 1, 1, 1)


def goodness(counts: np.ndarray, law: np.ndarray) -> float:
    common = law * counts.sum() >= 5
    seen = np.array([*counts[common], counts[~common].sum()])
    expected = np.array([*law[common], 1 - law[common].sum()]) * counts.sum()
    return float(chisquare(seen[expected > 0], expected[expected > 0]).pvalue)


def test_absent_keys_that_survive_have_the_values_of_noise(seeded: None) -> None:
    """Above the cutoff a geometric law: χ² rejects at 1e-9, and rejects that of half as much ε again."""
    histogram = dps.SparseHistogram(unit=dps.per_record(), domain=60, expected_keys=1, key_type="int", collisions=0.5)
    histogram.update([3, 10, 41], counts=[1, 4, 9])
    (law,) = histogram.spec.laws(Budget(2.0, 0))
    assert law.survival is not None
    assert law.survival.noise == DiscreteLaplace(0.5, 1)
    kept = [histogram.release(epsilon=2.0, delta=0).kept for _ in range(1000)]
    absent = np.concatenate([each.values[~np.isin(each.positions, [3, 10, 41])] for each in kept])
    beyond = np.bincount(absent - law.survival.cutoff, minlength=40)[:40]
    for epsilon, likely in ((0.5, True), (0.75, False)):
        assert (goodness(beyond, -math.expm1(-epsilon) * np.exp(-epsilon * np.arange(40))) > 1e-9) is likely


@pytest.mark.parametrize("bits", [2, 64])
def test_about_one_zero_of_any_domain_survives(bits: int, seeded: None) -> None:
    """The number of false survivors is binomial, practically Poisson with mean d·a^τ/(1+a): χ² rejects at 1e-9, and
    rejects two fifths more."""
    domain = 2**bits
    rule = pure(0.25, RECORD, domain)
    mean = domain * false_rate(rule)
    assert 0.7 < mean <= 1
    counts = np.bincount([draw_binomial(rule.noise, rule.cutoff, domain) for _ in range(1000)], minlength=25)
    points = np.arange(25)
    assert goodness(counts, binom.pmf(points, float(domain), false_rate(rule))) > 1e-9
    assert goodness(counts, binom.pmf(points, float(domain), min(1.0, 1.4 * false_rate(rule)))) < 1e-9


def test_undecided_bits_are_followed_by_more() -> None:
    """A word that lies on the border between two counts is not decided by rounding: more bits are drawn."""
    rule = pure(0.25, RECORD, 2**64)
    with mpmath.mp.workdps(80):
        ratio = mpmath.exp(mpmath.mpf("-0.25"))
        survives = ratio**rule.cutoff / (1 + ratio)
        none = mpmath.exp(2**64 * mpmath.log(1 - survives))
        border = int(mpmath.floor(none * 2**64))
        rest = int(mpmath.floor((none * 2**64 - border) * 2**64))
    for second, count in ((rest - 2**40, 0), (rest + 2**40, 1)):
        words = iter([border, second])
        with mock.patch.object(module, "random_words", lambda n, words=words: np.array([next(words)], np.uint64)):
            assert draw_binomial(rule.noise, rule.cutoff, 2**64) == count
        assert next(words, None) is None
    for first, count in ((border - 1, 0), (border + 1, 1), (0, 0)):
        with mock.patch.object(module, "random_words", lambda n, first=first: np.array([first], np.uint64)):
            assert draw_binomial(rule.noise, rule.cutoff, 2**64) == count
