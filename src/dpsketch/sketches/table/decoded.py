"""From what a table published to numbers with intervals, for its own rows or for rows that are added up.

Both forms of noise come to the same few numbers for each row: a head count, centred totals of the linear columns, and
trees or draws of quantiles (:class:`Decoded`). Rows add up by adding these (:meth:`Decoded.rolled`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dpsketch.arrays import Floats, Integers
from dpsketch.core.laws import Arrays
from dpsketch.laws.bounds import Bounds
from dpsketch.laws.centred import CentredTable, column_of
from dpsketch.laws.corners import CELLS, CornerTable
from dpsketch.laws.groups import SCALE, Measure
from dpsketch.sketches.table import intervals
from dpsketch.sketches.table.calibration import CONFIDENCE
from dpsketch.sketches.table.columns import Column
from dpsketch.sketches.table.spec import TableSpec

__all__ = ["Answer", "Decoded", "decode"]

# Head counts are at least the lower end of an interval with this confidence, where quantiles rely on it.
_SURE = 0.999


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The numbers of one column: values and the ends of their intervals, by row."""

    value: Floats
    low: Floats
    high: Floats


def decode(spec: TableSpec, law: CentredTable | CornerTable, arrays: Arrays) -> Decoded:
    """Return what was published as numbers by row."""
    if isinstance(law, CentredTable):
        return Centred.of(spec, law, arrays)
    return Corners.of(spec, law, arrays)


