"""What laws ask of a histogram's tables, held against plain Python: who counts on which keys, for one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsketch.laws import content
from dpsketch.laws.content import RecordContent, UserContent
from dpsketch.noise import random_words, seeded_noise_for_tests_only
from dpsketch.sketches import store
from dpsketch.sketches.store import Limit, Store, rows_of
from oracles.content import Pairs

MOST = 5


def column(values: list[Any]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values)])


def filled(kind: str, limit: Limit | None = None) -> tuple[Store, Pairs, list[Any]]:
    """Return 400 records of 30 users on 40 keys in a store, the same as an oracle, and the keys in their order."""
    rng = np.random.default_rng(3)
    users = [f"user {n}" if kind == "text" else int(n) - 7 for n in rng.integers(0, 30, 400)]
    keys: list[Any] = [f"a longer key {n}" if kind == "text" else int(n) - 9 for n in rng.zipf(1.2, 400) % 40]
    units = rng.integers(0, 4, 400)
    made = Store(by_user=True, most=MOST, limit=limit)
    held: dict[Any, Counter[Any]] = {}
    for user, key, amount in zip(users, keys, units.tolist(), strict=True):
        if amount:
            own = held.setdefault(user, Counter())
            own[key] = min(MOST, own[key] + amount)
    for start in range(0, 400, 70):
        part = slice(start, start + 70)
        made.add(rows_of(column(keys[part]), column(users[part]), units[part]))
    return (
        made,
        Pairs({user: dict(own) for user, own in held.items()}),
        sorted({key for own in held.values() for key in own}),
    )


@pytest.fixture(params=["text", "int"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["memory", "limit"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Limit | None]:
    """No limit; or one under which people are ranked in parts and rows are put together often."""
    monkeypatch.setattr(content, "BLOCK", 7)
    if request.param == "memory":
        yield None
        return
    monkeypatch.setattr(store, "_RANKED_BYTES", 2 * 10**6)
    monkeypatch.setattr(store, "_WAITING_ROWS", 50)
    monkeypatch.setattr(store, "_SETTLED_ROWS", 100)
    yield Limit.of("256MB", None)


def seeds(number: int) -> list[int]:
    """The next fresh seeds of a seeded source."""
    with seeded_noise_for_tests_only(5):
        return [int(random_words(1).view(np.int64)[0]) for _ in range(number)]


def by_key(blocks: Any, keys: list[Any]) -> dict[Any, int]:
    found = list(blocks)
    assert all(len(block.places) == 7 for block in found[:-1])
    return {keys[place]: int(units) for block in found for place, units in zip(block.places, block.sums, strict=True)}


@pytest.mark.parametrize("cap", [1, 3, 100])
def test_users_count_on_the_keys_with_the_least_words(kind: str, limit: Limit | None, cap: int) -> None:
    made, oracle, keys = filled(kind, limit)
    asked = keys[::3]
    places = made.tables().find(asked)
    assert places.tolist() == list(range(len(keys)))[::3]
    assert made.tables().names(places) == asked
    users, others = UserContent(made.tables()), set(keys)
    first, second = seeds(2)
    with seeded_noise_for_tests_only(5):
        assert by_key(users.counts(cap), keys) == oracle.counts(others, cap, first)
    with seeded_noise_for_tests_only(5):
        sums, rest = users.sums(places, cap)
    expected = oracle.counts(set(asked), cap, first)
    assert sums.tolist() == [expected[key] for key in asked]
    assert rest == oracle.rest(set(asked), cap, second)
    with seeded_noise_for_tests_only(5):
        assert by_key(users.weights(places, cap), keys) == oracle.weights(set(asked), cap, first)
    with seeded_noise_for_tests_only(5):
        held, picked = users.held(places)
    drawn = [(int(many), asked[turn]) for many, turn in zip(held, picked, strict=True)]
    assert Counter(drawn) == Counter(oracle.held(set(asked), first))


def test_records_count_where_they_are(limit: Limit | None) -> None:
    made = Store(by_user=False, limit=limit)
    keys = [b"b", b"a", b"a\0", b"\xff", "é".encode(), b"a"] * 30
    made.add(rows_of(column(keys)))
    made.add(rows_of(column([b"a", None, b"c"]), None, np.array([2**61, 5, 0])))
    records, names = RecordContent(made.tables()), sorted(set(keys))
    assert by_key(records.counts(1), names) == {**Counter(keys), b"a": 60 + 2**61}
    places = made.tables().find([b"a\0", "é", "nobody's"])
    assert places.tolist() == [1, 3, -1]
    assert made.tables().find([7]).tolist() == [-1]
    sums, rest = records.sums(places[:2], 1)
    assert sums.tolist() == [30, 30]
    assert rest == 2**61 + 120
    held, picked = records.held(places[:2])
    assert (held.tolist(), picked.tolist()) == ([1] * 60, [0] * 30 + [1] * 30)


@pytest.mark.parametrize("weighed", [True, False])
@pytest.mark.parametrize("users", [None, [7, 7, 7]])
def test_a_column_that_changes_later_changes_nothing(weighed: bool, users: list[int] | None) -> None:
    """Arrow's columns may be views of NumPy's memory, and rows wait."""
    keys, units = np.array([1, 2, 3]), np.array([1, 2, 3]) if weighed else None
    viewed = pa.chunked_array([pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(keys)])])
    made = Store(by_user=users is not None, most=9)
    made.add(rows_of(viewed, None if users is None else column(users), units))
    keys[:] = 9
    if units is not None:
        units[:] = 1
    (sums,) = made.tables().whole("SELECT units FROM " + ("{keys}" if users is None else "{pairs}") + " ORDER BY place")
    assert sums.tolist() == ([1, 2, 3] if weighed else [1, 1, 1])
    assert made.tables().names(np.arange(3)) == [1, 2, 3]
