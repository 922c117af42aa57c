"""Candidates that no row tells apart are found, whatever the table, and in whatever order they come."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsketch._compiled import countsketch as kernels
from dpsketch.sketches.countsketch.decoding import joint_decode
from dpsketch.sketches.countsketch.messages import find_twins
from oracles import decoding as oracle

PRINTS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60, unique=True)


@settings(max_examples=60)
@given(PRINTS, st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**32))
def test_twins_are_the_oracles(prints: list[int], rows: int, width: int, seed: int) -> None:
    row_keys = np.random.default_rng(seed).integers(0, 2**64, rows, dtype=np.uint64)
    asked = np.array(prints, np.uint64)
    expected = oracle.twins(*kernels.cells(asked, row_keys, width))
    found = find_twins(asked, row_keys, width)
    if found is None:
        assert all(alike == 1 and opposed == 0 for _, alike, opposed in expected)
        return
    firsts = [int(found.first[group]) for group in found.group]
    assert [*zip(firsts, found.alike.tolist(), found.opposed.tolist(), strict=True)] == expected
    # Whoever comes later changes no number of a group: messages of the first candidates stay theirs.
    fewer = find_twins(asked[: len(asked) // 2 + 1], row_keys, width)
    if fewer is not None:
        assert fewer.group.tolist() == found.group[: len(asked) // 2 + 1].tolist()


@settings(max_examples=25)
@given(st.permutations(range(40)), st.integers(3, 4), st.booleans(), st.integers(0, 2**32))
def test_twins_are_answered_alike(order: list[int], rows: int, signed: bool, seed: int) -> None:
    """Whatever a table holds: keys that no row tells apart have the same value, each lies within the interval of the
    others, and an interval reaches whatever a count that adds up to what was read can be."""
    rng = np.random.default_rng(seed)
    row_keys, prints = (rng.integers(0, 2**64, size, dtype=np.uint64) for size in (rows, 40))
    prints = prints[order]
    width, counts = 2, rng.integers(-500 if signed else 0, 5000, 40)
    table = np.rint(rng.normal(0, 3, (rows, width))).astype(np.int64)
    kernels.add_weighted(table, prints, row_keys, counts)
    decoded = joint_decode(table, prints, row_keys, 3.0, signed=signed)
    half = decoded.half_widths(0.95)
    for i, (first, alike, opposed) in enumerate(oracle.twins(*kernels.cells(prints, row_keys, width))):
        assert decoded.values[i] == decoded.values[first]
        assert half[i] == half[first]
        if decoded.errors[i] != decoded.error:  # not a plain answer
            largest = np.abs(table).max()
            assert half[i] >= (alike - 1) * abs(decoded.values[i])
            assert half[i] >= (opposed + (alike - 1 if signed else 0)) * largest
