"""Commands that read records: run, which releases them, and build, which keeps a partial sketch.

Each has one command below it for every kind, with that kind's options only: those of its row in the table of kinds, and
those of the dataclasses that say what is read, who pays and where the result goes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from dpsketch.cli.budget import BudgetOptions, source_of
from dpsketch.cli.delivery import deliver, room_of, save
from dpsketch.cli.notices import better_kind, planned, preview, report, tell
from dpsketch.cli.options import Command, Group, gather, given, make_option, options_of, was_stated
from dpsketch.cli.output import progress_bar, say
from dpsketch.cli.recipes import SketchOptions, feed, new_sketch, sketch_like, sources_of
from dpsketch.cli.spool import Spool
from dpsketch.errors import InvalidInput
from dpsketch.sketches.kinds import KINDS, Kind

__all__ = ["build", "run"]

# The kind whose options are those of a module of its own.
_TABLE = "table"
_SKETCH, _RELEASE, _DAYS = "Sketch", "Release", "Parts and days"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where the releases of ``run`` go, and which there are."""

    output: Path | None = given("File to write; --dry-run needs none.", "--output", "-o", group="Options")
    dry_run: bool = given("Preview of cost, noise, error and memory; nothing is read.", group="Options", default=False)
    like: Path | None = given("Release (.dps) whose spec and seed to take, so that two days subtract.", group=_SKETCH)
    part_by: str | None = given("Column that names the part of a record, for one release of each part.", group=_DAYS)
    parts: Path | None = given(
        "Public list of the parts of --part-by, one per line. -o is a folder, or has {part}.", group=_DAYS
    )
    continual: str | None = given("Number of days that one price covers, as in days=365,objective=totals.", group=_DAYS)
    state: Path | None = given("Folder that keeps the stream of --continual; sensitive.", group=_DAYS)
    day: str | None = given("Date to publish of --continual, as in 2026-11-15.", group=_DAYS)
    series: Path | None = given("File (.dps) for all days of --continual so far.", group=_DAYS)
    overwrite: bool = given("Permission to replace the file if it exists.", default=False)
    as_json: bool = given("JSON output, for programs.", "--json", default=False)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Where the sketch of ``build`` goes."""

    output: Path = given("File to write.", "--output", "-o", group="Options", required=True)
    like: Path | None = given("Sketch or release (.sketch, .dps) whose spec to take.", group=_SKETCH)
    overwrite: bool = given("Permission to replace the file if it exists.", default=False)


class KindCommand(Command):
    """The command for one kind, below ``run`` or ``build``."""

    ungrouped = "Output"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, with the defaults of the sketch's constructor."""
        arguments = inspect.signature(KINDS[ctx.command.name or ""].sensitive).parameters
        for param in self.params:
            default = arguments[param.name].default if param.name in arguments else None
            if getattr(param, "group", "") in (_SKETCH, "Options") and type(default) in (int, float, str):
                param.default, param.show_default = default, param.name != "seed"  # type: ignore[attr-defined]
        super().format_options(ctx, formatter)

    def explained(self, error: click.NoSuchOption, ctx: click.Context) -> click.UsageError:
        """Name the kinds that have an option which this kind has not."""
        group = None if ctx.parent is None else ctx.parent.command
        if not isinstance(group, KindGroup):
            return super().explained(error, ctx)
        others = [
            name
            for name in group.list_commands(ctx)
            if (found := group.get_command(ctx, name)) is not None
            and any(error.option_name in param.opts for param in found.params)
        ]
        if not others:
            return super().explained(error, ctx)
        return click.UsageError(
            f"{error.option_name} does not apply to {ctx.command.name}. It is an option of {', '.join(others)}.", ctx
        )


