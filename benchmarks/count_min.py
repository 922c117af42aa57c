"""Private sketches of the literature, for comparison with CountSketch: not for use.

Count-Min keeps the same table without signs and takes the smallest of a key's counters. Without noise it never
underestimates; with noise the minimum is biased downwards by noise and upwards by collisions, and its spread grows with
the rows. Count-Mean is CountSketch with the mean of the rows, ``estimate(…, estimator="mean")``: it is unbiased, but
one heavy key that shares a cell moves it.

References
----------
Cormode and Muthukrishnan (2005), Count-Min. Melis, Danezis and De Cristofaro (2016), with Laplace noise. Pagh and
Thorup (2022), Section 3.4, for the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch import accounting
from dpsketch._compiled import countsketch as kernels
from dpsketch.core.account import Account
from dpsketch.core.drawn import DELTA_FOR_RHO
from dpsketch.core.permit import Permit
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType, fingerprint, row_keys
from dpsketch.noise import Noise
from dpsketch.privacy import Budget, Guarantee, Unit, per_record
from dpsketch.processes import OneProcess
from dpsketch.sketches.countsketch.sketch import CountSketch
from dpsketch.sketches.countsketch.spec import COUNTERS, CountSketchSpec
from dpsketch.sketches.specs import DEFAULT_SEED, fingerprint_of
from dpsketch.sketches.weights import checked_total, weighed

__all__ = ["CountMinForComparison", "PrivateCountMinForComparison", "errors_on_same_data"]

_CHUNK = 1 << 16


class CountMinForComparison(OneProcess):
    """Count-Min over records, to be compared with CountSketch of the same size and budget.

    Parameters
    ----------
    rows, width, unit, seed, key_type
        As for :class:`~dpsketch.CountSketch`; the unit must be a record.
    """

    def __init__(
        self, *, rows: int, width: int, unit: Unit, seed: int = DEFAULT_SEED, key_type: KeyType | None = None
    ) -> None:
        if unit.level != "record":
            raise InvalidInput("Count-Min is here for comparison, and over records only: unit=dps.per_record().")
        self._spec = CountSketchSpec(rows, width, unit, seed, 1, key_type)
        self._table = np.zeros((rows, width), np.int64)
        self._mass = 0

    @property
    def spec(self) -> CountSketchSpec:
        """The public spec; it is that of a CountSketch of the same size."""
        return self._spec

    def __repr__(self) -> str:
        spec = self._spec
        return f"<CountMinForComparison {spec.rows}×{spec.width}, spec {fingerprint_of(spec)}, sensitive>"

    def update(self, keys: Any, *, counts: Any = None) -> None:
        """Add records, as :meth:`dpsketch.CountSketch.update` does at record level."""
        batch = fingerprint(keys, self._spec.key_type)
        added = weighed(self._spec.weight_grid, batch, None, counts).added
        units = np.broadcast_to(np.asarray(added, np.int64), batch.fingerprints.shape)
        mass = checked_total(self._mass, units, 1, len(units))
        rows = np.arange(self._spec.rows)
        for start in range(0, len(units), _CHUNK):
            some = slice(start, start + _CHUNK)
            buckets = _buckets(self._spec, batch.fingerprints[some])
            np.add.at(self._table, (rows, buckets), units[some, np.newaxis])
        self._mass = mass

    def release(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> PrivateCountMinForComparison:
        """Add noise, and return what may be published.

        Privacy
        -------
        A record adds to one cell of each row, as in a CountSketch: its sensitivities hold, and the noise is the same
        for the same budget: discrete Laplace for δ = 0 (Melis et al.), else rounded Gaussian. Replacing a record moves
        different cells or none, so the CountSketch's bound, for opposite signs in one cell, is more than enough.
        """
        budget = Budget(epsilon, delta, rho)
        permit = Permit.pay(self._spec, self._spec.laws(budget), budget, Account(), note="Count-Min, for comparison")
        drawn = permit.draw_all({COUNTERS: self._table})
        table, noise = drawn.table(COUNTERS), drawn.noise(COUNTERS)
        return PrivateCountMinForComparison(self._spec, table, noise, drawn.guarantee)


@dataclass(frozen=True, slots=True, eq=False)
class PrivateCountMinForComparison:
    """A released Count-Min.

    Attributes
    ----------
    spec : CountSketchSpec
        The public spec.
    table : numpy.ndarray
        The released counters.
    noise : Noise
        The noise in each counter.
    guarantee : Guarantee
        What was promised.
    """

    spec: CountSketchSpec
    table: npt.NDArray[np.int64]
    noise: Noise
    guarantee: Guarantee

    def __post_init__(self) -> None:
        self.table.flags.writeable = False

    def estimate(self, keys: Any) -> npt.NDArray[np.float64]:
        """Return the smallest of each key's counters."""
        batch = fingerprint(keys, self.spec.key_type)
        if batch.skipped:
            raise InvalidInput("a null is not a key that can be looked up.")
        smallest = np.empty(len(batch.fingerprints))
        rows = np.arange(self.spec.rows)
        for start in range(0, len(smallest), _CHUNK):
            some = slice(start, start + _CHUNK)
            smallest[some] = self.table[rows, _buckets(self.spec, batch.fingerprints[some])].min(axis=1)
        return smallest


def _buckets(spec: CountSketchSpec, prints: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    buckets, _ = kernels.cells(prints, row_keys(spec.seed, spec.rows), spec.width)
    return buckets


def errors_on_same_data(
    counts: npt.NDArray[np.int64], *, rows: int, width: int, scale: float, seed: int = DEFAULT_SEED
) -> dict[str, npt.NDArray[np.float64]]:
    """Return each sketch's errors over all keys, for the same data, size and budget.

    Parameters
    ----------
    counts : numpy.ndarray
        The true count of each key; the keys are their places.
    rows, width, seed : int
        The same for all.
    scale : float
        Standard deviation that Gaussian noise would have on one counter alone: the budget is ρ = 1/(2·scale²). Laplace
        noise has the pure ε that this ρ stands for at δ = 10⁻⁶.
    """
    keys = np.arange(len(counts))
    rho = 1 / (2 * scale**2)
    signed = CountSketch(rows=rows, width=width, unit=per_record(), seed=seed)
    unsigned = CountMinForComparison(rows=rows, width=width, unit=per_record(), seed=seed)
    signed.update(keys, counts=counts)
    unsigned.update(keys, counts=counts)
    laplace = unsigned.release(epsilon=accounting.gaussian_epsilon(1 / scale, DELTA_FOR_RHO), delta=0)
    gaussian = unsigned.release(rho=rho)
    private = signed.release(rho=rho)
    return {
        "Count-Min, Laplace": laplace.estimate(keys) - counts,
        "Count-Min, Gaussian": gaussian.estimate(keys) - counts,
        "Count-Mean": private.estimate(keys, estimator="mean").value - counts,
        "CountSketch, median": private.estimate(keys, estimator="median").value - counts,
        "CountSketch, robust": private.estimate(keys, estimator="robust").value - counts,
    }
