"""How commands end: the exit code of every error, and how an error is printed."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from dpsketch.errors import BudgetExceeded, DpsketchError, FileRefused, InvalidInput, SourceError

__all__ = [
    "CODES",
    "INTERRUPTED",
    "OutputExists",
    "UsageError",
    "about_data",
    "exit_code",
    "fail",
    "fail_interrupted",
    "json_asked",
]

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""The parser's error; Typer does not export it."""

INTERRUPTED = 130


class OutputExists(FileRefused):
    """The file to be written exists, and --overwrite was not given."""


# The first class that an error belongs to decides.
CODES: tuple[tuple[type[BaseException], int], ...] = (
    (BudgetExceeded, 3),
    (OutputExists, 4),
    (InvalidInput, 2),
    (UsageError, 2),
    (BaseException, 1),
)


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error; one that reports what an interruption left has that of an interruption."""
    if any(isinstance(each, KeyboardInterrupt | SystemExit) for each in (error, error.__cause__)):
        return INTERRUPTED
    return next(code for kind, code in CODES if isinstance(error, kind))


@contextmanager
def about_data() -> Iterator[None]:
    """Turn a refusal of records or partial sketches, of which the library says InvalidInput, into an error of data."""
    try:
        yield
    except InvalidInput as error:
        raise SourceError(str(error)) from error


def fail(error: Exception) -> NoReturn:
    """Print an error on standard error and exit; with --json, as one line of JSON."""
    if isinstance(error, UsageError) and not json_asked():
        shown: typer.BadParameter = error  # type: ignore[assignment]
        shown.show()
        sys.exit(exit_code(error))
    _end(type(error).__name__, _words(error), exit_code(error), prefix=isinstance(error, DpsketchError))


def fail_interrupted() -> NoReturn:
    """Say that a command was interrupted, and exit."""
    _end("Interrupted", "interrupted; nothing was written.", INTERRUPTED, prefix=False)


def _end(kind: str, message: str, code: int, *, prefix: bool) -> NoReturn:
    if json_asked():
        told = {"error": {"type": kind, "message": message, "exit_code": code}}
        print(json.dumps(told, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"dpsketch: {kind}: {message}" if prefix else f"dpsketch: {message}", file=sys.stderr)
    sys.exit(code)


def json_asked() -> bool:
    """Say whether the command asks for JSON; by its words, as a usage error leaves it unparsed."""
    return "--json" in sys.argv


def _words(error: Exception) -> str:
    match error:
        case DpsketchError():
            from dpsketch.cli.words import in_options

            return in_options(str(error))
        case OSError(errno=errno.ENOSPC):
            return "no space is left on the disk; nothing was written."
        case OSError():
            return f"{error.strerror or type(error).__name__}: {error.filename or 'a file'}."
        case MemoryError():
            return "not enough memory; nothing was written. A smaller sketch (--rows, --width) needs less."
        case _:
            written = getattr(error, "format_message", None)
            return str(error) if written is None else str(written())
