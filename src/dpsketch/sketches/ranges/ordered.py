"""What sketches over an ordered domain share: whole numbers come in, bounded and weighed, whatever then counts them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.core.contributions import Cells, hold, sampled
from dpsketch.core.move import Table
from dpsketch.hashing import KeyType, fingerprint, to_arrow
from dpsketch.sketches.base import PlainSketch
from dpsketch.sketches.keyed import WeighedSketch, WeighedSpec
from dpsketch.sketches.ranges.domain import Domain
from dpsketch.sketches.weights import weighed

__all__ = ["Offsets", "OrderedSketch", "Units"]

Offsets = npt.NDArray[np.uint64]
Units = npt.NDArray[np.int64]


class OrderedSpec(WeighedSpec, Protocol):
    """A spec with an ordered domain."""

    @property
    def domain(self) -> Domain:
        """All values that can be counted."""
        ...


SpecT = TypeVar("SpecT", bound=OrderedSpec)
ReleaseT = TypeVar("ReleaseT")


class OrderedSketch(WeighedSketch[SpecT], PlainSketch[SpecT, ReleaseT]):
    """A sensitive sketch of whole numbers from a public domain."""

    _stated: tuple[Table, ...]

    @abstractmethod
    def _add(self, offsets: Offsets, units: Units) -> None:
        """Count values, given as their distances from the domain's start, with their weights in grid units."""

    @abstractmethod
    def _spread(self, offsets: Offsets, units: Units, starts: Units | None) -> dict[str, Cells]:
        """Return the contributions of values to every table of the kind."""

    def _hold(self, offsets: Offsets, units: Units | int, starts: Units | None = None) -> None:
        """Refuse a batch if one of its first units, or the heaviest, moves a table further than stated."""
        places, amounts, own_starts = sampled(len(offsets), units, starts)
        hold(self._stated, self._spread(offsets[places], amounts, own_starts))

    @property
    def source_key_type(self) -> KeyType | None:
        """Keys are values: whole numbers, whatever the source."""
        return "int"

    def _update(self, keys: Any, users: Any, weights: Any, counts: Any, disjoint_users: bool) -> None:
        column = to_arrow(keys, "int")
        batch = fingerprint(column, "int")
        offsets = self._spec.domain.offsets(column)
        if self._protects_users(users, disjoint_users, counts):
            bounded = self._bounded(batch, users, weights)
            offsets = offsets[bounded.rows]
            self._hold(offsets, bounded.units, bounded.starts)
            self._admit_users(bounded, weights, disjoint_users)
            self._add(offsets, bounded.units)
        else:
            offsets = offsets if batch.kept is None else offsets[batch.kept]
            units, amounts = weighed(self._spec.weight_grid, batch, weights, counts)
            self._hold(offsets, units)
            self._admit_records(batch, amounts, weights, counts)
            self._add(offsets, np.ascontiguousarray(np.broadcast_to(amounts, len(offsets))))

    def _document(self, counted: Mapping[str, files.Array]) -> files.Document:
        """Return the sketch as a document of the file format, with what it has counted."""
        return files.Document(self.kind, True, {"spec": self._spec.to_json(), "mass": str(self._mass)}, dict(counted))

    def _read_counting(self, document: files.Document) -> None:
        """Read what :meth:`_document` adds to the counts."""
        self._mass = int(document.header["mass"])
