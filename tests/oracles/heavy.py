"""A slow, obvious tree of prefixes, in plain Python on plain bytes and integers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from dpsketch.sketches.countsketch.decoding import Decoded, joint_decode
from oracles import bounding, hashing

Table = list[list[int]]


@cache
def numbers(depth: int) -> dict[bytes, int]:
    """Return the places of all texts of at most ``depth`` bytes in a dictionary."""
    texts = [b""]
    longest = texts
    for _ in range(depth):
        longest = [text + bytes([byte]) for text in longest for byte in range(256)]
        texts = texts + longest
    return {text: place for place, text in enumerate(sorted(texts))}


@dataclass(frozen=True)
class Shape:
    rows: int
    width: int
    seed: int
    key_bits: int | None
    key_bytes: int | None

    @property
    def size(self) -> int:
        return self.key_bytes or -(-self.key_bits // 8)

    @property
    def dense_depth(self) -> int:
        return min(2, self.size - 1)

    def row_keys(self) -> list[list[int]]:
        above = hashing.row_keys(self.seed, self.rows * (self.size - self.dense_depth - 1), "heavy")
        lines = [above[start : start + self.rows] for start in range(0, len(above), self.rows)]
        return [*lines, hashing.row_keys(self.seed, self.rows)]

    def dense_cells(self) -> int:
        if self.key_bits is not None:
            return 2 ** (self.key_bits - 8 * (self.size - self.dense_depth))
        return len(numbers(self.dense_depth)) + 1

    def dense_cell(self, key: int | bytes) -> int:
        if isinstance(key, int):
            return key // 256 ** (self.size - self.dense_depth)
        if len(key) > self.size:
            return self.dense_cells() - 1
        return numbers(self.dense_depth)[key[: self.dense_depth]]

    def prefix(self, key: int | bytes, depth: int) -> int | None:
        """Return the fingerprint under which a key is counted at a depth; None where it is not."""
        if isinstance(key, int):
            return hashing.fingerprint(key // 256 ** (self.size - depth))
        if len(key) > self.size or (len(key) < depth - 1 and depth < self.size):
            return None
        return hashing.fingerprint(key[:depth])


def tree(shape: Shape, keys: Sequence[int | bytes], units: Sequence[int]) -> tuple[list[int], list[Table]]:
    """Return the dense level and the tables for records."""
    dense = [0] * shape.dense_cells()
    for key, amount in zip(keys, units, strict=True):
        dense[shape.dense_cell(key)] += amount
    tables = []
    for level, row_keys in enumerate(shape.row_keys()):
        table = [[0] * shape.width for _ in row_keys]
        prefixes = [shape.prefix(key, shape.dense_depth + 1 + level) for key in keys]
        counted = [(prefix, amount) for prefix, amount in zip(prefixes, units, strict=True) if prefix is not None]
        hashing.add(table, [prefix for prefix, _ in counted], row_keys, [amount for _, amount in counted])
        tables.append(table)
    return dense, tables


def user_tree(
    shape: Shape,
    users: Iterable[Hashable],
    keys: Sequence[int | bytes],
    units: Sequence[int],
    max_keys: int,
    max_units: int,
) -> tuple[list[int], list[Table], int]:
    """Return the dense level, the tables and the total for users."""
    named = {hashing.fingerprint(key): key for key in keys}
    runs = bounding.bound(users, [hashing.fingerprint(key) for key in keys], units, max_keys, max_units, shape.seed)
    limit = bounding.clip_squared(shape.rows, shape.width, max_keys, max_units)
    dense = [0] * shape.dense_cells()
    for run in runs.values():
        cells: dict[int, int] = {}
        for print_, amount in run:
            cell = shape.dense_cell(named[print_])
            cells[cell] = max(cells.get(cell, 0), amount)
        for cell, amount in cells.items():
            dense[cell] += amount
    tables = []
    for level, row_keys in enumerate(shape.row_keys()):
        distinct = []
        for run in runs.values():
            prefixes: dict[int, int] = {}
            for print_, amount in run:
                prefix = shape.prefix(named[print_], shape.dense_depth + 1 + level)
                if prefix is not None:
                    prefixes[prefix] = max(prefixes.get(prefix, 0), amount)
            distinct.append(list(prefixes.items()))
        tables.append(bounding.table(distinct, row_keys, shape.width, limit)[0])
    return dense, tables, sum(amount for run in runs.values() for _, amount in run)


def frequent(
    counters: np.ndarray, prints: np.ndarray, row_keys: np.ndarray, noise_scale: float, needed: float
) -> tuple[np.ndarray, float]:
    """Return who has what is needed in one level, decoding all with half of it, and the error of an estimate there."""

    width = counters.shape[1]
    cells = np.array([[hashing.cell(int(each), int(key), width) for key in row_keys] for each in prints])

    def reaching(table: np.ndarray, least: float) -> np.ndarray:
        values = table[np.arange(len(row_keys)), cells[:, :, 0]] * cells[:, :, 1]
        return np.flatnonzero(np.median(values, axis=1) >= least)

    def decode(places: np.ndarray) -> Decoded:
        return joint_decode(counters, prints[places], row_keys, noise_scale)

    held = reaching(counters, needed / 2)
    decoded = decode(held)
    for _ in range(4):
        held = np.union1d(held, reaching(decoded.remaining, needed))
        decoded = decode(held)
    held = held[decoded.values >= needed / 2]
    decoded = decode(held)
    return held[decoded.values >= needed], decoded.error
