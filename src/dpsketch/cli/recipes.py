"""How the command line makes a sketch of each kind and feeds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from dpsketch.cli.options import SketchFlags, unit_from
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit
    from dpsketch.sources import Batch, Columns, Progress

__all__ = ["SHAPE_FLAGS", "feed", "new_sketch"]

# The options that shape a sketch; each kind takes some of them.
SHAPE_FLAGS = ("rows", "width", "seed", "grid", "key_bits", "key_bytes")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A kind's own options, and how to start a sketch from those that were given."""

    takes: frozenset[str]
    start: Callable[[Unit, dict[str, Any]], Any]


def new_sketch(flags: SketchFlags) -> Any:
    """Start an empty sketch as the options say."""
    recipe = _RECIPES[flags.kind.value]
    given = {name: value for name in SHAPE_FLAGS if (value := getattr(flags, name)) is not None}
    foreign = sorted("--" + name.replace("_", "-") for name in given.keys() - recipe.takes)
    if foreign:
        raise typer.BadParameter(f"{', '.join(foreign)} does not apply to {flags.kind.value}.")
    return recipe.start(unit_from(flags.user, flags.max_keys, flags.max_weight, flags.neighbours), given)


def _counts(unit: Unit, given: dict[str, Any]) -> Any:
    from dpsketch.sketches.countsketch import CountSketch

    return CountSketch(**{"rows": 7, "width": 4096, **given}, unit=unit)


def _heavy(unit: Unit, given: dict[str, Any]) -> Any:
    from dpsketch.sketches.heavy import HeavyHitters

    if "key_bits" not in given and "key_bytes" not in given:
        raise InvalidInput("say how long keys may be: --key-bits 64 for integers, or --key-bytes 24 (say) for text.")
    return HeavyHitters(**{"rows": 7, "width": 4096, **given}, unit=unit)


_RECIPES = {
    "counts": Recipe(frozenset({"rows", "width", "seed", "grid"}), _counts),
    "heavy": Recipe(frozenset({"rows", "width", "seed", "grid", "key_bits", "key_bytes"}), _heavy),
}


def feed(sketch: Any, flags: SketchFlags, progress: Callable[[Progress], None] | None) -> int:
    """Add every record of the sources to a sketch; return how many were read."""
    from dpsketch.bounding import whole_users
    from dpsketch.sources import open_source

    read = 0
    batches = open_source(
        flags.source,
        _columns(flags, sketch),
        stdin_format=flags.stdin_format.value,
        sort_by_user=flags.user is not None,
        progress=progress,
    )

    def counted() -> Iterator[Batch]:
        nonlocal read
        for batch in batches:
            read += batch.rows
            yield batch

    if flags.user is None:
        for batch in counted():
            sketch.update(batch.key, weights=batch.weight)
    else:
        for batch in whole_users(counted(), sketch.spec):
            sketch.update(batch.key, users=batch.user, weights=batch.weight)
    return read


def _columns(flags: SketchFlags, sketch: Any) -> Columns:
    from dpsketch.sources import Columns

    if flags.key is None:
        raise InvalidInput("say which column holds the key: --key COLUMN.")
    key_type: KeyType | None = sketch.spec.key_type if flags.key_type is None else flags.key_type.value
    return Columns(key=flags.key, user=flags.user, weight=flags.weight, key_type=key_type)
