"""The privacy loss of a moment sketch.

Its coordinates are independent p-stable variates whose scale is the p-th root of the moment. In t = p·ln|X| a change
of the moment by a factor is a shift by its logarithm. The density of t grows like e^{t/p} on the left and falls like
e^−t on the right, and is log-concave for p ≤ 1, so that a shift by s moves the log-density by at most s/p one way and
s the other. A coordinate's loss between a moment and ``ratio`` times it therefore stays between −s and s/p with
s = ln(ratio), and both ends are approached in the tails. The exact law of the loss is in
:mod:`dpsketch.accounting.momentloss`; here is what holds for every p.
"""

from __future__ import annotations

import math

import numpy as np

from dpsketch.accounting.momentloss import has_exact_loss, moment_losses
from dpsketch.accounting.twopoint import GridLoss, on_grid, pure_rho, two_point_atoms

__all__ = ["moment_epsilon", "moment_pld", "moment_rho"]


def moment_epsilon(p: float, size: int, ratio: float) -> float:
    """Return the largest loss: (size/p)·ln(ratio), which the tails approach."""
    return size / p * math.log(ratio)


def moment_rho(p: float, size: int, ratio: float) -> float:
    """Return a ρ: a coordinate's loss spans η = (1+1/p)·ln(ratio), and a span of η is η²/8-zCDP.

    For the η²/8 see Cesar and Rogers 2021, "Bounding, concentrating, and truncating", and Dong, Durfee and Rogers 2020,
    "Optimal differential privacy composition for exponential mechanisms".
    """
    shift = math.log(ratio)
    return size * min(((1 + 1 / p) * shift) ** 2 / 8, pure_rho(shift / p))


def moment_pld(p: float, size: int, ratio: float, interval: float) -> tuple[GridLoss, GridLoss]:
    """Return the sketch's loss on a grid, when the moment is the smaller one, and when it is the larger one.

    Where the exact law cannot be computed, a coordinate's two extreme losses stand for it: the two-point pair with
    these dominates it.
    """
    if has_exact_loss(p, ratio):
        smaller_exact, larger_exact = moment_losses(p, size, ratio)
        return _regrid(smaller_exact, interval), _regrid(larger_exact, interval)
    shift = math.log(ratio)
    smaller = two_point_atoms(shift / p, shift, size)
    larger = two_point_atoms(shift, shift / p, size)
    return on_grid(*smaller, interval), on_grid(*larger, interval)


def _regrid(loss: GridLoss, interval: float) -> GridLoss:
    losses = (loss.start + np.arange(len(loss.mass), dtype=np.float64)) * loss.interval
    moved = on_grid(losses, loss.mass, interval)
    return GridLoss(interval, moved.start, moved.mass, loss.infinity + moved.infinity)
