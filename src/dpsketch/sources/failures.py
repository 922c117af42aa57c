"""Replace the errors of the readers, which quote raw records, by sentences that do not."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import TypeVar

from dpsketch.errors import SourceError
from dpsketch.sources.values import Columns

T = TypeVar("T")
Explain = Callable[[Exception], SourceError]

_MOST_NAMES = 30
_OPERATOR = re.compile(r"[-+*/%|]|::")


def guarded(step: Callable[[], T], explain: Explain) -> T:
    """Run ``step``; an error of a reader is raised as ``explain(error)``, with nothing left of the original.

    ``raise … from None`` would still keep the reader's error as ``__context__``. Raising after the handler does not.
    """
    try:
        return step()
    except SourceError:
        raise
    except Exception as error:
        failure = KeyboardInterrupt() if _interrupted(error) else explain(error)
    raise failure


def _interrupted(error: Exception) -> bool:
    """Tell whether DuckDB has swallowed a Ctrl-C, which it does while it works on the main thread."""
    text, kind = str(error), type(error).__name__
    if kind == "InvalidInputException":  # raised in the Arrow reader of a registered table
        return "KeyboardInterrupt" in text
    return kind == "InterruptException" or (isinstance(error, RuntimeError) and "interrupted" in text.lower())


def guarded_steps(items: Generator[T, None, None], explain: Explain) -> Generator[T, None, None]:
    """Go through ``items``, each step :func:`guarded`, and close them at the end."""
    try:
        while found := guarded(lambda: list(islice(items, 1)), explain):
            yield found[0]
    finally:
        guarded(items.close, explain)


def unreadable(place: str, error: Exception) -> SourceError:
    """Say that a source could not be read, by the kind of error alone."""
    match error:
        case FileNotFoundError():
            return SourceError(f"{place} does not exist. Check the name.")
        case PermissionError():
            return SourceError(f"{place} may not be read by this user. Change its permissions, or run as its owner.")
        case IsADirectoryError():
            return SourceError(f"{place} is a directory, and a file was expected. Check the name.")
        case MemoryError():
            return SourceError(f"{place} needs more memory than there is. Write it in smaller row groups or batches.")
        case OSError(errno=int(number)):
            return SourceError(f"{place} could not be read: {os.strerror(number)}.")
        case _:
            return SourceError(
                f"{place} could not be read ({type(error).__name__}): it is damaged, cut short, or not of that format. "
                "Write it anew."
            )


def invalid(place: str, error: Exception) -> SourceError:
    """Say what is wrong with arrays that did not pass Arrow's own check."""
    if "UTF8" in str(error):
        return SourceError(f"{place} holds text that is not UTF-8. Convert the source to UTF-8.")
    return SourceError(f"{place} is damaged ({type(error).__name__}). Write the source anew.")


def check_columns(place: str, names: Sequence[str], columns: Columns, *, declared: bool, header: bool = True) -> None:
    """Refuse a source without the columns wanted, or with two of one name.

    Names of a declared schema are listed. The first row of a text file may be a record, where the header was forgotten,
    so that it goes into the hint for the terminal only. Where there is no ``header``, names are fields of records, and
    not even their number is told.
    """
    held = Counter(names)
    for wanted in columns.names:
        if wanted not in held:
            compared = columns.only_compares(wanted)
            raise _missing_column(place, wanted, names, declared=declared, header=header, compared=compared)
    twice = sorted(name for name, times in held.items() if times > 1 and name)
    if declared and (wanted_twice := [name for name in twice if name in columns.names]):
        raise SourceError(f"{place} has two columns named {wanted_twice[0]!r}. Give each its own name.")
    if not declared and twice:
        failure = SourceError(f"{place} has two columns of one name. Give each its own.")
        failure.sensitive_hint = f"Twice: {twice}."
        raise failure


def _missing_column(
    place: str, wanted: str, names: Sequence[str], *, declared: bool, header: bool, compared: bool
) -> SourceError:
    """Say that a column is missing; one that is only ``compared``, in a condition, may be meant as text."""
    listed = ", ".join(repr(name) for name in names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        listed += f" and {len(names) - _MOST_NAMES} more"
    computed = " What is computed stands in parentheses." if _OPERATOR.search(wanted) else ""
    if compared:
        computed = " If it is meant as text, put it in single quotes, as in carrier = 'UA'."
    if declared:
        return SourceError(f"{place} has no column {wanted!r}. Its columns are {listed}.{computed}")
    same = [name for name in names if name.strip().casefold() == wanted.strip().casefold()]
    count = "1 column" if len(names) == 1 else f"{len(names)} columns"
    other = next((mark for mark in ";|\t" if len(names) == 1 and mark in names[0]), None)
    if same:
        remedy = f"It has {same[0]!r}: write the name as it stands there."
    elif not header:
        remedy = "Check the name."
    elif other is not None:
        remedy = f"It has 1 column, with {other!r} in its name. Fields are separated by commas, in a .tsv by tabs."
    else:
        remedy = f"It has {count}. Check the name, the separator, and that the file names its columns."
    failure = SourceError(f"{place} has no column {wanted!r}. {remedy}{computed}")
    failure.sensitive_hint = f"Its columns are {listed}."
    return failure
