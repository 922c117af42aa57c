"""The histogram by what its user sees: exact counts come in, in any order and split, and names with counts go out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import CounterOverflow, FileRefused, InvalidInput
from dpsketch.laws.entries import CentredCounts
from dpsketch.noise import seeded_noise_for_tests_only
from ledgers import begun

RECORD = dps.per_record()
# So much ε adds no noise: what is released is what was counted.
EXACT: dict[str, Any] = {"epsilon": 1e5, "delta": 0.0}


def counted(histogram: dps.Histogram, keys: list[Any]) -> dict[Any, float]:
    found = histogram.release(**EXACT, keys=keys).estimate(keys)
    return dict(zip(found.key, found.value.tolist(), strict=True))


def test_a_user_counts_on_so_many_keys_and_by_so_much() -> None:
    """Over batches and partials: a user's records are bounded together, at the release."""
    unit = dps.per_user(max_keys=3, max_weight=2)
    histogram = dps.Histogram(unit=unit, key_type="int")
    histogram.update([1, 1, 2], users=["ann"] * 3)
    other = dps.Histogram(unit=unit, key_type="int")
    other.update([1, 3, 4, 5], users=["ann"] * 4)
    other.update([1], users=["bob"])
    histogram.merge(other)
    for _ in range(20):
        found = counted(histogram, [1, 2, 3, 4, 5])
        of_ann = [found[1] - 1, found[2], found[3], found[4], found[5]]
        assert np.count_nonzero(of_ann) == 3
        assert max(of_ann) <= 2
        assert found[1] - 1 in (0, 2)  # three records of one key are clipped together


def test_all_keys_of_a_user_have_the_same_chance_to_count() -> None:
    """Each of 6 keys is among the 2 that count for a third of 1,200 users, and for others in the next release.

    The false-positive rate of two releases is below 1e-5: twelve counts may be five deviations off.
    """
    histogram = dps.Histogram(unit=dps.per_user(max_keys=2), key_type="int")
    histogram.update(np.tile(np.arange(6), 1200), users=np.repeat(np.arange(1200), 6))
    one, two = (np.array(list(counted(histogram, list(range(6))).values())) for _ in range(2))
    for found in (one, two):
        assert found.sum() == 2400
        assert np.all(np.abs(found - 400) < 5 * np.sqrt(1200 * (1 / 3) * (2 / 3)))
    assert not np.array_equal(one, two)


def test_the_list_is_published_whole_and_alone() -> None:
    histogram = dps.Histogram(unit=RECORD)
    histogram.update(["tea"] * 500 + ["coffee"] * 400 + ["one"])
    private = histogram.release(epsilon=1.0, delta=0, keys=["milk", "tea", "milk"], others=True)
    assert private.keys == private.listed == ["milk", "tea"]
    assert private.guarantee.delta == 0
    assert abs(private.estimate(["tea"]).value[0] - 500) < 40
    assert private.others is not None
    assert abs(private.others.value - 401) < 40
    with pytest.raises(InvalidInput, match="not on this release's public list"):
        private.estimate(["coffee"])
    both = histogram.release(epsilon=1.0, delta=1e-6, keys=["milk"], unknown=True)
    assert both.keys == ["milk", "coffee", "tea"]
    assert both.guarantee.delta == 1e-6


def test_a_key_that_is_not_there_reads_zero_up_to_the_threshold() -> None:
    histogram = dps.Histogram(unit=RECORD)
    histogram.update(["a"] * 100 + ["b"] * 10)
    found = histogram.release(epsilon=1.0, delta=1e-6).estimate(["b", "never"])
    assert found.value.tolist() == found.low.tolist() == [0, 0]
    assert np.all((found.high >= 15) & (found.high < 25))


def test_names_in_the_order_of_names() -> None:
    """Whatever the counts are: an order by exact counts would show them."""
    for heavy in ("a", "b", "c"):
        histogram = dps.Histogram(unit=RECORD)
        histogram.update(["a", "b", "c"] * 100 + [heavy] * 900)
        assert histogram.release(epsilon=1.0, delta=1e-6).keys == ["a", "b", "c"]


def test_a_user_of_a_short_list_counts_for_no_more_keys_than_the_release_states() -> None:
    """All seven days of a user counted, and the release stated "at most 6 keys counted each"."""
    users, days, most = 4000, 7, 6
    histogram = dps.Histogram(unit=dps.per_user(max_keys=most))
    histogram.update(np.tile(np.arange(days), users), users=np.repeat(np.arange(users), days))
    found = histogram.release(epsilon=1.0, delta=1e-6, keys=list(range(days)))
    assert isinstance(found.law, CentredCounts)
    estimates = found.estimate(list(range(days)))
    assert f"at most {most} keys" in estimates.counts
    assert abs(float(estimates.value.sum()) - most * users) < users / 2  # more than 20 standard deviations


@pytest.mark.parametrize("form", ["weighted", "rounds"])
def test_users_with_many_keys(form: Any) -> None:
    """Names by weights, counts on the found keys only; and names alone. No key counts for more than is said of those
    that were not found: the weight of one that does is more than 10 deviations above the cutoff.
    """
    rng = np.random.default_rng(2)
    users, keys = rng.integers(0, 3000, 40_000), rng.zipf(1.4, 40_000) % 500
    histogram = dps.Histogram(unit=dps.per_user(max_keys=60), key_type="int")
    histogram.update(keys, users=users)
    private = histogram.release(epsilon=2.0, delta=1e-6, form=form)
    truth = np.array([len(set(users[keys == key].tolist())) for key in private.keys])
    found = private.estimate(private.keys)
    assert len(truth) > 20
    assert np.mean((found.low <= truth) & (truth <= found.high)) > 0.8
    absent = sorted(set(keys.tolist()) - set(private.keys))
    missed = private.estimate(absent)
    assert all(len(set(users[keys == key].tolist())) <= high for key, high in zip(absent, missed.high, strict=True))
    alone = histogram.release(epsilon=2.0, delta=1e-6, form=form, names_only=True)
    assert len(alone.keys) >= len(truth) - 10
    with pytest.raises(InvalidInput, match="names only"):
        alone.estimate([1])


