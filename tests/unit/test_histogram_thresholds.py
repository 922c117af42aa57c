"""What listing names costs: every δ against an enumeration of all that could be published, and the cutoffs it gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from dpsketch.errors import InvalidInput
from dpsketch.laws.thresholds import CountThreshold, delta_of
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.sketches.histogram.calibration import choose, gaussian, plain_laplace, truncated_laplace
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


# Truncated Laplace.


@pytest.mark.parametrize(("epsilon", "delta", "bound", "worst"), [(0.5, 1e-4, 16, 8.218e-5), (1.0, 1e-6, 14, 3.843e-7)])
def test_truncated_noise_hides_one_record_more_or_less(epsilon: float, delta: float, bound: int, worst: float) -> None:
    found = truncated_laplace(epsilon, delta, 1, False)
    assert (found.noise, found.cutoff) == (TruncatedLaplace(epsilon, bound), bound + 1)
    counts = range(3 * bound + 5)
    exact = max(both_ways(found.noise, found.cutoff, epsilon, [c + 1], [c]) for c in counts)
    assert exact == pytest.approx(worst, rel=1e-3)
    assert found.delta == pytest.approx(exact, rel=1e-9)
    assert exact <= found.delta <= delta
    lower = max(both_ways(found.noise, found.cutoff - 1, epsilon, [c + 1], [c]) for c in counts)
    smaller = max(both_ways(TruncatedLaplace(epsilon, bound - 1), bound, epsilon, [c + 1], [c]) for c in counts)
    assert lower > delta
    assert smaller > delta


@pytest.mark.parametrize(("epsilon", "delta", "bound", "worst"), [(1.0, 1e-3, 13, 7.371e-4), (1.0, 1e-6, 27, 6.716e-7)])
def test_truncated_noise_hides_which_record_it_was(epsilon: float, delta: float, bound: int, worst: float) -> None:
    found = truncated_laplace(epsilon, delta, 1, True)
    assert (found.noise, found.cutoff) == (TruncatedLaplace(epsilon / 2, bound), bound + 1)
    counts = [0, 1, bound, 2 * bound, 3 * bound + 2]

    def largest(threshold: CountThreshold) -> float:
        return max(
            excess(threshold.noise, threshold.cutoff, epsilon, [a + 1, b], [a, b + 1])
            for a, b in product(counts, counts)
        )

    exact = largest(found)
    assert exact == pytest.approx(worst, rel=1e-3)
    assert found.delta == pytest.approx(exact, rel=1e-9)
    assert exact <= found.delta <= delta
    assert largest(truncated_laplace(epsilon, delta, 1, False)) > 100 * delta


def test_truncated_noise_hides_a_user_with_two_keys() -> None:
    found = truncated_laplace(2.0, 1e-3, 2, False)
    counts = [0, 1, found.cutoff - 1, found.cutoff, 4 * found.cutoff]
    exact = max(both_ways(found.noise, found.cutoff, 2.0, [a + 1, b + 1], [a, b]) for a, b in product(counts, counts))
    assert found.delta == pytest.approx(exact, rel=1e-9)
    assert exact <= found.delta <= 1e-3


# Plain Laplace.


@pytest.mark.parametrize(("epsilon", "delta", "weight"), [(3.0, 1e-5, 10), (0.01, 0.1, 1)])
def test_laplace_noise_hides_one_unit_more_or_less(epsilon: float, delta: float, weight: int) -> None:
    found = plain_laplace(epsilon, delta, 1, weight, False)

    def largest(cutoff: int) -> float:
        counts = [0, 1, cutoff - weight, cutoff, 3 * cutoff]
        return max(
            both_ways(found.noise, cutoff, epsilon, [c + moved], [c])
            for c in counts
            for moved in {1, weight // 2 + 1, weight}
        )

    assert found.delta == pytest.approx(largest(found.cutoff), rel=1e-6)
    assert largest(found.cutoff) <= found.delta <= delta < largest(found.cutoff - 1)


@pytest.mark.parametrize(("epsilon", "delta", "weight"), [(2.0, 1e-3, 3), (0.05, 0.2, 1)])
def test_laplace_noise_hides_which_unit_it_was(epsilon: float, delta: float, weight: int) -> None:
    found = plain_laplace(epsilon, delta, 1, weight, True)

    def largest(threshold: CountThreshold) -> float:
        counts = [0, 1, threshold.cutoff - weight, threshold.cutoff, 2 * threshold.cutoff]
        return max(
            excess(threshold.noise, threshold.cutoff, epsilon, [a + weight, b], [a, b + weight])
            for a, b in product(counts, counts)
        )

    exact = largest(found)
    assert exact <= found.delta <= delta
    assert found.delta == pytest.approx(exact, rel=1e-6)
    if delta < epsilon / 2:
        assert largest(plain_laplace(epsilon, delta, 1, weight, False)) > delta


# Gaussian.


@pytest.mark.parametrize(("epsilon", "delta", "worst"), [(1.0, 1e-3, 9.79e-4), (1.0, 1e-5, 9.64e-6)])
def test_gaussian_noise_hides_a_user_with_two_keys(epsilon: float, delta: float, worst: float) -> None:
    found = gaussian(epsilon, delta, 2, 1, False)
    assert isinstance(found.noise, RoundedGaussian)

    def largest(cutoff: int) -> float:
        counts = [0, 1, cutoff - 2, cutoff, cutoff + 5, cutoff + math.ceil(15 * found.noise.variance**0.5)]
        return max(
            both_ways(found.noise, cutoff, epsilon, [a + 1, b + 1], [a, b])
            for a, b in product(counts, counts)
            if a <= b
        )

    exact = largest(found.cutoff)
    assert exact == pytest.approx(worst, rel=0.01)
    assert exact <= found.delta <= delta < largest(found.cutoff - 1)


@pytest.mark.parametrize(("epsilon", "delta", "weight"), [(1.0, 1e-3, 1), (2.0, 1e-4, 3)])
def test_gaussian_noise_hides_which_unit_it_was(epsilon: float, delta: float, weight: int) -> None:
    found = gaussian(epsilon, delta, 1, weight, True)

    def largest(threshold: CountThreshold, cutoff: int) -> float:
        counts = [0, 1, cutoff - 2, cutoff, cutoff + math.ceil(15 * threshold.noise.variance**0.5)]
        return max(
            excess(threshold.noise, cutoff, epsilon, [a + weight, b], [a, b + weight])
            for a, b in product(counts, counts)
        )

    assert 0.9 * delta < largest(found, found.cutoff) <= found.delta <= delta < largest(found, found.cutoff - 1)
    add_remove = gaussian(epsilon, delta, 1, weight, False)
    assert largest(add_remove, add_remove.cutoff) > 3 * delta


def test_blocks_of_many_keys_are_rounded_up() -> None:
    """Beyond 256 keys they are looked at in blocks: a little worse than one by one, never better."""
    from scipy.special import log_ndtr

    from dpsketch.laws.joint import gaussian_excess

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
    from scipy.special import ndtr

    from dpsketch.laws.joint import joint_delta

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


# Cutoffs that were worked out independently.


@pytest.mark.parametrize(
    ("epsilon", "keys", "laplace", "truncated", "normal", "sigma", "replaced"),
    [(0.1, 2, 232, 172, 194, 43.49, 274), (1.0, 30, 429, 326, 104, 20.43, 146), (3.0, 10, 46, 41, 23, 4.40, 32)],
)
def test_cutoffs_of_users(
    epsilon: float, keys: int, laplace: int, truncated: int, normal: int, sigma: float, replaced: int
) -> None:
    assert plain_laplace(epsilon, 1e-5, keys, 1, False).cutoff == laplace
    assert truncated_laplace(epsilon, 1e-5, keys, False).cutoff == truncated
    found = gaussian(epsilon, 1e-5, keys, 1, False)
    assert isinstance(found.noise, RoundedGaussian)
    assert (found.cutoff, round(found.noise.sigma, 2)) == (normal, sigma)
    assert gaussian(epsilon, 1e-5, keys, 1, True).cutoff == replaced


# Claims, and the choice.

MAKERS: list[Callable[[float, float, int, bool], CountThreshold]] = [
    truncated_laplace,
    lambda epsilon, delta, keys, replace: plain_laplace(epsilon, delta, keys, 3, replace),
    lambda epsilon, delta, keys, replace: gaussian(epsilon, delta, keys, 3, replace),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("replace", [False, True])
def test_a_claim_is_checked_from_what_a_file_says(
    make: Callable[[float, float, int, bool], CountThreshold], replace: bool
) -> None:
    for epsilon, delta, keys in ((1e-3, 1e-9, 1), (1.0, 1e-5, 7), (30.0, 1e-6, 7), (0.7, 0.3, 1)):
        found = make(epsilon, delta, keys, replace)
        facts = {"epsilon": epsilon, "keys": keys, "weight": found.weight, "replace": replace}
        assert delta_of(found.noise, found.cutoff, **facts) == found.delta <= delta
        assert delta_of(found.noise, found.cutoff - 1, **facts) > delta
        for stronger in ({"epsilon": epsilon * 0.9}, {"weight": found.weight + 1}, {"keys": keys + 1}):
            assert delta_of(found.noise, found.cutoff, **{**facts, **stronger}) > found.delta


@pytest.mark.parametrize(
    "law", [TruncatedLaplace(0.5, 10**6), DiscreteLaplace(0.5, 1), RoundedGaussian(1e-3)], ids=repr
)
def test_no_claim_of_a_file_is_too_wild_to_check(law: Law) -> None:
    for cutoff, epsilon in product((-(10**9), 0, 1, 10**12), (1e-9, 0.5, 700.0)):
        found = delta_of(law, cutoff, epsilon=epsilon, keys=1, weight=1, replace=False)
        assert 0 <= found <= 1
        assert cutoff > 1 or found > 0.4


def test_few_keys_take_the_least_cutoff() -> None:
    assert choose(1.0, 1e-6, 1, 1, False).form == "truncated"
    assert choose(1.0, 1e-5, 2, 1, False).form == "truncated"
    assert choose(1.0, 1e-5, 3, 1, False).form == "gaussian"
    assert choose(3.0, 1e-5, 1, 10, False).form == "laplace"
    assert choose(1.0, 1e-5, 4, 5, True).form == "gaussian"
    assert choose(1.0, 1e-5, 2, 1, False, names_only=True).form == "truncated"
    assert choose(1.0, 1e-5, 30, 1, False).form == "rounds"
    assert choose(0.5, 1e-5, 30, 1, False).form == "weighted"


@pytest.mark.parametrize("epsilon", [1e-7, 0.5, 3.0, 20.0])
@pytest.mark.parametrize("replace", [False, True])
def test_the_choice_is_the_best_of_all_that_could_be_forced(epsilon: float, replace: bool) -> None:
    for delta, keys, weight in product((1e-12, 1e-6, 0.2), (1, 2, 4, 9), (1, 7)):
        facts = (epsilon, delta, keys, weight, replace)
        every = [plain_laplace(*facts), gaussian(*facts)]
        every += [truncated_laplace(epsilon, delta, keys, replace)] if weight == 1 else []
        assert choose(*facts) == min(every, key=lambda each: (each.cutoff, each.noise.variance))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at most 1"):
        choose(1.0, 1e-5, 1, 2, False, form="truncated")
    for bad in ((0.0, 1e-5, 1), (1.0, 0.0, 1), (1.0, 1.0, 1), (1.0, 1e-5, 0), (math.inf, 1e-5, 1)):
        for make in MAKERS:
            with pytest.raises(InvalidInput):
                make(*bad, False)
