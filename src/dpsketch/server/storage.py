"""Where the service keeps tokens, releases, collections and reports: SQLite embedded, or PostgreSQL.

Reports are kept in chunks: one row of a table holds the compact reports of one group commit, one after the other. A
report is written once, and a commit costs the same however many reports it carries. The order in which the reports of
a chunk came is not kept.

One process serves a store at a time, because it alone remembers which reports there are. Several may share a
PostgreSQL: they write by turns, and before its turn each reads what the others wrote. Tokens are read and written
without a lock.

SQLite runs with a write-ahead log and full synchronisation: a committed report survives a power cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, get_args

from dpsketch.errors import InvalidInput
from dpsketch.server.database import CREATING, VERSION, WRITING, ServiceDatabase, Session, StorageFailed, lock_file

__all__ = [
    "COUNTERS", "SCOPES", "Chunk", "CollectionPlan", "CollectionRow", "Mark", "ReleaseRow", "Scope", "Storage",
    "Ticketing", "Token", "digest_of", "new_token",
]  # fmt: skip

Scope = Literal["collect", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

COUNTERS = ("repeated", "malformed", "other_spec", "oversized")
"""What is counted of the reports that were refused."""

_LOST = "the connection to the store was lost. Nothing was stored; try again."

_TABLES = (
    "CREATE TABLE dpsketch_schema (version BIGINT NOT NULL)",
    "CREATE TABLE dpsketch_token (id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, "
    "digest TEXT NOT NULL UNIQUE, collection TEXT, expires DOUBLE PRECISION)",
    "CREATE TABLE dpsketch_release (id TEXT PRIMARY KEY, name TEXT NOT NULL, content {binary} NOT NULL, "
    "added DOUBLE PRECISION)",
    "CREATE TABLE dpsketch_collection (id TEXT PRIMARY KEY, name TEXT NOT NULL, spec TEXT NOT NULL, "
    "candidates TEXT NOT NULL, closed BOOLEAN NOT NULL, "
    + "".join(f"{name} BIGINT NOT NULL, " for name in COUNTERS)
    + "max_reports BIGINT, closes DOUBLE PRECISION, deletes DOUBLE PRECISION, ticket_key TEXT, ticket_period TEXT)",
    "CREATE TABLE dpsketch_chunk (number BIGINT PRIMARY KEY, collection TEXT NOT NULL, reports BIGINT NOT NULL, "
    "content {binary} NOT NULL)",
    "CREATE TABLE dpsketch_history (collection TEXT NOT NULL, reports BIGINT NOT NULL, "
    "width DOUBLE PRECISION NOT NULL, PRIMARY KEY (collection, reports))",
    # SQLite's row numbers would keep the order in which tickets were used.
    "CREATE TABLE dpsketch_mark (collection TEXT NOT NULL, period BIGINT NOT NULL, mark TEXT NOT NULL, "
    "PRIMARY KEY (collection, period, mark)){without_rowid}",
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is listed: all but the secret, which is shown once and kept as its SHA-256."""

    id: str
    name: str
    scope: Scope
    collection: str | None = None
    expires: float | None = None

    def to_json(self) -> dict[str, str | None]:
        """Return it as a list shows it."""
        ends = None if self.expires is None else datetime.fromtimestamp(self.expires, UTC).isoformat(timespec="seconds")
        return {"id": self.id, "name": self.name, "scope": self.scope, "collection": self.collection, "expires": ends}


def new_token() -> str:
    """Return a fresh token: 256 random bits."""
    return "dps_" + secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """Return what is kept of a token; 256 random bits need no slow hash."""
    return hashlib.sha256(token.encode()).hexdigest()


class Chunk(NamedTuple):
    """One row of reports, without its content."""

    number: int
    collection: str
    reports: int


class ReleaseRow(NamedTuple):
    """An uploaded release, without its content; ``added`` is when, in seconds since 1970, where that is known."""

    id: str
    name: str
    added: float | None = None


class Mark(NamedTuple):
    """What is kept of a ticket that was used."""

    collection: str
    period: int
    mark: str


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """How long a collection lives, in seconds since 1970, and how much it holds; None is without limit.

    ``closes``: from then on it takes no reports. ``deletes``: then it is deleted, with all its reports.
    """

    max_reports: int | None = None
    closes: float | None = None
    deletes: float | None = None


