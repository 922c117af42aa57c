"""The commands, in the order a newcomer meets them. The module of one is loaded when it is called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from dpsketch.cli.once import options_once
from dpsketch.cli.values import plain, read_plainly

__all__ = ["COMMANDS", "app"]

_HELP = """Publish counts of sensitive records with a proven guarantee.

\b
Which sketch do I need?
  histogram Which keys are there, and how often does each occur?   run histogram
  counts    The same for keys I name, and no key may be stored.    run counts
  heavy     Which are frequent? I have no list, and store no key.  run heavy
  sparse    The same under pure ε, for mid-sized counts.           run sparse
  moment    One number that says how skewed the stream is (F_p).   run moment
  density   Where do points lie? Densities, scores, classes.       run density
  distinct  How many different keys are there?                     run distinct
  ranges    How many values lie in a range? Quantiles?             run ranges
  local     People report for themselves; I am not trusted.        local report
  serve     Collect reports and show releases over HTTP.           serve --demo

Not sure?  dpsketch plan --question keys  compares the first four.

A first look, on data of its own:  dpsketch demo

\b
From a file to an answer:
  dpsketch run histogram visits.csv --key url --epsilon 1 --delta 1e-6 -o visits.dps
  dpsketch top visits.dps
  dpsketch query visits.dps /index.html
"""

# Each command's module with its function there ("app" where it has commands of its own), and the first sentence of its
# help: a list of all commands loads none of them.
COMMANDS = {
    "demo": ("demo:demo", "Count the pages of a made-up web site privately, and compare with the truth."),
    "run": ("run:run", "Read records, sketch them, charge the budget, and write a release that may be published."),
    "build": ("run:build", "Read records into a sensitive partial sketch, to be merged and released later."),
    "merge": (
        "merge:merge",
        "Merge partial sketches, as one pass over all their records; or the released shares of several parties.",
    ),
    "release": (
        "run:release",
        "Charge the budget, add noise to a sensitive sketch, and write a release that may be published.",
    ),
    "recover": ("run:recover", "Put in place a file that an interrupted command had written whole."),
    "query": ("query:query", "Ask a release: estimates with intervals, and the guarantee they come with."),
    "top": ("query:top", "List the most frequent keys, with intervals that hold for all of them at once."),
    "compare": (
        "arithmetic:compare",
        "Say what changed from A to B: the second answer less the first, with an interval for the difference.",
    ),
    "add": ("arithmetic:add", "Add two releases over different records into one of all of them."),
    "subtract": ("arithmetic:subtract", "Subtract release B from release A: what it answers are differences."),
    "inspect": ("query:inspect", "Say what a file is and what it promises."),
    "plot": ("query:plot", "Draw a release as a picture (PNG, SVG or PDF by the file's ending)."),
    "audit": ("audit:audit", "Attack every mechanism on its worst neighbours, and say what ε an attacker really gets."),
    "plan": ("plan:plan", "Propose a shape for a wanted error, with predicted error, memory and time."),
    "reproduce": (
        "reproduce:reproduce",
        "Make a paper's figures and tables again, ours beside them, and check every number.",
    ),
    "ledger": ("ledger:app", "The privacy budget: who may still release what."),
    "local": ("local:app", "People randomise their own items before anyone sees them; you collect and estimate."),
    "serve": ("serve:app", "Collect reports and serve releases over HTTP, with a page for people."),
}


_QUIET = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only, no other messages.")]


class _Commands(Mapping[str, Any]):
    """The commands by name, each made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name][0].partition(":")
        found = getattr(import_module(f"dpsketch.cli.{module}"), attribute)
        alone = typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            _add_quiet(found)
            alone.add_typer(found, name=name)
        else:
            alone.command(name)(_with_quiet(found))
        return read_plainly(options_once(get_group(alone).commands[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _add_quiet(app: typer.Typer) -> None:
    """Give every command of an app the option --quiet."""
    for each in app.registered_commands:
        if each.callback is not None:
            each.callback = _with_quiet(each.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _add_quiet(group.typer_instance)


def _with_quiet(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option --quiet, which takes effect before the command runs; once, however often called."""
    if "quiet" in inspect.signature(command).parameters:
        return command

    @functools.wraps(command)
    def run(*, quiet: bool, **values: Any) -> Any:
        from dpsketch.cli.output import keep_quiet

        keep_quiet(quiet)
        return command(**values)

    hints = get_type_hints(command, include_extras=True)
    own = [each.replace(annotation=hints[name]) for name, each in inspect.signature(command).parameters.items()]
    added = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_QUIET)
    run.__annotations__ = {**hints, "quiet": _QUIET}
    described: Any = run
    described.__signature__ = inspect.Signature([*own, added])
    return run


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": _Commands()})

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of all commands together."""
        return plain(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, by their sentences."""
        room = formatter.width - 6 - max(map(len, COMMANDS))
        listed = {name: TyperCommand(name, help=sentence) for name, (_, sentence) in COMMANDS.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(room)) for name, command in listed.items()])


app = typer.Typer(
    name="dpsketch",
    cls=_Group,
    help=_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        from dpsketch import __version__

        typer.echo(__version__)
        raise typer.Exit()
