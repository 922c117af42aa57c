"""How the command line makes a sketch of each kind and feeds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dpsketch.privacy import Unit
    from dpsketch.sources import Columns, Progress

__all__ = ["Reading", "SketchOptions", "feed", "new_sketch"]


@dataclass(frozen=True, slots=True)
class SketchOptions:
    """What the options say about the sketch itself; None where the kind's default applies."""

    unit: Unit
    rows: int | None = None
    width: int | None = None
    seed: int | None = None
    grid: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What the options say about the source."""

    sources: Sequence[str]
    columns: Columns
    stdin_format: Literal["csv", "tsv", "jsonl", "parquet", "arrow"]


def new_sketch(kind: str, options: SketchOptions) -> Any:
    """Start an empty sketch of a kind."""
    given = {name: value for name in ("rows", "width", "seed", "grid") if (value := getattr(options, name)) is not None}
    return _MAKERS[kind](options.unit, given)


def _counts(unit: Unit, given: dict[str, Any]) -> Any:
    from dpsketch.sketches.countsketch import CountSketch

    return CountSketch(**{"rows": 7, "width": 4096, **given}, unit=unit)


_MAKERS: dict[str, Callable[[Unit, dict[str, Any]], Any]] = {"counts": _counts}


def feed(sketch: Any, reading: Reading, progress: Callable[[Progress], None] | None) -> int:
    """Add every record of the sources to a sketch; return how many were read."""
    from dpsketch.sources import open_source

    read = 0
    batches = open_source(reading.sources, reading.columns, stdin_format=reading.stdin_format, progress=progress)
    for batch in batches:
        sketch.update(batch.key, weights=batch.weight)
        read += batch.rows
    return read
