"""Mechanisms that are sampled on two neighbours, whatever their law: what is shipped, and what is kept as published.

Sampling sees half of the noise where a row of the table, which knows the law, sees a fifth less; but it sees what does
not follow its law. Kinds that add noise are attacked on a pair of their row. The others, on neighbours that are worst
for them: the odds of a quantile that lies beyond a gap, a key that nobody has, an empty stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpsketch import kernels, local
from dpsketch.audit.bounds import LEARNERS, Outputs
from dpsketch.audit.findings import PURE, Attacked, Claim, Mechanism, claim_of, printed_promise
from dpsketch.audit.flips import bits_of
from dpsketch.audit.grid import GRID
from dpsketch.audit.local import PROTOCOLS, SVIM_PHASES, protocol, svim
from dpsketch.privacy import Guarantee, Unit, per_record, per_user
from dpsketch.sketches.density import DensitySketch
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.moment import MomentProfile, MomentSketch, MomentSketchAsPublished
from dpsketch.sketches.quantiles import QuantileSketch
from dpsketch.sketches.sparse import SparseHistogram

__all__ = ["BY_LAW", "PUBLISHED", "SHIPPED", "sampled"]

# Publishes what is held for a budget: numbers, and the guarantee beside them.
Publish = Callable[[Any, Attacked], tuple[Any, Guarantee]]


def sampled(
    name: str, neighbours: str, publish: Publish, sides: tuple[Any, Any], budget: Attacked, *,
    claim: Callable[[Guarantee], Claim] = printed_promise, noise: float = 1.0, of_delta: bool = False,
    shipped: bool = True,
) -> Mechanism:  # fmt: skip
    """Return a mechanism whose runs publish one of two sides afresh.

    A mutant spends ``1/noise`` times the ε that it claims, or that to the third power times the δ.
    """
    asked = Attacked(epsilon=budget["epsilon"] / noise, delta=budget["delta"])
    if of_delta:
        asked = Attacked(epsilon=budget["epsilon"], delta=budget["delta"] / noise**3)

    def runs(held: Any) -> Callable[[int], Outputs]:
        return lambda trials: np.array([publish(held, asked)[0] for _ in range(trials)], dtype=np.float64)

    _, promise = publish(sides[0], budget)
    return Mechanism(name, neighbours, claim(promise), runs(sides[0]), runs(sides[1]), LEARNERS, shipped)


def _of_row(name: str, row: str, noise: float = 1.0) -> Mechanism:
    return replace(GRID[row], noise=noise).sampled(name)


def _quantile(unit: Unit) -> Publish:
    """Show a median of values most of whose places lie between 0 and 23.

    They are right before a record is added, and wrong by half a rank after it. Those beyond 23 come nearer by half a
    rank, and so gain all that the claim allows.
    """

    def publish(values: list[int], asked: Attacked) -> tuple[Any, Guarantee]:
        sketch = QuantileSketch(unit=unit, bits=5, quantiles=[0.5])
        # The values of the unit that is added are one user's, all others those of a user each.
        users = [0 if value >= 30 else 1 + i for i, value in enumerate(values)] if unit.level == "user" else None
        sketch.update(values, users=users)
        made = sketch.release(**asked)
        return made.cells, made.guarantee

    return publish


def _sparse(**options: Any) -> Publish:
    """Show the bits of a projection, or some of them beside what survives a threshold."""

    def publish(counts: list[int], asked: Attacked) -> tuple[Any, Guarantee]:
        sketch = SparseHistogram(unit=per_record(), domain=8, expected_keys=2, **options)
        sketch.update([1, 5], counts=counts)
        made = sketch.release(**asked)
        if "threshold_share" not in options:
            return bits_of(made.table), made.guarantee
        kept = np.zeros(8)
        kept[made.kept.positions.astype(np.intp)] = made.kept.values
        return np.concatenate([bits_of(made.table[:2]), kept, kept > 0]), made.guarantee

    return publish


def _bitmap(keys: list[int], asked: Attacked) -> tuple[Any, Guarantee]:
    sketch = DistinctSketch(unit=per_record(), buckets=16)
    sketch.update(keys)
    made = sketch.release_mergeable(epsilon=asked["epsilon"])
    return bits_of(made.bitmap), made.guarantee


def _moment(p: float | list[float]) -> Publish:
    make: Any = MomentProfile if isinstance(p, list) else MomentSketch

    def publish(keys: list[int], asked: Attacked) -> tuple[Any, Guarantee]:
        sketch = make(p=p, size=10, unit=per_record(max_weight=3.0), key_type="int")
        sketch.update(keys, weights=[3.0] * len(keys))
        made = sketch.release(**asked)
        return np.log([one.scale for one in (made.moments if isinstance(p, list) else [made])]), made.guarantee

    return publish


def _privsketch() -> Mechanism:
    """PrivSketch's ordering matrix, which goes along with each report, for a person of one item or of another."""
    drawn = local.PrivSketchAsPublished(epsilon=1.0)

    def runs(item: int) -> Callable[[int], Outputs]:
        return lambda trials: local.order_scores(drawn, drawn.report([[item]] * trials), 0)[:, None]

    words, claim = "a person who holds another item", Claim(drawn.epsilon)
    return Mechanism("privsketch-as-published", words, claim, runs(0), runs(1), LEARNERS, shipped=False)


