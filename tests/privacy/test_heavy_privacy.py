"""The claim of a released tree: the costs of all levels together, exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.privacy import GaussianCost, Unit
from dpsketch.sketches.heavy import HeavyHitters, HeavyHittersSpec
from parts import bounds_of, parts_of

UNITS = [
    dps.per_record(),
    dps.per_record(neighbours="replace", max_weight=3),
    dps.per_user(max_keys=12),
    dps.per_user(max_keys=12, neighbours="replace"),
]
SPACES = [{"key_bits": 64}, {"key_bits": 8}, {"key_bytes": 24}, {"key_bytes": 2}]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.level} {unit.neighbours}")
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_levels_add_up_to_the_cost_that_is_charged(space: dict[str, int], unit: Unit) -> None:
    """Σ Δ²/σ² is at most μ² and Σ ε of the levels at most ε: by less than a billionth, so nothing is wasted either."""
    spec = HeavyHittersSpec(7, 4096, unit, **space)
    for budget in ({"epsilon": 1.0, "delta": 1e-6}, {"rho": 0.3}):
        private = HeavyHitters.from_spec(spec).release(**budget)
        (cost,) = private.guarantee.costs
        assert isinstance(cost, GaussianCost)
        bounds = bounds_of(spec)
        spent = math.fsum((bounds[name].l2 / law.sigma) ** 2 for name, (_, law) in parts_of(private).items())
        assert cost.mu**2 * (1 - 1e-9) < spent < cost.mu**2
        assert (bounds["keys"].l2 / private.noise.leaf.sigma) ** 2 == pytest.approx(cost.mu**2 / 2)
    private = HeavyHitters.from_spec(spec).release(epsilon=2.0, delta=0)
    laws = {name: law for name, (_, law) in parts_of(private).items()}
    assert all(law.sensitivity == bounds_of(spec)[name].l1 for name, law in laws.items())
    assert 2 * (1 - 1e-9) < math.fsum(law.epsilon for law in laws.values()) < 2


def exact(sketch: HeavyHitters) -> list[np.ndarray]:
    """The content, part by part, as it is released."""
    document = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True)
    arrays = {name: np.asarray(array).astype(np.int64) for name, array in document.arrays.items() if name != "partials"}
    tables = [*arrays.get("above", ()), *arrays["keys"]]
    return [np.array([int(document.header["mass"])]), arrays["first"], *tables]


def test_a_user_whose_keys_share_their_prefixes_counts_each_prefix_once() -> None:
    """What would move a level by wm√k moves it by w√k, and the last level is clipped."""
    most = 16
    keys = [(5 << 32) + i for i in range(2 * most)]
    one = HeavyHitters(unit=dps.per_user(max_keys=most), rows=3, width=64, key_bits=40, seed=3)
    one.update(keys, users=["mallory"] * len(keys))
    moved = exact(one)
    assert moved[1].max() == 1
    assert [np.linalg.norm(table) for table in moved[2:-1]] == pytest.approx([math.sqrt(3)] * 2)
    assert 0.7 * bounds_of(one.spec)["keys"].l2 < np.linalg.norm(moved[-1]) <= bounds_of(one.spec)["keys"].l2
