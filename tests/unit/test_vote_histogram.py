"""Histograms in bounded memory: what publishing a vote costs, by enumeration, and what a release answers."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dpsketch as dps
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.laws.votes import BUCKETS, Votes
from dpsketch.noise import DiscreteLaplace, seeded_noise_for_tests_only
from dpsketch.privacy import Budget
from dpsketch.sketches.histogram.calibration import votes_for
from dpsketch.truncated import Law, TruncatedLaplace
from oracles.laws import masses
from texts import colliding_texts

Floats = npt.NDArray[np.float64]
State = tuple[str | None, int, int]
SUMMING = 1e-15  # what rounding adds to the oracle's sums


def buckets(keys: int) -> Table:
    return Table(BUCKETS, (64,), Move.each(keys, 1, signed=True))


def vote(epsilon: float, delta: float, keys: int, replace: bool, form: Any = None) -> Votes:
    return votes_for(Budget(epsilon, delta), buckets(keys), "replace" if replace else "add_remove", form)


def bucket(records: tuple[str, ...]) -> State:
    """The key, the majority count and the load."""
    key, count = None, 0
    for record in records:
        if count == 0:
            key, count = record, 1
        else:
            count += 1 if record == key else -1
    return (key if count else None, count, len(records))


def neighbours(replace: bool) -> set[tuple[State, State]]:
    """The states of all streams of at most five records over three keys, and of their neighbours."""
    pairs = set()
    for length in range(1, 6):
        for records in product("xyz", repeat=length):
            for place in range(length):
                before, after = records[:place], records[place + 1 :]
                others = [(*before, key, *after) for key in "xyz"] if replace else [before + after]
                pairs |= {(bucket(records), bucket(other)) for other in others}
    return pairs | {(b, a) for a, b in pairs}


def outputs(law: Law, cutoff: int, state: State, size: int) -> dict[str | None, Floats]:
    """The law of what a bucket publishes: by its key the noisy values, by None that nothing is listed."""
    key, count, load = state
    if key is None:
        return {None: np.ones(1)}
    mass = masses(law, size // 2)
    values = np.arange(-(size // 2), size // 2 + 1)
    if isinstance(law, DiscreteLaplace):
        upper, lower = (load + count) // 2, (load - count) // 2
        table = np.outer(mass, mass)
        listed = (values + upper)[:, None] - (values + lower)[None, :] >= cutoff
        shown = np.zeros((size + 20, size + 20))
        shown[upper : upper + len(values), lower : lower + len(values)] = np.where(listed, table, 0.0)
        return {key: shown.ravel(), None: np.array([table[~listed].sum()])}
    shown = np.zeros(size + 20 + 3 * cutoff)
    listed = values + count >= cutoff
    shown[count : count + len(values)] = np.where(listed, mass, 0.0)
    return {key: shown, None: np.array([mass[~listed].sum()])}


def excess(law: Law, cutoff: int, epsilon: float, pairs: list[tuple[State, State]], size: int) -> float:
    """δ of some buckets' states against others', all buckets together."""
    here: dict[tuple[str | None, ...], Floats] = {(): np.ones(1)}
    there = dict(here)
    for one, other in pairs:
        a, b = outputs(law, cutoff, one, size), outputs(law, cutoff, other, size)
        here = {(*keys, key): np.outer(x, y).ravel() for keys, x in here.items() for key, y in a.items()}
        there = {(*keys, key): np.outer(x, y).ravel() for keys, x in there.items() for key, y in b.items()}
    e = math.exp(epsilon)
    return sum(float(np.maximum(x - e * there.get(keys, 0.0), 0).sum()) for keys, x in here.items()) - SUMMING


def size_of(law: Law) -> int:
    return 2 * (law.bound if isinstance(law, TruncatedLaplace) else math.ceil(26 * math.sqrt(law.variance)))


def high(cutoff: int, moved: int = 1) -> list[tuple[State, State]]:
    """Larger counts than short streams reach, near the cutoff and far above."""
    moves = [(("x", c, 0), ("x", c + moved, 0)) for c in (cutoff - 2, cutoff - 1, cutoff, 2 * cutoff)]
    return [*moves, *((b, a) for a, b in moves)]


@pytest.mark.parametrize("mechanism", ["loads", "truncated", "gaussian"])
def test_votes_hide_one_record_more_or_less(mechanism: str) -> None:
    epsilon, delta = 1.0, 1e-3
    found = vote(epsilon, delta, 1, False, mechanism)
    pairs = [*neighbours(False), *([] if mechanism == "loads" else high(found.cutoff))]

    def largest(cutoff: int) -> float:
        return max(excess(found.noise, cutoff, epsilon, [pair], size_of(found.noise)) for pair in pairs)

    assert 0.9 * found.joint_delta < largest(found.cutoff) <= found.joint_delta <= delta < largest(found.cutoff - 1)


@pytest.mark.parametrize("mechanism", ["loads", "truncated", "gaussian"])
def test_votes_hide_which_record_it_was_in_one_bucket(mechanism: str) -> None:
    epsilon, delta = 2.0, 1e-3
    found = vote(epsilon, delta, 1, True, mechanism)
    pairs = [*neighbours(True), *([] if mechanism == "loads" else high(found.cutoff, 2))]

    def largest(votes: Votes) -> float:
        return max(excess(votes.noise, votes.cutoff, epsilon, [pair], size_of(votes.noise)) for pair in pairs)

    assert largest(found) <= found.joint_delta <= delta
    assert largest(vote(epsilon, delta, 1, False, mechanism)) > 3 * delta


@pytest.mark.parametrize("mechanism", ["truncated", "gaussian"])
@pytest.mark.parametrize(("replace", "keys"), [(True, 1), (False, 2)])
def test_votes_in_two_buckets_are_hidden_together(mechanism: str, replace: bool, keys: int) -> None:
    """Two buckets that move by one each: of a user with two keys, or of a record that goes and another that comes."""
    epsilon, delta = 2.0, 1e-3
    found = vote(epsilon, delta, keys, replace, mechanism)
    none, one = (None, 0, 0), ("x", 1, 1)
    moves = [(none, one), (one, none), *high(found.cutoff)]
    size = size_of(found.noise)
    worst = max(excess(found.noise, found.cutoff, epsilon, [a, b], size) for a, b in product(moves, moves))
    assert worst <= found.joint_delta <= delta
    if not replace:
        assert worst > 0.9 * found.joint_delta


@pytest.mark.parametrize("mechanism", ["loads", "truncated", "gaussian"])
def test_a_replaced_record_may_bring_names_to_light_in_two_buckets(mechanism: str) -> None:
    """It leaves two keys level in one, and is alone in the other. Where noise is large, this costs the most."""
    epsilon, delta = 0.5, 1e-3
    found = vote(epsilon, delta, 1, True, mechanism)
    once = excess(found.noise, found.cutoff, epsilon, [(("x", 1, 1), (None, 0, 2))], size_of(found.noise))
    assert 1 - (1 - once) ** 2 <= found.joint_delta <= delta


BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def filled(keys: Any, buckets: int) -> Any:
    sketch = dps.VoteHistogram(unit=dps.per_record(), max_counters=buckets)
    sketch.update(keys)
    return sketch


def test_texts_that_share_a_fingerprint_are_told_apart() -> None:
    """A text that comes first does not give its name to a frequent one that collides with it."""
    rare, frequent = colliding_texts(2)
    release = filled([rare, *[frequent] * 200], buckets=64).release(**BUDGET)
    assert [each if isinstance(each, bytes) else each.encode() for each in release.keys] == [frequent]


def test_a_value_lies_in_its_interval() -> None:
    """The limits use the noise of two parts, and the value that of one: with these bits 8 limits missed their value."""
    for seed in range(40):
        sketch = filled([f"key {i}" for i in range(40) for _ in range(20)], buckets=512)
        with seeded_noise_for_tests_only(seed):
            release = sketch.release(**BUDGET, form="loads")
        found = release.estimate(release.keys)
        assert np.all((found.low <= found.value) & (found.value <= found.high))


@pytest.mark.parametrize("form", ["loads", "truncated", "gaussian"])
def test_a_release_says_what_its_answers_are(form: str) -> None:
    keys = [f"key {i}" for i in range(50) for _ in range(10 + 7 * i)]
    sketch = filled(np.random.default_rng(3).permutation(keys).tolist(), buckets=512)
    release = sketch.release(**BUDGET, form=form)
    assert release.keys == sorted(release.keys)
    assert all(a >= b for a, b in pairwise(release.top(9).value))
    found = release.estimate(["key 49", "key 40"])
    assert np.all((found.low >= 1) & (found.low <= found.value) & (found.value <= found.high))
    assert found.counts == release.counts
    assert ("upper bound" in release.counts) == (form == "loads")
    assert ("lower bound" in release.counts) == (form != "loads")
    with pytest.raises(InvalidInput, match="lost its vote"):
        release.estimate(["nobody's"])
    assert "Neighbours are streams" in str(release.guarantee)


def crowded() -> tuple[Any, dict[int, int]]:
    """Return 60 keys in 20 buckets, so that keys lose records to others; and their true counts."""
    sizes = {key: 100 + 10 * key for key in range(60)}
    stream = np.repeat(np.arange(60), list(sizes.values()))
    sketch = dps.VoteHistogram(unit=dps.per_user(max_keys=2), max_counters=20, key_type="int")
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
