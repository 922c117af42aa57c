"""How the command line speaks: JSON or tables on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dpsketch.cli.exits import json_asked
from dpsketch.cli.words import in_options
from dpsketch.numbers import number_text

if TYPE_CHECKING:
    from dpsketch.privacy import Guarantee
    from dpsketch.results import Estimates
    from dpsketch.sources import Progress

__all__ = [
    "beside",
    "keep_quiet",
    "print_estimates",
    "print_json",
    "print_names",
    "progress_bar",
    "say",
    "say_held",
    "table",
]


def print_json(value: Any) -> None:
    """Print one JSON document on standard output; keys that are not UTF-8 have their odd bytes escaped."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2, allow_nan=False, default=_escaped)
    sys.stdout.write("\n")


def _escaped(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{type(value).__name__} is not JSON.")


# Whether --quiet was given; the option sets it anew for every command.
_silent = False
# What is to be said once a command with --json has ended: an error of it is all that standard error holds.
_held: list[str] = []


def keep_quiet(quiet: bool) -> None:
    """Let :func:`say` and progress bars print nothing, or print again."""
    global _silent
    _silent = quiet
    _held.clear()


def say(message: str) -> None:
    """Tell the data holder something on standard error: never with --quiet, and at the end of a command with --json."""
    if _silent:
        return
    if json_asked():
        _held.append(message)
    else:
        print(message, file=sys.stderr)


def say_held() -> None:
    """Print what a command with --json had to say, which ended without an error."""
    for message in _held:
        print(message, file=sys.stderr)
    _held.clear()


def table(columns: list[str], rows: list[list[str]], *, title: str | None = None) -> None:
    """Print a table; the first column is text, the others align right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        drawn.add_column(column, justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    width = None if sys.stdout.isatty() else 120
    Console(width=width).print(drawn)


def print_estimates(estimates: Estimates, guarantee: Guarantee, *, as_json: bool) -> None:
    """Print estimates with their intervals, and the guarantee they come with."""
    if as_json:
        print_json(
            {
                "estimates": estimates.to_json(),
                "confidence": estimates.confidence,
                "counts": estimates.counts,
                "guarantee": guarantee.to_json(),
                **({"note": in_options(estimates.note)} if estimates.note else {}),
            }
        )
        return
    _print_table(estimates)
    beside(estimates, guarantee)


def beside(estimates: Estimates, guarantee: Guarantee) -> None:
    """Say what goes with an answer: its note, what it counts, and the guarantee."""
    if estimates.note:
        say(in_options(estimates.note[:1].upper() + estimates.note[1:]))
    if estimates.counts is not None:
        say(f"Counted: {estimates.counts}.")
    say(f"Guarantee: {guarantee}")


def _print_table(estimates: Estimates) -> None:
    percent = f"{estimates.confidence:.4g}".replace("0.", "") if estimates.confidence < 1 else "100"
    table(
        ["key", estimates.heading, f"{percent}% low", f"{percent}% high"],
        [
            [str(key), number_text(value), number_text(low), number_text(high)]
            for key, value, low, high in estimates.rows()
        ],
    )


def print_names(names: list[Any], guarantee: Guarantee, *, as_json: bool) -> None:
    """Print names of keys one a line, and the guarantee they come with."""
    if as_json:
        print_json({"names": names, "guarantee": guarantee.to_json()})
        return
    for name in names:
        print(_escaped(name) if isinstance(name, bytes) else name)
    say("These are names only: the release has no counts.")
    say(f"Guarantee: {guarantee}")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[Progress], None] | None]:
    """Draw a bar on standard error while records are read, if it is a terminal."""
    if _silent or json_asked() or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda state: bar.update(task, completed=state.done, total=state.total)
