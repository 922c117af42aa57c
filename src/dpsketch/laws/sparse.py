"""The law of a sparse histogram: small values as flipped bits, large ones by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.arrays import Integers, Words
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, OneTable
from dpsketch.errors import InvalidInput
from dpsketch.laws.alp import Projection
from dpsketch.laws.survivors import AbsentKeys, Survival
from dpsketch.privacy import Cost

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["ENTRIES", "SparseLaw", "are_entries"]

ENTRIES = "entries"

# One scale of the threshold's noise takes at most so many columns, whatever the budget and the threshold's share.
_MOST_BEYOND = 1000


@stored
@dataclass(frozen=True, slots=True)
class SparseLaw(OneTable):
    """ALP on all entries, and noise with a cutoff on all entries if values may be large.

    Attributes
    ----------
    table : Table
        The entries: one cell for each key of the domain.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    projection : Projection
        The ALP part.
    survival : Survival or None
        The threshold part; None where all values are known to be small.

    Privacy
    -------
    The two parts compose: :mod:`~dpsketch.laws.alp` and :mod:`~dpsketch.laws.survivors` prove
    what each costs.
    """

    projection: Projection
    survival: Survival | None

    def __post_init__(self) -> None:
        if self.table.move.signed or self.table.shape is None or len(self.table.shape) != 1:
            raise InvalidInput("a sparse histogram has one row of entries, which never decrease.")
        rule = self.survival
        if rule is None:
            return
        if rule.rule == "stability" and not rule.hides(self.table.move):
            raise InvalidInput("the cutoff is too low for keys that one unit alone has.")
        # A reader considers all values up to some scales past the top, and a file may have been written by anyone.
        if rule.cutoff > self.projection.top or self.projection.columns_a_unit / rule.rate > _MOST_BEYOND:
            raise InvalidInput("the parts of a sparse histogram do not fit each other.")

    @property
    def domain(self) -> int:
        """The number of keys that are possible."""
        return int(self.table.size or 0)

    @property
    def words(self) -> str:
        """The parts in a phrase each."""
        projection, (first, *rest) = self.projection, self.costs()
        words = [
            f"ALP, a table of {projection.columns} columns × {projection.rows:,} bits each flipped with probability "
            f"{projection.flip:.4g} ({_spent(first)})"
        ]
        if self.survival is not None:
            words.append(f"{self.survival.words} ({_spent(rest[0])})")
        return "; ".join(words)

    def slots(self) -> Mapping[str, Any]:
        """Return the bits, the noise of the entries that are present, and the absent ones under the pure rule."""
        found: dict[str, Any] = {"bits": self.projection}
        if self.survival is not None:
            found["noise"] = self.survival.noise
            if self.survival.rule == "pure":
                found["absent"] = AbsentKeys(self.survival, self.domain)
        return found

    def costs(self) -> tuple[Cost, ...]:
        """Return the cost of the bits and, where there is a threshold part, that of the survivors."""
        apart = self.table.between(self.neighbours)
        bits = self.projection.cost(apart)
        return (bits,) if self.survival is None else (bits, self.survival.cost(apart, self.table.move))

    def draw(self, state: tuple[Words, Integers], handle: Handle) -> Arrays:
        """Return the flipped bits and the survivors of entries: increasing positions, and values of at least 1."""
        positions, units = state
        bits = handle.draw("bits", positions, units)
        if self.survival is None:
            return {"bits": bits}
        noisy = handle.add(units, "noise")
        kept = noisy >= self.survival.cutoff
        places, values = positions[kept], noisy[kept]
        if self.survival.rule == "pure":
            absent, drawn = handle.draw("absent", positions)
            places, values = np.concatenate([places, absent]), np.concatenate([values, drawn])
            order = np.argsort(places)
            places, values = places[order], values[order]
        return {"bits": bits, "positions": places, "values": values}

    def fits(self, arrays: Arrays) -> bool:
        """Say whether these are bits of the table's size, and survivors in increasing order from the cutoff on."""
        if set(arrays) != ({"bits"} if self.survival is None else {"bits", "positions", "values"}):
            return False
        bits = arrays["bits"]
        if not isinstance(bits, np.ndarray) or bits.dtype != np.uint64 or bits.shape != self.projection.shape:
            return False
        return self.survival is None or are_entries(
            arrays["positions"], arrays["values"], self.domain, self.survival.cutoff
        )


def are_entries(positions: Any, values: Any, domain: int, least: int) -> bool:
    """Say whether these are increasing positions in a domain, each with a value that is no less than ``least``."""
    if not (isinstance(positions, np.ndarray) and isinstance(values, np.ndarray)):
        return False
    if positions.dtype != np.uint64 or values.dtype != np.int64 or positions.ndim != 1:
        return False
    if positions.shape != values.shape or np.any(positions[1:] <= positions[:-1]):
        return False
    return not len(positions) or (int(positions[-1]) < domain and int(values.min()) >= least)


def _spent(cost: Any) -> str:
    delta = getattr(cost, "delta", 0.0)
    return f"ε = {cost.epsilon:.4g}" + (f", δ = {delta:.3g}" if delta else "")
