"""Plans for sketches with one size to choose: sparse histograms, moments, densities, distinct counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dpsketch.errors import InvalidInput
from dpsketch.kernels import Euclidean, Gaussian
from dpsketch.plan.proposal import Amount, Guess, Proposal, Shape, out_of_reach, proposed, require_reach
from dpsketch.privacy import Budget
from dpsketch.sketches.density import DensitySketch
from dpsketch.sketches.density.spec import DensitySpec, default_width
from dpsketch.sketches.distinct import DistinctSet, DistinctSetSpec, DistinctSketch
from dpsketch.sketches.distinct.bitmap import DistinctSpec
from dpsketch.sketches.histogram.predict import listed
from dpsketch.sketches.moment import MomentSketch
from dpsketch.sketches.moment.spec import MomentSpec
from dpsketch.sketches.sparse import SparseHistogram
from dpsketch.sketches.sparse.sketch import SparseHistogramSpec

__all__ = ["plan_density", "plan_distinct", "plan_moment", "plan_sparse"]

# Without a wanted error: the smallest size within so much of the least error.
_NEARLY = 1.05
# A series is for so many coordinates, and grows with how many bandwidths its bounds are apart.
_SERIES_DIMS = 3
_ASSUMED_BANDWIDTHS = 20


def _sizes(low: int, high: int) -> list[int]:
    """Return sizes about a tenth apart."""
    steps = math.ceil(math.log(high / low) / math.log(1.1))
    return sorted({round(low * (high / low) ** (i / steps)) for i in range(steps + 1)})


def _smallest(errors: dict[int, float], target: float | None, memory: int) -> int:
    """Return the smallest size that reaches the target, or nearly the least error where there is none."""
    least = min(errors.values())
    wanted = _NEARLY * least if target is None else target
    for size, error in errors.items():
        if error <= wanted:
            return size
    raise out_of_reach(wanted, least, f"within {memory:,} bytes")


def plan_sparse(amount: Amount, guess: Guess, *, target_error: float | None) -> Proposal:
    """Say what a sparse histogram for so many keys is worth; its error hardly depends on its size."""
    spec = SparseHistogramSpec(amount.unit, expected_keys=guess.keys)
    error = spec.preview(**amount.budget).predicted_error
    require_reach(target_error, error, "whatever the size")
    threshold = spec.laws(Budget(**amount.budget))[0].survival
    also = {}
    if threshold is not None:
        found, _ = listed(guess.counts / spec.grid, threshold.noise, threshold.cutoff)
        also = {"threshold": spec.grid * threshold.cutoff, "found": found}
    shape: Shape = {"expected_keys": guess.keys}
    notes = ("It lists integer keys; text keys appear as hashes, which candidates turn into names.",)
    return proposed("sparse", SparseHistogram.from_spec(spec), amount, guess, shape, error, also=also, notes=notes)


def plan_moment(amount: Amount, guess: Guess, *, target_error: float | None, memory: int, p: float | None) -> Proposal:
    """Propose the size of a moment sketch."""
    if p is None:
        raise InvalidInput("say which moment: p=0.5, say.")
    moment = float((guess.counts**p).sum())
    errors = {
        size: MomentSpec(p, size, amount.unit).preview(**amount.budget, moment=moment).predicted_error
        for size in (20, 30, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1200, 1600)
        if 8 * size <= memory
    }
    size = _smallest(errors, target_error, memory)
    spec = MomentSpec(p, size, amount.unit)
    shape: Shape = {"p": p, "size": size}
    also = {"moment": moment, "relative_error": errors[size] / moment}
    return proposed("moment", MomentSketch.from_spec(spec), amount, guess, shape, errors[size], also=also)


def plan_density(
    amount: Amount, guess: Guess, *, target_error: float | None, memory: int, dim: int, similarity: float
) -> Proposal:
    """Propose the features of a density and how many, by a bound that holds whatever the data are.

    Up to three coordinates a series leaves the noise alone; from there on RACE is as good as Fourier features of equal
    size, or better. Of the two, the one with the smaller predicted error is proposed. A series has as many features as
    its bounds have bandwidths: twenty are assumed.
    """
    kernel = Euclidean(dim=dim, bandwidth=1.0)
    width = default_width(kernel)

    def race(rows: int) -> DensitySpec:
        return DensitySpec(kernel, rows, width, amount.unit)

    def predicted(spec: DensitySpec) -> float:
        return spec.preview(**amount.budget, records=guess.records, similarity=similarity).predicted_error

    errors = {rows: predicted(race(rows)) for rows in _sizes(10, max(11, min(20_000, memory // (8 * width))))}
    spec, error, shape, why = _series(amount, dim, memory, predicted, min(errors.values()), target_error)
    if spec is None:
        rows = _smallest(errors, target_error, memory)
        spec, error, shape = race(rows), errors[rows], {"rows": rows}
    kernel_sum = guess.records * similarity
    also = {"kernel_sum": kernel_sum, "relative_error": error / kernel_sum}
    return proposed(
        "density", DensitySketch.from_spec(spec), amount, guess, shape, error, dim=dim, also=also, notes=(why,)
    )


def _series(
    amount: Amount,
    dim: int,
    memory: int,
    predicted: Callable[[DensitySpec], float],
    least: float,
    target: float | None,
) -> tuple[DensitySpec | None, float, Shape, str]:
    """Return a series where it is better than the least error of RACE, and why it is or is not."""
    if dim > _SERIES_DIMS:
        why = (
            "RACE: from four coordinates on a series has too many features, and Fourier features of a Gaussian kernel "
            "err as much or more. Up to about five, --features nystrom errs less where public points lie as records do."
        )
        return None, 0.0, {}, why
    if target is not None and least <= target:
        return None, 0.0, {}, "RACE: it reaches the wanted error, and takes records as they come, without bounds."
    kernel, bounds = Gaussian(dim, 1.0), (0, _ASSUMED_BANDWIDTHS)
    spec = DensitySketch(kernel=kernel, unit=amount.unit, bounds=bounds, features="series").spec
    error = predicted(spec)
    if spec.memory > memory:
        return None, 0.0, {}, f"RACE: a series in {dim} coordinates would pass the memory."
    if error >= least:
        why = (
            f"RACE: at this budget noise on the {2 * spec.rows:,} features of a series would pass what hashing errs, "
            "as Laplace noise grows with them."
        )
        return None, 0.0, {}, why
    require_reach(target, error, "that of the noise alone")
    why = (
        f"a series of a Gaussian kernel, of {2 * spec.rows:,} features where the bounds are {_ASSUMED_BANDWIDTHS} "
        f"bandwidths apart: nothing is sampled, so that the noise is all its error. RACE would leave {least:,.3g}. "
        "It needs --bounds."
    )
    return spec, error, {"features": "series"}, why


def plan_distinct(amount: Amount, guess: Guess, *, target_error: float | None, memory: int) -> Proposal:
    """Propose to hold every key where that fits, and else, or where less will do, the buckets of a bitmap."""
    wanted = math.inf if target_error is None else target_error
    errors = {
        buckets: DistinctSpec(buckets, amount.unit).preview(**amount.budget, distinct=guess.keys).predicted_error
        for buckets in (1 << bits for bits in range(4, 21))
        if 8 * buckets <= memory
    }
    less_will_do = target_error is not None and min(errors.values(), default=math.inf) <= wanted
    error = DistinctSetSpec(amount.unit).preview(**amount.budget).predicted_error
    # Where users are protected, who has which key is held: at most a pair for each record.
    room = math.ceil(8 * guess.keys if amount.unit.level == "record" else 16 * guess.records)
    shape: dict[str, Any] = {"exact": True}
    sketch: DistinctSet | DistinctSketch = DistinctSet(unit=amount.unit)
    if less_will_do or room > memory or error > wanted:
        buckets = _smallest(errors, target_error, memory)
        shape, error, room = {"buckets": buckets}, errors[buckets], 8 * buckets
        sketch = DistinctSketch(buckets=buckets, unit=amount.unit)
    also = {"relative_error": error / guess.keys}
    return proposed("distinct", sketch, amount, guess, shape, error, memory=room, also=also)
