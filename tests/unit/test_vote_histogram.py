"""Histograms in bounded memory: what they take and refuse, what a release answers, and their files."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, seeded_noise_for_tests_only
from dpsketch.sketches.histogram.intervals import highest, lowest, selective
from dpsketch.sketches.histogram.votes import between_loads, log_difference_reaching
from texts import colliding_texts

RECORD = dps.per_record()
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def votes(buckets: int = 64, unit: dps.Unit = RECORD, **given: Any) -> Any:
    return dps.VoteHistogram(unit=unit, max_counters=buckets, **given)


def filled(keys: Any, **given: Any) -> Any:
    sketch = votes(**given)
    sketch.update(keys)
    return sketch


def arrays_of(sketch: Any) -> Any:
    return files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (["tea"] * 99 + [None] + ["", "milk"] * 40, ["", "milk", "tea"]),
        (pa.array([b"\xff\x00"] * 60 + [b"tea"] * 60), [b"\xff\x00", "tea"]),
        (np.repeat(np.array([2**63 - 1, 5], np.uint64), 50), [2**63 - 1, 5]),
        (np.repeat(np.array([-1, 5], np.int8), 50), [-1, 5]),
    ],
)
def test_keys_of_every_type_are_named_exactly(keys: Any, names: list[Any]) -> None:
    sketch = filled(keys, buckets=2**16)
    release = sketch.release(**BUDGET)
    assert sorted(release.keys, key=str) == sorted(names, key=str)
    again = dps.load_sensitive(sketch.to_sensitive_bytes())
    assert arrays_of(again).keys() == arrays_of(sketch).keys()
    assert sorted(again.release(**BUDGET).keys, key=str) == sorted(names, key=str)


def test_texts_that_share_a_fingerprint_are_told_apart() -> None:
    """A text that comes first does not give its name to a frequent one that collides with it."""
    rare, frequent = colliding_texts(2)
    release = filled([rare, *[frequent] * 200]).release(**BUDGET)
    assert [each if isinstance(each, bytes) else each.encode() for each in release.keys] == [frequent]


def test_a_user_counts_once_in_a_bucket_and_on_max_keys() -> None:
    unit = dps.per_user(max_keys=3)
    one = votes(1, unit)
    one.update(["a", "b", "a", "c"], users=["ann"] * 4)
    assert (arrays_of(one)["votes"].tolist(), arrays_of(one)["loads"].tolist()) == ([1], [1])
    assert (one.cut.records, one.cut.left_out) == (4, 2)
    wide = votes(2**16, unit)
    wide.update([f"key {i}" for i in range(9)], users=["ann"] * 9)
    assert arrays_of(wide)["loads"].sum() == 3
    with pytest.raises(InvalidInput, match="counted before"):
        wide.update(["z"], users=["ann"])
    other = wide.empty_like()
    other.update(["z"], users=["ann"])
    with pytest.raises(InvalidInput, match="some users are in both"):
        wide.merge(other)
    assert arrays_of(wide)["loads"].sum() == 3


@pytest.mark.parametrize(
    "budget", [{"epsilon": 1.0, "delta": 0}, {"rho": 0.5}, {"epsilon": 1.0, "delta": 1e-6, "form": "rounds"}]
)
def test_a_release_needs_delta_and_a_form_that_there_is(budget: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"delta > 0|form of a vote"):
        filled(["tea"]).release(**budget)


def released(form: str) -> Any:
    keys = [f"key {i}" for i in range(50) for _ in range(10 + 7 * i)]
    sketch = filled(np.random.default_rng(3).permutation(keys).tolist(), buckets=512)
    return sketch.release(**BUDGET, form=form)


@pytest.mark.parametrize("form", ["loads", "truncated", "gaussian"])
def test_a_release_answers_is_written_and_is_read(form: str, tmp_path: Any) -> None:
    release = released(form)
    assert release.keys == sorted(release.keys)
    assert all(a >= b for a, b in pairwise(release.top(9).value))
    found = release.estimate(["key 49", "key 40"])
    assert np.all((found.low >= 1) & (found.low <= found.value) & (found.value <= found.high))
    assert found.counts == release.counts
    assert ("upper bound" in release.counts) == (form == "loads")
    assert ("lower bound" in release.counts) == (form != "loads")
    assert release.facts()["form"] == form
    with pytest.raises(InvalidInput, match="lost its vote"):
        release.estimate(["nobody's"])
    assert release.plot().axes
    release.save(tmp_path / "it.dps")
    again: Any = dps.load(tmp_path / "it.dps")
    assert type(again) is dps.PrivateVoteHistogram
    assert again.top(50).to_json() == release.top(50).to_json()
    assert again.to_document().header == release.to_document().header
    assert (again.keys, again.guarantee) == (release.keys, release.guarantee)
    assert "Neighbours are streams" in str(release.guarantee)
    assert "ε = 1, δ = 1e-06" in repr(release)


def test_limits_are_those_of_the_definition() -> None:
    """Tails of the difference by brute force; and limits next to which the tail is passed."""
    law = DiscreteLaplace(0.7, 1)
    masses = np.exp(-0.7 * np.abs(np.arange(-200, 201)))
    masses /= masses.sum()
    tails = np.cumsum(np.convolve(masses, masses)[::-1])[::-1]
    z = np.arange(-30, 31)
    assert log_difference_reaching(law, z) == pytest.approx(np.log(tails[400 + z]), rel=1e-9)
    cutoff, tail = 12, 0.02
    upper, lower = np.array([12, 14, 32, 33, 40, 90, 300]), np.array([0, 1, 20, 20, 20, 30, -2])
    low, high = between_loads(upper, lower, law, cutoff, tail)

    def difference(d: Any, c: Any) -> Any:
        return tails[400 + d - c] / tails[400 + cutoff - c]

    d = upper - lower
    assert np.all(difference(d, low) > tail)
    assert np.all((low == 1) | (difference(d, low - 1) <= tail * 1.001))
    single = np.cumsum(masses[::-1])[::-1]

    def below(u: Any) -> Any:
        past, there = (np.clip(200 + each - u, 0, 400) for each in (upper + 1, cutoff + lower))
        return 1 - single[past] / single[there]

    assert np.all((below(high) > tail * 0.999) | (high == upper))
    assert np.all(below(high + 1) <= tail * 1.001)
    assert np.array_equal(highest(upper, law, cutoff + lower, tail), high)
    assert np.all(lowest(d, lambda z: log_difference_reaching(law, z), cutoff, tail / 2) <= low)


def crowded() -> tuple[Any, dict[int, int]]:
    """Return 60 keys in 20 buckets, so that keys lose records to others; and their true counts."""
    sizes = {key: 100 + 10 * key for key in range(60)}
    stream = np.repeat(np.arange(60), list(sizes.values()))
    sketch = votes(20, dps.per_user(max_keys=2), key_type="int")
    stream = np.random.default_rng(5).permutation(stream)
    sketch.update(stream, users=np.arange(len(stream)))
    return sketch, sizes


@pytest.mark.parametrize("form", ["loads", "truncated", "gaussian"])
def test_intervals_are_for_the_true_count_where_keys_share_buckets(form: str) -> None:
    """Forty releases of one sketch: shares may fall four standard errors below what is stated, by chance 1 in 30,000.

    ``top`` covers all keys of a release at once: fewer than 30 of 40 do at 95% with probability below 1e-5.
    """
    confidence = 0.95
    sketch, sizes = crowded()
    single, joint = [], []
    with seeded_noise_for_tests_only(10):
        made = [sketch.release(epsilon=2.0, delta=1e-6, form=form) for _ in range(40)]
    for release in made:
        found, top = release.estimate(release.keys, confidence=confidence), release.top(99)
        true = np.array([sizes[key] for key in found.key])
        single.append((found.low <= true) & (true <= found.high))
        joint.append(all(row.low <= sizes[row.key] <= row.high for row in top))
    covered = np.concatenate(single)
    assert np.mean(covered) >= confidence - 4 * np.sqrt(confidence * (1 - confidence) / len(covered))
    assert sum(joint) >= 30


def test_an_interval_without_an_upper_limit_is_written_and_drawn() -> None:
    release = crowded()[0].release(epsilon=2.0, delta=1e-6, form="truncated")
    found = release.top(3)
    assert np.isinf(found.high).all()
    assert all(row["high"] is None and row["low"] > 0 for row in found.to_json())
    assert "no upper limit" in found.counts
    assert found.plot().axes
    # One limit has all of the chance to miss, so that it is closer than one of two.
    law, cutoff = release.mechanism.noise, release.mechanism.cutoff
    low, _ = selective(release.values, law, cutoff, 0.025)
    assert np.all(release.estimate(release.keys).low >= low)
