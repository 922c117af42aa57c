"""CountSketch's claims, audited: nothing is found at the claimed ε, and each classical mistake is caught."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting, audit, noise
from dpsketch.privacy import GaussianCost

TRIALS = 20_000
ROWS = 5

# The whole file's audits are certified at 1 - 1e-9 each: a false alarm in all of them together is below 1e-7.
CONFIDENCE = 1 - 1e-9


def scores(law: noise.Noise, shift: int, cells: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood-ratio scores of a release whose ``cells`` counters move by ``shift`` each."""
    with noise.seeded_noise_for_tests_only(seed):
        without = law.sample(TRIALS * cells).reshape(TRIALS, cells)
        within = law.sample(TRIALS * cells).reshape(TRIALS, cells) + shift

    # For Gaussian and Laplace noise alike the likelihood ratio grows with the clipped sum over the moved cells.
    def ratio(table: np.ndarray) -> np.ndarray:
        clipped = np.clip(table, 0, shift) if isinstance(law, noise.DiscreteLaplace) else table
        return clipped.sum(axis=1).astype(float)

    return ratio(without), ratio(within)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("budget", [{"epsilon": 1.0, "delta": 1e-3}, {"epsilon": 3.0, "delta": 0.0}, {"rho": 0.8}])
def test_released_noise_holds_its_epsilon_and_half_of_it_does_not(neighbours: str, budget: dict[str, float]) -> None:
    sketch = dps.CountSketch(rows=ROWS, width=16, unit=dps.per_record(neighbours=neighbours))
    private = sketch.release(**budget)
    (law,) = private.noise
    shift = 2 if neighbours == "replace" else 1
    claimed, delta = private.guarantee.epsilon, private.guarantee.delta
    (cost,) = private.guarantee.costs
    if isinstance(cost, GaussianCost):
        # A Gaussian's cost bounds ε at every δ; at this one 20,000 runs see the most.
        delta = 0.02
        claimed = accounting.gaussian_epsilon(cost.mu, delta)
    found = audit.lower_bound_from_scores(*scores(law, shift, ROWS, 1), delta=delta, confidence=CONFIDENCE)
    assert found.verdict(claimed) == "holds"
    assert found.epsilon > 0.25 * claimed
    match law:
        case noise.RoundedGaussian(sigma):
            halved: noise.Noise = noise.RoundedGaussian(sigma / 2)
            no_rows: noise.Noise = noise.RoundedGaussian(sigma / math.sqrt(ROWS))
        case noise.DiscreteLaplace(epsilon, sensitivity):
            halved = noise.DiscreteLaplace(2 * epsilon, sensitivity)
            no_rows = noise.DiscreteLaplace(epsilon * math.sqrt(ROWS), sensitivity)
    for wrong in (halved, no_rows):
        caught = audit.lower_bound_from_scores(*scores(wrong, shift, ROWS, 2), delta=delta, confidence=CONFIDENCE)
        assert caught.verdict(claimed) == "violated"


def test_the_public_path_end_to_end(seeded: None) -> None:
    """Audit release() itself on neighbouring streams, with the distinguisher reading one key's estimate."""
    stream = [0] * 50

    def mechanism(keys: list[int]) -> dps.PrivateCountSketch:
        sketch = dps.CountSketch(rows=3, width=8, unit=dps.per_record())
        sketch.update(keys)
        return sketch.release(epsilon=1.5, delta=1e-3)

    def score(private: dps.PrivateCountSketch) -> float:
        return float(private.estimate([7], estimator="mean").value[0])

    found = audit.epsilon_lower_bound(
        mechanism, stream, [*stream, 7], score=score, trials=2000, delta=1e-3, confidence=CONFIDENCE
    )
    assert found.verdict(1.5) == "holds"
    assert found.epsilon > 0.1


def test_the_exact_delta_of_the_released_law_is_at_most_the_claim() -> None:
    """The rounded Gaussian's δ at ε, summed exactly over one row's outputs, and with halved σ far above it."""
    from scipy.special import ndtr

    def delta_of(sigma: float, epsilon: float, shift: int) -> float:
        z = np.arange(-int(40 * sigma) - 50, int(40 * sigma) + 50)
        p = ndtr((z + 0.5) / sigma) - ndtr((z - 0.5) / sigma)
        q = ndtr((z - shift + 0.5) / sigma) - ndtr((z - shift - 0.5) / sigma)
        return float(np.maximum(0, p - math.exp(epsilon) * q).sum())

    for epsilon in (0.1, 1.0, 4.0):
        sketch = dps.CountSketch(rows=1, width=4, unit=dps.per_record())
        (law,) = sketch.release(epsilon=epsilon, delta=1e-6).noise
        assert isinstance(law, noise.RoundedGaussian)
        assert 0.5e-6 < delta_of(law.sigma, epsilon, 1) <= 1e-6 * (1 + 1e-6)
        assert delta_of(law.sigma / 2, epsilon, 1) > 1e-4


def test_sigma_is_the_analytic_one() -> None:
    """σ per unit of sensitivity at δ = 1e-6, to the figures printed in MATH."""
    for epsilon, sigma in ((0.1, 36.30), (1.0, 4.2247), (4.0, 1.1935)):
        assert 1 / accounting.gaussian_mu(epsilon, 1e-6) == pytest.approx(sigma, rel=2e-4)


@pytest.mark.parametrize("truth", [0.0, 0.7, 2.0])
def test_the_audit_itself_is_right(truth: float) -> None:
    """On randomised response, whose ε is known, the bound is below it, and close to it."""
    rng = np.random.default_rng(5)
    keep = math.exp(truth) / (1 + math.exp(truth))
    without, within = rng.random(200_000) > keep, rng.random(200_000) < keep
    found = audit.lower_bound_from_scores(without.astype(float), within.astype(float), confidence=0.999)
    assert truth - 0.05 <= found.epsilon <= truth or found.epsilon == 0.0 == truth


def test_the_audit_keeps_its_confidence() -> None:
    """Of 400 audits at 90% confidence of a mechanism with ε = 1, at most 10% (here: 80) exceed it (rate < 1e-6)."""
    rng = np.random.default_rng(6)
    keep = math.e / (1 + math.e)
    wrong = 0
    for _ in range(400):
        without, within = rng.random(2000) > keep, rng.random(2000) < keep
        found = audit.lower_bound_from_scores(without.astype(float), within.astype(float), confidence=0.9)
        wrong += found.epsilon > 1
    assert wrong <= 80
