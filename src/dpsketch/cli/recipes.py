"""How the command line makes a sketch, as its kind's row says, and feeds it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import typer

from dpsketch.cli.columns import computed_parts, key_parts
from dpsketch.cli.exits import about_data
from dpsketch.cli.options import Engine, SketchFlags, refuse_foreign, unit_from
from dpsketch.cli.output import say
from dpsketch.errors import InvalidInput
from dpsketch.sketches.kinds import KINDS, row_of
from dpsketch.sketches.specs import with_key_columns

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.sources import Batch, Columns, Progress, RowExpression, RowQuery

__all__ = ["Reading", "feed", "new_sketch", "sketch_like", "sources_of", "stated_type", "wanted"]


_COMPUTED = "--key (computed, as it has parentheses; a column of that name is in double quotes)"


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
    kind = KINDS[flags.kind]
    given, taken = dict(flags.shape), {option.name for option in kind.options}
    refuse_foreign(kind, given, kind.options)
    unit = unit_from(flags.user, flags.max_keys, flags.max_weight, flags.neighbours)
    if fresh_seed and "seed" in taken and "seed" not in given:
        from dpsketch.seeds import random_seed

        given["seed"] = random_seed()
    if kind.name == "distinct" and flags.user is None:
        say(_unit_hint(flags.key))
    columns = _coordinates(flags) if kind.reads == "points" else ()
    sketch = kind.start(unit, given, columns=columns, key_type=stated_type(flags))
    parts = _parts(flags)
    return sketch if len(parts) < 2 else type(sketch).from_spec(with_key_columns(sketch.spec, parts))


def _unit_hint(key: str | None) -> str:
    """Say whom a count of different keys protects without --user; by the options alone, never by the data."""
    parts = () if key is None or computed_parts(key) else key_parts(key)
    column = parts[0] if len(parts) == 1 else "COLUMN"
    return (
        "Note: without --user, this release protects one record, not a person with several. If the keys are people, "
        f"add --user {shlex.quote(column)} --max-keys 1: each person is then protected, with the same noise."
    )


def sketch_like(path: Path, flags: SketchFlags, *, sensitive: bool) -> Any:
    """Start an empty sketch with the whole spec of another one, or of a release, and refuse options that contradict it.

    ``sensitive`` says whether the file may be a sketch. What is released at once must not be like one: a moment's
    secret is good for one release.
    """
    from dpsketch import files
    from dpsketch.kinds import load, load_sensitive

    clashing = [*(() if flags.max_keys is None else ("max_keys",)), *flags.shape]
    if clashing:
        options = ", ".join("--" + name.replace("_", "-") for name in clashing)
        raise InvalidInput(f"--like takes the whole spec of another sketch: drop {options}.")
    document = files.read(path, allow_sensitive=True)
    kind = KINDS.get(document.kind)
    if kind is None or flags.kind not in (kind.name, kind.command):
        raise InvalidInput(f"{path} holds a sketch of kind {document.kind}, and {flags.kind} was asked for.")
    if document.sensitive and not sensitive:
        raise InvalidInput(f"{path} is sensitive, and --like takes the spec of a release here: name a .dps file.")
    if not document.sensitive and kind.released_once:
        raise InvalidInput("sketches of moments are not alike: each has a secret of its own. Drop --like.")
    if document.sensitive:
        sketch = load_sensitive(path).empty_like()
    else:
        release: Any = load(path)
        sketch = kind.sensitive.from_spec(release.spec)
    _refuse_contradictions(sketch.spec, flags)
    return sketch


def _refuse_contradictions(spec: Any, flags: SketchFlags) -> None:
    """Refuse options that contradict the spec that is taken."""
    unit, stated = spec.unit, stated_type(flags)
    if flags.max_weight not in (1, unit.max_weight):
        raise InvalidInput(f"--max-weight contradicts --like, whose sketch clips weights to {unit.max_weight:g}.")
    if flags.neighbours.value not in ("add_remove", unit.neighbours):
        raise InvalidInput(f"--neighbours contradicts --like, whose sketch has {unit.neighbours}.")
    if flags.user is not None and unit.level == "record":
        raise InvalidInput("--user contradicts --like, whose sketch protects records.")
    if flags.user is None and unit.level == "user":
        raise InvalidInput("the sketch of --like protects users: name the user's column with --user.")
    held, parts = getattr(spec, "key_columns", ()), _parts(flags)
    if parts and held != (parts if len(parts) > 1 else ()):
        counted = f"keys of {', '.join(held)}" if held else "keys of one column"
        raise InvalidInput(f"--key contradicts --like, whose sketch counts {counted}.")
    fixed = getattr(spec, "key_type", None)
    if stated is not None and fixed is not None and stated != fixed:
        raise InvalidInput(f"--key-type contradicts --like, whose sketch has {fixed} keys.")


def feed(sketch: Any, flags: SketchFlags, progress: Callable[[Progress], None] | None) -> Reading:
    """Add every record of the sources to a sketch."""
    columns = wanted(flags, sketch)
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
    from dpsketch.sketches import feed
    from dpsketch.sources import open_source

    read = skipped = 0
    batches = open_source(
        sources_of(flags),
        replace(columns, encoded=True),
        stdin_format=flags.stdin_format.value,
        sort_by_user=flags.user is not None and KINDS[sketch.kind].whole_users,
        progress=progress,
    )

    def counted() -> Iterator[Batch]:
        nonlocal read, skipped
        for batch in batches:
            read += batch.rows + batch.skipped
            skipped += batch.skipped
            yield batch

    with about_data():
        feed.feed(sketch, counted())
    return Reading(read, skipped)


def _feed_by_spark(sketch: Any, flags: SketchFlags, columns: Columns) -> Reading:
    try:
        from dpsketch.spark.construction import add_files
        from dpsketch.spark.session import opened
    except ModuleNotFoundError as missing:
        raise InvalidInput(
            f"--engine spark needs {missing.name}, which is not installed: pip install 'dpsketch[spark]'."
        ) from None
    with opened(flags.master or "local[*]") as session, about_data():
        tally = add_files(session, sources_of(flags), sketch, columns)
    return Reading(tally["records"], tally["skipped"])


def wanted(flags: SketchFlags, sketch: Any) -> Columns:
    """Return the columns that a sketch of these options reads."""
    from dpsketch.sources import Columns

    kind = row_of(sketch)
    if kind.reads == "points":
        if not (flags.weight is None and flags.key is None and flags.count is None):
            raise InvalidInput(
                f"a {kind.name} counts points: name their --columns; --key, --weight and --count do not apply."
            )
        named = _coordinates(flags) if flags.columns is not None or sketch.spec.columns is None else sketch.spec.columns
        where, computed = _expressions(flags)
        return Columns(points=named, user=flags.user, where=where, computed=computed)
    if not kind.weighs and flags.weight is not None:
        raise InvalidInput(f"a {kind.name} count has no weights: drop --weight.")
    if not kind.weighs and flags.count is not None:
        raise InvalidInput(f"a {kind.name} count counts each key once, however often it comes: drop --count.")
    if flags.count is not None and flags.user is not None:
        raise InvalidInput(
            "--count says how many records of nobody a row stands for, and --user protects users: use --weight, with "
            "--max-weight for the most that one user may add to a key."
        )
    if flags.key is None:
        raise InvalidInput("say which column holds the key: --key COLUMN.")
    key_type = stated_type(flags) or sketch.source_key_type
    parts = _parts(flags)
    where, computed = _expressions(flags)
    return Columns(
        key=parts if len(parts) > 1 else parts[0],
        user=flags.user,
        weight=flags.weight,
        count=flags.count,
        key_type=key_type,
        where=where,
        computed=computed,
    )


def sources_of(flags: SketchFlags) -> list[str]:
    """Return what is read: the sources that were named, or the one of --sql."""
    query = _query(flags)
    if query is not None:
        return [query.source]
    if not flags.source:
        raise typer.BadParameter("name what to read: SOURCE…, or --sql \"SELECT … FROM 'files'\".")
    return flags.source


def _query(flags: SketchFlags) -> RowQuery | None:
    if flags.sql is None:
        return None
    from dpsketch.sources import parse_query

    if flags.source or flags.where is not None:
        raise InvalidInput("--sql names its source and its condition itself: drop SOURCE and --where.")
    return parse_query(flags.sql)


def _expressions(flags: SketchFlags) -> tuple[RowExpression | None, tuple[RowExpression, ...]]:
    """Return the condition of --sql or --where, and the columns that --sql or --key compute."""
    from dpsketch.sources import parse_expression

    texts = [] if flags.key is None else computed_parts(flags.key)
    query = _query(flags)
    if query is None:
        where = None if flags.where is None else parse_expression(flags.where, "--where")
        return where, tuple(parse_expression(text, _COMPUTED) for text in texts)
    if texts:
        raise InvalidInput("--key names columns that --sql selects; compute them there, as in SELECT … AS name.")
    wanted = {"--user": flags.user, "--weight": flags.weight, "--count": flags.count}
    for name in (*_parts(flags), *(() if flags.columns is None else _coordinates(flags))):
        query.check({**wanted, "--key" if flags.columns is None else "--columns": name})
    asked = {*_parts(flags), *wanted.values(), *(() if flags.columns is None else _coordinates(flags))}
    return query.where, tuple(each for each in query.computed if each.name in asked)


def _parts(flags: SketchFlags) -> tuple[str, ...]:
    return () if flags.key is None else key_parts(flags.key)


def stated_type(flags: SketchFlags) -> KeyType | None:
    """Return what the options say keys are, if they do."""
    return None if flags.key_type is None else flags.key_type.value


def _coordinates(flags: SketchFlags) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (flags.columns or "").split(",") if name.strip())
    if not names:
        raise InvalidInput("say which columns are the coordinates: --columns x,y.")
    return names
