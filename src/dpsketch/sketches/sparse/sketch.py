"""The sensitive sparse histogram: exact values come in, one release goes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from dpsketch import files
from dpsketch.arrays import Integers, Words
from dpsketch.errors import FileRefused
from dpsketch.hashing import KeyType
from dpsketch.laws.sparse import are_entries
from dpsketch.privacy import Unit
from dpsketch.sketches.sketch import Entries, Sketch
from dpsketch.sketches.sparse.private import PrivateSparseHistogram
from dpsketch.sketches.sparse.spec import DEFAULT_SEED, LARGEST_DOMAIN, SparseHistogramSpec
from dpsketch.sketches.weights import COUNTER_LIMIT

__all__ = ["SparseHistogram"]

# Batches wait until together they are as long as what is there: many small ones then cost n log n in all.
_LEAST_WAITING = 1 << 16


class SparseEntries:
    """Positions in the domain, each once and in increasing order, with a value of at least 1. Sensitive."""

    def __init__(self) -> None:
        # What is in order, and the batches that wait, in one tuple: whoever reads while it is being settled, or after
        # settling was interrupted, finds each batch in one place only.
        self._held: tuple[Words, Integers, tuple[tuple[Words, Integers], ...]] = (
            np.empty(0, np.uint64),
            np.empty(0, np.int64),
            (),
        )

    def __repr__(self) -> str:
        return "<SparseEntries; sensitive, content not shown>"

    def add(self, positions: Words, units: Integers | int) -> None:
        """Add values; the caller has made sure that no sum passes 63 bits."""
        if isinstance(units, int):
            distinct, counts = np.unique(positions, return_counts=True)
            part = (distinct, units * counts.astype(np.int64))
        else:
            part = _summed(positions, units)
        self._held = (*self._held[:2], (*self._held[2], part))
        if sum(len(each) for each, _ in self._held[2]) > max(_LEAST_WAITING, len(self._held[0])):
            self._settle()

    def arrays(self) -> tuple[Words, Integers]:
        """Return the positions and their values."""
        self._settle()
        return self._held[:2]

    def _settle(self) -> None:
        positions, units, waiting = self._held
        if waiting:
            parts = [(positions, units), *waiting]
            settled = _summed(np.concatenate([each for each, _ in parts]), np.concatenate([each for _, each in parts]))
            self._held = (*settled, ())


def _summed(positions: Words, units: Integers) -> tuple[Words, Integers]:
    """Sort by position, add up what belongs to one, and leave out zeros: a key of value 0 is absent."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(ordered)), np.bool_), ordered[1:] != ordered[:-1]]))
    sums = np.add.reduceat(units[order], starts) if len(starts) else np.empty(0, np.int64)
    present = sums > 0
    return ordered[starts][present], sums[present]


class SparseHistogram(Sketch[SparseHistogramSpec, PrivateSparseHistogram]):
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
    The ALP part costs k·g(w·ε'), the threshold part its share (see :mod:`~dpsketch.laws.alp` and
    :mod:`~dpsketch.laws.survivors`). δ = 0 is pure, also for keys that nobody has; with δ > 0 the threshold
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
    spec_type: ClassVar[Any] = SparseHistogramSpec
    release_type: ClassVar[Any] = PrivateSparseHistogram

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
        super()._start(spec)
        self._entries = SparseEntries()

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        spec = replace(self._spec, key_type=entries.key_type)  # refuses text in a domain that is too small for it
        positions = spec.positions(entries.prints, entries.key_type)
        if entries.starts is None:
            return partial(self._entries.add, positions, entries.added)
        together = entries.key_type == "text" and self._spec.domain != LARGEST_DOMAIN
        bounded = (positions, entries.amounts)
        if together:
            bounded = _clipped_together(*bounded, entries.starts, self._spec.weight_grid.max_units)
        return partial(self._entries.add, *bounded)

    def _absorb(self, other: Self) -> None:
        self._entries.add(*other._entries.arrays())

    @property
    def _published(self) -> SparseHistogramSpec:
        return self._spec.published

    def _exact(self) -> tuple[Words, Integers]:
        """Return the positions and their values. Sensitive."""
        return self._entries.arrays()

    def _stored_arrays(self) -> dict[str, files.Array]:
        positions, units = self._entries.arrays()
        return {"positions": positions, "units": units}

    def _restore(self, document: files.Document) -> None:
        positions, units = document.arrays["positions"], document.arrays["units"]
        good = are_entries(positions, units, self._spec.domain, 1)
        if not good or (mass := sum(np.asarray(units).tolist())) > COUNTER_LIMIT:
            raise FileRefused("the file's entries are not those of a sparse histogram.")
        self._entries.add(np.asarray(positions), np.asarray(units))
        self._mass = max(self._mass, mass)


def _clipped_together(positions: Words, units: Integers, starts: Integers, largest: int) -> tuple[Words, Integers]:
    """Return the places of bounded keys, in which two text keys of one user may meet: they are clipped together."""
    user = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((positions, user))
    positions, user, units = positions[order], user[order], units[order]
    new = (positions[1:] != positions[:-1]) | (user[1:] != user[:-1])
    first = np.flatnonzero(np.concatenate([np.ones(min(1, len(user)), np.bool_), new]))
    sums = np.add.reduceat(units, first) if len(first) else units
    return positions[first], np.minimum(sums, largest)
