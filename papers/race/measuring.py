"""Points, the places to ask about, and the error of every variant there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from dpsketch.sketches.density import best_rows

from . import bernstein
from .published import as_published, nonprivate, sketch_of

Floats = npt.NDArray[np.float64]

BOUNDS = (-8.0, 8.0)
WIDTH = 2.0  # of a cell, the kernel's bandwidth
DELTA = 1e-6  # wherever a density is released with δ > 0

NONPRIVATE = "no noise (RACE)"
PUBLISHED = "Laplace, as published (δ = 0)"
GAUSSIAN = "Gaussian noise instead (δ > 0)"
ONE_ROW = "dpsketch, one row a record (δ = 0)"
PURE = "dpsketch (δ = 0)"
DEFAULT = "dpsketch default (δ > 0)"

_CENTRES = np.array([[-3, -3, 2], [3, 3, -2], [-1, 2, 3], [2.5, -2, -3]])
_SPREADS = np.array([1.0, 0.8, 0.6, 1.2])


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Points, a hundred places near some of them, and the exact kernel sums there."""

    points: Floats
    places: Floats
    exact: Floats
    bandwidth: float
    bounds: tuple[float, float]

    def kernel(self, directions: dps.kernels.Directions = "stratified") -> dps.kernels.Euclidean:
        """Return the kernel, with the directions of the rows stratified (ours) or independent (the paper's)."""
        return dps.kernels.Euclidean(self.points.shape[1], self.bandwidth, directions=directions)

    def sketch(self, rows: int, seed: int, directions: dps.kernels.Directions, **more: str) -> dps.DensitySketch:
        """Return a sketch of the points."""
        return sketch_of(self.points, self.kernel(directions), rows, seed=seed, bounds=self.bounds, **more)


def mixture(size: int, dim: int, seed: int = 2) -> Floats:
    """Draw points from four Gaussians."""
    rng = np.random.default_rng(seed)
    which = rng.integers(4, size=size)
    return _CENTRES[which, :dim] + rng.normal(size=(size, dim)) * _SPREADS[which][:, None]


def task(points: Floats, *, bandwidth: float = WIDTH, bounds: tuple[float, float] = BOUNDS, blur: float = 0.3) -> Task:
    """Choose the places, and compute the exact sums."""
    places = points[:100] + blur * np.random.default_rng(1).normal(size=(100, points.shape[1]))
    found = Task(points, np.clip(places, *bounds), np.empty(0), bandwidth, bounds)
    exact = found.kernel().similarity(found.places, np.clip(points, *bounds)).sum(axis=1)
    return Task(points, found.places, exact, bandwidth, bounds)


def rmse(errors: npt.ArrayLike) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(np.square(errors))))


def errors(
    asked: Task, rows: int, epsilons: Iterable[float], seeds: Iterable[int], *, best: bool = False
) -> dict[str, list[float]]:
    """Return the relative RMSE of every variant at each ε.

    With ``best``, dpsketch's with pure ε have the number of rows that suits ε, up to ``rows``.
    """
    budgets = list(epsilons)
    wrong: dict[str, list[list[Floats]]] = {}
    similarity = float(np.mean(asked.exact)) / len(asked.points)
    for seed in seeds:
        rng = np.random.default_rng([seed, rows])
        published, ours = (asked.sketch(rows, seed, way) for way in ("independent", "stratified"))
        for place, epsilon in enumerate(budgets):
            suited = best_rows(epsilon=epsilon, records=len(asked.points), similarity=similarity, unit=dps.per_record())
            few = asked.sketch(suited, seed, "stratified") if best and suited < rows else ours
            one = asked.sketch(few.spec.rows, seed, "stratified", placement="one_row")
            releases = {
                NONPRIVATE: nonprivate(published),
                PUBLISHED: as_published(published, epsilon, rng),
                GAUSSIAN: published.release(epsilon=epsilon, delta=DELTA, count_share=0),
                ONE_ROW: one.release(epsilon=epsilon, delta=0),
                PURE: few.release(epsilon=epsilon, delta=0),
                DEFAULT: ours.release(epsilon=epsilon, delta=DELTA),
            }
            for name, private in releases.items():
                lists = wrong.setdefault(name, [[] for _ in budgets])
                lists[place].append(private.estimate(asked.places).value / asked.exact - 1)
    return {name: [rmse(each) for each in lists] for name, lists in wrong.items()}


