"""State the public spec of a RangeSketch, and map whole numbers to offsets in an ordered domain."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.columns import valid_rows
from dpsketch.core.codec import stored
from dpsketch.core.laws import Law
from dpsketch.core.move import Move, Table
from dpsketch.distributions import normal_quantile
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint, to_arrow
from dpsketch.numbers import hold_whole, probability, real_number, whole_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.countsketch.spec import CountSketchSpec
from dpsketch.sketches.heavy.spec import TreeNoise
from dpsketch.sketches.ranges.levels import Level, Silent, combined_variance, noise_variance, segments
from dpsketch.sketches.sketch import Parsed
from dpsketch.sketches.specs import DEFAULT_SEED, Spec

Outside = Literal["refuse", "clamp"]


@dataclass(frozen=True, slots=True)
class Domain:
    """The whole numbers from ``start`` to ``start + 2^bits − 1``.

    Attributes
    ----------
    bits : int
        Its size is a power of two.
    start : int
        The smallest value.
    outside : {"refuse", "clamp"}
        What happens to a value outside: the batch is refused, or the value counts as the nearest end.
    """

    bits: int
    start: int
    outside: Outside

    def __post_init__(self) -> None:
        hold_whole(self, "bits", low=1, high=64)
        hold_whole(self, "start", low=-(2**63), high=2**63 - 1)
        if self.end >= 2**64 or (self.start < 0 and self.end >= 2**63):
            raise InvalidInput("start and 2**bits must leave the domain within 64-bit integers, signed or unsigned.")
        if self.outside not in ("refuse", "clamp"):
            raise InvalidInput(f"outside is 'refuse' or 'clamp', not {self.outside!r}.")

    @property
    def end(self) -> int:
        """The largest value."""
        return self.start + (1 << self.bits) - 1

    def offsets(self, column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
        """Return each value's distance from the start; a null becomes some offset, to be left out by its place."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        found = np.zeros(len(column), np.uint64)
        place = 0
        for chunk in column.chunks:
            if not pa.types.is_null(chunk.type):
                found[place : place + len(chunk)] = self._shifted(*_numbers(chunk))
            place += len(chunk)
        return found

    def _shifted(self, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
        below, above = (values < self.start) & ~missing, (values > self.end) & ~missing
        if self.outside == "refuse" and (below.any() or above.any()):
            raise InvalidInput(
                f"a value lies outside [{self.start}, {self.end}]; nothing was added. Build the sketch with other "
                "bits= or start=, or with outside='clamp', which counts it as the nearest end."
            )
        # Modulo 2⁶⁴, which is exact for every value inside the domain.
        shifted = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
        shifted = shifted - np.uint64(self.start % 2**64)
        shifted[below] = 0
        shifted[above] = (1 << self.bits) - 1
        return shifted

    def offset(self, name: str, value: Any) -> int:
        """Return the distance from the start of a value that is asked for; refuse one outside."""
        return whole_number(name, value, low=self.start, high=self.end) - self.start


@dataclass(frozen=True, slots=True)
class DomainSpec(Spec):
    """A spec with fields ``bits``, ``start`` and ``outside``: keys are whole numbers of an ordered domain."""

    if TYPE_CHECKING:

        @property
        def bits(self) -> int:
            """The size of the domain is a power of two."""

        @property
        def start(self) -> int:
            """The smallest value."""

        @property
        def outside(self) -> Outside:
            """The treatment of a value outside."""

    @property
    def key_type(self) -> Literal["int"]:
        """The type of the keys."""
        return "int"

    @property
    def domain(self) -> Domain:
        """All values that can be counted."""
        return Domain(self.bits, self.start, self.outside)

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"of {self.bits} bits"

    def parse(self, records: Any) -> Parsed:
        """Read a column of values; they count by their distance from the start of the domain."""
        column = to_arrow(records, "int")
        return Parsed(fingerprint(column, "int"), self.domain.offsets(column))


def _numbers(chunk: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the values, 0 where one is missing, and where that is."""
    if pa.types.is_integer(chunk.type):  # fill_null and to_numpy would import pandas
        kind = np.dtype(chunk.type.to_pandas_dtype())
        values = np.frombuffer(chunk.buffers()[1] or b"", kind, len(chunk), chunk.offset * kind.itemsize)
        missing = ~valid_rows(chunk)
        return (np.where(missing, kind.type(0), values) if chunk.null_count else values), missing
    return chunk.fill_null(0).to_numpy(zero_copy_only=False), chunk.is_null().to_numpy(zero_copy_only=False)


TOTAL, DENSE, TABLES = "root", "levels", "tables"

# Levels of at most so many bits are kept cell by cell.
DENSE_BITS = 16
# Bits from one level to the next; see RangeSketchSpec.
LEVEL_BITS = 2
# Joint decoding takes out of a table what passes five standard errors; Huber's estimate has 95% of the mean's
# efficiency under Gaussian noise.
_STANDS_OUT = 5.0
_EFFICIENCY = 0.95
# Values at which a prediction is made: enough for the mean over all of them to be known to a few percent.
_POSITIONS = 1024


@dataclass(frozen=True, slots=True)
class RankError:
    """How far ranks will stray, predicted before anything is spent.

    Attributes
    ----------
    noise : float
        Standard deviation of a rank from the noise alone, root mean square over all values.
    typical : float
        The same with the collisions in the sketched levels, at their largest for the data that was guessed.
    largest : float
        What the error at any one value stays within with probability ``confidence``.
    confidence : float
        That probability.
    """

    noise: float
    typical: float
    largest: float
    confidence: float


@stored
@dataclass(frozen=True, slots=True)
class RangeSketchSpec(DomainSpec):
    """All that two RangeSketches must share to merge. Public.

    Attributes
    ----------
    bits : int
        Values are the 2^bits whole numbers from ``start`` on.
    unit : Unit
        Whose presence a release hides.
    rows, width : int
        Size of each sketched level's table; rows is odd. Not used up to 16 bits.
    start : int
        The smallest value.
    outside : {"refuse", "clamp"}
        What happens to a value outside the domain.
    level_bits : int
        Bits from one level to the next.
    seed : int
        The seed of the hash functions; it protects nothing and is published.
    grid : float
        Weights are rounded to multiples of it.

    Notes
    -----
    A tree whose nodes have 2^level_bits children each needs fewer levels, so each gets a larger share of the budget,
    but more siblings a level. With least squares, the standard deviation of a rank over 32 bits, in units of the noise
    that one counter alone would need, is 11.4, 11.2, 12.0, 13.4 and 29 for 1, 2, 3, 4 and 8 bits; the best possible for
    any linear method is about 8. An even split over the levels is within 1% of the best one.
    """

    bits: int
    unit: Unit
    rows: int = 7
    width: int = 4096
    start: int = 0
    outside: Outside = "refuse"
    level_bits: int = LEVEL_BITS
    seed: int = DEFAULT_SEED
    grid: float = 1

    def __post_init__(self) -> None:
        hold_whole(self, "level_bits", low=1, high=8)
        # The parts check what they share with this spec, and turn it into Python's numbers.
        domain = Domain(self.bits, self.start, self.outside)
        table = CountSketchSpec(self.rows, self.width, self.unit, self.seed, self.grid)
        for part, names in ((domain, ("bits", "start")), (table, ("rows", "width", "seed", "grid"))):
            for name in names:
                object.__setattr__(self, name, getattr(part, name))
        if self.sketched * self.rows * self.width > 2**31:
            raise InvalidInput("rows × width, times the sketched levels, must not pass 2**31 counters.")

    @property
    def depths(self) -> tuple[int, ...]:
        """How many leading bits the nodes of each level have, from the root's 0 to all."""
        first = self.bits % self.level_bits or self.level_bits
        return (0, *range(first, self.bits + 1, self.level_bits))

    @property
    def dense_depths(self) -> tuple[int, ...]:
        """The depths of the levels that are kept cell by cell."""
        return tuple(depth for depth in self.depths if depth <= DENSE_BITS)

    @property
    def table_depths(self) -> tuple[int, ...]:
        """The depths of the levels that are CountSketches."""
        return tuple(depth for depth in self.depths if depth > DENSE_BITS)

    @property
    def sketched(self) -> int:
        """How many levels are CountSketches."""
        return len(self.table_depths)

    @property
    def dense_cells(self) -> int:
        """Cells of all levels that are kept cell by cell."""
        return sum(1 << depth for depth in self.dense_depths)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of an empty sketch: the lowest dense level, whose sums are the others, and the tables."""
        tables = np.zeros((self.sketched, self.rows, self.width), np.int64)
        return {DENSE: np.zeros(1 << self.dense_depths[-1], np.int64), TABLES: tables}

    @property
    def memory(self) -> int:
        """Bytes of the tree while it counts; eight more for each user counted."""
        return 8 * ((1 << self.dense_depths[-1]) + self.sketched * self.rows * self.width)

    def tables(self) -> tuple[Table, ...]:
        """Return the root, the other levels kept cell by cell as one table, and the sketched levels as one.

        A unit has at most m values (1 where it is a record) of weight at most w each. At every level they may share
        one node, as values that lie close together do: so the worst case is one node that moves by mw, in each row of
        a sketched level. It is not clipped below that as a CountSketch clips a user, because users whose values lie
        close together would lose most of them, at some levels and not at others.
        """
        return tuple(self.shares())

    def shares(self) -> dict[Table, float]:
        """Return the tables with their shares of a budget: every level gets the same."""
        keys, most = self.unit.max_keys, self.weight_grid.max_units * self.unit.max_keys
        part, levels, sketched = 1 / len(self.depths), len(self.dense_depths) - 1, self.sketched
        level = Move.heaped(keys, most)
        found = {
            Table(TOTAL, (1,), Move.heaped(1, most)): part,
            Table(DENSE, (self.dense_cells - 1,), level.stacked(levels)): levels * part,
        }
        if sketched:
            table = Move(self.rows * most, self.rows * most**2, self.rows * keys, most, signed=True)
            found[Table(TABLES, (sketched, self.rows, self.width), table.stacked(sketched))] = sketched * part
        return found

    def daily(self) -> RangeSketchSpec:
        """Return the spec of a stream's day, whose domain has ends: one record must not keep a day from coming."""
        return replace(self, outside="clamp")

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words; a stream publishes all tables under one law."""
        if len(laws) == 1:
            return laws[0].words
        noise = range_noise(laws)
        words = f"a tree of {len(self.depths)} levels: {noise.dense.words} on each of the cells"
        return f"{words}, {noise.leaf.words} on each of the tables" if self.sketched else words

    def _errors(self, laws: tuple[Any, ...]) -> tuple[float, float]:
        noise = range_noise(laws)
        predicted, _ = self._rank_errors(noise, 0.0, None)
        return self.grid * math.sqrt(noise.dense.variance), self.grid * predicted

    def expect(self, *, records: float, keys: int, **budget: Any) -> dict[str, float]:
        """Say in a number what a release is worth for so many records, spread over so many values."""
        return {"error_of_a_rank": self.predict_rank_error(records=records, span=float(keys), **budget).typical}

    def predict_rank_error(
        self,
        *,
        records: float,
        span: float | None = None,
        confidence: float = 0.95,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
    ) -> RankError:
        """Predict how far ranks, and with them quantiles, will stray, before anything is spent.

        Parameters
        ----------
        records : float
            A guess at the number of records.
        span : float, optional
            A guess at how many consecutive values most records are spread over, about evenly. None: the worst that the
            data may do, which for many records is pessimistic.
        confidence : float
            For the bound on the error at one value.
        epsilon, delta, rho : float
            The budget, as for ``release``.

        Accuracy
        --------
        Up to 16 bits there are no collisions, and the figures are exact. Beyond, nodes that pass five standard errors
        are taken out of their table, so those that collide have at most that much each, or what ``span`` leaves them.
        """
        confidence = probability("confidence", confidence)
        records = real_number("records", records)
        span = None if span is None else real_number("span", span)
        for name, guess in (("records", records), ("span", 1.0 if span is None else span)):
            if not 0 < guess < math.inf:
                raise InvalidInput(f"{name} must be a positive number.")
        noise = range_noise(self.laws(Budget(epsilon, delta, rho)))
        alone, _ = self._rank_errors(noise, 0.0, None)
        typical, largest = self._rank_errors(noise, records * self.weight_grid.one, span)
        reach = normal_quantile(confidence) * largest
        return RankError(self.grid * alone, self.grid * typical, self.grid * reach, confidence)

    def _rank_errors(self, noise: TreeNoise, mass: float, span: float | None) -> tuple[float, float]:
        """Return the mean and the largest standard deviation of a rank, in counters."""
        steps = np.arange(1, _POSITIONS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        places = steps >> np.uint64(64 - self.bits)
        found = segments(self._silent(noise, mass, span), places, places)
        _, variances = found.combined(np.tile([1.0, 1.0, 0.0], (_POSITIONS, 1)))
        return math.sqrt(float(variances.mean())), math.sqrt(float(variances.max()))

    def _silent(self, noise: TreeNoise, mass: float, span: float | None) -> list[Level]:
        levels: list[Level] = []
        for depth in self.table_depths[::-1]:
            nodes = None if span is None else max(1.0, span / 2.0 ** (self.bits - depth))
            variance = self._table_variance(noise, mass, nodes)
            levels.append(Silent(depth, variance, variance))
        below: Silent | None = None
        for depth in self.dense_depths[::-1]:
            own = noise_variance(noise.dense if depth else noise.total)
            known = own
            if below is not None:
                known = combined_variance(own, 2.0 ** (below.depth - depth) * below.sibling_variance)
            below = Silent(depth, own, known)
            levels.append(below)
        return levels[::-1]

    def _table_variance(self, noise: TreeNoise, mass: float, nodes: float | None) -> float:
        """Return the mean square error of a node's estimate: noise, and what is left in the table to collide.

        A mass in pieces of a size each puts mass·size/width into the square of a cell. The size is at most five
        standard errors s, whence s² = noise + s·5·mass/(rows·width); over so many nodes it is that of a Poisson law.
        """
        alone = noise_variance(noise.leaf) / (_EFFICIENCY * self.rows)
        crowd = mass / (self.rows * self.width)
        half = _STANDS_OUT * crowd / 2
        worst = (half + math.sqrt(half**2 + alone)) ** 2
        return worst if nodes is None else min(worst, alone + crowd * (self.weight_grid.one + mass / nodes))


def range_noise(laws: Iterable[Any]) -> TreeNoise:
    """Return the noise of the laws of a tree of ranges; without sketched levels theirs is that of the cells."""
    found = {law.name: law.noise for law in laws}
    table = found.get(TABLES, found[DENSE])
    return TreeNoise(total=found[TOTAL], dense=found[DENSE], inner=table, leaf=table)
