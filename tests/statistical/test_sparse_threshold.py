"""The threshold part's sampler against brute force on small domains, and on domains that nobody can list.

Every test states its false-positive rate. Noise is seeded, so a pass is a pass for ever.
"""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.core.move import Distance
from dpsketch.laws import sparse as module
from dpsketch.laws.sparse import Survival, draw_binomial
from dpsketch.noise import DiscreteLaplace
from dpsketch.privacy import Budget
from dpsketch.sketches.sparse.estimators import false_rate, pure

DOMAIN = 60
PRESENT = np.array([3, 10, 41], np.uint64)
UNITS = np.array([1, 4, 9])
RECORD = Distance(1, 1, 1, 1)
RUNS = 1000


def histogram(domain: int, positions: np.ndarray, units: np.ndarray) -> dps.SparseHistogram:
    built = dps.SparseHistogram(unit=dps.per_record(), domain=domain, expected_keys=1, key_type="int", collisions=0.5)
    built.update(positions, counts=units)
    return built


def rule_at(epsilon: float) -> Survival:
    (law,) = histogram(DOMAIN, PRESENT, UNITS).spec.laws(Budget(epsilon, 0))
    assert law.survival is not None
    return law.survival


def brute_force(rule: Survival, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise for every entry of the domain, run by run: how often each position survives, and each number of them."""
    truth = np.zeros(DOMAIN, np.int64)
    truth[PRESENT.astype(int)] = UNITS
    noisy = truth + rule.noise.sample(DOMAIN * runs).reshape(runs, DOMAIN)
    kept = noisy >= rule.cutoff
    return kept.sum(axis=0), np.bincount(kept.sum(axis=1), minlength=20)


def released(epsilon: float, runs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    built, cutoff = histogram(DOMAIN, PRESENT, UNITS), rule_at(epsilon).cutoff
    places, numbers, excesses = np.zeros(DOMAIN, np.int64), np.zeros(20, np.int64), []
    for _ in range(runs):
        found = built.release(epsilon=epsilon, delta=0).kept
        assert np.all(np.diff(found.positions.astype(np.int64)) > 0)
        places[found.positions.astype(int)] += 1
        numbers[len(found.positions)] += 1
        excesses.append(found.values[~np.isin(found.positions, PRESENT)] - cutoff)
    return places, numbers, np.concatenate(excesses)


def two_sample(a: np.ndarray, b: np.ndarray) -> float:
    """The p-value of χ² that two counts of outcomes come from one law, rare outcomes pooled."""
    from scipy.stats import chi2_contingency

    common = a + b >= 20
    pooled = np.array([[*line[common], line[~common].sum()] for line in (a, b)])
    return float(chi2_contingency(pooled[:, pooled.sum(axis=0) > 0]).pvalue)


def goodness(counts: np.ndarray, law: np.ndarray) -> float:
    from scipy.stats import chisquare

    common = law * counts.sum() >= 5
    seen = np.array([*counts[common], counts[~common].sum()])
    expected = np.array([*law[common], 1 - law[common].sum()]) * counts.sum()
    return float(chisquare(seen[expected > 0], expected[expected > 0]).pvalue)


def test_survivors_equal_brute_force(seeded: None) -> None:
    """Survivors by position and by number, and how far zeros pass the cutoff: each rejects at 1e-9. A budget that is a
    little off is rejected."""
    rule = rule_at(2.0)
    assert (rule.noise, rule.cutoff) == (DiscreteLaplace(0.5, 1), 8)
    places, numbers, excesses = released(2.0, RUNS)
    brute_places, brute_numbers = brute_force(rule, RUNS)
    assert two_sample(places, brute_places) > 1e-9
    assert two_sample(numbers, brute_numbers) > 1e-9
    ratio = math.exp(-0.5)
    law = (1 - ratio) * ratio ** np.arange(40)
    assert goodness(np.bincount(excesses, minlength=40)[:40], law) > 1e-9
    zeros = np.setdiff1d(np.arange(DOMAIN), PRESENT.astype(int))
    assert goodness(places[zeros], np.full(len(zeros), 1 / len(zeros))) > 1e-9

    _, off_numbers, _ = released(3.0, RUNS)
    assert two_sample(off_numbers, brute_numbers) < 1e-9


@pytest.mark.parametrize("bits", [2, 64])
def test_about_one_zero_of_any_domain_survives(bits: int, seeded: None) -> None:
    """The number of false survivors is binomial, practically Poisson with mean d·a^τ/(1+a): χ² rejects at 1e-9, and
    rejects two fifths more."""
    from scipy.stats import binom

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
    import mpmath

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
