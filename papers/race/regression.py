"""Linear regression from a RACE sketch of paired projections: weak, and for the reproduction only.

A record is the vector z = (features, 1, target). With θ = (coefficients, intercept, −1) the residual is the inner
product of the two, and the paired kernel k(z, θ) + k(−z, θ) of the angular family is least where they are at a right
angle. So the sum over all records is a loss, read off a private sketch, and minimised by random directions.

**Privacy.** *Paired*: z and −z are two points of one user in the sense of ``dps.per_user(max_keys=2)``; they move two
cells of a row, or one of them twice, so the table moves by at most 2R in L1 and 2√R in L2. *Once*: only z is counted,
and the loss asks at θ and at −θ, which is the same number, because k(−z, θ) = k(z, −θ); the table moves by R and √R.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

import dpsketch as dps

Floats = npt.NDArray[np.float64]
Loss = Callable[[Floats], Floats]


def records(features: Floats, target: Floats) -> Floats:
    """Return the vectors z, one a line."""
    return np.column_stack([features, np.ones(len(features)), target])


def paired_loss(vectors: Floats, rows: int, *, seed: int, epsilon: float, delta: float) -> Loss:
    """Return the loss of the published form: every record is counted at z and at −z."""
    kernel = dps.kernels.Angular(vectors.shape[1], power=4, directions="independent")
    sketch = dps.DensitySketch(kernel=kernel, rows=rows, unit=dps.per_user(max_keys=2), seed=seed)
    who = np.arange(len(vectors))
    sketch.update(np.vstack([vectors, -vectors]), users=np.concatenate([who, who]))
    private = sketch.release(epsilon=epsilon, delta=delta, count_share=0)
    number = max(1.0, float(private.count().value[0]))
    return lambda theta: private.estimate(theta).value / number


def single_loss(vectors: Floats, rows: int, *, seed: int, epsilon: float, delta: float) -> Loss:
    """Return the loss of ours: every record is counted once, and the loss asks twice."""
    kernel = dps.kernels.Angular(vectors.shape[1], power=4)
    sketch = dps.DensitySketch(kernel=kernel, rows=rows, unit=dps.per_record(), seed=seed)
    sketch.update(vectors)
    private = sketch.release(epsilon=epsilon, delta=delta, count_share=0)
    number = max(1.0, float(private.count().value[0]))

    def loss(theta: Floats) -> Floats:
        return np.asarray((private.estimate(theta).value + private.estimate(-theta).value) / (2 * number))

    return loss


def descend(loss: Loss, size: int, rng: np.random.Generator, *, steps: int = 250) -> Floats:
    """Minimise the loss over vectors of this size whose last entry is −1; return the others.

    Gradients are differences along random directions, with momentum; the mean of the last steps is returned. The reach
    of the differences blurs the loss, and what is found is the blurred loss's minimum.
    """
    reach, rate, momentum, directions, kept = 0.3, 3.0, 0.8, 32, 80
    theta, velocity, path = np.append(np.zeros(size - 1), -1.0), np.zeros(size), []
    for _ in range(steps):
        ways = rng.normal(size=(directions, size))
        ways[:, -1] = 0
        rise = loss(theta + reach * ways) - loss(theta - reach * ways)
        velocity = momentum * velocity + (1 - momentum) * (rise @ ways) / (2 * reach * directions)
        theta = theta - rate * velocity
        path.append(theta[:-1])
    return np.mean(path[-kept:], axis=0)


def fit_surfaces(loss: Loss, size: int, rng: np.random.Generator, *, rounds: int = 8, tries: int = 400) -> Floats:
    """Minimise the same by quadratic surfaces through random tries, over a reach that shrinks from .5 to .1."""
    theta, path = np.zeros(size - 1), []
    first, second = np.triu_indices(size - 1)
    for reach in np.geomspace(0.5, 0.1, rounds):
        half = rng.normal(size=(tries // 2, size - 1))
        ways = np.vstack([half, -half])
        values = loss(np.column_stack([theta + reach * ways, np.full(len(ways), -1.0)]))
        terms = np.column_stack([np.ones(len(ways)), ways, ways[:, first] * ways[:, second]])
        found = np.linalg.lstsq(terms, values, rcond=None)[0]
        curvature = np.zeros((size - 1, size - 1))
        curvature[first, second] = found[size:]
        levels, axes = np.linalg.eigh(curvature + curvature.T)
        # A flat or falling direction is noise: it is given a tenth of the steepest one's curvature.
        step = -axes @ (axes.T @ found[1:size] / np.maximum(levels, 0.1 * max(levels[-1], 1e-9)))
        theta = theta + reach * step * min(1.0, 2 / max(1e-9, float(np.linalg.norm(step))))
        path.append(theta)
    return np.mean(path[-3:], axis=0)


def fit_exactly(vectors: Floats) -> Floats:
    """Minimise the exact loss, which a sketch estimates. Neither sketched nor private."""
    lengths = np.linalg.norm(vectors, axis=1)

    def loss(coefficients: Floats) -> float:
        theta = np.append(coefficients, -1.0)
        share = np.arccos(np.clip(vectors @ theta / (lengths * np.linalg.norm(theta)), -1, 1)) / np.pi
        return float(np.mean((1 - share) ** 4 + share**4) / 2)

    return np.asarray(minimize(loss, np.zeros(vectors.shape[1] - 1), method="BFGS").x)


def mean_square_error(features: Floats, target: Floats, coefficients: Floats) -> float:
    """Return the mean square residual of coefficients, the intercept last."""
    return float(np.mean((features @ coefficients[:-1] + coefficients[-1] - target) ** 2))
