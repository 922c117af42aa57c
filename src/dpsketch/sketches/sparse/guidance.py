"""What a release's numbers mean, and when another kind of sketch would have served better."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsketch.laws.survivors import Survival
from dpsketch.sketches.sparse.calibration import false_rate, pure, stability
from dpsketch.sketches.sparse.estimators import predicted_error

if TYPE_CHECKING:
    from dpsketch.laws.sparse import SparseLaw
    from dpsketch.privacy import Guarantee
    from dpsketch.sketches.sparse.spec import SparseHistogramSpec

__all__ = ["bits_a_key", "guidance", "plain_threshold"]

# Where the two cross was measured: python -m benchmarks.sparse_errors
_COUNTER_BITS = 32
_MANY_COUNTERS = 40
_FEW_COUNTERS = 10
_FEW_KEYS = 4


def guidance(
    spec: SparseHistogramSpec,
    law: SparseLaw,
    promised: Guarantee,
    collisions: npt.NDArray[np.float64],
    survivors: int,
) -> dict[str, Any]:
    """Return a release's facts, and when it pays, as lines for a reader.

    Parameters
    ----------
    spec, law, promised
        The release's spec, law and guarantee.
    collisions : numpy.ndarray
        Each column's share of bits that some key sets.
    survivors : int
        How many keys the threshold part kept.
    """
    projection, threshold = law.projection, law.survival
    bits = bits_a_key(spec, law)
    bound = math.log2(spec.domain + projection.top)
    facts: dict[str, Any] = {
        "table": f"{projection.columns} columns × {projection.rows:,} bits",
        "bits_a_key": f"{bits:.0f} at {spec.expected_keys:,} keys, {bits / bound:.1f} times log₂(domain + top)",
        "collisions": f"{collisions.mean():.3f} on average, {collisions[0]:.3f} in the first column",
        "keys": _keys(spec, projection.rows, float(collisions[0])),
        "top": spec.grid * projection.top,
        "error": spec.grid * predicted_error(law, float(collisions.mean())),
    }
    if threshold is not None:
        facts["cutoff"] = spec.grid * threshold.cutoff
        facts["survivors"] = survivors
        facts["false_survivors_expected"] = spec.domain * false_rate(threshold) if threshold.rule == "pure" else 0.0
    return facts | {
        "against_threshold": _against_threshold(spec, promised),
        "against_countsketch": _against_counts(bits, spec, promised),
    }


def bits_a_key(spec: SparseHistogramSpec, law: SparseLaw) -> float:
    """Return the table's bits for each key expected."""
    return law.projection.columns * law.projection.rows / spec.expected_keys


def plain_threshold(spec: SparseHistogramSpec, promised: Guarantee) -> Survival:
    """Return the threshold part that would do alone, with the whole budget."""
    (table,) = spec.tables()
    apart = table.between(spec.unit.neighbours)
    if promised.delta:
        return stability(promised.epsilon, promised.delta, apart, table.move)
    return pure(promised.epsilon, apart, spec.domain)


def _keys(spec: SparseHistogramSpec, rows: int, crowded: float) -> str:
    # So many keys, thrown into so many rows, set this share of the first column's bits.
    found = -rows * math.log1p(-min(crowded, 1 - 1 / rows))
    words = f"about {found:,.0f} reach the first column, {spec.expected_keys:,} were expected"
    if found > 1.5 * spec.expected_keys:
        words += "; more keys than expected cost accuracy: state a larger expected_keys="
    return words


def _against_threshold(spec: SparseHistogramSpec, promised: Guarantee) -> str:
    alone = plain_threshold(spec, promised)
    cutoff, scale = spec.grid * alone.cutoff, spec.grid / alone.rate
    return (
        f"a plain threshold with the whole budget would lose every value below about {cutoff:g}, and read larger ones "
        f"to ±{scale:.3g}: better where only those matter, worse for the values below"
    )


def _against_counts(bits: float, spec: SparseHistogramSpec, promised: Guarantee) -> str:
    counters = bits / _COUNTER_BITS
    words = f"in this space a CountSketch would have {counters:.0f} counters a key"
    if counters <= _FEW_COUNTERS:
        words += ": too few, its collisions would cost more than this table's"
    elif counters >= _MANY_COUNTERS and promised.delta == 0:
        words += ": enough for it to be the more accurate one, though it lists no keys"
    else:
        words += ": it would read about as well among light keys, and be far off where heavy ones collide"
    if promised.delta and spec.unit.max_keys > _FEW_KEYS:
        words += ". With δ > 0 its noise grows with the root of max_keys only, this one's with max_keys"
    return words
