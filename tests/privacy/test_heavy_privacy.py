"""The claim of a released tree, all levels together: composed exactly, audited on the worst units, twins caught."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting, audit, files, noise
from dpsketch.privacy import GaussianCost, Unit
from dpsketch.sketches.heavy import HeavyHitters, HeavyHittersSpec, PrivateHeavyHitters
from oracles.hashing import fingerprint, row_values
from oracles.heavy import Shape
from parts import bounds_of, parts_of

TRIALS = 20_000

# The whole file's audits are certified at 1 - 1e-9 each: a false alarm in all of them together is below 1e-7.
CONFIDENCE = 1 - 1e-9

UNITS = [
    dps.per_record(),
    dps.per_record(neighbours="replace", max_weight=3),
    dps.per_user(max_keys=12),
    dps.per_user(max_keys=12, neighbours="replace"),
]
SPACES = [{"key_bits": 64}, {"key_bits": 8}, {"key_bytes": 24}, {"key_bytes": 2}]


def laws_of(private: PrivateHeavyHitters) -> list[noise.Noise]:
    """The noise of every part, each table by itself."""
    laws = private.noise
    return [laws.total, laws.dense, *[laws.inner] * (len(private.tables) - 1), laws.leaf]


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


def audited(laws: list[noise.Noise], moved: list[np.ndarray], delta: float, seed: int) -> audit.Audit:
    """Audit a release whose counters move so far, with the likelihood ratio over all the cells that move."""
    with noise.seeded_noise_for_tests_only(seed):
        scores = np.zeros(TRIALS), np.zeros(TRIALS)
        for law, part in zip(laws, moved, strict=True):
            shift = part[part != 0]
            for score, present in zip(scores, (0, 1), strict=True):
                seen = law.sample(TRIALS * shift.size).reshape(TRIALS, shift.size) + present * shift
                if isinstance(law, noise.DiscreteLaplace):
                    gain = (np.abs(seen) - np.abs(seen - shift)).sum(axis=1)
                    score += gain * (law.epsilon / law.sensitivity)
                else:
                    score += (seen @ shift) / law.sigma**2
    return audit.lower_bound_from_scores(*scores, delta=delta, confidence=CONFIDENCE)


def scaled(law: noise.Noise, factor: float) -> noise.Noise:
    match law:
        case noise.RoundedGaussian(sigma):
            return noise.RoundedGaussian(sigma * factor)
        case noise.DiscreteLaplace(epsilon, sensitivity):
            return noise.DiscreteLaplace(epsilon / factor, sensitivity)
    raise AssertionError


def stated(private: PrivateHeavyHitters) -> tuple[float, float]:
    """Return an ε and the δ at which 20,000 runs see the most, both from the release's own cost."""
    (cost,) = private.guarantee.costs
    if isinstance(cost, GaussianCost):
        return accounting.gaussian_epsilon(cost.mu, 0.02), 0.02
    return private.guarantee.epsilon, private.guarantee.delta


def record(key: int | None, neighbours: str) -> HeavyHitters:
    sketch = HeavyHitters(unit=dps.per_record(neighbours=neighbours), rows=3, width=2, key_bits=32, seed=3)
    sketch.update([] if key is None else [key])
    return sketch


@pytest.fixture(scope="module")
def opposite() -> int:
    """A key that shares every cell of both tables with key 7, with the other sign: the worst replacement."""
    tables = [table.tolist() for table in exact(record(7, "replace"))[2:]]
    row_keys = Shape(3, 2, 3, 32, None).row_keys()
    for key in range(1 << 20, 1 << 24, 257):
        met = [
            row_values(table, [fingerprint(prefix)], keys)
            for table, prefix, keys in zip(tables, (key >> 8, key), row_keys, strict=True)
        ]
        if met == [[[-1] * 3]] * 2:
            return key
    raise AssertionError("no such key")


