"""What listing names costs, by counts or by weights: every δ against an enumeration of what could be published."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace as changed
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import log_ndtr, ndtr

from dpsketch.accounting import gaussian_delta
from dpsketch.laws.joint import gaussian_excess, joint_delta
from dpsketch.laws.rounds import WEIGHT_ONE, unit_weights
from dpsketch.laws.thresholds import CountThreshold
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.sketches.histogram.calibration import choose, gaussian, plain_laplace, rounds, truncated_laplace, weighted
from dpsketch.truncated import Law, TruncatedLaplace
from oracles.laws import masses

Floats = npt.NDArray[np.float64]

# What rounding adds to the oracle's sums, whose terms are often 0 but for it.
SUMMING = 1e-15


# A slow oracle: the probabilities of everything that can be published, and their excess, added up.


def reach_of(law: Law) -> int:
    match law:
        case RoundedGaussian(sigma):
            return math.ceil(9 * sigma) + 1
        case DiscreteLaplace(epsilon, sensitivity):
            return math.ceil(40 * sensitivity / epsilon)
        case TruncatedLaplace(_, bound):
            return bound


def published(law: Law, cutoff: int, count: int, largest: int) -> Floats:
    """The law of one key's output: first "not listed", then the values from the cutoff on."""
    reach = reach_of(law)
    mass = masses(law, reach)
    outcomes = np.zeros(largest + reach - cutoff + 3)
    if count == 0:
        outcomes[0] = 1.0
        return outcomes
    values = np.arange(-reach, reach + 1) + count
    listed = values >= cutoff
    outcomes[0] = mass[~listed].sum()
    outcomes[values[listed] - cutoff + 1] = mass[listed]
    return outcomes


def excess(law: Law, cutoff: int, epsilon: float, with_it: Iterable[int], without: Iterable[int]) -> float:
    """The δ of one dataset's counts against another's, all keys together."""
    with_it, without = tuple(with_it), tuple(without)
    largest = max(*with_it, *without)
    here, there = np.ones(1), np.ones(1)
    for a, b in zip(with_it, without, strict=True):
        here = np.outer(here, published(law, cutoff, a, largest)).ravel()
        there = np.outer(there, published(law, cutoff, b, largest)).ravel()
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum()) - SUMMING


def both_ways(law: Law, cutoff: int, epsilon: float, one: Iterable[int], other: Iterable[int]) -> float:
    one, other = tuple(one), tuple(other)
    return max(excess(law, cutoff, epsilon, one, other), excess(law, cutoff, epsilon, other, one))


def threshold(form: str, epsilon: float, delta: float, weight: int, replace: bool) -> CountThreshold:
    if form == "truncated":
        return truncated_laplace(epsilon, delta, 1, replace)
    return (plain_laplace if form == "laplace" else gaussian)(epsilon, delta, 1, weight, replace)


def near(law: Law, cutoff: int, weight: int) -> list[int]:
    """Counts without the unit: none, few, about the cutoff, and so far above that they are always listed."""
    return [0, 1, cutoff - weight, cutoff, cutoff + math.ceil(15 * math.sqrt(law.variance)), 3 * cutoff]


