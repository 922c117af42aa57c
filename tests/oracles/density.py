"""Slow, obvious versions of the density kernels: Python floats, one point and one row at a time."""

from __future__ import annotations

import math
import struct

from oracles.hashing import mix


def dot(point: list[float], direction: list[float]) -> float:
    total = 0.0
    for x, a in zip(point, direction, strict=True):
        total = total + x * a
    return total


def bits(x: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def hashed_column(
    point: list[float], directions: list[list[float]], offsets: list[float], row_key: int, width: int
) -> int:
    state = row_key
    for direction, offset in zip(directions, offsets, strict=True):
        state = mix(state ^ bits(float(math.floor(dot(point, direction) + offset))))
    return ((state >> 32) * width) >> 32


def smoothed_sum(point: list[float], directions: list[list[list[float]]], table: list[list[int]], smoothing: float):
    """The mean over rows of Σ over cells of (product of the bits' weights) × counter."""
    reach = smoothing * math.sqrt(sum(x * x for x in point) / len(point))
    total = 0.0
    for planes, row in zip(directions, table, strict=True):
        upper = [min(1.0, max(0.0, 0.5 + dot(point, plane) / (2 * reach))) for plane in planes]
        for cell, counter in enumerate(row):
            total += counter * math.prod(w if cell >> p & 1 else 1 - w for p, w in enumerate(upper))
    return total / len(table)
