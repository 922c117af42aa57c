"""The table of keys: names and counts against a Counter, the hash against its published values, and what is refused."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsketch._compiled import grouping, identity
from dpsketch.errors import CounterOverflow, FileRefused, InvalidInput, SensitiveData, SketchBroken
from dpsketch.hashing import fingerprint, text_fingerprints
from dpsketch.laws.names import collision_chance
from dpsketch.sketches.histogram import keyslots
from dpsketch.sketches.histogram.keytable import KeyTable
from interrupting import interrupted, sampled_lines
from oracles import grouping as oracle
from oracles import hashing as fingerprints

KEY = bytes(range(16))
SECRET = np.frombuffer(KEY, "<u8").astype(np.uint64)
OTHER = np.array([3, 2**63 + 5], np.uint64)
# Around the borders of what is packed and of the hash's words, prefixes of one another, with NULs, outside ASCII.
TEXTS = ["", "\0", "\0\0", "a", "a\0", "ab", "seven b", "eightbyt", "ninebytes", *("x" * n for n in range(13, 34))]
TEXTS += ["x" * 15 + "\0", "x" * 16 + "\0", "grün", "東京都東京都", "🦆" * 3, "🦆" * 4, "🦆" * 9, "\0" * 15, "\0" * 16]
KEYS = st.lists(st.one_of(st.none(), st.sampled_from(TEXTS), st.text(max_size=20)), max_size=40)
INTEGERS = st.lists(st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)), max_size=40)


def contents(table: KeyTable) -> dict[Any, int]:
    """Return what a table holds; fail if two of its keys have one name."""
    names = table.names(range(len(table)))
    assert len(set(names)) == len(table)
    return dict(zip(names, table.units.tolist(), strict=True))


def counted(keys: Any, units: Any = None, **how: Any) -> KeyTable:
    table = KeyTable(**how)
    table.count(keys, units)
    return table


@pytest.fixture(params=["1", "3"])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of eight rows, on one thread or on several, in a table that has regions from the start."""
    monkeypatch.setenv("DPSKETCH_THREADS", request.param)
    monkeypatch.setattr(keyslots, "_BLOCK", 8)
    monkeypatch.setattr(keyslots, "_SMALLEST_PART", 2)
    monkeypatch.setattr(keyslots, "_LEAST_SLOTS", keyslots._REGIONED)


# --- the hash --------------------------------------------------------------------------------------------------------

# The values that SipHash's authors publish with their code (vectors.h), for the key 00 01 … 0f and texts 00 01 02 ….
PUBLISHED = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    33: "77c6077146f01c32b6b69d5f4ea9ffcf",
    63: "5150d1772f50834a503e069a973fbd7c",
}


@pytest.mark.parametrize("length", PUBLISHED)
def test_the_oracle_has_the_published_values(length: int) -> None:
    assert oracle.siphash(bytes(range(length)), KEY, 16).hex() == PUBLISHED[length]


def identities(texts: list[bytes], secret: np.ndarray) -> list[tuple[int, int]]:
    data = np.frombuffer(b"".join(texts), np.uint8)
    edges = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    ids, places = np.empty((len(texts), 2), np.uint64), np.empty(len(texts), np.uint64)
    identity.identify_texts(data, edges, secret, ids, places)
    return [(low | high << 64, place) for (low, high), place in zip(ids.tolist(), places.tolist(), strict=True)]


def test_identities_of_long_texts_are_the_published_hash() -> None:
    for length in (16, 33, 63):
        expected = int.from_bytes(bytes.fromhex(PUBLISHED[length]), "little")
        identity, place = identities([bytes(range(length))], SECRET)[0]
        assert identity == expected | 1 << 127
        assert place == expected % 2**64


def test_the_place_of_a_short_text_is_the_published_hash() -> None:
    # This text and its length are the bytes 00 to 0f, whose 64-bit hash is published.
    identity, place = identities([bytes(range(15))], SECRET)[0]
    assert identity.to_bytes(16, "little") == bytes(range(16))
    assert place.to_bytes(8, "little").hex() == "db9bc2577fcc2a3f"


@given(st.lists(st.binary(max_size=70), max_size=12), st.binary(min_size=16, max_size=16))
@settings(deadline=None)  # the first example compiles
def test_identities_and_places_are_the_oracles(texts: list[bytes], secret: bytes) -> None:
    expected = [oracle.identity(text, secret) for text in texts]
    assert identities(texts, np.frombuffer(secret, "<u8").astype(np.uint64)) == expected


