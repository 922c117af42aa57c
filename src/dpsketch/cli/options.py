"""Options: how commands declare them, and those that several commands share.

A command declares its options with Click's decorators (:func:`option`), or as the fields of a dataclass where they are
passed on together: :func:`given` describes a field, :func:`options_of` makes the options and :func:`gather` the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, field, fields
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from dpsketch.cli.output import keep_quiet
from dpsketch.errors import InvalidInput, SourceError

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger
    from dpsketch.privacy import Neighbours, Unit

__all__ = [
    "FILE", "WHOLE", "Command", "CommandOption", "Group", "SourceFormat", "argument", "command", "flag_of", "gather",
    "given", "json_option", "ledger_option", "make_option", "neighbours_option", "one_of", "open_ledger", "option",
    "options_of", "output_option", "overwrite_option", "read_lines", "unit_from", "was_stated",
]  # fmt: skip

# As sources.Format; a test compares them. Importing it here would load Arrow for every --help.
SourceFormat = Literal["csv", "tsv", "jsonl", "parquet", "arrow"]

_Made = TypeVar("_Made")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_NEGATIVE = re.compile(r"-[\d.]")
_EXTRA_NUMBER = re.compile(r"extra argument \((\d+)\)")


class CommandOption(click.Option):
    """An option that refuses to be given twice, unless it takes a list; ``group`` is its heading in the help."""

    def __init__(self, *args: Any, group: str = "", **settings: Any) -> None:
        settings.setdefault("show_default", was_stated(settings.get("default")))
        super().__init__(*args, **settings)
        self.group = group

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Have the parser collect every value that is given, where it would keep the last."""
        if self.multiple:
            super().add_to_parser(parser, ctx)
        elif self.is_flag:
            parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append_const", const=True)
        else:
            parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append", nargs=self.nargs)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the value; refuse a second one."""
        if isinstance(value, list) and not self.multiple:
            if len(value) > 1 and not ctx.resilient_parsing:
                raise click.BadParameter(
                    "it is given more than once, and only the last would count. Give it once.", ctx=ctx, param=self
                )
            value = value[-1]
        return super().type_cast_value(ctx, value)