@dataclass(frozen=True, slots=True, eq=False)
class Decoded(ABC):
    """What a table published, as numbers by row; the last row is that of all other groups.

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
    def total(self, measure: Measure, confidence: float) -> Answer:
        """Return the totals of a linear column."""

    @abstractmethod
    def mean(self, measure: Measure, confidence: float) -> Answer:
        """Return the means of a linear column."""

    @abstractmethod
    def quantiles(self, measure: Measure, shares: tuple[float, ...], confidence: float) -> list[Answer]:
        """Return quantiles of a column."""

    def _scaled(self, measure: Measure, found: tuple[Floats, Floats, Floats]) -> Answer:
        """Return means from their places between the bounds."""
        low, high, _ = self.ranges[measure]
        middle, half = (low + high) / 2, (high - low) / 2
        return Answer(*(middle + half * each for each in found))


@dataclass(frozen=True, slots=True, eq=False)
class Centred(Decoded):
    """What a table with Gaussian noise published.

    Attributes
    ----------
    records : int
        The number of a unit's records that count in one row.
    trees, tree_variances : dict
        By measure, the coefficients in units of users, and the variance of one by row.
    edges, domains : dict
        By measure, the inner edges of the leaves, and the least and largest value.
    listed : numpy.ndarray of bool
        Rows towards which others are shrunk.
    head_variance : callable
        Returns the variance of sums of published head counts, from their numbers.
    """

    records: int
    trees: dict[Measure, Floats]
    tree_variances: dict[Measure, Floats]
    edges: dict[Measure, Floats]
    domains: dict[Measure, tuple[float, float]]
    listed: Any
    head_variance: Callable[[Any], Floats]

    @classmethod
    def of(cls, spec: TableSpec, law: CentredTable, arrays: Arrays) -> Centred:
        """Read what was published."""
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

    def rolled(self, index: Integers, groups: int) -> Centred:
        """Return the sums of rows."""

        def added(values: Floats) -> Floats:
            return intervals.rollup(index, groups, values)

        return Centred(
            self.spec,
            added(self.users),
            self.head_variance(np.bincount(index, minlength=groups)),
            {measure: added(each) for measure, each in self.totals.items()},
            {measure: added(each) for measure, each in self.variances.items()},
            self.ranges,
            self.records,
            {measure: added(each) for measure, each in self.trees.items()},
            {measure: added(each) for measure, each in self.tree_variances.items()},
            self.edges,
            self.domains,
            np.ones(groups, np.bool_),
            self.head_variance,
        )

    def heads(self, confidence: float) -> tuple[Floats, Floats]:
        """Return the intervals of the head counts."""
        return intervals.normal(self.users, self.users_variance, confidence)

    def _counted(self, measure: Measure) -> tuple[Floats, Floats]:
        """Return what a mean is over, with the variance of its noise: users, or records that count."""
        if measure.kind != "record_mean":
            return self.users, self.users_variance
        (counts,) = (each for each in self.totals if each.kind == "count")
        value, variance, _, _ = self._total(counts, CONFIDENCE)
        return value, variance

    def _total(self, measure: Measure, confidence: float) -> tuple[Floats, Floats, Floats, Floats]:
        low, high, _ = self.ranges[measure]
        wide = high - low
        return intervals.total(
            wide * self.totals[measure],
            wide**2 * self.variances[measure],
            self.users,
            self.users_variance,
            (low, high),
            confidence,
        )

    def total(self, measure: Measure, confidence: float) -> Answer:
        """Return the totals of a linear column."""
        value, _, low, high = self._total(measure, confidence)
        return Answer(value, low, high)

    def mean(self, measure: Measure, confidence: float) -> Answer:
        """Return the means of a linear column."""
        counted = self._counted(measure)
        found = intervals.mean(self.totals[measure], self.variances[measure], *counted, confidence)
        return self._scaled(measure, found)

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
    """Where the draws of a quantile are, and how many units of privacy the ranks of its ends are shifted by."""

    place: int
    shift: float


@dataclass(frozen=True, slots=True, eq=False)
class Corners(Decoded):
    """What a table with corners published.

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
        To which row each published row was added, where rows were added up; None and 0 otherwise.
    own : Corners or None
        The published rows that were added up.
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
        """Read what was published."""
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

        def added(values: Floats) -> Floats:
            return intervals.rollup(index, groups, values)

        return Corners(
            self.spec,
            added(self.users),
            added(self.users_variance),
            {measure: added(each) for measure, each in self.totals.items()},
            {measure: added(each) for measure, each in self.variances.items()},
            self.ranges,
            self.noise,
            self.others_noise,
            self.cutoff,
            {},
            {},
            {},
            index,
            groups,
            self,
        )

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

    def _halves(self, measure: Measure, confidence: float) -> intervals.Halves | None:
        if self.cutoff is None:
            return None
        halves = intervals.corner_box(self.totals[measure], self.users, self.noise, self.cutoff, confidence)
        for box in halves:
            for end in box:
                end[-1] = np.nan  # the last row passed no cutoff
        return halves

    def _total(self, measure: Measure, confidence: float) -> tuple[Floats, Floats, Floats, Floats]:
        low, high, _ = self.ranges[measure]
        wide = high - low
        return intervals.total(
            wide * self.totals[measure],
            wide**2 * self.variances[measure],
            self.users,
            self.users_variance,
            (low, high),
            confidence,
            z=intervals.z_of(self.noise, confidence),
            halves=self._halves(measure, confidence),
        )

    def total(self, measure: Measure, confidence: float) -> Answer:
        """Return the totals of a linear column."""
        if self.own is None:
            value, _, low, high = self._total(measure, confidence)
            return Answer(value, low, high)
        value, variance, low, high = self.own._total(measure, intervals.halved(confidence))
        near = intervals.near_cutoff(self.own.users, self.noise, self.cutoff, confidence)
        near[-1] = False
        box = np.where(near, low, np.nan), np.where(near, high, np.nan)
        return Answer(intervals.rollup(self.index, self.groups, value), *self._added(value, variance, box, confidence))

    def mean(self, measure: Measure, confidence: float) -> Answer:
        """Return the means of a linear column."""
        z = intervals.z_of(self.noise, confidence)
        halves = self._halves(measure, confidence) if self.own is None else None
        found = intervals.mean(
            self.totals[measure],
            self.variances[measure],
            self.users,
            self.users_variance,
            confidence,
            z=z,
            halves=halves,
        )
        answer = self._scaled(measure, found)
        if self.own is None or self.cutoff is None:
            return answer
        # With rows near the cutoff: all quotients of a total and a head count within their intervals.
        half = intervals.halved(confidence)
        near = intervals.near_cutoff(self.own.users, self.noise, self.cutoff, confidence)
        near[-1] = False
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