@given(st.lists(st.integers(0, 2**64 - 1), max_size=12))
@settings(deadline=None)  # the first example compiles
def test_identities_of_integers_are_the_oracles(integers: list[int]) -> None:
    ids, places = np.empty((len(integers), 2), np.uint64), np.empty(len(integers), np.uint64)
    identity.identify_integers(np.array(integers, np.uint64), SECRET, ids, places)
    expected = [oracle.identity(integer, KEY) for integer in integers]
    found = [(low | high << 64, place) for (low, high), place in zip(ids.tolist(), places.tolist(), strict=True)]
    assert found == expected


def test_the_collision_chance_is_that_of_127_bits() -> None:
    assert collision_chance(0) == 0
    assert collision_chance(10**8) == pytest.approx(10**16 / 2**128)
    assert collision_chance(2**70) == 1


# --- counting --------------------------------------------------------------------------------------------------------


@given(st.one_of(KEYS, INTEGERS))
@settings(deadline=None)  # the first example compiles
def test_counts_are_a_counters_and_numbers_follow_the_first_rows(keys: list[Any]) -> None:
    table = KeyTable()
    present = [key for key in keys if key is not None]
    assert table.count(keys) == (len(present), len(keys) - len(present))
    assert list(contents(table).items()) == list(Counter(present).items())
    assert table.find(keys).tolist() == [-1 if key is None else list(Counter(present)).index(key) for key in keys]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_blocks_and_threads_change_nothing(kind: pa.DataType) -> None:
    rng = np.random.default_rng(1)
    for rows in (1, 7, 8, 9, 31, 200):
        keys = [None if n < 0 else TEXTS[n] for n in rng.integers(-3, len(TEXTS), rows)]
        table = KeyTable(secret=SECRET)
        column = pa.array(keys, pa.string()).cast(kind)
        numbers = table.numbers(column)
        assert not table.units.any()
        table.count(column)
        truth = Counter(key for key in keys if key is not None)
        assert contents(table) == truth
        assert [None if n < 0 else table.names([n])[0] for n in numbers] == keys
        if not pa.types.is_dictionary(kind):
            assert table.names(range(len(table))) == list(truth)


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_large_tables_grow_on_any_number_of_threads(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSKETCH_THREADS", threads)
    rng = np.random.default_rng(1)
    keys = rng.integers(-(2**63), 2**63, 150_000)[rng.integers(0, 150_000, 300_000)]
    texts = [f"{'short' if key % 2 else 'a much longer text '}{key % 10**9}" for key in keys.tolist()]
    for column in (keys, texts):
        truth = Counter(column if isinstance(column, list) else column.tolist())
        table = KeyTable(secret=SECRET)
        for start in range(0, len(column), 90_000):
            table.count(column[start : start + 90_000])
        assert list(contents(table).items()) == list(truth.items())
        assert table.find(list(truth)).tolist() == list(range(len(truth)))
        assert (table.find([2**62, -7] if column is keys else ["no", "n" * 99]) == -1).all()


def test_units_are_added_and_a_row_of_none_has_no_key() -> None:
    table = KeyTable()
    assert table.count(["a", "b", None, "a", "c"], np.array([2, 0, 5, 3, 1])) == (4, 1)
    assert contents(table) == {"a": 5, "c": 1}
    repeated = pa.array(["a", "b", None, "d", "a", "d"]).dictionary_encode()
    assert table.count(repeated, np.array([1, 0, 9, 4, 2, 0])) == (5, 1)
    assert contents(table) == {"a": 8, "c": 1, "d": 4}


def test_unused_and_null_values_of_a_dictionary_are_no_keys() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 2, 0]), pa.array(["a", "never", None]))
    table = KeyTable()
    assert table.count(column) == (2, 3)
    assert contents(table) == {"a": 2}
    assert table.numbers(column).tolist() == [0, -1, -1, -1, 0]
    assert table.find(column.slice(1)).tolist() == [-1, -1, -1, 0]
    assert table.numbers(pa.array(["b", "a"] * 3).dictionary_encode().slice(5)).tolist() == [0]  # more values than rows
    assert contents(table) == {"a": 2}


