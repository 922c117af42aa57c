"""Slow, obvious versions of the moment sketch: the cipher word by word, variates by mpmath, neighbours one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import mpmath

MASK = 0xFFFFFFFF
Counts = tuple[int, ...]


def chacha_block(key: Sequence[int], counter: int, nonce: Sequence[int]) -> list[int]:
    """One block of RFC 8439, as 16 words."""
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *key, counter, *nonce]
    x = list(start)

    def turn(word: int, by: int) -> int:
        return ((word << by) | (word >> (32 - by))) & MASK

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for into, other, rotated, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[into] = (x[into] + x[other]) & MASK
            x[rotated] = turn(x[rotated] ^ x[into], by)

    for _ in range(10):
        for i in range(4):
            quarter(i, i + 4, i + 8, i + 12)
        for i in range(4):
            quarter(i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12)
    return [(a + b) & MASK for a, b in zip(x, start, strict=True)]


def variate(secret: Sequence[int], fingerprint: int, row: int, size: int, p: float) -> mpmath.mpf:
    """The p-stable variate of a key in a row, by Chambers, Mallows and Stuck's formula in 40 digits."""
    blocks = -(-size // 4)
    slot, block = divmod(row, blocks)
    words = chacha_block(secret, block, [0, fingerprint & MASK, fingerprint >> 32])[4 * slot : 4 * slot + 4]
    with mpmath.workdps(40):
        half = mpmath.mpf(1) / 2
        u = (mpmath.mpf((words[0] << 20) | (words[1] >> 12)) + half) / 2**52
        v = (mpmath.mpf((words[2] << 20) | (words[3] >> 12)) + half) / 2**52
        exponent = mpmath.mpf(p)
        theta, w = mpmath.pi / 2 * u, -mpmath.log(v)
        size_of = mpmath.sin(exponent * theta) / mpmath.cos(theta) ** (1 / exponent)
        size_of *= (mpmath.cos((1 - exponent) * theta) / w) ** ((1 - exponent) / exponent)
        return -size_of if words[1] & 1 else size_of


def moment(counts: Sequence[float], p: float) -> float:
    """F_p by its definition."""
    return sum(abs(float(x)) ** p for x in counts if x)


def streams(records: int, keys: int, most: int) -> set[Counts]:
    """Every total that ``records`` records of weight 1 to ``most`` leave on ``keys`` keys."""
    totals = {(0,) * keys}
    for _ in range(records):
        totals = {added(x, k, v) for x in totals for k in range(keys) for v in range(1, most + 1)}
    return totals


def added(x: Counts, key: int, weight: int) -> Counts:
    return (*x[:key], x[key] + weight, *x[key + 1 :])


def user_contributions(keys: int, pairs: int, most: int) -> list[Counts]:
    """Everything a user may add: 1 to ``pairs`` distinct keys with weights 1 to ``most``."""
    every = itertools.product(range(most + 1), repeat=keys)
    return [weights for weights in every if 1 <= sum(w > 0 for w in weights) <= pairs]


def largest_ratio(pairs: Iterator[tuple[Counts, Counts]], p: float, floor: float) -> float:
    """The largest ratio of F_p + floor over pairs of neighbours."""
    worst = 1.0
    for x, y in pairs:
        a, b = moment(x, p) + floor, moment(y, p) + floor
        worst = max(worst, a / b, b / a)
    return worst


def replaced_records(least: int, keys: int, most: int) -> Iterator[tuple[Counts, Counts]]:
    """Streams of up to ``least`` records and one more, of which one is replaced; any may count for nothing.

    A stream of fewer than ``least`` records that count is padded by a key of its own.
    """
    for records in range(least + 1):
        for shared in streams(records, keys, most):
            ends = [padded(added(shared, k, v), records + 1, least) for k in range(keys) for v in range(1, most + 1)]
            yield from itertools.combinations([padded(shared, records, least), *ends], 2)


def padded(x: Counts, records: int, least: int) -> Counts:
    return (*x, max(0, least - records))


def added_records(least: int, keys: int, most: int) -> Iterator[tuple[Counts, Counts]]:
    for records in range(least, least + 2):
        for x in streams(records, keys, most):
            yield from ((x, added(x, k, v)) for k in range(keys) for v in range(1, most + 1))


def changed_users(users: int, keys: int, pairs: int, most: int, *, replace: bool) -> Iterator[tuple[Counts, Counts]]:
    """Streams of ``users`` users, one replaced; or of ``users`` and one more."""
    one = user_contributions(keys, pairs, most)
    shared = {(0,) * keys}
    for _ in range(users - 1 if replace else users):
        shared = {tuple(a + b for a, b in zip(x, y, strict=True)) for x in shared for y in one}
    for x in shared:
        ends = [tuple(a + b for a, b in zip(x, y, strict=True)) for y in one]
        yield from itertools.combinations(ends, 2) if replace else ((x, end) for end in ends)


def turnstile(
    least: int, keys: int, most: int, cap: int, *, replace: bool, strict: bool
) -> Iterator[tuple[Counts, Counts]]:
    """Totals of net weight at least ``least`` that one signed record changes, or two where it is replaced."""
    span = range(0 if strict else -cap, cap + 1)
    steps = [v for v in range(-most, most + 1) if v]

    def allowed(x: Counts) -> bool:
        return sum(x) >= least and (not strict or min(x) >= 0)

    for x in itertools.product(span, repeat=keys):
        if not allowed(x):
            continue
        for k, v in itertools.product(range(keys), steps):
            once = added(x, k, v)
            if not replace:
                if allowed(once):
                    yield x, once
                continue
            for k2, v2 in itertools.product(range(keys), steps):
                twice = added(once, k2, v2)
                if allowed(twice):
                    yield x, twice
