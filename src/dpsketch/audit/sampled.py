"""Mechanisms that are sampled on two neighbours, whatever their law: what is shipped, and what is kept as published.

Sampling sees half of the noise where a row of the table, which knows the law, sees a fifth less; but it sees what does
not follow its law. Kinds that add noise are attacked on a pair of their row. The others, on neighbours that are worst
for them: the odds of a quantile that lies beyond a gap, a key that nobody has, an empty stream. A local protocol is
attacked by the reports of two people, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpsketch import kernels, local
from dpsketch.audit.bounds import LEARNERS, Outputs, Scores, known
from dpsketch.audit.findings import PURE, Attacked, AuditRow, Claim, Finding, Mechanism, claim_of, printed_promise
from dpsketch.audit.grid import GRID
from dpsketch.audit.laws import bits_of
from dpsketch.local.hashed import HashedProtocol
from dpsketch.privacy import Guarantee, Unit, per_record, per_user
from dpsketch.sketches.density import DensitySketch
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.moment import MomentProfile, MomentSketch, MomentSketchAsPublished
from dpsketch.sketches.quantiles import QuantileSketch
from dpsketch.sketches.sparse import SparseHistogram

__all__ = [
    "BY_LAW", "PROTOCOLS", "PUBLISHED", "REPORTS", "SHIPPED", "SVIM_PHASES", "Reported", "protocol", "sampled", "svim",
]  # fmt: skip

_EPSILON, _REPORTS = 1.5, 8
# So many hash functions are learned outcome by outcome.
_FEW_SEEDS = 8
_BARE = 20.0

# Each protocol that claims ε-local privacy, small enough that its reports have few outcomes, with two things to hold.
PROTOCOLS: dict[str, tuple[Callable[[float], local.LocalProtocol], Any, Any]] = {
    "subset-hashing": (lambda e: local.SubsetHashing(epsilon=e, max_items=2, width=6, seeds=2), [0, 1], [2, 3]),
    "subset-direct": (lambda e: local.SubsetDirect(epsilon=e, max_items=2, domain=4), [0, 1], [2, 3]),
    "sampled-bit": (lambda e: local.SampledBit(epsilon=e, rows=1, width=2), [0], []),
    "optimal-local-hashing": (lambda e: local.OptimalLocalHashing(epsilon=e, seeds=2), 0, 3),
    "count-mean-sketch": (lambda e: local.CountMeanSketch(epsilon=e, rows=1, width=4), 0, 1),
    "hadamard-count-mean": (lambda e: local.HadamardCountMean(epsilon=e, rows=1, width=2), 0, 1),
    "multi-pcms": (lambda e: local.MultiPCMS(epsilon=e, rows=1, width=2), list(range(20)), []),
    "pad-and-sample": (lambda e: local.PadAndSample(epsilon=e, length=1, width=4, seeds=2), [0], [3]),
    "set-sizes": (lambda e: local.SetSizes(epsilon=e, largest=2), [0], [0, 1]),
    "prefix-heavy-hitters": (
        lambda e: local.PrefixHeavyHitters(epsilon=e, max_items=1, length=1, width=4, seeds=2), ["a"], ["z"],
    ),
}  # fmt: skip


# A person who runs SVIM reports once, in one of its phases; each with its protocol and two things to hold.
SVIM_PHASES: dict[str, tuple[Callable[[local.SVIM], local.LocalProtocol], Any, Any]] = {
    "candidates": (lambda svim: svim.first_phase, [0], [3]),
    "sizes": (lambda svim: svim.size_phase, 0, 3),
    "direct": (lambda svim: svim.last_phase(2, [0, 1, 2, 3]), [0, 1], [2, 3]),
    "hashed": (lambda svim: svim.last_phase(1, list(range(40))), [0], [3]),
}


def protocol(name: str, noise: float = 1.0) -> Mechanism:
    """Two people who hold different things, by their reports. A mutant reports at a larger ε than it claims."""
    make, one, other = PROTOCOLS[name]
    return _reported(f"local-{name}", make(_EPSILON).guarantee, make(_EPSILON / noise), one, other)


def svim(phase: str, noise: float = 1.0) -> Mechanism:
    """One person's report in a phase of SVIM, under the promise that SVIM makes for all of them."""
    make, one, other = SVIM_PHASES[phase]
    drawn = make(local.SVIM(_EPSILON / noise, top=2))
    return _reported(f"svim-{phase}", local.SVIM(_EPSILON, top=2).guarantee, drawn, one, other)


