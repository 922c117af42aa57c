"""Waves of embeddings, summed by class: a class's similarity to a point counts near records more than far ones.

A sum of vectors tells where the middle of a class lies. A class of several kinds of record has no middle that is like
them; with waves φ whose inner products are about exp(−‖x − z‖²/2h²) (Rahimi and Recht, 2007), φ(z)·Σφ(x) counts the
records near z. A record's waves depend on the record alone, and are held to length 1 on integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats, Integers
from dpsketch.core.codec import stored
from dpsketch.core.move import Move
from dpsketch.kernels import Gaussian
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.sketches.density.features import FeatureMap, Shape, feature_map

__all__ = ["Waves", "fitting_waves"]


_PAIRS = 2048
_BANDWIDTH = 0.5  # of vectors of length 1
_MOST_CELLS = 1 << 24  # of all classes
_CHUNK = 256


def fitting_waves(dim: int, classes: int, seed: int) -> Waves | None:
    """Return the waves for vectors of length 1; None where the classes are so many that their sums take too much."""
    waves = Waves(dim, _PAIRS, seed, _BANDWIDTH)
    return waves if classes * waves.features <= _MOST_CELLS else None


@stored
@dataclass(frozen=True, slots=True)
class Waves:
    """Which waves are summed. Public.

    Attributes
    ----------
    dim : int
        Coordinates of a vector.
    pairs : int
        Waves, each with a cosine and a sine.
    seed : int
        From which their directions follow.
    bandwidth : float
        At which distance records count for exp(−1/2).
    """

    dim: int
    pairs: int
    seed: int
    bandwidth: float

    def __post_init__(self) -> None:
        hold_whole(self, "dim", low=1)
        hold_whole(self, "pairs", low=1, high=_PAIRS)
        hold_whole(self, "seed", low=0, high=2**64 - 1)
        hold_real(self, "bandwidth")
        Gaussian(self.dim, self.bandwidth)  # refuses what is no bandwidth

    @property
    def features(self) -> int:
        """Numbers of a record."""
        return 2 * self.pairs

    @property
    def steps(self) -> int:
        """Steps of a length of 1."""
        return self._shape.steps

    @property
    def _shape(self) -> Shape:
        return Shape("fourier", Gaussian(self.dim, self.bandwidth), self.pairs, self.seed, None, None)

    @property
    def _map(self) -> FeatureMap:
        return feature_map(self._shape)

    def move(self, records: int) -> Move:
        """Return how far a unit of so many records moves the sums of all classes.

        A record is in one class. Its waves have a length of 1 at most, and may point the other way.
        """
        squares, sizes = self._shape.contribution
        return Move(records * sizes, records**2 * squares, records * self.features, records * self.steps, signed=True)

    def add(self, table: Integers, codes: npt.NDArray[np.intp], vectors: Floats) -> None:
        """Add the waves of vectors to the rows of their classes."""
        for code in np.unique(codes):
            own = vectors[codes == code]
            for start in range(0, len(own), _CHUNK):
                self._map.add(table[code], own[start : start + _CHUNK], self._shape.contribution)

    def cosines(self, vectors: Floats, sums: Integers, deviation: float) -> Floats:
        """Return about the cosine of each vector's waves and each class's sum, less where noise hides the class."""
        noisy, noise = sums / self.steps, deviation**2
        lengths = np.maximum(np.sum(noisy**2, axis=1) - noise * self.features, 0)
        directions = noisy / np.sqrt(lengths + 2 * noise * math.sqrt(2 * self.features))[:, None]
        found = np.empty((len(vectors), len(sums)))
        for start in range(0, len(vectors), _CHUNK):
            chosen = slice(start, start + _CHUNK)
            found[chosen] = self._map.values(vectors[chosen]) @ directions.T
        return found
