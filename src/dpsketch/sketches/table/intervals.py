"""Estimates and intervals of a table, computed from its published numbers.

A row has a head count n (its users or records) and, for each linear column, a centred total y with |y| ≤ n in units
of half the column's range. Both carry noise. Quantile columns have Haar coefficients.

A row that was listed because its head count reached a cutoff needs care: the lower the true count, the more its noise
went upwards. Such rows get a *box*: a pair of arrays ``(low, high)`` with one entry for each row, and NaN for rows
far above the cutoff. :func:`head_box` and :func:`corner_box`
make boxes, :func:`rollup_box` adds them. A box and the noise beside it each get half of the allowance α = 1 −
confidence; see :func:`halved`.

All functions work on all rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats, Integers, read_only
from dpsketch.distributions import normal_quantile
from dpsketch.errors import InvalidInput

__all__ = [
    "Box", "Halves", "LaplaceSum", "corner_box", "halved", "head_box",
    "head_count", "mean", "near_cutoff", "normal", "quantile_estimates", "quantile_intervals", "rollup", "rollup_box",
    "total", "z_of",
]  # fmt: skip

Box: TypeAlias = tuple[Floats, Floats]
Flags: TypeAlias = npt.NDArray[np.bool_]

# Rows up to this number of standard deviations above the cutoff get a box.
_NEAR = 6.0
# Number of bisection steps; they narrow a bracket of some deviations to about 1e-11 of them.
_HALVINGS = 44
# No level of a tree has groups that differ less than this from the overall ones, in variance of (left − right)/all.
_LEAST_SPREAD = 1e-4
# That variance where too few nodes stand out from the noise to estimate it.
_USUAL_SPREAD = 0.02
_FEWEST_NODES = 5


@dataclass(frozen=True, slots=True)
class LaplaceSum:
    """Noise of a head count: a sum of independent Laplace laws of one scale.

    With n terms of scale b the sum is the difference of two Gamma(n) laws, and for x ≥ 0

        P(Z ≥ b·x) = exp(−x)·Σ_{j<n} w_j·x^j/j!,    w_j = P(B ≤ n − 1 − j),

    where B is negative binomial: the failures before the n-th success at odds of one half. (Z exceeds b·x if fewer than
    n arrivals of one Poisson process lie before the n-th arrival of another plus x.)

    Attributes
    ----------
    scale : float
        Scale b of one term, in units of the head count.
    terms : int
        Number of terms: 2^k for the corners of k columns.
    step : float
        Spacing of the noise's values, 1/M for corners that add up to M. Intervals are wider by half a step: exact for
        rounded noise, and slightly wider than that for one discrete Laplace law.
    """

    scale: float
    terms: int
    step: float = 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation."""
        return self.scale * math.sqrt(2 * self.terms)

    def log_reaching(self, z: Floats) -> Floats:
        """Return ln P(Z ≥ z)."""
        x = np.asarray(z, np.float64) / self.scale
        upper = _log_laplace_tail(np.abs(x), self.terms)
        return np.where(x >= 0, upper, np.log1p(-np.exp(upper)))

    def quantile(self, tail: float) -> float:
        """Return the point that the noise passes with probability ``tail``, at most ½."""
        return self.scale * _laplace_quantile(self.terms, tail)


class Halves(NamedTuple):
    """Boxes of P = (n + y)/2 and Q = (n − y)/2, the two halves of a row's corners; NaN for rows far from the cutoff."""

    positive: Box
    negative: Box


def halved(confidence: float) -> float:
    """Return the confidence with half the allowance: 1 − α/2.

    Examples
    --------
    >>> halved(0.95)
    0.975
    """
    return 1 - (1 - confidence) / 2


