"""Roots of the Gaussian mechanism's (ε, δ), nearly exact. Nothing relies on them: callers check each root.

Floating point finds the root, and Newton's method in mpmath's numbers its last digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dpsketch.accounting.gaussian import BITS, exact_delta
from dpsketch.distributions import scaled_tail

__all__ = ["near_epsilon", "near_mu"]


def near_mu(epsilon: float, delta: float) -> float:
    """Return a μ that is near the largest one, and not below it but for rounding."""
    import mpmath

    goal = math.log(delta)
    near = math.exp(_bisect(lambda log_mu: _log_delta(epsilon, math.exp(log_mu)) > goal, -740.0, 20.0))
    with mpmath.workprec(BITS):
        m = mpmath.mpf(near)
        for _ in range(60):
            gap = exact_delta(epsilon, m) - delta
            # dδ/dμ = φ(μ/2 − ε/μ).
            step = gap / mpmath.npdf(m / 2 - epsilon / m)
            m = max(m - step, m / 2)
            if abs(step) < abs(m) * mpmath.mpf(2) ** -70:
                break
        return math.nextafter(float(m), math.inf)


def near_epsilon(mu: Any, delta: float) -> float:
    """Return an ε that is near the smallest one, and not above it but for rounding; it is not 0."""
    import mpmath

    goal, m = math.log(delta), float(mu)
    # δ ≤ e^{-(ε/μ - μ/2)²/2} bounds ε from above.
    top = m * (m / 2 + math.sqrt(-2 * goal))
    near = _bisect(lambda e: _log_delta(e, m) <= goal, 0.0, top)
    with mpmath.workprec(BITS):
        e, exact = mpmath.mpf(near), mpmath.mpf(mu)
        for _ in range(60):
            gap = exact_delta(e, exact) - delta
            # dδ/dε = −e^ε Φ(−μ/2 − ε/μ).
            slope = mpmath.exp(e) * mpmath.ncdf(-exact / 2 - e / exact)
            step = gap / slope
            e = max(e + step, e / 2)
            if abs(step) < abs(e) * mpmath.mpf(2) ** -70:
                break
        return max(0.0, math.nextafter(float(e), 0.0))


def _log_delta(epsilon: float, mu: float) -> float:
    """Return ln δ(ε, μ) in double precision, without overflow or catastrophic cancellation."""
    middle, half = epsilon / mu, mu / 2
    a, b = middle - half, middle + half
    if mu < 1e-4:
        # The difference of two scaled tails by their slope in the middle; the relative error is about μ²(1 + a²).
        x = middle / math.sqrt(2)
        slope = 2 / math.sqrt(math.pi) - 2 * x * scaled_tail(x) if x < 1e3 else 1 / (math.sqrt(math.pi) * x * x)
        difference = mu / math.sqrt(2) * slope
    elif a < 0:
        # exp(a²/2) could overflow; Φ(-a) is above one half, so that the plain difference keeps its digits.
        value = math.erfc(a / math.sqrt(2)) / 2 - 0.5 * math.exp(-a * a / 2) * scaled_tail(b / math.sqrt(2))
        return math.log(value) if value > 0 else -math.inf
    else:
        difference = scaled_tail(a / math.sqrt(2)) - scaled_tail(b / math.sqrt(2))
    if difference <= 0:
        return -a * a / 2 - math.log(2 + max(a, 0.0)) - 36.0
    return -a * a / 2 + math.log(difference / 2)


def _bisect(above: Callable[[float], bool], low: float, high: float) -> float:
    """Return the point, to about 1e-15 relative, from which ``above`` is true."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if above(middle):
            high = middle
        else:
            low = middle
    return (low + high) / 2
