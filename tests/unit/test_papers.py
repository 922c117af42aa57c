"""The noise of a mechanism that only a reproduction has, against exact moves; ``test_reproduce`` runs papers whole."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.noise import DiscreteLaplace
from dpsketch.reproduce import find_papers


@pytest.fixture
def bernstein(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The paper's module, in a package of another name, so that a reproduction in this process is not disturbed."""
    package = ModuleType("race_under_test")
    package.__path__ = [str(find_papers() / "race")]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    return importlib.import_module(f"{package.__name__}.bernstein")


@pytest.mark.parametrize(("dim", "degree", "bandwidth"), [(1, 20, 0.1), (2, 8, 0.3)])
def test_no_record_moves_bernstein_values_further_than_the_norms(
    bernstein: Any, dim: int, degree: int, bandwidth: float
) -> None:
    """Exact norms of single records: on the lattice, between its places, at random, and outside of the bounds.

    The sharp norms are nearly reached, so they are not far too large; and noise is calibrated to them.
    """
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
