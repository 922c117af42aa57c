"""Kernels that may run without the compiler: the same bits as with it, and only as long as there is little to do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsketch._compiled import countsketch, location, xxh64

SEED = np.uint64(42)


def both(kernel: Any, *arguments: Any) -> tuple[Any, Any]:
    return kernel.plain(*arguments), kernel.compiled(*arguments)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=80), max_size=6))
def test_texts_have_the_same_hashes(texts: list[bytes]) -> None:
    data = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    found = []
    for run in (xxh64.hash_slices.plain, xxh64.hash_slices.compiled):
        hashes = np.empty(len(texts), np.uint64)
        run(data, offsets, SEED, hashes)
        found.append(hashes.tolist())
    assert found[0] == found[1]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=6), st.integers(1, 5), st.integers(2, 2**20))
def test_integers_have_the_same_hashes_and_cells(keys: list[int], rows: int, width: int) -> None:
    words, row_keys = np.array(keys, np.uint64), np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashes = np.empty((2, len(words)), np.uint64)
    xxh64.hash_integers.plain(words, SEED, hashes[0])
    xxh64.hash_integers.compiled(words, SEED, hashes[1])
    assert hashes[0].tolist() == hashes[1].tolist()
    table = np.arange(rows * width).reshape(rows, width)
    plain, compiled = both(countsketch.row_values, table, hashes[0], row_keys)
    np.testing.assert_array_equal(plain, compiled)
    assert plain.dtype == compiled.dtype


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 7, 300]),
    st.sampled_from([1, 3, 5, 7, 15]),
    st.sampled_from(["noise", "ties", "tails", "collisions"]),
    st.floats(1e-3, 1e5),
)
def test_locations_are_the_same(seed: int, keys: int, rows: int, law: str, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    cells = {
        "noise": lambda: rng.normal(0, 10, (keys, rows)),
        "ties": lambda: rng.integers(-3, 4, (keys, rows)).astype(np.float64),
        "tails": lambda: 5 * rng.standard_cauchy((keys, rows)),
        "collisions": lambda: rng.normal(0, 1, (keys, rows)) + 1e6 * (rng.random((keys, rows)) < 0.3),
    }[law]()
    medians, compiled = both(countsketch.median_of_rows, cells)
    np.testing.assert_array_equal(medians, compiled)
    for kernel in (location.huber_of_rows, location.tukey_of_rows):
        np.testing.assert_array_equal(*both(kernel, cells, medians, threshold))


@pytest.mark.parametrize(("keys", "loaded"), [(5, False), (200_000, True)])
def test_the_compiler_is_loaded_for_much_work_only(keys: int, loaded: bool) -> None:
    code = f"import sys, dpsketch.hashing as h; h.fingerprint(range({keys})); print('numba' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(loaded)


def test_many_small_calls_load_the_compiler_too() -> None:
    code = """
import sys
from dpsketch.hashing import fingerprint
for i in range(10_000):
    fingerprint(range(100))
    if "numba" in sys.modules:
        break
print(100 < i < 9_999)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True"
