"""Slow, obvious fingerprints, row hashes and CountSketch tables, on plain integers; XXH64 is its own library's."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

MASK = 2**64 - 1


def xxh64(data: bytes, seed: int) -> int:
    return xxhash.xxh64_intdigest(data, seed)


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
