"""The numbers that a release publishes, part by part, with the noise that its laws state for them.

A release says what was drawn and by which law (``release.drawn``), alike for all kinds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpsketch.core.drawn import Part

# A part: its numbers, and the noise in each of them.
Parts = dict[str, tuple["np.ndarray[Any, Any]", Any]]


def parts_of(release: Any) -> Parts:
    """Return every part that has noise added to it; parts of no number are left out."""
    found = {}
    for name, part in release.drawn.parts.items():
        if hasattr(part.law, "noise") and part.arrays["table"].size:
            found[name] = part.arrays["table"], part.law.noise
    return found


def numbers_of(release: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the numbers of each part that is a table, flat; also of those that were computed from several draws."""
    tables = {name: part.arrays.get("table") for name, part in release.drawn.parts.items()}
    numbers = {name: np.asarray(table).ravel() for name, table in tables.items() if isinstance(table, np.ndarray)}
    return {name: each.astype(np.float64) for name, each in numbers.items() if each.size and each.dtype.kind in "if"}


def bound_of(spec: Any) -> Any:
    """Return how far the one table of a spec lies apart from that of a neighbouring dataset, at most."""
    (table,) = spec.tables()
    return table.between(spec.unit.neighbours)


def restated(release: Any, name: str, table: Any = None, noise: Any = None) -> Any:
    """Return a release as if other numbers had been drawn for a part, or by another noise: what it would answer."""
    law, arrays = release.drawn.parts[name]
    law = law if noise is None else replace(law, noise=noise)
    arrays = dict(arrays) if table is None else {**arrays, "table": np.asarray(table)}
    return replace(release, drawn=replace(release.drawn, parts={**release.drawn.parts, name: Part(law, arrays)}))
