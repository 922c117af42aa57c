"""The command ``dpsketch``: the list of its commands, whose modules load when they are used, and how it runs."""

from __future__ import annotations

import signal
import sys
import warnings
from importlib import import_module

import click

from dpsketch import __version__
from dpsketch.cli.exits import fail, fail_interrupted, json_asked
from dpsketch.cli.options import Group
from dpsketch.cli.output import say_held
from dpsketch.errors import DpsketchError

__all__ = ["COMMANDS", "app", "main"]

_HELP = """Publish counts of sensitive records with a proven guarantee.

\b
Which sketch do I need?
  table     Counts, sums, means, quantiles of each group?          table, sql
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

# The module of each command, in the order a newcomer meets them. A new command is its module and one line here.
COMMANDS = {
    "demo": "demo",
    "run": "run",
    "table": "table",
    "sql": "table",
    "build": "run",
    "merge": "release",
    "release": "release",
    "recover": "release",
    "query": "query",
    "top": "query",
    "compare": "query",
    "add": "query",
    "subtract": "query",
    "inspect": "query",
    "plot": "query",
    "audit": "evidence",
    "plan": "plan",
    "reproduce": "evidence",
    "ledger": "ledger",
    "local": "local",
    "serve": "serve",
}


class _Commands(Group):
    """The commands by name, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(import_module(f"dpsketch.cli.{COMMANDS[cmd_name]}"), cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; where there is none of the name, suggest one."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None


@click.group(
    cls=_Commands, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, message="%(version)s", help="Version number.")
def app() -> None:
    """Run a command; the group that all of them belong to."""


def main() -> None:
    """Run the command line and exit: with 0, or with the code that :mod:`dpsketch.cli.exits` gives an error."""
    # The commands that release refuse a large δ unless --yes says that it is meant; audits draw at one.
    warnings.filterwarnings("ignore", message="δ = ")
    # An orderly end removes temporary files, which hold records. DuckDB swallows a SystemExit, not a KeyboardInterrupt.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = app(prog_name="dpsketch", standalone_mode=False)
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does.
        sys.stderr.close()
        sys.exit(1)
    except (DpsketchError, OSError, MemoryError, click.ClickException) as error:
        hint = getattr(error, "sensitive_hint", None)
        if hint and sys.stderr.isatty() and not json_asked():
            # Where a bad record is may be told to whoever holds the records, and to nobody else.
            print(f"(For your eyes: {hint})", file=sys.stderr)
        fail(error)
    except (click.Abort, KeyboardInterrupt):  # Ctrl-C, or SIGTERM
        fail_interrupted()
    say_held()
    sys.exit(code if isinstance(code, int) else 0)
