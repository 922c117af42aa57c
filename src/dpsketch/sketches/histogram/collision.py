"""How likely a secret hash takes two keys for one."""

from __future__ import annotations

__all__ = ["collision_chance"]

HASH_BITS = 127  # of a long text's identity; one of the 128 says that it is a hash


def collision_chance(rows: int) -> float:
    """Return a bound on the chance that any two different keys among so many rows are taken for one.

    It is n²/2¹²⁸: n(n−1)/2 pairs, each of which meets with probability 2⁻¹²⁷ if SipHash-2-4 under a secret key cannot
    be told from a random function (which is what it was designed for, and nobody has found otherwise). A table that
    absorbed others under other secrets adds up their chances and its own.

    Examples
    --------
    >>> collision_chance(10**9)
    2.9387358770557188e-21
    """
    return min(1.0, float(rows) ** 2 * 0.5 ** (HASH_BITS + 1))
