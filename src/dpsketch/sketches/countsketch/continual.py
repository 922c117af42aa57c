"""Counts published day after day, at one price for all days: streams of CountSketches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.hashing import KeyType
from dpsketch.privacy import Unit
from dpsketch.sketches.continual.sketch import ContinualSketch
from dpsketch.sketches.countsketch.sketch import CountSketch
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["ContinualCountSketch", "PanPrivateCountSketch"]


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


def PanPrivateCountSketch(  # noqa: N802
    *,
    rows: int,
    width: int,
    unit: Unit,
    seed: int = DEFAULT_SEED,
    grid: float = 1,
    key_type: KeyType | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    ledger: Ledger | str | None = None,
    dataset: str | None = None,
    part: str | None = None,
) -> ContinualSketch:
    """Start a CountSketch that is private even against someone who seizes its memory once: a stream of one day.

    Parameters
    ----------
    rows, width, unit, seed, grid
        As for :class:`~dpsketch.CountSketch`; the unit must be a record.
    key_type : {"int", "text"}
        What the keys are. It must be stated: a type read off keys would show, in a seized state, that some had come.
    epsilon, delta, rho : float
        The guarantee against one seizure and the publication together. It is fixed, and charged, at the start, because
        the first noise is drawn then.
    ledger, dataset, part : Ledger or URL, str, str, optional
        Where to charge.

    Privacy
    -------
    The table starts from noise instead of zeros, so that its state is private at every moment; publication adds fresh
    noise, because an attacker who saw the state could otherwise subtract it and read the records that came after. Each
    record is (ε, δ)-private, whatever the moment (:mod:`dpsketch.laws.pan_private` has the proof). What is published
    carries both noises. ``publish`` ends the sketch. Its file is its state: reading the file is the
    one seizure, and **a state is published once, from its newest file only**.

    Accuracy
    --------
    A counter has 64 bits and wraps round: a state that refused or stopped counting would tell of the records. Choose a
    grid on which all records together stay below 2⁶¹ steps; on a grid of 1 they do.

    Examples
    --------
    >>> import dpsketch as dps
    >>> shape = {"rows": 5, "width": 64, "unit": dps.per_record(), "key_type": "text"}
    >>> sketch = dps.PanPrivateCountSketch(**shape, epsilon=1.0, delta=1e-6)
    >>> sketch.update(["a", "b", "a"])
    >>> private = sketch.publish()
    """
    shape: Any = {"rows": rows, "width": width, "unit": unit, "seed": seed, "grid": grid, "key_type": key_type}
    terms: Any = {"epsilon": epsilon, "delta": delta, "rho": rho, "ledger": ledger, "dataset": dataset, "part": part}
    return ContinualCountSketch(**shape, **terms, days=1, design="pan-private")
