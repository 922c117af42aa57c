"""Count whole numbers in a sensitive RangeSketch, and answer ranges and quantiles from its release."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from dpsketch import plots
from dpsketch._compiled import countsketch as kernels
from dpsketch._compiled.heavy import add_units
from dpsketch.arrays import Floats, Integers, Words, read_only
from dpsketch.core.contributions import Cells
from dpsketch.distributions import normal_quantile, widening
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType, row_keys
from dpsketch.noise import DiscreteLaplace
from dpsketch.numbers import probability, real_number, whole_number
from dpsketch.privacy import Unit
from dpsketch.release import SketchRelease, require_keys
from dpsketch.results import Estimate, Estimates, key_list
from dpsketch.sketches.countsketch.addition import spread
from dpsketch.sketches.countsketch.estimates import fourth_cumulant
from dpsketch.sketches.heavy.spec import TreeNoise
from dpsketch.sketches.ranges.levels import (
    Level,
    Nodes,
    Segments,
    cell_levels,
    first_reached,
    noise_variance,
    outer_ends,
    prefix_prints,
    segments,
    table_levels,
)
from dpsketch.sketches.ranges.spec import DENSE, LEVEL_BITS, TABLES, TOTAL, Outside, RangeSketchSpec
from dpsketch.sketches.sketch import Entries, Parsed, Sketch
from dpsketch.sketches.specs import DEFAULT_SEED, fingerprint_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Queries a round; their paths fill a few megabytes.
_CHUNK = 1 << 14
# A search looks at some values only, and misses up to one quantile in a hundred that all of them would show where many
# records share a value. So the ends of a quantile's interval are looked for with errors so much larger.
_SEARCHED = 1.05


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile with its interval, in the values' own unit.

    Attributes
    ----------
    share : float
        The share asked for: 0.5 for the median.
    value : int
        The estimate: about this share of the records lie at or below it.
    low, high : int or None
        The ends of its interval; None where the release has no interval.
    rank_error : float
        Half-width of the interval for the number of records at or below ``value``, less ``share`` of all.
    confidence : float
        The probability with which the interval covers the true quantile.
    """

    share: float
    value: int
    low: int | None
    high: int | None
    rank_error: float
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """Return the quantile as JSON-ready values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, eq=False)
class PrivateRanges(SketchRelease):
    """A released tree of intervals.

    Its tables hold integers, or real numbers in an answer of a stream (:class:`~dpsketch.ContinualSketch`).
    """

    kind: ClassVar[str] = "ranges"
    spec_type: ClassVar[Any] = RangeSketchSpec

    spec: RangeSketchSpec

    @cached_property
    def dense(self) -> npt.NDArray[Any]:
        """The released levels that are kept cell by cell, one after the other from the root on."""
        return read_only(np.concatenate([self.drawn.table(TOTAL), self.drawn.table(DENSE)]))

    @cached_property
    def tables(self) -> npt.NDArray[Any]:
        """The released CountSketches of the levels below, levels × rows × width."""
        if not self.spec.sketched:
            return np.zeros((0, self.spec.rows, self.spec.width), np.int64)
        return cast("npt.NDArray[Any]", self.drawn.table(TABLES))

    @cached_property
    def noise(self) -> TreeNoise:
        """The noise in each part."""
        noises = {name: self.drawn.noise(name) for name in self.drawn.parts}
        table = noises.get(TABLES, noises[DENSE])
        return TreeNoise(total=noises[TOTAL], dense=noises[DENSE], inner=table, leaf=table)

    def __repr__(self) -> str:
        return f"<PrivateRanges of {self.spec.bits} bits, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    @cached_property
    def _levels(self) -> list[Level]:
        """The tree made ready to be asked; kept, because decoding the tables takes a second or so."""
        depths = self.spec.dense_depths
        laws = [self.noise.dense if depth else self.noise.total for depth in depths]
        counters = np.split(self.dense, np.cumsum([1 << depth for depth in depths])[:-1])
        variances, fourths = [noise_variance(law) for law in laws], [fourth_cumulant(law) for law in laws]
        cells = cell_levels(counters, depths, variances, fourths)
        keys, below = level_keys(self.spec), self.spec.table_depths
        return [*cells, *table_levels(self.tables, below, keys, self.noise.leaf, cells[-1])]

    def range(self, low: int, high: int, *, confidence: float = 0.95) -> Estimate:
        """Estimate how many records have a value from ``low`` to ``high``, both included."""
        found = self.ranges([low], [high], confidence=confidence)
        return _first(found)

    def ranges(self, lows: Any, highs: Any, *, confidence: float = 0.95) -> Estimates:
        """Estimate many ranges at once; the keys of the result are the pairs (low, high).

        Accuracy
        --------
        The estimate is linear and has no bias. Its interval allows for noise, with the heavier tails of few Laplace
        draws, and for the collisions in the sketched levels, whose spread is read off the release.
        """
        confidence = probability("confidence", confidence)
        first, last = self._offsets("lows", lows), self._offsets("highs", highs)
        if len(first) != len(last):
            raise InvalidInput(f"lows and highs must be equally many, not {len(first)} and {len(last)}.")
        if np.any(first > last):
            raise InvalidInput("a range must not end before it begins: low is at most high.")
        whole = np.uint64((1 << self.spec.bits) - 1)
        from_start, to_end = first == 0, last == whole
        # A range that reaches an end of the domain has one cut only, and one path to follow.
        path_low = np.where(from_start, last, first)
        path_high = np.where(to_end, path_low, last)
        weights = np.column_stack([from_start, np.ones(len(first)), to_end]).astype(np.float64)
        reach = normal_quantile(confidence)
        values, errors = self._combined(path_low, path_high, weights, reach)
        half = reach * errors
        keys = list(zip(key_list(lows), key_list(highs), strict=True))
        return Estimates(keys, values, values - half, values + half, confidence, self.counts)

    def rank(self, value: int, *, confidence: float = 0.95) -> Estimate:
        """Estimate how many records have at most this value."""
        return _first(self.ranks([value], confidence=confidence))

    def ranks(self, values: Any, *, confidence: float = 0.95) -> Estimates:
        """Estimate how many records have at most each of these values."""
        asked = key_list(values)
        found = self.ranges([self.spec.start] * len(asked), asked, confidence=confidence)
        return Estimates(asked, found.value, found.low, found.high, found.confidence, self.counts)

    def total(self, *, confidence: float = 0.95) -> Estimate:
        """Estimate how many records there are."""
        return self.range(self.spec.start, self.spec.domain.end, confidence=confidence)

    def quantile(self, share: float, *, confidence: float = 0.95) -> Quantile:
        """Estimate the value that this share of the records lie at or below: 0.5 gives the median."""
        return self.quantiles([share], confidence=confidence)[0]

    def quantiles(self, shares: Any, *, confidence: float = 0.95) -> list[Quantile]:
        """Estimate many quantiles; a larger share never has a smaller value.

        Accuracy
        --------
        A value v is a quantile where R(v − 1) ≤ 0 ≤ R(v), R(x) = (records ≤ x) − share·(all records). R is estimated
        without bias, with a known error, so the interval reaches over the values that R, within its error, allows.
        Where the share falls between two values, both are quantiles, and the interval covers both (see
        :mod:`~dpsketch.sketches.ranges.levels`).
        """
        confidence = probability("confidence", confidence)
        asked = [_share(share) for share in key_list(shares)]
        reach = normal_quantile(confidence)
        parts = np.array(asked, dtype=np.float64)
        last = (1 << self.spec.bits) - 1
        start, end = np.zeros(len(asked), np.uint64), np.full(len(asked), last, np.uint64)
        wide, balance = _SEARCHED * reach, partial(self._balance, reach)
        value, low, high = (first_reached(balance, parts, lean, start, end) for lean in (0.0, wide, -wide))
        low, high = outer_ends(balance, parts, low, high, wide, last)
        _, errors = balance(value, parts)
        places = ([self.spec.start + int(place) for place in found.tolist()] for found in (value, low, high))
        return [
            Quantile(share, middle, least, most, reach * float(error), confidence)
            for share, middle, least, most, error in zip(asked, *places, errors, strict=True)
        ]

    def _balance(self, reach: float, places: Nodes, shares: Floats) -> tuple[Floats, Floats]:
        """Return R = (records at or below a place) − share·(all records), with its error."""
        return self._combined(places, places, np.column_stack([1 - shares, 1 - shares, -shares]), reach)

    def _combined(self, low: Nodes, high: Nodes, weights: Floats, reach: float) -> tuple[Floats, Floats]:
        """Return weighted sums of what lies left of, in and right of ranges, with errors.

        An error is a standard error, widened so that the interval has ``reach`` of them.
        """
        values, errors = np.empty(len(low)), np.empty(len(low))
        for start in range(0, len(low), _CHUNK):
            some = slice(start, start + _CHUNK)
            found: Segments = segments(self._levels, low[some], high[some])
            values[some], variances = found.combined(weights[some])
            errors[some] = np.sqrt(variances)
            if isinstance(self.noise.dense, DiscreteLaplace):
                fourth, step = found.drawn(weights[some])
                excess = fourth / np.maximum(variances, 1e-150) ** 2
                # Draws are whole numbers: where they are hardly more than that, half of one is needed as well.
                errors[some] = errors[some] * widening(reach, excess) + 0.5 * step / reach
        return self.spec.grid * values, self.spec.grid * errors

    def _offsets(self, name: str, values: Any) -> Nodes:
        """Read values that are asked for, as distances from the domain's start."""
        domain = self.spec.domain
        return np.array([domain.offset(name, value) for value in key_list(values)], dtype=np.uint64)

    def plot(self, *, points: int = 400) -> Figure:
        """Draw how many records have at most each value, with its band, over the middle of the data."""
        points = whole_number("points", points, low=2, high=10**6)
        first, last = (one.value for one in self.quantiles([0.01, 0.99]))
        margin = max(1, (last - first) // 10)
        low, high = max(self.spec.start, first - margin), min(self.spec.domain.end, last + margin)
        values = sorted({low + (high - low) * i // (points - 1) for i in range(points)})
        found, places = self.ranks(values), np.array(values, np.float64)
        words = "records with at most this value"
        return plots.curve(places, found.value, found.low, found.high, "value", words, self.title("cumulative counts"))

    def ask(self, asked: Any, confidence: float) -> Estimates:
        """Return the quantile of a share, or how many lie in a range (low, high)."""
        if isinstance(asked, tuple):
            low, high = asked
            return self.ranges([low], [high], confidence=confidence)
        found = self.quantile(asked, confidence=confidence)
        value, low, high = (np.array([each], dtype=np.float64) for each in (found.value, found.low, found.high))
        return Estimates([asked], value, low, high, confidence, self.counts)

    def question(self, text: str | int, key_type: KeyType | None = None) -> tuple[int, int] | float:
        """Return a share, or a pair (low, high), as in 50% or 10:20."""
        return range_or_share(str(text))

    def question_words(self, asked: Any) -> str:
        """Return a question in words, for a picture."""
        return f"{asked[0]} to {asked[1]}" if isinstance(asked, tuple) else f"{asked:.4g} quantile"

    def subtracts(self, asked: Any) -> bool:
        """Say yes of a range; a quantile is no difference, and a sketch is decoded as one of counts, not of changes."""
        return isinstance(asked, tuple) and not self.spec.sketched

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Answer ranges (low:high) by counts and percentages (50%) by quantiles: all of each in one search."""
        require_keys(asked)
        written = [str(one) for one in asked]
        wanted = [range_or_share(text) for text in written]
        pairs = [one for one in wanted if isinstance(one, tuple)]
        counts = self.ranges([low for low, _ in pairs], [high for _, high in pairs], confidence=confidence)
        counted = zip(counts.value, counts.low, counts.high, strict=True)
        quantiles = iter(self.quantiles([one for one in wanted if isinstance(one, float)], confidence=confidence))
        found = np.empty((len(asked), 3))
        for row, one in enumerate(wanted):
            if isinstance(one, tuple):
                found[row] = next(counted)
            else:
                quantile = next(quantiles)
                found[row] = quantile.value, quantile.low, quantile.high
        return Estimates(written, found[:, 0], found[:, 1], found[:, 2], confidence, self.counts)

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        quartiles = self.quantiles([0.25, 0.5, 0.75])
        return {
            "levels": len(self.spec.depths),
            "noise_scale": self.spec.grid * math.sqrt(self.noise.dense.variance),
            "records": self.total().to_json(),
            "quartiles": [one.to_json() for one in quartiles],
        }


def level_keys(spec: RangeSketchSpec) -> npt.NDArray[np.uint64]:
    """Return the keys of the tables' rows, levels × rows."""
    return row_keys(spec.seed, spec.rows * spec.sketched, "ranges").reshape(-1, spec.rows)


def _first(found: Estimates) -> Estimate:
    return Estimate(float(found.value[0]), float(found.low[0]), float(found.high[0]), found.confidence, found.counts)


def _share(share: Any) -> float:
    number = real_number("a quantile's share", share)
    if not 0 <= number <= 1:
        raise InvalidInput("a quantile is asked by a share between 0 and 1, as 0.5 for the median.")
    return float(number)


def range_or_share(text: str) -> tuple[int, int] | float:
    """Read low:high, or a percentage as a share."""
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        low, colon, high = text.partition(":")
        if colon:
            return int(low), int(high)
    except ValueError:
        pass
    raise InvalidInput("ask ranges as low:high (whole numbers) and quantiles as 50%.")


# Records a block: all levels of a block are filled before the next one is read.
_BLOCK = 1 << 16


class RangeSketch(Sketch[RangeSketchSpec, PrivateRanges]):
    """The sensitive sketch: takes whole numbers, merges, and is released once its budget is charged.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``, where a user's keys are their different values.
    bits : int
        Values are the 2^bits whole numbers from ``start`` on. Up to 16 bits every node of the tree has a counter of its
        own; beyond, levels are CountSketches. Take no more bits than the values have: each level wants its share.
    rows, width : int, optional
        Size of each sketched level's table; rows must be odd.
    start : int, optional
        The smallest value; may be negative.
    outside : {"refuse", "clamp"}, optional
        A value outside the domain has its batch refused, or counts as the nearest end. The domain must come from public
        knowledge, never from the data.
    level_bits : int, optional
        Bits from one level of the tree to the next. 2 is best for Gaussian noise, 4 for pure privacy (δ = 0).
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    grid : float, optional
        Step to which weights are rounded; 1 by default, which takes whole weights only.

    Privacy
    -------
    δ > 0: rounded Gaussian noise on every level, analytically calibrated; δ = 0: discrete Laplace noise. See
    :meth:`RangeSketchSpec.tables` for the bounds; every level gets the same share.
    Ranges and quantiles are post-processing and cost nothing, however many are asked.

    Examples
    --------
    >>> import dpsketch as dps
    >>> ages = RangeSketch(unit=dps.per_record(), bits=7)
    >>> ages.update(list(range(20, 60)) * 500)
    >>> private = ages.release(epsilon=1.0, delta=1e-6)
    >>> 38 <= private.quantile(0.5).value <= 40
    True
    """

    kind: ClassVar[str] = "ranges"
    spec_type: ClassVar[Any] = RangeSketchSpec
    release_type: ClassVar[Any] = PrivateRanges

    def __init__(
        self,
        *,
        unit: Unit,
        bits: int = 32,
        rows: int = 7,
        width: int = 4096,
        start: int = 0,
        outside: Outside = "refuse",
        level_bits: int = LEVEL_BITS,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
    ) -> None:
        self._start(RangeSketchSpec(bits, unit, rows, width, start, outside, level_bits, seed, grid))
        self._spec.weight_grid.refuse_without_one()

    def _start(self, spec: RangeSketchSpec) -> None:
        super()._start(spec)
        self._row_keys = level_keys(spec)

    def _parse(self, records: Any) -> Parsed:
        return self._spec.parse(records)

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        self._check_sample(entries)
        return partial(self._add_values, entries.values, entries.amounts)

    def _add_values(self, offsets: Words, units: Integers) -> None:
        """Add values to the lowest dense level and to every sketched level, block by block."""
        spec = self._spec
        for start in range(0, len(offsets), _BLOCK):
            block, amounts = offsets[start : start + _BLOCK], units[start : start + _BLOCK]
            cells = block >> np.uint64(spec.bits - spec.dense_depths[-1])
            add_units(self._arrays[DENSE], cells.astype(np.int64), amounts)
            for table, depth, keys in zip(self._arrays[TABLES], spec.table_depths, self._row_keys, strict=True):
                prints = prefix_prints(block >> np.uint64(spec.bits - depth))
                kernels.add_weighted(table, prints, keys, amounts)

    def _spread(self, entries: Entries) -> dict[str, Cells]:
        spec, offsets, units, starts = self._spec, entries.values, entries.amounts, entries.starts
        depths = np.array(spec.dense_depths[1:], np.uint64)
        nodes = (offsets[:, np.newaxis] >> (np.uint64(spec.bits) - depths)).astype(np.int64)
        above = np.cumsum(np.uint64(1) << depths) - (np.uint64(1) << depths)
        found = {
            TOTAL: Cells.of(np.zeros((len(units), 1), np.int64), units, starts),
            DENSE: Cells.of(nodes + above.astype(np.int64), units, starts),
        }
        if spec.sketched:
            levels = [(prefix_prints(offsets >> np.uint64(spec.bits - depth)), units) for depth in spec.table_depths]
            found[TABLES] = spread(levels, self._row_keys, spec.width, starts)
        return found

    def _exact(self) -> dict[str, Integers]:
        """Return the exact tables by name; dense levels stand one after the other. Sensitive."""
        lowest = self._arrays[DENSE]
        levels = np.concatenate([lowest.reshape(1 << depth, -1).sum(axis=1) for depth in self._spec.dense_depths])
        return {TOTAL: levels[:1], DENSE: levels[1:], TABLES: self._arrays[TABLES]}
