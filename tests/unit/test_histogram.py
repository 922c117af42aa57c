"""The histogram by what its user sees: exact counts come in, in any order and split, and names with counts go out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import CounterOverflow, FileRefused, InvalidInput, SpecMismatch
from dpsketch.noise import seeded_noise_for_tests_only
from sensitive import everything

RECORD = dps.per_record()
# So much ε adds no noise: what is released is what was counted.
EXACT: dict[str, Any] = {"epsilon": 1e5, "delta": 0.0}
KEYS = st.one_of(st.text(max_size=20), st.none())


def counted(histogram: dps.Histogram, keys: list[Any]) -> dict[Any, float]:
    found = histogram.release(**EXACT, keys=keys).estimate(keys)
    return dict(zip(found.key, found.value.tolist(), strict=True))


@given(st.lists(KEYS, max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_any_split_is_one_pass(keys: list[str | None], one: int, two: int) -> None:
    """Counts are those of a Counter; batches and partials leave no trace, in the content and in the draws."""
    whole = dps.Histogram(unit=RECORD, key_type="text")
    whole.update(keys)
    parts = [whole.empty_like(), whole.empty_like()]
    first, second = sorted((one, two))
    parts[0].update(keys[second:])
    parts[0].update(keys[:first])
    parts[1].update(keys[first:second])
    parts[0].merge(parts[1])
    assert everything(parts[0]) == everything(whole)
    names = sorted({key for key in keys if key is not None})
    if names:
        assert counted(whole, names) == dict(Counter(key for key in keys if key is not None))
    assert whole.skipped_nulls == keys.count(None)
    for budget in ({"epsilon": 1.0, "delta": 0.1}, {"epsilon": 1.0, "delta": 0.1, "others": True}):
        with seeded_noise_for_tests_only(5):
            one_pass = whole.release(**budget)
        with seeded_noise_for_tests_only(5):
            merged = parts[0].release(**budget)
        assert files.encode(one_pass.to_document()) == files.encode(merged.to_document())


@given(st.lists(st.tuples(KEYS, st.one_of(st.integers(0, 4), st.none())), max_size=60), st.integers(0, 60))
def test_users_may_come_in_any_order_and_in_several_partials(records: list[Any], cut: int) -> None:
    unit = dps.per_user(max_keys=2, max_weight=3)
    keys, users = [key for key, _ in records], [user for _, user in records]

    def add(histogram: dps.Histogram, part: slice) -> dps.Histogram:
        histogram.update(pa.array(keys[part], pa.string()), users=pa.array(users[part], pa.int64()))
        return histogram

    whole = add(dps.Histogram(unit=unit), slice(None))
    part = add(add(whole.empty_like(), slice(cut, None)), slice(0, 0))
    part.merge(add(whole.empty_like(), slice(0, cut)))
    assert everything(part) == everything(whole)
    with seeded_noise_for_tests_only(5):
        one_pass = whole.release(epsilon=1.0, delta=0.1, others=True)
    with seeded_noise_for_tests_only(5):
        merged = part.release(epsilon=1.0, delta=0.1, others=True)
    assert files.encode(one_pass.to_document()) == files.encode(merged.to_document())


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
    """Each of 6 keys is among the 2 that count in a third of the releases. False-positive rate below 1e-6."""
    histogram = dps.Histogram(unit=dps.per_user(max_keys=2), key_type="int")
    histogram.update(list(range(6)), users=[7] * 6)
    histogram.update([9], users=[8])
    found = sum(np.array(list(counted(histogram, list(range(6))).values())) for _ in range(1200))
    assert found.sum() == 2400
    assert np.all(np.abs(found - 400) < 5 * np.sqrt(1200 * (1 / 3) * (2 / 3)))


def test_weights_are_clipped_and_counts_are_records() -> None:
    histogram = dps.Histogram(unit=dps.per_record(max_weight=2), grid=0.5)
    histogram.update(["a", "b", None], weights=[1.5, 9.0, 1.0], counts=[4, 3, 2])
    assert counted(histogram, ["a", "b"]) == {"a": 6.0, "b": 6.0}
    assert histogram.skipped_nulls == 1
    assert histogram.cut.too_heavy == 3
    private = histogram.release(epsilon=100.0, delta=1e-6)
    assert private.keys == ["a", "b"]
    assert private.estimate(["a"]).value[0] == pytest.approx(6.0, abs=1)


@pytest.mark.parametrize("large", [False, True])
def test_integers_are_patterns_of_64_bits(large: bool) -> None:
    keys = np.array([2**64 - 1, 2**63, 5], np.uint64) if large else np.array([-1, -(2**63), 5], np.int64)
    histogram = dps.Histogram(unit=RECORD)
    histogram.update(np.repeat(keys, 50))
    private = histogram.release(epsilon=5.0, delta=1e-6)
    assert private.keys == [-(2**63), -1, 5]
    assert np.all(private.estimate(keys).value > 40)
    assert private.spec.key_type == "int"


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


def test_zero_concentrated_budgets_need_a_list() -> None:
    histogram = dps.Histogram(unit=dps.per_user(max_keys=4), key_type="int")
    histogram.update([1, 2], users=[1, 1])
    private = histogram.release(rho=0.1, keys=[1, 2, 3])
    assert private.guarantee.rho == 0.1
    with pytest.raises(InvalidInput, match="rho= needs a public list"):
        histogram.release(rho=0.1)


def test_names_in_the_order_of_names() -> None:
    """Whatever the counts are: an order by exact counts would show them."""
    for heavy in ("a", "b", "c"):
        histogram = dps.Histogram(unit=RECORD)
        histogram.update(["a", "b", "c"] * 100 + [heavy] * 900)
        assert histogram.release(epsilon=1.0, delta=1e-6).keys == ["a", "b", "c"]


def test_all_other_keys() -> None:
    rng = np.random.default_rng(1)
    keys = rng.zipf(1.5, 20_000) % 10_000
    histogram = dps.Histogram(unit=RECORD, key_type="int")
    histogram.update(keys)
    private = histogram.release(epsilon=1.0, delta=1e-6, others=True)
    truth = np.count_nonzero(~np.isin(keys, private.keys))
    assert private.others is not None
    assert private.others.low <= truth <= private.others.high
    assert private.others.high - private.others.low < 0.5 * truth + 400
    assert histogram.release(epsilon=1.0, delta=1e-6).others is None


@pytest.mark.parametrize("form", ["weighted", "rounds"])
def test_users_with_many_keys(form: Any) -> None:
    """Names by weights, counts on the found keys only; and names alone."""
    rng = np.random.default_rng(2)
    users, keys = rng.integers(0, 3000, 40_000), rng.zipf(1.4, 40_000) % 500
    histogram = dps.Histogram(unit=dps.per_user(max_keys=60), key_type="int")
    histogram.update(keys, users=users)
    private = histogram.release(epsilon=2.0, delta=1e-6, form=form, others=True)
    people = {key: len(set(users[keys == key].tolist())) for key in private.keys}
    assert len(people) > 20
    assert "30 published keys counted each" in private.counts
    found = private.estimate(private.keys)
    truth = np.array([people[key] for key in private.keys])
    assert np.mean((found.low <= truth) & (truth <= found.high)) > 0.8
    assert private.others is not None
    alone = histogram.release(epsilon=2.0, delta=1e-6, form=form, names_only=True)
    assert len(alone.keys) >= len(people) - 10
    with pytest.raises(InvalidInput, match="names only"):
        alone.estimate([1])
    again = dps.load(files.encode(alone.to_document()))
    assert again.keys == alone.keys


def test_frames_and_columns_say_the_same() -> None:
    frame = pl.DataFrame({"url": ["/a", "/b", "/a"], "who": ["x", "y", "x"]})
    one = dps.Histogram(unit=dps.per_user(max_keys=2))
    one.update(frame, key="url", user="who")
    two = dps.Histogram(unit=dps.per_user(max_keys=2))
    two.update(frame["url"], users=frame["who"])
    assert everything(one) == everything(two)
    assert one.spec.key_type == "text"


def test_a_list_says_nothing_of_its_type() -> None:
    histogram = dps.Histogram(unit=RECORD)
    histogram.update([5] * 10)
    assert histogram.spec.key_type is None
    rare = histogram.release(epsilon=0.1, delta=1e-6)
    empty = dps.Histogram(unit=RECORD).release(epsilon=0.1, delta=1e-6)
    assert rare.keys == []
    assert files.encode(rare.to_document()) == files.encode(empty.to_document())
    with pytest.raises(SpecMismatch):
        histogram.update(["text"])
    # A public list of another type is one that nobody has any of; to refuse it would tell.
    assert abs(histogram.release(epsilon=5.0, delta=0, keys=["5"]).values[0]) < 10


def test_a_key_that_is_not_there_reads_zero_up_to_the_threshold() -> None:
    histogram = dps.Histogram(unit=RECORD)
    histogram.update(["a"] * 100 + ["b"] * 10)
    found = histogram.release(epsilon=1.0, delta=1e-6).estimate(["b", "never"])
    assert found.value.tolist() == [0, 0]
    assert found.low.tolist() == [0, 0]
    assert np.all((found.high >= 15) & (found.high < 25))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 1.0, "delta": 0.0}, "need delta > 0"),
        ({"epsilon": 1.0, "delta": 1e-16}, "below 1e-13"),
        ({"epsilon": 1.0, "delta": 1e-6, "unknown": False}, "nothing would be published"),
        ({"epsilon": 1.0, "delta": 1e-6, "form": "weighted"}, "for users with many keys"),
        ({"epsilon": 1.0, "delta": 1e-6, "names_only": True}, "gains nothing"),
        ({"epsilon": 1.0, "delta": 1e-6, "keys": ["a"], "form": "rounds"}, "Laplace or Gaussian"),
        ({"epsilon": 1.0, "delta": 0.0, "keys": ["a"], "form": "gaussian"}, "needs delta > 0 or rho"),
        ({"epsilon": 1.0, "delta": 1e-6, "keys": ["a", None]}, "a null is not a key"),
    ],
)
def test_what_cannot_be_released_is_refused_before_anything_is_charged(options: Any, words: str, tmp_path: Any) -> None:
    ledger = dps.Ledger(tmp_path / "ledger.db")
    histogram = dps.Histogram(unit=RECORD)
    histogram.update(["a", "b"])
    with pytest.raises(InvalidInput, match=words):
        histogram.release(**options, ledger=ledger, dataset="web")
    assert ledger.datasets() == []


def test_input_that_cannot_be_counted_changes_nothing() -> None:
    histogram = dps.Histogram(unit=RECORD)
    histogram.update(["a"], counts=[2**61])
    users = dps.Histogram(unit=dps.per_user(max_keys=2))
    before = everything(histogram), everything(users)
    with pytest.raises(CounterOverflow):
        histogram.update(["b"], counts=[2**61 + 1])
    for given_ in ({"users": ["x"]}, {"weights": [-1.0]}, {"weights": [0.5]}, {"counts": [1, 2]}):
        with pytest.raises(InvalidInput):
            histogram.update(["b"], **given_)
    for given_ in ({}, {"users": ["x", "y"]}, {"users": ["x"], "counts": [3]}, {"users": [1.5]}):
        with pytest.raises(InvalidInput):
            users.update(["b"], **given_)
    assert (everything(histogram), everything(users)) == before


def test_partials_that_were_started_apart_pay_for_their_hashes() -> None:
    """Long texts under two secrets: δ = 0 would be wrong by the chance that the hash fails; integers have none."""
    one, two = dps.Histogram(unit=RECORD), dps.Histogram(unit=RECORD)
    one.merge(two)  # whatever they hold: to tell by the keys would tell of the keys
    with pytest.raises(InvalidInput, match="several secret hashes"):
        one.release(epsilon=1.0, delta=0, keys=["a"])
    assert one.release(epsilon=1.0, delta=1e-12, keys=["a"]).guarantee.delta == 1e-12
    whole = dps.Histogram(unit=RECORD, key_type="int")
    whole.merge(dps.Histogram(unit=RECORD, key_type="int"))
    assert whole.release(epsilon=1.0, delta=0, keys=[1]).guarantee.delta == 0


def test_a_file_that_promises_more_than_its_threshold_is_refused() -> None:
    histogram = dps.Histogram(unit=RECORD)
    histogram.update(["a"] * 100)
    document = histogram.release(epsilon=1.0, delta=1e-6).to_document()
    mechanism = document.header["mechanism"]
    lower = {**mechanism, "finding": {**mechanism["finding"], "cutoff": mechanism["finding"]["cutoff"] - 1}}
    for header in (
        {**document.header, "mechanism": lower},
        {**document.header, "guarantee": {**document.header["guarantee"], "epsilon": 0.5}},
        {**document.header, "mechanism": {**mechanism, "noise": {"kind": "rounded_gaussian", "sigma": 0.1}}},
    ):
        with pytest.raises(FileRefused):
            dps.load(files.encode(replace(document, header=header)))


def test_the_same_forms_by_name() -> None:
    histogram = dps.Histogram(unit=dps.per_user(max_keys=np.int64(4)))
    histogram.update(["a"], users=["x"])
    for form in ("truncated", "laplace", "gaussian", "weighted", "rounds"):
        private = histogram.release(epsilon=np.float64(1.0), delta=np.float64(1e-6), form=form)
        assert private.mechanism.form == form
        again = dps.load(files.encode(private.to_document()))
        assert files.encode(again.to_document()) == files.encode(private.to_document())
        assert str(private.guarantee) == str(again.guarantee)