CONTAINERS: dict[str, Callable[[list[str]], Any]] = {
    "NumPy": np.array,
    "objects": lambda keys: np.array(keys, object),
    "pandas": pd.Series,
    "categories": lambda keys: pd.Series(keys, dtype="category"),
    "polars": pl.Series,
    "polars categories": lambda keys: pl.Series(keys, dtype=pl.Categorical),
    "bytes": lambda keys: pa.array(keys).cast(pa.binary()),
    "views of bytes": lambda keys: pa.array(keys).cast(pa.binary_view()),
    "chunks": lambda keys: pa.chunked_array([keys[:2], [], keys[2:]], pa.string()),
    "a slice": lambda keys: pa.array(["no", *keys, "neither"]).slice(1, len(keys)),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_has_the_same_keys(container: str) -> None:
    keys = ["a", "grün", "a", "a text of more than fifteen bytes", "🦆", "a text of more than fifteen bytes"]
    assert contents(counted(CONTAINERS[container](keys))) == Counter(keys)


def test_bytes_of_fixed_length_and_invalid_utf8() -> None:
    keys = [b"\xff\xfe\xfd", b"abc", b"\xff\xfe\xfd"]
    assert contents(counted(pa.array(keys, pa.binary(3)))) == {b"\xff\xfe\xfd": 2, "abc": 1}


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, ">i4"])
def test_integers_of_every_width_are_the_same_keys(kind: Any) -> None:
    table = counted(np.array([3, 1, 3], kind))
    table.count([3])
    assert contents(table) == {3: 3, 1: 1}


def test_equal_patterns_are_one_integer_as_they_have_one_fingerprint() -> None:
    table = counted(np.array([-1], np.int64))
    table.count(np.array([2**64 - 1], np.uint64))
    assert table.names([0]) == [-1]
    assert table.units.tolist() == [2]


def unkeyed_collision() -> tuple[bytes, bytes]:
    """Return two texts with one fingerprint: what a word changes in a lane of XXH64, the lane's next one takes back."""
    seed, mask = 42, 2**64 - 1
    start = (seed + fingerprints.P1 + fingerprints.P2) & mask

    def after(word: int) -> int:
        return fingerprints.rotate((start + word * fingerprints.P2) & mask, 31) * fingerprints.P1 & mask

    back = (after(1) - after(2)) * pow(fingerprints.P2, -1, 2**64) & mask
    texts = [
        (word.to_bytes(8, "little") + bytes(24) + second.to_bytes(8, "little") + bytes(24))
        for word, second in ((1, 0), (2, back))
    ]
    return texts[0], texts[1]


@pytest.mark.parametrize("secret", [SECRET, OTHER, None])
def test_texts_that_collide_without_a_key_are_two_here(secret: Any) -> None:
    first, second = unkeyed_collision()
    assert first != second
    assert len(set(fingerprint([first, second]).fingerprints.tolist())) == 1
    table = counted([first, second, second], secret=secret)
    assert table.units.tolist() == [1, 2]


def test_keys_that_share_a_slot_and_a_tag_and_a_word_are_two() -> None:
    count, length = 10**6, 15
    texts = np.full((count, length), ord("x"), np.uint8)
    for digit in range(7):
        texts[:, 8 + digit] = ord("0") + np.arange(count) // 10**digit % 10
    ids, places = np.empty((count, 2), np.uint64), np.empty(count, np.uint64)
    data = texts.ravel()
    data.flags.writeable = False
    identity.identify_texts(data, np.arange(count + 1) * length, SECRET, ids, places)
    # All that a slot of the smallest table says of a key: its number, and the low 24 bits of the place.
    seen = (places >> np.uint64(54) << np.uint64(24)) | (places & np.uint64(2**24 - 1))
    order = np.argsort(seen)
    twins = np.flatnonzero(np.diff(seen[order]) == 0)
    assert len(twins) > 5
    for twin in twins.tolist():
        first, second = (texts[row].tobytes().decode() for row in order[twin : twin + 2])
        assert contents(counted([first, second, second], secret=SECRET)) == {first: 1, second: 2}


# --- merging ---------------------------------------------------------------------------------------------------------


@given(st.lists(KEYS, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4), st.randoms(use_true_random=False))
@settings(deadline=None)  # the first example compiles
def test_any_split_absorbed_in_any_order_is_one_pass(parts: list[list[Any]], secrets: list[bool], random: Any) -> None:
    tables = [counted(part, secret=SECRET if same else OTHER) for part, same in zip(parts, secrets, strict=False)]
    random.shuffle(tables)
    whole = KeyTable(secret=SECRET)
    for table in tables:
        before = contents(table)
        numbers = whole.absorb(table)
        assert whole.names(numbers) == table.names(range(len(table)))
        assert contents(table) == before
    assert contents(whole) == Counter(key for part in parts for key in part if key is not None)


