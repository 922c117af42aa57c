"""Sparse histograms through their public names: what goes in, is refused and comes out; their kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch._compiled import sparse
from dpsketch.errors import FileRefused, InvalidInput, SpecMismatch
from dpsketch.hashing import fingerprint
from dpsketch.laws.sparse import flip_odds
from dpsketch.sketches.sparse import SparseHistogram, SparseHistogramSpec
from oracles import sparse as oracle


def histogram(**changes: object) -> SparseHistogram:
    return SparseHistogram(**{"unit": dps.per_record(), "expected_keys": 200, "seed": 7, **changes})


def content(some: SparseHistogram) -> dict[int, int]:
    """The exact values, by way of the sensitive bytes."""
    arrays = files.decode(some.to_sensitive_bytes(), allow_sensitive=True).arrays
    return dict(zip(arrays["positions"].tolist(), arrays["units"].tolist(), strict=True))


def test_integer_keys_are_their_own_places() -> None:
    some = histogram()
    some.update([-1, 2**63, 5, 5])
    assert content(some) == {5: 2, 2**63: 1, 2**64 - 1: 1}


def test_text_keys_are_scaled_into_the_domain() -> None:
    some = histogram(domain=2**41 + 9)
    some.update(["x", "y", "x"])
    places = [int(f) * (2**41 + 9) >> 64 for f in fingerprint(["x", "y"]).fingerprints]
    assert content(some) == dict(sorted(zip(places, [2, 1], strict=True)))


def test_keys_outside_the_domain_are_refused_and_change_nothing() -> None:
    some = histogram(domain=10**6)
    some.update([5])
    for keys in (["a"], [987654321], [-1]):
        with pytest.raises((InvalidInput, SpecMismatch)) as refusal:
            some.update([5, *keys] if keys != ["a"] else keys)
        assert "987654321" not in str(refusal.value)
    assert content(some) == {5: 1}


def test_bad_specs_are_refused() -> None:
    wrong: list[dict[str, object]] = [{"domain": 1}, {"domain": 2**64 + 1}, {"max_value": "9"}, {"alpha": 2.5}]
    wrong += [{"threshold_share": 1}, {"collisions": 0.9}, {"expected_keys": 2**28, "collisions": 0.01}]
    for changes in (*wrong, {"key_type": "text", "domain": 2**32}):
        with pytest.raises(InvalidInput):
            histogram(**changes)


def test_what_cannot_be_released_is_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidInput, match=r"epsilon=0\.7071 with delta=0"):
        histogram().release(rho=0.25)
    with pytest.raises(InvalidInput, match="Leave max_value out"):
        histogram(max_value=10**6).release(epsilon=1, delta=0)
    with pytest.raises(InvalidInput, match="coarser grid"):
        histogram(unit=dps.per_user(1000, max_weight=10**6), max_value=10**6).release(epsilon=0.001, delta=0)


def forged(document: files.Document, arrays: dict[str, object]) -> files.Document:
    return replace(document, arrays={**document.arrays, **arrays})


def test_forged_partials_are_refused() -> None:
    some = histogram(domain=1000)
    some.update([1, 2, 3])
    document = files.decode(some.to_sensitive_bytes(), allow_sensitive=True)
    for arrays in (
        {"positions": np.array([1, 2, 1000], np.uint64)},
        {"positions": np.array([1, 3, 2], np.uint64)},
        {"positions": np.array([1, 1, 2], np.uint64)},
        {"units": np.array([1, 0, 1])},
        {"units": np.array([1, -4, 1])},
        {"units": np.array([2**62, 2**62, 2**62])},
    ):
        with pytest.raises(FileRefused):
            SparseHistogram.from_document(forged(document, arrays))


FORGED_LAWS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a larger scale": lambda law: law["projection"].update(scale=2 * law["projection"]["scale"]),
    "too large a scale": lambda law: law["projection"].update(scale="1180591620717411303424"),
    "fewer flips": lambda law: law["projection"].update(alpha=3),
    "endless noise": lambda law: law["survival"]["noise"].update(epsilon=1e-9),
    "less noise": lambda law: law["survival"]["noise"].update(epsilon=9.0),
    "a lower cutoff": lambda law: law["survival"].update(rule="stability", cutoff=2),
    "absent keys without noise": lambda law: law["survival"].update(rule="stability"),
    "another domain": lambda law: law["table"].update(shape=[2000]),
    "no threshold part": lambda law: law.update(survival=None),
}


@pytest.mark.parametrize("forgery", FORGED_LAWS)
def test_a_forged_law_is_refused(forgery: str) -> None:
    some = histogram(domain=1000)
    document = some.release(epsilon=1, delta=0).to_document()
    header = json.loads(json.dumps(document.header))
    FORGED_LAWS[forgery](header["receipts"][0]["laws"][0])
    with pytest.raises(FileRefused):
        dps.load(files.encode(replace(document, header=header)))


def test_forged_arrays_are_refused() -> None:
    some = histogram(domain=1000)
    some.update([1, 2], counts=[500, 700])
    document = some.release(epsilon=1, delta=0).to_document()
    bits = document.arrays["entries__bits"]
    for arrays in (
        {"bits": bits[:-1]},
        {"positions": np.array([1, 1000], np.uint64), "values": np.array([500, 500])},
        {"positions": np.array([2, 1], np.uint64), "values": np.array([500, 500])},
        {"positions": np.array([1], np.uint64), "values": np.array([1])},
    ):
        named = {f"entries__{name}": array for name, array in arrays.items()}
        with pytest.raises(FileRefused):
            dps.load(files.encode(forged(document, named)))


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_large_values_survive_and_are_listed(delta: float, seeded: None) -> None:
    some = histogram(domain=2**40, key_type="int")
    some.update([7, 8, 9], counts=[5000, 300, 3])
    private = some.release(epsilon=1, delta=delta)
    listed, one = private.survivors(), private.estimate([7])
    assert listed.key[:2] == [7, 8]
    assert 9 not in listed.key
    assert np.all(np.diff(listed.value) <= 0)
    assert private.top(2, candidates=[9, 8, 8, 12345]).key[0] == 8
    assert one.low[0] <= 5000 <= one.high[0]
    assert (listed.high - listed.low)[0] > (one.high - one.low)[0]  # corrected for selection
    with pytest.raises(InvalidInput, match="domain"):
        private.estimate([2**40])
    for estimator in ("mean", "median", "walk"):
        found = private.estimate([7, 8, 9, 10], estimator=estimator)
        assert np.all((found.low <= found.value) & (found.value <= found.high))


def test_names_that_a_release_does_not_have_are_refused_with_a_remedy(seeded: None) -> None:
    """Hashes of texts have no names, and with a bound on values there is no threshold part that lists any."""
    texts, bounded = histogram(), histogram(max_value=50)
    texts.update(["a", "b"], counts=[5000, 2])
    bounded.update([1, 2], counts=[40, 10**9])
    private, without = texts.release(epsilon=1, delta=0), bounded.release(epsilon=2, delta=1e-6)
    for listing in (private.survivors, lambda: private.top(3)):
        with pytest.raises(InvalidInput, match="hashes"):
            listing()
    assert private.survivors(candidates=["b", "a", "c"]).key == private.top(1, candidates=["b", "a"]).key == ["a"]
    for listing in (without.survivors, lambda: without.top(3), lambda: without.survivors(candidates=[1])):
        with pytest.raises(InvalidInput, match="no threshold part"):
            listing()
    assert without.guarantee.delta == 0
    assert without.estimate([2]).high[0] <= 50


def test_a_users_text_keys_that_meet_in_the_domain_are_clipped_together() -> None:
    """Two keys with one place would give it twice the bound, which the stability rule's δ does not allow."""
    words = pa.array(np.arange(4_000_000)).cast(pa.string())  # among so many two of 2⁴⁰ places meet
    spec = SparseHistogramSpec(dps.per_user(2, max_weight=3), domain=2**40, key_type="text")
    places = spec.positions(fingerprint(words).fingerprints, "text")
    order = np.argsort(places)
    twin = np.flatnonzero(places[order][1:] == places[order][:-1])[0]
    pair = [words[int(order[twin])].as_py(), words[int(order[twin + 1])].as_py()]
    some = SparseHistogram.from_spec(spec)
    some.update(pair * 3 + pair, users=["u"] * 6 + ["v"] * 2)
    assert list(content(some).values()) == [3 + 2]


