"""The compiled loops of moment sketches and distinct counts equal their slow oracles."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from dpsketch._compiled.heavy import mark
from dpsketch._compiled.moment import LANES, aggregate, chacha20_blocks, project
from oracles import moment as oracle

SECRET = np.array([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89])


def words(text: str) -> list[int]:
    return np.frombuffer(bytes.fromhex(text), "<u4").tolist()


def blocks(key: list[int], counter: int, nonce: list[int]) -> np.ndarray:
    """The kernel's blocks, a row each, with counters that count up from ``counter``."""
    inputs = np.repeat(np.array([counter, *nonce], np.uint32), LANES)
    inputs[:LANES] += np.arange(LANES, dtype=np.uint32)
    out = np.empty(16 * LANES, np.uint32)
    chacha20_blocks(np.array(key, np.uint32), inputs, out)
    return out.reshape(16, LANES).T


@pytest.mark.parametrize(
    ("key", "counter", "nonce", "expected"),
    [
        # RFC 8439, section 2.3.2.
        (
            bytes(range(32)).hex(),
            1,
            "000000090000004a00000000",
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
            "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
        ),
        # RFC 8439, appendix A.1, test vector 2.
        (
            "00" * 32,
            1,
            "00" * 12,
            "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
            "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
        ),
    ],
)
def test_the_cipher_reproduces_the_published_vectors(key: str, counter: int, nonce: str, expected: str) -> None:
    found = blocks(words(key), counter, words(nonce))
    assert found[0].astype("<u4").tobytes().hex() == expected
    assert oracle.chacha_block(words(key), counter, words(nonce)) == found[0].tolist()


def test_every_lane_is_its_own_block() -> None:
    found = blocks(SECRET.tolist(), 2**32 - 3, [7, 8, 9])
    for lane in (0, 2, 3, 17, LANES - 1):
        assert oracle.chacha_block(SECRET.tolist(), (2**32 - 3 + lane) % 2**32, [7, 8, 9]) == found[lane].tolist()
    assert len(np.unique(found, axis=0)) == LANES


@pytest.mark.parametrize(("p", "size"), [(0.1, 12), (0.25, 51), (1 / 3, 12), (0.75, 51), (1.0, 51)])
def test_projection_equals_the_oracle(p: float, size: int) -> None:
    prints = np.array([0, 1, 2**64 - 1, 0x0123456789ABCDEF], np.uint64)
    weights = np.array([1.0, -2.5, 0.0, 3e5])
    sums = np.zeros(-(-size // 4) * 4)
    project(sums, SECRET.astype(np.uint32), prints, weights, p)
    terms = [
        [weight * float(oracle.variate(SECRET.tolist(), int(key), row, size, p)) for row in range(len(sums))]
        for key, weight in zip(prints, weights.tolist(), strict=True)
    ]
    expected = np.sum(terms, axis=0)
    np.testing.assert_allclose(sums, expected, rtol=1e-11)


@pytest.mark.parametrize("one_weight", [True, False])
@pytest.mark.parametrize("n", [0, 1, 1000])
def test_aggregation_equals_a_dictionary(n: int, one_weight: bool) -> None:
    rng = np.random.default_rng(n)
    # Fingerprints that agree in their lowest 40 bits crowd one corner of the table.
    prints = rng.integers(0, 50, n).astype(np.uint64) << np.uint64(40)
    weights = np.array([2.5]) if one_weight else rng.integers(-9, 9, n).astype(float)
    distinct, totals = np.empty(n, np.uint64), np.empty(n)
    count = aggregate(prints, weights, distinct, totals)
    expected: dict[int, float] = defaultdict(float)
    for i, key in enumerate(prints.tolist()):
        expected[key] += float(weights[0 if one_weight else i])
    assert dict(zip(distinct[:count].tolist(), totals[:count].tolist(), strict=True)) == expected


def test_marking_equals_its_definition() -> None:
    rng = np.random.default_rng(1)
    prints, keys = rng.integers(0, 2**64, 500, dtype=np.uint64), rng.integers(0, 2**64, 2, dtype=np.uint64)
    bitmap = np.zeros(37, np.uint64)
    mark(bitmap, prints, keys)
    expected = [0] * 37

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    for key in prints.tolist():
        level = mix(key ^ int(keys[1]))
        expected[(mix(key ^ int(keys[0])) >> 32) * 37 >> 32] |= level & -level
    assert bitmap.tolist() == expected
