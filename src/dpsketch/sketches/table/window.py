"""Some days of a stream of tables together: how a released table follows from what the stream published."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsketch.arrays import Floats
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Derived
from dpsketch.core.laws import Arrays, Law
from dpsketch.laws.centred import LISTED
from dpsketch.laws.names import are_names
from dpsketch.laws.streams import Published
from dpsketch.sketches.continual.windows import are_finite, are_weights, split
from dpsketch.sketches.table.spec import DAY_STEPS

__all__ = ["TableWindow"]


@stored
@dataclass(frozen=True, slots=True)
class TableWindow(Derived):
    """Some days of a stream of tables together, decoded.

    Attributes
    ----------
    publications : Published
        The stream's law.
    """

    publications: Published

    @property
    def laws(self) -> tuple[Law, ...]:
        """The stream's law."""
        return (self.publications,)

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there are different names, the sum of the days, and the weights of publications."""
        if set(arrays) != {LISTED, "sum", "weights"} or not are_names(arrays[LISTED]):
            return False
        law = self.publications
        good = all(table.shape == (len(arrays[LISTED]) + 1,) for table in law.stacked)
        good = good and are_finite(arrays["sum"], law.shape)
        return good and are_weights(law, arrays["weights"], window=True)

    def columns(self, arrays: Arrays) -> dict[str, tuple[Floats, float]]:
        """Return each table in units of whole contributions, with the variance of the noise in a cell."""
        law = self.publications
        weights = np.asarray(arrays["weights"], np.float64)
        variance = law.draws * law.noise.variance * float(np.sum(weights**2))
        tables = split(law, np.asarray(arrays["sum"], np.float64))
        scales = {table.name: scale * DAY_STEPS for table, scale in zip(law.stacked, law.scales, strict=True)}
        return {name: (table / DAY_STEPS, variance / scales[name] ** 2) for name, table in tables.items()}
