"""The versions of a store's tables: an older store is brought up to date when it is opened, a newer one is refused.

A step is a list of statements that both databases understand, run in one transaction with the note of its version, so
that a store is never between two versions. Steps are never changed once they were published; a change is a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import inspect, text

from dpsketch.errors import InvalidInput
from dpsketch.server.tables import metadata

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["NEWEST", "bring_up_to_date"]

_FLOAT = "DOUBLE PRECISION"
_STEPS: dict[int, tuple[str, ...]] = {
    2: (
        "ALTER TABLE dpsketch_token ADD COLUMN collection TEXT",
        f"ALTER TABLE dpsketch_token ADD COLUMN expires {_FLOAT}",
        f"ALTER TABLE dpsketch_release ADD COLUMN added {_FLOAT}",
        "ALTER TABLE dpsketch_collection ADD COLUMN max_reports BIGINT",
        f"ALTER TABLE dpsketch_collection ADD COLUMN closes {_FLOAT}",
        f"ALTER TABLE dpsketch_collection ADD COLUMN deletes {_FLOAT}",
    ),
    3: (
        "ALTER TABLE dpsketch_collection ADD COLUMN ticket_key TEXT",
        "ALTER TABLE dpsketch_collection ADD COLUMN ticket_period TEXT",
        "CREATE TABLE dpsketch_mark (collection TEXT NOT NULL, period BIGINT NOT NULL, mark TEXT NOT NULL, "
        "PRIMARY KEY (collection, period, mark)){without_rowid}",
    ),
}
"""What leads to each version from the one before it. Version 1 is the tables without a note of their version."""

NEWEST = max(_STEPS)


def bring_up_to_date(connection: Connection) -> int:
    """Make the tables, or bring them to the newest version, in the transaction that is open; return the version found.

    Raises
    ------
    InvalidInput
        A newer dpsketch has written the store. Nothing was changed.
    """
    found = _version(connection)
    if found > NEWEST:
        raise InvalidInput(
            f"a newer dpsketch has written this store (version {found} of its tables; this one knows {NEWEST}). "
            "Upgrade dpsketch, or restore a backup from before the upgrade. Nothing was changed."
        )
    if found == 0:
        metadata.create_all(connection)
    # SQLite's row numbers would keep the order in which tickets were used.
    own = " WITHOUT ROWID" if connection.dialect.name == "sqlite" else ""
    for version in range(max(found, 1) + 1, NEWEST + 1) if found else ():
        for statement in _STEPS[version]:
            connection.execute(text(statement.format(without_rowid=own)))
    if found != NEWEST:
        connection.execute(text("CREATE TABLE IF NOT EXISTS dpsketch_schema (version BIGINT NOT NULL)"))
        connection.execute(text("DELETE FROM dpsketch_schema"))
        connection.execute(text("INSERT INTO dpsketch_schema VALUES (:version)"), {"version": NEWEST})
    return found


def _version(connection: Connection) -> int:
    """Return the version of the tables; 0 where there are none."""
    tables = inspect(connection)
    if tables.has_table("dpsketch_schema"):
        noted = connection.execute(text("SELECT max(version) FROM dpsketch_schema")).scalar()
        return int(noted or 0)
    return 1 if tables.has_table("dpsketch_collection") else 0
