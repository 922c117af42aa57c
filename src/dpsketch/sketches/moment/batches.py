"""What a batch of records adds to a moment: each key once, with the weight of all its records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.moment import aggregate
from dpsketch.bounding import CountedUsers, bound
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyBatch, KeyType
from dpsketch.sketches.moment.spec import MomentSpec
from dpsketch.sketches.weights import checked_total, real_numbers, whole_counts

__all__ = ["Prepared", "of_records", "of_users"]


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """A batch that was checked, bounded and summed by key, and what the sketch is to note with it. Sensitive.

    ``key_type`` may have been read off values; ``declared`` is what a column's own type says.
    """

    key_type: KeyType | None
    declared: KeyType | None
    fingerprints: npt.NDArray[np.uint64]
    weights: npt.NDArray[np.float64]
    total: int
    skipped: int
    counted: CountedUsers


def of_records(spec: MomentSpec, batch: KeyBatch, weights: Any, counts: Any, counted: CountedUsers) -> Prepared:
    """Check the weights of records, and sum those of equal keys."""
    n = len(batch.fingerprints) + batch.skipped
    units = _units(spec, weights, n)
    multiples = np.ones(1, np.int64) if counts is None else whole_counts(counts, n)
    if batch.kept is not None:
        units = units if len(units) == 1 else units[batch.kept]
        multiples = multiples if len(multiples) == 1 else multiples[batch.kept]
    kept = len(batch.fingerprints)
    checked_total(0, np.abs(units), multiples, kept)
    amounts = np.broadcast_to(units * multiples, (kept,))
    if spec.stream == "insert":
        added = int(np.sum(np.broadcast_to(np.where(units > 0, multiples, 0), (kept,)), dtype=np.int64))
    else:
        added = int(np.sum(amounts, dtype=np.int64))
    summed = _summed(spec, batch.fingerprints, units if weights is None and counts is None else amounts)
    return Prepared(batch.key_type, batch.declared, *summed, added, batch.skipped, counted)


def of_users(
    spec: MomentSpec, batch: KeyBatch, users: Any, weights: Any, counted: CountedUsers, *, disjoint_users: bool
) -> Prepared:
    """Bound users, and sum what is left of equal keys."""
    units = _units(spec, weights, len(batch.fingerprints) + batch.skipped)
    bounded = bound(
        users,
        batch,
        int(units[0]) if weights is None else units,
        max_keys=spec.unit.max_keys,
        max_units=spec.weight_grid.max_units,
        seed=spec.seed,
    )
    counted = counted.extended(bounded, disjoint_users=disjoint_users)
    summed = _summed(spec, bounded.fingerprints, bounded.units)
    return Prepared(batch.key_type, batch.declared, *summed, len(bounded.units), bounded.skipped, counted)


def _units(spec: MomentSpec, weights: Any, n: int) -> npt.NDArray[np.int64]:
    """Return the records' weights in grid units, clipped; one for all where none are given."""
    grid = spec.weight_grid
    if weights is None:
        return np.array([grid.one], np.int64)
    values = real_numbers("weights", weights, n)
    if spec.stream == "turnstile":
        return np.sign(values).astype(np.int64) * grid.units(np.abs(values), n)
    units = grid.units(values, n)
    if spec.public_total and np.any(units < grid.one):
        raise InvalidInput("public_total counts records of weight 1 or more, and a smaller weight was given.")
    return units


def _summed(
    spec: MomentSpec, fingerprints: npt.NDArray[np.uint64], units: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
    """Sum the units of equal keys; return each key once, with its weight."""
    distinct, totals = np.empty_like(fingerprints), np.empty(len(fingerprints))
    count = aggregate(fingerprints, np.ascontiguousarray(units, np.float64), distinct, totals)
    return distinct[:count], totals[:count] * spec.weight_grid.step