@pytest.mark.parametrize("budget", [{"epsilon": 1.5, "delta": 1e-3}, {"epsilon": 3.0, "delta": 0.0}], ids=str)
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_a_record_is_hidden_by_all_levels_together(neighbours: str, budget: dict[str, float], opposite: int) -> None:
    """At the claimed ε nothing is found; halved noise, and a budget not shared among the levels, is caught."""
    one, two = record(7, neighbours), record(opposite if neighbours == "replace" else None, neighbours)
    moved = [a - b for a, b in zip(exact(one), exact(two), strict=True)]
    private = one.release(**budget)
    laws = laws_of(private)
    claimed, delta = stated(private)
    found = audited(laws, moved, delta, 1)
    assert found.verdict(claimed) == "holds"
    assert found.epsilon > 0.25 * claimed
    unshared = one.spec.leaf.preview(**budget).noise_scale
    whole = [scaled(law, unshared / math.sqrt(law.variance)) for law in laws]
    for wrong in ([scaled(law, 0.5) for law in laws], whole):
        assert audited(wrong, moved, delta, 2).verdict(claimed) == "violated"


class TestUser:
    """A user whose keys share their prefixes: what would move a level by wm√k."""

    MAX_KEYS = 16

    def sketch(self) -> HeavyHitters:
        return HeavyHitters(unit=dps.per_user(max_keys=self.MAX_KEYS), rows=3, width=64, key_bits=40, seed=3)

    def test_is_hidden(self) -> None:
        """All keys in one subtree: its prefixes are counted once, and the last level is clipped."""
        keys = [(5 << 32) + i for i in range(2 * self.MAX_KEYS)]
        one = self.sketch()
        one.update(keys, users=["mallory"] * len(keys))
        moved = exact(one)
        assert moved[1].max() == 1
        assert [np.linalg.norm(table) for table in moved[2:-1]] == pytest.approx([math.sqrt(3)] * 2)
        assert np.linalg.norm(moved[-1]) > 0.7 * bounds_of(one.spec)["keys"].l2
        private = one.release(epsilon=1.5, delta=1e-3)
        laws = laws_of(private)
        claimed, delta = stated(private)
        assert audited(laws, moved, delta, 3).verdict(claimed) == "holds"
        assert audited([scaled(law, 0.25) for law in laws], moved, delta, 4).verdict(claimed) == "violated"

    def test_would_be_found_if_prefixes_counted_every_key(self) -> None:
        """The twin: the same noise on levels that count a prefix once a key is violated."""
        keys = [(5 << 32) + i for i in range(self.MAX_KEYS)]
        naive = HeavyHitters(unit=dps.per_record(), rows=3, width=64, key_bits=40, seed=3)
        naive.update(keys)
        private = self.sketch().release(epsilon=1.5, delta=1e-3)
        claimed, delta = stated(private)
        laws = laws_of(private)
        assert audited(laws, exact(naive), delta, 5).verdict(claimed) == "violated"


def test_the_public_path_end_to_end(seeded: None) -> None:
    """Audit release() itself, with a distinguisher that adds up all that it can see of one key."""
    stream = [0] * 50

    def mechanism(keys: list[int]) -> PrivateHeavyHitters:
        sketch = HeavyHitters(unit=dps.per_record(), rows=3, width=4, key_bits=9)
        sketch.update(keys)
        return sketch.release(epsilon=3.0, delta=1e-3)

    sketch = HeavyHitters(unit=dps.per_record(), rows=3, width=4, key_bits=9)
    sketch.update([300])
    signs = exact(sketch)[-1]

    def score(private: PrivateHeavyHitters) -> float:
        laws = private.noise
        leaf = float((private.tables[-1] * signs).sum()) / laws.leaf.variance
        return private.total[0] / laws.total.variance + private.dense[1] / laws.dense.variance + leaf

    found = audit.epsilon_lower_bound(
        mechanism, stream, [*stream, 300], score=score, trials=1500, delta=1e-3, confidence=CONFIDENCE
    )
    assert found.verdict(3.0) == "holds"
    assert found.epsilon > 0.2


def test_a_guarantee_is_never_made_of_less_noise_than_it_states() -> None:
    """The laws that a release carries are those that were drawn: the spread of an empty release, to 5 errors (1e-6)."""
    spec = HeavyHittersSpec(7, 4096, dps.per_record(), key_bits=32)
    with noise.seeded_noise_for_tests_only(6):
        private = HeavyHitters.from_spec(spec).release(epsilon=1.0, delta=1e-6)
    for part, law in (
        (private.dense, private.noise.dense),
        (private.tables[0], private.noise.inner),
        (private.tables[1], private.noise.leaf),
    ):
        assert np.mean(part.astype(float) ** 2) == pytest.approx(law.variance, rel=5 * math.sqrt(2 / part.size))
        assert np.mean(part.astype(float) ** 2) != pytest.approx(1.1 * law.variance, rel=5 * math.sqrt(2 / part.size))
