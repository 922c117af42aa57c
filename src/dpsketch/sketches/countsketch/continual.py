"""Counts published day after day, at one price for all days: streams of CountSketches."""

from __future__ import annotations

from typing import Any

from dpsketch.hashing import KeyType
from dpsketch.privacy import Unit
from dpsketch.sketches.continual.sketch import ContinualSketch
from dpsketch.sketches.countsketch.sketch import CountSketch
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED

__all__ = ["ContinualCountSketch"]


def ContinualCountSketch(  # noqa: N802  named as the sketch that it starts
    *,
    rows: int,
    width: int,
    unit: Unit,
    seed: int = DEFAULT_SEED,
    grid: float = 1,
    key_type: KeyType | None = None,
    **stream: Any,
) -> ContinualSketch:
    """Start a CountSketch that is published every day, at one price for all days.

    Parameters
    ----------
    rows, width, unit, seed, grid
        As for :class:`~dpsketch.CountSketch`. Where the unit is a user, its bounds are for each day.
    key_type : {"int", "text"}
        What the keys are. It must be stated: a day without records must not differ from others by its type.
    **stream
        ``days``, ``epsilon``, ``delta``, ``rho``, ``objective``, ``user_days``, ``days_apart``, ``design``,
        ``first_day``, ``ledger``, ``dataset`` and ``part``, as for :class:`~dpsketch.ContinualSketch`, which says what
        is promised and how accurate it is.

    Examples
    --------
    >>> import dpsketch as dps
    >>> shape = {"rows": 5, "width": 64, "unit": dps.per_record(), "key_type": "text"}
    >>> sketch = dps.ContinualCountSketch(days=365, **shape, epsilon=1.0, delta=1e-6)
    >>> sketch.update(["tea", "tea", "milk"])
    >>> monday = sketch.publish_day()
    >>> tuesday = sketch.day(["tea"] * 5)
    >>> change = sketch.between(2, 2) - sketch.between(1, 1)
    >>> sketch.days_published, sketch.design.name
    (2, 'recurrence')
    """
    sketch = CountSketch(rows=rows, width=width, unit=unit, seed=seed, grid=grid, key_type=key_type)
    return ContinualSketch(sketch, **stream)