def _race(points: list[float], asked: Attacked) -> tuple[Any, Guarantee]:
    """RACE with the noise of its authors' code, Laplace of scale R/(Nε) on raw counts: N times too little."""
    sketch = DensitySketch(kernel=kernels.Euclidean(dim=1, bandwidth=2.0), rows=3, width=8, unit=per_record())
    sketch.update(points)
    made = sketch.release(epsilon=asked["epsilon"] * 20, delta=0, count_share=0)
    return made.table.ravel(), made.guarantee


def _subsampled(last: tuple[int, float], _: Attacked) -> tuple[Any, Guarantee]:
    """Sub-sampled moments with Theorem 4's ε: ten records of which the last may weigh 16 instead of 1."""
    unit = per_record(max_weight=16.0, neighbours="replace")
    sketch = MomentSketchAsPublished(p=1.0, size=10, unit=unit, records=10, keys=100, rate=0.1)
    sketch.update([1] * 9 + [last[0]], weights=[1.0] * 9 + [last[1]])
    made = sketch.release_as_published(estimator="mle")
    return [made.scale], made.guarantee


# Rows of the table that are sampled as well, on the pair that moves most.
_ADDED = {
    "counts-gaussian": "counts-gaussian-record-add", "counts-laplace": "counts-laplace-record-add",
    "counts-rho": "counts-rho-gaussian-record-add", "counts-replace-gaussian": "counts-gaussian-record-replace",
    "counts-replace-laplace": "counts-laplace-record-replace", "counts-user": "counts-gaussian-user-add",
    "counts-user-laplace": "counts-laplace-user-add", "count-min": "count-min-gaussian-record-add",
    "pan-private-before": "pan-private-gaussian-record-add",
    "pan-private-after": "pan-private-after-gaussian-record-add",
    "continual-counts": "continual-recurrence-gaussian-record-add",
    "shares-alone": "shares-gaussian-record-add", "shares-merged": "shares-merged-gaussian-record-add",
    "heavy-gaussian": "heavy-gaussian-record-add", "heavy-laplace": "heavy-laplace-record-add",
    "heavy-user": "heavy-gaussian-user-add", "ranges-gaussian": "ranges-gaussian-record-add",
    "ranges-laplace": "ranges-laplace-record-add", "distinct": "distinct-laplace-user-add",
    "density-gaussian": "density-gaussian-record-add", "density-laplace": "density-laplace-record-add",
    "density-one-row": "density-one-row-laplace-record-add",
}  # fmt: skip
_ONE, _SOME = Attacked(epsilon=1.0, delta=0.0), Attacked(epsilon=1.0, delta=0.05)
_NEW = "a record added to a key nobody has"
_EMPTY = "an empty stream, and one record of the largest weight"
_UNITS: tuple[list[int], list[int]] = [], [5]
# All others: the row that sees a fifth less of their noise; and neighbours in words, publication, sides and budget.
_OTHERS: dict[str, tuple[str, str, Publish, tuple[Any, Any], Attacked]] = {
    "quantiles": (
        "quantiles-median-record-add", "a record added", _quantile(per_record()), ([0, 23], [0, 23, 31]), PURE,
    ),
    "quantiles-replace": (
        "quantiles-median-record-replace", "the first record replaced by a last one",
        _quantile(per_record(neighbours="replace")), ([0, 23], [23, 31]), PURE,
    ),
    "quantiles-user": (
        "quantiles-median-user-add", "a user added, of two values",
        _quantile(per_user(max_keys=2)), ([0, 0, 23, 23], [0, 0, 23, 23, 31, 30]), PURE,
    ),
    "sparse-alp": ("sparse-record-add", "a record added", _sparse(max_value=2), ([1, 0], [1, 1]), _ONE),
    # The projection has nearly all of the budget, then the threshold; then δ, with which a key may survive alone.
    "sparse-small": ("sparse-record-add", _NEW, _sparse(threshold_share=0.05), ([1, 0], [1, 1]), _ONE),
    "sparse-large": (
        "survivors-record-add", "a record added to a frequent key",
        _sparse(threshold_share=0.9), ([1, 60], [1, 61]), _ONE,
    ),
    "sparse-alone": ("survivors-record-add", _NEW, _sparse(threshold_share=0.5), ([1, 0], [1, 1]), _SOME),
    "distinct-mergeable": ("bitmap-record-add", "a key added", _bitmap, ([1], [1, 12]), PURE),
    "moment-0.5-approximate": (
        "moment-0.5-record-add", _EMPTY, _moment(0.5), _UNITS, Attacked(epsilon=6.0, delta=1e-6)
    ),
    "moment-1-pure": ("moment-1-record-add", _EMPTY, _moment(1.0), _UNITS, Attacked(epsilon=5.0, delta=0.0)),
    "moment-profile": ("moment-1-record-add", _EMPTY, _moment([0.5, 1.0]), _UNITS, Attacked(epsilon=10.0, delta=0.0)),
}  # fmt: skip


