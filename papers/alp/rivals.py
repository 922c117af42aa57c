"""What the paper compares with, at the same ε: the Laplace mechanism, a threshold alone, and OpenDP's ALP."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def laplace_density(error: Floats, scale: float) -> Floats:
    """Return the density of Laplace noise."""
    return np.asarray(np.exp(-np.abs(error) / scale) / (2 * scale))


def discrete_laplace_error(epsilon: float) -> float:
    """Return the mean absolute value of discrete Laplace noise: 2a/(1 − a²), a = e^−ε.

    Examples
    --------
    >>> round(discrete_laplace_error(1.0), 3)
    0.851
    """
    ratio = math.exp(-epsilon)
    return 2 * ratio / (1 - ratio * ratio)


def threshold_errors(values: tuple[int, ...], *, epsilon: float, domain: float) -> Floats:
    """Return the mean absolute error, by value, of discrete Laplace noise with a cutoff that about one zero reaches.

    Exact: a value v that stays has the error |z|, z ≥ cutoff − v, and one that is dropped the error v. (A zero
    survives once in the domain, which counts as nothing.)
    """
    ratio = math.exp(-epsilon)
    cutoff = math.ceil(math.log(domain / (1 + ratio)) / epsilon)
    noise = np.arange(-200 / epsilon, 200 / epsilon + 1).round()
    law = (1 - ratio) / (1 + ratio) * np.exp(-epsilon * np.abs(noise))
    errors = [float(np.sum(law * np.where(v + noise >= cutoff, np.abs(noise), v))) for v in values]
    return np.array(errors) * (np.array(values) > 0)


def opendp_errors(keys: Integers, values: Integers, *, top: int, epsilon: float) -> Floats:
    """Release a histogram by OpenDP's ALP with its defaults, and return the errors.

    Raises
    ------
    ImportError
        Where OpenDP is not installed.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    measurement = dp.m.make_alp_queryable(
        dp.map_domain(dp.atom_domain(T="u32"), dp.atom_domain(T="i32")),
        dp.l01inf_distance(dp.absolute_distance(T="i32")),
        scale=epsilon,
        total_limit=int(values.sum()),
        value_limit=top,
    )
    if measurement.map((1, 1, 1)) > epsilon:
        raise ValueError("OpenDP's release would cost more than the budget.")
    released = measurement(dict(zip(keys.tolist(), values.tolist(), strict=True)))
    return np.array([released(key) for key in keys.tolist()]) - values
