"""Decode days from what a stream published, with their errors, and choose the design of a stream. All of it is public.

A stream publishes one vector of integers a day, all of it under noise of one law. A kind whose tables want noise of
different sizes has its tables enter the vector times different whole numbers: a table that enters sixteen times and is
divided by sixteen afterwards has a sixteenth of the noise, and lies sixteen times as far apart.

Two answers of one stream share noise: the total of last week is in the total of this one. Their variances do not add.
So an answer carries the weight that every published table of its stream has in it; sums and differences combine the
weights, and the variance follows from those.

**Designs.** The recurrences were found by minimising, over rates and gains, the mean squared error of totals
(``"totals"``), or 4·ln(totals) + ln(windows of 7 days) + ln(single days) of the mean squared errors (``"balanced"``),
the norm of c included; the bands by minimising that of windows of 7 days. Any falling c is private; better ones are
more accurate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats, Integers
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Derived, Drawn, Part, Receipt
from dpsketch.core.laws import Arrays, Law
from dpsketch.core.move import Table
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.files import Array
from dpsketch.laws.designs import LONGEST, Banded, Blocks, Contribution, Design, Filter, PanPrivate, Recurrence
from dpsketch.laws.streams import Found, Published, Seizable
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.numbers import whole_number
from dpsketch.privacy import Budget, Guarantee, PureCost


def weights(design: Design, first: int, last: int) -> Floats:
    """Return the weights of all tables published by day ``last`` whose sum is days ``first`` to ``last``."""
    match design:
        case Filter():
            return design.weights(first, last)
        case Blocks():
            return _LeastSquares(design).of(first, last)
        case _:
            raise TypeError(f"{type(design).__name__} has no decoding.")


def errors(design: Design, horizon: int, window: int | None = None) -> Floats:
    """Return the variance of totals, or of windows of a number of days, for noise of variance 1 in what is published.

    One for each day on which it can be asked: day 1, or day ``window``, to the last.
    """
    if not isinstance(design, Filter):
        days = range(window or 1, horizon + 1)
        return np.array([np.sum(weights(design, day - window + 1 if window else 1, day) ** 2) for day in days])
    decoded = design.response(horizon).copy()
    if window is None:
        return np.cumsum(decoded**2)
    decoded[window:] -= design.response(horizon)[: horizon - window]
    found: Floats = np.cumsum(decoded**2)[window - 1 :]
    return found


@dataclass(frozen=True, slots=True)
class _LeastSquares:
    """The decoding of blocks, over all that was published by the last day of the question.

    A block's own noise and that of the blocks in it are independent and of one variance.
    """

    design: Blocks

    def of(self, first: int, last: int) -> Floats:
        """Return the weights of least squares: for one block by all in it, and for a part of one, by all in it too."""
        weights, start = np.zeros(self.design.published(last)), 0
        for level in reversed(range(len(self.design.sizes))):
            while start + self.design.sizes[level] <= last:
                self._spread(weights, level, start // self.design.sizes[level], 1.0, 0.0, first - 1, last)
                start += self.design.sizes[level]
        return weights

    def _place(self, level: int, index: int) -> int:
        """Return the place of a block among all that are published."""
        return self.design.published((index + 1) * self.design.sizes[level] - 1) + level

    def _ratio(self, level: int) -> int:
        return self.design.sizes[level] // self.design.sizes[level - 1]

    def _variance(self, level: int) -> float:
        """Return the variance of a whole block's estimate by all in it; of its own publication, 1."""
        if level == 0:
            return 1.0
        inner = self._ratio(level) * self._variance(level - 1)
        return inner / (inner + 1)

    def _overlap(self, level: int, index: int, start: int, end: int) -> int:
        """Return how many of a block's days are in a window."""
        size = self.design.sizes[level]
        return max(0, min(end, (index + 1) * size) - max(start, index * size))

    def _covariance(self, level: int, index: int, start: int, end: int) -> float:
        """Return the covariance of a block's estimate with that of its part in a window."""
        overlap = self._overlap(level, index, start, end)
        if overlap in (0, self.design.sizes[level]):
            return self._variance(level) if overlap else 0.0
        ratio = self._ratio(level)
        inner = sum(self._covariance(level - 1, ratio * index + i, start, end) for i in range(ratio))
        return inner / (ratio * self._variance(level - 1) + 1)

    def _spread(
        self, weights: Floats, level: int, index: int, window: float, whole: float, start: int, end: int
    ) -> None:
        """Add ``window`` times the estimate of a block's part in a window, and ``whole`` times that of the block.

        The estimate of the block is Σ children + λ·(y − Σ children), and that of its part Σ parts + κ·(y − Σ children),
        with λ and κ the regression of either on the block's own publication y.
        """
        overlap = self._overlap(level, index, start, end)
        if overlap in (0, self.design.sizes[level]):
            whole, window = whole + (window if overlap else 0.0), 0.0
        if whole == window == 0:
            return
        if level == 0:
            weights[self._place(level, index)] += whole
            return
        share = self._variance(level) * whole
        if window:
            share += self._covariance(level, index, start, end) * window
        weights[self._place(level, index)] += share
        for i in range(self._ratio(level)):
            self._spread(weights, level - 1, self._ratio(level) * index + i, window, whole - share, start, end)


