"""Joint decoding: the kernels are the slow oracle's, and what is shown of keys that share cells."""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import noise
from dpsketch._compiled import decoding as messages
from dpsketch.sketches.countsketch.messages import Attempt
from oracles import decoding as oracle


@pytest.mark.parametrize(("rows", "signed"), [(3, False), (5, True), (8, False)])
def test_a_sweep_is_the_oracles(rows: int, signed: bool) -> None:
    rng = np.random.default_rng(rows)
    width, keys = 16, 20
    table = rng.normal(0, 30, (rows, width))
    places = rng.integers(0, width, (keys, rows)).astype(np.int32)
    cells = places + np.arange(rows, dtype=np.int32) * np.int32(width)
    signs = rng.choice(np.array([-1, 1], np.int8), (keys, rows))
    bases, offsets = rng.exponential(20, keys), rng.normal(0, 2, (keys, rows)).astype(np.float32)
    sent, variances = bases[:, None] + offsets, rng.exponential(9, (keys, rows)).astype(np.float32)
    weights, scales = np.array([0.6, 0.3, 0.1]), np.array([0.0, 25.0, 2500.0])

    means, known = np.zeros(table.shape), np.zeros(table.shape)
    messages.gather(cells, signs, bases, offsets, variances, means.ravel(), known.ravel())
    left = table - means
    assert np.allclose(left, oracle.spread_out(table, places, signs, sent))
    spreads = 16.0 + known
    expected = np.empty((2, keys, rows))
    for i in range(keys):
        values = [signs[i, r] * left[r, places[i, r]] + sent[i, r] for r in range(rows)]
        errors = [max(spreads[r, places[i, r]] - variances[i, r], 16.0) for r in range(rows)]
        for row in range(rows):
            others = [r for r in range(rows) if r != row]
            found = oracle.location([values[r] for r in others], [errors[r] for r in others], 10.0)
            expected[:, i, row] = oracle.expectation(*found, weights, scales, signed)
    changes, held = np.empty(keys, np.float32), np.zeros((2, 3))
    before, variances_before = sent.copy(), variances.copy()
    messages.sweep(
        cells, signs, bases, offsets, variances, np.arange(keys), left.ravel(), spreads.ravel(), 16.0, weights, scales,
        signed, 10.0, 1.0, 30.0, changes, held,
    )  # fmt: skip
    sent = bases[:, None] + offsets
    assert np.allclose(sent, expected[0], rtol=1e-6, atol=1e-6)
    assert np.allclose(variances, expected[1], rtol=1e-5, atol=1e-5)
    moved = (sent - before) ** 2 + 0.005 * np.abs(variances - variances_before)
    assert np.allclose(changes, np.mean(moved, axis=1))
    # Keys that hardly moved are told from the others.
    assert np.allclose(held.sum(axis=1), [np.sum(changes <= 30), np.sum(changes > 30)])
    assert np.all(held.sum(axis=1) > 0)


def zipf_release() -> tuple[dps.PrivateCountSketch, np.ndarray]:
    counts = np.floor(2e5 / np.arange(1, 4001) ** 1.1).astype(np.int64)
    sketch = dps.CountSketch(rows=3, width=512, unit=dps.per_record(), seed=3)
    sketch.update(np.arange(len(counts)), counts=counts)
    with noise.seeded_noise_for_tests_only(3):
        return sketch.release(epsilon=1.0, delta=1e-6), counts


def test_what_is_shown_goes_from_the_reading_towards_the_posterior_mean() -> None:
    """Each is what its name says, in intervals that stay where they are, and the mean of all has the least error."""
    private, counts = zipf_release()
    shown = {
        name: private.decode(np.arange(len(counts)), estimator=name)
        for name in ("unshrunk", "limited", "posterior_mean")
    }
    unshrunk, limited, mean = (shown[name].value for name in shown)
    half = shown["unshrunk"].high - unshrunk
    assert np.array_equal(shown["limited"].low, shown["unshrunk"].low)
    # A half-width is nearly twice a standard error, and 0.4 of one is the most that a value moves.
    assert np.all(np.abs(limited - unshrunk) <= 0.25 * half)
    assert np.all((shown["posterior_mean"].low <= mean) & (mean <= shown["posterior_mean"].high))
    assert np.all(mean >= 0)
    errors = [float(np.mean((value - counts) ** 2)) for value in (unshrunk, limited, mean)]
    assert errors[0] > errors[1] > errors[2]
    # Heavy keys stay where they are.
    assert np.allclose(mean[:20], unshrunk[:20], rtol=0.02)


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    private, _ = zipf_release()
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("DPSKETCH_THREADS", threads)
        found.append(private.decode(np.arange(6000)))
    assert np.array_equal(found[0].value, found[1].value)
    assert np.array_equal(found[0].low, found[1].low)


