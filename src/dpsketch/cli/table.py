"""Commands that make private tables: table, whose options say what to group, and sql, whose query does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dpsketch.cli.budget import BudgetOptions, source_of
from dpsketch.cli.delivery import deliver, draw, room_of, save
from dpsketch.cli.notices import planned, preview, report, tell_charge
from dpsketch.cli.options import Command, SourceFormat, gather, given, make_option, options_of, was_stated
from dpsketch.cli.output import progress_bar, say
from dpsketch.cli.query import Forms
from dpsketch.cli.recipes import QUOTED, add_all, bare_name, is_computed, split_columns
from dpsketch.cli.spool import Spool
from dpsketch.errors import InvalidInput
from dpsketch.numbers import number_text, positive_number, probability
from dpsketch.sketches.kinds import KINDS

if TYPE_CHECKING:
    from dpsketch.queries import TableQuery
    from dpsketch.sketches.table import Column, PrivateTable, Table
    from dpsketch.sources import Columns, RowExpression

__all__ = ["build_table", "columns_of", "sql", "table"]

_KIND = KINDS["table"]
_COLUMNS, _RECORDS, _OUTPUT = "Columns", "Records", "Output"
_SHOWN = 20
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(.*?)\s*=\s*({_NUMBER})\s*:\s*({_NUMBER})\s*", re.DOTALL)
_MISTAKEN = re.compile(r"\w+\s*=[^=].*")  # not an expression, which has parentheses or AS
_SHARES = re.compile(r"(.*):([\d.,eE\s-]+)", re.DOTALL)
_NAMED = re.compile(rf"(.*\S)\s+as\s+({QUOTED}|\w+)\s*", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UserOptions:
    """Options of the unit of privacy, and of reading records."""

    user: str | None = given("Column with the user of each record.", group="Options")
    over: Literal["records", "users"] = given(
        "Means over records, as SQL's AVG, or over users, which have less noise.", group=_COLUMNS, default="records"
    )
    grid: tuple[str, ...] = given(
        "Public step of the values of a quantile, as in amount=0.01. May be repeated.", group=_COLUMNS, default=(),
        multiple=True, metavar="COLUMN=STEP",
    )  # fmt: skip
    max_keys: str | None = given(
        "Maximum number of groups in which a user counts. By default the release chooses it.", group=_RECORDS,
        metavar="N|auto",
    )  # fmt: skip
    max_records: str | None = given(
        "Maximum number of a user's records in one group. By default the release chooses it.", group=_RECORDS,
        metavar="N|auto",
    )  # fmt: skip
    neighbours: Literal["add_remove", "replace"] = given(
        "Neighbour relation: a unit is added or removed, or replaced by another.", group=_RECORDS, default="add_remove"
    )
    stdin_format: SourceFormat = given("Format of standard input (-).", "--format", group=_RECORDS, default="csv")
    memory_limit: str | None = given("Memory beyond which records go to disk, as in 2GB.", group=_RECORDS)
    temp_directory: Path | None = given("Folder for the files of --memory-limit.", group=_RECORDS)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Options of groups and aggregates."""

    by: str = given(
        "Columns that name a group, as in country,day. SQL with parentheses is computed, and AS names it: "
        "\"date_trunc('day', ts) AS day\".",
        group="Options",
        required=True,
    )
    count: bool = given("Number of records.", group="Options", default=False)
    users: bool = given("Number of users.", group="Options", default=False)
    sum: tuple[str, ...] = given(
        "Sum of a column, with bounds if they are known: amount=0:500. May be repeated.", group="Options", default=(),
        multiple=True, metavar="COLUMN[=LOW:HIGH]",
    )  # fmt: skip
    mean: tuple[str, ...] = given(
        "Mean of a column, with bounds if they are known. May be repeated.", group="Options", default=(),
        multiple=True, metavar="COLUMN[=LOW:HIGH]",
    )  # fmt: skip
    quantiles: tuple[str, ...] = given(
        "Quantiles of a column, as in amount:.5,.9 or amount:.5,.9=0:500. May be repeated.", group="Options",
        default=(), multiple=True, metavar="COLUMN:Q,Q[=LOW:HIGH]",
    )  # fmt: skip
    where: str | None = given('SQL condition on the rows to read, as in "amount > 0".', group="Options")
    importance: tuple[str, ...] = given(
        "Importance of a released column, as in sum_amount=4; 1 is usual. May be repeated.", group=_COLUMNS,
        default=(), multiple=True, metavar="NAME=WEIGHT",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Options of a query."""

    bounds: tuple[str, ...] = given(
        "Bounds of a released column, as in sum_amount=0:500, or of all that read a column: amount=0:90. May be "
        "repeated.",
        group=_COLUMNS,
        default=(),
        multiple=True,
        metavar="NAME=LOW:HIGH",
    )


@dataclass(frozen=True, slots=True)
class ReleaseOptions:
    """Options of the output."""

    output: Path | None = given(
        "File to write (.dps). Without it the table is printed, and kept nowhere.", "--output", "-o", group="Options"
    )
    dry_run: bool = given("Preview of cost and noise; nothing is read.", group="Options", default=False)
    confidence: float = given("Coverage of the intervals that are printed.", group=_OUTPUT, default=0.95)
    max_relative_error: float | None = given(
        "Largest half width of an interval as a part of its number; others are left blank.", group=_OUTPUT
    )
    overwrite: bool = given("Permission to replace the file if it exists.", group=_OUTPUT, default=False)

    def __post_init__(self) -> None:
        if self.output is not None and self.output.suffix.lower() in (".csv", ".parquet", ".md", ".json"):
            raise InvalidInput(
                "-o keeps the release, in a .dps file. --csv and --markdown print its rows, and --parquet FILE writes "
                "them."
            )
        probability("--confidence", self.confidence)
        if self.max_relative_error is not None:
            positive_number("--max-relative-error", self.max_relative_error)

    @property
    def shape(self) -> dict[str, float | None]:
        """Arguments of the printed numbers."""
        return {"confidence": self.confidence, "max_relative_error": self.max_relative_error}


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options of a partial table's file."""

    output: Path = given("File to write.", "--output", "-o", group="Options", required=True)
    overwrite: bool = given("Permission to replace the file if it exists.", group=_OUTPUT, default=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """An empty table, and the sources of its records.

    Attributes
    ----------
    table : Table
        The empty table.
    columns : Columns
        Columns to read of each record.
    sources : list of str
        Files, folders, databases or standard input.
    stdin_format : str
        Format of the source ``-``.
    query : TableQuery or None
        The query, for ``dpsketch sql``.
    """

    table: Table
    columns: Columns
    sources: list[str]
    stdin_format: SourceFormat
    query: TableQuery | None = None

    @property
    def named_columns(self) -> str:
        """Names of the columns in use, for the ledger."""
        spec = self.table.spec
        named = {"by": ", ".join(spec.by), "user": spec.user, "values": ", ".join(spec.values)}
        return ", ".join(f"{role} {column}" for role, column in named.items() if column)

    def read(self) -> None:
        """Add the records of the sources to the table, and print their number for the data holder."""
        from dpsketch.sources import open_source

        with progress_bar("reading") as progress:
            batches = open_source(self.sources, self.columns, stdin_format=self.stdin_format, progress=progress)
            reading = add_all(self.table, batches)
        skipped = self.table.skipped_nulls
        report(type(reading)(reading.records, reading.skipped + skipped), self.table)
        needed = dict.fromkeys([*self.columns.kept, *(() if self.query is None else self.query.asked.needed)])
        say(f"A record that lacks any of {', '.join(needed)} counts in no column.")


@dataclass(slots=True)
class _Reader:
    """Reads the options that name columns; those that are computed are noted."""

    computed: dict[str, RowExpression] = field(default_factory=dict)

    def column(self, text: str, option: str) -> str:
        """Return the name of a column: a plain name, SQL with parentheses, or SQL with a name behind AS."""
        named = _NAMED.fullmatch(text)
        if named is None and not is_computed(text):
            return bare_name(text) if text.strip().startswith('"') else text.strip()
        from dataclasses import replace

        from dpsketch.sources import parse_expression

        sql = (text if named is None else named[1]).strip()
        name = sql if named is None else bare_name(named[2])
        found = replace(parse_expression(sql, option), name=name)
        if self.computed.setdefault(name, found).text != found.text:
            raise InvalidInput("two computed columns have one name. Give another one, with AS.")
        return name

    def groups(self, text: str) -> tuple[str, ...]:
        """Return the group columns."""
        names = tuple(self.column(part, "--by") for part in split_columns(text))
        if not all(names):
            raise InvalidInput("--by names no column before or after a comma. A name that holds a comma is in quotes.")
        return names

    def columns(self, flags: GroupOptions, over: Any) -> list[Column]:
        """Return the columns of the table."""
        from dpsketch.sketches import table as tables

        found = [tables.count()] if flags.count else []
        found += [tables.users()] if flags.users else []
        for text in flags.sum:
            value, bounds = _with_bounds(text)
            found.append(tables.sum(self.column(value, "--sum"), bounds=bounds))
        for text in flags.mean:
            value, bounds = _with_bounds(text)
            found.append(tables.mean(self.column(value, "--mean"), bounds=bounds, over=over))
        for text in flags.quantiles:
            value, bounds = _with_bounds(text)
            parts = _SHARES.fullmatch(value)
            shares = [] if parts is None else _floats(parts[2].split(","))
            if parts is None or not shares:
                raise InvalidInput("--quantiles names a column and its quantiles, as in amount:.5,.9.")
            found.append(tables.quantiles(self.column(parts[1], "--quantiles"), shares, bounds=bounds))
        return found


def columns_of(over: Literal["records", "users"], **asked: Any) -> list[Column]:
    """Return the columns that options ask for: ``count``, ``users``, ``sum``, ``mean`` and ``quantiles``."""
    return _Reader().columns(GroupOptions(by="", **asked), over)


def _with_bounds(text: str) -> tuple[str, tuple[float, float] | None]:
    """Return what stands before ``=LOW:HIGH``, and the bounds."""
    parts = _RANGE.fullmatch(text)
    if parts is None and _MISTAKEN.fullmatch(text):
        raise InvalidInput("bounds are two numbers behind the column, as in amount=0:500.")
    return (text, None) if parts is None else (parts[1], (float(parts[2]), float(parts[3])))


def _floats(texts: list[str]) -> list[float]:
    try:
        return [float(text) for text in texts]
    except ValueError:
        return []


def _numbers(texts: tuple[str, ...], option: str, example: str) -> dict[str, float]:
    """Read NAME=NUMBER, each name once."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        read = _floats([number])
        if not name or not read or name in found:
            raise InvalidInput(f"{option} is a name and a number, as in {example}, each name once.")
        found[name] = read[0]
    return found


def _most(text: str | None, option: str) -> Any:
    """Read N or auto."""
    if text is None or text == "auto":
        return text
    if not text.isdecimal():
        raise InvalidInput(f"{option} is a whole number, or auto.")
    return int(text)


def _user_arguments(flags: UserOptions) -> dict[str, Any]:
    """Return the arguments of a table about its unit and its memory."""
    if flags.user is None and flags.over == "users":
        raise InvalidInput("--over users weighs users alike: name the user's column with --user.")
    return {
        "max_keys": _most(flags.max_keys, "--max-keys"),
        "max_records": _most(flags.max_records, "--max-records"),
        "neighbours": flags.neighbours,
        "memory_limit": flags.memory_limit,
        "temp_directory": flags.temp_directory,
    }


def _asked_by_options(values: Mapping[str, Any]) -> Asked:
    """Build the table of the options of ``dpsketch table``."""
    from dpsketch.queries import bounded
    from dpsketch.sketches.table import Table, count
    from dpsketch.sources import Columns, parse_expression

    flags, groups = gather(UserOptions, values), gather(GroupOptions, values)
    if not values["sources"]:
        raise click.UsageError("Name what to read: SOURCE….")
    if groups.users and flags.user is None:
        raise InvalidInput("--users counts users: name the users' column with --user.")
    reader = _Reader()
    by = reader.groups(groups.by)
    columns = bounded(
        reader.columns(groups, flags.over) or [count()],
        grid=_numbers(flags.grid, "--grid", "amount=0.01"),
        weights=_numbers(groups.importance, "--importance", "sum_amount=4"),
        by_user=flags.user is not None,
    )
    if flags.user in reader.computed:
        raise InvalidInput("a computed column has the name of the user's column, which it would replace. Rename it.")
    made = Table(by=by, columns=columns, user=flags.user, **_user_arguments(flags))
    read = Columns(
        key=by if len(by) > 1 else by[0],
        user=flags.user,
        points=made.spec.values,
        where=None if groups.where is None else parse_expression(groups.where, "--where"),
        computed=tuple(reader.computed.values()),
        named=True,
    )
    return Asked(made, read, list(values["sources"]), flags.stdin_format)


def _asked_by_query(values: Mapping[str, Any]) -> Asked:
    """Build the table of a query."""
    from dpsketch.queries import TableQuery

    flags, options = gather(UserOptions, values), gather(QueryOptions, values)
    arguments, bounds = _user_arguments(flags), {}
    for text in options.bounds:
        name, pair = _with_bounds(text)
        if pair is None or not name or name in bounds:
            raise InvalidInput("--bounds is a name and a range, as in sum_amount=0:500, each name once.")
        bounds[name] = pair
    grid = _numbers(flags.grid, "--grid", "amount=0.01")
    query = TableQuery.read(values["query"], user=flags.user, bounds=bounds, grid=grid, over=flags.over)
    return Asked(query.table(**arguments), query.source_columns, [query.location], flags.stdin_format, query)


def _released(make: Callable[[Mapping[str, Any]], Asked], values: Mapping[str, Any]) -> None:
    """Read the records, release the table, and print it."""
    stated = {one.name: values[one.name] for one in _KIND.release_options if was_stated(values[one.name])}
    budget = gather(BudgetOptions, values, release=stated)
    where, forms = gather(ReleaseOptions, values), gather(Forms, values)
    forms.check()
    budget.check()
    asked = make(values)
    made, output = asked.table, where.output
    options = budget.arguments(_KIND, made.spec)
    target = budget.target(lambda: source_of(asked.sources))
    if where.dry_run:
        preview(made, budget, target, forms.as_json, options)
        return
    planned(made, budget, options)  # a budget that the table cannot take is refused before an hour of reading
    with nullcontext() if output is None else Spool.reserve(output, overwrite=where.overwrite) as spool:
        if spool is not None:
            spool.make_room(room_of(made))
        asked.read()
        if asked.query is not None:
            asked.query.check(made.spec)
        options = budget.arguments(_KIND, made.spec)  # by now the source has said what its groups are
        named = asked.named_columns
        if spool is None:
            private = draw(made, budget, target, columns=named, options=options)
        else:
            private = deliver(made, budget, target, spool, columns=named, options=options)
    tell_charge(target, private.charge)
    shown = private if asked.query is None else asked.query.shown(private)
    _show(shown, where, forms)


def _show(private: PrivateTable, where: ReleaseOptions, forms: Forms) -> None:
    """Print a table, what its columns are, and its guarantee."""
    paid = None if private.charge is None else private.charge.to_json()
    output = None if where.output is None else str(where.output)
    facts = {"output": output, "confidence": where.confidence, **private.facts(), "charge": paid}
    facts["others"] = private.others_at(where.confidence)
    limit = None if output is None else _SHOWN
    forms.show_rows(private.rows, private.guarantee, facts, limit=limit, **where.shape)
    if forms.as_json:
        return
    for words in _explained(private, where.confidence):
        say(words)
    if output is None:
        say("The table is kept nowhere: -o FILE keeps it, for more questions at no cost.")
    else:
        say(f"Wrote {output}; dpsketch query {output} prints all rows.")
    say(f"Guarantee: {private.guarantee}")


def _explained(private: PrivateTable, confidence: float) -> list[str]:
    """Describe what each column counts, the chosen bounds, and the share that clipping cut."""
    lines, cut = [], private.cut
    kept = f"; {private.kept}"  # said once, below
    chosen = {name for column in private.spec.columns if column.chosen for name in column.names}
    for name, words in private.meanings.items():
        how = " (bounds chosen privately)" if name in chosen else ""
        lines.append(f"{name}: {words.removesuffix(kept)}{how}.{_clipping_words(cut.get(name, 0.0))}")
    if "max_keys" in cut:
        how = " (chosen privately)" if private.spec.unit.chosen else ""
        most = f"{private.kept.capitalize()}{how}."
        lines.append(f"{most}{_keys_words(cut['max_keys'])}")
    gain = private.gain_over_users
    if gain is not None and gain > 1:
        lines.append(
            "Means are over records, as SQL's AVG. Means over users (--over users) would have about "
            f"{number_text(round(gain, 1))} times less noise."
        )
    lines.append(f"All groups that are not listed, together: {_others_words(private, confidence)}.")
    return lines


def _others_words(private: PrivateTable, confidence: float) -> str:
    """Write the numbers of groups that are not listed, each with its interval."""
    from dpsketch.sketches.table.rows import with_ends

    others, found = private.others_at(confidence), []
    for name in private.value_names:
        value, low, high = (number_text(others[each]) for each in with_ends(name))
        found.append(f"{name} {value} [{low}, {high}]")
    return ", ".join(found)


def _clipping_words(cut: float | None) -> str:
    if cut is None:
        return " How much clipping cuts is not known; it may be most."
    return f" Clipping may cut {cut:.1%} of the total; intervals do not include that." if cut >= 0.0005 else ""


def _keys_words(cut: float | None) -> str:
    if cut is None:
        return " How much that cuts is not known; it may be most."
    return f" That cuts about {cut:.1%} of what users hold, and more of large groups." if cut >= 0.0005 else ""


def _build(values: Mapping[str, Any]) -> None:
    where = gather(BuildOptions, values)
    asked = _asked_by_options(values)
    with Spool.reserve(where.output, overwrite=where.overwrite) as spool:
        spool.make_room(room_of(asked.table))
        asked.read()
        save(spool, asked.table.to_shared_bytes(), sensitive=True)
    say(f"Wrote {where.output}. It is sensitive: only its owner may read it.")


def _sources() -> click.Argument:
    return click.Argument(
        ["sources"], nargs=-1, metavar="SOURCE…",
        help="Files, folders, globs, a database table (…?table=NAME), or - for standard input.",
    )  # fmt: skip


def _release_options() -> list[click.Parameter]:
    return [
        *(make_option(one.name, one.type, one.words, group="Release") for one in _KIND.release_options),
        *options_of(BudgetOptions, without={"keys"}),
        *options_of(ReleaseOptions),
        *options_of(Forms),
    ]


table = Command(
    "table",
    callback=lambda **values: _released(_asked_by_options, values),
    params=[_sources(), *options_of(GroupOptions), *options_of(UserOptions), *_release_options()],
    help="Count, add up and average the records of each group privately: a GROUP BY in one release.\n\n"
    "Groups that are on no public list are found by the release, which needs --delta above 0. All other groups "
    "together are one more row.",
)
sql = Command(
    "sql",
    callback=lambda **values: _released(_asked_by_query, values),
    params=[
        click.Argument(["query"], metavar="QUERY", help="SELECT … FROM 'file' WHERE … GROUP BY …, in DuckDB's SQL."),
        *options_of(UserOptions), *options_of(QueryOptions), *_release_options(),
    ],
    help="Answer a GROUP BY query privately, in one release.\n\n"
    "Aggregates are COUNT(*), COUNT(x), COUNT(DISTINCT user), SUM, AVG, MEDIAN, QUANTILE_CONT and QUANTILE_DISC. "
    "HAVING, ORDER BY and LIMIT shape what is printed, and -o keeps the whole release.",
)  # fmt: skip
build_table = Command(
    "table",
    callback=lambda **values: _build(values),
    params=[_sources(), *options_of(GroupOptions), *options_of(UserOptions), *options_of(BuildOptions)],
    help=f"{_KIND.question}\n\nRead records into a sensitive table, to be merged and released later.",
    short_help=_KIND.question,
)
