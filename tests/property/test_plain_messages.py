"""Joint decoding without the compiler: the same bits as with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch._compiled import expectation, messages
from dpsketch.arrays import Floats
from dpsketch.sketches.countsketch import exchange

WAYS = ("plain", "compiled")
SETTINGS = settings(deadline=None, max_examples=60)
CASES = given(st.integers(0, 2**32), st.integers(1, 70), st.integers(1, 9), st.booleans())


def law(rng: np.random.Generator) -> tuple[Any, Any]:
    parts = int(rng.integers(2, 12))
    return rng.dirichlet(np.ones(parts)), np.append(0.0, np.geomspace(0.1, 1e6, parts - 1))


def state(rng: np.random.Generator, keys: int, rows: int) -> dict[str, Any]:
    """Return messages in a table of few cells, some of whose readings are equal."""
    width = 20
    return {
        "cells": (rng.integers(0, width, (keys, rows)) + np.arange(rows) * width).astype(np.int32),
        "signs": rng.choice([-1, 1], (keys, rows)).astype(np.int8),
        "bases": rng.normal(size=keys) * rng.choice([0.0, 1.0, 1e4], keys),
        "offsets": (rng.normal(size=(keys, rows)) * rng.choice([0, 1])).astype(np.float32),
        "variances": (rng.exponential(size=(keys, rows)) * rng.choice([0, 1])).astype(np.float32),
        "residuals": np.round(rng.normal(size=rows * width) * 30),
        "spreads": rng.exponential(size=rows * width) * 9 + 1,
    }


@SETTINGS
@CASES
def test_expectations_are_the_same(seed: int, keys: int, rows: int, signed: bool) -> None:
    found = []
    for way in WAYS:
        rng = np.random.default_rng(seed)
        weights, scales = law(rng)
        readings = rng.standard_cauchy(keys) * 10
        means, spreads = np.empty((2, keys))
        shares = np.empty((len(weights), keys // rows))
        variances = rng.exponential(size=keys) + 1e-6
        getattr(expectation.expect, way)(readings, variances, weights, scales, signed, means, spreads, shares)
        found.append([each.tobytes() for each in (readings, means, spreads, shares)])
    assert found[0] == found[1]


@SETTINGS
@CASES
def test_messages_are_gathered_in_the_same_way(seed: int, keys: int, rows: int, some: bool) -> None:
    found = []
    for way in WAYS:
        given_ = state(np.random.default_rng(seed), keys, rows)
        which = slice(0, rows // 2 + 1) if some else slice(None)  # of a thread that has some of the rows
        sent = [given_[name][:, which] for name in ("cells", "signs", "offsets", "variances")]
        totals = given_["residuals"], given_["spreads"]
        getattr(messages.gather, way)(sent[0], sent[1], given_["bases"], *sent[2:], *totals)
        found.append([each.tobytes() for each in totals])
    assert found[0] == found[1]


@SETTINGS
@CASES
def test_messages_are_renewed_in_the_same_way(seed: int, keys: int, rows: int, signed: bool) -> None:
    found = []
    for way in WAYS:
        rng = np.random.default_rng(seed)
        given_ = state(rng, keys, rows)
        weights, scales = law(rng)
        visited = np.flatnonzero(rng.random(keys) < 0.8)
        changes, counts = np.full(keys, np.inf, np.float32), rng.random((2, len(weights)))
        step, limit, freedom = float(rng.choice([0.5, 1.0])), float(rng.exponential() * 10), float(rng.choice([0, 10]))
        shape = list(given_.values())
        more = (1.0, weights, scales, signed, freedom, step, limit, changes, counts)
        getattr(messages.sweep, way)(*shape[:5], visited, *shape[5:], *more)
        found.append([each.tobytes() for each in (*shape, changes, counts)])
    assert found[0] == found[1]


@SETTINGS
@CASES
def test_keys_are_read_in_the_same_way(seed: int, keys: int, rows: int, partly: bool) -> None:
    """All readings at once, compiled or not, and each by itself."""
    freedoms = np.array([0.0, 4.0, -1.0])
    own = 0.75 if partly else 1.0

    def read(way: str, some: Floats) -> list[tuple[bytes, bytes]]:
        shape = list(state(np.random.default_rng(seed), keys, rows).values())
        values, errors = np.empty((2, len(some), keys))
        getattr(messages.read, way)(*shape[:5], own, *shape[5:], 1.0, some, values, errors)
        return [(value.tobytes(), error.tobytes()) for value, error in zip(values, errors, strict=True)]

    together = read("compiled", freedoms)
    assert together == read("plain", freedoms)
    assert together == [line for freedom in freedoms for line in read("compiled", np.array([freedom]))]


@SETTINGS
@given(
    st.lists(st.sampled_from([-3.0, -1.0, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 4.0, 9.0]), min_size=1, max_size=30),
    st.sampled_from([np.nan, -1.0, 0.0, 0.75, 1.5, 5.0]),
    st.sampled_from([0.0, 0.3, 1.0, 20.0]),
)
def test_a_guess_does_not_change_the_median(values: list[float], guess: float, near: float) -> None:
    table = np.array(values)
    assert exchange.positive_median(table.copy(), guess, near) == max(0.0, float(np.median(table)))


def test_a_release_is_decoded_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = dps.CountSketch(unit=dps.per_record(), rows=5, width=256)
    sketch.update(np.random.default_rng(1).zipf(1.3, 20_000) % 400)
    release = sketch.release(epsilon=1.0, delta=1e-6)
    compiled = release.decode(list(range(300)))
    with monkeypatch.context() as patch:
        for each in (expectation.expect, messages.gather, messages.sweep, messages.read):
            patch.setattr(each, "_made", None)
            patch.setattr(each, "_make", lambda each=each: each.plain)
        plain = release.decode(list(range(300)))
    assert list(plain) == list(compiled)
    assert len(plain) == 300
