"""How commands print: JSON, tables and names on standard output, messages and progress on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

from dpsketch.cli.exits import in_options, json_asked
from dpsketch.numbers import number_text
from dpsketch.texts import printable

if TYPE_CHECKING:
    from dpsketch.privacy import Guarantee
    from dpsketch.results import Estimates
    from dpsketch.sources import Progress

__all__ = [
    "beside", "keep_quiet", "print_estimates", "print_json", "print_names", "progress_bar", "say", "say_held", "table",
]  # fmt: skip

# Whether --quiet was given; the option sets it anew for every command.
_silent = False
# Messages of a command with --json: they are printed when it has ended without an error.
_held: list[str] = []
# Seconds between two pictures of a progress bar.
_REDRAWN = 0.1


def print_json(value: Any) -> None:
    """Print one JSON document on standard output; keys that are not UTF-8 have their odd bytes escaped."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2, allow_nan=False, default=_escaped)
    sys.stdout.write("\n")


def _escaped(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{type(value).__name__} is not JSON.")


def keep_quiet(quiet: bool) -> None:
    """Switch messages and progress off, or on again."""
    global _silent
    _silent = quiet
    _held.clear()


def say(message: str) -> None:
    """Print a message on standard error: never with --quiet, and at the end of a command with --json."""
    if _silent:
        return
    if json_asked():
        _held.append(message)
    else:
        print(message, file=sys.stderr)


def say_held() -> None:
    """Print the messages of a command with --json that ended without an error."""
    for message in _held:
        print(message, file=sys.stderr)
    _held.clear()


def table(columns: list[str], rows: list[list[str]], *, title: str | None = None) -> None:
    """Print a table; the first column is text and aligns left, the others align right."""
    if title is not None:
        print(title)
    cells = [columns, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    line = "─" if (sys.stdout.encoding or "utf").lower().startswith("utf") else "-"
    rule = [line * width for width in widths]
    for row in (cells[0], rule, *cells[1:]):
        space = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        rest = (gap + cell for gap, cell in zip(space[1:], row[1:], strict=True))
        print("  ".join([row[0] + space[0], *rest]).rstrip())


def _width(text: str) -> int:
    """Return the number of a terminal's cells that a text takes."""
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


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
    percent = f"{estimates.confidence:.4g}".replace("0.", "") if estimates.confidence < 1 else "100"
    table(
        ["key", estimates.heading, f"{percent}% low", f"{percent}% high"],
        [[str(key), *map(number_text, numbers)] for key, *numbers in estimates.rows()],
    )
    beside(estimates, guarantee)


def beside(estimates: Estimates, guarantee: Guarantee) -> None:
    """Print the note of an answer, what it counts, and its guarantee."""
    if estimates.note:
        say(in_options(estimates.note[:1].upper() + estimates.note[1:]))
    if estimates.counts is not None:
        say(f"Counted: {estimates.counts}.")
    say(f"Guarantee: {guarantee}")


def print_names(names: list[Any], guarantee: Guarantee, *, as_json: bool) -> None:
    """Print names of keys, one per line, and the guarantee they come with."""
    if as_json:
        print_json({"names": names, "guarantee": guarantee.to_json()})
        return
    for name in names:
        print(_escaped(name) if isinstance(name, bytes) else name)
    say("These are names only: the release has no counts.")
    say(f"Guarantee: {guarantee}")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[Progress], None] | None]:
    """Show on standard error how far a command has come, if that is a terminal."""
    if _silent or json_asked() or not sys.stderr.isatty():
        yield None
        return
    began = time.monotonic()
    drawn = 0.0

    def draw(state: Progress) -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - drawn < _REDRAWN:
            return
        drawn = now
        done = f"{state.done / state.total:.0%}" if state.total else f"{state.done:,} {state.unit}"
        print(f"\r{what}: {done}, {now - began:.0f} s".ljust(60), end="", file=sys.stderr, flush=True)

    try:
        yield draw
    finally:
        if drawn:
            print("\r".ljust(60), end="\r", file=sys.stderr, flush=True)