def test_keys_without_units_are_absorbed_too() -> None:
    users = KeyTable()
    users.numbers(["a", "b"])
    table = counted(["b"])
    assert table.absorb(users).tolist() == [1, 0]
    assert contents(table) == {"b": 1, "a": 0}


# --- keeping ---------------------------------------------------------------------------------------------------------


@given(st.one_of(KEYS, INTEGERS), st.one_of(KEYS, INTEGERS))
@settings(max_examples=50, deadline=None)
def test_a_stored_table_goes_on_as_the_table_would(keys: list[Any], more: list[Any]) -> None:
    table = counted(keys, secret=SECRET)
    twin = KeyTable.from_arrays(table.key_type, table.to_arrays())
    assert list(contents(twin).items()) == list(contents(table).items())
    assert list(contents(table).items()) == list(Counter(key for key in keys if key is not None).items())
    if fingerprint(more).key_type in (None, table.key_type) or table.key_type is None:
        table.count(more)
        twin.count(more)
        assert list(contents(twin).items()) == list(contents(table).items())
        assert twin.to_arrays()["secret"].tolist() == SECRET.tolist()


def test_a_table_is_neither_copied_nor_pickled() -> None:
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(SensitiveData):
            act(counted(["a"], secret=SECRET))


def broken(arrays: dict[str, Any], **instead: Any) -> dict[str, Any]:
    return {name: value for name, value in (arrays | instead).items() if value is not None}


@pytest.mark.parametrize(
    "instead",
    [
        {"units": None}, {"units": np.array([1])}, {"units": np.array([1, -1])}, {"units": np.array([2**62, 1])},
        {"units": np.array([1.0, 1.0])}, {"secret": np.array([1], np.uint64)},
        {"edges": np.array([0, 1])}, {"edges": np.array([0, 2, 1])}, {"edges": np.array([0, 0, 2])[:0]},
        {"edges": np.array([-1, 1, 2])}, {"names": np.frombuffer(b"aa", np.uint8)}, {"names": b"ab"},
    ],
    ids=str,
)  # fmt: skip
def test_arrays_that_no_table_has_are_refused(instead: dict[str, Any]) -> None:
    arrays = counted(["a", "b"]).to_arrays()
    KeyTable.from_arrays("text", broken(arrays))
    with pytest.raises(FileRefused):
        KeyTable.from_arrays("text", broken(arrays, **instead))


def test_a_file_whose_keys_crowd_one_region_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyslots, "_LEAST_SLOTS", keyslots._REGIONED)
    keys = np.arange(100_000, dtype=np.uint64)
    ids, places = np.empty((len(keys), 2), np.uint64), np.empty(len(keys), np.uint64)
    identity.identify_integers(keys, SECRET, ids, places)
    crowd = keys[places >> np.uint64(58) == 5]
    region = keyslots._REGIONED // grouping.REGIONS
    for size, fits in ((region, True), (region + 1, False)):
        arrays = KeyTable("int", SECRET).to_arrays() | {"keys": crowd[:size], "units": np.ones(size, np.int64)}
        if fits:
            assert len(KeyTable.from_arrays("int", arrays)) == size
        else:
            with pytest.raises(FileRefused):
                KeyTable.from_arrays("int", arrays)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_the_type_is_taken_from_the_first_rows_and_held() -> None:
    table = KeyTable()
    for typeless in ([], [None, None], pa.array([], pa.string()), np.array([], np.int64)):
        table.count(typeless)
        assert table.key_type is None
    table.count(["a"])
    assert table.key_type == "text"
    for change in (table.count, table.numbers, table.find, lambda keys: table.absorb(counted(keys))):
        with pytest.raises(InvalidInput, match="text keys"):
            change([1])
    assert contents(table) == {"a": 1}
    with pytest.raises(InvalidInput, match="integer keys"):
        KeyTable("int").count(["a"])
    with pytest.raises(InvalidInput, match="integer keys"):
        KeyTable("int").numbers(pa.array([], pa.string()))


