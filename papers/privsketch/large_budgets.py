"""The sketch protocols of Figure 7 at budgets up to ε = 128, which the library refuses: a report at e¹²⁸ hides nothing.

The laws are those of the library, drawn from totals: of ``ones`` true bits among ``total``, randomised response leaves
a binomial number. A key's estimate has exactly its law; keys that share cells are drawn independently where the
protocol decodes report by report, which changes no mean over keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .data import Sets

__all__ = ["Sketches", "multi_pcms", "privsketch_sampled", "privsketch_unsampled"]

Bits = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_KEYS = 250  # looked up at a time


@dataclass(frozen=True, eq=False)
class Sketches:
    """Everyone's bit sketch: ``occupied[i, k, m]``, and ``columns[k, x]``, the cell of key x of the domain in row k."""

    occupied: Bits
    columns: Integers

    @classmethod
    def of(cls, sets: Sets, rows: int, width: int, rng: np.random.Generator) -> Sketches:
        """Hash everyone's set by random functions; ``sets.keys`` must be 0, 1, 2 and so on."""
        columns = rng.integers(0, width, (rows, len(sets.keys)))
        occupied = np.zeros((sets.users, rows, width), np.bool_)
        owners = np.repeat(np.arange(sets.users), np.diff(sets.offsets))
        for k in range(rows):
            occupied[owners, k, columns[k, sets.items]] = True
        return cls(occupied, columns)

    def minimum(self, keys: Integers) -> Integers:
        """Count, for each key, the people all of whose cells of it are occupied: n·f̃."""
        counts = np.empty(len(keys), np.int64)
        for start in range(0, len(keys), _KEYS):
            part = slice(start, start + _KEYS)
            held = np.ones((len(self.occupied), len(keys[part])), np.bool_)
            for k, columns in enumerate(self.columns):
                held &= self.occupied[:, k, columns[keys[part]]]
            counts[part] = held.sum(axis=0)
        return counts


def privsketch_unsampled(sketches: Sketches, keys: Integers, epsilon: float, rng: np.random.Generator) -> Floats:
    """Estimate by PrivSketch without sampling: each of K·M bits at ε/(K·M)."""
    users, rows, width = sketches.occupied.shape
    return _respond(sketches.minimum(keys), users, epsilon / (rows * width), rng) / users


def privsketch_sampled(sketches: Sketches, keys: Integers, epsilon: float, rng: np.random.Generator) -> Floats:
    """Estimate by PrivSketch with its missing factor K·M: one bit in K·M at ε."""
    users, rows, width = sketches.occupied.shape
    held, cells = sketches.minimum(keys), rows * width
    ones, zeros = rng.binomial(held, 1 / cells), rng.binomial(users - held, 1 / cells)
    return cells / users * _respond(ones, ones + zeros, epsilon, rng)


def multi_pcms(sketches: Sketches, keys: Integers, epsilon: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Estimate by Multi-PCMS-Mean and by Multi-PCMS-Min from the same reports: a random row, each bit at ε/M."""
    users, rows, width = sketches.occupied.shape
    chosen = rng.integers(0, rows, users)
    reports = np.bincount(chosen, minlength=rows)[:, None]
    ones = np.array([sketches.occupied[chosen == k, k].sum(axis=0) for k in range(rows)])
    cells = _respond(ones, np.broadcast_to(reports, ones.shape), epsilon / width, rng)
    picked = np.take_along_axis(cells, sketches.columns[:, keys], axis=1)
    overall = cells.sum() / (users * width)
    mean = (picked.sum(axis=0) / users - overall) / max(1 - overall, 0.01)
    return mean, (picked / np.maximum(reports, 1)).min(axis=0)


def _respond(ones: Any, total: Any, epsilon: float, rng: np.random.Generator) -> Floats:
    """Send bits through randomised response and return the unbiased estimate of the number of ones."""
    keep = 1 / (1 + np.exp(-epsilon))
    seen = rng.binomial(ones, keep) + rng.binomial(total - ones, 1 - keep)
    return (seen - (1 - keep) * np.asarray(total)) / (2 * keep - 1)
