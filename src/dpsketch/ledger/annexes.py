"""Tables beside the chains: what is known of a charge, and decides none of the numbers in its chain.

A row of an annex names the charge that it belongs to, by dataset, number and digest, and has a digest of its own. A
ledger of an earlier version may lack an annex until it is written to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpsketch.errors import LedgerError
from dpsketch.ledger.connection import Connection
from dpsketch.ledger.layout import LedgerTable, row_digest
from dpsketch.ledger.values import Problem

__all__ = ["Annex", "altered"]

# So many names are looked for at a time; a database takes some thousands.
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Annex:
    """A table beside the chains.

    Attributes
    ----------
    table : Table
        The table in the database.
    told, recorded : str
        What a row tells, in words: of its charge, and of any.
    doubted : str
        What a row that was altered leaves unknown, in words; its columns may be named in braces.
    stopped : str
        What is not done then.
    charge : str
        The column that holds the digest of the charge.
    """

    table: LedgerTable
    told: str
    recorded: str
    doubted: str = "what is noted of charge {id} to dataset {dataset!r}"
    stopped: str = "charged"
    charge: str = "charge"

    def add(self, connection: Connection, **row: Any) -> None:
        """Add a row."""
        connection.insert(self.table, **row, digest=row_digest(row))

    def rows(self, connection: Connection, **own: Any) -> list[dict[str, Any]]:
        """Return the rows whose columns are as given, in the order of the key."""
        return connection.select(self.table, **own) if connection.has_table(self.table) else []

    def trusted(self, connection: Connection, **own: Any) -> list[dict[str, Any]]:
        """Return the rows whose columns are as given; refuse to go on where one of them was altered."""
        rows = self.rows(connection, **own)
        for row in rows:
            if altered(row):
                raise LedgerError(
                    f"{self.doubted.format(**row)} is not as it was written, so it cannot be trusted. Nothing was "
                    f"{self.stopped}. `dpsketch ledger verify` names the rows."
                )
        return rows

    def trusted_among(
        self, connection: Connection, column: str, names: Sequence[str], **own: Any
    ) -> Iterator[dict[str, Any]]:
        """Give the rows, as :meth:`trusted` does, in which a column has one of several values."""
        for start in range(0, len(names), _AT_ONCE):
            yield from self.trusted(connection, **own, **{column: list(names[start : start + _AT_ONCE])})

    def find_problems(self, connection: Connection, digests: dict[tuple[str, int], str]) -> list[Problem]:
        """Return every row that is not as it was written; ``digests`` are those of the chains' rows."""
        problems = []
        for row in self.rows(connection):
            if altered(row):
                what = f"{self.told} was altered: its digest is not that of its content."
            elif digests.get((row["dataset"], row["id"])) != row[self.charge]:
                what = f"{self.recorded} is recorded here, and the charge that paid for it is another."
            else:
                continue
            problems.append(Problem(row["dataset"], row["id"], what))
        return problems


def altered(row: dict[str, Any]) -> bool:
    """Say whether a row is not as it was written."""
    return bool(row["digest"] != row_digest(row))
