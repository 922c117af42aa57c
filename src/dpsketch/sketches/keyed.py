"""Sketches that count keys: how records come to them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch.bounding import Bounded, bound, cut_of_records, cut_of_users
from dpsketch.hashing import KeyBatch
from dpsketch.sketches.base import Accumulator
from dpsketch.sketches.frames import takes_frames
from dpsketch.sketches.partials import Partial
from dpsketch.sketches.specs import UnitSpec
from dpsketch.sketches.weights import WeightGrid, checked_total

__all__ = ["KeySetPartial", "KeyedPartial", "TableSketch", "WeighedSketch", "WeighedSpec"]


class KeyedPartial(Partial):
    """A sensitive sketch of keys, each record's with a weight, and with a user where users are protected."""

    @takes_frames
    def update(
        self, keys: Any, *, users: Any = None, weights: Any = None, counts: Any = None, disjoint_users: bool = False
    ) -> None:
        """Add records.

        Columns may be given by name as well, of a pandas or polars frame, an Arrow table or a DuckDB relation:
        ``update(frame, key="url", user="visitor", weight="n")``; ``count=`` names what ``counts=`` holds.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            Integers or text, as far as the spec takes them. Null keys are skipped and counted in
            :attr:`skipped_nulls`.
        users : same, optional
            Who each record belongs to; needed where the unit is a user, refused otherwise. All records of a user must
            come in one update: the sketch remembers whom it has counted, and refuses them later. (A histogram bounds
            them when it is released, and takes them in any order.) Null users are skipped like null keys.
        weights : numbers, optional
            A record's weight, rounded to the grid and clipped to ``unit.max_weight``. Default 1. Where the unit is a
            user, the weights of a user's records of one key are added up and clipped together.
        counts : whole numbers, optional
            So many equal records at once. Not clipped, since each is a record of its own; refused where the unit is a
            user.
        disjoint_users : bool, optional
            State that no user of this batch is in any other batch or sketch that this one is merged with. Nothing is
            then compared or remembered, every later update and merge must state it too, and the release says that it
            was not checked. For users too many to remember, at eight bytes each.
        """
        self._update(keys, users, weights, counts, disjoint_users)

    @abstractmethod
    def _update(self, keys: Any, users: Any, weights: Any, counts: Any, disjoint_users: bool) -> None:
        """Add records, as one change."""


class KeySetPartial(Partial):
    """A sensitive sketch of which keys there are: each counts once, however often it comes."""

    @takes_frames
    def update(self, keys: Any, *, users: Any = None, disjoint_users: bool = False) -> None:
        """Add records.

        Columns may be given by name as well, of a pandas or polars frame, an Arrow table or a DuckDB relation:
        ``update(frame, key="url", user="visitor")``.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            Integers or text. Null keys are skipped and counted in :attr:`skipped_nulls`.
        users : same, optional
            Who each record belongs to; needed where the unit is a user, refused otherwise. All records of a user must
            come in one update. (An exact count bounds them when it is released, and takes them in any order.)
        disjoint_users : bool, optional
            State that no user of this batch is in any other batch or sketch; nothing is then compared or remembered.
            (It means nothing to an exact count.)
        """
        self._update(keys, users, disjoint_users)

    @abstractmethod
    def _update(self, keys: Any, users: Any, disjoint_users: bool) -> None:
        """Add records, as one change."""


class WeighedSpec(UnitSpec, Protocol):
    """A spec of counters that hold weights."""

    @property
    def weight_grid(self) -> WeightGrid:
        """How weights become whole units."""
        ...

    @property
    def seed(self) -> int:
        """The seed that chooses which of a user's keys count."""
        ...


SpecT = TypeVar("SpecT", bound=WeighedSpec)


class WeighedSketch(KeyedPartial, Accumulator[SpecT]):
    """A sensitive sketch that adds the weights of keys to counters.

    It knows the sum of all that was added, so that no counter passes its limit. A batch is admitted before anything of
    it is counted: everything that can be refused has been checked by then, and its users are remembered.
    """

    _mass: int = 0

    def _bounded(self, batch: KeyBatch, users: Any, weights: Any) -> Bounded:
        """Return what counts of a batch once each user's part of it is bounded."""
        unit, grid, n = self._spec.unit, self._spec.weight_grid, len(batch.fingerprints) + batch.skipped
        return bound(
            users,
            batch,
            grid.one if weights is None else grid.units(weights, n),
            max_keys=unit.max_keys,
            max_units=grid.max_units,
            seed=self._spec.seed,
        )

    def _admit_records(self, batch: KeyBatch, amounts: npt.NDArray[np.int64] | int, weights: Any, counts: Any) -> None:
        """Begin the change that counts these records, or refuse them."""
        self._admit(len(batch.fingerprints), batch.skipped, batch.kept, amounts, weights, counts)

    def _admit(
        self,
        n: int,
        skipped: int,
        kept: npt.NDArray[np.bool_] | None = None,
        amounts: npt.NDArray[np.int64] | int = 1,
        weights: Any = None,
        counts: Any = None,
    ) -> None:
        """Begin the change that counts ``n`` records that are kept and skips others, or refuse them."""
        mass = checked_total(self._mass, amounts, 1, n)
        cut = cut_of_records(self._spec.weight_grid, n, kept, weights, counts, mass - self._mass)
        self._begin_change()
        self._mass = mass
        self._skipped += skipped
        self._cut += cut

    def _admit_users(
        self, bounded: Bounded, weights: Any, disjoint_users: bool, units: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Begin the change that counts these users' bounded records, or refuse them; ``units`` if it counts others."""
        added = bounded.units if units is None else units
        counted = self._counted.extended(bounded, disjoint_users=disjoint_users)
        mass = checked_total(self._mass, added, 1, len(added))
        cut = cut_of_users(self._spec.weight_grid, bounded, weights)
        self._begin_change()
        self._counted = counted
        self._mass = mass
        self._skipped += bounded.skipped
        self._cut += cut

    def _check_absorb(self, other: Self) -> None:
        checked_total(self._mass, other._mass, 1, 1)

    def _absorb(self, other: Self) -> None:
        self._mass += other._mass


class TableSketch(WeighedSketch[SpecT]):
    """A sensitive sketch of tables in which a user's own part is clipped."""

    _clipped: int = 0

    @property
    def clipped_users(self) -> int:
        """How many users lost a key in the table of keys as their keys collide (not to ``max_keys``). Sensitive."""
        return self._clipped

    def _absorb(self, other: Self) -> None:
        super()._absorb(other)
        self._clipped += other._clipped