def _reported(
    name: str, promise: Guarantee, drawn: local.LocalProtocol, one: Any, other: Any, pair: str = "worst"
) -> Mechanism:
    def runs(held: Any) -> Callable[[int], Outputs]:
        # Reports are drawn many at a time.
        return lambda trials: _reports(drawn, held, trials * _REPORTS)

    learners = dict(LEARNERS)
    if isinstance(drawn, HashedProtocol) and drawn.seeds > _FEW_SEEDS:
        learners["support"] = known(_support(drawn, one, other))
    return Mechanism(name, _WORDS[pair], printed_promise(promise), runs(one), runs(other), learners)


def _reports(drawn: local.LocalProtocol, held: Any, people: int) -> Outputs:
    """Return the fields of so many people's reports; the identifier is random and says nothing."""
    reports = drawn.report([held] * people)
    columns, _ = drawn.form.from_table(reports)
    if columns is None:
        raise AssertionError("a protocol does not read its own reports")
    fields = [np.asarray(value).reshape(people, -1) for key, value in columns.items() if key != "id"]
    return np.concatenate(fields, axis=1).astype(np.float64)


def _support(drawn: HashedProtocol, one: Any, other: Any) -> Callable[[Outputs], Scores]:
    """Score a report by whether its bucket is that of the one or of the other, for the hash function that it names.

    Which bucket that is, is read off reports of a protocol that hardly randomises.
    """
    changed: dict[str, Any] = {"epsilon": _BARE, "width": drawn.buckets}
    bare = replace(drawn, **changed)
    tables = []
    for held in (one, other):
        table = np.full(drawn.seeds, -1.0)
        shown = _reports(bare, held, 40 * drawn.seeds)
        table[shown[:, 0].astype(int)] = shown[:, 1]
        tables.append(table)

    def score(reports: Outputs) -> Scores:
        places = reports[:, 0].astype(int)
        found: Scores = (reports[:, 1] == tables[0][places]).astype(np.float64) - (reports[:, 1] == tables[1][places])
        return found

    return score


# Besides two things that differ most: somebody who holds nothing, where the protocol lets them; two things that are one
# to the protocol, by a bucket or by a bound on how many count; and somebody who holds far more than that.
_HELD: dict[str, dict[str, tuple[Any, Any]]] = {
    "subset-hashing": {"null": ([], [0, 1]), "colliding": ([0, 1], [1, 0]), "clipped": (list(range(40)), [0])},
    "subset-direct": {"null": ([], [0, 1]), "colliding": ([0, 1], [1, 0]), "clipped": ([0, 1, 2, 3], [0])},
    "sampled-bit": {"null": ([], [1]), "colliding": ([0], [0, 0]), "clipped": (list(range(40)), [])},
    "optimal-local-hashing": {"colliding": (0, 1)},
    "count-mean-sketch": {"colliding": (0, 5)},
    "hadamard-count-mean": {"colliding": (0, 2)},
    "multi-pcms": {"null": ([], [0]), "colliding": ([0], [0, 0]), "clipped": (list(range(400)), [])},
    "pad-and-sample": {"null": ([], [3]), "colliding": ([0], [0, 0]), "clipped": (list(range(40)), [0])},
    "set-sizes": {"null": ([], [0, 1]), "colliding": ([0], [1]), "clipped": (list(range(40)), [])},
    "prefix-heavy-hitters": {"null": ([], ["z"]), "colliding": (["a"], ["a", "a"]), "clipped": (list("abcdefgh"), [])},
}
_WORDS = {
    "worst": "a person who holds something else",
    "null": "a person who holds nothing, or something",
    "colliding": "a person who holds what is the same to the protocol, or nearly",
    "clipped": "a person who holds far more than counts",
}


@dataclass(frozen=True, slots=True)
class Reported(AuditRow):
    """What the reports of a local protocol tell of people who hold nothing, the same, or far too much.

    The unit of a report is a person, whose things are replaced.
    """

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Draw reports, eight for each of ``trials``, and bound ε from below on each pair."""
        make, one, other = PROTOCOLS[self.subject.removeprefix("local-")]
        promise, drawn = make(_EPSILON).guarantee, make(_EPSILON / self.noise)
        pairs = {"worst": (one, other), **_HELD[self.subject.removeprefix("local-")]}
        return [
            _reported(f"{self.name}-{pair}", promise, drawn, *held, pair).audit(trials, confidence)
            for pair, held in pairs.items()
        ]


_ROWS = [Reported(f"local-{protocol}", "user", "replace") for protocol in PROTOCOLS]
REPORTS: dict[str, Reported] = {row.name: row for row in _ROWS}


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
    "counts-user-laplace": "counts-laplace-user-add",
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
