"""The pan-private sketch: what its two noises cost, and what it refuses. Its draws are held in tests/contract."""

from __future__ import annotations

from typing import Any

import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput, SensitiveData


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