@pytest.mark.parametrize(
    ("form", "epsilon", "delta", "weight"),
    [
        ("truncated", 0.5, 1e-4, 1),
        ("truncated", 1.0, 1e-6, 1),
        ("laplace", 3.0, 1e-5, 10),
        ("laplace", 0.01, 0.1, 1),
    ],
)
def test_a_threshold_hides_one_unit_more_or_less(form: str, epsilon: float, delta: float, weight: int) -> None:
    """Its δ is what the enumeration comes to, and a cutoff of one less would pass what was asked."""
    found = threshold(form, epsilon, delta, weight, False)
    moves = {1, weight // 2 + 1, weight}

    def largest(law: Law, cutoff: int) -> float:
        counts = near(law, cutoff, weight) if form == "laplace" else range(3 * found.cutoff + 2)
        return max(both_ways(law, cutoff, epsilon, [c + moved], [c]) for c in counts for moved in moves)

    exact = largest(found.noise, found.cutoff)
    assert found.delta == pytest.approx(exact, rel=1e-9 if form == "truncated" else 1e-6)
    assert exact <= found.delta <= delta < largest(found.noise, found.cutoff - 1)
    if isinstance(found.noise, TruncatedLaplace):  # nor would a smaller bound do
        assert found.cutoff == found.noise.bound + 1
        assert largest(TruncatedLaplace(epsilon, found.noise.bound - 1), found.noise.bound) > delta


# How near the exact δ is to the stated one, and how many times δ a threshold for one unit more or less would have.
@pytest.mark.parametrize(
    ("form", "epsilon", "delta", "weight", "near_by", "twin"),
    [
        ("truncated", 1.0, 1e-3, 1, 1e-9, 100),
        ("truncated", 1.0, 1e-6, 1, 1e-9, 100),
        ("laplace", 2.0, 1e-3, 3, 1e-6, 1),
        ("laplace", 0.05, 0.2, 1, 1e-6, 0),
        ("gaussian", 1.0, 1e-3, 1, 0.1, 3),
        ("gaussian", 2.0, 1e-4, 3, 0.1, 3),
    ],
)
def test_a_threshold_hides_which_unit_it_was(
    form: str, epsilon: float, delta: float, weight: int, near_by: float, twin: float
) -> None:
    found, added = (threshold(form, epsilon, delta, weight, replace) for replace in (True, False))

    def largest(law: Law, cutoff: int) -> float:
        counts = near(law, cutoff, weight)
        pairs = product(counts, counts)
        return max(excess(law, cutoff, epsilon, [a + weight, b], [a, b + weight]) for a, b in pairs)

    exact = largest(found.noise, found.cutoff)
    assert exact <= found.delta <= delta
    assert exact == pytest.approx(found.delta, rel=near_by)
    assert largest(added.noise, added.cutoff) > twin * delta
    if form == "gaussian":
        assert exact > 0.9 * delta
        assert largest(found.noise, found.cutoff - 1) > delta


@pytest.mark.parametrize(("epsilon", "delta", "worst"), [(1.0, 1e-3, 9.79e-4), (1.0, 1e-5, 9.64e-6)])
def test_gaussian_noise_hides_a_user_with_two_keys(epsilon: float, delta: float, worst: float) -> None:
    found = gaussian(epsilon, delta, 2, 1, False)

    def largest(cutoff: int) -> float:
        counts = [0, 1, cutoff - 2, cutoff, cutoff + 5, cutoff + math.ceil(15 * found.noise.variance**0.5)]
        pairs = [(a, b) for a, b in product(counts, counts) if a <= b]
        return max(both_ways(found.noise, cutoff, epsilon, [a + 1, b + 1], [a, b]) for a, b in pairs)

    exact = largest(found.cutoff)
    assert exact == pytest.approx(worst, rel=0.01)
    assert exact <= found.delta <= delta < largest(found.cutoff - 1)


def test_blocks_of_many_keys_are_rounded_up() -> None:
    """Beyond 256 keys they are looked at in blocks: a little worse than one by one, never better."""
    found = gaussian(1.0, 1e-5, 1000, 1, True)
    assert isinstance(found.noise, RoundedGaussian)
    sigma = found.noise.sigma
    novel = np.arange(1001)
    hidden = novel * log_ndtr((found.cutoff - 1.5) / sigma)
    single = max(
        float((-np.expm1(h) + np.exp(h) * gaussian_excess(1.0 + hidden - h, np.sqrt(2000 - j - novel) / sigma)).max())
        for j, h in zip(novel.tolist(), hidden.tolist(), strict=True)
    )
    assert single <= found.delta <= 1e-5
    assert single > 0.97e-5


@pytest.mark.parametrize(("epsilon", "leak", "shift"), [(0.3, 0.5, 1.0), (2.0, 0.01, 0.3), (0.3, 2.0, 0.0)])
def test_the_joint_formula_against_its_two_laws(epsilon: float, leak: float, shift: float) -> None:
    """Names and noise as cells of their own: a name that shows, or a Gaussian cut into cells of a two-hundredth."""
    edges = np.concatenate([[-np.inf], np.arange(-9, 11, 0.005), [np.inf]])

    def law(name: int, chance: float, centre: float) -> Floats:
        return np.array(
            [chance if i == name else 0.0 for i in range(2)] + list((1 - chance) * np.diff(ndtr(edges - centre)))
        )

    def worst(one: Floats, other: Floats) -> float:
        e = math.exp(epsilon)
        return float(max(np.maximum(one - e * other, 0).sum(), np.maximum(other - e * one, 0).sum()))

    shown = -math.expm1(-leak)
    pairs = np.array([leak]), np.array([shift**2])
    absent, present = law(0, 0.0, 0.0), law(0, shown, shift)
    assert joint_delta(epsilon, *pairs, replace=False) == pytest.approx(worst(present, absent), rel=1e-4)
    newcomer = law(1, shown, math.sqrt(2) * shift)
    left = law(0, shown, 0.0)
    assert joint_delta(epsilon, *pairs, replace=True) == pytest.approx(worst(newcomer, left), rel=1e-4)


# The choice.


@pytest.mark.parametrize("epsilon", [1e-7, 0.5, 3.0, 20.0])
@pytest.mark.parametrize("replace", [False, True])
def test_the_choice_is_the_best_of_all_that_could_be_forced(epsilon: float, replace: bool) -> None:
    for delta, keys, weight in product((1e-12, 1e-6, 0.2), (1, 2, 4, 9), (1, 7)):
        facts = (epsilon, delta, keys, weight, replace)
        every = [plain_laplace(*facts), gaussian(*facts)]
        every += [truncated_laplace(epsilon, delta, keys, replace)] if weight == 1 else []
        assert choose(*facts) == min(every, key=lambda each: (each.cutoff, each.noise.variance))


HIGH = 40.0  # a sum so far above the cutoff, in standard deviations, that it is always listed


def sum_outputs(sigma: float, cutoff: float, mean: float, shift: float) -> tuple[Floats, Floats]:
    """One key's output with and without a shift: "not listed", then cells of a fortieth of σ from the cutoff on.

    Which cell it is in is less than what is published, so no δ of the cells passes the true one.
    """
    start = max(cutoff, mean - 9 * sigma)
    edges = np.append(np.arange(start, max(mean, cutoff) + shift + 9 * sigma, sigma / 40), np.inf)
    tails = [ndtr((centre - edges) / sigma) for centre in (mean + shift, mean)]
    with_it, without = ([1 - tail[0], *-np.diff(tail)] for tail in tails)
    return np.array(with_it), np.array(without)


def enumerated(
    laws: tuple[RoundedGaussian, ...],
    cutoffs: tuple[int, ...],
    epsilon: float,
    held: list[list[tuple[int, float | None]]],
) -> float:
    """δ, both ways, of a unit that holds in each round these keys: (their number d, the others' sum or None if novel).

    The others' sum is given in standard deviations above the cutoff.
    """
    with_it, without = np.ones(1), np.ones(1)
    for law, cutoff, keys in zip(laws, cutoffs, held, strict=True):
        for number, above in keys:
            weight = WEIGHT_ONE / math.sqrt(number)
            if above is None:
                shown = float(ndtr((weight - cutoff) / law.sigma))
                here, there = np.array([1 - shown, shown]), np.array([1.0, 0.0])
            else:
                here, there = sum_outputs(law.sigma, cutoff, cutoff + above * law.sigma, weight)
            with_it, without = np.outer(with_it, here).ravel(), np.outer(without, there).ravel()
    e = math.exp(epsilon)
    return float(max(np.maximum(with_it - e * without, 0).sum(), np.maximum(without - e * with_it, 0).sum()))


def holdings(cap: int) -> list[list[tuple[int, float | None]]]:
    return [
        [(d, None)] * novel + [(d, above)] * (d - novel)
        for d in range(1, cap + 1)
        for novel in range(d + 1)
        for above in (-0.5, 0.0, HIGH)
    ]


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (3.0, 1e-6)])
def test_one_round_hides_a_user_with_two_keys(epsilon: float, delta: float) -> None:
    found = weighted(epsilon, delta, 2, False)
    worst = max(enumerated(found.noises, found.cutoffs, epsilon, [held]) for held in holdings(2))
    assert 0.99 * delta < worst <= found.delta <= delta
    lower = tuple(int(0.99 * cutoff) for cutoff in found.cutoffs)
    assert max(enumerated(found.noises, lower, epsilon, [held]) for held in holdings(2)) > delta


