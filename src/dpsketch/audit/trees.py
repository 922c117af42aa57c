"""Sketches of several levels that share one budget: heavy hitters and ranges."""

from __future__ import annotations

from typing import Literal

import numpy as np

from dpsketch.audit.mechanism import Budget, Mechanism, additive
from dpsketch.privacy import per_record, per_user
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.ranges import RangeSketch

__all__ = ["heavy", "heavy_user", "ranges"]

Law = Literal["gaussian", "laplace"]


def _budget(law: Law, noise: float) -> Budget:
    return Budget.gaussian(noise) if law == "gaussian" else Budget.pure(noise)


def heavy(law: Law, noise: float = 1.0) -> Mechanism:
    """All levels of the prefix tree of one record added."""

    def sketch(keys: list[int]) -> HeavyHitters:
        built = HeavyHitters(unit=per_record(), rows=1, width=4, key_bits=9)
        built.update(keys)
        return built

    sketches = sketch([0, 1]), sketch([0, 1, 300])
    return additive(f"heavy-{law}", "a record added", sketches, _budget(law, noise))


def heavy_user(noise: float = 1.0) -> Mechanism:
    """Add a user, all of whose keys share their prefix."""

    def sketch(keys: list[int]) -> HeavyHitters:
        built = HeavyHitters(unit=per_user(max_keys=4), rows=3, width=4, key_bits=9)
        built.update([1, 2], users=["ann", "bob"])
        built.update(keys, users=["mallory"] * len(keys))
        return built

    sketches = sketch([]), sketch(_colliding())
    words = "a user added, all of whose keys share their prefix"
    return additive("heavy-user", words, sketches, Budget.gaussian(noise))


def _colliding() -> list[int]:
    """Return four keys of one prefix that move the last level's table as far as four keys do."""
    farthest, found = 0.0, [256, 257, 258, 259]
    for start in range(256, 508):
        keys = list(range(start, start + 4))
        built = HeavyHitters(unit=per_user(max_keys=4), rows=3, width=4, key_bits=9)
        built.update(keys, users=["mallory"] * 4)
        norm = float(np.linalg.norm(built.release(epsilon=1e6, delta=1e-6).tables[-1]))
        if norm > farthest:
            farthest, found = norm, keys
    return found


def ranges(law: Law, noise: float = 1.0) -> Mechanism:
    """All levels of the tree of intervals of one record added."""

    def sketch(values: list[int]) -> RangeSketch:
        built = RangeSketch(unit=per_record(), bits=4, rows=1, width=4)
        built.update(values)
        return built

    sketches = sketch([1, 2]), sketch([1, 2, 9])
    return additive(f"ranges-{law}", "a record added", sketches, _budget(law, noise))
