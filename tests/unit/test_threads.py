"""Batches on several cores: the same bits, whatever the number of threads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import threads
from dpsketch.errors import InvalidInput
from sensitive import everything

KEYS = 3 * 2**18 + 17


def sketch_of(keys: object, **update: object) -> object:
    sketch = dps.CountSketch(rows=3, width=64, unit=dps.per_record(max_weight=5), grid=1)
    sketch.update(keys, **update)
    return everything(sketch)


@pytest.mark.parametrize("kind", ["integers", "narrow integers", "texts", "texts with nulls"])
def test_any_number_of_threads_gives_the_same_sketch(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(1).integers(0, 1000, KEYS)
    column = {
        "integers": pa.array(numbers),
        "narrow integers": pa.array(numbers.astype(np.int16)),
        "texts": pa.array(numbers).cast(pa.string()),
        "texts with nulls": pa.array(numbers, mask=numbers % 7 == 0).cast(pa.string()),
    }[kind]
    found = []
    for count in ("1", "2", "3"):
        monkeypatch.setenv("DPSKETCH_THREADS", count)
        found.append(sketch_of(column.slice(3)))
    assert found[0] == found[1] == found[2]


def test_weights_go_with_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    numbers, weights = rng.integers(0, 1000, KEYS), rng.integers(1, 6, KEYS)
    found = []
    for count in ("1", "3"):
        monkeypatch.setenv("DPSKETCH_THREADS", count)
        found.append(sketch_of(numbers, weights=weights))
    assert found[0] == found[1]


def test_a_large_batch_is_divided_and_a_small_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSKETCH_THREADS", "4")
    assert threads.parts(99, smallest=50) == [slice(0, 99)]
    assert threads.parts(100, smallest=50) == [slice(0, 50), slice(50, 100)]
    assert len(threads.parts(10_000, smallest=50)) == 4
    assert threads.parts(0, smallest=50) == [slice(0, 0)]


@pytest.mark.parametrize("value", ["0", "-1", "two", "65", "1.5", "²"])
def test_a_bad_number_of_threads_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSKETCH_THREADS", value)
    with pytest.raises(InvalidInput, match="DPSKETCH_THREADS"):
        threads.thread_count()


def test_what_a_thread_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("from a thread")

    with pytest.raises(ValueError, match="from a thread"):
        threads.run([lambda: None, fail])
