"""Votes in buckets: what one record changes, over every small stream and many large ones, inserts and merges alike."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.sketches.histogram.votes import KeyBytes, VoteTable
from oracles.votes import Bucket, bucket_of
from texts import colliding_texts

SEED = 3
Stream = tuple[str, ...]


def state(sketch: Any) -> tuple[list[bytes | None], np.ndarray, np.ndarray]:
    """The key of each bucket, by its bytes, the votes it leads by, and the load."""
    arrays: Any = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays
    return _named(arrays["votes"], arrays["names"], arrays["edges"]), arrays["votes"], arrays["loads"]


def _named(votes: np.ndarray, names: np.ndarray, edges: np.ndarray) -> list[bytes | None]:
    data = names.tobytes()
    return [data[a:b] if c else None for a, b, c in zip(edges[:-1], edges[1:], votes, strict=True)]


def histogram(stream: Any, buckets: int = 4, **given: Any) -> dps.VoteHistogram:
    sketch: Any = dps.VoteHistogram(unit=dps.per_record(), max_counters=buckets, seed=SEED, key_type="text")
    sketch.update(list(stream), **given)
    assert isinstance(sketch, dps.VoteHistogram)
    return sketch


def oracle(stream: Any, buckets: int = 4) -> list[Bucket]:
    made, row_key = [Bucket() for _ in range(buckets)], int(row_keys(SEED, 1, "votes")[0])
    for key in stream:
        made[bucket_of(int(fingerprint([key]).fingerprints[0]), row_key, buckets)].vote(key)
    return made


def assert_alike(sketch: Any, expected: list[Bucket]) -> None:
    keys, votes, loads = state(sketch)
    assert keys == [bucket.key for bucket in expected]
    assert votes.tolist() == [bucket.votes for bucket in expected]
    assert loads.tolist() == [bucket.load for bucket in expected]


# Two of these share their fingerprint; the empty text is a key as any other.
TEXTS = [b"a", b"b", b"c", b"", b"a long key that fits no word", *colliding_texts(2)]
streams = st.lists(st.sampled_from(TEXTS), max_size=30)


@settings(max_examples=50)
@given(streams, streams, st.integers(1, 4))
def test_it_counts_as_one_record_at_a_time_does(stream: list[bytes], more: list[bytes], buckets: int) -> None:
    """In batches, merged, and with counts for equal records in a row."""
    runs = np.arange(len(stream)) % 4
    repeated = [key for key, times in zip(stream, runs, strict=True) for _ in range(times)]
    assert_alike(histogram(stream, buckets, counts=runs), oracle(repeated, buckets))
    sketch, expected = histogram(stream, buckets), oracle(stream, buckets)
    assert_alike(sketch, expected)
    sketch.update(more)
    assert_alike(sketch, oracle([*stream, *more], buckets))
    merged = histogram(stream, buckets)
    merged.merge(histogram(more, buckets))
    for mine, theirs in zip(expected, oracle(more, buckets), strict=True):
        mine.merge(theirs)
    assert_alike(merged, expected)


def small_streams(longest: int) -> list[Stream]:
    return [stream for length in range(longest + 1) for stream in product("xyz", repeat=length)]


def cases() -> list[tuple[list[Stream], list[Stream]]]:
    """A stream, another that is merged into it, and what came afterwards; and the same without one record."""
    made = []
    for parts in product(small_streams(3), small_streams(3), small_streams(1)):
        for which, part in enumerate(parts):
            for place in range(len(part)):
                fewer = list(parts)
                fewer[which] = part[:place] + part[place + 1 :]
                made.append((list(parts), fewer))
    return made


def table_of(parts: list[list[Stream]]) -> VoteTable:
    """One table in which every case has a bucket of its own."""

    def cast(table: VoteTable, which: int) -> None:
        buckets = np.repeat(np.arange(len(parts)), [len(each[which]) for each in parts])
        keys = np.frombuffer("".join("".join(each[which]) for each in parts).encode(), np.uint8)
        rows = np.arange(len(keys))
        # All keys have one fingerprint, so that their bytes alone tell them apart.
        prints, ones = np.zeros(len(rows), np.uint64), np.ones(len(rows), np.int64)
        table.cast(buckets, prints, ones, rows, KeyBytes(keys, np.arange(len(rows) + 1)))

    table, merged = VoteTable(len(parts)), VoteTable(len(parts))
    cast(table, 0)
    cast(merged, 1)
    table.absorb(merged)
    cast(table, 2)
    return table


def test_every_small_stream_with_and_without_every_record() -> None:
    """Inserts, a merge, and inserts: one load by one, and never another key but through 0 votes."""
    made = cases()
    assert len(made) == 37_440
    found = []
    for table in (table_of([whole for whole, _ in made]), table_of([fewer for _, fewer in made])):
        arrays = table.to_arrays()
        names = np.array([each or b"" for each in _named(table.votes, arrays["names"], arrays["edges"])])
        found.append((names, table.votes, table.loads))
    (names, votes, loads), (names2, votes2, loads2) = found
    moved = np.abs((loads + votes) // 2 - (loads2 + votes2) // 2) + np.abs(
        (loads - votes) // 2 - (loads2 - votes2) // 2
    )
    assert np.all(moved == 1)
    assert np.all((names == names2) | (votes == 0) | (votes2 == 0))
    assert np.all(np.abs(votes - votes2) == 1)
    for at in range(0, len(made), 499):
        expected = Bucket.of(made[at][0][0])
        expected.merge(Bucket.of(made[at][0][1]))
        for key in made[at][0][2]:
            expected.vote(key)
        assert (names[at].decode() or None, votes[at], loads[at]) == (expected.key, expected.votes, expected.load)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(TEXTS)), max_size=40), st.integers(0, 5))
def test_a_user_moves_max_keys_buckets_by_one(relation: Any, records: list[tuple[int, bytes]], who: int) -> None:
    """All of a user's records are left out: at most ``max_keys`` buckets move, by one vote and one record each."""

    def built(kept: list[tuple[int, bytes]]) -> Any:
        unit = dps.per_user(max_keys=2, neighbours=relation)
        sketch: Any = dps.VoteHistogram(unit=unit, max_counters=4, seed=SEED, key_type="text")
        sketch.update([key for _, key in kept], users=np.array([user for user, _ in kept], np.int64))
        return state(sketch)

    (keys, votes, loads), (keys2, votes2, loads2) = (
        built(records), built([each for each in records if each[0] != who])
    )  # fmt: skip
    ends = (np.abs((loads + side * votes) // 2 - (loads2 + side * votes2) // 2) for side in (1, -1))
    moved = sum(ends, np.zeros_like(votes))
    assert moved.max(initial=0) <= 1
    assert moved.sum() <= min(len({key for user, key in records if user == who}), 2)
    for key, key2, c, c2 in zip(keys, keys2, votes, votes2, strict=True):  # a key changes through votes of 0 only
        assert key == key2 or (0 in (c, c2) and c + c2 <= 1)
