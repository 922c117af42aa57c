"""RangeSketch's claim, audited over all levels together, on the worst record and the worst user."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting, audit, files, noise
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.privacy import GaussianCost
from dpsketch.sketches.ranges import PrivateRanges, RangeSketch

TRIALS = 20_000
# The whole file's audits are certified at 1 - 1e-9 each: a false alarm in all of them together is below 1e-7.
CONFIDENCE = 1 - 1e-9
DELTA = 0.02


def build(values: list[int], unit: dps.Unit) -> RangeSketch:
    sketch = RangeSketch(unit=unit, bits=18, rows=3, width=4, seed=3)
    sketch.update(values, users=[1] * len(values) if unit.level == "user" else None)
    return sketch


def moved(unit: dps.Unit, mine: list[int], yours: list[int]) -> list[tuple[str, np.ndarray]]:
    """What tells two sketches apart: the change of every level, with the name of its noise."""
    levels = []
    for values in (mine, yours):
        sketch = build(values, unit)
        arrays = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays
        cells, tables = np.asarray(arrays["levels"]).astype(np.int64), np.asarray(arrays["tables"]).astype(np.int64)
        dense = [cells.reshape(1 << depth, -1).sum(axis=1) for depth in sketch.spec.dense_depths]
        levels.append([*dense, *(table.ravel() for table in tables)])
    changes = [a - b for a, b in zip(*levels, strict=True)]
    names = ["total", *["dense"] * (len(dense) - 1), *["leaf"] * len(tables)]
    return [(name, change[change != 0]) for name, change in zip(names, changes, strict=True) if change.any()]


def audited(private: PrivateRanges, changes: list[tuple[str, np.ndarray]], factor: float) -> audit.Audit:
    """Audit the release on those counters that move, with the sum of the levels' log-likelihood ratios as the score."""
    scores = np.zeros((2, TRIALS))
    with noise.seeded_noise_for_tests_only(4):
        for name, change in changes:
            law = getattr(private.noise, name)
            assert isinstance(law, RoundedGaussian)
            less = RoundedGaussian(factor * law.sigma)
            for place in (0, 1):
                out = less.sample(TRIALS * len(change)).reshape(TRIALS, -1) + place * change
                scores[place] += (out @ change) / less.sigma**2
    return audit.lower_bound_from_scores(scores[0], scores[1], delta=DELTA, confidence=CONFIDENCE)


def largest_loss(private: PrivateRanges, changes: list[tuple[str, np.ndarray]], factor: float) -> float:
    """The largest log-likelihood ratio of any output, exactly: discrete Laplace laws reach ε·|change|/Δ each."""
    total = 0.0
    for name, change in changes:
        law = getattr(private.noise, name)
        assert isinstance(law, DiscreteLaplace)
        total += float(np.abs(change).sum()) * law.epsilon / factor / law.sensitivity
    return total


UNITS = {
    "record": (dps.per_record(), [77], []),
    "replaced record": (dps.per_record(neighbours="replace"), [77], [2**17 + 5]),
    "user": (dps.per_user(max_keys=4), [64, 65, 66, 67], []),
}


@pytest.mark.parametrize("name", UNITS)
def test_all_levels_together_keep_the_budget_and_half_the_noise_does_not(name: str) -> None:
    unit, mine, yours = UNITS[name]
    private = build([], unit).release(epsilon=1.0, delta=1e-3)
    changes = moved(unit, mine, yours)
    (cost,) = private.guarantee.costs
    assert isinstance(cost, GaussianCost)
    # A Gaussian's cost bounds ε at every δ; at this one 20,000 runs see the most.
    claimed = accounting.gaussian_epsilon(cost.mu, DELTA)
    found = audited(private, changes, 1.0)
    assert found.verdict(claimed) == "holds"
    assert found.epsilon > 0.1 * claimed
    assert audited(private, changes, 0.5).verdict(claimed) == "violated"


@pytest.mark.parametrize("name", UNITS)
def test_pure_losses_add_up_to_the_budget_exactly(name: str) -> None:
    unit, mine, yours = UNITS[name]
    private = build([], unit).release(epsilon=3.0, delta=0.0)
    changes = moved(unit, mine, yours)
    assert 0.6 * 3.0 < largest_loss(private, changes, 1.0) <= 3.0
    assert largest_loss(private, changes, 0.5) > 3.0


def test_a_budget_for_each_level_alone_is_too_little() -> None:
    """The classical mistake: the whole budget on every level, as if a record were in one of them."""
    unit, mine, yours = UNITS["record"]
    sketch = build([], unit)
    private = sketch.release(epsilon=1.0, delta=1e-3)
    changes = moved(unit, mine, yours)
    claimed = accounting.gaussian_epsilon(accounting.gaussian_mu(1.0, 1e-3), DELTA)
    levels = len(sketch.spec.depths)
    assert audited(private, changes, levels**-0.5).verdict(claimed) == "violated"


def test_the_public_path_end_to_end(seeded: None) -> None:
    """Audit release() itself on neighbouring streams; the distinguisher reads the count of one value."""
    stream = [1] * 20 + [9] * 20

    def mechanism(values: list[int]) -> PrivateRanges:
        sketch = RangeSketch(unit=dps.per_record(), bits=4)
        sketch.update(values)
        return sketch.release(epsilon=1.5, delta=1e-3)

    def score(private: PrivateRanges) -> float:
        return private.range(6, 6).value

    found = audit.epsilon_lower_bound(
        mechanism, stream, [*stream, 6], score=score, trials=800, delta=1e-3, confidence=CONFIDENCE
    )
    assert found.verdict(1.5) == "holds"