def refusals() -> list[tuple[type[Exception], Callable[[KeyTable], object]]]:
    full = counted(["b"], np.array([2**62 - 1]))
    return [
        (CounterOverflow, lambda table: table.count(["a", "b"], np.array([2**62 - 1, 1]))),
        (CounterOverflow, lambda table: table.count(["a"], np.array([2**62 + 1]))),
        (CounterOverflow, lambda table: table.count(["a"] * 4, np.array([2**61] * 4))),
        (CounterOverflow, lambda table: table.absorb(full)),
        (InvalidInput, lambda table: table.count(["a", "b"], np.array([1, -1]))),
        (InvalidInput, lambda table: table.count(["a", "b"], np.array([1]))),
        (InvalidInput, lambda table: table.count(["a", "b"], np.array([1.0, 1.0]))),
        (InvalidInput, lambda table: table.count([1.5])),
        (InvalidInput, lambda table: table.count(text_fingerprints(pa.array([1])))),
        (InvalidInput, lambda table: table.names([2])),
        (InvalidInput, lambda table: table.names([-1])),
        (InvalidInput, lambda table: table.names([0.0])),
        (InvalidInput, lambda table: KeyTable("float")),  # type: ignore[arg-type]
        (InvalidInput, lambda table: KeyTable(secret=np.array([1], np.uint64))),
    ]


@pytest.mark.parametrize("case", range(len(refusals())))
def test_what_is_refused_changes_nothing(case: int) -> None:
    error, action = refusals()[case]
    table = counted(["a", "a text of more than fifteen bytes"], np.array([1, 2]))
    before = table.to_arrays()
    with pytest.raises(error):
        action(table)
    after = table.to_arrays()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    table.count(["b"])  # and it goes on
    assert len(table) == 3


def test_the_limit_itself_is_reached() -> None:
    table = counted(["a", "b", None], np.array([2**62 - 1, 1, 2**62]))
    assert table.units.tolist() == [2**62 - 1, 1]
    with pytest.raises(CounterOverflow):
        table.count(["a"])


def test_units_cannot_be_written_from_outside() -> None:
    with pytest.raises(ValueError, match="read-only"):
        counted(["a"]).units[0] = 5


@pytest.mark.parametrize("change", ["count", "numbers", "absorb"])
def test_an_interrupted_change_is_none_or_the_table_refuses(change: str) -> None:
    more = ["a", "b", "another text of more than fifteen bytes"]
    given: Any = counted(more, secret=OTHER) if change == "absorb" else more

    def start() -> KeyTable:
        return counted(["a", "a text of more than fifteen bytes"], secret=SECRET)

    getattr(start(), change)(given)
    tables = []
    for line in sampled_lines(lambda: getattr(start(), change)(given), 60):
        tables.append(start())
        if not interrupted(partial(getattr(tables[-1], change), given), line):
            tables.pop()
    refusing = [table for table in tables if refuses(table)]
    assert refusing
    for table in tables:
        assert table in refusing or contents(table) == contents(start())


def refuses(table: KeyTable) -> bool:
    """Say whether a table refuses everything; fail if it refuses some of it."""
    refused = 0
    for action in (lambda: table.find(["a"]), lambda: table.units, table.to_arrays):
        try:
            action()
        except SketchBroken:
            refused += 1
    assert refused in (0, 3)
    return refused == 3


def test_without_a_compiler_the_table_is_the_same() -> None:
    code = """
import numpy as np
from dpsketch.sketches.histogram.keytable import KeyTable
table = KeyTable(secret=np.array([1, 2], np.uint64))
table.count(["a", "b", "a", None, "x" * 15, "x" * 16, "x" * 40, "x" * 16] + [str(n) for n in range(700)])
other = KeyTable(secret=np.array([3, 4], np.uint64))
other.absorb(table)
print(other.names(range(6)), other.units[:6].tolist(), len(other), table.find(["699", "no"]))
"""
    said = []
    for setting in ("0", "1"):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": setting}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1]


@pytest.mark.parametrize("longest", [15, 16])
def test_texts_are_ordered_by_their_bytes(longest: int) -> None:
    """Short ones are ordered by their identities: prefixes, zeros at the end, and all fifteen bytes decide."""
    texts = [
        "",
        "\0",
        "\0\0",
        "a",
        "a\0",
        "a\0b",
        "b",
        "é",
        "\uffff",
        "😀",
        "y" * 8,
        "y" * 8 + "\0",
        "y" * 14 + "z",
    ]
    texts += ["y" * longest, "y" * 7 + "z", "z" * 8 + "a", "z" * 8]
    table = KeyTable()
    table.count(texts[::-1])
    assert [table.names([number])[0] for number in table.order()] == sorted(texts, key=str.encode)
