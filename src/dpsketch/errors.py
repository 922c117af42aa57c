"""The errors dpsketch raises.

Each message says what happened, what was expected and what to do. None of them carries a key, a weight or a counter:
an exception text may end up in a log, and a log is outside the trust boundary.
"""

from __future__ import annotations

__all__ = [
    "BudgetExceeded",
    "CounterOverflow",
    "DpsketchError",
    "FileRefused",
    "InvalidInput",
    "LedgerError",
    "ReleaseNotWritten",
    "ReleaseRefused",
    "SensitiveData",
    "SketchBroken",
    "SourceError",
    "SpecMismatch",
]


class DpsketchError(Exception):
    """Base of every error that dpsketch raises on purpose."""


class InvalidInput(DpsketchError, ValueError):
    """An argument or a batch of records is not what the method takes."""


class SpecMismatch(DpsketchError, ValueError):
    """Two sketches, or a sketch and its records, do not belong to one spec."""


class CounterOverflow(DpsketchError, OverflowError):
    """The records would carry a counter past what 64 bits hold; nothing was added."""


class SensitiveData(DpsketchError, TypeError):
    """Something sensitive was about to leave the trust boundary."""


class ReleaseRefused(DpsketchError, RuntimeError):
    """A release, or a merge of releases, whose guarantee could not be stated."""


class BudgetExceeded(ReleaseRefused):
    """The dataset's privacy budget does not cover the release; nothing was charged or released."""


class SketchBroken(ReleaseRefused):
    """A change of a sketch was interrupted; what it holds is not known, and it refuses to go on."""


class ReleaseNotWritten(DpsketchError, RuntimeError):
    """A file was made, perhaps paid for, and is not where it should be. The text says what is left, and what to do."""


class LedgerError(DpsketchError, RuntimeError):
    """The ledger could not be read, written or verified."""


class FileRefused(DpsketchError, ValueError):
    """A file is not a dpsketch file, is damaged, is newer than this version, or is sensitive where public is wanted."""


class SourceError(DpsketchError, ValueError):
    """A source of records could not be read as asked; the text never quotes a record.

    Attributes
    ----------
    sensitive_hint : str or None
        What helps to mend the source and may come from its records: for the data holder's terminal, never for a log.
    """

    sensitive_hint: str | None = None
