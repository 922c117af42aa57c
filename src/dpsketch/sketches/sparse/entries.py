"""Exact values of the keys that are present, in sorted arrays."""

from __future__ import annotations

import numpy as np

from dpsketch.arrays import Integers, Words

__all__ = ["Entries"]


# Batches wait until together they are as long as what is there: many small ones then cost n log n in all.
_LEAST_WAITING = 1 << 16


class Entries:
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
        return "<Entries; sensitive, content not shown>"

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