def test_two_rounds_hide_a_user_whatever_it_holds_in_each() -> None:
    found = rounds(2.0, 1e-3, 2, False)
    single = [held for held in holdings(2) if sum(above is not None for _, above in held) <= 1]
    worst = max(enumerated(found.noises, found.cutoffs, 2.0, [a, b]) for a, b in product(single, single))
    assert worst <= found.delta <= 1e-3


@pytest.mark.parametrize(("epsilon", "delta", "cap"), [(0.1, 1e-5, 1), (1.0, 1e-5, 100), (3.0, 1e-9, 10)])
def test_names_of_all_rounds_together_show_no_more_often_than_delta(epsilon: float, delta: float, cap: int) -> None:
    """Users whose keys are all novel in every round, and what the counts would cost on top."""
    weights = unit_weights(cap)[1:]
    for found in (rounds(epsilon, delta, cap, False), weighted(epsilon, delta, cap, False)):
        hidden = sum(
            (np.arange(1, cap + 1) * log_ndtr((cutoff - weights - 0.5) / law.sigma)).min()
            for law, cutoff in zip(found.noises, found.cutoffs, strict=True)
        )
        assert 0.1 * delta < -math.expm1(hidden) <= found.delta <= delta


def test_weights_are_rounded_down_and_move_at_most_one_in_all() -> None:
    weights = unit_weights(1000)
    for d in (1, 2, 3, 10, 777, 1000):
        assert d * int(weights[d]) ** 2 <= WEIGHT_ONE**2 < d * (int(weights[d]) + 1) ** 2


