"""Additive noise on a table that is drawn class by class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.core.laws import Additive, Arrays
from dpsketch.errors import ReleaseRefused

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["ClassCounters"]


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