def noise_alone(rows: int, releases: int, rng: np.random.Generator) -> list[float]:
    """Return the spread of a kernel sum and of N̂ over releases of no points at ε = 1, as published and ours."""
    empty = sketch_of(np.empty((0, 2)), dps.kernels.Euclidean(2, WIDTH), rows, seed=1, width=64)
    published = [as_published(empty, 1.0, rng) for _ in range(releases)]
    ours = [empty.release(epsilon=1.0, delta=DELTA) for _ in range(releases)]
    sums = [float(np.std([one.table.mean(axis=0) for one in found])) for found in (published, ours)]
    return sums + [float(np.std([one.count().value[0] for one in found])) for found in (published, ours)]


def rounding(rng: np.random.Generator) -> list[float]:
    """Return the mean of counters that should be 0, rounded down as published and ours."""
    empty = sketch_of(np.empty((0, 2)), dps.kernels.Euclidean(2, WIDTH), 10, seed=1, width=1 << 14)
    releases = as_published(empty, 10.0, rng), empty.release(epsilon=10.0, delta=0)
    return [float(one.table.mean()) for one in releases]


def theorem(asked: Task, rows: int, seeds: Iterable[int]) -> tuple[float, float, float]:
    """Compare Theorem 3.4's bound at ε = 1 and failure rate .05 with the errors of medians of means.

    Returns the share of places within it, how many times the RMSE it is, and the coverage of dpsketch's own intervals.
    """
    root = np.sqrt(asked.kernel().similarity(asked.places, asked.points)).sum(axis=1)
    bound = np.sqrt(32 * (root**2 / rows + 2 * rows) * math.log(1 / 0.05))
    rng, wrong, covered = np.random.default_rng(4), [], []
    for seed in seeds:
        private = as_published(asked.sketch(rows, seed, "independent"), 1.0, rng)
        wrong.append(private.estimate(asked.places, estimator="median_of_means").value - asked.exact)
        ours = asked.sketch(rows, seed, "stratified").release(epsilon=1.0, delta=DELTA).estimate(asked.places)
        covered.append((ours.low <= asked.exact) & (asked.exact <= ours.high))
    return float(np.mean(np.abs(wrong) <= bound)), rmse(bound) / rmse(wrong), float(np.mean(covered))


def bernstein_errors(
    asked: Task, degrees: Iterable[int], epsilons: Iterable[float], repetitions: int
) -> dict[str, list[float]]:
    """Return the relative RMSE of the Bernstein mechanism at each ε.

    Degree and order of iteration are the best in hindsight, which no private use could choose: it favours this rival.
    """
    forms = {
        "Bernstein, as published (δ = 0)": ("published", 0.0),
        "Bernstein, sharp bound (δ = 0)": ("sharp", 0.0),
        "Bernstein, sharp bound (δ > 0)": ("sharp", DELTA),
    }
    lattices = [bernstein.Lattice(asked.kernel(), asked.bounds, degree) for degree in degrees]
    tables = [(lattice, lattice.sensitive_values(asked.points)) for lattice in lattices]
    found: dict[str, list[float]] = {name: [] for name in forms}
    for epsilon in epsilons:
        for name, (bound, delta) in forms.items():
            tried = []
            for lattice, values in tables:
                releases = [
                    bernstein.release(lattice, values, epsilon=epsilon, delta=delta, bound=bound)
                    for _ in range(repetitions)
                ]
                tried += [
                    rmse([one.estimate(asked.places, order=order) / asked.exact - 1 for one in releases])
                    for order in (1, 2, 4, 8, 16)
                ]
            found[name].append(min(tried))
    return found
