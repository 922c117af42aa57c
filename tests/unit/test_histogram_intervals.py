"""Intervals for listed counts cover by exact summation, whatever the true count; posterior means serve sums."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from dpsketch.errors import InvalidInput
from dpsketch.laws.thresholds import CountThreshold
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.sketches.histogram.calibration import gaussian, plain_laplace, truncated_laplace
from dpsketch.sketches.histogram.intervals import log_reaching, ordinary, posterior_means, prior_exponent, selective
from dpsketch.truncated import Law, TruncatedLaplace

LISTINGS = [
    truncated_laplace(1.0, 1e-6, 1, False),
    truncated_laplace(0.1, 1e-5, 2, True),
    truncated_laplace(8.0, 1e-6, 1, False),
    plain_laplace(1.0, 1e-6, 1, 1, False),
    plain_laplace(0.5, 1e-4, 3, 4, True),
    gaussian(1.0, 1e-6, 1, 1, False),
    gaussian(2.0, 1e-4, 3, 2, True),
]
LAWS: list[Law] = [TruncatedLaplace(0.5, 9), DiscreteLaplace(1.0, 3), DiscreteLaplace(40.0, 1), RoundedGaussian(3.3)]


def masses(law: Law, reach: int) -> npt.NDArray[np.float64]:
    """P(Z = z) for z = −reach … reach, from the law's definition."""
    z = np.arange(-reach, reach + 1)
    match law:
        case RoundedGaussian(sigma):
            return np.diff([math.erf((x - 0.5) / sigma / math.sqrt(2)) / 2 for x in range(-reach, reach + 2)])
        case DiscreteLaplace(epsilon, sensitivity):
            weights = np.exp(-epsilon / sensitivity * np.abs(z))
        case TruncatedLaplace(rate, bound):
            weights = np.where(np.abs(z) <= bound, np.exp(-rate * np.abs(z)), 0.0)
    found: npt.NDArray[np.float64] = weights / weights.sum()
    return found


def reach_of(law: Law) -> int:
    return law.bound if isinstance(law, TruncatedLaplace) else math.ceil(28 * math.sqrt(law.variance)) + 2


def coverage(listing: CountThreshold, true: int, tail: float, *, conditional: bool = True) -> float:
    """How often a true count lies in its interval, given that it is listed: summed, not sampled."""
    law, reach = listing.noise, reach_of(listing.noise)
    y = true + np.arange(-reach, reach + 1)
    listed = y >= listing.cutoff
    chance, y = masses(law, reach)[listed], y[listed]
    low, high = selective(y, law, listing.cutoff, tail) if conditional else ordinary(y, law, tail)
    return float(chance[(low <= true) & (true <= high)].sum() / chance.sum())


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_tails_are_sums_of_the_law(law: Law) -> None:
    reach = reach_of(law)
    tails = np.cumsum(masses(law, reach)[::-1])[::-1]
    z = np.arange(-reach, reach + 1)
    kept = tails > 1e-12
    assert np.exp(log_reaching(law, z))[kept] == pytest.approx(tails[kept], rel=1e-9)
    assert log_reaching(law, [reach + 10**6])[0] < -100


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda each: each.words)
@pytest.mark.parametrize("tail", [0.025, 0.0005])
def test_every_true_count_is_covered_given_that_it_is_listed(listing: CountThreshold, tail: float) -> None:
    far = listing.cutoff + math.ceil(8 * math.sqrt(listing.noise.variance))
    near = range(max(1, listing.cutoff - 12), listing.cutoff + 13)
    for true in sorted({*near, *np.linspace(1, far, 25).astype(int).tolist()}):
        assert coverage(listing, true, tail) >= 1 - 2 * tail - 1e-9


def test_ordinary_intervals_never_cover_counts_far_below_the_cutoff() -> None:
    """The twin: what the test above would say of intervals that forget why a count was listed."""
    assert coverage(LISTINGS[0], 5, 0.025, conditional=False) == 0
    assert coverage(LISTINGS[5], 1, 0.025, conditional=False) < 0.1


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda each: each.words)
def test_intervals_are_no_wider_than_needed(listing: CountThreshold) -> None:
    """Each limit, moved inwards, would be one that the data speak for; far above the cutoff they are ordinary ones."""
    law, cutoff, reach = listing.noise, listing.cutoff, reach_of(listing.noise)
    mass = masses(law, reach)
    y = np.arange(cutoff, cutoff + 40)
    low, high = selective(y, law, cutoff, 0.025)
    for value, first, last in zip(y.tolist(), low.tolist(), high.tolist(), strict=True):

        def tail(c: int, start: int, stop: int) -> float:
            """P_c(start ≤ Y ≤ stop | Y ≥ cutoff)."""
            outcomes = c + np.arange(-reach, reach + 1)
            listed = mass[outcomes >= cutoff].sum()
            return float(mass[(outcomes >= start) & (outcomes <= stop)].sum() / listed)

        assert tail(first, value, 10**9) > 0.025 - 1e-9
        assert first == 1 or tail(first - 1, value, 10**9) <= 0.025 + 1e-9
        assert last == value or tail(last, cutoff, value) > 0.025 - 1e-9
        assert tail(last + 1, cutoff, value) <= 0.025 + 1e-9
    high_up = np.array([cutoff + 40 * math.ceil(math.sqrt(law.variance))])
    assert np.array_equal(selective(high_up, law, cutoff, 0.025), ordinary(high_up, law, 0.025))


