"""Errors of releases over data that is known: the paper's experiment, and the composite by value."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import dpsketch as dps

DOMAIN = 2**32
OTHERS = 10_000
GRID = 1 / 64

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Form:
    """One way to release values: a budget, the table's parameters, and how it is read.

    Attributes
    ----------
    epsilon : float
        What a release costs one record.
    alpha : int
        The paper's α.
    collisions : float
        The probability that another key sets a given bit.
    """

    epsilon: float
    alpha: int
    collisions: float


def published(step: float, alpha: int, collisions: float) -> Form:
    """Return the form whose scale is ε' = ``step``, as the paper has it for ε = ``step``.

    For one record that scale costs g(ε') only, which is what dpsketch is asked for: ln(1 + ε') where ε' ≤ α.
    """
    whole = math.floor(step / alpha)
    return Form(whole * math.log1p(alpha) + math.log1p(step - alpha * whole), alpha, collisions)


def uniform_errors(
    form: Form,
    *,
    top: int,
    queries: int,
    estimators: tuple[str, ...],
    keys: int = 25_000,
    share: float = 0.4,
    seed: int = 1,
) -> tuple[dict[str, Floats], float]:
    """Release values uniform in [0, top] among keys that fill every column, and read them.

    Parameters
    ----------
    form : Form
        How they are released.
    top : int
        β.
    queries : int
        How many values are read in all; each release holds ``share·keys`` of them.
    estimators : tuple of str
        Each reads the same releases.
    keys : int
        How many keys an average column holds.
    share : float
        How many keys are asked for, relative to these; in the middle column half of them are left. The others reach
        every column.
    seed : int
        Of the data and of the hash functions.

    Returns
    -------
    errors : dict
        Estimate minus value, by estimator.
    bits : float
        Bits of the table for each key.
    """
    asked = int(share * keys)
    others = keys - asked // 2
    rng = np.random.default_rng(seed)
    found: dict[str, list[Floats]] = {name: [] for name in estimators}
    bits = 0.0
    for turn in range(-(-queries // asked)):
        histogram = dps.SparseHistogram(
            unit=dps.per_record(),
            domain=DOMAIN,
            max_value=top,
            expected_keys=keys,
            collisions=-math.log1p(-form.collisions),
            alpha=form.alpha,
            grid=GRID,
            seed=1000 * seed + turn,
        )
        truth = rng.integers(0, int(top / GRID) + 1, asked) * GRID
        whole = np.floor(truth).astype(np.int64)
        histogram.update(np.arange(asked), counts=whole)
        histogram.update(np.arange(asked), weights=truth - whole)
        histogram.update(np.arange(others) + 2**31, counts=np.full(others, top))
        private = histogram.release(epsilon=form.epsilon, delta=0)
        bits = 8 * private.table.nbytes / keys
        for name in estimators:
            found[name].append(private.estimate(np.arange(asked), estimator=name).value - truth)
    return {name: np.concatenate(parts)[:queries] for name, parts in found.items()}, bits


def sweep(forms: list[Form], *, top: int, queries: int, estimators: tuple[str, ...]) -> dict[str, list[float]]:
    """Return the mean absolute error of each form, by estimator, in tables of one width whatever the collisions."""
    found = [
        uniform_errors(
            form, top=top, queries=queries, estimators=estimators, keys=int(125_000 * form.collisions), seed=5
        )[0]
        for form in forms
    ]
    return {name: [summary(errors[name])[0] for errors in found] for name in estimators}


def composite_errors(
    values: tuple[int, ...], estimator: str, *, probes: int, epsilon: float, **form: float
) -> tuple[Floats, float]:
    """Return the mean absolute error of the composite release at each true value, and the table's bits a key.

    Among 10⁴ other keys whose counts fall as 1/i, each of which reaches every column. ``form`` goes to the histogram.
    """
    truth = np.repeat(np.array(values), min(probes, 500))
    keys, total = np.arange(len(truth)), OTHERS + len(truth) // 2
    errors, bits = [], 0.0
    for turn in range(-(-probes // 500)):
        histogram = dps.SparseHistogram(unit=dps.per_record(), domain=DOMAIN, expected_keys=total, seed=turn, **form)
        histogram.update(keys, counts=truth)
        histogram.update(np.arange(OTHERS) + 2**31, counts=10**6 // np.arange(1, OTHERS + 1) + 300)
        private = histogram.release(epsilon=epsilon, delta=0)
        found = private.estimate(keys, estimator=estimator).value
        errors.append(np.abs(found - truth).reshape(len(values), -1).mean(axis=1))
        bits = 8 * private.table.nbytes / total
    return np.asarray(np.mean(errors, axis=0)), bits


def bounded_errors(keys: Integers, values: Integers, *, top: int, epsilon: float) -> dict[str, Floats]:
    """Release a histogram whose values have a public bound, by the defaults, and return the errors by estimator."""
    histogram = dps.SparseHistogram(unit=dps.per_record(), domain=DOMAIN, max_value=top, expected_keys=len(keys))
    histogram.update(keys, counts=values)
    private = histogram.release(epsilon=epsilon, delta=0)
    return {name: private.estimate(keys, estimator=name).value - values for name in ("mean", "median", "walk")}


def summary(errors: Floats) -> list[float]:
    """Return mean absolute error, standard deviation, 90th percentile of the absolute error, and bias."""
    size = np.abs(errors)
    return [float(size.mean()), float(errors.std()), float(np.quantile(size, 0.9)), float(errors.mean())]
