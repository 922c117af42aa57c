"""Which dataset the records of a source are charged to, remembered so that it is asked for once.

A source is known by a digest of where it lies, which the caller makes: never of what it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsketch.ledger.store import has_table, tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["put", "read"]


def put(connection: Connection, source: str, dataset: str) -> None:
    """Remember the dataset of a source; the last one stated holds."""
    table = tables().sources
    connection.execute(table.delete().where(table.c.source == source))
    connection.execute(table.insert().values(source=source, dataset=dataset))


def read(connection: Connection) -> dict[str, str]:
    """Return the dataset of each source; none where the ledger is of a version that had no such rows."""
    from sqlalchemy import select

    table = tables().sources
    if not has_table(connection, table):
        return {}
    return {row.source: row.dataset for row in connection.execute(select(table))}
