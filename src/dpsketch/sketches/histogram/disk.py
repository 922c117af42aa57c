"""What a histogram holds on disk: records that do not fit into the memory it was given.

Keys and users lie there by exact value, in tables of DuckDB inside a private folder
(:func:`~dpsketch.sources.scratch.private_folder`). For a release they are put into the order of the keys, and a
mechanism's questions are answered in passes over that order, to the same bits as in memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.arrays import Integers
from dpsketch.errors import InvalidInput, SourceError
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.laws.content import BLOCK, Block, Content, Pairs, fresh_seed
from dpsketch.sketches.histogram.held import Held, Opened
from dpsketch.sketches.histogram.rows import spelled
from dpsketch.sources.engine import connect, load
from dpsketch.sources.failures import guarded
from dpsketch.sources.scratch import private_folder

if TYPE_CHECKING:
    import duckdb

__all__ = ["Disk", "Limit"]

T = TypeVar("T")

_SIZES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_LEAST = 256 * 10**6  # with less DuckDB cannot sort much
_TWO_THREADS = 2 * 10**9  # each holds memory of its own
_ROWS_AT_ONCE = 1 << 18
# Rows wait so long before equal ones are put together, or until they are twice as many as after the last time.
_FEW = 1 << 22
_WHOLE = "(FROM kept UNION ALL FROM late)"
_TABLES = ("late", "grouped", "sorted", "keys", "people", "prints", "pairs", "chosen")  # of one release


class Limit(NamedTuple):
    """How much memory a histogram may take, in bytes, and where the rest goes."""

    size: int
    temp_directory: str | None

    @classmethod
    def of(cls, memory_limit: str, temp_directory: str | None) -> Limit:
        """Read a size as people write it, such as ``"512MB"``."""
        text = memory_limit.strip() if isinstance(memory_limit, str) else ""
        unit = next((unit for unit in _SIZES if text.endswith(unit)), "")
        number = text.removesuffix(unit).strip()
        size = int(number) * _SIZES[unit] if unit and number.isascii() and number.isdigit() else 0
        if size < _LEAST:
            least = f"{_LEAST // 10**6}MB"
            raise InvalidInput(f"memory_limit= must be a size such as '512MB' or '4GB', of {least} at least.")
        return cls(size, temp_directory)

    @property
    def held(self) -> int:
        """From how many bytes on records go to disk: arrays double as they grow, and DuckDB has a half."""
        return self.size // 8

    @property
    def rows(self) -> int:
        """How many rows may come at once."""
        return min(_ROWS_AT_ONCE, self.held // 128)


class StoredRows(NamedTuple):
    """Some records: their users where the unit is one, their keys, and how much each counts."""

    users: pa.Array | None
    keys: pa.Array
    units: Integers


class Disk:
    """Records in a private folder, which is removed with this object, and at the latest with its process. Sensitive.

    Parameters
    ----------
    limit : Limit
        DuckDB takes half of its memory; the folder is made where it says.
    most : int
        What one user can add to one key.
    """

    def __init__(self, limit: Limit, most: int) -> None:
        self._limit = limit
        self._most = most
        self._types: tuple[KeyType | None, KeyType] | None = None  # of users and keys
        self._rows = self._settled = 0
        load()
        with ExitStack() as stack:
            folder = stack.enter_context(private_folder(limit.temp_directory))
            megabytes = f"{limit.size // 2 // 10**6}MB"
            self._connection = _run(lambda: connect(memory_limit=megabytes, temp_directory=folder))
            stack.callback(self._connection.close)
            if limit.size < _TWO_THREADS:
                self.execute("SET threads = 1")
            weakref.finalize(self, stack.pop_all().close)

    def put(self, held: Held) -> None:
        """Add all that was held in memory; equal keys, or pairs, are put together from time to time."""
        if self._types is None:
            types = (held.users.key_type if held.by_user else None, held.keys.key_type or "text")
            self.execute(f"CREATE TABLE kept ({_columns(types)})")
            self._types = types
        self._rows += self._put("kept", held)
        if self._rows - self._settled > max(_FEW, self._settled):
            self.execute(f"CREATE OR REPLACE TABLE settled AS {self._grouped('kept')}")
            self.execute("BEGIN; DROP TABLE kept; ALTER TABLE settled RENAME TO kept; COMMIT")
            self._rows = self._settled = int(self.first("SELECT count(*) FROM kept")[0])

    def rows(self) -> Iterator[StoredRows]:
        """Yield all records that were added."""
        for batch in self.stream("FROM kept"):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield StoredRows(columns.get("user"), columns["key"], columns["units"].to_numpy())

    def counted(self, held: Held, max_keys: int) -> tuple[int, int, int]:
        """Return what :meth:`Held.counted` returns, of all records."""
        with self._together(held):
            users = f"SELECT count(*) AS held, sum(units) AS own FROM ({self._grouped(_WHOLE)}) GROUP BY user"
            some = f"least(held, {max_keys})"
            totals = f"sum(held), sum(held - {some}), sum(own * {some} // held)"
            pairs, over, count = self.first(f"SELECT {totals} FROM ({users})")
            return int(pairs), int(over), int(count)

    @contextmanager
    def opened(self, held: Held) -> Iterator[Opened]:
        """Give all records, with those that are still held in memory, in the order of their keys."""
        key: KeyType = "int" if held.keys.key_type == "int" else "text"
        with self._together(held):
            # One after the other: a statement that groups and sorts at once needs the memory of both.
            self.execute(f"CREATE OR REPLACE TABLE grouped AS {self._grouped(_WHOLE)}")
            self.execute("DROP TABLE late")
            if held.by_user:
                self._number("keys", "SELECT DISTINCT key FROM grouped")
                self._number("people", "SELECT DISTINCT user FROM grouped")
                self._print("keys", "key")
                self._print("people", "user")
                self.execute(
                    "CREATE OR REPLACE TABLE sorted AS SELECT people.place AS person, keys.place AS place, units, "
                    "xor(people.print, keys.print) AS print FROM grouped "
                    "JOIN people ON grouped.user = people.user JOIN keys ON grouped.key = keys.key"
                )
                self.execute("CREATE OR REPLACE TABLE pairs AS FROM sorted ORDER BY person, place")
            else:
                self._number("keys", "FROM grouped")
            self.execute("DROP TABLE grouped; DROP TABLE IF EXISTS sorted")
            content = _PairsOnDisk(self, self._most) if held.by_user else _RecordsOnDisk(self)
            yield Opened(content, lambda names: self._places(names, key), lambda places: self._names(places, key))

    def _number(self, name: str, query: str) -> None:
        """Make a table of the rows of a query, with their places in the order of their keys or users."""
        self.execute(f"CREATE OR REPLACE TABLE sorted AS SELECT * FROM ({query})")
        column = "user" if name == "people" else "key"
        self.execute(f"CREATE OR REPLACE TABLE {name} AS FROM sorted ORDER BY {column}")
        self.execute(f"CREATE OR REPLACE TABLE sorted AS SELECT row_number() OVER () - 1 AS place, * FROM {name}")
        self.execute(f"BEGIN; DROP TABLE {name}; ALTER TABLE sorted RENAME TO {name}; COMMIT")

    def _print(self, name: str, column: str) -> None:
        """Give the rows of a table the fingerprints of a column."""
        self.execute("CREATE OR REPLACE TABLE prints (place BIGINT, print BIGINT)")
        for batch in self.stream(f"SELECT place, {column} FROM {name}"):
            prints = fingerprint(batch.column(1)).fingerprints.view(np.int64)
            self.insert("prints", pa.table({"place": batch.column(0), "print": prints}))
        self.execute(f"CREATE OR REPLACE TABLE sorted AS SELECT * FROM {name} JOIN prints USING (place)")
        self.execute(f"BEGIN; DROP TABLE {name}; ALTER TABLE sorted RENAME TO {name}; COMMIT")

    @contextmanager
    def _together(self, held: Held) -> Iterator[None]:
        """Put what is held in memory beside what was added, for as long as it takes."""
        try:
            self.execute(f"CREATE OR REPLACE TABLE late ({_columns(self._types)})")
            self._put("late", held)
            yield
        finally:
            with suppress(SourceError):  # what could not be removed is replaced the next time
                for name in _TABLES:
                    self.execute(f"DROP TABLE IF EXISTS {name}")

    def _put(self, table: str, held: Held) -> int:
        """Add what is held to a table, and return how many rows that were."""
        count = 0
        for rows in _rows_of(held, self._limit.rows):
            columns = {"user": rows.users, "key": rows.keys, "units": rows.units}
            self.insert(table, pa.table({name: column for name, column in columns.items() if column is not None}))
            count += len(rows.units)
        return count

    def _grouped(self, table: str) -> str:
        """Return the query for each key, or pair, once."""
        if self._types is not None and self._types[0] is not None:
            return f"SELECT user, key, least(sum(units), {self._most})::BIGINT AS units FROM {table} GROUP BY user, key"
        return f"SELECT key, sum(units)::BIGINT AS units FROM {table} GROUP BY key"

    def _places(self, names: list[Any], key: KeyType) -> Integers:
        column = pa.array(names, pa.int64() if key == "int" else pa.large_binary())
        found = np.full(len(names), -1, np.int64)
        query = "SELECT asked.row, keys.place FROM keys JOIN asked ON keys.key = asked.key"
        for batch in self.stream(query, asked=pa.table({"row": np.arange(len(names)), "key": column})):
            found[batch.column(0).to_numpy()] = batch.column(1).to_numpy()
        return found

    def _names(self, places: Integers, key: KeyType) -> list[Any]:
        query = "SELECT keys.key FROM keys JOIN asked ON keys.place = asked.place ORDER BY keys.place"
        named: Callable[[pa.Array], list[Any]] = spelled if key == "text" else pa.Array.to_pylist
        asked = pa.table({"place": places})
        return [name for batch in self.stream(query, asked=asked) for name in named(batch.column(0))]

    def execute(self, statement: str) -> duckdb.DuckDBPyConnection:
        """Run a statement."""
        return _run(lambda: self._connection.execute(statement))

    def first(self, query: str) -> tuple[Any, ...]:
        """Return the first row of an answer."""
        return _run(lambda: self.execute(query).fetchall())[0]

    def insert(self, table: str, rows: pa.Table) -> None:
        """Add rows to a table."""
        _run(lambda: self._connection.from_arrow(rows).insert_into(table))

    def stream(self, query: str, rows: int | None = None, **tables: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the answer to a query in batches of at most so many rows, or as many as the limit lets come at once."""
        rows = self._limit.rows if rows is None else rows
        with self._connection.cursor() as cursor:
            for name, table in tables.items():
                cursor.register(name, table)
            reader = _run(lambda: cursor.sql(query).to_arrow_reader(rows))
            while (batch := _run(lambda: next(reader, None))) is not None:
                # DuckDB counts in vectors of two thousand.
                yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))

    def blocks(self, query: str) -> Iterator[Block]:
        """Yield the places and sums that a query returns in the order of the places."""
        left = (np.empty(0, np.int64),) * 2
        for batch in self.stream(query, BLOCK):
            places, sums = _joined(left, batch)
            _check(np.diff(places) > 0)
            if len(places) >= BLOCK:
                yield Block(places[:BLOCK], sums[:BLOCK])
                places, sums = places[BLOCK:], sums[BLOCK:]
            left = places, sums
        if len(left[0]):
            yield Block(*left)


