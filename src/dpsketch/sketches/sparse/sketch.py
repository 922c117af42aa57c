"""The sensitive sparse histogram: exact values come in, one release goes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from dpsketch import files
from dpsketch.arrays import Integers, Words
from dpsketch.bounding import Bounded
from dpsketch.core.account import Account
from dpsketch.errors import FileRefused
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.base import PlainSketch
from dpsketch.sketches.keyed import WeighedSketch
from dpsketch.sketches.sparse.entries import Entries
from dpsketch.sketches.sparse.mechanism import SURVIVORS, TABLE
from dpsketch.sketches.sparse.private import PrivateSparseHistogram
from dpsketch.sketches.sparse.spec import DEFAULT_SEED, LARGEST_DOMAIN, SparseHistogramSpec
from dpsketch.sketches.sparse.threshold import Survivors
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.sketches.weights import COUNTER_LIMIT, record_amounts

__all__ = ["SparseHistogram"]


class SparseHistogram(WeighedSketch[SparseHistogramSpec], PlainSketch[SparseHistogramSpec, PrivateSparseHistogram]):
    """The sensitive histogram: takes records, merges, and is released once its budget is charged.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``.
    domain : int, optional
        How many keys are possible, at most 2⁶⁴. Integer keys lie in [0, domain); text keys are hashed into it.
    max_value : float, optional
        A bound on every key's value that is known beforehand. All of the budget then goes to the ALP part. Without it,
        values may be of any size, and a quarter of the budget goes to a threshold part that holds the large ones.
    expected_keys : int, optional
        A guess at the number of distinct keys, from public knowledge: it sets the size of the released table. Too small
        a guess costs accuracy, never privacy.
    collisions : float, optional
        The probability of a collision at that many keys; less means a larger table.
    threshold_share : float, optional
        The threshold part's share of ε.
    alpha : int, optional
        The paper's α; 2 flips bits with probability 1/4 exactly.
    seed, grid, key_type : optional
        As for :class:`~dpsketch.CountSketch`.

    Privacy
    -------
    The ALP part costs k·g(w·ε'), the threshold part its share (see :mod:`~dpsketch.sketches.sparse.alp` and
    :mod:`~dpsketch.sketches.sparse.threshold`). δ = 0 is pure, also for keys that nobody has; with δ > 0 the threshold
    part lowers its cutoff to what δ allows. ρ is refused, with the ε that stays within it: neither part gains from it.
    Sizes come from the spec, never from the data.

    Accuracy
    --------
    A value up to the top is read with an error of O(w·k/ε), whatever the other keys' values are; the error of a larger
    one is that of the threshold part's Laplace noise.

    Examples
    --------
    >>> import dpsketch as dps
    >>> histogram = dps.SparseHistogram(unit=dps.per_record(), domain=2**32, max_value=100)
    >>> histogram.update([7, 9], counts=[90, 20])
    >>> private = histogram.release(epsilon=1.0, delta=0)
    >>> bool(private.estimate([7]).value[0] > private.estimate([8]).value[0])
    True
    """

    kind: ClassVar[str] = "sparse"

    def __init__(
        self,
        *,
        unit: Unit,
        domain: int = LARGEST_DOMAIN,
        max_value: float | None = None,
        expected_keys: int = 10_000,
        collisions: float = 0.04,
        threshold_share: float = 0.25,
        alpha: int = 2,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
        key_type: KeyType | None = None,
    ) -> None:
        self._start(
            SparseHistogramSpec(
                unit, domain, max_value, expected_keys, collisions, threshold_share, alpha, seed, grid, key_type
            )
        )
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: SparseHistogramSpec) -> None:
        self._spec = spec
        self._entries = Entries()

    def __repr__(self) -> str:
        return f"<SparseHistogram over {self._spec.domain:,} keys, spec {fingerprint_of(self._spec)}, sensitive>"

    def _update(self, keys: Any, users: Any, weights: Any, counts: Any, disjoint_users: bool) -> None:
        batch = fingerprint(keys, self._key_type)
        spec = replace(self._spec, key_type=batch.key_type)
        if self._protects_users(users, disjoint_users, counts):
            bounded = self._bounded(batch, users, weights)
            positions, units = _bounded_positions(spec, bounded, batch.key_type)
            self._admit_users(bounded, weights, disjoint_users, units)
            self._entries.add(positions, units)
        else:
            amounts = record_amounts(self._spec.weight_grid, batch, weights, counts)
            positions = spec.positions(batch.fingerprints, batch.key_type)
            self._admit_records(batch, amounts, weights, counts)
            self._entries.add(positions, amounts)
        self._note_type(batch.key_type, batch.declared)

    def _absorb(self, other: Self) -> None:
        super()._absorb(other)
        self._entries.add(*other._entries.arrays())

    @property
    def _published(self) -> SparseHistogramSpec:
        return self._spec.published

    def _release(self, budget: Budget, account: Account) -> PrivateSparseHistogram:
        spec = self._published
        mechanism = spec.mechanism(**budget.keywords)
        permit = self._obtain(mechanism.calibration, account)
        positions, units = self._entries.arrays()
        table = permit.draw(TABLE, positions, units)
        if mechanism.threshold is None:
            kept = Survivors(np.empty(0, np.uint64), np.empty(0, np.int64))
        else:
            kept = permit.draw(SURVIVORS, positions, units, spec.domain)
        stated = permit.guarantee(caveat=self._counted.caveat)
        return PrivateSparseHistogram(spec, mechanism, table, kept, guarantee=stated, charge=permit.charge)

    def _to_document(self) -> files.Document:
        positions, units = self._entries.arrays()
        arrays: dict[str, files.Array] = {"positions": positions, "units": units}
        return files.Document("sparse", True, {"spec": self._spec.to_json()}, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        histogram = cls.from_spec(SparseHistogramSpec.from_json(document.header["spec"]))
        positions, units = document.arrays["positions"], document.arrays["units"]
        if not _are_entries(positions, units, histogram._spec.domain):
            raise FileRefused("the file's entries are not those of a sparse histogram.")
        histogram._entries.add(np.asarray(positions), np.asarray(units))
        histogram._mass = int(np.sum(units, dtype=np.int64))
        return histogram


def _bounded_positions(spec: SparseHistogramSpec, bounded: Bounded, key_type: KeyType | None) -> tuple[Words, Integers]:
    """Return the places and units of bounded records, those of a user that meet in the domain clipped together."""
    positions = spec.positions(bounded.fingerprints, key_type)
    if key_type != "text" or spec.domain == LARGEST_DOMAIN:
        return positions, bounded.units
    # Two text keys of one user may share a place, which must not hold more than one key's bound.
    user = np.repeat(np.arange(len(bounded.users)), np.diff(bounded.starts))
    order = np.lexsort((positions, user))
    positions, user, units = positions[order], user[order], bounded.units[order]
    first = np.flatnonzero(
        np.concatenate(
            [np.ones(min(1, len(user)), np.bool_), (positions[1:] != positions[:-1]) | (user[1:] != user[:-1])]
        )
    )
    sums = np.add.reduceat(units, first) if len(first) else units
    return positions[first], np.minimum(sums, spec.weight_grid.max_units)


def _are_entries(positions: Any, units: Any, domain: int) -> bool:
    if not (isinstance(positions, np.ndarray) and isinstance(units, np.ndarray)):
        return False
    if positions.dtype != np.uint64 or units.dtype != np.int64 or positions.ndim != 1 or positions.shape != units.shape:
        return False
    if len(positions) == 0:
        return True
    if np.any(positions[1:] <= positions[:-1]) or int(positions[-1]) >= domain or int(units.min()) < 1:
        return False
    total: int = sum(units.tolist())
    return total <= COUNTER_LIMIT
