"""Where the service keeps tokens, releases, collections and reports: SQLite embedded, or PostgreSQL.

Reports are kept in chunks: one row of a table holds the compact reports of one group commit, one after the other. A
report is written once, and a commit costs the same however many reports it carries. The order in which the reports of
a chunk came is not kept.

One process serves a store at a time, because it alone remembers which reports there are (:mod:`dpsketch.server.locks`).
Several may share a PostgreSQL: they write by turns, and before its turn each reads what the others wrote. Tokens are
read and written without a lock.

SQLite runs with a write-ahead log and full synchronisation: a committed report survives a power cut.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from dpsketch.errors import InvalidInput
from dpsketch.server.auth import Token, check_scope
from dpsketch.server.database import copy_rows, open_database
from dpsketch.server.failures import guarded
from dpsketch.server.locks import CREATING, WRITING, lock_database, lock_file
from dpsketch.server.refusals import StorageFailed
from dpsketch.server.schema import bring_up_to_date
from dpsketch.server.tables import TABLES, Chunk, CollectionRow, Mark, ReleaseRow

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Storage"]


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
        self._file, self._engine = open_database(url)
        if shared and self._file is not None:
            raise InvalidInput("several processes serve one store on PostgreSQL only; SQLite takes one.")
        self.shared = shared
        self._writer: Connection | None = None
        self._lock: Any = None
        self._next = 1
        self._create()

    @guarded
    def _create(self) -> None:
        with self._engine.connect() as connection:
            connection.execution_options(dpsketch_begin="BEGIN IMMEDIATE")
            with connection.begin():
                if self._file is None:
                    # Two processes that create one table at a time trip over each other.
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (CREATING,))
                bring_up_to_date(connection)

    def close(self) -> None:
        """Let go of the store."""
        self._drop_writer()
        self._engine.dispose()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # The one writer of reports.

    @guarded
    def claim(self) -> None:
        """Become the one process that serves the store, or one of those that share it, or refuse."""
        if self._file is not None and self._lock is None:
            self._lock = lock_file(self._file)
        try:
            if self._writer is None:
                self._writer = self._engine.connect()
                if self._file is None:
                    lock_database(self._writer, shared=self.shared)
            self._look()
        except Exception:
            # A session that failed once may be dead, or hold no lock: the next attempt begins with a new one.
            self._drop_writer()
            raise

    @guarded
    def check_session(self, *, write: bool = False) -> None:
        """Fail where the writing session is lost; with ``write``, also where the store takes no writes."""
        if self._writer is None:
            raise StorageFailed("the connection to the store was lost.")
        wanted = "UPDATE dpsketch_schema SET version = version" if write else "SELECT version FROM dpsketch_schema"
        try:
            with self._writer.begin():
                self._writer.exec_driver_sql(wanted)
        except Exception:
            self._drop_writer()
            raise

    def _look(self) -> None:
        """Find out which chunk is the newest."""
        assert self._writer is not None
        newest = self._writer.exec_driver_sql("SELECT max(number) FROM dpsketch_chunk").scalar()
        self._writer.commit()
        self._next = int(newest or 0) + 1

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Keep other processes that share the store from writing; what they wrote before can be read now."""
        if not self.shared:
            yield
            return
        self._begin_turn()
        try:
            yield
        finally:
            self._end_turn()

    @guarded
    def _begin_turn(self) -> None:
        if self._writer is None:
            raise StorageFailed("the connection to the store was lost. Nothing was stored; try again.")
        try:
            self._writer.exec_driver_sql("SELECT pg_advisory_lock(%s)", (WRITING,))
            self._look()
        except Exception:
            self._drop_writer()
            raise

    def _end_turn(self) -> None:
        if self._writer is not None:
            try:
                self._writer.exec_driver_sql("SELECT pg_advisory_unlock(%s)", (WRITING,))
                self._writer.commit()
            except Exception:
                self._drop_writer()  # its end gives the lock back

    def _drop_writer(self) -> None:
        """Close the writing session, and with it give up its lock."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with contextlib.suppress(Exception):
                writer.invalidate()
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
        try:
            self._write_once(numbered, old, counters, marks)
        except Exception:
            # Whether the transaction took place is not known: the next claim() finds out.
            self._drop_writer()
            raise
        self._next += len(chunks)
        return [Chunk(number, collection, reports) for number, collection, reports, _ in numbered]

    @guarded
    def _write_once(
        self,
        numbered: list[tuple[int, str, int, bytes]],
        old: list[int],
        counters: dict[str, dict[str, int]],
        marks: Sequence[Mark],
    ) -> None:
        if self._writer is None:
            raise StorageFailed("the connection to the store was lost. Nothing was stored; try again.")
        with self._writer.begin():
            if old:
                self._writer.execute(TABLES.chunk.delete().where(TABLES.chunk.c.number.in_(old)))
            if numbered and self._file is None:
                copy_rows(self._writer, numbered)
            elif numbered:
                self._writer.exec_driver_sql("INSERT INTO dpsketch_chunk VALUES (?, ?, ?, ?)", numbered)
            if marks:
                # By their own order, which says nothing about that of the reports.
                rows = sorted((each.collection, each.period, each.mark) for each in marks)
                named = [dict(zip(("collection", "period", "mark"), row, strict=True)) for row in rows]
                self._writer.execute(TABLES.mark.insert(), named)
            table = TABLES.collection
            for collection, more in counters.items():
                grown = {name: table.c[name] + number for name, number in more.items()}
                self._writer.execute(table.update().where(table.c.id == collection).values(**grown))

    @guarded
    def used_marks(self, marks: Sequence[Mark]) -> set[Mark]:
        """Return which tickets were used already."""
        table = TABLES.mark
        with self._engine.connect() as connection:
            found: set[Mark] = set()
            for start in range(0, len(marks), 500):
                some = marks[start : start + 500]
                # By all three, as the key is: by the mark alone the whole table would be read for each commit.
                wanted = [
                    table.c[name].in_({getattr(each, name) for each in some})
                    for name in ("collection", "period", "mark")
                ]
                rows = connection.execute(table.select().where(*wanted))
                found |= {Mark(row.collection, row.period, row.mark) for row in rows}
            return found

    @guarded
    def forget_marks(self, collection: str, before: int) -> None:
        """Forget the used tickets of periods that are long over."""
        table = TABLES.mark
        with self._engine.begin() as connection:
            connection.execute(table.delete().where((table.c.collection == collection) & (table.c.period < before)))

    @guarded
    def chunks(self, after: int = 0, collection: str | None = None) -> list[Chunk]:
        """List the chunks, of one collection or all, that are newer than a number: oldest first, without content."""
        table = TABLES.chunk
        wanted = table.select().with_only_columns(table.c.number, table.c.collection, table.c.reports)
        if collection is not None:
            wanted = wanted.where(table.c.collection == collection)
        with self._engine.connect() as connection:
            found = connection.execute(wanted.where(table.c.number > after).order_by(table.c.number))
            return [Chunk(*row) for row in found]

    def contents(self, numbers: list[int]) -> Iterator[bytes]:
        """Read the content of chunks, a hundred at a time."""
        for start in range(0, len(numbers), 100):
            yield from self._contents(numbers[start : start + 100])

    @guarded
    def _contents(self, numbers: list[int]) -> list[bytes]:
        table = TABLES.chunk
        with self._engine.connect() as connection:
            wanted = table.select().with_only_columns(table.c.content).where(table.c.number.in_(numbers))
            return [bytes(content) for (content,) in connection.execute(wanted.order_by(table.c.number))]

    # Everything else.

    @guarded
    def ping(self) -> None:
        """Fail where the store does not answer."""
        with self._engine.connect() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM dpsketch_token").scalar()

    @guarded
    def add_token(self, token: Token, digest: str) -> None:
        """Keep a token's digest, and what is known of it."""
        values = {
            "id": token.id, "name": token.name, "scope": token.scope, "digest": digest,
            "collection": token.collection, "expires": token.expires,
        }  # fmt: skip
        with self._engine.begin() as connection:
            connection.execute(TABLES.token.insert().values(**values))

    @guarded
    def tokens(self) -> dict[str, Token]:
        """Return all tokens by their digests."""
        with self._engine.connect() as connection:
            rows = connection.execute(TABLES.token.select().order_by(TABLES.token.c.name, TABLES.token.c.id))
            return {
                row.digest: Token(row.id, row.name, check_scope(row.scope), row.collection, row.expires) for row in rows
            }

    @guarded
    def expire_token(self, identifier: str, expires: float) -> None:
        """Let a token end at a time, or earlier where it was to end earlier."""
        table = TABLES.token
        later = table.c.expires.is_(None) | (table.c.expires > expires)
        with self._engine.begin() as connection:
            connection.execute(table.update().where((table.c.id == identifier) & later).values(expires=expires))

    @guarded
    def revoke_token(self, identifier: str) -> bool:
        """Forget a token, and say whether it was there."""
        with self._engine.begin() as connection:
            return connection.execute(TABLES.token.delete().where(TABLES.token.c.id == identifier)).rowcount > 0

    @guarded
    def add_release(self, release: ReleaseRow, content: bytes) -> None:
        """Keep a release; the same content again takes the new name."""
        table = TABLES.release
        with self._engine.begin() as connection:
            connection.execute(table.delete().where(table.c.id == release.id))
            values = {"id": release.id, "name": release.name, "content": content, "added": time.time()}
            connection.execute(table.insert().values(**values))

    @guarded
    def releases(self) -> list[ReleaseRow]:
        """List the uploaded releases."""
        table = TABLES.release
        wanted = table.select().with_only_columns(table.c.id, table.c.name, table.c.added)
        with self._engine.connect() as connection:
            return [ReleaseRow(*row) for row in connection.execute(wanted.order_by(table.c.id))]

    @guarded
    def release_content(self, identifier: str) -> bytes | None:
        """Return the file of an uploaded release, if it is there."""
        table = TABLES.release
        wanted = table.select().with_only_columns(table.c.content).where(table.c.id == identifier)
        with self._engine.connect() as connection:
            content = connection.execute(wanted).scalar()
        return None if content is None else bytes(content)

    @guarded
    def delete_release(self, identifier: str) -> None:
        """Forget a release."""
        with self._engine.begin() as connection:
            connection.execute(TABLES.release.delete().where(TABLES.release.c.id == identifier))

    @guarded
    def add_collection(self, collection: CollectionRow) -> None:
        """Keep a new collection."""
        with self._engine.begin() as connection:
            connection.execute(TABLES.collection.insert().values(**collection.values()))

    @guarded
    def collections(self) -> list[CollectionRow]:
        """Return all collections."""
        with self._engine.connect() as connection:
            rows = connection.execute(TABLES.collection.select().order_by(TABLES.collection.c.id))
            return [CollectionRow.read(row) for row in rows]

    @guarded
    def close_collection(self, identifier: str) -> None:
        """Mark a collection as closed."""
        table = TABLES.collection
        with self._engine.begin() as connection:
            connection.execute(table.update().where(table.c.id == identifier).values(closed=True))

    @guarded
    def delete_collection(self, identifier: str) -> None:
        """Forget a collection, its reports, its curve, its used tickets and the tokens for it."""
        with self._engine.begin() as connection:
            for table in (TABLES.chunk, TABLES.history, TABLES.token, TABLES.mark):
                connection.execute(table.delete().where(table.c.collection == identifier))
            connection.execute(TABLES.collection.delete().where(TABLES.collection.c.id == identifier))

    @guarded
    def size(self) -> int:
        """Return how many bytes the store takes on the disk."""
        if self._file is not None:
            return sum(path.stat().st_size for path in self._file.parent.glob(f"{self._file.name}*"))
        with self._engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar() or 0)

    @guarded
    def add_history(self, collection: str, reports: int, width: float) -> None:
        """Keep a point of the curve of interval widths; a second one at the same place is dropped."""
        row = {"collection": collection, "reports": reports, "width": width}
        with self._engine.begin() as connection:
            connection.execute(
                text("INSERT INTO dpsketch_history VALUES (:collection, :reports, :width) ON CONFLICT DO NOTHING"), row
            )

    @guarded
    def history(self, collection: str) -> list[tuple[int, float]]:
        """Return the curve of interval widths, by the number of reports."""
        table = TABLES.history
        with self._engine.connect() as connection:
            rows = connection.execute(table.select().where(table.c.collection == collection).order_by(table.c.reports))
            return [(row.reports, row.width) for row in rows]
