"""How long counting will take, found out by counting for a moment."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

__all__ = ["seconds_for"]

_ENOUGH_SECONDS = 0.05
_MOST_RECORDS = 1 << 20


def seconds_for(sketch: Any, records: float, *, dim: int | None = None) -> float:
    """Return about how many seconds so many records take, from batches that grow until the clock can tell.

    Parameters
    ----------
    sketch : sensitive sketch
        An empty one, which is used up.
    records : float
        How many records to predict for.
    dim : int, optional
        Coordinates of a point, where the sketch counts points; otherwise keys are integers, or texts where the
        spec says so.
    """
    unit = sketch.spec.unit
    _timed(sketch, unit, 0, 64, dim)  # the first batch compiles
    batch, first = 256, 64
    while True:
        spent = _timed(sketch, unit, first, batch, dim)
        if spent >= _ENOUGH_SECONDS or batch >= _MOST_RECORDS:
            return float(spent / batch * records)
        first += batch
        batch *= 4


def _timed(sketch: Any, unit: Any, first: int, batch: int, dim: int | None) -> float:
    order = np.arange(first, first + batch)
    if dim is None:
        # Of an ordered domain no value may lie outside.
        things: Any = order * 2654435761 % min(65521, 1 << getattr(sketch.spec, "bits", 16))
        start = getattr(sketch.spec, "start", 0)
        things = things + start if start < 1 << 62 else things.astype(np.uint64) + np.uint64(start)
        if sketch.spec.key_type == "text":
            things = [str(key) for key in things]
    else:
        things = np.sin(np.outer(order, np.arange(1, dim + 1)))
    extra = {"users": first + np.arange(batch) // unit.max_keys} if unit.level == "user" else {}
    began = time.perf_counter()
    sketch.update(things, **extra)
    return time.perf_counter() - began