class _RecordsOnDisk(Content):
    """Counts by key, where a record is on one key."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def counts(self, cap: int) -> Iterator[Block]:
        return self._disk.blocks("SELECT place, units FROM keys ORDER BY place")

    def sums(self, asked: Integers, cap: int) -> tuple[Integers, int]:
        sums, total = np.zeros(len(asked), np.int64), 0
        for block in self.counts(cap):
            total += int(block.sums.sum())
            rows = np.isin(block.places, asked, assume_unique=True)
            sums[np.searchsorted(asked, block.places[rows])] = block.sums[rows]
        return sums, total - int(sums.sum())


class _PairsOnDisk(Content):
    """Who has which key; the pairs of one user are in memory at once, and of all users only some."""

    def __init__(self, disk: Disk, most: int) -> None:
        self._disk = disk
        self._most = most

    def counts(self, cap: int) -> Iterator[Block]:
        seed = fresh_seed()
        return self._added(lambda pairs: pairs.kept(cap, seed))

    def sums(self, asked: Integers, cap: int) -> tuple[Integers, int]:
        seed = fresh_seed()
        sums = np.zeros(len(asked), np.int64)
        for block in self._added(lambda pairs: pairs.kept_among(asked, cap, seed)):
            sums[np.searchsorted(asked, block.places)] = block.sums
        seed = fresh_seed()
        return sums, sum(pairs.rest(asked, cap, seed) for pairs in self._pairs())

    def weights(self, known: Integers, cap: int) -> Iterator[Block]:
        seed = fresh_seed()
        return self._added(lambda pairs: pairs.weighed(known, cap, seed))

    def held(self, asked: Integers) -> tuple[Integers, Integers]:
        seed = fresh_seed()
        nothing = np.empty(0, np.int64)
        found = [(nothing, nothing), *(pairs.held_by(asked, seed) for pairs in self._pairs())]
        held, picked = (np.concatenate(each) for each in zip(*found, strict=True))
        return held, picked

    def _added(self, chosen: Callable[[Pairs], tuple[Integers, Integers]]) -> Iterator[Block]:
        """Yield the sums by key of what is chosen of each user."""
        self._disk.execute("CREATE OR REPLACE TABLE chosen (place BIGINT, units BIGINT)")
        for pairs in self._pairs():
            keys, units = chosen(pairs)
            places, inverse = np.unique(keys, return_inverse=True)
            sums = np.zeros(len(places), np.int64)
            np.add.at(sums, inverse, units)
            self._disk.insert("chosen", pa.table({"place": places, "units": sums}))
        # All draws for users are done before the first key gets its noise, as in memory.
        return self._disk.blocks("SELECT place, sum(units)::BIGINT FROM chosen GROUP BY place ORDER BY place")

    def _pairs(self) -> Iterator[Pairs]:
        """Yield all pairs, of whole users at a time, users by numbers of their own."""
        left = (np.empty(0, np.int64),) * 4
        for batch in self._disk.stream("SELECT person, place, units, print FROM pairs"):
            people, keys, units, prints = _joined(left, batch)
            ahead = np.diff(people)
            _check((ahead > 0) | ((ahead == 0) & (np.diff(keys) > 0)))
            end = int(np.searchsorted(people, people[-1]))
            left = people[end:], keys[end:], units[end:], prints[end:]
            if end:
                yield self._of(people[:end], keys[:end], units[:end], prints[:end])
        if len(left[0]):
            yield self._of(*left)

    def _of(self, people: Integers, keys: Integers, units: Integers, prints: Integers) -> Pairs:
        own = None if self._most == 1 else units
        return Pairs(0, people - people[0], keys, own, lambda rows: prints.view(np.uint64)[rows])


def _rows_of(held: Held, at_once: int) -> Iterator[StoredRows]:
    """Yield what is held in memory, so many rows at once."""
    if held.by_user:
        for users, keys, units in held.pairs.parts(at_once):
            yield StoredRows(held.users.column(users), held.keys.column(keys), units)
        return
    for start in range(0, len(held.keys), at_once):
        numbers = np.arange(start, min(start + at_once, len(held.keys)))
        yield StoredRows(None, held.keys.column(numbers), held.keys.units[numbers])


def _columns(types: tuple[KeyType | None, KeyType] | None) -> str:
    """Return the columns of a table of records."""
    users, keys = types or (None, "text")
    kinds = {"int": "BIGINT", "text": "BLOB"}
    return f"{'' if users is None else f'user {kinds[users]}, '}key {kinds[keys]}, units BIGINT"


def _joined(left: tuple[Integers, ...], batch: pa.RecordBatch) -> tuple[Integers, ...]:
    return tuple(np.concatenate([before, batch.column(i).to_numpy()]) for i, before in enumerate(left))


def _check(increases: npt.NDArray[np.bool_]) -> None:
    if not increases.all():
        raise SourceError("the records on disk came in another order than was asked for, and nothing is published.")


def _run(step: Callable[[], T]) -> T:
    """Run a step of DuckDB, whose errors may quote records."""
    return guarded(
        step,
        lambda error: SourceError(
            f"the histogram's records could not be kept on disk ({type(error).__name__}). Most likely the temporary "
            "directory is full, or memory_limit= is too small. Give temp_directory= or a larger memory_limit=."
        ),
    )
