"""Sparse histograms, by enumeration of their bits, and the distinct count."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpsketch.audit.core import Distinguisher
from dpsketch.audit.distinguishers import linear_discriminant, loudest, loudest_pair
from dpsketch.audit.mechanism import Budget, Claim, Mechanism, additive, repeated
from dpsketch.privacy import per_record, per_user
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.sparse import SparseHistogram

__all__ = ["distinct", "distinct_mergeable", "projection", "threshold"]

_DOMAIN, _KEY = 8, 5
_LEARNED: dict[str, Distinguisher] = {"threshold": loudest, "pair": loudest_pair, "learned": linear_discriminant}


def _bits(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")


def projection(noise: float = 1.0) -> Mechanism:
    """ALP alone: an entry that goes from 0 to 1, in the released bits."""
    budget = Budget(1.0, 0.0, noise)

    def runs(counts: list[int]) -> Any:
        built = SparseHistogram(unit=per_record(), domain=_DOMAIN, max_value=2, expected_keys=2)
        built.update([1, _KEY], counts=counts)
        return repeated(lambda: _bits(built.release(**budget.spent).table))

    return Mechanism("sparse-alp", "a record added", Claim(1.0), runs([1, 0]), runs([1, 1]), _LEARNED)


def threshold(pair: Literal["small", "large", "alone"], noise: float = 1.0) -> Mechanism:
    """ALP and the threshold part together, each pair of neighbours for the part that it is worst for.

    "small" and "large" are pure: a key that goes from 0 to 1, which ALP shows, and a large one that grows by 1, which
    the threshold part shows. "alone" is the stability threshold: a key that one record alone makes present may survive
    with probability δ. A mutant of it has a cutoff for a larger δ.
    """
    delta = 0.05 if pair == "alone" else 0.0
    spent = delta / noise**3 if delta else 0.0
    budget = Budget(1.0, 0.0, noise if pair != "alone" else 1.0)
    base = 60 if pair == "large" else 0

    def runs(count: int) -> Any:
        share = 0.9 if pair == "large" else 0.05 if pair == "small" else 0.5
        built = SparseHistogram(unit=per_record(), domain=_DOMAIN, expected_keys=2, threshold_share=share)
        built.update([1, _KEY], counts=[1, count])

        def run() -> npt.NDArray[np.float64]:
            release = built.release(epsilon=budget.spent["epsilon"], delta=spent)
            kept = np.zeros(_DOMAIN)
            kept[release.kept.positions.astype(np.intp)] = release.kept.values
            return np.concatenate([_bits(release.table[:2]), kept, kept > 0])

        return repeated(run)

    words = {"small": "a record added to a key nobody has", "large": "a record added to a frequent key"}
    words["alone"] = words["small"]
    return Mechanism(f"sparse-{pair}", words[pair], Claim(1.0, delta), runs(base), runs(base + 1), _LEARNED)


def distinct(noise: float = 1.0) -> Mechanism:
    """Release the number of ones, with a user of three new keys added."""

    def sketch(keys: list[int]) -> DistinctSketch:
        built = DistinctSketch(unit=per_user(max_keys=3), buckets=1024)
        built.update([1, *keys], users=["ann", *["mallory"] * len(keys)])
        return built

    sketches = sketch([]), sketch([10, 11, 12])
    words = "a user added, with three keys that nobody else has"
    return additive("distinct", words, sketches, Budget.pure(noise))


def distinct_mergeable(noise: float = 1.0) -> Mechanism:
    """Release the bitmap with flipped bits, with one key added."""
    budget = Budget.pure(noise)

    def runs(keys: list[int]) -> Any:
        built = DistinctSketch(unit=per_record(), buckets=16)
        built.update(keys)
        return repeated(lambda: _bits(built.release_mergeable(epsilon=budget.spent["epsilon"]).bitmap))

    claim = Claim(budget.epsilon)
    return Mechanism("distinct-mergeable", "a key added", claim, runs([1]), runs([1, 12]), _LEARNED)
