"""Records in real databases: SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch.errors import SourceError
from dpsketch.sources import Columns, Progress, open_source
from reading import SECRET, records, refused, write
from sensitive import everything

COLUMNS = Columns(key="key", user="user", weight="weight", key_type="text", user_type="int")
TABLE = pa.table(
    {
        "key": [f"page {i * i % 71}" if i % 50 else None for i in range(1, 1001)],
        "user": [i * 7919 % 301 for i in range(1, 1001)],
        "weight": [float(1 + i % 3) for i in range(1, 1001)],
        "Other column": ['x, "y"\n'] * 1000,
    }
)


def sketch_of(*sources: str | Path, **options: Any) -> object:
    """Return all that a sketch of the sources holds."""
    sketch = dps.CountSketch(rows=3, width=64, unit=dps.per_record(max_weight=2), seed=7)
    for batch in open_source([str(source) for source in sources], COLUMNS, **options):
        sketch.update(batch.key, weights=batch.weight)
    return repr(everything(sketch))


def in_sqlite(path: Path) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE "my table" ("key" TEXT, "user" INTEGER, "weight", "Other column")')
        rows = zip(*TABLE.to_pydict().values(), strict=True)
        connection.executemany('INSERT INTO "my table" VALUES (?, ?, ?, ?)', rows)
        connection.commit()
    return path


@pytest.fixture(scope="module")
def tables(postgresql_url: str) -> str:
    """Fill the database with the tables of this module; return its address."""
    with psycopg.connect(postgresql_url) as connection, connection.cursor() as cursor:
        cursor.execute('DROP SCHEMA IF EXISTS "Odd schema" CASCADE; DROP TABLE IF EXISTS secrets')  # of a first try
        cursor.execute('CREATE SCHEMA "Odd schema" CREATE SEQUENCE counter')
        cursor.execute('CREATE TABLE "Odd schema".visits (key text, "user" int, weight numeric, "Other column" text)')
        rows = zip(*TABLE.to_pydict().values(), strict=True)
        cursor.executemany('INSERT INTO "Odd schema".visits VALUES (%s, %s, %s, %s)', rows)
        cursor.execute('CREATE VIEW visits AS SELECT * FROM "Odd schema".visits')
        cursor.execute(f"CREATE TABLE secrets AS SELECT '{SECRET}' AS k, 1.5::float8 AS f")  # type: ignore[arg-type]
    return postgresql_url


def test_databases_give_the_sketch_of_a_file_bit_for_bit(tmp_path: Path, tables: str) -> None:
    odd = "'%s' LIKE '%s' AND 1 = ALL('{1}'::int[])"
    database = f"sqlite:///{in_sqlite(tmp_path / 'visits.db')}"
    halves = [write(TABLE.slice(0, 300), tmp_path / "half.csv"), write(TABLE.slice(300), tmp_path / "half.parquet")]
    sketches = {
        "files": sketch_of(*halves),
        "sorted": sketch_of(*halves, sort_by_user=True, batch_rows=17),
        "sqlite table": sketch_of(f"{database}?table=my table"),
        "sqlite query": sketch_of(f'{database}?query=SELECT * FROM "my table" ORDER BY "user"'),
        "postgresql view": sketch_of(f"{tables}?table=visits"),
        "postgresql table": sketch_of(f"{tables}?table=Odd schema.visits"),
        "postgresql query": sketch_of(f"{tables}?query=SELECT * FROM visits WHERE {odd}"),
    }
    assert len(set(sketches.values())) == 1, [name for name in sketches if sketches[name] != sketches["files"]]


def test_databases_are_read_in_small_steps_and_never_written_to(tmp_path: Path, tables: str) -> None:
    database = in_sqlite(tmp_path / "visits.db")
    before = database.read_bytes()
    for source in (f"sqlite:///{database}?table=my table", f"{tables}?table=visits"):
        told: list[Progress] = []
        rows = [batch.rows for batch in open_source([source], COLUMNS, batch_rows=64, progress=told.append)]
        assert sum(rows) == 1000
        assert max(rows) == 64
        assert told[0] == Progress(64, None, "rows")
        assert told[-1] == Progress(1000, 1000, "rows")
    for source in (f"sqlite:///{database}?query=", f"{tables}?query="):
        for statement in ("DELETE FROM visits", "DROP TABLE visits", "CREATE TABLE more (key text)"):
            refused(source + statement, columns=COLUMNS)
    for query in (
        'WITH x AS (DELETE FROM "Odd schema".visits RETURNING *) SELECT * FROM x',
        "SELECT nextval('\"Odd schema\".counter') AS key, 1 AS user, 1 AS weight",
    ):
        assert "the query writes" in refused(f"{tables}?query={query}", columns=COLUMNS)
    assert database.read_bytes() == before
    assert sum(batch.rows for batch in open_source([f"{tables}?table=visits"], COLUMNS)) == 1000
    refused(f"sqlite:///{tmp_path}/none.db?table=t")
    assert not (tmp_path / "none.db").exists()


WRONG = {
    "?table=absent": "'absent' does not exist",
    "?query=SELECT x FROM absent": "a table does not exist",
    "?query=SELECT x FROM secrets": "a column does not exist",
    "?query=SELEC k FROM secrets": "syntax error",
}
IN_POSTGRESQL = WRONG | {
    "?table=absent.secrets": "'absent.secrets' does not exist",
    "?table=visits": "Its columns are 'key', 'user', 'weight', 'Other column'",
    "?query=SELECT k::integer AS k FROM secrets": "could not be read",
    "?query=SELECT ARRAY[f] AS k FROM secrets": "has the type list",
    "?query=SELECT k, k FROM secrets": "two columns named 'k'",
    "?query=SELECT k AS K FROM secrets; SELECT 1": "syntax error",
}


def test_what_goes_wrong_in_postgresql_quotes_no_record(tables: str) -> None:
    for ending, words in IN_POSTGRESQL.items():
        assert words in refused(tables + ending), ending
    nowhere = tables.replace("dpsketch@127.0.0.1", "dpsketch:hunter2@127.0.0.1").replace("/postgres", "/absent")
    message = refused(f"{nowhere}?table=secrets")
    assert "could not be read" in message
    assert "hunter2" not in message


def test_users_in_postgresql_have_the_type_of_their_column(postgresql_url: str) -> None:
    """Python has one width of floats; in the database, a real has 24 bits and reads 16777217 as 16777216."""

    def read(expression: str) -> Any:
        (batch, *_) = open_source([f"{postgresql_url}?query=SELECT {expression} AS u"], Columns(user="u"))
        return batch

    for expression, user_type, value in (
        ("16777215::real", "int", 16777215),
        ("16777217::float8", "int", 16777217),
        ("'6F1C2D3E-0000-4000-8000-0123456789AB'::uuid", "uuid", "6f1c2d3e-0000-4000-8000-0123456789ab"),
        ("CAST(700 AS numeric(9, -2))", "int", 700),
        ("5.00::numeric(9, 2)", "decimal", "5"),
        ("5::numeric", "decimal", "5"),
        ("CAST('ann' AS char(8))", "text", "ann"),
    ):
        found = read(expression)
        assert (found.user_type, found.user.to_pylist()) == (user_type, [value]), expression
    for expression, words in (("16777217::real", "not a whole 64-bit"), ("CAST(1 AS numeric(100, 90))", "behind the")):
        with pytest.raises(SourceError, match=words):
            read(expression)
    # The values of one batch may all be whole, and those of the next not.
    rows = "(VALUES (5::numeric), (6), (5.0), (6.50), (NULL), (1e40), (7)) AS rows(u)"
    batches = list(open_source([f"{postgresql_url}?query=SELECT u FROM {rows}"], Columns(user="u"), batch_rows=2))
    users = [user for batch in batches if batch.user is not None for user in batch.user.to_pylist()]
    assert users == ["5", "6", "5", "6.5", "1" + "0" * 40, "7"]


def test_what_goes_wrong_in_sqlite_quotes_no_record(tmp_path: Path) -> None:
    def database(name: str, *values: Any, declared: str = "k") -> str:
        path = tmp_path / f"{name}.db"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(f"CREATE TABLE secrets ({declared})")
            connection.executemany("INSERT INTO secrets VALUES (?)", [(value,) for value in values])
            connection.commit()
        return f"sqlite:///{path}"

    good = database("good", SECRET)
    wrong = WRONG | {f"?query=SELECT CAST(x'{SECRET.encode().hex()}ff' AS TEXT) AS k": "not UTF-8"}
    for ending, words in wrong.items():
        assert words in refused(good + ending), ending
    assert "Its columns are 'k'" in refused(f"{good}?table=secrets", columns=Columns(key="x"))
    mixed = database("mixed", 1, SECRET)
    assert records(f"{mixed}?table=secrets", columns=Columns(key="k", user="k")) == [("1", "1"), (SECRET, SECRET)]
    fractions = database("fractions", 1.0, 2.5, declared="k INTEGER")
    assert records(f"{fractions}?table=secrets", columns=Columns(points=("k",))) == [(1.0,), (2.5,)]
    for address in (
        fractions,
        database("float", *[1] * 200, 2.5),
        database("bytes", "x", SECRET.encode()),
        database("declared", "1", SECRET, declared="k INTEGER"),
    ):
        assert "mixes types" in refused(f"{address}?table=secrets", batch_rows=100)
    other, damaged = write(pa.table({"k": [SECRET]}), tmp_path / "other.parquet"), tmp_path / "good.db"
    assert "is not an SQLite database: it looks like Parquet" in refused(f"sqlite:///{other}?table=t")
    damaged.write_bytes(damaged.read_bytes()[:3000])
    refused(f"{good}?table=secrets")