def test_a_key_that_took_anothers_place_gives_it_back() -> None:
    """Fifty keys of 20,000 among 5,000 candidates in three rows. One of them shares two cells, with equal signs, with a
    candidate that is absent, and others lie in their third cells: at first the absent one has the whole count, without
    any doubt, and neighbours have cells that nothing explains."""
    rng = np.random.default_rng(30_020)
    keys, counts = rng.choice(2**48, 5000, replace=False), np.append(np.full(50, 20_000), np.zeros(4950, np.int64))
    sketch = dps.CountSketch(rows=3, width=256, unit=dps.per_record(), seed=30_020)
    sketch.update(keys[:50], counts=counts[:50])
    with noise.seeded_noise_for_tests_only(30_020):
        found = sketch.release(rho=0.028).decode(keys)
    assert np.sqrt(np.mean((found.value - counts) ** 2)) < 10
    assert np.abs(found.value - counts).max() < 50


def test_what_a_candidate_takes_beside_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 72 bytes with five rows, whatever the list: the messages of one sweep, 48, and its fingerprint, place and
    error. What the table itself takes is the same for both lists. No cell is called unexplained here; otherwise, as in
    the twin among the mutants, the messages of two sweeps are held, which takes 48 more.

    On one thread, since what others hold meanwhile is chance.
    """
    monkeypatch.setenv("DPSKETCH_THREADS", "1")
    monkeypatch.setattr(Attempt, "unexplained", lambda self: np.zeros(self.remaining.size, bool))
    counts = np.floor(2e5 / np.arange(1, 20_001)).astype(np.int64)
    sketch = dps.CountSketch(rows=5, width=1024, unit=dps.per_record(), seed=4)
    sketch.update(np.arange(len(counts)), counts=counts)
    with noise.seeded_noise_for_tests_only(4):
        private = sketch.release(epsilon=1.0, delta=1e-6)
    peaks = []
    for size in (1000, 40_000, 80_000):  # whatever is loaded when it is first used is loaded by the first
        tracemalloc.start()
        private.decode(np.arange(size))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    answer = 8 + sys.getsizeof(50_000) + 3 * 8
    assert (peaks[2] - peaks[1]) / 40_000 - answer <= 72


def test_a_difference_of_releases_may_be_negative() -> None:
    """Counts that fell are decoded as well as counts that rose, also from a file."""
    keys = np.arange(4000)
    days = [np.where(keys % 40 == 0, 5000, 0), np.where(keys % 40 == 20, 5000, 0)]
    made = []
    for seed, counts in enumerate(days):
        sketch = dps.CountSketch(rows=5, width=1024, unit=dps.per_record())
        sketch.update(keys, counts=counts)
        with noise.seeded_noise_for_tests_only(seed):
            made.append(sketch.release(epsilon=1.0, delta=1e-6))
    change = made[1] - made[0]
    again = type(change).from_document(change.to_document())
    assert again.signed
    assert not (made[0] + made[1]).signed
    truth = days[1] - days[0]
    for one in (change, again):
        found = one.decode(keys)
        assert np.sqrt(np.mean((found.value - truth) ** 2)) < 8
        assert 0.93 < np.mean((found.low <= truth) & (truth <= found.high)) < 0.98


def test_sums_that_no_counter_holds_are_refused() -> None:
    document = dps.CountSketch(rows=1, width=2, unit=dps.per_record()).release(epsilon=1.0, delta=1e-6).to_document()

    def of(*cells: int) -> dps.PrivateCountSketch:
        arrays = {"counters__table": np.array([cells])}
        return dps.PrivateCountSketch.from_document(replace(document, arrays=arrays))

    for sign in (1, -1):
        with pytest.raises(dps.errors.CounterOverflow):
            _ = of(sign * (2**62 + 5), 1) + of(sign * (2**62 + 5), 2)
        small = of(sign * (2**62 - 1), 1)
        assert (small + of(sign * (2**62 - 1), 2)).table.tolist() == [[sign * (2**63 - 2), 3]]
        with pytest.raises(dps.errors.CounterOverflow):
            _ = small - of(-(2**63), 0)
