"""The pan-private sketch: audited on the pair (one seized state, the publication), and broken without fresh noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting, audit, noise
from dpsketch.errors import InvalidInput, ReleaseRefused, SensitiveData
from dpsketch.privacy import GaussianCost

TRIALS = 1500
CONFIDENCE = 1 - 1e-7
# A Gaussian's guarantee holds at every δ; a large one needs few trials to see that noise was halved.
EPSILON, DELTA = 1.0, 0.3


def run(before: list[int], after: list[int], *, epsilon: float = EPSILON, fresh: bool = True):
    """One life of a sketch: records, a seizure, records, the publication."""
    unit = dps.per_record()
    sketch = dps.PanPrivateCountSketch(rows=3, width=4, unit=unit, epsilon=epsilon, delta=DELTA, key_type="int")
    sketch.update(before)
    seized = sketch.snapshot()
    sketch.update(after)
    published = sketch.publish().table if fresh else sketch.snapshot()
    return seized, published


def score(key: int):
    """Read the key off the seized state and off what was published beyond it; the two are independent."""
    probe = dps.CountSketch(rows=3, width=4, unit=dps.per_record(), key_type="int")
    probe.update([key])
    from dpsketch import files

    pattern = np.asarray(files.decode(probe.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])
    return lambda pair: float((pattern * pair[0]).sum()), lambda pair: float((pattern * (pair[1] - pair[0])).sum())


def audited(place: int, **how: object) -> float:
    """The audited ε for a record that came before (0) or after (1) the seizure."""
    data = [([1, 2], [3]), ([1, 2, 7], [3])] if place == 0 else [([1, 2], [3]), ([1, 2], [3, 7])]
    read = score(7)[place]
    with noise.seeded_noise_for_tests_only(5 + place):
        found = audit.epsilon_lower_bound(
            lambda streams: run(*streams, **how), data[0], data[1],
            score=read, trials=TRIALS, delta=DELTA, confidence=CONFIDENCE,
        )  # fmt: skip
    return found.epsilon


@pytest.mark.parametrize("place", [0, 1], ids=["before", "after"])
def test_the_guarantee_holds_for_a_record_before_and_after_the_seizure(place: int) -> None:
    assert 0 < audited(place) <= EPSILON
    halved = accounting.gaussian_epsilon(2 * accounting.gaussian_mu(EPSILON, DELTA), DELTA)
    assert audited(place, epsilon=halved) > EPSILON


def test_without_fresh_noise_the_records_after_the_seizure_are_exposed() -> None:
    """The difference of two looks at the same noise is the records in between, exactly."""
    seized, shown = run([1, 2], [3], fresh=False)
    assert np.abs(shown - seized).sum() == 3
    assert audited(1, fresh=False) > 1.5 * EPSILON


def test_publication_carries_both_noises_and_ends_the_sketch() -> None:
    unit = dps.per_record()
    sketch = dps.PanPrivateCountSketch(rows=5, width=2000, unit=unit, epsilon=1.0, delta=1e-6, key_type="text")
    sketch.update(["a"] * 50)
    private = sketch.publish()
    sigma = math.sqrt(5) / accounting.gaussian_mu(1.0, 1e-6)
    assert private.noise_scale == pytest.approx(math.sqrt(2 * (sigma**2 + 1 / 12)))
    assert float(private.table.std()) == pytest.approx(private.noise_scale, rel=0.05)
    assert "one seizure of the state" in str(private.guarantee)
    (cost,) = private.guarantee.costs
    assert isinstance(cost, GaussianCost)
    assert cost.mu == pytest.approx(accounting.gaussian_mu(1.0, 1e-6), rel=1e-12)
    for again in (sketch.publish, sketch.snapshot, lambda: sketch.update(["b"])):
        with pytest.raises(ReleaseRefused, match="ended it"):
            again()


def test_a_released_table_cannot_be_updated() -> None:
    assert not hasattr(dps.PrivateCountSketch, "update")
    assert not hasattr(dps.PrivateCountSketch, "release")


@pytest.mark.parametrize("budget", [{"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 1.0, "delta": 0}, {"rho": 0.1}])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_either_noise_is_that_of_a_single_release(relation: Any, budget: dict[str, float]) -> None:
    unit = dps.per_record(max_weight=3, neighbours=relation)
    sketch = dps.PanPrivateCountSketch(rows=3, width=8, unit=unit, key_type="int", **budget)
    (law,) = sketch.spec.laws(dps.Budget(**budget))
    assert sketch._stream.law.noise == law.noise
    assert sketch.guarantee.costs == law.costs()


def test_an_exact_state_is_not_handed_out() -> None:
    shape: dict[str, Any] = {"rows": 3, "width": 8, "unit": dps.per_record(), "key_type": "int"}
    with pytest.raises(SensitiveData):
        dps.ContinualCountSketch(days=1, **shape, epsilon=1.0, delta=1e-6).snapshot()


def test_users_are_refused() -> None:
    with pytest.raises(InvalidInput, match="protects records"):
        dps.PanPrivateCountSketch(rows=3, width=8, unit=dps.per_user(max_keys=2), epsilon=1.0, delta=0, key_type="int")