def test_counts_share_one_gaussian_with_the_names() -> None:
    """Where no name can leak, rounds and counts together shift by μ, less the room that was left."""
    found = weighted(1.0, 1e-5, 5, False, counts_weight=2, counts_keys=30, counts_share=0.3)
    assert found.counts is not None
    (noise,) = found.counts.noises
    assert isinstance(noise, RoundedGaussian)
    shift = math.hypot(WEIGHT_ONE / found.noises[0].sigma, 2 * math.sqrt(30) / noise.sigma)
    assert 0.99e-5 < gaussian_delta(1.0, shift) < found.delta
    quieter = changed(found.counts, noises=(RoundedGaussian(0.98 * noise.sigma),))
    assert changed(found, counts=quieter).delta > found.delta


def test_one_unit_in_place_of_another_is_looked_at_jointly() -> None:
    """One round's exact cutoff is below what two units at their worst would need, and all pairs of units keep δ."""
    epsilon, delta, cap = 1.0, 1e-4, 3
    found = weighted(epsilon, delta, cap, True)
    (law,), (cutoff,) = found.noises, found.cutoffs
    worst = 0.0
    units = [(d, novel) for d in range(1, cap + 1) for novel in range(d + 1)]
    for (d, j), (other, k) in product(units, units):
        hidden = j * log_ndtr((cutoff - WEIGHT_ONE / math.sqrt(d)) / law.sigma)
        others = k * log_ndtr((cutoff - WEIGHT_ONE / math.sqrt(other)) / law.sigma)
        shift = WEIGHT_ONE * math.sqrt((d - j) / d + (other - k) / other) / law.sigma
        loss = epsilon + others - hidden
        excess = ndtr(shift / 2 - loss / shift) - math.exp(loss) * ndtr(-shift / 2 - loss / shift) if shift else 0.0
        worst = max(worst, -math.expm1(hidden) + math.exp(hidden) * excess)
    assert worst == pytest.approx(found.delta, rel=1e-4)