@stored
@dataclass(frozen=True, slots=True)
class Windowed(Derived):
    """A table of some days of a stream together, decoded.

    Attributes
    ----------
    publications : Published
        The stream's law.
    table : Table
        The table.
    noise : Noise
        A law with the variance of the noise in a decoded cell.
    """

    publications: Published
    table: Table
    noise: Noise

    def __post_init__(self) -> None:
        if self.table not in self.publications.stacked:
            raise InvalidInput("a window has the tables of its stream.")

    @property
    def laws(self) -> tuple[Law, ...]:
        """The stream's law."""
        return (self.publications,)

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is one table of finite numbers."""
        return set(arrays) == {"table"} and are_finite(arrays["table"], self.table.shape)


def are_finite(array: Array, shape: tuple[int, ...] | None) -> bool:
    """Say whether an array holds finite numbers and has a shape."""
    good = isinstance(array, np.ndarray) and array.dtype == np.float64 and shape in (None, array.shape)
    return good and bool(np.isfinite(array).all())


def are_weights(law: Published, array: Array, *, window: bool) -> bool:
    """Say whether an array holds the weights of a stream's publications in sums and differences of some of its days.

    With ``window`` they are those of some days in a row, each once, the last of which is the last that is there. Each
    day enters by a whole number. Weights that are too small would state too little noise, and are those of no days.
    """
    if not isinstance(array, np.ndarray) or not are_finite(array, (array.size,)):
        return False
    if not 0 < len(array) <= min(law.design.published(law.horizon), _MOST_WEIGHED // (1 + law.design.buffers)):
        return False
    with np.errstate(all="ignore"):
        days = law.design.days_in(array)
    if not (np.abs(days) < 2**31).all() or (np.abs(days - np.rint(days)) > _ROUNDING).any():
        return False
    if not window:
        return True
    first = int(np.argmax(days > 0.5))
    inside = np.arange(len(days)) >= first
    return bool(np.array_equal(np.rint(days), inside)) and len(array) == law.design.published(len(days))


def is_nothing(law: Published, weights: Array) -> bool:
    """Say whether weights are those of no publication, as where days are taken from themselves."""
    return bool(law.design.largest * np.abs(np.asarray(weights)).max() < _ROUNDING)


Marks = npt.NDArray[np.uint64]
# How far a day may seem to be from a whole number of times, by the rounding of weights.
_ROUNDING = 1e-6
# Maximum of weights times tables per day: to check more takes minutes, and real streams have fewer.
_MOST_WEIGHED = 2**31

# The table that wants the most noise enters this many times; others enter more often as they want less, rounded.
_STEPS = 8
_MOST_STEPS = 2**12
# What enters the vector stays below this; a design holds it to less.
_ROOM = 2**62
# A sum of fewer equal Laplace draws than this is nearer to one of them than to the normal law.
_FEW_DRAWS = 1.5
# Where a cell's variance is below this, rounding to integers is most of a rounded Gaussian's.
_LEAST_VARIANCE = 0.25
_NO_VARIANCE = 1e-12


def daily_shares(spec: Any, names: Sequence[Any] | None) -> dict[Table, float]:
    """Return the tables of a day with their shares of the budget.

    A table whose length the spec leaves open has one cell for each of the names; without names they are to be found.
    """
    found: dict[Table, float] = spec.shares()
    if names is None:
        return found
    cells = spec.cells_of(names)
    return {Table(each.name, (cells,), each.move.within(cells)): share for each, share in found.items()}


def law_class(tables: Iterable[Table], design: Design) -> type[Published]:
    """Return the law that publishes tables: one that finds names where a table's length is still open."""
    if any(table.shape is None for table in tables):
        return Found
    return Seizable if design.keeps_noise else Published


