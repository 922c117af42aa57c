"""Estimate values from a released sparse histogram: by the paper's walk, or by the posterior of the same bits.

A key's m bits are independent given its value. One that belongs to the value reads 1 with probability 1 − p. One that
does not reads 1 as often as any bit of that column, and how often that is the column itself shows, collisions included:
so the likelihood of every value is known, and needs nothing that was not published. Fewer keys reach later columns, so
the columns' shares of ones are first made non-increasing (isotonic regression), which takes out most of their noise.

The prior is uniform on the values from 0 to the top, with as much again on 0 as on one column's worth of values, since
a key that is asked for may well be absent. Where there is a threshold part its verdict counts too: a key that did not
survive is unlikely to be large, and one that did has a noisy value of its own.

A key that is listed *because* it survived is another matter: it was selected by its noise, from a number of keys that
nobody knows. Then the likelihood of its noisy value is taken given that it reached the cutoff, that is, divided by the
probability with which a key of that value survives. Such an interval holds for what was listed, however it came to be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import sparse as kernels
from dpsketch._compiled.hashing import mix
from dpsketch.arrays import Floats, Integers, Words
from dpsketch.core.move import Distance, Move
from dpsketch.errors import InvalidInput
from dpsketch.laws.sparse import LARGEST_SCALE, LEAST_SCALE, ROOM, SCALE_BITS, Projection, SparseLaw, Survival
from dpsketch.noise import DiscreteLaplace

if TYPE_CHECKING:
    from dpsketch.laws.sparse import SparseLaw


@dataclass(frozen=True, slots=True, eq=False)
class Survivors:
    """Entries that reached the cutoff: positions, strictly increasing, and noisy values in units. Public."""

    positions: Words
    values: Integers

    def look_up(self, positions: Words) -> npt.NDArray[np.float64]:
        """Return the noisy value at each position, −1 where none survived."""
        found = np.full(len(positions), -1.0)
        if len(self.positions):
            places = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
            hit = self.positions[places] == positions
            found[hit] = self.values[places[hit]]
        return found


def projection_for(epsilon: float, apart: Distance, *, top: int, rows: int, alpha: int, seed: int) -> Projection:
    """Choose the largest scale at which entries that lie so far apart cost at most ``epsilon``."""
    step = ROOM * largest_step(ROOM * epsilon / apart.cells, alpha)
    scale = min(LARGEST_SCALE, math.floor(step / (apart.most * alpha) * 2**SCALE_BITS))
    if scale < LEAST_SCALE:
        raise InvalidInput(
            "the budget is too small for so many keys and such fine weights: an entry would move by less than "
            "2**-32 of a column. Use a coarser grid=, a smaller max_weight or max_keys, or a larger epsilon."
        )
    return Projection(alpha, scale, top, rows, seed)


def largest_step(epsilon: float, alpha: float) -> float:
    """Return the largest step whose loss is ``epsilon``: the inverse of :func:`loss`.

    Examples
    --------
    >>> largest_step(1.0, 2) == math.expm1(1.0)
    True
    """
    whole = math.floor(epsilon / math.log1p(alpha))
    return alpha * whole + math.expm1(max(0.0, epsilon - whole * math.log1p(alpha)))


def pure(epsilon: float, apart: Distance, domain: int) -> Survival:
    """Choose the cutoff that about one zero of the domain reaches."""
    found = Survival("pure", DiscreteLaplace(epsilon, apart.l1), 1)
    cutoff = math.ceil((math.log(domain) - math.log1p(math.exp(-found.rate))) / found.rate)
    return replace(found, cutoff=max(1, cutoff))


def stability(epsilon: float, delta: float, apart: Distance, move: Move) -> Survival:
    """Choose the least cutoff whose exact δ is at most ``delta``, for entries that one unit moves by ``move``."""
    found = Survival("stability", DiscreteLaplace(epsilon, apart.l1), 1)
    most = min(-math.expm1(math.log1p(-delta) / move.cells), found.odds(move))
    guess = (-math.log(most) - math.log1p(math.exp(-found.rate))) / found.rate
    found = replace(found, cutoff=move.most + max(0, math.ceil(guess) - 2))
    while found.delta(move) > delta or not found.hides(move):
        found = replace(found, cutoff=found.cutoff + 1)
    return found


def false_rate(law: Survival) -> float:
    """Return the probability with which a zero of the domain survives under the pure rule."""
    return math.exp(-law.rate * law.cutoff) / (1 + math.exp(-law.rate))


def half_width(law: Survival, tail: float) -> float:
    """Return the least h such that the noise passes ±h with probability at most ``tail``."""
    return max(0, math.ceil((math.log(2 / tail) - math.log1p(math.exp(-law.rate))) / law.rate) - 1)


def chance_of_survival(law: Survival, units: npt.NDArray[np.float64], *, lost: bool = False) -> npt.NDArray[np.float64]:
    """Return the probability with which entries of these values survive, or do not; small ones are exact."""
    gap = units + (1 - law.cutoff) if lost else law.cutoff - units
    ratio = math.exp(-law.rate)
    above = np.exp(-law.rate * np.maximum(gap, 1)) / (1 + ratio)
    below = np.exp(-law.rate * np.maximum(1 - gap, 1)) / (1 + ratio)
    return np.where(gap >= 1, above, 1 - below)


SparseEstimator = Literal["mean", "median", "walk"]

_BLOCK = 512
# In scales of the threshold's noise: how far past the top values are considered, and from where on a survivor's own
# noisy value is all that matters.
_BEYOND = 24
_FAR = 12
_SIMULATED = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """All that reading a table takes beside the table: likelihood ratios, and the values considered with their prior.

    Attributes
    ----------
    law : SparseLaw
        How the release was drawn.
    ratio : numpy.ndarray
        For each column, the likelihood ratio of a bit that reads 0, and of one that reads 1.
    whole, fraction, value, prior, dropped, listed : numpy.ndarray
        For each value considered: the whole columns that it takes and the rest, the value in units, its prior weight,
        that weight times the probability that the threshold part drops it, and over the probability that it does not.
    """

    law: SparseLaw
    ratio: Floats
    whole: npt.NDArray[np.int32]
    fraction: Floats
    value: Floats
    prior: Floats
    dropped: Floats
    listed: Floats

    @classmethod
    def for_shares(cls, law: SparseLaw, shares: Floats) -> Self:
        """Prepare to read a table whose columns have these shares of ones."""
        projection, threshold = law.projection, law.survival
        flip = projection.flip
        crowded = np.clip(non_increasing(shares), flip, 1 - flip)
        step = max(1, math.floor(0.5 / projection.columns_a_unit))
        last = projection.top if threshold is None else projection.top + math.ceil(_BEYOND / threshold.rate)
        units = np.arange(0, last + step, step)
        units = np.minimum(units, last) if threshold is None else units
        # Where a value lies among the columns, in the integers that the projection itself uses.
        full = -(-(projection.columns << SCALE_BITS) // projection.scale)
        product = np.minimum(units, full) * projection.scale
        whole = product >> SCALE_BITS
        fraction = (product - (whole << SCALE_BITS)) / 2**SCALE_BITS
        fraction[whole >= projection.columns] = 0
        prior = np.ones(len(units))
        prior[0] += 1 / (step * projection.columns_a_unit)
        value = units.astype(np.float64)
        return cls(
            law,
            np.column_stack([flip / (1 - crowded), (1 - flip) / crowded]),
            np.minimum(whole, projection.columns).astype(np.int32),
            fraction,
            value,
            prior,
            prior if threshold is None else prior * chance_of_survival(threshold, value, lost=True),
            prior if threshold is None else prior / chance_of_survival(threshold, value),
        )

    def read(
        self,
        table: Words,
        survivors: Survivors,
        positions: Words,
        estimator: SparseEstimator,
        tail: float,
        *,
        listed: bool = False,
    ) -> tuple[Floats, Floats, Floats]:
        """Return estimates with the lower and upper ends of their intervals, in units.

        Parameters
        ----------
        table : numpy.ndarray
            The released bits.
        survivors : Survivors
            What the threshold part kept.
        positions : numpy.ndarray of uint64
            The keys' places in the domain.
        estimator : {"mean", "median", "walk"}
            Of the posterior the mean or the median; or the paper's: a survivor's noisy value, else the walk's peak.
        tail : float
            The probability left outside an interval.
        listed : bool
            Whether the keys are asked for because they survived, so that the intervals must allow for it.
        """
        if estimator not in ("mean", "median", "walk"):
            raise InvalidInput(f"estimator is 'mean', 'median' or 'walk', not {estimator!r}.")
        column_keys = self.law.projection.column_keys
        result = np.empty((3, len(positions)))
        for start in range(0, len(positions), _BLOCK):
            part = slice(start, start + _BLOCK)
            bits = kernels.read(table, positions[part], column_keys)
            result[:, part] = self._read_bits(bits, survivors.look_up(positions[part]), estimator, tail, listed)
        return result[0], result[1], result[2]

    def _read_bits(
        self, bits: npt.NDArray[np.uint8], observed: Floats, estimator: SparseEstimator, tail: float, listed: bool
    ) -> tuple[Floats, Floats, Floats]:
        threshold = self.law.survival
        near = observed
        if threshold is not None:
            near = np.where(observed > self.value[-1] - _FAR / threshold.rate, -1.0, observed)
        ends = self.posterior(bits, near, tail)
        half = math.floor((self.value[1] - self.value[0]) / 2)
        value = ends[:, 1] if estimator == "median" else ends[:, 0]
        if listed:
            ends = self.posterior(bits, near, tail, listed=True)
        low, high = np.maximum(0, ends[:, 2] - half), ends[:, 3] + half
        if estimator == "walk":
            peaks = kernels.walk(bits) / self.law.projection.columns_a_unit
            value = np.where(observed < 0, peaks, observed)
        if threshold is not None:
            far = near != observed
            width = half_width(threshold, tail)
            value, low, high = (
                np.where(far, observed + shift, end) for shift, end in ((0.0, value), (-width, low), (width, high))
            )
            if listed:
                # Up to the cutoff one value explains a survivor as well as another.
                low = np.where(far & (low <= threshold.cutoff), 0.0, low)
        return value, np.minimum(low, value), np.maximum(high, value)

    def posterior(self, bits: npt.NDArray[np.uint8], observed: Floats, tail: float, *, listed: bool = False) -> Floats:
        """Return each key's posterior mean, median, lower and upper end, in units, from its bits (columns × keys)."""
        threshold = self.law.survival
        return kernels.posterior(
            bits,
            self.ratio,
            self.whole,
            self.fraction,
            self.value,
            self.listed if listed else self.prior,
            self.dropped,
            observed,
            0.0 if threshold is None else threshold.rate,
            tail,
        )