def test_intervals_of_many_counts_follow_their_order() -> None:
    listing = LISTINGS[0]
    y = np.array([25, 15, 20, 17, 15, 2**60])
    low, high = selective(y, listing.noise, listing.cutoff, 0.025)
    assert low.tolist() == [22, 1, 17, 3, 1, 2**60 - 3]
    assert high.tolist() == [28, 17, 23, 20, 17, 2**60 + 3]


def test_a_listed_count_lies_in_its_interval_also_where_the_noise_is_wide() -> None:
    """Noise of scale 100: at the cutoff every true count would make so low a value surprising."""
    listing = plain_laplace(0.01, 1e-6, 1, 1, False)
    y = np.arange(listing.cutoff, listing.cutoff + 300)
    low, high = selective(y, listing.noise, listing.cutoff, 0.025)
    assert (low == 1)[:100].all()
    assert (high >= y).all()


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("tail", [0.025, 0.001])
def test_ordinary_intervals_cover_and_are_the_narrowest(law: Law, tail: float) -> None:
    true, reach = 1000, reach_of(law)
    y = true + np.arange(-reach, reach + 1)
    low, high = ordinary(y, law, tail)
    chance = masses(law, reach)
    assert chance[true < low].sum() <= tail
    assert chance[true > high].sum() <= tail
    assert low[0] == high[0] or chance[true < low + 1].sum() > tail


def test_counts_are_not_negative() -> None:
    low, high = ordinary(np.array([-50, 1]), DiscreteLaplace(1.0, 1), 0.025)
    assert low.tolist() == [0, 0]
    assert high.tolist() == [0, 4]


@pytest.fixture(scope="module")
def zipf() -> npt.NDArray[np.int64]:
    chances = np.arange(1, 40_001) ** -1.1
    records = np.random.default_rng(1).choice(40_000, 500_000, p=chances / chances.sum())
    counts = np.bincount(records)
    return counts[counts > 0]


@pytest.mark.parametrize("listing", [LISTINGS[0], LISTINGS[5]], ids=lambda each: each.name)
def test_posterior_means_take_back_what_selection_added(listing: CountThreshold, zipf: npt.NDArray[np.int64]) -> None:
    """The listed counts' sum over eight seeded draws: means are off by less than 60 % of what noisy counts are off by.

    Noisy counts are off by some 2,400 ± 190 (truncated) and 12,000 ± 500 (Gaussian), means by 0 ± the same deviation.
    The limit is about five of them away: false positives below 1e-6. Noisy counts themselves have the ratio 1.
    """
    raw = shrunk = 0.0
    for seed in range(8):
        with seeded_noise_for_tests_only(seed):
            y = zipf + listing.noise.sample(len(zipf))
        listed = y >= listing.cutoff
        means = posterior_means(y[listed], listing.noise, listing.cutoff)
        assert prior_exponent(y[listed], listing.noise, listing.cutoff) == pytest.approx(1.91, abs=0.1)
        assert ((means - zipf[listed]) ** 2).mean() <= 1.01 * ((y - zipf)[listed] ** 2).mean()
        raw += (y - zipf)[listed].sum()
        shrunk += (means - zipf[listed]).sum()
    assert abs(shrunk) < 0.6 * raw


@pytest.mark.parametrize(
    "listing", [LISTINGS[0], LISTINGS[5], plain_laplace(0.002, 1e-6, 1, 1, False)], ids=lambda x: x.words
)
def test_posterior_means_are_bayes(listing: CountThreshold) -> None:
    """Against a plain sum over all true counts."""
    law, cutoff = listing.noise, listing.cutoff
    deviation = math.sqrt(law.variance)
    y = cutoff + np.array([0, 1, 3, deviation, 7 * deviation, 30 * deviation, 100 * deviation]).astype(np.int64)
    s = prior_exponent(y, law, cutoff)
    c = np.arange(1.0, y.max() + 30 * deviation)
    prior = c**-s
    for value, mean in zip(y.tolist(), posterior_means(y, law, cutoff).tolist(), strict=True):
        likely = prior * (np.exp(log_reaching(law, value - c)) - np.exp(log_reaching(law, value - c + 1)))
        assert mean == pytest.approx((likely * c).sum() / likely.sum(), abs=deviation / 50)


def test_no_counts_have_no_means() -> None:
    law, cutoff = LISTINGS[0].noise, LISTINGS[0].cutoff
    assert posterior_means(np.zeros(0, np.int64), law, cutoff).tolist() == []
    low, high = selective(np.zeros(0, np.int64), law, cutoff, 0.025)
    assert len(low) == len(high) == 0
    with pytest.raises(InvalidInput, match="no count"):
        prior_exponent(np.zeros(0, np.int64), law, cutoff)


def test_counts_that_were_not_listed_are_refused() -> None:
    law, cutoff = LISTINGS[0].noise, LISTINGS[0].cutoff
    with pytest.raises(InvalidInput, match="below the cutoff"):
        selective(np.array([cutoff - 1]), law, cutoff, 0.025)
    with pytest.raises(InvalidInput, match="below the cutoff"):
        posterior_means(np.array([cutoff - 1]), law, cutoff)
