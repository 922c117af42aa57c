"""HeavyHitters through its public names: what goes in, what is refused, what comes out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput
from dpsketch.noise import seeded_noise_for_tests_only


def sketch(**changes: object) -> dps.HeavyHitters:
    arguments: dict[str, object] = {"rows": 5, "width": 256, "unit": dps.per_record(), "key_bytes": 6, **changes}
    if "key_bits" in changes:
        arguments.pop("key_bytes")
    return dps.HeavyHitters(**arguments)


def released(
    counts: dict[object, int], epsilon: float = 1.0, delta: float = 1e-6, **changes
) -> dps.PrivateHeavyHitters:
    some = sketch(**changes)
    some.update(list(counts), counts=list(counts.values()))
    with seeded_noise_for_tests_only(4):
        return some.release(epsilon=epsilon, delta=delta)


def test_negative_integers_are_refused_without_being_named() -> None:
    for keys in ([-7654321, 5], pa.array([None, -7654321])):
        with pytest.raises(InvalidInput, match="negative") as refusal:
            sketch(key_bits=64).update(keys)
        assert "7654321" not in str(refusal.value)


def test_bad_shapes_are_refused() -> None:
    for changes in (
        {"rows": 4}, {"rows": True}, {"width": 1}, {"seed": -1}, {"unit": None}, {"grid": 0}, {"key_bytes": None},
        {"key_bytes": 65}, {"key_bytes": 2.0}, {"key_bits": 7}, {"key_bits": 65}, {"rows": 1023, "width": 2**21},
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            sketch(**changes)
    with pytest.raises(InvalidInput, match="not both"):
        dps.HeavyHitters(unit=dps.per_record(), key_bits=64, key_bytes=8)


def test_keys_come_back_as_what_they_were() -> None:
    """Text as text, invalid UTF-8 as bytes, integers as integers; no key is cut, and what ends differs from a zero."""
    texts = {"": 9000, "a": 8000, "a\0": 7000, "aa": 6000, "aaaaaa": 5000, "ü": 4000, b"\xff\0\xff": 3000, "zz": 2}
    keys = [key if isinstance(key, bytes) else key.encode() for key in texts]
    some = sketch()
    some.update(keys, counts=list(texts.values()))
    with seeded_noise_for_tests_only(1):
        found = some.release(epsilon=1, delta=1e-6).top(threshold=1000)
    assert found.key == list(texts)[:-1]
    assert found.value == pytest.approx(list(texts.values())[:-1], abs=100)
    numbers = {0: 5000, 1: 4000, 2**64 - 1: 3000, 2**63: 2000, 77: 1}
    assert released(numbers, key_bits=64).top(threshold=1000).key == list(numbers)[:-1]
    for bits in (8, 20):
        small = {2**bits - 1: 5000, 0: 4000, 3: 3000, 100: 2}
        assert released(small, key_bits=bits).top(threshold=1000).key == list(small)[:-1]
    assert released({"b": 5000, "": 3000, "a": 4}, key_bytes=1).top(threshold=1000).key == ["b", ""]


def test_keys_that_are_too_long_are_counted_and_never_found() -> None:
    private = released({"seventy": 5000, "seventy-one": 3000, "short": 1000})
    assert private.top(threshold=500).key == ["short"]
    assert private.too_long().value == pytest.approx(8000, abs=100)
    assert private.all_records().value == pytest.approx(9000, abs=200)
    assert private.facts()["too_long"]["value"] == private.too_long().value
    with pytest.raises(InvalidInput, match="key_bytes=6"):
        private.estimate(["seventy"])
    assert released({1: 5}, key_bits=64).too_long().value == 0


def test_top_takes_a_number_a_threshold_or_candidates() -> None:
    counts = {f"key{i}": 1000 * (9 - i) for i in range(8)}
    private = released(counts)
    assert private.top(3).key == list(counts)[:3]
    assert private.top(threshold=4500).key == list(counts)[:5]
    assert private.top(2, threshold=4500).key == list(counts)[:2]
    assert private.top().key == list(counts)
    assert private.top(100).key == list(counts)  # there are no more: noise is never listed
    assert private.top(2, candidates=["key4", "key2", "no", "key6"]).key == ["key2", "key4"]
    assert private.top(threshold=3500, candidates=["key4", "no", "key6"]).key == ["key4"]
    every = private.top()
    assert np.all(every.low < every.value)
    assert np.all(every.value < every.high)
    one_key = private.estimate(["key0"])
    assert every.high[0] - every.low[0] > one_key.high[0] - one_key.low[0]  # corrected for selection
    for bad in ({"n": 0}, {"n": True}, {"threshold": float("nan")}, {"threshold": "3"}, {"confidence": 1}):
        with pytest.raises(InvalidInput):
            private.top(**bad)
    with pytest.raises(InvalidInput, match="candidate"):
        private.top(3, candidates=[])


@pytest.mark.parametrize(("space", "delta"), [({"key_bits": 64}, 1e-6), ({"key_bytes": 12}, 0.0)])
def test_noise_alone_is_never_listed(space: dict[str, int], delta: float) -> None:
    """At the lowest threshold about one noise-only release in a thousand lists a key; the noise is seeded."""
    private = released({}, delta=delta, **space)
    assert len(private.top()) == len(private.top(5, threshold=1)) == 0


def test_the_frontier_keeps_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {i << 40: 1000 * (9 - i) for i in range(8)}
    private = released(counts, key_bits=64)
    monkeypatch.setattr("dpsketch.sketches.heavy.search.FRONTIER", 3)
    assert private.top().key == list(counts)[:3]


def test_predictions_for_simple_data() -> None:
    spec = sketch().spec
    clear = spec.predict(threshold=1000, counts=[5000] * 10 + [1] * 50, epsilon=1, delta=1e-6)
    assert clear.recall == clear.precision == clear.lenient_recall == clear.lenient_precision == pytest.approx(1)
    assert (clear.frequent, clear.threshold) == (10, 1000)
    nothing = spec.predict(threshold=1, counts=[], epsilon=1, delta=1e-6)
    assert nothing.frequent == nothing.found == 0
    assert nothing.threshold > 50
    tight = spec.predict(threshold=1000, counts=[1000] * 10, epsilon=1, delta=1e-6)
    assert tight.recall == pytest.approx(0.5, abs=0.01)
    for guess in (
        {}, {"records": 100, "keys": 5}, {"records": 100, "keys": 5, "skew": 1, "counts": [1]}, {"counts": [-1]},
        {"records": 1, "keys": 0, "skew": 1},
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            spec.predict(threshold=100, epsilon=1, delta=1e-6, **guess)
