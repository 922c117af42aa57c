"""What only the reproductions of papers use, against slow and obvious versions; ``test_reproduce`` runs them whole."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import local
from dpsketch.noise import DiscreteLaplace
from dpsketch.reproduce import find_papers


@pytest.fixture(scope="module")
def papers() -> Iterator[Any]:
    """Modules of papers, in packages of other names, so that a reproduction in the same process is not disturbed."""

    def load(paper: str, name: str) -> Any:
        package = ModuleType(f"{paper}_under_test")
        package.__path__ = [str(find_papers() / paper)]
        sys.modules.setdefault(package.__name__, package)
        return importlib.import_module(f"{package.__name__}.{name}")

    yield load
    for name in [name for name in sys.modules if name.split(".")[0].endswith("_under_test")]:
        del sys.modules[name]


def test_a_crafted_user_collides_as_much_as_greedy_search_can(papers: Any) -> None:
    """Compare with trying every key at every step; ties may be broken differently, so norms are compared."""
    mechanisms = papers("countsketch", "mechanisms")
    keys, rows, width, most = np.arange(120), 3, 16, 6
    chosen = mechanisms.crafted_user(rows, width, keys, most)

    def squared(some: list[int]) -> float:
        return float(np.square(mechanisms.release(rows, width, mechanisms.NOISELESS, some).table).sum())

    for size in range(1, most):
        before = chosen[:size].tolist()
        best = max(squared([*before, key]) for key in keys.tolist() if key not in before)
        assert squared(chosen[: size + 1].tolist()) == best
    assert rows * most < squared(chosen.tolist()) <= rows * most**2
    clipped = dps.CountSketch(rows=rows, width=width, unit=dps.per_user(most))
    clipped.update(chosen, users=np.zeros(most, np.int64))
    assert np.square(clipped.release(rho=1e9).table).sum() <= rows * most * (1 + 3 * math.sqrt(2 / (rows * width)))


@pytest.mark.parametrize("law", ["sampled", "unsampled"])
def test_noise_is_that_of_the_librarys_protocol(papers: Any, law: str) -> None:
    """Mean and variance of 1,000 estimates of 30 keys, drawn independently, against the library's prediction.

    The mean of all lies within six standard errors (2e-9). The variances' ratio, a mean over 3·10⁴ nearly normal draws,
    varies by 0.8%: 5% is six times that. Noise for ε·1.1 is 15% and more off where noise is all there is.
    """
    rng, keys = np.random.default_rng(4), np.arange(30)
    people = papers("privsketch", "data").zipf_sets("small", rng.integers(3, 7, 400), 30, rng)
    budgets = papers("privsketch", "large_budgets")
    sketches = budgets.Sketches.of(people, 2, 8, rng)
    protocol = local.PrivSketchAsPublished(1.0, rows=2, width=8, variant=law)
    shares = sketches.minimum(keys) / 400
    predicted = np.array([protocol.variance(share, 400) for share in shares])

    def spread(epsilon: float) -> float:
        values = np.array([getattr(budgets, f"privsketch_{law}")(sketches, keys, epsilon, rng) for _ in range(1000)])
        if epsilon == 1:
            assert abs(np.mean(values - shares)) < 6 * np.sqrt(predicted.mean() / values.size)
        return float(np.mean(values.var(axis=0) / predicted))

    assert spread(1.0) == pytest.approx(1, abs=0.05)
    assert abs(spread(1.1) - 1) > 0.05


@pytest.mark.parametrize(("dim", "degree", "bandwidth"), [(1, 20, 0.1), (2, 8, 0.3)])
def test_no_record_moves_bernstein_values_further_than_the_norms(
    papers: Any, dim: int, degree: int, bandwidth: float
) -> None:
    """Exact norms of single records: on the lattice, between its places, at random, and outside of the bounds.

    The sharp norms are nearly reached, so they are not far too large; and noise is calibrated to them.
    """
    bernstein = papers("race", "bernstein")
    lattice = bernstein.Lattice(dps.kernels.Euclidean(dim, bandwidth), (0.0, 1.0), degree)
    rng, places = np.random.default_rng(4), lattice.places()
    between = np.clip(places + 0.5 / degree, 0, 1)
    records = np.vstack([places, between, rng.uniform(size=(300, dim)), rng.uniform(-5, 5, size=(50, dim))])
    moved = np.stack([lattice.sensitive_values(record[None, :]).ravel() for record in records])
    largest = [np.abs(moved).sum(axis=1).max(), np.sqrt((moved**2).sum(axis=1)).max()]
    published, sharp, finer = lattice.norms("published"), lattice.norms("sharp"), lattice.norms("sharp", splits=8)
    for norm in range(2):
        assert largest[norm] <= finer[norm] <= sharp[norm] * (1 + 1e-12) <= published[norm] * (1 + 1e-12)
        assert largest[norm] > sharp[norm] / 1.5
    values = np.zeros(lattice.shape, dtype=np.int64)
    for bound in ("published", "sharp"):
        l1, l2 = lattice.norms(bound)
        pure = bernstein.release(lattice, values, epsilon=0.5, delta=0.0, bound=bound)
        assert pure.noise == DiscreteLaplace(0.5, l1)
        gaussian = bernstein.release(lattice, values, epsilon=1.0, delta=1e-6, bound=bound)
        assert 4.2247 * l2 * 1.0001 >= gaussian.noise.sigma >= l2 / 0.23671