class Command(click.Command):
    """A command with the option --quiet, whose help lists options by their groups."""

    ungrouped = "Options"
    """Heading of the options that have no group."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        words = "Results and errors only, no other messages."
        quiet = CommandOption(["--quiet", "-q"], is_flag=True, expose_value=False, callback=_quiet, help=words)
        self.params.append(quiet)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the headings of their groups."""
        _write_options(self.get_params(ctx), self.ungrouped, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; add a hint to errors that are often made."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise self.explained(error, ctx) from None
        except click.UsageError as error:
            number = _EXTRA_NUMBER.search(error.message)
            if number is None or not any("-n" in param.opts for param in self.params):
                raise
            raise click.UsageError(f"Say how many with -n, as in: -n {number[1]}", ctx) from None

    def explained(self, error: click.NoSuchOption, ctx: click.Context) -> click.UsageError:
        """Return the error about an unknown option, with a hint where there is one."""
        if _NEGATIVE.match(error.option_name):
            text = (
                "A word that begins with a minus is taken for an option. Write -- before it, as in: dpsketch query "
                "FILE -- -20:0"
            )
            return click.UsageError(text, ctx)
        return error


def _write_options(
    params: list[click.Parameter], ungrouped: str, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write options under the headings of their groups: first "Options", then as they come."""
    sections: dict[str, list[tuple[str, str]]] = {"Options": []}
    for param in params:
        record = param.get_help_record(ctx)
        if record is not None and not isinstance(param, click.Argument):
            sections.setdefault(getattr(param, "group", "") or ungrouped, []).append(record)
    for heading, records in sections.items():
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)


def _quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    keep_quiet(value)


class Group(click.Group):
    """A command that has commands below it."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"no_args_is_help": True, **settings})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of their definition."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the headings of their groups, then the commands."""
        _write_options(self.get_params(ctx), "Options", ctx, formatter)
        self.format_commands(ctx, formatter)


def command(name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function, as :func:`click.command` does."""
    return click.command(name, cls=Command, **settings)


def option(*names: str, **settings: Any) -> Callable[[_Function], _Function]:
    """Give a command an option, as :func:`click.option` does, which may be given once."""
    return click.option(*names, cls=CommandOption, **settings)


def argument(name: str, metavar: str, words: str, **settings: Any) -> Callable[[_Function], _Function]:
    """Give a command an argument."""
    return click.argument(name, metavar=metavar, help=words, **settings)


def given(words: str, *names: str, group: str = "", default: Any = None, **settings: Any) -> Any:
    """Describe a field as an option: its help, its names (by default that of the field), its group and its default."""
    return field(default=default, metadata={"words": words, "names": names, "group": group, **settings})


def options_of(holder: type, *, without: Iterable[str] = ()) -> list[click.Parameter]:
    """Make the options that the fields of a dataclass describe, except some."""
    types = get_type_hints(holder)
    return [
        make_option(one.name, types[one.name], default=one.default, **one.metadata)
        for one in fields(holder)
        if one.metadata and one.default is not MISSING and one.name not in without
    ]


def make_option(
    name: str, of: Any, words: str, *, names: tuple[str, ...] = (), group: str = "", default: Any = None,
    **settings: Any,
) -> CommandOption:  # fmt: skip
    """Make an option of a Python type: a flag of bool, a choice of a Literal, and one to be repeated of a list."""
    plain = next((each for each in get_args(of) if each is not NoneType), of) if NoneType in get_args(of) else of
    if get_origin(plain) in (list, tuple):
        settings, plain, default = {"multiple": True, **settings}, get_args(plain)[0], default or ()
    if plain is bool:
        settings = {"is_flag": True, **settings}
    else:
        kind = one_of(plain) if get_origin(plain) is Literal else FILE if plain is Path else plain
        settings = {"type": kind, **settings}
    if default is not None:  # Click takes None for a value, so that nothing would be missing
        settings["default"] = default
    return CommandOption([*(names or [flag_of(name)]), name], help=words, group=group, **settings)


def gather(holder: type[_Made], values: Mapping[str, Any], **more: Any) -> _Made:
    """Make a dataclass of those values that are fields of it."""
    names = {one.name for one in fields(holder)}  # type: ignore[arg-type]
    return holder(**{name: value for name, value in values.items() if name in names}, **more)


def was_stated(value: Any) -> bool:
    """Say whether an option was stated: without it, its value is None, False or an empty list; 0 is a value."""
    return not (value is None or value is False or value == ())


def flag_of(name: str) -> str:
    """Return the option of a Python argument.

    Examples
    --------
    >>> flag_of("max_keys")
    '--max-keys'
    """
    return "--" + name.replace("_", "-")


def one_of(names: Any) -> click.Choice[str]:
    """Return the choice between the values of a Literal."""
    return click.Choice(get_args(names))


class _Whole(click.ParamType[int]):
    """A whole number, which may be written as 1e5."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        with suppress(ValueError):
            return int(value)
        with suppress(ValueError, OverflowError):
            if float(value).is_integer():
                return int(float(value))
        return self.fail(f"{value!r} is not a whole number.", param, ctx)


FILE = click.Path(path_type=Path)
WHOLE = _Whole()

output_option = option("--output", "-o", type=FILE, required=True, help="File to write.")
overwrite_option = option("--overwrite", is_flag=True, help="Permission to replace the file if it exists.")
json_option = option("--json", "as_json", is_flag=True, help="JSON output, for programs.")
LEDGER = "Ledger that keeps the budgets: a file or a database URL. By default a file in your data folder."
ledger_option = option("--ledger", envvar="DPSKETCH_LEDGER", show_envvar=True, help=LEDGER)
neighbours_option = option(
    "--neighbours", type=click.Choice(["add_remove", "replace"]), default="add_remove",
    help="Neighbour relation: a unit is added or removed, or replaced by another.",
)  # fmt: skip


def open_ledger(url: str | None) -> Ledger:
    """Return the ledger that --ledger names, else the default one."""
    from dpsketch.ledger import Ledger

    return Ledger.default() if url is None else Ledger(url)


def unit_from(user: str | None, max_keys: int | str | None, max_weight: float, relation: Neighbours) -> Unit:
    """Read the privacy unit off the options: a user where a user's column is named, else a record."""
    from dpsketch.privacy import per_record, per_user

    if user is None:
        if max_keys is not None:
            raise InvalidInput("--max-keys bounds a user's keys: name the user's column with --user.")
        return per_record(max_weight=max_weight, neighbours=relation)
    if max_keys is None:
        raise InvalidInput("--user needs --max-keys, the maximum number of distinct keys per user.")
    if max_keys == "auto":
        return per_user("auto", max_weight=max_weight, neighbours=relation)
    if isinstance(max_keys, str) and not max_keys.isdecimal():
        raise InvalidInput("--max-keys is a whole number, or auto.")
    return per_user(int(max_keys), max_weight=max_weight, neighbours=relation)


def read_lines(path: Path) -> list[str]:
    """Read one key per line; the encoding is UTF-8."""
    problem = ""
    try:
        return [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line]
    except UnicodeDecodeError:
        problem = f"{path} is not UTF-8 text with one key a line."
    except (FileNotFoundError, IsADirectoryError):
        problem = f"{path} is not a file."
    raise SourceError(problem)
