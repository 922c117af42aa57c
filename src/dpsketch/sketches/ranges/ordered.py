"""What sketches over an ordered domain share: whole numbers come in, bounded and weighed, whatever then counts them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.bounding import CountedUsers, bound, cut_of_records, cut_of_users
from dpsketch.hashing import KeyBatch, KeyType, fingerprint, to_arrow
from dpsketch.sketches.base import PlainSketch
from dpsketch.sketches.keyed import KeyedPartial
from dpsketch.sketches.ranges.domain import Domain
from dpsketch.sketches.specs import UnitSpec
from dpsketch.sketches.weights import WeightGrid, checked_total, record_units

__all__ = ["Offsets", "OrderedSketch", "Units"]

Offsets = npt.NDArray[np.uint64]
Units = npt.NDArray[np.int64]


class OrderedSpec(UnitSpec, Protocol):
    """A spec with an ordered domain."""

    @property
    def domain(self) -> Domain:
        """All values that can be counted."""
        ...

    @property
    def weight_grid(self) -> WeightGrid:
        """How weights become whole units."""
        ...

    @property
    def seed(self) -> int:
        """The seed that chooses which of a user's keys count."""
        ...


SpecT = TypeVar("SpecT", bound=OrderedSpec)
ReleaseT = TypeVar("ReleaseT")


class OrderedSketch(KeyedPartial, PlainSketch[SpecT, ReleaseT]):
    """A sensitive sketch of whole numbers from a public domain."""

    _mass: int

    @abstractmethod
    def _add(self, offsets: Offsets, units: Units) -> None:
        """Count values, given as their distances from the domain's start, with their weights in grid units."""

    def _start_counting(self) -> None:
        self._mass = 0
        self._skipped = 0
        self._counted = CountedUsers()

    @property
    def source_key_type(self) -> KeyType | None:
        """Keys are values: whole numbers, whatever the source."""
        return "int"

    def _update(self, keys: Any, users: Any, weights: Any, counts: Any, disjoint_users: bool) -> None:
        column = to_arrow(keys, "int")
        batch = fingerprint(column, "int")
        offsets = self._spec.domain.offsets(column)
        if self._protects_users(users, disjoint_users, counts):
            mass = self._add_users(offsets, batch, users, weights, disjoint_users)
        else:
            units = record_units(self._spec.weight_grid, batch, weights, counts)
            mass = checked_total(self._mass, units, 1, len(units))
            self._begin_change()
            self._add(offsets if batch.kept is None else offsets[batch.kept], units)
            self._skipped += batch.skipped
            self._cut += cut_of_records(self._spec.weight_grid, len(batch.fingerprints), batch.kept, weights, counts)
        self._mass = mass

    def _add_users(self, offsets: Offsets, batch: KeyBatch, users: Any, weights: Any, disjoint_users: bool) -> int:
        grid = self._spec.weight_grid
        bounded = bound(
            users,
            batch,
            grid.one if weights is None else grid.units(weights, len(offsets)),
            max_keys=self._spec.unit.max_keys,
            max_units=grid.max_units,
            seed=self._spec.seed,
            user_type=self._counted.user_type,
        )
        counted = self._counted.extended(bounded, disjoint_users=disjoint_users)
        mass = checked_total(self._mass, bounded.units, 1, len(bounded.units))
        self._begin_change()
        self._counted = counted
        self._add(offsets[bounded.rows], bounded.units)
        self._skipped += bounded.skipped
        self._cut += cut_of_users(grid, bounded, weights)
        return mass

    def _check_absorb(self, other: Self) -> None:
        checked_total(self._mass, other._mass, 1, 1)

    def _absorb(self, other: Self) -> None:
        self._mass += other._mass

    def _document(self, counted: Mapping[str, files.Array]) -> files.Document:
        """Return the sketch as a document of the file format, with what it has counted."""
        return files.Document(self.kind, True, {"spec": self._spec.to_json(), "mass": str(self._mass)}, dict(counted))

    def _read_counting(self, document: files.Document) -> None:
        """Read what :meth:`_document` adds to the counts."""
        self._mass = int(document.header["mass"])
