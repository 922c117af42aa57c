"""Adding a batch to a table of counters, on several cores where the batch is large beside the table; adding tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import threads
from dpsketch._compiled import countsketch as kernels
from dpsketch.arrays import Integers, Words
from dpsketch.core.contributions import Cells
from dpsketch.errors import CounterOverflow
from dpsketch.hashing import hash_array

_SMALLEST_PART = 1 << 18
SHORT = 1 << 14  # keys that are hashed all at once
_PIECE = 1 << 18  # keys that are hashed before they are added; eight for each of a row's counters, if that is more


def spread(
    levels: Sequence[tuple[Words, Integers]], row_keys: Words, width: int, starts: Integers | None = None
) -> Cells:
    """Return the contributions of keys to tables of counters that are kept as one, each with the keys of its rows.

    A level has a fingerprint and units for each key, which moves one cell of each row by that, up or down. Each key is
    a unit, or unit u has the keys from ``starts[u]`` to ``starts[u + 1]``.
    """
    cells, amounts, rows = [], [], row_keys.shape[1]
    for level, (prints, units) in enumerate(levels):
        buckets, signs = kernels.cells(prints, row_keys[level], width)
        cells.append(buckets + width * np.arange(level * rows, (level + 1) * rows))
        amounts.append(signs * units[:, np.newaxis])
    return Cells.of(np.concatenate(cells, axis=1), np.concatenate(amounts, axis=1), starts)


def add_batch(
    table: npt.NDArray[np.int64],
    prints: npt.NDArray[np.uint64],
    row_keys: npt.NDArray[np.uint64],
    units: npt.NDArray[np.int64] | int,
) -> None:
    """Add keys to a table, in place: ``units`` of each, or so many of each one.

    Every thread but the first fills a table of its own, so a batch is only divided where each part has at least as many
    keys as the table has counters: adding the tables up then costs little, and takes no more memory than the keys did.
    """
    pieces = threads.parts(len(prints), max(_SMALLEST_PART, table.size))
    tables = [table, *(np.zeros_like(table) for _ in pieces[1:])]
    if isinstance(units, int) and units == 1:
        tasks = [
            partial(kernels.add_ones, own, prints[piece], row_keys) for own, piece in zip(tables, pieces, strict=True)
        ]
    else:
        amounts = np.ascontiguousarray(np.broadcast_to(np.asarray(units, dtype=np.int64), prints.shape))
        tasks = [
            partial(kernels.add_weighted, own, prints[piece], row_keys, amounts[piece])
            for own, piece in zip(tables, pieces, strict=True)
        ]
    threads.run(tasks)
    for own in tables[1:]:
        table += own


def add_column(table: npt.NDArray[np.int64], column: pa.ChunkedArray, row_keys: npt.NDArray[np.uint64]) -> None:
    """Add each key of a column once to a table, in place; nulls add nothing.

    Keys are hashed and added piece by piece, so that no fingerprint leaves the cache where the table fits there.
    Threads do as in :func:`add_batch`.
    """
    pieces = threads.parts(len(column), max(_SMALLEST_PART, table.size))
    tables = [table, *(np.zeros_like(table) for _ in pieces[1:])]

    def add(own: npt.NDArray[np.int64], keys: pa.ChunkedArray) -> None:
        prints = np.empty(min(max(_PIECE, 8 * table.shape[1]), len(keys)), np.uint64)
        filled = 0
        for chunk in keys.chunks:
            start = 0
            while start < len(chunk):
                part = chunk.slice(start, len(prints) - filled)
                start += len(part)
                found = prints[filled : filled + len(part)]
                valid = hash_array(part, found)
                if valid is not None:
                    found = found[valid]
                    prints[filled : filled + len(found)] = found
                filled += len(found)
                if filled == len(prints):
                    kernels.add_ones(own, prints, row_keys)
                    filled = 0
        kernels.add_ones(own, prints[:filled], row_keys)

    parts = [column.slice(piece.start, piece.stop - piece.start) for piece in pieces]
    threads.run([partial(add, own, part) for own, part in zip(tables, parts, strict=True)])
    for own in tables[1:]:
        table += own


def sum_of_tables(tables: Sequence[npt.NDArray[np.int64]], signs: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the sum of released tables, each with its sign; refuse one that 64 bits may not hold."""
    if sum(map(largest_size, tables)) >= 2**63:
        raise CounterOverflow(
            "the sum of these releases' counters may pass 2**63, which no counter holds; nothing was combined. Ask "
            "each release by itself and add up the answers."
        )
    total = np.zeros_like(tables[0])
    for table, sign in zip(tables, signs, strict=True):
        total += sign * table
    return total


def largest_size(table: npt.NDArray[np.int64]) -> int:
    """Return the largest magnitude in a table; that of −2⁶³, which 64 bits do not hold, included."""
    return max(int(table.max()), -int(table.min()))
