"""Plans of what bounds cost: error against the bound on a user's keys, and names found in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput
from dpsketch.plan import Amount, Guess, compare, error_by_bound, propose

GUESS = Guess(60_000, 400, 1.0, 5_000)
AMOUNT = Amount(dps.per_user(1), 1.0, 1e-6)


def measured(bound: int, held: np.ndarray, shares: np.ndarray) -> float:
    """The error of real releases under a bound, against what users hold without one; a law of users as planned."""
    rng = np.random.default_rng(bound)
    keys = np.concatenate([rng.choice(len(shares), size, replace=False, p=shares) for size in held])
    histogram = dps.Histogram(unit=dps.per_user(bound), key_type="int")
    histogram.update(keys, users=np.repeat(np.arange(len(held)), held))
    release = histogram.release(epsilon=1.0, delta=1e-6, keys=list(range(len(shares))))
    return float(np.sqrt(np.mean((release.values - np.bincount(keys, minlength=len(shares))) ** 2.0)))


def test_the_curve_is_what_releases_do() -> None:
    """Within a fifth on both sides of its valley: keys drawn without replacement are flatter than the plan's."""
    guess = Guess(60_000, 400, 0.5, 5_000)
    curve = error_by_bound(AMOUNT, guess, spread=0.7)
    rng = np.random.default_rng(5)
    held = np.clip(np.round(12 * np.exp(0.7 * rng.normal(size=5_000) - 0.245)), 1, 200).astype(int)
    shares = guess.counts / guess.counts.sum()
    for bound in (8, 23, 91):
        planned = curve.error[curve.bounds.index(bound)]
        assert measured(bound, held, shares) == pytest.approx(planned, rel=0.2)
    assert 16 <= curve.best <= 64


def test_heavier_tails_and_larger_budgets_want_a_larger_bound() -> None:
    bests = [error_by_bound(AMOUNT, GUESS, spread=spread).best for spread in (0.0, 0.5, 1.5)]
    assert bests[0] <= 16
    assert bests == sorted(bests)
    rich = error_by_bound(Amount(dps.per_user(1), 10.0, 1e-6), GUESS, spread=1.0)
    poor = error_by_bound(Amount(dps.per_user(1), 0.1, 1e-6), GUESS, spread=1.0)
    assert rich.best > poor.best
    assert rich.to_json()["best"] == rich.best


def test_without_users_there_is_nothing_to_bound() -> None:
    with pytest.raises(InvalidInput, match="needs users"):
        error_by_bound(Amount(dps.per_record(), 1.0, 1e-6), GUESS)
    with pytest.raises(InvalidInput, match="needs users"):
        error_by_bound(AMOUNT, Guess(100, 10, 1.0))
    with pytest.raises(InvalidInput, match="spread"):
        error_by_bound(AMOUNT, GUESS, spread=-1)


@pytest.mark.parametrize("unit", [dps.per_record(), dps.per_user(5)], ids=["record", "user"])
def test_buckets_find_about_as_many_names_as_planned(unit: dps.Unit) -> None:
    """Within a tenth of what a release of such data finds, and error within a fifth where it is predicted by noise."""
    guess = Guess(200_000, 20_000, 1.1, None if unit.level == "record" else 40_000)
    planned = propose("histogram-votes", Amount(unit, 1.0, 1e-6), guess, memory=64 * 2048)
    assert planned.shape["max_counters"] == 2048
    rng = np.random.default_rng(1)
    keys = rng.choice(20_000, 200_000, p=guess.counts / guess.counts.sum())
    histogram = dps.VoteHistogram(unit=unit, max_counters=2048, key_type="int")
    histogram.update(keys, **({} if unit.level == "record" else {"users": rng.integers(40_000, size=len(keys))}))
    release = histogram.release(epsilon=1.0, delta=1e-6)
    assert len(release.keys) == pytest.approx(planned.also["found"], rel=0.1)
    if unit.level == "record":
        off = release.estimate(release.keys).value - np.bincount(keys, minlength=20_000)[release.keys]
        assert float(np.sqrt(np.median(off**2))) < 2 * planned.error


def test_buckets_are_proposed_where_keys_cannot_be_held_and_never_for_a_list() -> None:
    amount, guess = Amount(dps.per_record(), 1.0, 1e-6), Guess(20_000, 3_000, 1.1)
    both = compare("keys", amount, guess)
    assert both.best.kind == "histogram"
    assert "histogram-votes" in {each.kind for each in both.proposals}
    small = compare("keys", amount, guess, memory=1 << 17)
    assert small.best.kind == "histogram-votes"
    assert "histogram" in small.refused
    with pytest.raises(InvalidInput, match="not for those of a list"):
        propose("histogram-votes", amount, guess, listed=True)
