"""From the options to a sketch that has counted the records: which sketch, which columns, which sources."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dpsketch.cli.exits import about_data
from dpsketch.cli.kinds import start
from dpsketch.cli.options import SourceFormat, flag_of, given, unit_from
from dpsketch.cli.output import say
from dpsketch.errors import InvalidInput
from dpsketch.sketches.kinds import KINDS, row_of

if TYPE_CHECKING:
    from dpsketch.sources import Batch, Columns, Progress, RowExpression, RowQuery

__all__ = [
    "QUOTED", "Reading", "SketchOptions", "add_all", "bare_name", "feed", "is_computed", "key_parts", "new_sketch",
    "sketch_like", "sources_of", "split_columns", "wanted",
]  # fmt: skip

_GROUP = "Records"
_COMPUTED = "--key (computed, as it has parentheses; a column of that name is in double quotes)"


@dataclass(frozen=True, slots=True)
class SketchOptions:
    """What to read and what to make of it; ``shape`` holds the stated options of the kind."""

    kind: str
    sources: tuple[str, ...] = ()
    key: str | None = given(
        "Column that holds the key; a,b for several as one. SQL with parentheses is computed. A name with a comma or "
        "parenthesis is in double quotes.",
        group="Options",
    )
    columns: str | None = given("Columns that hold the coordinates, as in x,y.", group="Options")
    where: str | None = given('SQL condition on the rows to read, as in "distance > 500".', group="Options")
    user: str | None = given("Column with the user of each record.", group="Options")
    max_keys: str | None = given(
        "Maximum number of distinct keys per user, or auto, which a histogram's release chooses with 5% of ε.",
        group="Options",
        metavar="N|auto",
    )
    sql: str | None = given("Query instead of SOURCE: SELECT columns FROM 'files' WHERE condition.", group=_GROUP)
    weight: str | None = given("Column that holds the weight of a record.", group=_GROUP)
    max_weight: float = given("Largest weight; larger ones are clipped to it.", group=_GROUP, default=1.0)
    count: str | None = given("Column that says how many equal records a row stands for.", group=_GROUP)
    key_type: Literal["text", "int"] | None = given(
        "Type of the keys. Those of CSV and JSON lines are text unless this says int.", group=_GROUP
    )
    neighbours: Literal["add_remove", "replace"] = given(
        "Neighbour relation: a unit is added or removed, or replaced by another.", group=_GROUP, default="add_remove"
    )
    stdin_format: SourceFormat = given("Format of standard input (-).", "--format", group=_GROUP, default="csv")
    engine: Literal["here", "spark"] = given(
        "Engine that counts: this process, or a Spark cluster (files only).", group=_GROUP, default="here"
    )
    master: str | None = given("Cluster of --engine spark: local[*], spark://host:7077, yarn, sc://host.", group=_GROUP)
    shape: dict[str, Any] = field(default_factory=dict)

    @property
    def named_columns(self) -> str:
        """The columns that a release is made from, for readers of the ledger."""
        named = {"key": self.key, "user": self.user, "weight": self.weight, "columns": self.columns}
        return ", ".join(f"{role} {column}" for role, column in named.items() if column is not None)


@dataclass(frozen=True, slots=True)
class Reading:
    """How many records were read and how many of them were left out because a value was missing. Sensitive."""

    records: int
    skipped: int


def new_sketch(flags: SketchOptions, *, fresh_seed: bool = False) -> Any:
    """Start an empty sketch as the options say; with a seed drawn for it alone, if they state none and that is asked.

    A seed is public. A fixed one lets partials merge and releases subtract, but treats the same keys badly each time.
    """
    kind, stated = KINDS[flags.kind], dict(flags.shape)
    unit = unit_from(flags.user, flags.max_keys, flags.max_weight, flags.neighbours)
    if fresh_seed and any(option.name == "seed" for option in kind.options):
        from dpsketch.seeds import random_seed

        stated.setdefault("seed", random_seed())
    if kind.name == "distinct" and flags.user is None:
        say(_unit_hint(flags.key))
    columns = _coordinates(flags) if kind.reads == "points" else ()
    sketch = start(kind, unit, stated, columns, flags.key_type)
    parts = _parts(flags)
    if len(parts) < 2:
        return sketch
    from dpsketch.sketches.specs import with_key_columns

    return type(sketch).from_spec(with_key_columns(sketch.spec, parts))


def _unit_hint(key: str | None) -> str:
    """Say whom a count of different keys protects without --user; by the options alone, never by the data."""
    parts = () if key is None or computed_parts(key) else key_parts(key)
    column = parts[0] if len(parts) == 1 else "COLUMN"
    return (
        "Note: without --user, this release protects one record, not a person with several. If the keys are people, "
        f"add --user {shlex.quote(column)} --max-keys 1: each person is then protected, with the same noise."
    )


def sketch_like(path: Path, flags: SketchOptions, *, sensitive: bool) -> Any:
    """Start an empty sketch with the whole spec of another one, or of a release, and refuse options that contradict it.

    ``sensitive`` says whether the file may be a sketch. What is released at once must not be like one: a moment's
    secret is good for one release.
    """
    from dpsketch import files
    from dpsketch.kinds import load, load_sensitive

    clashing = [*(() if flags.max_keys is None else ("max_keys",)), *flags.shape]
    if clashing:
        options = ", ".join(map(flag_of, clashing))
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


def _refuse_contradictions(spec: Any, flags: SketchOptions) -> None:
    """Refuse options that contradict the spec that is taken."""
    unit, stated = spec.unit, flags.key_type
    if flags.max_weight not in (1, unit.max_weight):
        raise InvalidInput(f"--max-weight contradicts --like, whose sketch clips weights to {unit.max_weight:g}.")
    if flags.neighbours not in ("add_remove", unit.neighbours):
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


def feed(sketch: Any, flags: SketchOptions, progress: Callable[[Progress], None] | None) -> Reading:
    """Add every record of the sources to a sketch."""
    columns = wanted(flags, sketch)
    if flags.engine == "spark":
        reading = _feed_by_spark(sketch, flags, columns)
    elif flags.master is not None:
        raise InvalidInput("--master names a Spark cluster: say --engine spark as well.")
    else:
        reading = _feed_here(sketch, flags, columns, progress)
    return Reading(reading.records, reading.skipped + sketch.skipped_nulls)


def _feed_here(
    sketch: Any, flags: SketchOptions, columns: Columns, progress: Callable[[Progress], None] | None
) -> Reading:
    from dpsketch.sources import open_source

    batches = open_source(
        sources_of(flags),
        replace(columns, encoded=True),
        stdin_format=flags.stdin_format,
        sort_by_user=flags.user is not None and KINDS[sketch.kind].whole_users,
        progress=progress,
    )
    return add_all(sketch, batches)


def add_all(sketch: Any, batches: Iterator[Batch]) -> Reading:
    """Add the records of batches to a sketch, and count them."""
    from dpsketch.sketches import feed

    read = skipped = 0

    def counted() -> Iterator[Batch]:
        nonlocal read, skipped
        for batch in batches:
            read += batch.rows + batch.skipped
            skipped += batch.skipped
            yield batch

    with about_data():
        feed.feed(sketch, counted())
    return Reading(read, skipped)


def _feed_by_spark(sketch: Any, flags: SketchOptions, columns: Columns) -> Reading:
    try:
        from dpsketch.spark.construction import add_files, opened
    except ModuleNotFoundError as missing:
        raise InvalidInput(
            f"--engine spark needs {missing.name}, which is not installed: pip install 'dpsketch[spark]'."
        ) from None
    with opened(flags.master or "local[*]") as session, about_data():
        tally = add_files(session, sources_of(flags), sketch, columns)
    return Reading(tally["records"], tally["skipped"])


def wanted(flags: SketchOptions, sketch: Any) -> Columns:
    """Return the columns that a sketch of these options reads."""
    from dpsketch.sources import Columns

    kind = row_of(sketch)
    if kind.reads == "points":
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
    parts = _parts(flags)
    where, computed = _expressions(flags)
    return Columns(
        key=parts if len(parts) > 1 else parts[0],
        user=flags.user,
        weight=flags.weight,
        count=flags.count,
        key_type=flags.key_type or sketch.source_key_type,
        where=where,
        computed=computed,
        named=kind.names_keys,
    )


def sources_of(flags: SketchOptions) -> list[str]:
    """Return what is read: the sources that were named, or the one of --sql."""
    query = _query(flags)
    if query is not None:
        return [query.source]
    if not flags.sources:
        raise click.UsageError("Name what to read: SOURCE…, or --sql \"SELECT … FROM 'files'\".")
    return list(flags.sources)


def _query(flags: SketchOptions) -> RowQuery | None:
    if flags.sql is None:
        return None
    from dpsketch.sources import parse_query

    if flags.sources or flags.where is not None:
        raise InvalidInput("--sql names its source and its condition itself: drop SOURCE and --where.")
    return parse_query(flags.sql)


def _expressions(flags: SketchOptions) -> tuple[RowExpression | None, tuple[RowExpression, ...]]:
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


def _parts(flags: SketchOptions) -> tuple[str, ...]:
    return () if flags.key is None else key_parts(flags.key)


def _coordinates(flags: SketchOptions) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (flags.columns or "").split(",") if name.strip())
    if not names:
        raise InvalidInput("say which columns are the coordinates: --columns x,y.")
    return names


# Text in double quotes, what stands in parentheses (quotes of both kinds may hold one), or anything but a comma.
QUOTED = r'"(?:[^"]|"")*"'
_TOKEN = re.compile(rf"""{QUOTED}|\(|\)|'(?:[^']|'')*'|,|.""", re.DOTALL)
_ONE_NAME = re.compile(rf"\s*({QUOTED})\s*")