def random_words(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, shape, np.uint64)


EDGES = np.array([0, 1, 2, 2**32 - 1, 2**32, 2**63, 2**64 - 1], np.uint64)


@pytest.mark.parametrize(("keys", "columns", "words"), [(0, 3, 1), (1, 1, 1), (40, 7, 3), (200, 20, 5)])
def test_projecting_and_reading_equals_oracle(keys: int, columns: int, words: int) -> None:
    rng = np.random.default_rng(keys)
    positions, column_keys, coins = random_words(keys), random_words(columns, seed=2), random_words(keys, seed=3)
    units = rng.integers(0, 3 * columns, keys)
    scale = np.uint64(2**47 + 12345)
    table = np.zeros((columns, words), np.uint64)
    sparse.project(table, positions, units, scale, coins, column_keys)
    expected = oracle.project(
        64 * words, positions.tolist(), units.tolist(), int(scale), coins.tolist(), column_keys.tolist()
    )
    assert oracle.unpack(table) == expected

    noisy = random_words(columns, words, seed=4)
    ones = oracle.unpack(noisy)
    asked = np.concatenate([positions, EDGES])
    bits = sparse.read(noisy, asked, column_keys)
    assert bits.tolist() == [
        [int((j, oracle.place(position, key, 64 * words)) in ones) for position in asked.tolist()]
        for j, key in enumerate(column_keys.tolist())
    ]


def test_rounding_at_random_equals_oracle_at_the_edges() -> None:
    """A coin of exactly the fraction rounds down; one below it rounds up."""
    column_keys = random_words(4, seed=2)
    fraction = 2**46
    for coin, ones in ((fraction - 1, 1), (fraction, 0), (0, 1), (2**48 - 1, 0)):
        table = np.zeros((4, 1), np.uint64)
        coins = np.array([coin << 16], np.uint64)
        sparse.project(table, np.array([5], np.uint64), np.array([1]), np.uint64(fraction), coins, column_keys)
        assert len(oracle.unpack(table)) == ones


@pytest.mark.parametrize("alpha", [1, 2, 3, 6])
def test_flips_equal_oracle(alpha: int) -> None:
    numerator, bits = flip_odds(alpha)
    random = random_words(30, bits)
    words = random_words(30, seed=9)
    expected = [a ^ b for a, b in zip(words.tolist(), oracle.flips(random.tolist(), numerator), strict=True)]
    sparse.flip(words, numerator, random)
    assert words.tolist() == expected