@dataclass(frozen=True, slots=True)
class Ticketing:
    """That a collection asks for tickets: the key they are signed with, and how often each may report."""

    key: str = field(repr=False)
    period: str


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """A collection as the store keeps it; ``candidates`` is None where nobody listed any."""

    id: str
    name: str
    spec: dict[str, Any]
    candidates: list[str | int] | None
    closed: bool
    refused: dict[str, int]
    plan: CollectionPlan = CollectionPlan()
    tickets: Ticketing | None = None

    def values(self) -> list[Any]:
        """Return the row's columns."""
        tickets = (None, None) if self.tickets is None else (self.tickets.key, self.tickets.period)
        texts = (self.id, self.name, json.dumps(self.spec), json.dumps(self.candidates))
        return [*texts, self.closed, *(self.refused[name] for name in COUNTERS), *astuple(self.plan), *tickets]

    @classmethod
    def read(cls, row: Sequence[Any]) -> CollectionRow:
        """Rebuild it from the row's columns."""
        identifier, name, spec, candidates, closed, *rest, key, period = row
        refused, plan = dict(zip(COUNTERS, rest, strict=False)), CollectionPlan(*rest[len(COUNTERS) :])
        tickets = None if key is None else Ticketing(key, period)
        return cls(identifier, name, json.loads(spec), json.loads(candidates), bool(closed), refused, plan, tickets)


def _any_of(values: Sequence[Any]) -> str:
    """Return the condition that a column has one of some values."""
    return f"IN ({', '.join('?' for _ in values)})"


