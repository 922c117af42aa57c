"""Sparse histograms through their public names: what goes in, what is refused, what comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput, SpecMismatch
from dpsketch.hashing import fingerprint
from dpsketch.sketches.sparse import SparseHistogram, SparseHistogramSpec


def histogram(**changes: object) -> SparseHistogram:
    return SparseHistogram(**{"unit": dps.per_record(), "expected_keys": 200, "seed": 7, **changes})


def content(some: SparseHistogram) -> dict[int, int]:
    """The exact values, by way of the sensitive bytes."""
    arrays = files.decode(some.to_sensitive_bytes(), allow_sensitive=True).arrays
    return dict(zip(arrays["positions"].tolist(), arrays["units"].tolist(), strict=True))


def test_integer_keys_are_their_own_places() -> None:
    some = histogram(domain=1000)
    some.update(np.array([999, 0, 7, 7], np.uint16))
    assert content(some) == {0: 1, 7: 2, 999: 1}
    wide = histogram()
    wide.update([-1, 2**63, 5])
    assert content(wide) == {5: 1, 2**63: 1, 2**64 - 1: 1}


def test_text_keys_are_scaled_into_the_domain() -> None:
    some = histogram(domain=2**41 + 9)
    some.update(["x", "y", "x"])
    places = [int(f) * (2**41 + 9) >> 64 for f in fingerprint(["x", "y"]).fingerprints]
    assert content(some) == dict(sorted(zip(places, [2, 1], strict=True)))


def test_counts_and_weights() -> None:
    unit = dps.per_record(max_weight=3)
    by_count, by_weight, on_grid = (histogram(unit=unit, grid=grid) for grid in (1, 1, 0.25))
    by_count.update([1, 2, 3], counts=[2, 3, 0])
    by_weight.update([1, 2, 3], weights=[2, 1000, 0])
    assert content(by_count) == content(by_weight) == {1: 2, 2: 3}
    on_grid.update([1, 1, 2], weights=[0.25, 0.6, 1e9])
    assert content(on_grid) == {1: 3, 2: 12}
    on_grid.update([1], weights=[0.5], counts=[100])
    assert content(on_grid) == {1: 203, 2: 12}


def test_keys_outside_the_domain_are_refused_and_change_nothing() -> None:
    some = histogram(domain=10**6)
    some.update([5])
    for keys in (["a"], [987654321], [-1]):
        with pytest.raises((InvalidInput, SpecMismatch)) as refusal:
            some.update([5, *keys] if keys != ["a"] else keys)
        assert "987654321" not in str(refusal.value)
    assert content(some) == {5: 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"domain": 1}, {"domain": 2**64 + 1}, {"domain": 2.0**32}, {"max_value": float("nan")}, {"max_value": "9"},
        {"expected_keys": 0}, {"collisions": 0.9}, {"threshold_share": 1}, {"alpha": 0}, {"alpha": 2.5},
        {"key_type": "text", "domain": 2**32}, {"expected_keys": 2**28, "collisions": 0.01},
    ],
)  # fmt: skip
def test_bad_specs_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        histogram(**changes)


def test_text_needs_a_large_domain() -> None:
    some = histogram(domain=2**32)
    with pytest.raises(InvalidInput, match=r"2\*\*40"):
        some.update(["a"])
    some.update([1])
    assert content(some) == {1: 1}


def test_rho_is_refused_with_the_epsilon_that_stays_within_it() -> None:
    with pytest.raises(InvalidInput, match=r"epsilon=0\.7071 with delta=0"):
        histogram().release(rho=0.25)
    assert histogram().release(epsilon=0.7071, delta=0).guarantee.epsilon ** 2 / 2 <= 0.25


def test_tables_that_are_too_large_are_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidInput, match="Leave max_value out"):
        histogram(max_value=10**6).release(epsilon=1, delta=0)
    with pytest.raises(InvalidInput, match="coarser grid"):
        histogram(unit=dps.per_user(1000, max_weight=10**6), max_value=10**6).release(epsilon=0.001, delta=0)


def forged(document: files.Document, header: dict[str, object] | None = None, **arrays: object) -> files.Document:
    return files.Document(
        document.kind, document.sensitive, {**document.header, **(header or {})}, {**document.arrays, **arrays}
    )


def test_forged_partials_are_refused() -> None:
    some = histogram(domain=1000)
    some.update([1, 2, 3])
    document = files.decode(some.to_sensitive_bytes(), allow_sensitive=True)
    for arrays in (
        {"positions": np.array([1, 2, 1000], np.uint64)},
        {"positions": np.array([1, 3, 2], np.uint64)},
        {"positions": np.array([1, 1, 2], np.uint64)},
        {"units": np.array([1, 0, 1])},
        {"units": np.array([1, -4, 1])},
        {"units": np.array([2**62, 2**62, 2**62])},
    ):
        with pytest.raises(FileRefused):
            SparseHistogram.from_document(forged(document, **arrays))


FORGED_LAWS: dict[str, Callable[[dict[str, Any]], object]] = {
    "too many columns": lambda law: law["projection"].update(top=2**60),
    "a larger scale": lambda law: law["projection"].update(scale=2 * law["projection"]["scale"]),
    "too large a scale": lambda law: law["projection"].update(scale="1180591620717411303424"),
    "half a word": lambda law: law["projection"].update(rows=63),
    "fewer flips": lambda law: law["projection"].update(alpha=3),
    "a cutoff beyond the columns": lambda law: law["survival"].update(cutoff=2**59),
    "endless noise": lambda law: law["survival"]["noise"].update(epsilon=1e-9),
    "less noise": lambda law: law["survival"]["noise"].update(epsilon=9.0),
    "a lower cutoff": lambda law: law["survival"].update(rule="stability", cutoff=2),
    "absent keys without noise": lambda law: law["survival"].update(rule="stability"),
    "another domain": lambda law: law["table"].update(shape=[2000]),
    "no threshold part": lambda law: law.update(survival=None),
}


@pytest.mark.parametrize("forgery", FORGED_LAWS)
def test_a_forged_law_is_refused(forgery: str) -> None:
    some = histogram(domain=1000)
    document = some.release(epsilon=1, delta=0).to_document()
    header = json.loads(json.dumps(document.header))
    FORGED_LAWS[forgery](header["receipts"][0]["laws"][0])
    with pytest.raises(FileRefused):
        dps.load(files.encode(replace(document, header=header)))


def test_forged_arrays_are_refused() -> None:
    some = histogram(domain=1000)
    some.update([1, 2], counts=[500, 700])
    document = some.release(epsilon=1, delta=0).to_document()
    bits = document.arrays["entries__bits"]
    for arrays in (
        {"bits": bits[:-1]},
        {"positions": np.array([1, 1000], np.uint64), "values": np.array([500, 500])},
        {"positions": np.array([2, 1], np.uint64), "values": np.array([500, 500])},
        {"positions": np.array([1], np.uint64), "values": np.array([1])},
    ):
        named = {f"entries__{name}": array for name, array in arrays.items()}
        with pytest.raises(FileRefused):
            dps.load(files.encode(forged(document, **named)))


def test_queries_are_checked() -> None:
    private = histogram(key_type="int", domain=100).release(epsilon=1, delta=0)
    with pytest.raises(InvalidInput, match="estimator"):
        private.estimate([1], estimator="robust")
    with pytest.raises(InvalidInput, match="domain"):
        private.estimate([100])
    with pytest.raises(SpecMismatch):
        private.estimate(["a"])


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_large_values_survive_and_are_listed(delta: float, seeded: None) -> None:
    some = histogram(domain=2**40, key_type="int")
    some.update([7, 8, 9], counts=[5000, 300, 3])
    private = some.release(epsilon=1, delta=delta)
    listed = private.survivors()
    assert listed.key[:2] == [7, 8]
    assert 9 not in listed.key
    assert np.all(np.diff(listed.value) <= 0)
    assert private.top(1).key == [7]
    assert private.top(2, candidates=[9, 8, 8, 12345]).key[0] == 8
    assert len(private.top(5, candidates=[9, 8, 8, 12345])) == 3
    one = private.estimate([7])
    assert one.low[0] <= 5000 <= one.high[0]
    assert listed.low[0] < one.low[0]
    assert (listed.high - listed.low)[0] > (one.high - one.low)[0]
    for estimator in ("mean", "median", "walk"):
        found = private.estimate([7, 8, 9, 10], estimator=estimator)
        assert np.all((found.low <= found.value) & (found.value <= found.high))


def test_text_survivors_are_named_by_candidates(seeded: None) -> None:
    some = histogram()
    some.update(["a", "b"], counts=[5000, 2])
    private = some.release(epsilon=1, delta=0)
    for listing in (private.survivors, lambda: private.top(3)):
        with pytest.raises(InvalidInput, match="hashes"):
            listing()
    assert private.survivors(candidates=["b", "a", "c"]).key == ["a"]
    assert private.top(1, candidates=["b", "a", "c"]).key == ["a"]


def test_with_a_bound_on_values_there_is_no_threshold_part(seeded: None) -> None:
    some = histogram(max_value=50)
    some.update([1, 2], counts=[40, 10**9])
    private = some.release(epsilon=2, delta=1e-6)
    assert private.law.survival is None
    assert private.guarantee.delta == 0
    assert len(private.kept.positions) == 0
    for listing in (private.survivors, lambda: private.top(3), lambda: private.survivors(candidates=[1])):
        with pytest.raises(InvalidInput, match="no threshold part"):
            listing()
    assert private.estimate([2]).high[0] <= 50
    assert private.estimate([2], estimator="walk").value[0] == pytest.approx(50, abs=15)


def test_a_users_text_keys_that_meet_in_the_domain_are_clipped_together() -> None:
    """Two keys with one place would give it twice the bound, which the stability rule's δ does not allow."""
    words = pa.array(np.arange(4_000_000)).cast(pa.string())  # among so many two of 2⁴⁰ places meet
    spec = SparseHistogramSpec(dps.per_user(2, max_weight=3), domain=2**40, key_type="text")
    places = spec.positions(fingerprint(words).fingerprints, "text")
    order = np.argsort(places)
    twin = np.flatnonzero(places[order][1:] == places[order][:-1])[0]
    pair = [words[int(order[twin])].as_py(), words[int(order[twin + 1])].as_py()]
    some = SparseHistogram.from_spec(spec)
    some.update(pair * 3 + pair, users=["u"] * 6 + ["v"] * 2)
    assert list(content(some).values()) == [3 + 2]


def test_facts_say_what_the_release_is() -> None:
    some = histogram(domain=2**32)
    some.update(np.arange(150), counts=np.full(150, 1000))
    private = some.release(epsilon=1, delta=0)
    facts = private.facts()
    assert len(private.plot(candidates=[1, 2, 3], n=2).axes[0].patches) == 2
    assert facts["cutoff"] == 87
    assert facts["survivors"] >= 150
    assert facts["false_survivors_expected"] == pytest.approx(0.85, abs=0.15)
    assert "cutoff" not in histogram(max_value=30).release(epsilon=1, delta=0).facts()
