"""Compute numbers with intervals from a table's published arrays, for its own rows or for sums of rows.

Both forms of noise give the same few numbers for each row: a head count, centred totals of the linear columns, and
trees or draws of quantiles (:class:`Decoded`). Rows add up by adding these (:meth:`Decoded.rolled`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dpsketch.arrays import Floats, Integers
from dpsketch.core.laws import Arrays
from dpsketch.laws.bounds import Bounds
from dpsketch.laws.centred import CentredTable, column_of
from dpsketch.laws.corners import CELLS, CornerTable
from dpsketch.laws.groups import SCALE, Measure
from dpsketch.noise import DiscreteLaplace
from dpsketch.sketches.table import intervals
from dpsketch.sketches.table.calibration import CONFIDENCE
from dpsketch.sketches.table.columns import Column
from dpsketch.sketches.table.spec import DAY_USERS, TableSpec, day_column
from dpsketch.sketches.table.window import TableWindow

__all__ = ["Answer", "Decoded", "decode"]

# Head counts are at least the lower end of an interval with this confidence, where quantiles rely on it.
_SURE = 0.999


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The numbers of one column: values and the ends of their intervals, by row."""

    value: Floats
    low: Floats
    high: Floats


def decode(spec: TableSpec, law: CentredTable | CornerTable | TableWindow, arrays: Arrays) -> Decoded:
    """Decode published arrays into numbers by row."""
    match law:
        case CentredTable():
            return Centred.of(spec, law, arrays)
        case CornerTable():
            return Corners.of(spec, law, arrays)
        case TableWindow():
            return Centred.of_window(spec, law, arrays)