class Storage:
    """The service's tables. Its methods block: the service calls them in threads.

    Parameters
    ----------
    url : str
        A SQLite file, as a path or ``sqlite:///path``, or ``postgresql://user@host/database``.
    shared : bool
        Whether other processes serve the same store.
    """

    def __init__(self, url: str, *, shared: bool = False) -> None:
        self._database = ServiceDatabase(url)
        self._file = self._database.file
        if shared and self._file is not None:
            raise InvalidInput("several processes serve one store on PostgreSQL only; SQLite takes one.")
        self.shared = shared
        self._writer: Session | None = None
        self._lock: Any = None
        self._next = 1
        with self._changing("BEGIN" if self._file is None else "BEGIN IMMEDIATE") as session:
            self._create(session)

    def _create(self, session: Session) -> None:
        """Make the tables where there are none; refuse those of another version."""
        if self._file is None:
            # Two processes that create one table at a time trip over each other.
            session.run("SELECT pg_advisory_xact_lock(?)", CREATING)
            present = session.value("SELECT to_regclass('dpsketch_schema')")
        else:
            present = session.value("SELECT name FROM sqlite_master WHERE name = 'dpsketch_schema'")
        found = session.value("SELECT max(version) FROM dpsketch_schema") if present else None
        if found not in (None, VERSION):
            raise InvalidInput(
                f"another version of dpsketch has written this store (version {found} of its tables; this one knows "
                f"{VERSION}). Name another store, or use that version. Nothing was changed."
            )
        if found is None:
            own = ("BYTEA", "") if self._file is None else ("BLOB", " WITHOUT ROWID")
            for statement in _TABLES:
                session.run(statement.format(binary=own[0], without_rowid=own[1]))
            session.run("INSERT INTO dpsketch_schema VALUES (?)", VERSION)

    @contextlib.contextmanager
    def _changing(self, begin: str = "BEGIN") -> Iterator[Session]:
        with self._database.session() as session, session.transaction(begin):
            yield session

    def _rows(self, statement: str, *values: Any) -> list[Sequence[Any]]:
        with self._database.session() as session:
            return session.rows(statement, *values)

    def _run(self, statement: str, *values: Any) -> int:
        with self._database.session() as session:
            return session.run(statement, *values)

    def close(self) -> None:
        """Let go of the store."""
        self._drop_writer()
        self._database.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # The one writer of reports.

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Session]:
        """Lend the writing session. One that failed may be dead or hold no lock: the next claim begins a new one."""
        if self._writer is None:
            raise StorageFailed(_LOST)
        try:
            yield self._writer
        except Exception:
            self._drop_writer()
            raise

    def claim(self) -> None:
        """Become the one process that serves the store, or one of those that share it, or refuse."""
        if self._file is not None and self._lock is None:
            self._lock = lock_file(self._file)
        fresh = self._writer is None
        if fresh:
            self._writer = self._database.open()
        with self._writing() as writer:
            if fresh and self._file is None:
                writer.begin_serving(shared=self.shared)
            self._look(writer)

    def check_session(self, *, write: bool = False) -> None:
        """Fail where the writing session is lost; with ``write``, also where the store takes no writes."""
        with self._writing() as writer:
            writer.run(
                "UPDATE dpsketch_schema SET version = version" if write else "SELECT version FROM dpsketch_schema"
            )

    def _look(self, writer: Session) -> None:
        """Find out which chunk is the newest."""
        self._next = int(writer.value("SELECT max(number) FROM dpsketch_chunk") or 0) + 1

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Keep other processes that share the store from writing; what they wrote before can be read now."""
        if not self.shared:
            yield
            return
        with self._writing() as writer:
            writer.run("SELECT pg_advisory_lock(?)", WRITING)
            self._look(writer)
        try:
            yield
        finally:
            # A session that was lost gave its lock back, and another one does not hold it.
            with contextlib.suppress(StorageFailed), self._writing() as writer:
                writer.run("SELECT pg_advisory_unlock(?)", WRITING)

    def _drop_writer(self) -> None:
        """Close the writing session, and with it give up its lock."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    @property
    def newest(self) -> int:
        """The number of the newest chunk that this process knows of."""
        return self._next - 1

    def append(
        self, chunks: list[tuple[str, int, bytes]], counters: dict[str, dict[str, int]], marks: Sequence[Mark] = ()
    ) -> list[Chunk]:
        """Write chunks (collection, reports, content), used tickets and what counters grew by, at once and durably."""
        return self._write(chunks, [], counters, marks)

    def replace(self, old: list[int], new: tuple[str, int, bytes]) -> Chunk:
        """Put one chunk in the place of several, in one transaction."""
        return self._write([new], old, {})[0]

    def _write(
        self,
        chunks: list[tuple[str, int, bytes]],
        old: list[int],
        counters: dict[str, dict[str, int]],
        marks: Sequence[Mark] = (),
    ) -> list[Chunk]:
        numbered = [(self._next + i, *chunk) for i, chunk in enumerate(chunks)]
        # Where this fails, whether the transaction took place is not known: the next claim() finds out.
        with self._writing() as writer, writer.transaction():
            if old:
                writer.run(f"DELETE FROM dpsketch_chunk WHERE number {_any_of(old)}", *old)
            writer.run_each("INSERT INTO dpsketch_chunk VALUES (?, ?, ?, ?)", numbered)
            # By their own order, which says nothing about that of the reports.
            writer.run_each("INSERT INTO dpsketch_mark VALUES (?, ?, ?)", sorted(marks))
            for collection, more in counters.items():
                grown = ", ".join(f"{name} = {name} + ?" for name in more)
                writer.run(f"UPDATE dpsketch_collection SET {grown} WHERE id = ?", *more.values(), collection)
        self._next += len(chunks)
        return [Chunk(number, collection, reports) for number, collection, reports, _ in numbered]

    def used_marks(self, marks: Sequence[Mark]) -> set[Mark]:
        """Return which tickets were used already."""
        found: set[Mark] = set()
        for start in range(0, len(marks), 500):
            # By all three, as the key is: by the mark alone the whole table would be read for each commit.
            columns = [list(set(column)) for column in zip(*marks[start : start + 500], strict=True)]
            wanted = " AND ".join(
                f"{name} {_any_of(column)}" for name, column in zip(Mark._fields, columns, strict=True)
            )
            values = [value for column in columns for value in column]
            rows = self._rows(f"SELECT collection, period, mark FROM dpsketch_mark WHERE {wanted}", *values)
            found |= {Mark(*row) for row in rows}
        return found

    def forget_marks(self, collection: str, before: int) -> None:
        """Forget the used tickets of periods that are long over."""
        self._run("DELETE FROM dpsketch_mark WHERE collection = ? AND period < ?", collection, before)

    def chunks(self, after: int = 0, collection: str | None = None) -> list[Chunk]:
        """List the chunks, of one collection or all, that are newer than a number: oldest first, without content."""
        own, values = ("", []) if collection is None else (" AND collection = ?", [collection])
        wanted = f"SELECT number, collection, reports FROM dpsketch_chunk WHERE number > ?{own} ORDER BY number"
        return [Chunk(*row) for row in self._rows(wanted, after, *values)]

    def contents(self, numbers: list[int]) -> Iterator[bytes]:
        """Read the content of chunks, a hundred at a time."""
        for start in range(0, len(numbers), 100):
            some = numbers[start : start + 100]
            wanted = f"SELECT content FROM dpsketch_chunk WHERE number {_any_of(some)} ORDER BY number"
            yield from (bytes(content) for (content,) in self._rows(wanted, *some))

    # Everything else.

    def ping(self) -> None:
        """Fail where the store does not answer."""
        self._rows("SELECT count(*) FROM dpsketch_token")

    def add_token(self, token: Token, digest: str) -> None:
        """Keep a token's digest, and what is known of it."""
        values = (token.id, token.name, token.scope, digest, token.collection, token.expires)
        self._run("INSERT INTO dpsketch_token VALUES (?, ?, ?, ?, ?, ?)", *values)

    def tokens(self) -> dict[str, Token]:
        """Return all tokens by their digests."""
        wanted = "SELECT digest, id, name, scope, collection, expires FROM dpsketch_token ORDER BY name, id"
        return {
            digest: Token(identifier, name, scope, collection, expires)
            for digest, identifier, name, scope, collection, expires in self._rows(wanted)
        }

    def expire_token(self, identifier: str, expires: float) -> None:
        """Let a token end at a time, or earlier where it was to end earlier."""
        later = "(expires IS NULL OR expires > ?)"
        self._run(f"UPDATE dpsketch_token SET expires = ? WHERE id = ? AND {later}", expires, identifier, expires)

    def revoke_token(self, identifier: str) -> bool:
        """Forget a token, and say whether it was there."""
        return self._run("DELETE FROM dpsketch_token WHERE id = ?", identifier) > 0

    def add_release(self, release: ReleaseRow, content: bytes) -> None:
        """Keep a release; the same content again takes the new name."""
        with self._changing() as session:
            session.run("DELETE FROM dpsketch_release WHERE id = ?", release.id)
            values = (release.id, release.name, content, time.time())
            session.run("INSERT INTO dpsketch_release VALUES (?, ?, ?, ?)", *values)

    def releases(self) -> list[ReleaseRow]:
        """List the uploaded releases."""
        return [ReleaseRow(*row) for row in self._rows("SELECT id, name, added FROM dpsketch_release ORDER BY id")]

    def release_content(self, identifier: str) -> bytes | None:
        """Return the file of an uploaded release, if it is there."""
        found = self._rows("SELECT content FROM dpsketch_release WHERE id = ?", identifier)
        return bytes(found[0][0]) if found else None

    def delete_release(self, identifier: str) -> None:
        """Forget a release."""
        self._run("DELETE FROM dpsketch_release WHERE id = ?", identifier)

    def add_collection(self, collection: CollectionRow) -> None:
        """Keep a new collection."""
        values = collection.values()
        self._run(f"INSERT INTO dpsketch_collection VALUES ({', '.join('?' for _ in values)})", *values)

    def collections(self) -> list[CollectionRow]:
        """Return all collections."""
        return [CollectionRow.read(row) for row in self._rows("SELECT * FROM dpsketch_collection ORDER BY id")]

    def close_collection(self, identifier: str) -> None:
        """Mark a collection as closed."""
        self._run("UPDATE dpsketch_collection SET closed = ? WHERE id = ?", True, identifier)

    def delete_collection(self, identifier: str) -> None:
        """Forget a collection, its reports, its curve, its used tickets and the tokens for it."""
        with self._changing() as session:
            for table in ("chunk", "history", "token", "mark"):
                session.run(f"DELETE FROM dpsketch_{table} WHERE collection = ?", identifier)
            session.run("DELETE FROM dpsketch_collection WHERE id = ?", identifier)

    def size(self) -> int:
        """Return how many bytes the store takes on the disk."""
        if self._file is not None:
            return sum(path.stat().st_size for path in self._file.parent.glob(f"{self._file.name}*"))
        [[size]] = self._rows("SELECT pg_database_size(current_database())")
        return int(size)

    def add_history(self, collection: str, reports: int, width: float) -> None:
        """Keep a point of the curve of interval widths; a second one at the same place is dropped."""
        self._run("INSERT INTO dpsketch_history VALUES (?, ?, ?) ON CONFLICT DO NOTHING", collection, reports, width)

    def history(self, collection: str) -> list[tuple[int, float]]:
        """Return the curve of interval widths, by the number of reports."""
        wanted = "SELECT reports, width FROM dpsketch_history WHERE collection = ? ORDER BY reports"
        return [(reports, width) for reports, width in self._rows(wanted, collection)]
