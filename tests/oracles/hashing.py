"""Slow, obvious versions of fingerprints, row hashes and CountSketch tables, in plain Python on plain integers."""

from __future__ import annotations

from collections.abc import Sequence

MASK = 2**64 - 1
P1 = 11400714785074694791
P2 = 14029467366897019727
P3 = 1609587929392839161
P4 = 9650029242287828579
P5 = 2870177450012600261


def rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def xxh64(data: bytes, seed: int) -> int:
    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    def round_(accumulator: int, word: int) -> int:
        return rotate((accumulator + word * P2) & MASK, 31) * P1 & MASK

    at = 0
    if len(data) >= 32:
        v = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while at + 32 <= len(data):
            v = [round_(v[lane], number(at + 8 * lane, 8)) for lane in range(4)]
            at += 32
        h = sum(rotate(v[lane], bits) for lane, bits in enumerate((1, 7, 12, 18))) & MASK
        for lane in v:
            h = ((h ^ round_(0, lane)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + len(data)) & MASK
    while at + 8 <= len(data):
        h = (rotate(h ^ round_(0, number(at, 8)), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(data):
        h = (rotate(h ^ (number(at, 4) * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    while at < len(data):
        h = rotate(h ^ (data[at] * P5 & MASK), 11) * P1 & MASK
        at += 1
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def stir(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    return (z ^ z >> 27) * 0x94D049BB133111EB & MASK


def mix(z: int) -> int:
    z = stir(z)
    return z ^ z >> 31


def fingerprint(key: int | str | bytes) -> int:
    match key:
        case int():
            return xxh64((key & MASK).to_bytes(8, "little"), 42)
        case str():
            return xxh64(key.encode(), 42)
        case bytes():
            return xxh64(key, 42)


def row_keys(seed: int, rows: int, purpose: str = "countsketch") -> list[int]:
    state = xxh64(purpose.encode() + seed.to_bytes(8, "little"), 42)
    keys = []
    for _ in range(rows):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        keys.append(mix(state))
    return keys


def cell(fingerprint: int, row_key: int, width: int) -> tuple[int, int]:
    """Return the bucket and the sign of a fingerprint in a row."""
    bits = f"{stir(fingerprint ^ row_key):064b}"
    return int(bits[1:33], 2) * width // 2**32, -1 if bits[0] == "1" else 1


def add(table: list[list[int]], fingerprints: Sequence[int], row_keys: Sequence[int], weights: Sequence[int]) -> None:
    for line, row_key in zip(table, row_keys, strict=True):
        for f, weight in zip(fingerprints, weights, strict=True):
            bucket, sign = cell(f, row_key, len(line))
            line[bucket] += sign * weight


def row_values(table: list[list[int]], fingerprints: Sequence[int], row_keys: Sequence[int]) -> list[list[int]]:
    values = []
    for f in fingerprints:
        found = [cell(f, row_key, len(line)) for line, row_key in zip(table, row_keys, strict=True)]
        values.append([sign * line[bucket] for line, (bucket, sign) in zip(table, found, strict=True)])
    return values


def median(values: Sequence[int]) -> float:
    return float(sorted(values)[len(values) // 2])