def key_parts(text: str) -> tuple[str, ...]:
    """Return the columns that --key names, separated by commas; a name that holds a comma is in double quotes.

    A comma inside parentheses belongs to an expression, and separates nothing.

    Examples
    --------
    >>> key_parts("origin,dest"), key_parts('"last, first"'), key_parts('"a,b",c')
    (('origin', 'dest'), ('last, first',), ('a,b', 'c'))
    """
    names = tuple(map(bare_name, split_columns(text)))
    if not all(names):
        raise InvalidInput("--key names no column before or after a comma. A name that holds a comma is in quotes.")
    if len(set(names)) < len(names):
        raise InvalidInput("--key names a column twice. Name each once.")
    return names


def computed_parts(text: str) -> list[str]:
    """Return those parts of --key that are computed: whatever has parentheses and is not in double quotes.

    Examples
    --------
    >>> computed_parts("origin,date_trunc('hour', ts)"), computed_parts('"date (UTC)"')
    (["date_trunc('hour', ts)"], [])
    """
    return [part for part in split_columns(text) if is_computed(part)]


def is_computed(part: str) -> bool:
    """Say whether a part of a list of columns is computed, and no name."""
    return "(" in part and _ONE_NAME.fullmatch(part) is None


def split_columns(text: str) -> list[str]:
    """Split at commas that stand neither in quotes nor in parentheses."""
    parts, depth, held = [], 0, ""
    for token in _TOKEN.findall(text):
        if token == "," and depth == 0:
            parts.append(held)
            held = ""
            continue
        depth += {"(": 1, ")": -1}.get(token, 0)
        held += token
    return [*parts, held]


def bare_name(part: str) -> str:
    """Return the name of a column, which may stand in double quotes."""
    quoted = _ONE_NAME.fullmatch(part)
    return part if quoted is None else quoted.group(1)[1:-1].replace('""', '"')
