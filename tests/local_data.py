"""Sets of items as the local model's tables use them."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np

Sets = tuple[np.ndarray, np.ndarray]


def zipf_sets(users: int, domain: int, mean: float, seed: int) -> tuple[Sets, np.ndarray]:
    """Sets of 1 + Poisson(mean − 1) distinct items, drawn by a Zipf(1) law; and each item's share of people."""
    rng = np.random.default_rng(seed)
    sizes = 1 + rng.poisson(mean - 1, users)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    weights = np.cumsum(1 / np.arange(1, domain + 1))
    owners = np.repeat(np.arange(users), sizes)
    items = np.searchsorted(weights, rng.random(len(owners)) * weights[-1])
    while True:
        # Draw again what someone already holds: the later of two equal items in a person's order of drawing.
        order = np.lexsort((np.arange(len(items)), items, owners))
        again = np.zeros(len(items), np.bool_)
        same = (items[order][1:] == items[order][:-1]) & (owners[order][1:] == owners[order][:-1])
        again[order[1:][same]] = True
        if not again.any():
            break
        items[again] = np.searchsorted(weights, rng.random(int(again.sum())) * weights[-1])
    return (offsets, items), np.bincount(items, minlength=domain) / users


def transactions(path: Path, largest: int | None = None) -> Sets:
    """Read one set of integers a line from a compressed file, at most ``largest`` items of each."""
    with lzma.open(path, "rt") as lines:
        rows = [list(dict.fromkeys(map(int, line.split())))[:largest] for line in lines]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return (offsets, np.array([item for row in rows for item in row]))
