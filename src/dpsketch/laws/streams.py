"""The laws of a stream: noise on one vector of integers a day, drawn in as many pieces as a design publishes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpsketch import accounting
from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, Law, additive_cost
from dpsketch.core.move import Table
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.files import Array
from dpsketch.laws.designs import LONGEST, Banded, Blocks, Contribution, Design, Filter, PanPrivate, Recurrence
from dpsketch.noise import Noise, RoundedGaussian
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import Again, ApproximateCost, Cost, Neighbours, Unit

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["DESIGNS", "MARGIN", "PUBLICATIONS", "STATE", "Found", "Published", "Seizable", "Vector"]

PUBLICATIONS, STATE = "publications", "state"
# The designs that the file of a law may hold: a class is known to the codec once its module is imported.
DESIGNS: tuple[type[Design], ...] = (Banded, Blocks, PanPrivate, Recurrence)

_SEIZURE = (
    "It holds against one seizure of the state, together with all that is published; a second state is not covered, be "
    "it an old copy or the one that a file is just being replaced by."
)
# A hair more noise, and a hair higher thresholds, than all roundings here come to.
MARGIN = 1 + 1e-9

# What is drawn as one: the slot, the name of the piece, and the exact table.
Piece = tuple[str, Hashable, Integers]


@dataclass(frozen=True, slots=True)
class Vector:
    """What a day's vector of integers is made of, and on how many days one unit is; fields as in :class:`Published`."""

    tables: tuple[Table, ...]
    scales: tuple[int, ...]
    neighbours: Neighbours
    days: int = 1
    apart: int = 1

    @property
    def contribution(self) -> Contribution:
        """How far the vectors of the days of two neighbouring datasets lie apart."""
        pairs = list(zip(self.tables, self.scales, strict=True))
        first, *others = (table.move.between(self.neighbours).scaled(scale) for table, scale in pairs)
        for other in others:
            first = first.beside(other)
        squared = sum(scale**2 * table.move.squared for table, scale in pairs)
        step = math.isqrt(squared // sum(table.move.cells for table in self.tables))
        return Contribution(first, self.days, self.apart, max(1, step))


@stored
@dataclass(frozen=True, slots=True)
class Published(Law):
    """Noise on all that a stream publishes.

    Attributes
    ----------
    stacked, scales : tuple
        The tables that a day's vector is made of, and how many times each enters it.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    noise : Noise
        The noise in each cell of each publication.
    design : Design
        How the days enter the publications.
    horizon : int
        The number of days that the noise is for.
    days, apart : int
        A unit is in at most ``days`` days, each at least ``apart`` days after the one before.

    Privacy
    -------
    The design proves how far all publications of two neighbouring datasets lie apart, from how far the vectors of one
    day do. All publications together are then one additive mechanism.
    """

    name: ClassVar[str] = PUBLICATIONS

    stacked: tuple[Table, ...]
    scales: tuple[int, ...]
    neighbours: Neighbours
    noise: Noise
    design: Design
    horizon: int
    days: int = 1
    apart: int = 1

    def __post_init__(self) -> None:
        hold_whole(self, "horizon", low=1, high=LONGEST)
        if not self.stacked or len(self.stacked) != len(self.scales) or any(scale < 1 for scale in self.scales):
            raise InvalidInput("each table of a stream enters its vector a whole number of times.")
        if self.design.keeps_noise is not (STATE in self.slots()):
            raise InvalidInput("a state carries noise if, and only if, its design is one whose state may be seized.")

    @property
    def vector(self) -> Vector:
        """What a day's vector is made of, and on how many days a unit is."""
        return Vector(self.stacked, self.scales, self.neighbours, self.days, self.apart)

    @property
    def contribution(self) -> Contribution:
        """How far the vectors of the days lie apart."""
        return self.vector.contribution

    @property
    def words(self) -> str:
        """The law in a phrase."""
        entered = f" (a record enters {self.design.largest:,} times)" if self.design.largest > 1 else ""
        return f"{self.noise.words} in each publication{entered}, {self.design.words}"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of a day."""
        return self.stacked

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a day's vector: that of the only table, or flat; no cell where keys are still to be found."""
        shapes = [table.shape or (0,) for table in self.stacked]
        return shapes[0] if len(shapes) == 1 else (sum(math.prod(shape) for shape in shapes),)

    @property
    def counted_again(self) -> Again | None:
        """Say that a user counts again on each of several days."""
        return "day" if self.days > 1 else None

    @property
    def at_once(self) -> bool:
        """Say that a day draws what its design publishes on it."""
        return False

    def caveat(self, unit: Unit) -> str:
        """Return which days the promise covers, and on how many of them a user counts."""
        days = "one day" if self.horizon == 1 else f"up to {self.horizon} days"
        caveat = f"It covers all publications of {days}."
        if unit.level == "user":
            often = f"at most {self.days} days" + (f", at least {self.apart} days apart" if self.apart > 1 else "")
            caveat += f" A user counts on {often}, with at most that on each; records of other days are dropped."
        return f"{caveat} {_SEIZURE}" if self.design.keeps_noise else caveat

    def pieces(self, slot: str) -> int:
        """Return how many publications there are."""
        return self.design.published(self.horizon)

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of the publications."""
        return {PUBLICATIONS: self.noise}

    def costs(self) -> tuple[Cost, ...]:
        """Return what all publications cost together."""
        return (additive_cost(self.noise, self.design.sensitivity(self.contribution, self.horizon)),)

    def drawn_by(self, day: int) -> list[tuple[str, str, Hashable]]:
        """Return the pieces that were drawn by a day."""
        names: Iterable[Hashable] = self.design.names(day) if isinstance(self.design, Blocks) else range(1, day + 1)
        return [(self.name, PUBLICATIONS, name) for name in names]

    def draw(self, state: Sequence[Piece], handle: Handle) -> Arrays:
        """Return pieces with noise, in their order."""
        if any(table.shape != self.shape for _, _, table in state):
            raise ReleaseRefused(f"{self.name}: a day has another shape than the vector that was paid for.")
        return {str(place): handle.add(table, slot, piece=piece) for place, (slot, piece, table) in enumerate(state)}

    def fits(self, arrays: Arrays) -> bool:
        """Say nothing: publications are in the file of a series, which checks them."""
        return False

    @property
    def draws(self) -> int:
        """The number of draws in one cell of a publication."""
        return 1


@stored
@dataclass(frozen=True, slots=True)
class Seizable(Published):
    """Noise on the publications and on the state of a stream whose state may be seized once.

    Privacy
    -------
    A record that came before the seizure moves the state, one that came after it moves only what was published since
    (see :mod:`dpsketch.laws.designs`). Both carry the same noise, so that the dearer of the two costs
    what the publications cost.
    """

    def pieces(self, slot: str) -> int:
        """Return how many publications there are, or how many coming days the state holds sums for."""
        return self.horizon + self.design.buffers - 1 if slot == STATE else Published.pieces(self, slot)

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of the publications and of the state."""
        return {PUBLICATIONS: self.noise, STATE: self.noise}

    def drawn_by(self, day: int) -> list[tuple[str, str, Hashable]]:
        """Return the pieces that were drawn by a day: the sums for the days after it as well."""
        coming = range(1, day + self.design.buffers + 1)
        return [*Published.drawn_by(self, day), *((self.name, STATE, each) for each in coming)]

    @property
    def draws(self) -> int:
        """The number of draws in one cell of a publication: that of the state, and its own."""
        return 2


@stored
@dataclass(frozen=True, slots=True)
class Found(Published):
    """Noise on the publications of every key that ever came, and thresholds from which its name is shown.

    Attributes
    ----------
    epsilon, names : float
        The ε at which the cost is computed, and the part of δ for names.

    Privacy
    -------
    See :mod:`dpsketch.sketches.continual.stream`: (ε, δ_G(ε; μ) + δ_T) for δ_T = ``names``.
    """

    epsilon: float = 0.0
    names: float = 0.0

    def __post_init__(self) -> None:
        Published.__post_init__(self)
        hold_real(self, "epsilon", "names")
        if len(self.stacked) != 1 or not isinstance(self.noise, RoundedGaussian) or not isinstance(self.design, Filter):
            raise InvalidInput("keys are found in one table, under Gaussian noise, by a design that is no tree.")
        if self.stacked[0].shape is not None:
            raise InvalidInput("keys are found in a table whose length follows from the data.")
        if not (self.epsilon > 0 and 0 < self.names < 1):
            raise InvalidInput("finding keys needs epsilon above 0, and a part of delta between 0 and 1.")

    @property
    def words(self) -> str:
        """The law in a phrase."""
        shown = "in each publication of each key, whose name is shown once its total stands out"
        return f"{self.noise.words} {shown}, {self.design.words}"

    def costs(self) -> tuple[Cost, ...]:
        """Return ε, and the δ of counts and names together."""
        assert isinstance(self.noise, RoundedGaussian)
        mu = self.design.sensitivity(self.contribution, self.horizon).l2 / self.noise.sigma
        return (ApproximateCost(self.epsilon, accounting.gaussian_delta(self.epsilon, mu) + self.names),)

    def pieces(self, slot: str) -> int:
        """Return two for each day: the day of all keys, and the earlier days of keys that are new."""
        return 2 * self.horizon

    def drawn_by(self, day: int) -> list[tuple[str, str, Hashable]]:
        """Return all that may have been drawn by a day."""
        pieces = ((each, earlier) for each in range(1, day + 1) for earlier in (False, True))
        return [(self.name, PUBLICATIONS, piece) for piece in pieces]

    def draw(self, state: Sequence[Piece], handle: Handle) -> Arrays:
        """Return pieces with noise, one day after the other: a draw takes several times its room."""
        found: dict[str, Array] = {}
        for place, (slot, piece, table) in enumerate(state):
            add = handle.adder(slot, piece=piece)
            rows = [add(row) for row in table.reshape(math.prod(table.shape[:-1]), table.shape[-1])]
            found[str(place)] = np.array(rows, np.int64).reshape(table.shape)
        return found

    @property
    def _looks(self) -> float:
        """The probability δ_T/(n·ℓ) of one look."""
        held = self.contribution.within(self.horizon)
        # A key gets at most what one unit adds to all of them on each of its days.
        return self.names / (self.horizon * held.distance.cells * held.days)

    def threshold(self, day: int) -> float:
        """Return the total from which a key's name is shown on a day."""
        from scipy.special import ndtri

        assert isinstance(self.design, Filter)
        assert isinstance(self.noise, RoundedGaussian)
        weights, held = self.design.weights(1, day), self.contribution.within(self.horizon)
        most = held.distance.most * held.days
        rounding = (0.5 + self.design.stray) * float(np.abs(weights).sum())
        spread = self.noise.sigma * math.sqrt(float(np.sum(weights**2)))
        return (most + rounding + spread * -float(ndtri(self._looks))) * MARGIN