class KindGroup(Group):
    """A command with one command below it for each kind."""

    def __init__(
        self, name: str, made: Callable[[Kind], list[click.Parameter]], called: Any, *, has_table: bool, **settings: Any
    ) -> None:
        super().__init__(name, options_metavar="", subcommand_metavar="KIND SOURCE… [OPTIONS]", **settings)
        self._made, self._called, self._has_table = made, called, has_table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the kinds."""
        own = [_TABLE] if self._has_table else []
        return [*own, *(kind.name for kind in KINDS.values() if kind.has_command)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a kind."""
        if cmd_name == _TABLE and self._has_table:
            from dpsketch.cli.table import build_table

            return build_table
        return self.command_of(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def command_of(self, name: str) -> KindCommand:
        """Make the command of a kind."""
        kind = KINDS[name]
        source = click.Argument(
            ["sources"], nargs=-1, metavar="SOURCE…",
            help="Files, folders, globs, a database table (…?table=NAME), or - for standard input.",
        )  # fmt: skip
        return KindCommand(
            name,
            callback=lambda **values: self._called(kind, values),
            params=[source, *self._made(kind)],
            help=f"{kind.question}\n\n{self.help}",
            short_help=kind.question,
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; say which kinds there are where the first word is none."""
        names = self.list_commands(ctx)
        if args[0] == _TABLE and _TABLE not in names:
            raise click.UsageError("A table has a command of its own: dpsketch table SOURCE… --by COLUMNS.", ctx)
        if not (args[0] in names or args[0].startswith("-") or ctx.resilient_parsing):
            raise click.UsageError(
                f"{args[0]!r} is not a kind of sketch. Write dpsketch {self.name} KIND SOURCE…, where KIND is one of "
                f"{', '.join(names)}.",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; say where options go that are written before the kind."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            text = f"Write options after the kind: dpsketch {self.name} KIND SOURCE… {error.option_name} …"
            raise click.UsageError(text, ctx) from None


def _reading(kind: Kind) -> list[click.Parameter]:
    """Make the options that say what a kind reads, and those that shape its sketch."""
    points = kind.reads == "points"
    without = {"key", "key_type"} if points else {"columns"}
    without |= set() if kind.weighs else {"weight", "max_weight", "count"}
    shape = [
        make_option(one.name, one.type, one.words, group="Options" if one.first else _SKETCH) for one in kind.options
    ]
    return [*options_of(SketchOptions, without=without), *shape]


def _run_options(kind: Kind) -> list[click.Parameter]:
    release = [
        make_option(one.name, one.type, one.words, group="Options" if one.first else _RELEASE)
        for one in kind.release_options
    ]
    without = set() if kind.daily else {"continual", "state", "day", "series"}
    without |= {"part_by", "parts"} if kind.released_once else set()
    return [*_reading(kind), *release, *options_of(BudgetOptions), *options_of(RunOptions, without=without)]


def _build_options(kind: Kind) -> list[click.Parameter]:
    return [*_reading(kind), *options_of(BuildOptions)]


def _stated(options: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
    """Return those options of a row that were stated."""
    return {one.name: values[one.name] for one in options if was_stated(values[one.name])}


def _run(kind: Kind, values: dict[str, Any]) -> None:
    flags = gather(SketchOptions, values, kind=kind.name, shape=_stated(kind.options, values))
    budget = gather(BudgetOptions, values, release=_stated(kind.release_options, values))
    asked = gather(RunOptions, values)
    if asked.output is None and not asked.dry_run:
        raise click.UsageError("Say where to write: -o FILE (--dry-run needs none).")
    output = asked.output or Path("out.dps")
    budget.check()
    sources = sources_of(flags)
    if not (asked.continual is None and asked.state is None and asked.day is None):
        from dpsketch.cli.daily import run_day

        run_day(asked, flags, budget, output)
        return
    if asked.series is not None:
        raise InvalidInput("--series writes the days of --continual: name that as well.")
    like = asked.like
    sketch = new_sketch(flags, fresh_seed=True) if like is None else sketch_like(like, flags, sensitive=False)
    made = KINDS[sketch.kind]
    options = budget.arguments(made, sketch.spec, flags.key_type)
    target = budget.target(lambda: source_of(sources))
    better = None if like is not None or asked.as_json else better_kind(flags, budget)
    if asked.part_by is not None or asked.parts is not None:
        from dpsketch.cli.parts import Parts, run_parts

        parts = Parts.read(asked.part_by, asked.parts, output, flags, budget)
        if not asked.dry_run:
            run_parts(sketch, parts, flags, budget, target, overwrite=asked.overwrite, as_json=asked.as_json)
            return
        target = target if target.ledger is None else replace(target, part=parts.names[0])
    if asked.dry_run:
        preview(sketch, budget, target, asked.as_json, options)
        if better is not None:
            say(better)
        return
    with Spool.reserve(output, overwrite=asked.overwrite) as spool:
        spool.make_room(room_of(sketch))
        # A budget that this kind cannot take is refused before an hour of reading, not after it.
        planned(sketch, budget, options)
        with progress_bar("reading") as progress:
            reading = feed(sketch, flags, progress)
        if better is not None:
            say(better)
        report(reading, sketch)
        options = budget.arguments(made, sketch.spec, flags.key_type)  # by now the source has said what its keys are
        private = deliver(sketch, budget, target, spool, columns=flags.named_columns, options=options)
    tell(private, target, output, asked.as_json, private.charge)


def _build(kind: Kind, values: dict[str, Any]) -> None:
    flags = gather(SketchOptions, values, kind=kind.name, shape=_stated(kind.options, values))
    asked = gather(BuildOptions, values)
    sources_of(flags)
    with Spool.reserve(asked.output, overwrite=asked.overwrite) as spool:
        sketch = new_sketch(flags) if asked.like is None else sketch_like(asked.like, flags, sensitive=True)
        spool.make_room(room_of(sketch))
        with progress_bar("reading") as progress:
            reading = feed(sketch, flags, progress)
        report(reading, sketch)
        # A part that others are built --like must carry what they share, for moments a secret.
        save(spool, sketch.to_shared_bytes(), sensitive=True)
    say(f"Wrote {asked.output}. It is sensitive: only its owner may read it.")


run = KindGroup(
    "run",
    _run_options,
    _run,
    has_table=False,
    help="Read records and write a release that may be published. Its cost is charged to the budget.\n\n"
    "Without --seed and --like each release has hash functions of its own, and states their seed.",
)
build = KindGroup(
    "build",
    _build_options,
    _build,
    has_table=True,
    help="Read records into a sensitive sketch, to be merged and released later.",
)
