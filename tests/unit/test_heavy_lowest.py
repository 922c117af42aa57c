"""What a search lists: clear keys of a crowded table, none that is not there, and a reason where it lists nothing."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import noise
from dpsketch.sketches.heavy.search import confidence_in_each


def release(keys: np.ndarray, counts: np.ndarray, rows: int, width: int, seed: int = 1) -> dps.PrivateHeavyHitters:
    sketch = dps.HeavyHitters(unit=dps.per_record(), key_bits=24, rows=rows, width=width, seed=seed)
    sketch.update(keys, counts=counts)
    with noise.seeded_noise_for_tests_only(seed):
        return sketch.release(epsilon=1.0, delta=1e-6)


def test_clear_keys_in_a_crowded_table_are_listed() -> None:
    """Half as many keys as the table is wide: every cell collides, and joint decoding takes all of it away."""
    keys = np.random.default_rng(1).choice(2**24, 500, replace=False)
    private = release(keys, np.full(500, 5000), 7, 1024)
    assert private.lowest_threshold < 1000
    found = private.top(threshold=1000)
    assert set(found.key) == set(keys.tolist())
    assert np.sqrt(np.mean((found.value - 5000) ** 2)) < 12
    assert np.all((found.low <= 5000) & (found.high >= 5000))
    assert found.note == ""


@pytest.mark.parametrize("rows", [5, pytest.param(7, marks=pytest.mark.full)])
def test_two_thousand_equal_keys_are_all_found(rows: int) -> None:
    """Half as many as the table is wide, of 32 bits. Without a second and third look five rows miss one of them: heavy
    keys hide it in most rows, and of those some were hidden themselves."""
    keys = np.random.default_rng(1).choice(2**32, 2000, replace=False)
    sketch = dps.HeavyHitters(unit=dps.per_record(), key_bits=32, rows=rows, width=4096, seed=1)
    sketch.update(keys, counts=np.full(2000, 5000))
    with noise.seeded_noise_for_tests_only(1):
        private = sketch.release(epsilon=1.0, delta=1e-6)
    found = private.top()
    assert private.lowest_threshold < 300
    assert set(found.key) == set(keys.tolist())
    assert np.all((found.low <= 5000) & (found.high >= 5000))


def test_a_list_is_no_shorter_than_one_interval_for_all_would_make_it() -> None:
    """Keys whose rows disagree have wide intervals of their own; far out, the one that is the same for all is narrower.
    All of them cover, and none is absent."""
    rng = np.random.default_rng(1)
    keys = rng.choice(2**24, 20_000, replace=False)
    counts = rng.multinomial(10**6, (shares := np.arange(1, 20_001) ** -1.05) / shares.sum())
    private = release(keys[counts > 0], counts[counts > 0], 5, 4096)
    found = private.top()
    truth = dict(zip(keys.tolist(), counts.tolist(), strict=True))
    assert all(truth.get(key, 0) > 0 and low <= truth[key] <= high for key, _, low, high in found.rows())
    inside = private._found
    assert inside.decoded is not None
    alone = inside.decoded.half_widths(confidence_in_each(0.95, inside.looked_at))[inside.places]
    assert len(found) >= 1.02 * np.count_nonzero(inside.values > alone)
    # What a confidence of its own costs the narrower of two.
    assert np.all(inside.half_widths(0.95) <= 1.1 * alone)


@pytest.mark.parametrize("seed", range(5))
def test_one_row_lists_no_key_that_is_not_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.choice(2**24, 3000, replace=False)
    counts = np.floor(1e5 / np.arange(1, 3001) ** 1.05).astype(np.int64)
    private = release(keys, counts, 1, 1024, seed)
    found = private.top()
    truth = dict(zip(keys.tolist(), counts.tolist(), strict=True))
    assert all(low <= truth.get(key, 0) <= high for key, _, low, high in found.rows())
    assert set(found.key) <= set(truth)
    assert found.key == []
    assert "rows=3" in private.top(threshold=1000).note


def test_a_search_without_a_result_says_why() -> None:
    keys = np.arange(100)
    private = release(keys, np.full(100, 3), 5, 1024)
    found = private.top()
    assert found.key == []
    assert found.note.startswith("no key passes ")
    assert "told from nothing" in found.note
    assert found.note in repr(found)
    above = private.top(threshold=10 * private.lowest_threshold)
    assert "the threshold asked for" in above.note


def test_the_command_line_says_why_nothing_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    from dpsketch.cli.output import print_estimates

    private = release(np.arange(100), np.full(100, 3), 5, 1024)
    found = private.top()
    print_estimates(found, private.guarantee, as_json=False)
    print_estimates(found, private.guarantee, as_json=True)
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("o key passes") == 2
