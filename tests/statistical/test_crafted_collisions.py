"""What someone who knows the seed can do to a key's estimate, and what stops it.

The attacks are exact and the margins wide; noise is seeded.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch._compiled.countsketch import row_values
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.seeds import keyed, random_key, random_seed
from dpsketch.sketches.specs import DEFAULT_SEED
from texts import colliding_texts

ROWS, WIDTH, VICTIM, TRUTH, SPENT = 7, 4096, 12_345, 1000, 5000


def crafted(seed: int) -> list[int]:
    """For each of four rows, a key that adds to the victim's cell there: a search of some 8,000 keys a row."""
    keys = np.arange(10**6, 10**6 + 200_000)
    table = np.tile(np.arange(1, WIDTH + 1), (ROWS, 1))
    hashes = row_keys(seed, ROWS)
    own = row_values(table, fingerprint([VICTIM]).fingerprints, hashes).ravel()
    others = row_values(table, fingerprint(keys).fingerprints, hashes).reshape(len(keys), ROWS)
    found = [int(keys[np.flatnonzero(others[:, row] == own[row])[0]]) for row in range(4)]
    assert len(set(found)) == 4
    return found


def estimate(seed: int, added: list[int]) -> float:
    sketch = dps.CountSketch(rows=ROWS, width=WIDTH, unit=dps.per_record(), seed=seed)
    background = np.random.default_rng(1).zipf(1.3, 50_000)
    sketch.update(np.where(background > 10**5, 10**5, background) + 10**8)
    sketch.update([VICTIM, *added], counts=[TRUTH, *[SPENT] * len(added)])
    return float(sketch.release(epsilon=1.0, delta=1e-6).estimate([VICTIM]).value[0])


def test_a_known_seed_lets_four_keys_move_a_victim(seeded: None) -> None:
    """With 20,000 records of four crafted keys the estimate of a key of 1,000 is wrong by thousands.

    With a seed drawn after the keys were crafted it is as it would be without them.
    """
    attack = crafted(DEFAULT_SEED)
    assert abs(estimate(DEFAULT_SEED, []) - TRUTH) < 100
    assert estimate(DEFAULT_SEED, attack) > TRUTH + 0.5 * SPENT
    late = [estimate(random_seed(), attack) for _ in range(5)]
    assert max(abs(value - TRUTH) for value in late) < 100


def test_texts_with_one_fingerprint_are_one_key_under_any_seed_unless_keyed(seeded: None) -> None:
    texts = colliding_texts(50)
    assert len(set(texts)) == 50
    assert len(set(fingerprint(pa.array(texts, pa.binary())).fingerprints.tolist())) == 1
    secret = random_key()
    for harden in (False, True):
        column = pa.array(texts, pa.binary())
        keys = keyed(column, secret) if harden else column
        sketch = dps.CountSketch(rows=ROWS, width=WIDTH, unit=dps.per_record(), seed=random_seed())
        sketch.update(keys, counts=[10] + [1000] * 49)
        value = sketch.release(epsilon=1.0, delta=1e-6).estimate(keys).value[0]
        assert (abs(value - 10) < 100) if harden else (value > 40_000)


def test_keys_that_a_secret_hides_are_alike_in_every_column() -> None:
    secret, values = random_key(), ["a", None, "b", "a"]
    found = keyed(values, secret)
    assert found.null_count == 1
    assert found[0] == found[3] != found[2]
    views, pieces = pa.array(values, pa.string_view()), pa.chunked_array([values[:2], values[2:]])
    for column in (views, pieces, pa.array(values).dictionary_encode()):
        assert keyed(column, secret).equals(found)
    assert not keyed(["a"], random_key()).equals(found[:1])
    assert keyed([97], secret) != keyed(["a" + 7 * "\0"], secret)
    with pytest.raises(InvalidInput, match="16 to 64"):
        keyed(["a"], b"short")
