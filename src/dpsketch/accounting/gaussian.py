"""The Gaussian mechanism's exact (ε, δ), both ways, rounded so that the promise is always kept.

A Gaussian mechanism of L2 sensitivity Δ and standard deviation σ is described by μ = Δ/σ alone. It is (ε, δ)-private
exactly when

    δ ≥ Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)

(Balle and Wang 2018, "Improving the Gaussian mechanism for differential privacy", Theorem 8). A root is guessed
(:mod:`~dpsketch.accounting.guesses`) and then moved until the formula holds, in mpmath's numbers, at a precision that
outlasts every cancellation in it. A μ is rounded down, an ε or a δ up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number

__all__ = ["gaussian_delta", "gaussian_epsilon", "gaussian_mu", "zcdp_mu"]

# Bits that the result keeps after all cancellation: twice a double, so that comparisons with doubles are decided.
BITS = 120


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ = Δ/σ for which the Gaussian mechanism is (ε, δ)-private.

    The standard deviation to use for an L2 sensitivity Δ is Δ/μ, rounded up.

    Parameters
    ----------
    epsilon : float
        At least 0, at most 1e6.
    delta : float
        Above 0 and below 1.

    Returns
    -------
    float
        The largest double for which the exact formula gives at most ``delta``; never more.

    Examples
    --------
    >>> round(1 / gaussian_mu(1.0, 1e-6), 4)
    4.2247
    """
    epsilon, delta = real_number("epsilon", epsilon), real_number("delta", delta)
    if not 0 <= epsilon <= 1e6:
        raise InvalidInput(f"epsilon must be at least 0 and at most 1e6, not {epsilon!r}.")
    if not 0 < delta < 1:
        raise InvalidInput(f"a Gaussian mechanism needs a delta above 0 and below 1, not {delta!r}.")
    return _largest_mu(float(epsilon), float(delta))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the δ of a Gaussian mechanism with this μ at this ε, rounded up.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1 / 4.2247) * 1e6, 3)
    1.0
    """
    epsilon, mu = real_number("epsilon", epsilon), real_number("mu", mu)
    if epsilon < 0:
        raise InvalidInput(f"epsilon must be at least 0, not {epsilon!r}.")
    _check_mu(mu)
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if mu == math.inf:
        return 1.0
    return round_up(exact_delta(epsilon, mu))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the ε of a Gaussian mechanism with this μ at this δ, rounded up; infinite where δ is 0.

    Examples
    --------
    >>> gaussian_epsilon(gaussian_mu(1.0, 1e-6), 1e-6)
    1.0
    """
    mu, delta = real_number("mu", mu), real_number("delta", delta)
    _check_mu(mu)
    if not 0 <= delta <= 1:
        raise InvalidInput(f"delta must be between 0 and 1, not {delta!r}.")
    if mu == 0 or delta == 1:
        return 0.0
    if delta == 0 or mu == math.inf:
        return math.inf
    return smallest_epsilon(mu, delta)


def zcdp_mu(rho: float) -> float:
    """Return the largest μ of a Gaussian mechanism that is ρ-zero-concentrated private: √(2ρ), rounded down.

    Examples
    --------
    >>> zcdp_mu(0.125)
    0.5
    """
    rho = real_number("rho", rho)
    if not (math.isfinite(rho) and rho >= 0):
        raise InvalidInput(f"rho must be at least 0 and finite, not {rho!r}.")
    import mpmath

    with mpmath.workprec(BITS):
        bound = 2 * mpmath.mpf(rho)
        mu = math.sqrt(2 * rho) if rho < 1e300 else math.sqrt(rho) * math.sqrt(2)
        while mpmath.mpf(mu) ** 2 > bound:
            mu = math.nextafter(mu, 0.0)
    return mu


def _check_mu(mu: float) -> None:
    if mu < 0:
        raise InvalidInput(f"mu must be at least 0, not {mu!r}.")


def exact_delta(epsilon: Any, mu: Any) -> Any:
    """Return δ(ε, μ) as an mpmath number with at least 120 correct bits; the arguments may be mpmath numbers."""
    import mpmath

    bits = 2 * BITS
    while True:
        with mpmath.workprec(bits):
            e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
            left = mpmath.erfc((e / m - m / 2) / mpmath.sqrt(2)) / 2
            right = mpmath.exp(e) * mpmath.erfc((e / m + m / 2) / mpmath.sqrt(2)) / 2
            result = left - right
            # Both terms carry a relative error near 2^-bits (e^ε loses log2 ε more), the difference that of `left`.
            lost = (mpmath.mag(left) - mpmath.mag(result) if result else bits) + max(0, mpmath.mag(e)) + 16
            if bits - lost >= BITS:
                return result
        bits += max(bits, lost)


def round_up(value: Any) -> float:
    """Return the smallest double that is not below a non-negative mpmath number."""
    near = float(value)
    return near if near >= value else math.nextafter(near, math.inf)


def exact_root(value: Any) -> Any:
    """Return the square root of an mpmath number, to 400 bits."""
    import mpmath

    with mpmath.workprec(400):
        return mpmath.sqrt(value)


@lru_cache(maxsize=1024)
def _largest_mu(epsilon: float, delta: float) -> float:
    from dpsketch.accounting.guesses import near_mu

    return _settle(near_mu(epsilon, delta), 0.0, lambda value: value == 0 or exact_delta(epsilon, value) <= delta)


@lru_cache(maxsize=1024)
def smallest_epsilon(mu: Any, delta: float) -> float:
    """Return the smallest double ε with δ(ε, μ) ≤ ``delta``; μ may be an mpmath number."""
    from dpsketch.accounting.guesses import near_epsilon

    if exact_delta(0, mu) <= delta:
        return 0.0
    epsilon = near_epsilon(mu, delta)
    return _settle(epsilon, math.inf, lambda value: exact_delta(value, mu) <= delta)


def _settle(value: float, toward: float, holds: Callable[[float], bool]) -> float:
    """Move a near-exact double until the promise holds: by single units in the last place, then by more."""
    tries = 0
    while not holds(value):
        value = math.nextafter(value, toward)
        tries += 1
        if tries > 8:
            value *= 1 + math.copysign(2.0 ** (tries - 60), toward - value)
    return value
