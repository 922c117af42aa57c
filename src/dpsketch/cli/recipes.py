"""How the command line makes a sketch of each kind and feeds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import typer

from dpsketch.cli.options import Engine, SketchFlags, unit_from
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit
    from dpsketch.sources import Batch, Columns, Progress

__all__ = ["Reading", "feed", "new_sketch", "sketch_like"]

# The options that shape a sketch; each kind takes some of them.
SHAPE_FLAGS = (
    "rows", "width", "seed", "grid", "key_bits", "key_bytes", "domain", "max_value", "expected_keys", "p", "size",
    "kernel", "bandwidth", "bounds", "buckets", "bits", "start", "outside",
)  # fmt: skip

Given = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A kind's own options, and how to start a sketch from those that were given."""

    takes: frozenset[str]
    start: Callable[[Unit, Given, SketchFlags], Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """How many records were read and how many of them were left out because a value was missing. Sensitive."""

    records: int
    skipped: int


def new_sketch(flags: SketchFlags, *, fresh_seed: bool = False) -> Any:
    """Start an empty sketch as the options say; with a seed drawn for it alone, if they state none and that is asked.

    A seed is public. A fixed one lets partials merge and releases subtract, but the keys that it treats badly are the
    same for ever.
    """
    recipe = _RECIPES[flags.kind.value]
    given = {name: value for name in SHAPE_FLAGS if (value := getattr(flags, name)) is not None}
    foreign = sorted("--" + name.replace("_", "-") for name in given.keys() - recipe.takes)
    if foreign:
        raise typer.BadParameter(f"{', '.join(foreign)} does not apply to {flags.kind.value}.")
    unit = unit_from(flags.user, flags.max_keys, flags.max_weight, flags.neighbours)
    if fresh_seed and "seed" not in given:
        from dpsketch.keying import random_seed

        given["seed"] = random_seed()
    return recipe.start(unit, given, flags)


def sketch_like(path: Path, flags: SketchFlags, *, sensitive: bool) -> Any:
    """Start an empty sketch with the whole spec of another one, or of a release, and refuse options that contradict it.

    ``sensitive`` says whether the file may be a sketch. What is released at once must not be like one: a moment's
    secret is good for one release.
    """
    from dpsketch import files
    from dpsketch.kinds import KINDS, load, load_sensitive

    if flags.max_keys is not None or any(getattr(flags, name) is not None for name in SHAPE_FLAGS):
        raise InvalidInput("--like takes the whole spec of another sketch: drop --rows, --width, --seed and so on.")
    document = files.read(path, allow_sensitive=True)
    found = document.kind
    if KINDS.get(found) != KINDS[flags.kind.value] and (flags.kind.value, found) != ("moment", "moments"):
        raise InvalidInput(f"{path} holds a sketch of kind {found}, and {flags.kind.value} was asked for.")
    if document.sensitive and not sensitive:
        raise InvalidInput(f"{path} is sensitive, and --like takes the spec of a release here: name a .dps file.")
    if not document.sensitive and KINDS[found].released_once:
        raise InvalidInput("sketches of moments are not alike: each has a secret of its own. Drop --like.")
    if document.sensitive:
        sketch = load_sensitive(path).empty_like()
    else:
        release: Any = load(path)
        sketch = KINDS[found].sensitive.from_spec(release.spec)
    _refuse_contradictions(sketch.spec, flags)
    return sketch


def _refuse_contradictions(spec: Any, flags: SketchFlags) -> None:
    """Refuse options that contradict the spec that is taken."""
    unit, stated = spec.unit, _stated_type(flags)
    if flags.max_weight not in (1, unit.max_weight):
        raise InvalidInput(f"--max-weight contradicts --like, whose sketch clips weights to {unit.max_weight:g}.")
    if flags.neighbours.value not in ("add_remove", unit.neighbours):
        raise InvalidInput(f"--neighbours contradicts --like, whose sketch has {unit.neighbours}.")
    if flags.user is not None and unit.level == "record":
        raise InvalidInput("--user contradicts --like, whose sketch protects records.")
    if flags.user is None and unit.level == "user":
        raise InvalidInput("the sketch of --like protects users: name the user's column with --user.")
    fixed = getattr(spec, "key_type", None)
    if stated is not None and fixed is not None and stated != fixed:
        raise InvalidInput(f"--key-type contradicts --like, whose sketch has {fixed} keys.")


def _counts(unit: Unit, given: Given, flags: SketchFlags) -> Any:
    from dpsketch.sketches.countsketch import CountSketch

    return CountSketch(**{"rows": 7, "width": 4096, **given}, unit=unit, key_type=_stated_type(flags))


def _heavy(unit: Unit, given: Given, flags: SketchFlags) -> Any:
    from dpsketch.sketches.heavy import HeavyHitters

    if "key_bits" not in given and "key_bytes" not in given:
        raise InvalidInput("say how long keys may be: --key-bits 64 for integers, or --key-bytes 24 (say) for text.")
    return HeavyHitters(**{"rows": 7, "width": 4096, **given}, unit=unit)


def _sparse(unit: Unit, given: Given, flags: SketchFlags) -> Any:
    from dpsketch.sketches.sparse import SparseHistogram

    return SparseHistogram(**given, unit=unit, key_type=_stated_type(flags))


def _moment(unit: Unit, given: Given, flags: SketchFlags) -> Any:
    from dpsketch.sketches.moment import MomentProfile, MomentSketch

    exponents = given.pop("p", None) or []
    if not exponents:
        raise InvalidInput("say which moment: --p 0.5, or several by repeating --p.")
    shape = {"size": 200, "key_type": _stated_type(flags), **given}
    if len(exponents) == 1:
        return MomentSketch(p=exponents[0], **shape, unit=unit)
    return MomentProfile(p=exponents, **shape, unit=unit)


def _density(unit: Unit, given: Given, flags: SketchFlags) -> Any:
    from dpsketch import kernels
    from dpsketch.sketches.density import DensitySketch

    columns = _coordinates(flags)
    name = given.pop("kernel", "euclidean")
    parameters: Given = {"dim": len(columns)}
    if "bandwidth" in given:
        parameters["bandwidth"] = given.pop("bandwidth")
    elif name in ("euclidean", "manhattan"):
        raise InvalidInput("say how far a point reaches: --bandwidth, in the units of the columns.")
    bounds = _bounds(given.pop("bounds", None))
    kernel = kernels.named(name, **parameters)
    return DensitySketch(kernel=kernel, **{"rows": 500, **given}, unit=unit, bounds=bounds, columns=columns)


def _distinct(unit: Unit, given: Given, flags: SketchFlags) -> Any:
    from dpsketch.sketches.distinct import DistinctSketch

    return DistinctSketch(**given, unit=unit, key_type=_stated_type(flags))


def _ranges(unit: Unit, given: Given, flags: SketchFlags) -> Any:
    from dpsketch.sketches.ranges import RangeSketch

    return RangeSketch(**given, unit=unit)


_RECIPES = {
    "counts": Recipe(frozenset({"rows", "width", "seed", "grid"}), _counts),
    "heavy": Recipe(frozenset({"rows", "width", "seed", "grid", "key_bits", "key_bytes"}), _heavy),
    "sparse": Recipe(frozenset({"seed", "grid", "domain", "max_value", "expected_keys"}), _sparse),
    "moment": Recipe(frozenset({"p", "size", "seed", "grid"}), _moment),
    "density": Recipe(frozenset({"rows", "width", "seed", "kernel", "bandwidth", "bounds"}), _density),
    "distinct": Recipe(frozenset({"buckets", "seed"}), _distinct),
    "ranges": Recipe(frozenset({"bits", "start", "outside", "rows", "width", "seed", "grid"}), _ranges),
}


def feed(sketch: Any, flags: SketchFlags, progress: Callable[[Progress], None] | None) -> Reading:
    """Add every record of the sources to a sketch."""
    columns = _wanted(flags, sketch)
    if flags.master is not None and flags.engine is not Engine.SPARK:
        raise InvalidInput("--master names a Spark cluster: say --engine spark as well.")
    match flags.engine:
        case Engine.HERE:
            reading = _feed_here(sketch, flags, columns, progress)
        case Engine.SPARK:
            reading = _feed_by_spark(sketch, flags, columns)
        case _:
            assert_never(flags.engine)
    return Reading(reading.records, reading.skipped + sketch.skipped_nulls)


def _feed_here(
    sketch: Any, flags: SketchFlags, columns: Columns, progress: Callable[[Progress], None] | None
) -> Reading:
    from dpsketch.sketches import feeding
    from dpsketch.sources import open_source

    read = skipped = 0
    batches = open_source(
        flags.source,
        columns,
        stdin_format=flags.stdin_format.value,
        sort_by_user=flags.user is not None,
        progress=progress,
    )

    def counted() -> Iterator[Batch]:
        nonlocal read, skipped
        for batch in batches:
            read += batch.rows + batch.skipped
            skipped += batch.skipped
            yield batch

    feeding.feed(sketch, counted())
    return Reading(read, skipped)


def _feed_by_spark(sketch: Any, flags: SketchFlags, columns: Columns) -> Reading:
    try:
        from dpsketch.spark.building import add_files
        from dpsketch.spark.session import opened
    except ModuleNotFoundError as missing:
        raise InvalidInput(
            f"--engine spark needs {missing.name}, which is not installed: pip install 'dpsketch[spark]'."
        ) from None
    with opened(flags.master or "local[*]") as session:
        tally = add_files(session, flags.source, sketch, columns)
    return Reading(tally["records"], tally["skipped"])


def _wanted(flags: SketchFlags, sketch: Any) -> Columns:
    from dpsketch.sources import Columns

    if flags.kind.value == "density":
        if flags.weight is not None or flags.key is not None:
            raise InvalidInput("a density counts points: name their --columns; --key and --weight do not apply.")
        named = _coordinates(flags) if flags.columns is not None or sketch.spec.columns is None else sketch.spec.columns
        return Columns(points=named, user=flags.user)
    if flags.kind.value == "distinct" and flags.weight is not None:
        raise InvalidInput("a distinct count has no weights: drop --weight.")
    if flags.key is None:
        raise InvalidInput("say which column holds the key: --key COLUMN.")
    return Columns(key=flags.key, user=flags.user, weight=flags.weight, key_type=_key_type(flags, sketch))


def _stated_type(flags: SketchFlags) -> KeyType | None:
    return None if flags.key_type is None else flags.key_type.value


def _key_type(flags: SketchFlags, sketch: Any) -> KeyType | None:
    if flags.key_type is not None:
        return _stated_type(flags)
    fixed: KeyType | None = "int" if flags.kind.value == "ranges" else sketch.spec.key_type
    return fixed


def _coordinates(flags: SketchFlags) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (flags.columns or "").split(",") if name.strip())
    if not names:
        raise InvalidInput("say which columns are the coordinates: --columns x,y.")
    return names


def _bounds(text: str | None) -> list[tuple[float, float]] | None:
    """Read public bounds such as 0:10,-5:5."""
    if text is None:
        return None
    pairs = []
    for part in text.split(","):
        low, colon, high = part.partition(":")
        try:
            pairs.append((float(low), float(high)))
        except ValueError:
            colon = ""
        if not colon:
            raise InvalidInput("--bounds are pairs low:high, one for each column, as in 0:10,-5:5.")
    return pairs
