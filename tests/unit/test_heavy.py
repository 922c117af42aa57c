"""HeavyHitters through its public names: what goes in, what is refused, what comes out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.privacy import GaussianCost, PureCost


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


def test_counts_weights_and_nulls() -> None:
    unit = dps.per_record(max_weight=3)
    by_hand, by_count, by_weight = (sketch(unit=unit) for _ in range(3))
    by_hand.update(["a"] * 2 + ["b"] * 3)
    by_count.update(pa.array(["a", None, "b"]), counts=[2, 9, 3])
    by_weight.update(pa.array(["a", "b", None]), weights=[2, 1000, 1])
    assert by_count.skipped_nulls == by_weight.skipped_nulls == 1
    for other in (by_count, by_weight):
        pieces = [some._exact() for some in (by_hand, other)]
        assert all(np.array_equal(pieces[0][name], pieces[1][name]) for name in pieces[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": [1]}, "counts text keys"),
        ({"keys": [1.5]}, "cannot be counted"),
    ],
)
def test_keys_of_another_kind_are_refused_and_change_nothing(arguments: dict[str, object], message: str) -> None:
    some = sketch()
    some.update(["x"])
    before = some.to_sensitive_bytes()
    keys = arguments.pop("keys")
    with pytest.raises((InvalidInput, SpecMismatch), match=message):
        some.update(keys, **arguments)
    assert some.to_sensitive_bytes() == before


@pytest.mark.parametrize("keys", [[-7654321, 5], np.array([-7654321]), pa.array([None, -7654321])])
def test_negative_integers_are_refused_without_being_named(keys: object) -> None:
    with pytest.raises(InvalidInput, match="negative") as refusal:
        sketch(key_bits=64).update(keys)
    assert "7654321" not in str(refusal.value)


def test_integers_past_the_stated_bits_are_refused_without_being_named() -> None:
    some = sketch(key_bits=20)
    some.update([2**20 - 1])
    with pytest.raises(InvalidInput, match="20 bits") as refusal:
        some.update([2**20 + 4321])
    assert str(2**20 + 4321) not in str(refusal.value)
    sketch(key_bits=64).update([2**64 - 1])


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 4}, {"rows": 0}, {"rows": True}, {"width": 1}, {"seed": -1}, {"unit": None}, {"grid": 0},
        {"key_bytes": None}, {"key_bytes": 0}, {"key_bytes": 65}, {"key_bytes": 2.0}, {"key_bits": 7},
        {"key_bits": 65}, {"rows": 1023, "width": 2**21},
    ],
)  # fmt: skip
def test_bad_shapes_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        sketch(**changes)


def test_integers_or_text_but_not_both() -> None:
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
    for bits in (8, 12, 16, 20):
        small = {2**bits - 1: 5000, 0: 4000, 3: 3000, 100: 2}
        assert released(small, key_bits=bits).top(threshold=1000).key == list(small)[:-1]
    for size in (1, 2, 3):
        assert released({"b": 5000, "": 3000, "a": 4}, key_bytes=size).top(threshold=1000).key == ["b", ""]


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


@pytest.mark.parametrize("space", [{"key_bits": 64}, {"key_bytes": 12}])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_noise_alone_is_never_listed(space: dict[str, int], delta: float) -> None:
    """At the lowest threshold about one noise-only release in a thousand lists a key; the noise is seeded."""
    private = released({}, delta=delta, **space)
    assert len(private.top()) == len(private.top(5, threshold=1)) == 0


def test_a_threshold_below_the_lowest_acts_as_the_lowest() -> None:
    private = released({"a": 2000, "b": 20})
    assert private.top(threshold=1).key == ["a"]
    assert 20 < private.lowest_threshold < 1000
    assert private.facts()["lowest_threshold"] == private.lowest_threshold


def test_the_frontier_keeps_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {i << 40: 1000 * (9 - i) for i in range(8)}
    private = released(counts, key_bits=64)
    monkeypatch.setattr("dpsketch.sketches.heavy.search.FRONTIER", 3)
    assert private.top().key == list(counts)[:3]


def test_keys_with_a_common_prefix_are_all_found() -> None:
    counts = {7 << 32 | i: 2000 + 100 * i for i in range(40)}
    found = released(counts, key_bits=64, rows=7, width=1024).top(threshold=1000)
    assert sorted(found.key) == sorted(counts)


def test_queries_of_the_last_level() -> None:
    private = released({"a": 900, "b": 500})
    for answer in (private.estimate(["a", "zz"]), private.decode(["a", "zz"])):
        assert answer.value == pytest.approx([900, 0], abs=90)
    assert np.array_equal(private.estimate(["a"]).value, private.leaf.estimate(["a"]).value)
    assert private.estimate(["a"], estimator="median").value == pytest.approx([900], abs=90)
    with pytest.raises(InvalidInput, match="null"):
        private.estimate(["a", None])
    with pytest.raises(SpecMismatch):
        private.estimate([1])
    with pytest.raises(InvalidInput, match="negative"):
        released({1: 5}, key_bits=64).estimate([-1])


def test_weights_on_a_grid() -> None:
    some = sketch(unit=dps.per_record(max_weight=2), grid=0.5)
    some.update(["a"] * 4000 + ["b"] * 3000, weights=[1.5] * 4000 + [0.5] * 3000)
    with seeded_noise_for_tests_only(1):
        private = some.release(epsilon=1, delta=1e-6)
    found = private.top(threshold=1000)
    assert found.key == ["a", "b"]
    assert found.value == pytest.approx([6000, 1500], abs=200)
    assert private.all_records().value == pytest.approx(7500, abs=200)


def test_the_guarantee_and_the_cost_are_stated_once() -> None:
    private = sketch().release(epsilon=1, delta=1e-6)
    assert "ε = 1, δ = 1e-06, for each record added or removed" in str(private.guarantee)
    assert "prefix tree of 5 levels" in private.guarantee.mechanism
    assert repr(private).startswith("<PrivateHeavyHitters 4 tables of 5×256")
    (cost,) = private.guarantee.costs
    assert isinstance(cost, GaussianCost)
    (pure,) = sketch().release(epsilon=1, delta=0).guarantee.costs
    assert isinstance(pure, PureCost)
    assert 1 - 1e-9 < pure.epsilon <= 1
    assert "ρ = 0.5" in str(sketch().release(rho=0.5).guarantee)
    assert str(released({}).guarantee).startswith("NOT PRIVATE")


def test_memory_preview_and_plot(tmp_path) -> None:
    spec = dps.HeavyHitters(unit=dps.per_record(), key_bits=64).spec
    assert (spec.rows, spec.width, spec.sketched) == (7, 4096, 6)
    assert spec.memory == 8 * (1 + 65536 + 6 * 7 * 4096)
    preview = spec.preview(epsilon=1, delta=1e-6)
    assert preview.noise_scale == pytest.approx(4.2247 * np.sqrt(7 * 2), rel=1e-3)
    assert preview.guarantee.epsilon == 1
    released({"a": 900, "b": 500}).plot(n=2).savefig(tmp_path / "top.png")
    released({}).plot().savefig(tmp_path / "none.png")
    assert (tmp_path / "top.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "guess",
    [
        {}, {"records": 100, "keys": 5}, {"records": 100, "keys": 5, "skew": 1, "counts": [1]}, {"counts": [-1]},
        {"counts": [[1]]}, {"records": -1, "keys": 5, "skew": 1}, {"records": 1, "keys": 0, "skew": 1},
    ],
)  # fmt: skip
def test_guesses_at_the_data_are_checked(guess: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        sketch().spec.predict(threshold=100, epsilon=1, delta=1e-6, **guess)


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
