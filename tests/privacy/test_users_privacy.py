"""The claim for users, audited on the worst of them: one whose keys were chosen to share cells."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting, audit, files, noise
from dpsketch.privacy import GaussianCost
from oracles import bounding as oracle
from parts import bound_of

TRIALS = 20_000
ROWS, WIDTH, SEED, MAX_KEYS = 3, 4, 11, 12

# The whole file's audits are certified at 1 - 1e-9 each: a false alarm in all of them together is below 1e-7.
CONFIDENCE = 1 - 1e-9


@pytest.fixture(scope="module")
def worst() -> list[int]:
    return oracle.keys_that_share_cells(2 * MAX_KEYS, SEED, ROWS, WIDTH)


def sketch(neighbours: str = "add_remove") -> dps.CountSketch:
    unit = dps.per_user(MAX_KEYS, neighbours=neighbours)
    return dps.CountSketch(rows=ROWS, width=WIDTH, unit=unit, seed=SEED, key_type="int")


def exact(some: dps.CountSketch) -> np.ndarray:
    return np.asarray(files.decode(some.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"]).ravel()


def audited(law: noise.Noise, moved: np.ndarray, delta: float, seed: int) -> audit.Audit:
    """Audit a release whose counters move by ``moved``, with the most powerful test for the law."""
    with noise.seeded_noise_for_tests_only(seed):
        without = law.sample(TRIALS * moved.size).reshape(TRIALS, moved.size)
        within = law.sample(TRIALS * moved.size).reshape(TRIALS, moved.size) + moved

    def ratio(tables: np.ndarray) -> np.ndarray:
        if isinstance(law, noise.DiscreteLaplace):
            return (np.abs(tables) - np.abs(tables - moved)).sum(axis=1).astype(float)
        return (tables @ moved).astype(float)

    return audit.lower_bound_from_scores(ratio(without), ratio(within), delta=delta, confidence=CONFIDENCE)


def stated(private: dps.PrivateCountSketch) -> tuple[float, float]:
    """Return an ε and the δ at which 20,000 runs see the most, both from the release's own cost."""
    (cost,) = private.guarantee.costs
    assert isinstance(cost, GaussianCost)
    return accounting.gaussian_epsilon(cost.mu, 0.02), 0.02


def scaled(law: noise.Noise, factor: float) -> noise.RoundedGaussian:
    assert isinstance(law, noise.RoundedGaussian)
    return noise.RoundedGaussian(law.sigma * factor)


@pytest.mark.parametrize("budget", [{"epsilon": 1.5, "delta": 1e-3}, {"rho": 0.8}])
def test_the_worst_user_is_hidden(budget: dict[str, float], worst: list[int]) -> None:
    """At the claimed ε nothing is found; noise for one key (w√k), and halved noise, is caught."""
    moved = exact_of(worst)
    bound = bound_of(sketch().spec)
    assert np.linalg.norm(moved) > 0.8 * bound.l2
    private = sketch().release(**budget)
    claimed, delta = stated(private)
    (law,) = private.noise
    found = audited(law, moved, delta, 1)
    assert found.verdict(claimed) == "holds"
    assert found.epsilon > 0.2 * claimed
    for factor in (math.sqrt(ROWS) / bound.l2, 0.5):
        assert audited(scaled(law, factor), moved, delta, 2).verdict(claimed) == "violated"


def test_pure_privacy_hides_a_user_whose_keys_do_not_meet() -> None:
    """For L1 the worst user's keys share no cell, and no clip touches them. The largest loss is known exactly."""
    some = dps.CountSketch(rows=ROWS, width=4096, unit=dps.per_user(MAX_KEYS), seed=SEED, key_type="int")
    some.update(list(range(MAX_KEYS)), users=["mallory"] * MAX_KEYS)
    moved = exact(some)
    moved = moved[moved != 0]
    (law,) = some.release(epsilon=4.0, delta=0).noise
    # Discrete Laplace noise: a counter that moves by z costs |z|·ε/Δ at most, and outputs beyond both tables cost that.
    assert np.abs(moved).sum() * law.epsilon / law.sensitivity == 4.0
    assert audited(law, moved, 0.0, 1).verdict(4.0) == "holds"
    for_one_key = noise.DiscreteLaplace(4.0, ROWS)
    assert audited(for_one_key, moved, 0.0, 2).verdict(4.0) == "violated"


def test_a_replaced_user_is_hidden_and_half_the_bound_is_not_enough(worst: list[int]) -> None:
    """Two users of opposite signs: under replacement the noise for one of them alone is caught."""
    others = oracle.keys_opposite_to(worst[0], MAX_KEYS, SEED, ROWS, WIDTH)
    moved = exact_of(others) - exact_of(worst[:MAX_KEYS])
    assert np.linalg.norm(moved) > 0.8 * bound_of(sketch("replace").spec).l2
    private = sketch("replace").release(epsilon=1.5, delta=1e-3)
    claimed, delta = stated(private)
    (law,) = private.noise
    assert audited(law, moved, delta, 3).verdict(claimed) == "holds"
    assert audited(scaled(law, 0.5), moved, delta, 4).verdict(claimed) == "violated"


def exact_of(keys: list[int]) -> np.ndarray:
    some = sketch()
    some.update(keys, users=[1] * len(keys))
    return exact(some)


def test_without_the_clip_the_same_noise_is_violated(worst: list[int]) -> None:
    """The twin: the norm of the unclipped user is m√k, and noise for c (or for √(km)) does not hide it."""
    unclipped = exact_of(worst[:1]) * MAX_KEYS
    assert np.linalg.norm(unclipped) == pytest.approx(MAX_KEYS * math.sqrt(ROWS))
    private = sketch().release(epsilon=1.5, delta=1e-3)
    claimed, delta = stated(private)
    (law,) = private.noise
    assert audited(law, unclipped, delta, 5).verdict(claimed) == "violated"
    naive = scaled(law, math.sqrt(ROWS * MAX_KEYS) / bound_of(sketch().spec).l2)
    assert audited(naive, unclipped, delta, 6).verdict(claimed) == "violated"


def test_a_user_split_over_two_partials_would_be_found(worst: list[int]) -> None:
    """The twin of the refusal: with a false statement the two halves together break the claim."""
    halves = [sketch(), sketch()]
    for half, keys in zip(halves, (worst[:MAX_KEYS], worst[MAX_KEYS:]), strict=True):
        half.update(keys, users=["mallory"] * MAX_KEYS)
    halves[0].merge(halves[1], disjoint_users=True)
    private = halves[0].release(epsilon=1.5, delta=1e-3)
    claimed, delta = stated(private)
    assert audited(private.noise[0], exact(halves[0]), delta, 7).verdict(claimed) == "violated"
    assert "not checked" in private.guarantee.caveat


def test_the_public_path_end_to_end(seeded: None, worst: list[int]) -> None:
    """Audit update() and release() themselves with a user more or less."""
    moved = exact_of(worst)

    def mechanism(with_mallory: bool) -> dps.PrivateCountSketch:
        some = sketch()
        keys, users = [1, 2, 3], ["ann", "bob", "ann"]
        if with_mallory:
            keys, users = keys + worst, users + ["mallory"] * len(worst)
        some.update(keys, users=users)
        return some.release(epsilon=4, delta=1e-3)

    found = audit.epsilon_lower_bound(
        mechanism,
        False,
        True,
        score=lambda private: float(private.table.ravel() @ moved),
        trials=1500,
        delta=1e-3,
        confidence=CONFIDENCE,
    )
    assert found.verdict(4) == "holds"
    assert found.epsilon > 0.2
