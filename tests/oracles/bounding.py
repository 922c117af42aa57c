"""Slow, obvious versions of bounding and clipping users, in plain Python on plain integers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal, localcontext

from oracles import hashing
from oracles.hashing import mix

Runs = dict[Hashable, list[tuple[int, int]]]


def rank(seed: int, user: int | str | bytes, key: int) -> int:
    """Return the place of a key (its fingerprint) among a user's."""
    (seed_key,) = hashing.row_keys(seed, 1, "bounding")
    return mix(key ^ mix(hashing.fingerprint(user) ^ seed_key))


def bound(
    users: Iterable[Hashable], keys: Iterable[int], units: Iterable[int], max_keys: int, max_units: int, seed: int
) -> Runs:
    """Return each user's kept keys in order, with their units; null users and records of no units are left out."""
    sums: dict[Hashable, dict[int, int]] = {}
    for user, key, amount in zip(users, keys, units, strict=True):
        if user is not None and amount > 0:
            own = sums.setdefault(user, {})
            own[key] = own.get(key, 0) + amount
    runs: Runs = {}
    for user, own in sums.items():
        kept = sorted(own, key=lambda key: rank(seed, user, key))[:max_keys]
        runs[user] = [(key, min(own[key], max_units)) for key in kept]
    return runs


def clip_squared(rows: int, width: int, max_keys: int, max_units: int) -> int:
    """Return c² = w²km(1 + 3√(2/(kb))), at most w²m²k, rounded down."""
    with localcontext() as context:
        context.prec = 200
        share = 1 + 3 * (Decimal(2) / (rows * width)).sqrt()
        return min(int(max_units**2 * rows * max_keys * share), max_units**2 * max_keys**2 * rows)


def own_sketch(
    keys: Sequence[tuple[int, int]], row_keys: Sequence[int], width: int, limit: int | None, shift: int = 0
) -> tuple[list[list[int]], bool]:
    """Return one user's own table, leaving out keys past the limit, and whether one was left out."""

    def squared(table: list[list[int]]) -> int:
        return sum((-(-abs(value) // 2**shift)) ** 2 for line in table for value in line)

    table = [[0] * width for _ in row_keys]
    clipped = False
    for key, amount in keys:
        before = [line.copy() for line in table]
        hashing.add(table, [key], row_keys, [amount])
        if limit is not None and squared(table) > limit:
            table, clipped = before, True
    return table, clipped


def table(
    runs: Iterable[Sequence[tuple[int, int]]], row_keys: Sequence[int], width: int, limit: int | None, shift: int = 0
) -> tuple[list[list[int]], int]:
    """Return the sum of the users' own tables, and how many users were clipped."""
    total = [[0] * width for _ in row_keys]
    count = 0
    for keys in runs:
        own, clipped = own_sketch(keys, row_keys, width, limit, shift)
        count += clipped
        for line, added in zip(total, own, strict=True):
            line[:] = [a + b for a, b in zip(line, added, strict=True)]
    return total, count
