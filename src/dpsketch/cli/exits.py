"""How commands end: the exit code of each error, and its text in the words of the shell."""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from dpsketch.errors import BudgetExceeded, DpsketchError, FileRefused, InvalidInput, SourceError
from dpsketch.sketches.kinds import KINDS

__all__ = [
    "INTERRUPTED", "OutputExists", "about_data", "fail", "fail_interrupted", "in_options", "json_asked", "put_in_place",
]  # fmt: skip

INTERRUPTED = 130

# The files that this process has put in place.
_written: list[str] = []


def put_in_place(output: object) -> None:
    """Remember a file that an interrupt does not undo."""
    _written.append(str(output))


class OutputExists(FileRefused):
    """The file to be written exists, and --overwrite was not given."""


# The first class that an error belongs to decides.
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (BudgetExceeded, 3),
    (OutputExists, 4),
    (InvalidInput, 2),
    (click.UsageError, 2),
    (BaseException, 1),
)


@contextmanager
def about_data() -> Iterator[None]:
    """Turn an InvalidInput about records or partial sketches into an error of data, which has another exit code."""
    try:
        yield
    except InvalidInput as error:
        raise SourceError(str(error)) from error


def fail(error: Exception) -> NoReturn:
    """Print an error on standard error and exit; with --json, as one line of JSON."""
    interrupted = isinstance(error.__cause__, KeyboardInterrupt | SystemExit)
    code = INTERRUPTED if interrupted else next(code for kind, code in _CODES if isinstance(error, kind))
    if isinstance(error, click.UsageError) and not json_asked():
        error.show()
        sys.exit(code)
    _end(type(error).__name__, _words(error), code, prefix=isinstance(error, DpsketchError))


def fail_interrupted() -> NoReturn:
    """Say that a command was interrupted, and exit."""
    state = f"{_written[-1]} is in place." if _written else "nothing was written."
    _end("Interrupted", f"interrupted; {state}", INTERRUPTED, prefix=False)


def _end(kind: str, message: str, code: int, *, prefix: bool) -> NoReturn:
    if json_asked():
        told = {"error": {"type": kind, "message": message, "exit_code": code}}
        print(json.dumps(told, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"dpsketch: {kind}: {message}" if prefix else f"dpsketch: {message}", file=sys.stderr)
    sys.exit(code)


def json_asked() -> bool:
    """Say whether the command asks for JSON; by its words, since a usage error leaves them unparsed."""
    return "--json" in sys.argv


def _words(error: Exception) -> str:
    match error:
        case DpsketchError():
            return in_options(str(error))
        case OSError(errno=errno.ENOSPC):
            return "no space is left on the disk; nothing was written."
        case OSError():
            return f"{error.strerror or type(error).__name__}: {error.filename or 'a file'}."
        case MemoryError():
            return "not enough memory; nothing was written. A smaller sketch (--rows, --width) needs less."
        case click.ClickException():
            return error.format_message()
        case _:
            return str(error)


# Arguments that every kind has, and those whose options have other names.
_COMMON = (
    "epsilon", "delta", "rho", "max_keys", "max_weight", "key_type", "neighbours", "dataset", "part", "candidates",
    "user", "over", "max_records",
)  # fmt: skip
_RENAMED = {"keys": "keys-from", "users": "user", "weights": "weight", "counts": "count"}
_ARGUMENT = re.compile(r"(?<![\w(.])(?P<name>[a-z_]+)=(?P<value>\[…\]|[^\s,;:)\]]*[^\s,;:.)\]])?")
_POWER = re.compile(r"\d+\*\*\d+")


def in_options(message: str) -> str:
    """Replace Python's arguments in a message by the shell's options, except after an opening parenthesis.

    Examples
    --------
    >>> in_options("With delta=0 give a public list: keys=[…].")
    'With --delta 0 give a public list: --keys-from FILE.'
    >>> in_options("Use domain=2**64.")
    'Use --domain 18446744073709551616.'
    """
    known = {option.name for kind in KINDS.values() for option in (*kind.options, *kind.release_options)}
    names = {name: name.replace("_", "-") for name in (*known, *_COMMON)} | _RENAMED

    def option(found: re.Match[str]) -> str:
        name, value = names.get(found["name"]), (found["value"] or "").replace("[…]", "FILE")
        if _POWER.fullmatch(value):  # an option takes the number, not Python's expression
            value = str(pow(*map(int, value.split("**"))))
        return found[0] if name is None else f"--{name} {value}".rstrip()

    return _ARGUMENT.sub(option, message)
