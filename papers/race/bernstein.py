"""The Bernstein mechanism for kernel sums, a rival that expands the function in a basis of polynomials.

The kernel sum is evaluated on a lattice of (degree + 1)^dim places, noise is added to these values, and the iterated
Bernstein polynomial through them is the release (Aldà and Rubinstein, *The Bernstein Mechanism: Function Release under
Differential Privacy*, AAAI 2017). Everything after the noise is post-processing.

**Privacy.** A record x adds to the value at place v the whole number rint(STEPS·k(x, v)). Neighbours differ by one
record, so the table of values moves by exactly that vector, whose entries lie between 0 and STEPS. Hence

- *published*: the L1 norm is at most STEPS·places, whatever the kernel is, and the L2 norm at most STEPS·√places;
- *sharp*: the norms are at most the largest over x in the bounds of Σ_v rint(STEPS·k(x, v)), and of its squares. The
  kernel falls with distance: k(c) = ∫₀^(1/c) 2φ(s)(1 − cs) ds, in which range and integrand shrink as c grows. So for
  all x in a small box, k(x, v) is at most the kernel of the box's distance to v, taken coordinate by coordinate. Adding
  these up for each box and taking the largest box bounds the norm for every x; SLACK covers rounding in the kernel.

Records outside the bounds are moved to them, so every x is in some box. The noise is exact integer noise at these
norms: discrete Laplace for δ = 0, rounded Gaussian otherwise. The relation is that one record is added or removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import binom

import dpsketch as dps
from dpsketch.accounting import gaussian_mu
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bound = Literal["published", "sharp"]

STEPS = 1 << 12
SLACK = 1e-9
_BLOCK = 1 << 22  # similarities computed at a time


@dataclass(frozen=True, slots=True)
class Lattice:
    """Equally spaced places in a cube, where the kernel sum is evaluated.

    Attributes
    ----------
    kernel : dps.kernels.Euclidean
        How alike two points are.
    bounds : (low, high)
        Public bounds of every coordinate.
    degree : int
        Degree of the polynomial in each coordinate.
    """

    kernel: dps.kernels.Euclidean
    bounds: tuple[float, float]
    degree: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Places along each coordinate."""
        return (self.degree + 1,) * self.kernel.dim

    def places(self) -> Floats:
        """Return the places, one a line, the last coordinate running fastest."""
        axis = np.linspace(*self.bounds, self.degree + 1)
        return np.stack(np.meshgrid(*[axis] * self.kernel.dim, indexing="ij"), axis=-1).reshape(-1, self.kernel.dim)

    def sensitive_values(self, points: Floats) -> Integers:
        """Return the kernel sum at every place, in steps of 1/STEPS. Sensitive."""
        places, inside = self.places(), np.clip(points, *self.bounds)
        total = np.zeros(len(places), dtype=np.int64)
        step = max(1, _BLOCK // len(places))
        for start in range(0, len(inside), step):
            similarity = self.kernel.similarity(inside[start : start + step], places)
            total += np.rint(STEPS * similarity).astype(np.int64).sum(axis=0)
        return total.reshape(self.shape)

    def norms(self, bound: Bound, splits: int = 4) -> tuple[int, float]:
        """Return bounds on the L1 and L2 norms of what one record adds; more ``splits`` of a cell tighten them."""
        if bound == "published":
            count = math.prod(self.shape)
            return STEPS * count, math.nextafter(STEPS * math.sqrt(count), math.inf)
        boxes = self.degree * splits
        # Along one coordinate, how far each box is from each place, in boxes.
        box, place = np.arange(boxes)[:, None], splits * np.arange(self.degree + 1)
        gaps = np.maximum(0, np.maximum(box - place, place - (box + 1)))
        # How many places are so far from the box: sums over places become products of these matrices.
        counts = np.stack([np.bincount(row, minlength=boxes + 1) for row in gaps])
        width = (self.bounds[1] - self.bounds[0]) / boxes
        axes = np.meshgrid(*[np.arange(boxes + 1) * width] * self.kernel.dim, indexing="ij")
        distant = np.stack(axes, axis=-1).reshape(-1, self.kernel.dim)
        kernel = self.kernel.similarity(np.zeros((1, self.kernel.dim)), distant) + SLACK
        most = np.minimum(STEPS, np.rint(STEPS * kernel)).astype(np.int64).reshape(axes[0].shape)
        return int(_along(counts, most).max()), math.nextafter(math.sqrt(_along(counts, most**2).max()), math.inf)


@dataclass(frozen=True, slots=True)
class PrivateBernstein:
    """A released polynomial: public, to be evaluated anywhere in the bounds.

    Attributes
    ----------
    lattice : Lattice
        Where the kernel sum was evaluated.
    values : integer array
        The noisy kernel sums at the places, in steps of 1/STEPS.
    noise : Noise
        The noise in each of them.
    """

    lattice: Lattice
    values: Integers
    noise: Noise

    def estimate(self, points: Floats, *, order: int = 1) -> Floats:
        """Evaluate the Bernstein polynomial of this order of iteration; 1 is the plain one.

        With B the operator that maps values on the lattice to their polynomial's values there, the iterated operator
        1 − (1 − B)^order is the plain one applied to Σ_{j<order} (1 − B)^j of the values.
        """
        low, high = self.lattice.bounds
        degree = self.lattice.degree
        step = np.eye(degree + 1) - basis(degree, np.arange(degree + 1) / degree)
        repair = sum((np.linalg.matrix_power(step, j) for j in range(order)), start=np.zeros_like(step))
        coefficients = _along(repair, self.values / STEPS)
        found = np.broadcast_to(coefficients, (len(points), *coefficients.shape))
        for coordinate in (np.clip(points, low, high).T - low) / (high - low):
            found = np.einsum("ni,ni...->n...", basis(degree, coordinate), found)
        return np.asarray(found)


def release(
    lattice: Lattice, values: Integers, *, epsilon: float, delta: float, bound: Bound = "published"
) -> PrivateBernstein:
    """Add noise to the values of a lattice; see the module for why that is (ε, δ)-private."""
    l1, l2 = lattice.norms(bound)
    noise: Noise = (
        RoundedGaussian(math.nextafter(l2 / gaussian_mu(epsilon, delta), math.inf))
        if delta
        else DiscreteLaplace(epsilon, l1)
    )
    return PrivateBernstein(lattice, values + noise.sample(values.size).reshape(values.shape), noise)


def basis(degree: int, x: Floats) -> Floats:
    """Return the Bernstein polynomials of a degree at numbers in [0, 1], an array of numbers × (degree + 1)."""
    power = np.arange(degree + 1)
    return np.asarray(binom(degree, power) * x[:, None] ** power * (1 - x[:, None]) ** (degree - power))


def _along(matrix: npt.NDArray[np.number], tensor: npt.NDArray[np.number]) -> npt.NDArray[np.number]:
    """Apply a matrix along every axis of a tensor."""
    for axis in range(tensor.ndim):
        tensor = np.moveaxis(np.tensordot(matrix, tensor, axes=(1, axis)), 0, axis)
    return tensor