@pytest.mark.parametrize(("epsilon", "held"), [(0.6, 22), (3.0, 40)])
def test_a_stated_bound_is_not_cut_further_where_noise_is_smaller_than_the_cut(epsilon: float, held: int) -> None:
    """Every key is held by 4,000 users. The mean of the counts has a standard error below 20, so that 200 is exceeded
    with a probability below 1e-20. Counting 10 or 30 keys a user would leave the mean at 3,000 or below.
    """
    histogram = dps.Histogram(unit=dps.per_user(max_keys=40))
    histogram.update(np.tile(np.arange(held), 4_000), users=np.repeat(np.arange(4_000), held))
    with seeded_noise_for_tests_only(11):
        private = histogram.release(epsilon=epsilon, delta=1e-6)
    assert len(private.keys) == held
    assert abs(np.mean(private.values) - 4_000) < 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 1.0, "delta": 0.0}, "need delta > 0"),
        ({"epsilon": 1.0, "delta": 1e-6, "unknown": False}, "nothing would be published"),
        ({"epsilon": 1.0, "delta": 1e-6, "form": "weighted"}, "for users with many keys"),
        ({"epsilon": 1.0, "delta": 1e-6, "names_only": True}, "gains nothing"),
        ({"rho": 0.1}, "rho= needs a public list"),
        ({"epsilon": 1.0, "delta": 1e-6, "form": "nonsense"}, "form is one of"),
        ({"epsilon": 1.0, "delta": 1e-6, "keys": ["a"], "form": "rounds"}, "Laplace or Gaussian"),
        ({"epsilon": 1.0, "delta": 0.0, "keys": ["a"], "form": "gaussian"}, "needs delta > 0 or rho"),
        ({"epsilon": 1.0, "delta": 1e-6, "keys": ["a", None]}, "a null is not a key"),
    ],
)
def test_what_cannot_be_released_is_refused_before_anything_is_charged(options: Any, words: str, tmp_path: Any) -> None:
    ledger = begun(tmp_path / "ledger.db")
    histogram = dps.Histogram(unit=RECORD)
    histogram.update(["a", "b"])
    with pytest.raises(InvalidInput, match=words):
        histogram.release(**options, ledger=ledger, dataset="web")
    assert ledger.datasets() == []


def test_users_counts_never_wrap() -> None:
    """Users who could carry a key past 2⁶² together are refused, before anything changes."""
    histogram = dps.Histogram(unit=dps.per_user(1, max_weight=2**40), key_type="int")
    batch: dict[str, Any] = {"keys": np.ones(2**20, np.int64), "weights": np.full(2**20, 2.0**40)}
    other = histogram.empty_like()
    other.update([1], users=[-1], weights=[1])
    for start in range(0, 2**22, 2**20):
        histogram.update(users=np.arange(start, start + 2**20), **batch)
    with pytest.raises(CounterOverflow):
        histogram.update([1], users=[-1], weights=[1])
    with pytest.raises(CounterOverflow):
        histogram.merge(other)
    assert counted(histogram, [1])[1] == pytest.approx(2.0**62, rel=1e-6)


@pytest.mark.parametrize("kind", [dps.Histogram, partial(dps.VoteHistogram, max_counters=4096)])
def test_integers_are_published_as_they_came_or_refused(kind: Any) -> None:
    """An integer of 2⁶³ or more has the bits of a negative one, which nobody had: it is no key of a histogram."""
    large = 2**63 + 5
    columns = [np.array([large, 1], np.uint64), [large, -1], pa.array([1, large, 1], pa.uint64()).dictionary_encode()]
    for column in columns:
        with pytest.raises(InvalidInput, match=r"below 2\*\*63.*as text") as refused:
            kind(unit=dps.per_user(max_keys=3)).update(column, users=list(range(len(column))))
        assert str(large) not in str(refused.value)
    histogram = kind(unit=dps.per_record())
    least, most = -(2**63), 2**63 - 1
    histogram.update(np.array([7, most] * 400, np.uint64))
    histogram.update([np.int8(-1), np.int64(least)] * 400)  # of several types, which Arrow does not take together
    private = histogram.release(epsilon=5.0, delta=1e-6)
    assert private.keys == [least, -1, 7, most]
    with pytest.raises(InvalidInput, match=r"below 2\*\*63"):
        private.estimate([large])


def test_a_window_of_days_is_read_back() -> None:
    """With its answers and its guarantee, for users of several listed keys; names that come twice are refused."""
    sketch = dps.Histogram(unit=dps.per_user(5), key_type="int")
    stream = dps.ContinualSketch(sketch, days=4, epsilon=8.0, delta=1e-6, keys=[1, 2, 3], user_days=2)
    for _ in range(2):
        stream.day(np.arange(3000) % 3 + 1, users=np.arange(3000))
    window = stream.total()
    document = window.to_document()
    again: Any = dps.load(files.encode(document))
    assert again.facts() == window.facts()
    assert str(again.guarantee) == str(window.guarantee)
    one, two = (each.estimate([1, 2, 3]) for each in (again, window))
    assert (one.value.tolist(), one.high.tolist()) == (two.value.tolist(), two.high.tolist())
    nameless = {**document.arrays, "counts__names": np.array([1, 1, 2])}
    with pytest.raises(FileRefused):
        dps.load(files.encode(replace(document, arrays=nameless)))
