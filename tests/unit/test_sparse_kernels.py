"""Each kernel of the sparse histogram equals its slow oracle, with the compiler and without."""

from __future__ import annotations

import numpy as np
import pytest

from dpsketch._compiled import sparse
from dpsketch.laws.sparse import flip_odds
from oracles import sparse as oracle


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


def test_flip_odds_are_at_least_one_in_alpha_plus_two() -> None:
    for alpha in range(1, 63):
        numerator, bits = flip_odds(alpha)
        assert numerator * (alpha + 2) >= 2**bits
        assert (numerator / 2**bits - 1 / (alpha + 2)) < 2**-16


@pytest.mark.parametrize("columns", [1, 2, 30])
def test_walk_equals_oracle(columns: int) -> None:
    bits = np.random.default_rng(columns).integers(0, 2, (columns, 300), np.uint8)
    assert sparse.walk(bits).tolist() == [oracle.walk(line) for line in bits.T.tolist()]


@pytest.mark.parametrize(("columns", "rate"), [(1, 0.3), (12, 0.0), (12, 0.3), (1100, 0.3)])
def test_posterior_equals_oracle(columns: int, rate: float) -> None:
    """1,100 columns carry the likelihood far past what a double holds: it is rescaled on the way."""
    rng = np.random.default_rng(columns)
    keys = 3 if columns > 100 else 20
    bits = rng.integers(0, 2, (columns, keys), np.uint8)
    if columns > 100:
        bits[:] = rng.random((columns, keys)) < np.where(np.arange(columns)[:, None] < 900, 0.75, 0.25)
    ones = np.full(columns, 0.25) + 0.2 * np.linspace(1, 0, columns)
    ratio = np.column_stack([0.25 / (1 - ones), 0.75 / ones])
    points = 2 * columns + 1
    value = 3.0 * np.arange(points)
    whole = np.minimum(np.arange(points) // 2, columns).astype(np.int32)
    fraction = np.where(whole < columns, np.arange(points) % 2 / 2, 0.0)
    prior = rng.random(points) + 0.5
    dropped = prior * np.exp(-rate * np.maximum(0, value - value[-1] / 2))
    observed = (
        np.where(np.arange(keys) % 3 == 0, -1.0, rng.uniform(0, value[-1], keys)) if rate else np.full(keys, -1.0)
    )
    for tail in (0.05, 1e-12):
        found = sparse.posterior(bits, ratio, whole, fraction, value, prior, dropped, observed, rate, tail)
        for i in range(keys):
            line, places, values = bits[:, i].tolist(), whole.tolist(), value.tolist()
            given = (fraction, values, prior, dropped, observed[i], rate, tail)
            assert found[i] == pytest.approx(oracle.posterior(line, ratio, places, *given), rel=1e-9)
