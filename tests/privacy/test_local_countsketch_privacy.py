"""The local CountSketch on the two people that are farthest apart; the paper's scale, read literally, is refuted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpsketch import accounting, audit, noise
from dpsketch._compiled import countsketch as kernels
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.noise import RoundedGaussian
from dpsketch.privacy import GaussianCost
from dpsketch.sketches.countsketch.local_model import LocalCountSketch

ROWS, WIDTH, TRIALS = 3, 2, 20_000
# The whole file's audits are certified at 1 - 1e-9 each.
CONFIDENCE = 1 - 1e-9
DELTA = 0.02


def protocol(epsilon: float = 1.0, delta: float = 1e-3) -> LocalCountSketch:
    return LocalCountSketch(ROWS, WIDTH, 1, "int", epsilon=epsilon, delta=delta)


@pytest.fixture(scope="module")
def opposites() -> tuple[int, int]:
    """Two keys with the same cells and opposite signs in every row: their sketches are 2c apart."""
    keys = np.arange(3000)
    buckets, signs = kernels.cells(fingerprint(keys).fingerprints, row_keys(1, ROWS), WIDTH)
    seen: dict[bytes, int] = {}
    for key, cells, sign in zip(keys.tolist(), buckets, signs, strict=True):
        other = seen.get(cells.tobytes() + (-sign).tobytes())
        if other is not None:
            return other, key
        seen[cells.tobytes() + sign.tobytes()] = key
    raise AssertionError("no pair found")


def sketches(keys: tuple[int, int]) -> list[np.ndarray]:
    exact = protocol(epsilon=1e5, delta=0.5)
    return [exact.report([key]) for key in keys]


def test_the_farthest_people_are_a_diameter_apart(opposites: tuple[int, int]) -> None:
    one, other = sketches(opposites)
    local = protocol()
    distance = float(np.sqrt(np.square(one - other).sum()))
    assert distance == pytest.approx(local.spec.sensitivity.l2)
    for key in range(200):
        assert np.sqrt(np.square(one - sketches((key, key))[0]).sum()) <= local.spec.sensitivity.l2 + 1e-12
    assert isinstance(local.noise, RoundedGaussian)
    (cost,) = local.guarantee.costs
    assert isinstance(cost, GaussianCost)
    # ρ = (distance/σ)²/2: what was promised, and four times that with the scale that the text prints.
    promised = cost.mu**2 / 2
    assert (distance / local.noise.sigma) ** 2 / 2 == pytest.approx(promised)
    assert (distance / local.noise_as_published.sigma) ** 2 / 2 == pytest.approx(4 * promised)


@pytest.mark.parametrize(("law", "verdict"), [("noise", "holds"), ("noise_as_published", "violated")])
def test_audited_on_the_farthest_people(opposites: tuple[int, int], law: str, verdict: str) -> None:
    one, other = (table.ravel() for table in sketches(opposites))
    local = protocol()
    (cost,) = local.guarantee.costs
    claimed = accounting.gaussian_epsilon(cost.mu, DELTA)
    with noise.seeded_noise_for_tests_only(7):
        seen = [getattr(local, law).sample(TRIALS * one.size).reshape(TRIALS, -1) + table for table in (one, other)]
    scores = [reports @ (other - one).astype(float) for reports in seen]
    found = audit.lower_bound_from_scores(*scores, delta=DELTA, confidence=CONFIDENCE)
    assert found.verdict(claimed) == verdict
    assert found.epsilon > 0.25 * claimed


def test_the_public_path_end_to_end(opposites: tuple[int, int], seeded: None) -> None:
    """Audit report() itself, at a large δ that needs few trials; then with an ε that stands for half the noise."""
    one, other = sketches(opposites)
    delta = 0.3
    halved = accounting.gaussian_epsilon(2 * accounting.gaussian_mu(1.0, delta), delta)
    for epsilon, caught in ((1.0, False), (halved, True)):
        local = protocol(epsilon, delta)
        found = audit.epsilon_lower_bound(
            local.report, [opposites[0]], [opposites[1]],
            score=lambda table: float(((other - one) * table).sum()),
            trials=1200, delta=delta, confidence=1 - 1e-7,
        )  # fmt: skip
        assert (found.epsilon > 1.0) == caught


def test_any_two_reports_are_within_the_diameter() -> None:
    """People with several keys: no two own sketches are farther apart than what the noise was made for."""
    local = LocalCountSketch(ROWS, 4, 5, "int", epsilon=1e5, delta=0.5)
    rng = np.random.default_rng(3)
    tables = [local.report(rng.integers(0, 60, rng.integers(0, 9))) for _ in range(60)]
    widest = max(float(np.square(a - b).sum()) ** 0.5 for a, b in itertools.combinations(tables, 2))
    assert 0.5 * local.spec.sensitivity.l2 < widest <= local.spec.sensitivity.l2
