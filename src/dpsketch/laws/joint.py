"""The exact δ of Gaussian noise and of names that may show, counted together.

One unit holds keys of two sorts. *Novel* ones nobody else holds: where one of them is listed, the unit was there. The
others are *shared*: their counts move, hidden by Gaussian noise. Let q = e^(−λ) be the probability that no novel key
is listed, and s the shift of the shared counts in standard deviations. Outputs that show a novel key have probability
1 − q with the unit and 0 without. On the others the densities are q·p with it and p' without, where p and p' are two
Gaussians at distance s. So for e^ε

- with the unit against without: δ = 1 − q + q·H(ε + λ; s),
- without against with: δ = H(ε − λ; s),
- one unit (λ, s) in place of another (λ', s'): δ = 1 − q + q·H(ε + λ − λ'; √(s² + s'²)),

where H is the δ of a Gaussian shift (:func:`gaussian_excess`). Contributions are nonnegative, so that two units'
shifts add as squares. Deciding which shared counts are listed is post-processing; as it hides nothing where counts are
large, the largest of these values over all (λ, s) that a unit can have is the exact δ, up to rounding the noise.

Each value grows with λ, with λ' and with every shift: H falls in ε and grows in s, and the derivative in q of
1 − q + ∫(q·p − e^ε·p')⁺ is −1 plus a probability. So of the pairs (λ, s) only those matter that no other passes in
both.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats

__all__ = ["chance_of_any", "gaussian_excess", "joint_delta", "log_hidden"]


# Larger than the rounding errors of SciPy's functions, by far: what is computed here is rounded away from the claim.
_ROUNDING = 1e-13
# So many pairs (λ, s) are looked at one by one; further ones in blocks, each by its worst λ and worst s.
_SINGLE = 256
_BLOCK = 1 / 128


def gaussian_excess(epsilon: npt.ArrayLike, shift: npt.ArrayLike) -> Floats:
    """Return H(ε; s) = Φ(s/2 − ε/s) − e^ε·Φ(−s/2 − ε/s), rounded up; ε may be negative and s zero.

    With A = ε/s − s/2 and B = ε/s + s/2 the two terms are e^(−A²/2)/2 times erfcx(A/√2) and erfcx(B/√2), which keeps
    its digits far out in the tail.

    Examples
    --------
    >>> gaussian_excess([1.0, -1.0], [0.5, 0.0]).round(4).tolist()
    [0.0068, 0.6321]
    """
    from scipy.special import erfcx, log_ndtr, ndtr

    e, s = np.broadcast_arrays(np.asarray(epsilon, np.float64), np.asarray(shift, np.float64))
    still = np.maximum(0.0, -np.expm1(np.minimum(e, 0.0)))
    moved = s > 1e-150
    safe = np.where(moved, s, 1.0)
    with np.errstate(over="ignore", under="ignore"):
        low = np.clip(e / safe - safe / 2, -1e8, 1e8)
        high = np.clip(e / safe + safe / 2, -1e8, 1e8)
        tail = np.exp(-(np.maximum(low, 0.0) ** 2) / 2) / 2
        first = erfcx(np.maximum(low, 0.0) / math.sqrt(2))
        far = tail * (first - erfcx(np.maximum(high, 0.0) / math.sqrt(2)) + _ROUNDING * first)
        near = ndtr(-low) - np.exp(np.minimum(e + log_ndtr(-high), 0.0)) + _ROUNDING
    excess = np.where(low >= 0, far, near)
    found: Floats = np.minimum(np.where(moved, np.maximum(excess, still), still), 1.0)
    return found


def log_hidden(points: npt.ArrayLike) -> Floats:
    """Return −ln Φ(x), rounded up: what one novel key adds to λ where it is listed beyond x standard deviations."""
    from scipy.special import log_ndtr

    found: Floats = -log_ndtr(np.asarray(points, np.float64)) * (1 + _ROUNDING)
    return found


def joint_delta(epsilon: float, leaks: Floats, squares: Floats, *, replace: bool) -> float:
    """Return the joint δ at ``epsilon``, rounded up.

    Parameters
    ----------
    epsilon : float
        The privacy loss.
    leaks, squares : arrays
        λ and s² of everything that a unit may hold.
    replace : bool
        Whether one unit takes another's place, rather than being there or not.
    """
    leaks, squares = _worst(np.asarray(leaks, np.float64), np.asarray(squares, np.float64))
    shown = -np.expm1(-leaks)
    if replace:
        shifts = np.sqrt(squares[:, None] + squares[None, :])
        excess = np.exp(-leaks)[:, None] * gaussian_excess(epsilon + leaks[:, None] - leaks[None, :], shifts)
        largest = (shown[:, None] + excess).max()
    else:
        shifts = np.sqrt(squares)
        there = shown + np.exp(-leaks) * gaussian_excess(epsilon + leaks, shifts)
        largest = max(there.max(), gaussian_excess(epsilon - leaks, shifts).max())
    return min(1.0, float(largest) * (1 + _ROUNDING))


def _worst(leaks: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """Keep the pairs that no other passes in both; where they are many, put neighbours into blocks, rounded up."""
    order = np.lexsort((-leaks, -squares))
    leaks, squares = leaks[order], squares[order]
    before = np.concatenate([[-1.0], np.maximum.accumulate(leaks)[:-1]])
    leaks, squares = leaks[leaks > before], squares[leaks > before]
    if len(leaks) <= _SINGLE:
        return leaks, squares
    starts = list(range(_SINGLE))
    while (start := starts[-1] + max(1, int(starts[-1] * _BLOCK))) < len(leaks):
        starts.append(start)
    ends = [*(start - 1 for start in starts[1:]), len(leaks) - 1]
    return leaks[ends], squares[starts]  # λ rises and s² falls along the list


def chance_of_any(chance: float, count: int) -> float:
    """Return 1 − (1 − chance)^count, rounded up by more than any rounding of the chance."""
    chance *= 1 + 1e-12
    return 1.0 if chance >= 1 else -math.expm1(count * math.log1p(-chance)) * (1 + 1e-12)
