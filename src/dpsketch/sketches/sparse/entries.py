"""Exact values of the keys that are present, in sorted arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Entries"]

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

# Batches wait until together they are as long as what is there: many small ones then cost n log n in all.
_LEAST_WAITING = 1 << 16


class Entries:
    """Positions in the domain, each once and in increasing order, with a value of at least 1. Sensitive."""

    def __init__(self) -> None:
        self._positions: Words = np.empty(0, np.uint64)
        self._units: Integers = np.empty(0, np.int64)
        self._waiting: list[tuple[Words, Integers]] = []

    def __repr__(self) -> str:
        return "<Entries; sensitive, content not shown>"

    def add(self, positions: Words, units: Integers | int) -> None:
        """Add values; the caller has made sure that no sum passes 63 bits."""
        if isinstance(units, int):
            distinct, counts = np.unique(positions, return_counts=True)
            self._waiting.append((distinct, units * counts.astype(np.int64)))
        else:
            self._waiting.append(_summed(positions, units))
        if sum(len(part) for part, _ in self._waiting) > max(_LEAST_WAITING, len(self._positions)):
            self._settle()

    def arrays(self) -> tuple[Words, Integers]:
        """Return the positions and their values."""
        self._settle()
        return self._positions, self._units

    def _settle(self) -> None:
        if self._waiting:
            parts = [(self._positions, self._units), *self._waiting]
            self._positions, self._units = _summed(
                np.concatenate([positions for positions, _ in parts]), np.concatenate([units for _, units in parts])
            )
            self._waiting = []


def _summed(positions: Words, units: Integers) -> tuple[Words, Integers]:
    """Sort by position, add up what belongs to one, and leave out zeros: a key of value 0 is absent."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(ordered)), np.bool_), ordered[1:] != ordered[:-1]]))
    sums = np.add.reduceat(units[order], starts) if len(starts) else np.empty(0, np.int64)
    present = sums > 0
    return ordered[starts][present], sums[present]
