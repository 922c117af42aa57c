"""The paper's mechanism and its rivals, each with the library's own sketch, at the same budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from dpsketch.sketches.countsketch import Estimator

from .baskets import Baskets

__all__ = ["BUDGET", "NOISELESS", "PUBLISHED", "compare", "crafted_user", "market", "release"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
# The deviation for a sensitivity of 1: what the paper's Fig. 5 takes, and what the budget needs.
PUBLISHED = math.sqrt(2 * math.log(1e6))
_ANALYTIC = dps.CountSketch(rows=1, width=2, unit=dps.per_record(), grid=2**-10).spec.preview(**BUDGET).noise_scale
# A deviation that always rounds to 0: the table as it is.
NOISELESS = 1e-4


def release(
    rows: int, width: int, sigma: float, keys: Any, counts: Any = None, *, seed: int = 1, grid: float = 1
) -> dps.PrivateCountSketch:
    """Release counts at the ρ at which the Gaussian mechanism on the counts themselves has deviation ``sigma``.

    The paper's mechanism: noise of deviation ``sigma``·√rows on every counter.
    """
    sketch = dps.CountSketch(rows=rows, width=width, unit=dps.per_record(), seed=seed, grid=grid)
    sketch.update(keys, counts=counts)
    return sketch.release(rho=0.5 / sigma**2)


def compare(
    shapes: Iterable[int],
    width: int,
    sigma: float,
    keys: Integers,
    truth: Integers,
    seeds: int,
    *,
    grid: float = 1,
    joint: Sequence[int] = (),
) -> dict[str, dict[int, Floats]]:
    """Return the errors of every way to read a release, by the number of rows; joint decoding for some of them."""
    estimators: tuple[Estimator, ...] = ("median", "mean", "robust")
    found: dict[str, dict[int, Floats]] = {name: {} for name in (*estimators, "joint")}
    for rows in shapes:
        made = [release(rows, width, sigma, keys, truth, seed=seed, grid=grid) for seed in range(seeds)]
        for name in estimators:
            found[name][rows] = _asked(made, keys, truth, name)
        if rows in joint:
            found["joint"][rows] = _decoded(made, keys, truth)
    return found


def market(
    baskets: Baskets, keys: Integers, truth: Integers, width: int, most: int, seeds: int
) -> tuple[dict[str, Floats], float]:
    """Return the errors on baskets of at most ``most`` items by the mechanism's name, and the share of users clipped.

    Privacy is for a whole basket. The paper's noise is for the worst basket, m√k; a constant of Gaussian calibration
    apart, so is "m√k". The others clip every basket's own sketch.
    """
    noises = {"standard CS": NOISELESS, "private CS, ε=1, δ=1e-06": most * PUBLISHED, "m√k": most * _ANALYTIC}
    errors = {}
    counted = baskets.counted()
    for name, sigma in noises.items():
        made = [release(5, width, sigma, *counted, seed=seed) for seed in range(seeds)]
        errors[name] = _asked(made, keys, truth, "median")
    sketches = [dps.CountSketch(rows=5, width=width, unit=dps.per_user(most), seed=seed) for seed in range(seeds)]
    for sketch in sketches:
        sketch.update(baskets.items, users=baskets.users)
    made = [sketch.release(**BUDGET) for sketch in sketches]
    errors["clipped, median"] = _asked(made, keys, truth, "median")
    errors["dpsketch estimate"] = _asked(made, keys, truth, "robust")
    errors["dpsketch decode"] = _decoded(made, keys, truth)
    users = int(baskets.users[-1]) + 1
    return errors, sum(sketch.clipped_users for sketch in sketches) / (seeds * users)


def crafted_user(rows: int, width: int, keys: Integers, most: int) -> Integers:
    """Return ``most`` keys that collide as much as a greedy search finds: the hash functions are public."""
    chosen = [int(keys[0])]
    while len(chosen) < most:
        seen = release(rows, width, NOISELESS, chosen)
        # The mean of a key's signed cells says by how much it would lengthen the sketch of those chosen.
        gains = seen.estimate(keys, estimator="mean").value
        gains[np.isin(keys, chosen)] = -np.inf
        chosen.append(int(keys[np.argmax(gains)]))
    return np.array(chosen)


def _asked(made: Sequence[dps.PrivateCountSketch], keys: Integers, truth: Integers, estimator: Estimator) -> Floats:
    return np.concatenate([one.estimate(keys, estimator=estimator).value - truth for one in made])


def _decoded(made: Sequence[dps.PrivateCountSketch], keys: Integers, truth: Integers) -> Floats:
    return np.concatenate([one.decode(keys).value - truth for one in made])