@dataclass(frozen=True, slots=True, eq=False)
class Decoded(ABC):
    """The published numbers of a table by row. The last row holds all other groups.

    Attributes
    ----------
    spec : TableSpec
        The public spec.
    users, users_variance : numpy.ndarray
        The head counts and the variances of their noise.
    totals, variances : dict
        By measure, centred totals in units of half widths, and the variances of their noise.
    ranges : dict
        By measure, the bounds.
    """

    spec: TableSpec
    users: Floats
    users_variance: Floats
    totals: dict[Measure, Floats]
    variances: dict[Measure, Floats]
    ranges: dict[Measure, Bounds]

    def answers(self, column: Column, confidence: float) -> list[Answer]:
        """Return the numbers of a column; one set for each quantile."""
        measure = self.spec.measure_of(column)
        if measure is None:
            return [Answer(self.users, *self.heads(confidence))]
        match measure.kind:
            case "quantiles":
                return self.quantiles(measure, column.shares, confidence)
            case "count" | "total" if column.kind != "mean":
                return [self.total(measure, confidence)]
            case _:
                return [self.mean(measure, confidence)]

    @abstractmethod
    def rolled(self, index: Integers, groups: int) -> Decoded:
        """Return the sums of rows: each row goes to the group of its index."""

    @abstractmethod
    def heads(self, confidence: float) -> tuple[Floats, Floats]:
        """Return the intervals of the head counts."""

    @abstractmethod
    def quantiles(self, measure: Measure, shares: tuple[float, ...], confidence: float) -> list[Answer]:
        """Return quantiles of a column."""

    def _z(self, confidence: float) -> float | None:
        """Return the half-width of an interval in standard deviations; None for that of the normal law."""
        return None

    def _halves(self, measure: Measure, confidence: float) -> intervals.Halves | None:
        """Return boxes of the rows near a cutoff."""
        return None

    def _counted(self, measure: Measure) -> tuple[Floats, Floats]:
        """Return the denominator of a mean, with the variance of its noise."""
        return self.users, self.users_variance

    def _total(self, measure: Measure, confidence: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the totals of a linear column, the variances of their noise, and the ends of their intervals."""
        low, high, _ = self.ranges[measure]
        wide = high - low
        return intervals.total(
            wide * self.totals[measure],
            wide**2 * self.variances[measure],
            self.users,
            self.users_variance,
            (low, high),
            confidence,
            z=self._z(confidence),
            halves=self._halves(measure, confidence),
        )

    def total(self, measure: Measure, confidence: float) -> Answer:
        """Return the totals of a linear column."""
        value, _, low, high = self._total(measure, confidence)
        return Answer(value, low, high)

    def mean(self, measure: Measure, confidence: float) -> Answer:
        """Return the means of a linear column."""
        low, high, _ = self.ranges[measure]
        middle, half = (low + high) / 2, (high - low) / 2
        found = intervals.mean(
            self.totals[measure],
            self.variances[measure],
            *self._counted(measure),
            confidence,
            z=self._z(confidence),
            halves=self._halves(measure, confidence),
        )
        return Answer(*(middle + half * each for each in found))

    def _sums(self, index: Integers, groups: int) -> dict[str, Any]:
        """Return the sums of rows, as fields that both forms of noise have."""
        return {
            "users": intervals.rollup(index, groups, self.users),
            "users_variance": intervals.rollup(index, groups, self.users_variance),
            "totals": _added_up(self.totals, index, groups),
            "variances": _added_up(self.variances, index, groups),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Centred(Decoded):
    """Published numbers with Gaussian noise.

    Attributes
    ----------
    records : int
        The number of a unit's records that count in one row.
    trees, tree_variances : dict
        By measure, the coefficients in units of users, and the variance of one by row.
    edges, domains : dict
        By measure, the inner edges of the leaves, and the least and largest value.
    listed : numpy.ndarray of bool
        Rows that estimates are shrunk towards.
    head_variance : callable
        Returns the variance of a sum of head counts, from their number.
    laplace : bool
        Whether the noise is a weighted sum of Laplace draws, as in a stream at δ = 0.
    """

    records: int
    trees: dict[Measure, Floats]
    tree_variances: dict[Measure, Floats]
    edges: dict[Measure, Floats]
    domains: dict[Measure, tuple[float, float]]
    listed: Any
    head_variance: Callable[[Any], Floats]
    laplace: bool = False

    @classmethod
    def of(cls, spec: TableSpec, law: CentredTable, arrays: Arrays) -> Centred:
        """Decode published arrays."""
        keys, records = law.rows_of_a_user(arrays), law.records_of_a_user(arrays)
        users = law.heads(arrays)
        totals, variances, ranges = {}, {}, {}
        trees, tree_variances, edges, domains = {}, {}, {}, {}
        for place, measure in enumerate(law.measures):
            column = np.asarray(arrays[column_of(place)], np.float64) / SCALE
            variance = np.full(len(users), law.under(law.noises[place], keys).variance / SCALE**2)
            if measure.kind == "quantiles":
                trees[measure], tree_variances[measure] = column, variance
                edges[measure] = law.edges(place, arrays)
                domains[measure] = law.shape(place, arrays).domain(measure.stated)
            else:
                # A mean over records is published as a part of the records that count.
                times = records if measure.kind == "record_mean" else 1
                totals[measure], variances[measure] = times * column, times**2 * variance
                ranges[measure] = law.range_of(place, arrays)
        variance = law.head_variance(keys, np.ones(len(users)))
        listed = np.arange(len(users)) < len(users) - 1
        found = spec, users, variance, totals, variances, ranges, records, trees, tree_variances, edges, domains
        return cls(*found, listed, partial(law.head_variance, keys))

    @classmethod
    def of_window(cls, spec: TableSpec, law: TableWindow, arrays: Arrays) -> Centred:
        """Decode some days of a stream."""
        columns = law.columns(arrays)
        users, variance = columns[DAY_USERS]
        totals, variances, ranges = {}, {}, {}
        for measure in spec.measures():
            assert measure.stated is not None
            totals[measure], each = columns[day_column(measure)]
            variances[measure] = np.full(len(users), each)
            ranges[measure] = Bounds(*measure.stated, None)
        listed = np.arange(len(users)) < len(users) - 1
        laplace = isinstance(law.publications.noise, DiscreteLaplace)
        return cls(
            spec, users, np.full(len(users), variance), totals, variances, ranges, records=1, trees={},
            tree_variances={}, edges={}, domains={}, listed=listed, head_variance=lambda rows: rows * variance,
            laplace=laplace,
        )  # fmt: skip

    def _z(self, confidence: float) -> float | None:
        """Return the half-width of an interval: a sum of Laplace draws lies between one of them and the normal law."""
        return intervals.z_of(intervals.LaplaceSum(1.0, 2), confidence) if self.laplace else None

    def rolled(self, index: Integers, groups: int) -> Centred:
        """Return the sums of rows."""
        return replace(
            self,
            **self._sums(index, groups) | {"users_variance": self.head_variance(np.bincount(index, minlength=groups))},
            trees=_added_up(self.trees, index, groups),
            tree_variances=_added_up(self.tree_variances, index, groups),
            listed=np.ones(groups, np.bool_),
        )

    def heads(self, confidence: float) -> tuple[Floats, Floats]:
        """Return the intervals of the head counts."""
        return intervals.normal(self.users, self.users_variance, confidence, z=self._z(confidence))

    def _counted(self, measure: Measure) -> tuple[Floats, Floats]:
        """Return the denominator of a mean, users or records that count, with the variance of its noise."""
        if measure.kind != "record_mean":
            return self.users, self.users_variance
        (counts,) = (each for each in self.totals if each.kind == "count")
        value, variance, _, _ = self._total(counts, CONFIDENCE)
        return value, variance

    def quantiles(self, measure: Measure, shares: tuple[float, ...], confidence: float) -> list[Answer]:
        """Return quantiles of a column, from its trees."""
        tree, variance, edges = self.trees[measure], self.tree_variances[measure], self.edges[measure]
        domain = self.domains[measure]
        value = intervals.quantile_estimates(
            shares, self.users, tree, variance, edges, domain, grid=measure.grid, pool=self.listed
        )
        low, high = intervals.quantile_intervals(
            shares, self.users, self.users_variance, tree, variance, edges, domain, confidence
        )
        value = np.clip(value, low, high)
        return [Answer(value[:, i], low[:, i], high[:, i]) for i in range(len(shares))]


class _Draws(NamedTuple):
    """Column of a quantile's draws, and the shift of its ends' ranks in units of privacy."""

    place: int
    shift: float


@dataclass(frozen=True, slots=True, eq=False)
class Corners(Decoded):
    """Published numbers with the Laplace noise of corners.

    Attributes
    ----------
    noise, others_noise : LaplaceSum
        The noise of a head count, and of that of the last row.
    cutoff : float or None
        The least head count that is listed.
    drawn : dict
        By measure, the drawn slots of listed rows.
    slots : dict
        By measure, where the cell of each slot begins and ends.
    asked : dict
        By measure, the quantiles that were drawn.
    index, groups
        Row to which each published row was added, and the number of rows; None and 0 for published rows.
    own : Corners or None
        The published rows of the sums; None for published rows.
    """

    noise: intervals.LaplaceSum
    others_noise: intervals.LaplaceSum
    cutoff: float | None
    drawn: dict[Measure, Integers]
    slots: dict[Measure, tuple[Floats, Floats]]
    asked: dict[Measure, dict[float, _Draws]]
    index: Any = None
    groups: int = 0
    own: Corners | None = None

    @classmethod
    def of(cls, spec: TableSpec, law: CornerTable, arrays: Arrays) -> Corners:
        """Decode published arrays."""
        cells = np.asarray(arrays[CELLS], np.float64) / law.corner
        count = cells.shape[1]
        others = law.cells if law.others is None else law.others
        single = np.full(len(cells), law.cells.variance / law.corner**2)
        single[-1] = others.variance / law.corner**2
        totals, ranges = {}, {}
        for place, measure in enumerate(law.measures):
            signs = np.where(np.arange(count) >> place & 1, 1.0, -1.0)
            totals[measure] = cells @ signs
            ranges[measure] = law.range_of(place, arrays)
        drawn, slots, asked = {}, {}, {}
        for place, measure in enumerate(law.quantiles):
            drawn[measure] = np.asarray(arrays[column_of(place)])
            slots[measure] = law.slot_values(place, arrays)
            draws = law.draws[place]
            asked[measure] = {
                float(share): _Draws(i, shift / draws.mass)
                for i, (share, shift) in enumerate(zip(draws.shares, draws.shifts, strict=True))
            }
        noise, last = (
            intervals.LaplaceSum(each.sensitivity / each.epsilon / law.corner, count, 1 / law.corner)
            for each in (law.cells, others)
        )
        cutoff = None if law.cutoff is None else law.cutoff / law.corner
        heads, variance = cells.sum(axis=1), count * single
        variances = dict.fromkeys(totals, variance)
        return cls(spec, heads, variance, totals, variances, ranges, noise, last, cutoff, drawn, slots, asked)

    def rolled(self, index: Integers, groups: int) -> Corners:
        """Return the sums of rows. Drawn quantiles do not add up."""
        sums = self._sums(index, groups)
        return replace(self, **sums, drawn={}, slots={}, asked={}, index=index, groups=groups, own=self)

    def heads(self, confidence: float) -> tuple[Floats, Floats]:
        """Return the intervals of the head counts."""
        if self.own is not None:
            box = intervals.head_box(self.own.users, self.noise, self.cutoff, intervals.halved(confidence))
            return self._added(self.own.users, self.own.users_variance, box, confidence)
        low, high = intervals.head_count(self.users, self.noise, self.cutoff, confidence)
        last = intervals.head_count(self.users[-1:], self.others_noise, None, confidence)
        low[-1], high[-1] = last[0][0], last[1][0]
        return low, high

    def _added(
        self, value: Floats, variance: Floats, box: tuple[Floats, Floats], confidence: float
    ) -> tuple[Floats, Floats]:
        """Return intervals of sums of rows, of which some have a box."""
        low, high = intervals.rollup_box(value, variance, box, self.index, self.groups, confidence, noise=self.noise)
        plain = intervals.normal(
            intervals.rollup(self.index, self.groups, value),
            intervals.rollup(self.index, self.groups, variance),
            confidence,
            z=intervals.z_of(self.noise, confidence),
        )
        without = np.isnan(low)
        return np.where(without, plain[0], low), np.where(without, plain[1], high)

    def _near(self, confidence: float) -> Any:
        """Say which rows lie near the cutoff; the last row passed none."""
        near = intervals.near_cutoff(self.users, self.noise, self.cutoff, confidence)
        near[-1] = False
        return near

    def _z(self, confidence: float) -> float | None:
        """Return the half-width of an interval in standard deviations."""
        return intervals.z_of(self.noise, confidence)

    def _halves(self, measure: Measure, confidence: float) -> intervals.Halves | None:
        """Return boxes of the rows near the cutoff; the last row passed none."""
        if self.cutoff is None or self.own is not None:
            return None
        halves = intervals.corner_box(self.totals[measure], self.users, self.noise, self.cutoff, confidence)
        for box in halves:
            for end in box:
                end[-1] = np.nan
        return halves

    def total(self, measure: Measure, confidence: float) -> Answer:
        """Return the totals of a linear column."""
        if self.own is None:
            return Decoded.total(self, measure, confidence)
        value, variance, low, high = self.own._total(measure, intervals.halved(confidence))
        near = self.own._near(confidence)
        box = np.where(near, low, np.nan), np.where(near, high, np.nan)
        return Answer(intervals.rollup(self.index, self.groups, value), *self._added(value, variance, box, confidence))

    def mean(self, measure: Measure, confidence: float) -> Answer:
        """Return the means of a linear column."""
        answer = Decoded.mean(self, measure, confidence)
        if self.own is None or self.cutoff is None:
            return answer
        # With rows near the cutoff: all quotients of a total and a head count within their intervals.
        half = intervals.halved(confidence)
        near = self.own._near(confidence)
        boxed = np.bincount(self.index, weights=near, minlength=self.groups) > 0
        least, most = self.heads(half)
        total, (bottom, top, _) = self.total(measure, half), self.ranges[measure]
        least, most = np.maximum(least, 1.0), np.maximum(most, 1.0)
        low = np.where(total.low < 0, total.low / least, total.low / most).clip(bottom, top)
        high = np.where(total.high > 0, total.high / least, total.high / most).clip(bottom, top)
        return Answer(answer.value, np.where(boxed, low, answer.low), np.where(boxed, high, answer.high))

    def quantiles(self, measure: Measure, shares: tuple[float, ...], confidence: float) -> list[Answer]:
        """Return quantiles of a column as they were drawn; none of the last row, nor of rows that were added up."""
        rows = len(self.users)
        if measure not in self.drawn:
            nothing = np.full(rows, np.nan)
            return [Answer(nothing, nothing, nothing) for _ in shares]
        starts, ends = self.slots[measure]
        # An end was drawn for a rank shifted by this number of records. Where a row may have fewer, it says nothing.
        head, _ = intervals.head_count(self.users, self.noise, self.cutoff, _SURE)
        found = []
        for share, draws in ((share, self.asked[measure][share]) for share in shares):
            value, low, high = self.drawn[measure][:, :, draws.place].T
            middle = (starts[value] + ends[value]) / 2
            if measure.grid is not None:
                middle = intervals.on_grid(middle, measure.grid)
            least, most = np.full(len(middle), starts[0]), np.full(len(middle), ends[-1])
            if confidence <= CONFIDENCE:
                least = np.where(share * head[:-1] < draws.shift, least, np.minimum(starts[low], middle))
                most = np.where((1 - share) * head[:-1] < draws.shift, most, np.maximum(ends[high], middle))
            found.append(Answer(*(np.append(each, np.nan) for each in (middle, least, most))))
        return found


def _added_up(columns: dict[Measure, Floats], index: Integers, groups: int) -> dict[Measure, Floats]:
    """Return the sums of rows of each column."""
    return {measure: intervals.rollup(index, groups, each) for measure, each in columns.items()}
