"""The database under a ledger: one lock a dataset, one serialisable transaction a change.

SQLite: a write-ahead log with full synchronisation, and ``BEGIN IMMEDIATE``, so that one process changes the file at a
time and a committed charge survives a power cut. PostgreSQL: a session's advisory lock on the dataset, taken before a
``SERIALIZABLE`` transaction begins, so that waiting processes see what the one before them wrote; what the lock does
not order (a pooler that shares sessions, say) the isolation level refuses, and is tried again. The lock ends with its
session: a pooler must give a client a session for as long as it is there, or the next one waits for a lock that nobody
holds any more, and gives up. Each commit is written to the disk before it is answered, also where the server's settings
say otherwise.

Nothing is kept open between calls: a process that forks or dies leaves no lock and no connection behind.

A ledger that is not there has lost its totals, so a charge or a question to it is refused; only creating a dataset
begins a ledger. The file in the user's data folder is the exception: its first charge begins it. Every use of it leaves
a small file beside it, and from then on this ledger is refused as well if it is missing or empty.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dpsketch.errors import LedgerError
from dpsketch.ledger.connection import (
    Connection,
    DatabaseTable,
    PostgresConnection,
    SqliteConnection,
    SqliteReading,
    locate,
    shown,
)

__all__ = ["TABLES", "LedgerStore", "LedgerTables", "canonical", "home_file", "row_digest"]

T = TypeVar("T")

_TRIES = 50
# Serialisation failure, deadlock, and a row that another transaction has just added: PostgreSQL's codes for what a
# second try decides.
_RETRY = ("40001", "40P01", "23505")
# A tampered column may hold anything, which must give another digest rather than an error.
_DIGESTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=repr)


class LedgerTables(NamedTuple):
    """The tables of a ledger, the same on SQLite and on PostgreSQL."""

    datasets: DatabaseTable
    entries: DatabaseTable
    deliveries: DatabaseTable
    singles: DatabaseTable
    members: DatabaseTable
    origins: DatabaseTable
    sources: DatabaseTable
    days: DatabaseTable


def _table(name: str, key: str, others: str) -> DatabaseTable:
    return DatabaseTable(name, tuple(key.split()), tuple(others.split()))


TABLES = LedgerTables(
    datasets=_table("dpsketch_dataset", "name", "format rows head"),
    entries=_table("dpsketch_entry", "dataset id", "kind time costs total unit note previous digest"),
    deliveries=_table("dpsketch_delivery", "dataset id", "charge binding state digest"),
    singles=_table("dpsketch_once", "name", "dataset id charge digest"),
    members=_table("dpsketch_member", "dataset name", "part id charge digest"),
    origins=_table("dpsketch_origin", "dataset id", "charge output columns who digest"),
    sources=_table("dpsketch_source", "source", "dataset"),
    days=_table("dpsketch_day", "charge day", "dataset id publication digest"),
)


def canonical(value: Any) -> str:
    """Write JSON in the one way that digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def row_digest(row: dict[str, Any]) -> str:
    """Return the SHA-256 of a row: of every column but the digest, the previous row's digest among them."""
    content = {name: value for name, value in row.items() if name != "digest"}
    return hashlib.sha256(_DIGESTED.encode(content).encode()).hexdigest()