def z_of(noise: LaplaceSum, confidence: float) -> float:
    """Return the half-width of an interval, in standard deviations, for any linear statistic of a row.

    Parameters
    ----------
    noise : LaplaceSum
        Noise of the row's head count.
    confidence : float
        Between 0 and 1.

    Accuracy
    --------
    A sum, and y − t·n of :func:`mean`, weigh one half of the corners by a and the other by b. In units of its own
    deviation such a statistic lies between a sum of 2^(k−1) Laplace laws (b = 0), a sum of 2^k (a = b) and a normal
    law. The largest quantile of the three is no smaller than that of any a and b, by inversion of the characteristic
    function for k ≤ 3 and confidences from 0.5 to 0.999. Sums over several rows are closer to normal yet.

    Examples
    --------
    >>> round(z_of(LaplaceSum(1.0, 2), 0.95), 4)
    2.1183
    """
    z = normal_quantile(confidence)
    for terms in {max(noise.terms // 2, 1), noise.terms}:
        z = max(z, _laplace_quantile(terms, _tail(confidence)) / math.sqrt(2 * terms))
    return z


def normal(value: npt.ArrayLike, variance: npt.ArrayLike, confidence: float, *, z: float | None = None) -> Box:
    """Return value ± z·√variance.

    Parameters
    ----------
    value, variance : array of float
        Estimates and the variances of their noise.
    confidence : float
        Between 0 and 1.
    z : float, optional
        Half-width in standard deviations, by :func:`z_of`; the normal law's by default.

    Accuracy
    --------
    Exact for normal noise.

    Examples
    --------
    >>> low, high = normal([100.0], [25.0], 0.95)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([90.2], [109.8])
    """
    value = np.asarray(value, np.float64)
    reach = (normal_quantile(confidence) if z is None else z) * np.sqrt(np.asarray(variance, np.float64))
    return value - reach, value + reach


def near_cutoff(value: npt.ArrayLike, noise: LaplaceSum, cutoff: float | None, confidence: float) -> Flags:
    """Say which rows lie so near above the cutoff that they need a box.

    A row further up has a true count near its value, unless an event of probability 2·P(Z ≥ distance) happened:
    at most a 500th of one limit's allowance.
    """
    value = np.asarray(value, np.float64)
    if cutoff is None:
        return np.zeros(value.shape, np.bool_)
    far = max(_NEAR * noise.deviation, noise.quantile(_tail(confidence) / 1000))
    return np.asarray(value < cutoff + far)


def head_count(value: npt.ArrayLike, noise: LaplaceSum, cutoff: float | None, confidence: float) -> Box:
    """Return an interval for each true count, given that its row is listed.

    Parameters
    ----------
    value : array of float
        Published head counts y.
    noise : LaplaceSum
        Law of their noise Z.
    cutoff : float or None
        A row is listed if y ≥ cutoff. None if rows are listed for other reasons.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    low, high : array of float
        Without a cutoff y ± q, where P(Z > q) = α/2. With one, the counts c ≥ 1 for which

            P(c + Z ≥ y | c + Z ≥ cutoff)  and  P(c + Z ≤ y | c + Z ≥ cutoff)

        both exceed α/2. Both are monotone in c, as the laws are log-concave. The published value itself is always in.

    Accuracy
    --------
    Each true count c ≥ 1 lies in its interval with probability at least 1 − α, given that it is listed, and with
    1 − α exactly for large c. Rows so far up that the condition moves no limit by 1e-8 deviations take y ± q.

    Examples
    --------
    >>> low, high = head_count([17.0, 25.0, 400.0], LaplaceSum(1.0, 1), 16.0, 0.95)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([1.0, 22.0, 397.0], [19.55, 28.0, 403.0])
    """
    value = np.asarray(value, np.float64)
    tail = _tail(confidence)
    reach = noise.quantile(tail) + noise.step / 2
    low, high = value - reach, value + reach
    if cutoff is not None:
        near = value < cutoff + reach + noise.quantile(1e-9 * tail)
        low[near], high[near] = _given_listed(value[near], np.full(int(near.sum()), cutoff), noise, tail, 1.0)
    return low, high


def head_box(value: npt.ArrayLike, noise: LaplaceSum, cutoff: float | None, confidence: float) -> Box:
    """Return the intervals of :func:`head_count` for rows near the cutoff, and NaN for others.

    Parameters
    ----------
    value, noise, cutoff
        As for :func:`head_count`.
    confidence : float
        Confidence of the box itself: ``halved(confidence)`` of the interval that it serves.
    """
    value = np.asarray(value, np.float64)
    near = near_cutoff(value, noise, cutoff, confidence)
    low, high = np.full(value.shape, np.nan), np.full(value.shape, np.nan)
    low[near], high[near] = head_count(value[near], noise, cutoff, confidence)
    return low, high


def corner_box(
    y: npt.ArrayLike, n: npt.ArrayLike, noise: LaplaceSum, cutoff: float | None, confidence: float
) -> Halves:
    """Return boxes of the halves P = (n + y)/2 and Q = (n − y)/2 of the corners, for rows near the cutoff.

    The noises of y and n are uncorrelated but not independent: given that n's noise is large, y's is large, too. (With
    two corners and n's noise at s, far out, y's is uniform on [−s, s].) An interval for y that forgets the cutoff
    therefore misses, and so does a box of y and n. The halves are sums of different corners and have independent noise.
    Given Q's published value, a row is listed if P's reaches cutoff − Q: a cutoff that no longer depends on the
    noise of P, so that :func:`head_count`'s inversion holds for P. The same holds for Q.

    Parameters
    ----------
    y : array of float
        Published centred totals, in units of half the range: |y| ≤ n without noise.
    n : array of float
        Published head counts.
    noise : LaplaceSum
        Noise of the head count; 2 terms at least.
    cutoff : float or None
        A row is listed if n ≥ cutoff.
    confidence : float
        Confidence of both boxes together; each holds at 1 − α/2.

    Accuracy
    --------
    Both halves lie in their boxes with probability at least 1 − α, given that the row is listed.
    """
    if noise.terms % 2:
        raise InvalidInput("corners of a value column come in two halves: expected an even number of terms.")
    y, n = np.asarray(y, np.float64), np.asarray(n, np.float64)
    near = near_cutoff(n, noise, cutoff, confidence)
    half = LaplaceSum(noise.scale, noise.terms // 2, noise.step)
    tail = _tail(halved(confidence))
    boxes = []
    for sign in (1.0, -1.0):
        own, other = (n + sign * y) / 2, (n - sign * y) / 2
        low, high = np.full(n.shape, np.nan), np.full(n.shape, np.nan)
        if cutoff is not None:
            low[near], high[near] = _given_listed(own[near], cutoff - other[near], half, tail, 0.0)
        boxes.append((low, high))
    return Halves(*boxes)


def mean(
    y: npt.ArrayLike,
    y_variance: npt.ArrayLike,
    n: npt.ArrayLike,
    n_variance: npt.ArrayLike,
    confidence: float,
    *,
    z: float | None = None,
    halves: Halves | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Return t = y/n, and an interval for it.

    Parameters
    ----------
    y, y_variance : array of float
        Centred totals in units of half the range, |y| ≤ n without noise, and the variance of their noise.
    n, n_variance : array of float
        Head counts and the variance of their noise.
    confidence : float
        Between 0 and 1.
    z : float, optional
        :func:`z_of` the noise; the normal law's by default.
    halves : Halves, optional
        Corners: :func:`corner_box` at ``confidence``.

    Returns
    -------
    t, low, high : array of float
        Within [−1, 1]; the mean is mid + t·(range/2). Fieller's interval holds the t with

            (y − t·n)² ≤ z²·(y_variance + t²·n_variance),

        and all of [−1, 1] where n ≤ z·√n_variance. Rows with a box take the range of y/n over the box, where y lies
        within its own interval at 1 − α/2.

    Accuracy
    --------
    Fieller's interval is exact for independent normal noises and n that stand out; for corners see :func:`z_of`. Boxes
    cover with probability at least 1 − α given that the row is listed.

    Examples
    --------
    >>> t, low, high = mean([30.0, 1.0], 25.0, [100.0, 5.0], 25.0, 0.95)
    >>> t.round(3).tolist(), low.round(3).tolist(), high.round(3).tolist()
    ([0.3, 0.2], [0.2, -1.0], [0.406, 1.0])
    """
    y, y_variance, n, n_variance = _alike(y, y_variance, n, n_variance)
    z = normal_quantile(confidence) if z is None else z
    leading = n * n - z * z * n_variance
    known = (leading > 0) & (n > 0)
    leading = np.where(known, leading, 1.0)
    reach = z * np.sqrt(n_variance * y * y + y_variance * np.where(known, leading, 0.0))
    low = np.where(known, (y * n - reach) / leading, -1.0)
    high = np.where(known, (y * n + reach) / leading, 1.0)
    if halves is not None:
        near = ~np.isnan(halves.positive[0])
        (p_low, p_high), (q_low, q_high) = (tuple(each[near] for each in box) for box in halves)
        low[near] = _quotient(p_low - q_high, p_low + q_high, -1.0)
        high[near] = _quotient(p_high - q_low, p_high + q_low, 1.0)
    low, high = np.clip(low, -1.0, 1.0), np.clip(high, -1.0, 1.0)
    return np.clip(y / np.maximum(n, 1.0), low, high), low, high


def total(
    centred: npt.ArrayLike,
    centred_variance: npt.ArrayLike,
    users: npt.ArrayLike,
    users_variance: npt.ArrayLike,
    bounds: tuple[float, float],
    confidence: float,
    *,
    z: float | None = None,
    halves: Halves | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return a column's total (C + (L + U)·users)/2, its variance, and an interval.

    Parameters
    ----------
    centred, centred_variance : array of float
        C = Σ (2·value − L − U), within ±(U − L)·users without noise, and the variance of its noise.
    users, users_variance : array of float
        Head counts and the variance of their noise.
    bounds : pair of float
        L and U, in the units of the values.
    confidence, z, halves
        As for :func:`mean`.

    Returns
    -------
    total, variance, low, high : array of float
        The interval is total ± z·√variance. Rows with a box take C's own interval at 1 − α/2, and all head counts in
        the box; for corners total = U·P + L·Q over the boxes of P and Q.

    Accuracy
    --------
    As for :func:`mean`. Noise that was rounded to a step adds step²/12 to its variance.

    Examples
    --------
    >>> value, variance, low, high = total([20.0], 16.0, [100.0], 25.0, (0.0, 2.0), 0.95)
    >>> value.tolist(), variance.tolist(), low.round(1).tolist(), high.round(1).tolist()
    ([110.0], [29.0], [99.4], [120.6])
    """
    centred, centred_variance, users, users_variance = _alike(centred, centred_variance, users, users_variance)
    least, most = bounds
    middle = (least + most) / 2
    value = centred / 2 + middle * users
    variance = centred_variance / 4 + middle**2 * users_variance
    low, high = normal(value, variance, confidence, z=z)
    if halves is not None:
        near = ~np.isnan(halves.positive[0])
        positive = _multiple(most, (halves.positive[0][near], halves.positive[1][near]))
        negative = _multiple(least, (halves.negative[0][near], halves.negative[1][near]))
        low[near], high[near] = positive[0] + negative[0], positive[1] + negative[1]
    return value, variance, low, high


def quantile_intervals(
    shares: Sequence[float],
    n: npt.ArrayLike,
    n_variance: npt.ArrayLike,
    coefficients: npt.ArrayLike,
    coefficient_variance: npt.ArrayLike,
    edges: npt.ArrayLike,
    bounds: tuple[float, float],
    confidence: float,
) -> Box:
    """Return an interval for each quantile of each row.

    Parameters
    ----------
    shares : sequence of float
        The quantiles, between 0 and 1.
    n, n_variance, coefficients, coefficient_variance
        Head counts and the variance of their noise; Haar coefficients, left minus right of every node, by level from
        the root; and the variance of one coefficient. F(k) = (k/2^L)·n + Σ w·coefficient over the nodes that hold the
        k-th edge inside, where w is the distance from the edge to the node's nearer end as a share of the node.
    edges : array of float, shape (2**L - 1,)
        Leaf k holds the values from edge k − 1 up to but without edge k; +∞ for edges after unused leaves.
    bounds : pair of float
        Least and largest value.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    low, high : array of float, shape (rows, shares)
        From the left, the last edge of an unbroken run of edges with F(k) − q·n < −z·(its deviation); from the right,
        the last edge of an unbroken run with F(k) − q·n > z·(its deviation). The bounds where there is no such edge.

    Accuracy
    --------
    For an interval to miss on one side, one certain edge must fail: the first above the quantile (F(k) ≥ q·n there), or
    the last at or below it. So it covers with probability at least 1 − α, with no correction for the number of edges.
    """
    tree = _Tree.of(n, n_variance, coefficients, coefficient_variance)
    edges, used = tree.inner(edges), tree.used(edges)
    z = normal_quantile(confidence)
    starts, ends = np.append(bounds[0], edges).clip(*bounds), np.append(edges, bounds[1]).clip(*bounds)
    low, high = np.empty((len(tree.n), len(shares))), np.empty((len(tree.n), len(shares)))
    for column, share in enumerate(shares):
        ahead = tree.places - share
        middle = tree.beside + ahead * tree.n[:, None]
        reach = z * np.sqrt(tree.beside_variance + ahead**2 * tree.n_variance[:, None])
        least, most = middle - reach, middle + reach
        low[:, column] = starts[_run((most < 0) & used)]
        high[:, column] = ends[len(edges) - _run(((least > 0) | ~used)[:, ::-1])]
    return low, high


def quantile_estimates(
    shares: Sequence[float],
    n: npt.ArrayLike,
    coefficients: npt.ArrayLike,
    coefficient_variance: npt.ArrayLike,
    edges: npt.ArrayLike,
    bounds: tuple[float, float],
    *,
    grid: float | None = None,
    pool: Flags | None = None,
) -> Floats:
    """Return an estimate of each quantile of each row.

    Parameters
    ----------
    shares, n, coefficients, coefficient_variance, edges, bounds
        As for :func:`quantile_intervals`.
    grid : float, optional
        Step of the values; estimates are multiples of it. By default they are interpolated within leaves.
    pool : array of bool, optional
        Rows whose sum the others are shrunk towards; all by default.

    Returns
    -------
    array of float, shape (rows, shares)
        From the root down, the share s = (left − right)/all of each node is moved towards the overall share of that
        node, and keeps the weight (τ² + 1/m)/(τ² + 1/m + v/m²) on its own. Here m is the node's mass, v the
        coefficient's variance, 1/m the variance of a sample of m, and τ² the variance between rows at that level,
        estimated from the rows. A node whose right half is unused has s = 1.

    Accuracy
    --------
    Estimates are biased towards the overall quantiles in rows with few records; intervals are not, so an estimate may
    lie outside of its interval.

    Examples
    --------
    >>> quantile_estimates([0.5], [1000.0], [[0.0, 200.0, 200.0]], 1.0, [10, 20, 30], (0, 40)).round(1).tolist()
    [[20.0]]
    """
    tree = _Tree.of(n, 0.0, coefficients, coefficient_variance)
    edges, used = tree.inner(edges), tree.used(edges)
    masses = np.cumsum(tree.shrunk(np.append(True, used), pool), axis=1)
    masses /= masses[:, -1:]
    masses[:, -1] = 1.0
    starts, ends = np.append(bounds[0], edges).clip(*bounds), np.append(edges, bounds[1]).clip(*bounds)
    found = np.empty((len(tree.n), len(shares)))
    rows = np.arange(len(tree.n))
    for column, share in enumerate(shares):
        leaf = (masses < share).sum(axis=1)
        before = np.where(leaf > 0, masses[rows, leaf - 1], 0.0)
        within = (share - before) / np.maximum(masses[rows, leaf] - before, np.finfo(np.float64).tiny)
        value = starts[leaf] + np.clip(within, 0.0, 1.0) * (ends[leaf] - starts[leaf])
        if grid is not None:
            # The largest value of a leaf is a step below its upper edge; the last leaf ends with the largest value.
            last = np.where(ends[leaf] < bounds[1], ends[leaf] - grid, ends[leaf])
            value = on_grid(np.minimum(value, np.maximum(last, starts[leaf])), grid).clip(*bounds)
        found[:, column] = value
    return found


def rollup(index: Integers, groups: int, values: npt.ArrayLike) -> Floats:
    """Add up rows: totals, variances or coefficients.

    Parameters
    ----------
    index : array of int
        For each row the group it goes to, from 0 to ``groups`` − 1.
    groups : int
        Number of groups.
    values : array of float, shape (rows,) or (rows, columns)
        Numbers to add. Noise is independent between rows, so variances add like totals.

    Examples
    --------
    >>> rollup(np.array([0, 1, 0]), 2, [1.0, 2.0, 4.0]).tolist()
    [5.0, 2.0]
    """
    values = np.asarray(values, np.float64)
    if values.ndim == 1:
        return np.asarray(np.bincount(index, weights=values, minlength=groups), np.float64)
    columns = [np.bincount(index, weights=each, minlength=groups) for each in values.T]
    return np.stack(columns, axis=1) if columns else np.zeros((groups, 0))


def rollup_box(
    value: npt.ArrayLike,
    variance: npt.ArrayLike,
    box: Box,
    index: Integers,
    groups: int,
    confidence: float,
    *,
    noise: LaplaceSum,
) -> Box:
    """Add up rows of which some have a box: boxes add their ends, other rows their variances.

    Parameters
    ----------
    value, variance : array of float
        Published values of all rows and the variance of their noise.
    box : pair of arrays
        Boxes at ``halved(confidence)`` of the rows near the cutoff, NaN for others.
    index, groups
        As for :func:`rollup`.
    confidence : float
        Confidence of the result. Rows without a box get the other half of the allowance.
    noise : LaplaceSum
        Noise of one row, for :func:`z_of`.

    Returns
    -------
    low, high : array of float
        NaN for groups without a row near the cutoff: these take :func:`normal` of :func:`rollup`.

    Accuracy
    --------
    Errors of different rows are independent, so a sum of boxes covers more often than each of them; this is simulated,
    not proven. The sum misses more often only if several rows have true counts of 1, which are hardly ever listed.

    Examples
    --------
    >>> box = np.array([np.nan, 2.0, np.nan]), np.array([np.nan, 9.0, np.nan])
    >>> low, high = rollup_box([100.0, 8.0, 50.0], 4.0, box, np.array([0, 0, 1]), 2, 0.95, noise=LaplaceSum(1.0, 2))
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([96.78, nan], [114.22, nan])
    """
    value, variance, near_low, near_high = _alike(value, variance, *box)
    near = ~np.isnan(near_low)
    low, high = normal(
        rollup(index, groups, np.where(near, 0.0, value)),
        rollup(index, groups, np.where(near, 0.0, variance)),
        confidence,
        z=z_of(noise, halved(confidence)),
    )
    low += rollup(index, groups, np.where(near, near_low, 0.0))
    high += rollup(index, groups, np.where(near, near_high, 0.0))
    without = rollup(index, groups, near) == 0
    low[without], high[without] = np.nan, np.nan
    return low, high


class _Tree(NamedTuple):
    """Haar coefficients of rows, in level order, and the part of F at the inner edges that they make up."""

    n: Floats
    n_variance: Floats
    coefficients: Floats
    variance: Floats
    places: Floats
    beside: Floats
    beside_variance: Floats

    @classmethod
    def of(
        cls,
        n: npt.ArrayLike,
        n_variance: npt.ArrayLike,
        coefficients: npt.ArrayLike,
        coefficient_variance: npt.ArrayLike,
    ) -> _Tree:
        coefficients = np.asarray(coefficients, np.float64)
        n, n_variance, variance = _alike(n, n_variance, coefficient_variance)
        leaves = coefficients.shape[1] + 1
        if leaves < 2 or leaves & (leaves - 1) or coefficients.shape[0] != len(n):
            raise InvalidInput("Haar coefficients are a row of 2**L - 1 numbers for each head count.")
        weights = _haar_weights(leaves)
        squares = (weights * weights).sum(axis=0)
        places = np.arange(1, leaves) / leaves
        return cls(n, n_variance, coefficients, variance, places, coefficients @ weights, variance[:, None] * squares)

    def inner(self, edges: npt.ArrayLike) -> Floats:
        """Return the edges as an array, checked."""
        found = np.asarray(edges, np.float64)
        if found.shape != self.places.shape or np.isnan(found).any() or (found[1:] < found[:-1]).any():
            raise InvalidInput("edges are 2**L - 1 increasing numbers, the last of which may be infinite.")
        return found

    @staticmethod
    def used(edges: npt.ArrayLike) -> Flags:
        """Say which edges have a leaf in use after them."""
        return np.asarray(np.asarray(edges, np.float64) < np.inf)

    def shrunk(self, used: Flags, pool: Flags | None) -> Floats:
        """Return the mass of each leaf, with shares of nodes shrunk towards those of all pooled rows."""
        pooled = slice(None) if pool is None else pool
        overall = np.maximum(self.n[pooled].sum(keepdims=True), 1.0)
        masses = np.maximum(self.n, 1.0)[:, None]
        first = 0
        while (nodes := masses.shape[1]) < len(used):
            values = self.coefficients[:, first : first + nodes]
            target = np.clip(values[pooled].sum(axis=0) / np.maximum(overall, 1.0), -1.0, 1.0)
            # Leaves in use come first, so that a node without any on its right has all its mass on its left.
            right_unused = ~used.reshape(nodes, 2, -1)[:, 1].any(axis=1)
            target[right_unused] = 1.0
            size = np.maximum(masses, 1.0)
            own = np.clip(values / size, -3.0, 3.0)
            noise, sampling = self.variance[:, None] / size**2, 1 / size
            spread = _spread((own - target)[pooled], (noise + sampling)[pooled], noise[pooled] < 0.25)
            weight = (spread + sampling) / (spread + sampling + noise)
            share = np.clip(target + weight * (own - target), -1.0, 1.0)
            share[:, right_unused] = 1.0
            masses, overall = _split(masses, share), _split(overall[None], target[None])[0]
            first += nodes
        return masses


def _spread(differences: Floats, noise: Floats, clear: Flags) -> float:
    """Return the variance of differences beyond their noise, from nodes that stand out, the clearest counting most."""
    if clear.sum() <= _FEWEST_NODES:
        return _USUAL_SPREAD
    beyond, weights = (differences**2 - noise)[clear], (noise[clear] + _USUAL_SPREAD) ** -2.0
    return max(float(np.average(beyond, weights=weights)), _LEAST_SPREAD)


def _split(masses: Floats, shares: Floats) -> Floats:
    """Return the masses of both halves of each node, from (left − right)/all."""
    halves: Floats = np.stack([masses * (1 + shares) / 2, masses * (1 - shares) / 2], axis=2)
    return halves.reshape(len(masses), -1)


@lru_cache(maxsize=16)
def _haar_weights(leaves: int) -> Floats:
    """Return the weight of each coefficient (row) in F at each inner edge (column)."""
    edges = np.arange(1, leaves)
    weights = np.zeros((leaves - 1, leaves - 1))
    first, size = 0, leaves
    while size > 1:
        within = edges % size / size
        weights[first + edges // size, edges - 1] = np.minimum(within, 1 - within)
        first, size = 2 * first + 1, size // 2
    return read_only(weights)


def _run(holds: Flags) -> Integers:
    """Return how many entries from the left hold without a break, for each row."""
    return np.asarray(np.logical_and.accumulate(holds, axis=1).sum(axis=1), np.int64)


def on_grid(value: Floats, grid: float) -> Floats:
    """Round down to multiples of a step; 0.7 is 7/10, not 7·0.1."""
    steps = np.floor(value / grid + 1e-9)
    parts = round(1 / grid)
    found: Floats = steps / parts if parts and abs(parts * grid - 1) < 1e-12 else steps * grid
    return found


def _given_listed(value: Floats, cutoff: Floats, noise: LaplaceSum, tail: float, least: float) -> Box:
    """Return the counts from ``least`` on whose two tails at ``value`` exceed ``tail``, given values from cutoff on."""
    half, log_tail = noise.step / 2, math.log(tail)

    def low_enough(c: Floats) -> Flags:
        """Say whether P(Y ≥ y | Y ≥ cutoff) is at most ``tail``."""
        found = noise.log_reaching(value - half - c) - noise.log_reaching(cutoff - half - c)
        return np.asarray(found <= log_tail)

    def within(c: Floats) -> Flags:
        """Say whether P(Y ≤ y | Y ≥ cutoff) exceeds ``tail``."""
        beyond = noise.log_reaching(value + half - c) - noise.log_reaching(cutoff - half - c)
        return np.asarray(-np.expm1(np.minimum(beyond, 0.0)) > tail)

    middle = np.maximum(value, least)
    low = _last(low_enough, np.full_like(value, least), middle)
    high = _last(within, middle, middle + noise.quantile(tail) + half)
    return low, high


def _last(holds: Callable[[Floats], Flags], low: Floats, high: Floats) -> Floats:
    """Return for each place the last number up to which something holds, by bisection; ``low`` if it never does."""
    start = low
    found = holds(start)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = holds(middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(found, (low + high) / 2, start)


@lru_cache(maxsize=64)
def _laplace_weights(terms: int) -> Floats:
    """Return w_j/j! of :class:`LaplaceSum`, for j below the number of terms."""
    if terms < 1:
        raise InvalidInput("a sum of Laplace laws has one term at least.")
    failures = np.cumsum([math.comb(terms + i - 1, i) * 0.5 ** (terms + i) for i in range(terms)])
    return read_only(np.array([failures[terms - 1 - j] / math.factorial(j) for j in range(terms)]))


def _log_laplace_tail(x: Floats, terms: int) -> Floats:
    """Return ln P(Z ≥ x), x ≥ 0, for a sum of Laplace laws of scale 1; the largest power is taken out beyond 1."""
    weights = _laplace_weights(terms)
    low, high = np.minimum(x, 1.0), np.maximum(x, 1.0)
    # Σ w_j·x^j up to 1, and Σ w_j·x^(j − n + 1) beyond.
    small = np.full_like(low, weights[-1])
    for each in weights[-2::-1]:
        small = small * low + each
    large = np.full_like(high, weights[0])
    for each in weights[1:]:
        large = large / high + each
    found: Floats = np.log(np.where(x <= 1, small, large)) + (terms - 1) * np.log(high) - x
    return found


@lru_cache(maxsize=256)
def _laplace_quantile(terms: int, tail: float) -> float:
    """Return the point that a sum of Laplace laws of scale 1 passes with probability ``tail``, at most ½."""
    if tail <= 0:
        return math.inf
    log_tail = math.log(tail)

    def passes(x: float) -> bool:
        return float(_log_laplace_tail(np.array([x]), terms)[0]) > log_tail

    low, high = 0.0, 1.0
    while passes(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return high


def _tail(confidence: float) -> float:
    """Return what each of two limits may miss."""
    if not 0 < confidence < 1:
        raise InvalidInput("confidence lies strictly between 0 and 1.")
    return (1 - confidence) / 2


def _quotient(above: Floats, below: Floats, otherwise: float) -> Floats:
    """Divide, where the divisor is positive."""
    positive = below > 0
    return np.where(positive, above / np.where(positive, below, 1.0), otherwise)


def _multiple(factor: float, box: Box) -> Box:
    """Return the least and largest of factor·x over a box."""
    return np.minimum(factor * box[0], factor * box[1]), np.maximum(factor * box[0], factor * box[1])


def _alike(*arrays: npt.ArrayLike) -> tuple[Floats, ...]:
    """Return arrays of one shape, of at least one dimension; a single number stands for all rows."""
    return tuple(np.broadcast_arrays(*(np.atleast_1d(np.asarray(each, np.float64)) for each in arrays)))
