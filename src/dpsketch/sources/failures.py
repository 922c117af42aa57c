"""Replace the errors of the readers, which quote raw records, by sentences that do not."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from dpsketch.errors import SourceError

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
    by_text = isinstance(error, RuntimeError) and "interrupted" in str(error).lower()
    return by_text or type(error).__name__ == "InterruptException"


def guarded_iterator(items: Iterable[T], explain: Explain) -> Iterator[T]:
    """Iterate over ``items``, each step :func:`guarded`."""
    iterator = iter(items)

    def step() -> tuple[T] | None:
        for item in iterator:
            return (item,)
        return None

    while (found := guarded(step, explain)) is not None:
        yield found[0]


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


def missing_column(
    place: str, wanted: str, names: Sequence[str], *, declared: bool, compared: bool = False
) -> SourceError:
    """Say that a column is missing.

    Names of a declared schema are listed. The first row of a text file may be a record, where the header was
    forgotten, so that it goes into the hint for the terminal only. ``compared`` says that the name stands in a
    condition alone, where it may be meant as text.
    """
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
    elif other is not None:
        remedy = f"It has 1 column, with {other!r} in its name. Fields are separated by commas, in a .tsv by tabs."
    else:
        remedy = f"It has {count}. Check the name, the separator, and that the file names its columns."
    failure = SourceError(f"{place} has no column {wanted!r}. {remedy}{computed}")
    failure.sensitive_hint = f"Its columns are {listed}."
    return failure
