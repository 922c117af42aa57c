"""How much the bounds on a contribution cut, which the data holder is told and nobody else."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from dpsketch.bounding.groups import Bounded
from dpsketch.errors import FileRefused

if TYPE_CHECKING:
    from dpsketch.bounding.whole import WeightSteps

__all__ = ["Cut", "cut_by_folding", "cut_of_records", "cut_of_users"]

_HALF = 25  # half of the bits that a weight is counted with


@dataclass(frozen=True, slots=True, repr=False)
class Cut:
    """What bounds left of the records that came. Sensitive: for the data holder's eyes only, and in no release.

    Attributes
    ----------
    records : int
        Records with a key and, where the unit is a user, a user.
    left_out : int
        Those whose key is not among the ``max_keys`` that count of their user.
    too_heavy : int
        Those whose own weight is above ``max_weight``.
    offered, counted : int
        The total weight that came, and that counts, in steps of the grid; 0 where keys have no weight.
    """

    records: int = 0
    left_out: int = 0
    too_heavy: int = 0
    offered: int = 0
    counted: int = 0

    def __repr__(self) -> str:
        return "<Cut; sensitive, content not shown>"

    def __add__(self, other: Cut) -> Cut:
        return Cut(
            self.records + other.records,
            self.left_out + other.left_out,
            self.too_heavy + other.too_heavy,
            self.offered + other.offered,
            self.counted + other.counted,
        )

    @property
    def keys_alone(self) -> Cut:
        """The same without weights, for sketches in which a key counts once."""
        return replace(self, too_heavy=0, offered=0, counted=0)

    def to_json(self) -> list[str]:
        """Return the numbers for a sensitive file; as text, since totals may pass its integers."""
        return [str(number) for number in astuple(self)]

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Rebuild from :meth:`to_json`; a file may have been written by anyone."""
        good = isinstance(value, list) and len(value) == len(astuple(cls()))
        if not (good and all(isinstance(number, str) and number.isascii() and number.isdigit() for number in value)):
            raise FileRefused("the file's tally of what was cut is not one that dpsketch writes.")
        return cls(*map(int, value))


def cut_of_records(
    grid: WeightSteps, n: int, kept: npt.NDArray[Any] | None, weights: Any, counts: Any, counted: int | None = None
) -> Cut:
    """Return what clipping cuts of ``n`` records that were kept, with weights and counts as ``update`` takes them.

    Whoever knows what is counted of them in all says so: nothing is added up again where no weight is too heavy.
    """
    if weights is None and counted is not None:
        return Cut(counted // grid.one, 0, 0, counted, counted)
    times = np.ones(1, np.int64) if counts is None else _kept(np.asarray(counts).astype(np.int64), kept)
    records = n if counts is None else _total(times)
    if weights is None:
        return Cut(records, 0, 0, records * grid.one, records * grid.one)
    values = _kept(np.asarray(weights, np.float64), kept)
    if counted is not None and _units(grid, np.max(values, initial=0, keepdims=True))[0] <= grid.max_units:
        return Cut(records, 0, 0, counted, counted)
    units = _units(grid, values)
    clipped = np.minimum(units, grid.max_units)
    heavy = units > grid.max_units
    if counts is None:
        return Cut(n, 0, int(np.count_nonzero(heavy)), _total(units), _total(clipped))
    repeated = [_weighted(each, times) for each in (units, clipped)]
    return Cut(records, 0, _total(times[heavy]), *repeated)


def cut_of_users(grid: WeightSteps, bounded: Bounded, weights: Any) -> Cut:
    """Return what bounding cut of a batch of users' records, with weights as ``update`` takes them."""
    records = int(np.count_nonzero(bounded.present))
    counted = _total(bounded.units)
    if weights is None:
        return Cut(records, bounded.left_out, 0, records * grid.one, counted)
    units = _units(grid, np.asarray(weights, np.float64)[bounded.present])
    return Cut(records, bounded.left_out, int(np.count_nonzero(units > grid.max_units)), _total(units), counted)


def cut_by_folding(grid: WeightSteps, bounded: Bounded, weights: Any) -> Cut:
    """Return what folding a user's records cuts, beside what bounding will cut of the folded ones."""
    cut = cut_of_users(grid, bounded, weights)
    return replace(cut, records=cut.records - len(bounded.rows), offered=cut.offered - cut.counted, counted=0)


def _kept(values: npt.NDArray[Any], kept: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    return values if kept is None else values[kept]


def _units(grid: WeightSteps, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return weights in steps of the grid, not clipped but to 2⁵⁰."""
    with np.errstate(over="ignore"):
        return np.minimum(np.rint(values / grid.step), 2.0 ** (2 * _HALF)).astype(np.int64)


def _total(values: npt.NDArray[np.int64]) -> int:
    """Return an exact sum, also where it passes 64 bits."""
    return (int(np.sum(values >> _HALF)) << _HALF) + int(np.sum(values & ((1 << _HALF) - 1)))


def _weighted(values: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> int:
    return sum(value * time for value, time in zip(values.tolist(), times.tolist(), strict=True))