def column_shares(table: Words) -> Floats:
    """Return the share of ones in each column of a table."""
    shares: Floats = np.bitwise_count(table).sum(axis=1, dtype=np.int64) / (64 * table.shape[1])
    return shares


def non_increasing(values: Floats) -> Floats:
    """Return the non-increasing sequence nearest to some values in least squares (pool adjacent violators).

    Examples
    --------
    >>> non_increasing(np.array([0.5, 0.25, 0.35, 0.1])).round(2).tolist()
    [0.5, 0.3, 0.3, 0.1]
    """
    sums: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        total, size = value, 1
        while sums and sums[-1] / sizes[-1] < total / size:
            total, size = total + sums.pop(), size + sizes.pop()
        sums.append(total)
        sizes.append(size)
    return np.repeat(np.array(sums) / np.array(sizes), sizes)


def predicted_error(law: SparseLaw, collisions: float) -> float:
    """Predict the standard deviation, in units, of the estimate of a value in the middle of the ALP part's range.

    Parameters
    ----------
    law : SparseLaw
        The parameters.
    collisions : float
        The probability that another key sets a bit.

    Notes
    -----
    The law of the bits is known, so some thousand keys are simulated; the draw is the same on every machine.
    """
    projection = law.projection
    flip = projection.flip
    crowded = flip + collisions * (1 - 2 * flip)
    reader = Reader.for_shares(law, np.full(projection.columns, crowded))
    keys = max(100, min(_SIMULATED, 2**21 // projection.columns))
    uniforms = _uniforms(keys * (projection.columns + 1)).reshape(projection.columns + 1, keys)
    middle = (projection.top if law.survival is None else law.survival.cutoff) // 2
    reached = np.floor(middle * projection.columns_a_unit + uniforms[-1])
    belongs = np.arange(projection.columns)[:, None] < reached
    bits = (uniforms[:-1] < np.where(belongs, 1 - flip, crowded)).astype(np.uint8)
    errors = reader.posterior(bits, np.full(keys, -1.0), 0.05)[:, 0] - middle
    return math.sqrt(float(np.mean(np.square(errors))))


def _uniforms(count: int) -> Floats:
    """Return numbers that look uniform: SplitMix64's stream from 0 (Steele, Lea and Flood 2014)."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mix(z) / 2.0**64
