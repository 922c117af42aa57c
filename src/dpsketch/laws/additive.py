"""Additive noise on a table that is not drawn in one piece: class by class, or as a state and as a publication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.core.laws import Additive, Arrays
from dpsketch.errors import ReleaseRefused
from dpsketch.privacy import Unit

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["PUBLICATION", "STATE", "ClassCounters", "SeizableCounts"]

# What a pan-private sketch draws.
STATE, PUBLICATION = "state", "publication"
_SEIZED = (
    "It holds against one seizure of the memory, at any moment, together with one publication; a second seizure is not "
    "covered."
)


@stored
@dataclass(frozen=True, slots=True)
class ClassCounters(Additive):
    """Noise on the counters of all classes, which are drawn class by class."""

    def draw(self, state: Iterable[Integers], handle: Handle) -> Arrays:
        """Return the counters of each class with noise; the state yields one class after the other."""
        add = handle.adder("noise")
        table = np.stack([add(each) for each in state])
        if table.shape != self.table.shape:
            raise ReleaseRefused(f"{self.name}: the state has another shape than the table that was paid for.")
        return {"table": table}


@stored
@dataclass(frozen=True, slots=True)
class SeizableCounts(Additive):
    """Noise on the state of a pan-private sketch and, afresh, on its publication.

    Privacy
    -------
    A record is in one of the two only: it came before the seizure or after it. Both have the same noise, so that the
    dearer of them costs what one does.
    """

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of the state and of the publication."""
        return {STATE: self.noise, PUBLICATION: self.noise}

    @property
    def at_once(self) -> bool:
        """Say that state and publication are drawn at times of their own."""
        return False

    def caveat(self, unit: Unit) -> str:
        """Return how many seizures are covered."""
        return _SEIZED

    def draw(self, state: Any, handle: Handle) -> Arrays:
        """Return a table with noise of one of the two slots."""
        slot, table = state
        return {"table": handle.add(table, slot)}