def _of(name: str, noise: float = 1.0) -> Mechanism:
    _, words, publish, sides, budget = _OTHERS[name]
    claim = claim_of if name.startswith("moment") else printed_promise
    of_delta = name == "sparse-alone"
    return sampled(name, words, publish, sides, budget, claim=claim, noise=noise, of_delta=of_delta)


# Each takes ``noise``, the share of the noise due that is really drawn: 1, except where the audit itself is tested.
SHIPPED: dict[str, Callable[..., Mechanism]] = {
    **{name: partial(_of_row, name, f"table-{row}") for name, row in _ADDED.items()},
    **{name: partial(_of, name) for name in _OTHERS},
    **{f"local-{name}": partial(protocol, name) for name in PROTOCOLS},
    **{f"svim-{phase}": partial(svim, phase) for phase in SVIM_PHASES},
}

PUBLISHED: dict[str, Callable[[], Mechanism]] = {
    "privsketch-as-published": _privsketch,
    "race-as-published": lambda: sampled(
        "race-as-published", "a point added", _race, ([*range(20)], [*range(20), 500.3]), _ONE,
        claim=lambda _: Claim(1.0), shipped=False,
    ),
    "moments-as-published": lambda: sampled(
        "moments-as-published", "the last of ten records replaced by one of weight 16", _subsampled,
        ((1, 1.0), (2, 16.0)), _ONE, claim=lambda promise: Claim(promise.epsilon), shipped=False,
    ),
}  # fmt: skip

# Sampling sees half of the noise where a law sees a fifth less: the row of the same mechanism that does.
BY_LAW: dict[str, str] = {
    **{name: f"table-{row}" for name, row in _ADDED.items()},
    **{name: f"table-{row}" for name, (row, *_) in _OTHERS.items()},
    **{f"local-{name}": f"table-local-{name}-user-replace" for name in PROTOCOLS},
    "svim-candidates": "table-local-pad-and-sample-user-replace",
    "svim-sizes": "table-local-optimal-local-hashing-user-replace",
    "svim-direct": "table-local-subset-direct-user-replace",
    "svim-hashed": "table-local-pad-and-sample-user-replace",
}