class LedgerStore:
    """A database that ledgers live in; picklable, and safe to use in a forked process.

    Parameters
    ----------
    url : str or Path
        As :func:`~dpsketch.ledger.connection.locate` takes it.

    Attributes
    ----------
    file : Path or None
        The file of SQLite.
    home : bool
        Whether this is the ledger in the user's data folder, which a first charge may begin.
    """

    def __init__(self, url: str | Path) -> None:
        self._place = locate(url)
        self.file = self._place if isinstance(self._place, Path) else None
        self.home = self.file is not None and os.path.realpath(self.file) == os.path.realpath(home_file())

    def __str__(self) -> str:
        return shown(self._place)

    def write(self, dataset: str, work: Callable[[Connection], T], *, create: bool = False) -> T:
        """Run ``work`` alone on a dataset, in one transaction; everything it wrote is undone if it raises.

        ``create`` begins a ledger where there is none; else that is refused.
        """
        make = create or self._may_begin()
        if make and self.file is not None:
            _make_folder(self.file)
        elif self._is_missing():
            raise self._missing()
        done = self._tried(lambda: self._write_once(dataset, work, make))
        self._note_begun()
        return done

    def read(self, work: Callable[[Connection], T], empty: T) -> T:
        """Run ``work`` on one state of the ledger; return ``empty`` for a home ledger that was never written."""
        if self._is_missing():
            if self._may_begin():
                return empty
            raise self._missing()
        return self._tried(lambda: self._read_once(work, empty))

    def _is_missing(self) -> bool:
        """Say whether a file is missing, or has no byte."""
        try:
            return self.file is not None and (not self.file.exists() or self.file.stat().st_size == 0)
        except OSError as error:
            raise LedgerError(f"the ledger {self} could not be used: {error.strerror}.") from None

    def _missing(self) -> LedgerError:
        return LedgerError(
            f"there is no ledger in {self}: it is missing or empty. Nothing was charged. If there was one, restore it, "
            "because a new one would not know its totals nor what was spent. To begin one, give a dataset its total: "
            "`dpsketch ledger create`, or dps.Ledger(…).create(…)."
        )

    def _may_begin(self) -> bool:
        """Say whether a charge may begin the ledger: the one in the data folder that never was."""
        return self.home and self.file is not None and not self._mark(self.file).exists()

    def _note_begun(self) -> None:
        """Leave a file that tells, should the ledger be deleted, that there was one."""
        if self.home and self.file is not None:
            with suppress(OSError):  # a charge is made, and a reader may lack the right to write
                self._mark(self.file).touch()

    @staticmethod
    def _mark(file: Path) -> Path:
        return file.with_name(f"{file.name}.begun")

    def _tried(self, run: Callable[[], T]) -> T:
        for attempt in range(_TRIES):
            try:
                return self._guarded(run)
            except _TryAgain:
                time.sleep(random.uniform(0.0, 0.01 * 2 ** min(attempt, 6)))
        raise LedgerError(f"the ledger {self} is too busy: {_TRIES} attempts were overtaken. Nothing was charged.")

    def _guarded(self, run: Callable[[], T]) -> T:
        """Turn the database's errors into the ledger's, without statements or parameters."""
        errors = (PostgresConnection if self.file is None else SqliteConnection).errors()
        try:
            return run()
        except errors as error:
            if getattr(error, "sqlstate", None) in _RETRY:
                raise _TryAgain from None
            reason = str(error).strip().partition("\n")[0]
            raise LedgerError(f"the ledger {self} could not be used: {reason}.") from None

    def _write_once(self, dataset: str, work: Callable[[Connection], T], make: bool) -> T:
        with closing(self._open(make=make)) as connection:
            begun = connection.has_table(TABLES.entries)
            if not make and not begun:
                raise self._missing()
            # A ledger that lost a table is not mended: what the table held would be free again.
            with connection.writing(dataset, () if begun else TABLES):
                return work(connection)

    def _read_once(self, work: Callable[[Connection], T], empty: T) -> T:
        opened = self._open() if self.file is None else SqliteReading(self.file)
        with closing(opened) as connection, connection.reading():
            if connection.has_table(TABLES.entries):
                self._note_begun()
                return work(connection)
        if self._may_begin():
            return empty
        raise self._missing()

    def _open(self, *, make: bool = False) -> Connection:
        place = self._place
        return SqliteConnection(place, make=make) if isinstance(place, Path) else PostgresConnection(place)


class _TryAgain(Exception):
    """Another transaction came first."""


def home_file() -> Path:
    """Return where the ledger of a user lies who names none."""
    # os.path's function leaves the path as it is where no home folder is known.
    return Path(os.path.expanduser(os.environ.get("XDG_DATA_HOME") or "~/.local/share")) / "dpsketch" / "ledger.db"  # noqa: PTH111


def _make_folder(file: Path) -> None:
    """Make the folder that a ledger's file goes into, where there is none yet."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(
            f"the ledger {file} cannot be kept there: {error.strerror}. Nothing was charged. Name a file that you may "
            "write, as in DPSKETCH_LEDGER=sqlite:///budget.db."
        ) from None
