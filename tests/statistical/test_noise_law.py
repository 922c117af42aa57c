"""The law of the noise against exact probabilities, each test with a twin that shows it would notice a wrong law.

Every p-value is compared with 1e-9, so the false-positive rate of a test is 1e-9 a call, up to the chi-square
approximation with at least 40 expected in every cell; all seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.stats import chi2

from dpsketch.noise import (
    DiscreteLaplace,
    RoundedGaussian,
    SeededSourceForTestsOnly,
    seeded_noise_for_tests_only,
)
from oracles.noise import probabilities, source

pytestmark = pytest.mark.statistical

LEVEL = 1e-9
DRAWS = 1_000_000


def p_value(observed, expected):
    """Pearson's chi-square, after joining neighbouring cells until each expects at least 40."""
    counts, means = [], []
    count = mean = 0.0
    for o, e in zip(observed, expected, strict=True):
        count, mean = count + o, mean + e
        if mean >= 40:
            counts.append(count)
            means.append(mean)
            count = mean = 0.0
    counts[-1] += count
    means[-1] += mean
    counts, means = np.array(counts), np.array(means)
    assert len(counts) >= 3
    return chi2.sf(((counts - means) ** 2 / means).sum(), len(counts) - 1)


def law_p_value(sample, law, largest):
    """The p-value of a sample against the exact law; everything past ±largest is a cell of its own."""
    masses = np.array([float(mass) for mass in probabilities(law, largest)])
    outside = (1 - masses.sum()) / 2
    observed = np.bincount(np.clip(sample, -largest - 1, largest + 1) + largest + 1, minlength=2 * largest + 3)
    return p_value(observed, len(sample) * np.array([outside, *masses, outside]))


def drawn(law, seed, size=DRAWS):
    with seeded_noise_for_tests_only(seed):
        return law.sample(size)


CASES = [
    (RoundedGaussian(0.2), 1),
    (RoundedGaussian(0.5), 3),
    (RoundedGaussian(3.0), 14),
    (RoundedGaussian(1000.0), 4000),
    (DiscreteLaplace(4.0, 1), 3),
    (DiscreteLaplace(1.0, 1), 12),
    (DiscreteLaplace(1.0, 7), 80),
    (DiscreteLaplace(0.01, 1), 1200),
]


def scaled(law, factor):
    match law:
        case RoundedGaussian(sigma):
            return RoundedGaussian(sigma * factor)
        case DiscreteLaplace(epsilon, sensitivity):
            return DiscreteLaplace(epsilon / factor, sensitivity)


@pytest.mark.parametrize(("law", "largest"), CASES, ids=repr)
def test_law(law, largest):
    """False-positive rate 1e-9 a case; the twin: a scale that is a tenth off is rejected."""
    assert law_p_value(drawn(law, 11), law, largest) > LEVEL
    for factor in (1.1, 1 / 1.1):
        assert law_p_value(drawn(scaled(law, factor), 11), law, largest) < LEVEL


class FarTail(SeededSourceForTestsOnly):
    """A seeded source whose first words have 40 leading zeros after the sign; later requests are left alone."""

    def read(self, count):
        words = np.frombuffer(super().read(count), dtype="<u8")
        return words.tobytes() if count == 8 else ((words & 2**23 - 1) | (words & 2**63)).astype("<u8").tobytes()


def tail_p_value(law, sample_law):
    """The p-value of 4,000 draws given U < 2⁻⁴⁰, where each is settled in arbitrary precision."""
    with source(FarTail(13)):
        sample = sample_law.sample(4000)
    with mp.workprec(300):

        def mass(j):  # P(|Z| ≥ j, U < 2⁻⁴⁰)·2⁴⁰
            match law:
                case RoundedGaussian(sigma):
                    tail = mp.erfc((mpf(j) - mpf("0.5")) / sigma / mp.sqrt(2))
                case DiscreteLaplace(epsilon, sensitivity):
                    ratio = mp.exp(-mpf(epsilon) / sensitivity)
                    tail = 2 * ratio**j / (1 + ratio)
            return min(mpf(1), tail * 2**40)

        top = 1
        while mass(top) > 1e-6:
            top += 1
        edges = [mass(j) for j in range(1, top + 1)]
        masses = [float(a - b) for a, b in zip([mpf(1), *edges], [*edges, mpf(0)], strict=True)]
    half = np.array(masses) * 2000
    observed = np.bincount(np.clip(sample, -top, top) + top, minlength=2 * top + 1)
    # The cell of 0 joins both halves.
    return p_value(observed, [*half[:0:-1], 2 * half[0], *half[1:]])


@pytest.mark.parametrize("law", [RoundedGaussian(3.0), RoundedGaussian(40.0), DiscreteLaplace(1.0, 1)], ids=repr)
def test_far_tail(law):
    """The law given an event of probability 2⁻⁴⁰; false-positive rate 1e-9 a case."""
    assert tail_p_value(law, law) > LEVEL
    for factor in (1.1, 2 / 3, 3 / 2):
        assert tail_p_value(law, scaled(law, factor)) < LEVEL
