"""Which noise of a stream an answer carries.

Two answers of one stream share noise: the total of last week is in the total of this one. Their variances do not add.
So an answer carries the weight that every published table of its stream has in it; sums and differences combine the
weights, and the variance follows from those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.errors import ReleaseRefused
from dpsketch.noise import Noise

__all__ = ["Stretch", "combined"]

Marks = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """What of a stream's published tables is in an answer. Public.

    Attributes
    ----------
    stream : str
        What tells the stream from others: a digest of the first table that it published, of its terms and charge.
    law : Noise
        The noise in each cell of each published table, independent from table to table.
    weights : numpy.ndarray
        The weight of each published table, in the order of publication; of later ones it is 0.
    marks : numpy.ndarray of uint64
        Digests of the published tables, by which copies of a stream that went on apart are told; or none.
    """

    stream: str
    law: Noise
    weights: Floats
    marks: Marks = field(default_factory=lambda: np.zeros(0, np.uint64))

    def __post_init__(self) -> None:
        self.weights.flags.writeable = False

    @property
    def variance(self) -> float:
        """The variance of the noise in a cell."""
        return self.law.variance * float(np.sum(self.weights**2))

    def __repr__(self) -> str:
        return f"<Stretch of stream {self.stream[:8]}, {len(self.weights)} tables>"

    def plus(self, other: Stretch, sign: int) -> Stretch:
        """Return what is in the sum or difference of two answers of one stream."""
        weights = np.zeros(max(len(self.weights), len(other.weights)))
        weights[: len(self.weights)] += self.weights
        weights[: len(other.weights)] += sign * other.weights
        both = min(len(self.marks), len(other.marks))
        if not np.array_equal(self.marks[:both], other.marks[:both]):
            raise ReleaseRefused(
                "cannot combine: these are answers of two copies of one stream that went on apart, with other noise. "
                "Ask one of them."
            )
        longer = self.marks if len(self.marks) >= len(other.marks) else other.marks
        return Stretch(self.stream, self.law, weights, longer)


def combined(ours: Iterable[Stretch], theirs: Iterable[Stretch], sign: int) -> tuple[Stretch, ...]:
    """Return the stretches of a sum or difference, one for each stream."""
    found = {each.stream: each for each in ours}
    for each in theirs:
        nothing = Stretch(each.stream, each.law, np.zeros(0))
        found[each.stream] = found.get(each.stream, nothing).plus(each, sign)
    return tuple(found.values())