def scales_for(shares: Mapping[Table, float], *, pure: bool) -> tuple[int, ...]:
    """Return how many times each table enters a day's vector to get its share of the budget, about."""
    wants = [
        share / table.move.l1 if pure else math.sqrt(share / table.move.squared) for table, share in shares.items()
    ]
    scales = [min(_MOST_STEPS, round(_STEPS * want / min(wants))) for want in wants]
    common = math.gcd(*scales)
    return tuple(scale // common for scale in scales)


def joined(law: Published, tables: Mapping[str, Integers]) -> Integers:
    """Return a day's vector of its tables."""
    found = []
    for each, scale in zip(law.stacked, law.scales, strict=True):
        # Held before it is multiplied: a product that wraps round brings neighbours as far apart as can be.
        found.append(scale * np.clip(tables[each.name], -(_ROOM // scale), _ROOM // scale))
    return np.concatenate([each.ravel() for each in found]).reshape(law.shape)


def split(law: Published, vector: Floats) -> dict[str, Floats]:
    """Return the tables that a decoded vector is made of."""
    found, start = {}, 0
    flat = vector.ravel()
    for each, scale in zip(law.stacked, law.scales, strict=True):
        shape = (len(flat),) if each.shape is None else each.shape
        size = math.prod(shape)
        found[each.name] = flat[start : start + size].reshape(shape) / scale
        start += size
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """What of a stream's published tables is in an answer. Public.

    Attributes
    ----------
    stream : str
        What tells the stream from others: a digest of the first table that it published, of its terms and charge.
    law : Noise
        A draw of the noise in each cell of each published table, independent from table to table.
    weights : numpy.ndarray
        The weight of each published table, in the order of publication; of later ones it is 0.
    marks : numpy.ndarray of uint64
        Digests of the published tables, by which copies of a stream that went on apart are told; or none.
    draws : int
        The number of draws in each cell of each published table.
    """

    stream: str
    law: Noise
    weights: Floats
    marks: Marks = field(default_factory=lambda: np.zeros(0, np.uint64))
    draws: int = 1

    def __post_init__(self) -> None:
        self.weights.flags.writeable = False

    @property
    def variance(self) -> float:
        """The variance of the noise in a cell."""
        return self.draws * self.law.variance * float(np.sum(self.weights**2))

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
        return Stretch(self.stream, self.law, weights, longer, self.draws)


def combined(ours: Iterable[Stretch], theirs: Iterable[Stretch], sign: int) -> tuple[Stretch, ...]:
    """Return the stretches of a sum or difference, one for each stream."""
    found = {each.stream: each for each in ours}
    for each in theirs:
        nothing = Stretch(each.stream, each.law, np.zeros(0), draws=each.draws)
        found[each.stream] = found.get(each.stream, nothing).plus(each, sign)
    return tuple(found.values())


@dataclass(frozen=True, slots=True, eq=False)
class Publications:
    """All that was published by a day. Public.

    Attributes
    ----------
    name : str
        What tells the stream from others.
    law : Published
        What is published, and under which noise.
    day : int
        How many days were published.
    tables : sequence of numpy.ndarray
        What was published, in order; at least one.
    marks : numpy.ndarray of uint64
        A digest of each table, by which copies of a stream that went on apart are told; or none.
    names : sequence or None
        The names of the cells, where they have names: the keys of a public list, or those that were found.
    """

    name: str
    law: Published
    day: int
    tables: Sequence[Integers]
    marks: Marks
    names: Sequence[Any] | None = None

    def answer(self, first: int, last: int) -> tuple[Floats, Stretch]:
        """Return the sum of the days ``first`` to ``last``, decoded, and which noise it carries."""
        last = whole_number("last", last, low=1, high=self.day)
        first = whole_number("first", first, low=1, high=last)
        law, design = self.law, self.law.design
        marks = self.marks[: design.published(last)]
        stretch = Stretch(self.name, law.noise, weights(design, first, last), marks, law.draws)
        total = np.zeros(self.tables[0].shape)
        for weight, table in zip(stretch.weights.tolist(), self.tables, strict=False):
            if weight:
                total += weight * table
        return total, stretch


def mark_of(table: Integers) -> int:
    """Return a digest of a published table."""
    return int.from_bytes(hashlib.sha256(table.astype("<i8").tobytes()).digest()[:8], "little")


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Some days of a stream together, of which a kind makes a release. Public.

    Attributes
    ----------
    vector : numpy.ndarray
        Their sum, decoded.
    stretch : Stretch
        Which noise of the stream is in it.
    receipt : Receipt
        What was paid for the stream.
    guarantee : Guarantee
        That of the stream.
    published : Publications
        What it is made of.
    signed : bool
        Whether it is the difference of two windows.
    """

    vector: Floats
    stretch: Stretch
    receipt: Receipt
    guarantee: Guarantee
    published: Publications
    signed: bool = False

    @property
    def law(self) -> Published:
        """The stream's law."""
        (law,) = self.receipt.laws
        assert isinstance(law, Published)
        return law

    @property
    def tables(self) -> dict[str, Floats]:
        """The decoded tables by name."""
        return split(self.law, self.vector)

    def drawn(self) -> Drawn:
        """Return the window as a kind's release has it: a part for each table, decoded from the stream's law."""
        law, tables = self.law, self.tables
        parts = {
            each.name: Part(Windowed(law, each, window_law(self.stretch, scale)), {"table": tables[each.name]})
            for each, scale in zip(law.stacked, law.scales, strict=True)
        }
        return Drawn((self.receipt,), parts, self.guarantee)


def window_law(stretch: Stretch, scale: int = 1) -> Noise:
    """Return a law with the variance of the noise in an answer's cell: that of a weighted sum of many draws.

    A weighted sum of Gaussian draws is Gaussian. One of Laplace draws is nearly so, unless a single draw makes up most
    of it.
    """
    # None at all is left where a window is taken from itself, or where the noise rounds to nothing.
    variance = max(stretch.variance / scale**2, _NO_VARIANCE)
    squares = stretch.weights**2
    draws = stretch.draws * float(squares.sum()) ** 2 / max(float(np.sum(squares**2)), 1e-300)
    if isinstance(stretch.law, DiscreteLaplace) and draws < _FEW_DRAWS:
        # Of the variance 2a/(1 − a)² with a = exp(−ε).
        middle = 1 + 1 / variance
        return DiscreteLaplace(math.log(middle + math.sqrt(middle**2 - 1)), 1)
    return RoundedGaussian(math.sqrt(variance - 1 / 12 if variance > _LEAST_VARIANCE else variance))


Objective = Literal["balanced", "totals", "windows"]
DesignName = Literal["recurrence", "banded", "daily", "blocks", "tree", "pan-private"]

DAILY = Banded((1,))

# For streams of up to so many days: rates in units of 2**-20, gains in units of 2**-26.
_BALANCED = {
    30: ((707226, 962068), (12204090, 13986391)),
    365: ((815474, 1039150), (17687928, 6449628)),
    1_000: ((764262, 1018611, 1045634), (16143796, 4610961, 3237919)),
    10_000: ((816743, 1039276, 1048214), (17216678, 4010634, 1206476)),
}
_TOTALS = {
    30: ((378571, 950277), (10194012, 23722406)),
    365: ((553243, 952956, 1039991), (14234257, 11535624, 7823680)),
    1_000: ((684356, 1003126, 1045345), (18359953, 9728457, 4928206)),
    10_000: ((688698, 1003653, 1043879, 1048252), (18524171, 9538799, 3278357, 1569382)),
}
_GAIN_BITS = 26
# (scale, guard) by the longest horizon they suit: the floors then add about a thousandth to the noise (endless: 0.7%).
_PRECISION = {1_000: (14, 12), 10_000: (16, 14), LONGEST: (18, 12)}

# Of heavy units they may be coarser, down to these; gains then have ten bits.
_LEAST_SCALE, _LEAST_GUARD = 2, 8
# A design is chosen where so many of the heaviest records of one day fit into a cell.
_HEAVY_RECORDS = 2**20

_WINDOWS = (1024, 471, 331, 260, 213, 177, 146)
_BAND_SCALE = 1024
# A state that may be seized has so many tables, each of which a record enters: more have less noise in totals.
_SEIZABLE = {"balanced": 32, "totals": 64}

# How much each of totals, windows of 7 days and single days weighs.
_WEIGHTS: dict[str, tuple[int, int, int]] = {"balanced": (4, 1, 1), "totals": (1, 0, 0), "windows": (0, 1, 0)}

# Under pure ε: up to so many days plain daily tables have the smaller errors, up to so many two levels of blocks.
_PLAIN_DAYS = 48
_TWO_LEVELS = 2_000
# A design is judged over at most so many days.
_JUDGED = 10_000


def choose_design(
    budget: Budget,
    contribution: Contribution,
    horizon: int | None,
    *,
    objective: Objective = "balanced",
    name: DesignName | None = None,
) -> Design:
    """Return the design with the least error for an objective, or the one of a name.

    Parameters
    ----------
    budget : Budget
        δ = 0 allows blocks and daily tables only: correlated noise is Gaussian.
    contribution : Contribution
        What one unit adds. Where a user may be in every day nothing is gained by correlation, and days are published
        by themselves.
    horizon : int or None
        How many days; None without an end.
    objective : {"balanced", "totals", "windows"}
        Which answers should have the least noise.
    name : str, optional
        The design, where it is not to be chosen.
    """
    if objective not in _WEIGHTS:
        raise InvalidInput(f"objective is 'balanced', 'totals' or 'windows', not {objective!r}.")
    pure = isinstance(budget.cost, PureCost)
    # A single day has nothing to correlate: its state may be seized under Laplace noise as well.
    if pure and (name in ("recurrence", "banded") or (name == "pan-private" and horizon != 1)):
        raise InvalidInput("correlated noise is Gaussian, and needs delta > 0 or rho; with delta=0 blocks are best.")
    if name is None and pure:
        name = "daily" if objective == "windows" or (horizon is not None and horizon <= _PLAIN_DAYS) else "blocks"
    match name:
        case "daily":
            return DAILY
        case "tree":
            return Blocks.tree(_ended(horizon))
        case "blocks":
            return _blocks(_ended(horizon))
        case "banded":
            return _square_root(contribution.apart) if contribution.apart > 1 else Banded(_WINDOWS)
        case "recurrence":
            return _recurrence(contribution, horizon, "totals" if objective == "totals" else "balanced")
        case "pan-private":
            if horizon == 1:
                return PanPrivate((1,))
            kept = Banded(_WINDOWS) if objective == "windows" else _square_root(_SEIZABLE[objective])
            return PanPrivate(kept.bands[: LONGEST if horizon is None else horizon])
        case None:
            return min(_candidates(contribution, horizon, objective), key=_judge(contribution, horizon, objective))
        case _:
            names = "'recurrence', 'banded', 'daily', 'blocks', 'tree' or 'pan-private'"
            raise InvalidInput(f"design is {names}, or left out to be chosen; not {name!r}.")


def _candidates(contribution: Contribution, horizon: int | None, objective: Objective) -> list[Design]:
    windows = objective == "windows"
    found: list[Filter] = [Banded(_WINDOWS) if windows else _recurrence(contribution, horizon, objective)]
    if contribution.days > 1 and contribution.apart > 1:
        found.append(_square_root(contribution.apart))
    return [DAILY, *(design for design in found if design.limit >= _HEAVY_RECORDS * contribution.step)]


def _judge(contribution: Contribution, horizon: int | None, objective: Objective) -> Any:
    """Return what weighs a design: the logarithm of its mean squared errors, for one unit of μ."""
    days = min(_JUDGED, LONGEST if horizon is None else horizon)

    def judged(design: Design) -> float:
        noise = design.sensitivity(contribution, LONGEST if horizon is None else horizon).l2
        total = 0.0
        for weight, window in zip(_WEIGHTS[objective], (None, min(7, days), 1), strict=True):
            if weight:
                total += weight * math.log(noise**2 * float(np.mean(errors(design, days, window))))
        return total

    return judged


def _recurrence(contribution: Contribution, horizon: int | None, objective: Objective) -> Recurrence:
    days = LONGEST if horizon is None else horizon
    table = _TOTALS if objective == "totals" else _BALANCED
    rates, gains = table[next((known for known in table if days <= known), max(table))]
    scale, guard = _PRECISION[next(known for known in _PRECISION if days <= known)]
    # The coarser a unit's own step, the coarser the floors may be, and the larger the counts that fit.
    coarser = contribution.step.bit_length() - 1
    guard = max(_LEAST_GUARD, guard - max(0, coarser - (scale - _LEAST_SCALE)))
    scale = max(_LEAST_SCALE, scale - coarser)
    shift = _GAIN_BITS - scale - guard
    held = (gain >> shift if shift > 0 else gain << -shift for gain in gains)
    return Recurrence(rates, tuple(max(1, gain) for gain in held), scale, guard)


def _square_root(bands: int) -> Banded:
    """Return the first bands of the square root of the sums, (1 − z)^−½."""
    exact, found = 1.0, []
    for band in range(min(bands, _BAND_SCALE)):
        found.append(max(1, round(_BAND_SCALE * exact)))
        exact *= (2 * band + 1) / (2 * band + 2)
    return Banded(tuple(found))


def _blocks(days: int) -> Blocks:
    if days < _TWO_LEVELS:
        size = max(2, round(math.sqrt(days)))
        return Blocks((1, size) if size <= days else (1,))
    size = int(days ** (1 / 3))
    return Blocks((1, size, size * (size + 1)))


def _ended(horizon: int | None) -> int:
    if horizon is None:
        raise InvalidInput("blocks of days need an end: say days=, or a budget with delta > 0 or rho.")
    return horizon
