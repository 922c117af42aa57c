"""The tables of a ledger, the same on SQLite and on PostgreSQL, and the digest of a row.

Columns hold text, and none may be null; a few are numbers. Statements take names of tables and columns from here alone.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

__all__ = ["TABLES", "LedgerTable", "Tables", "canonical", "row_digest"]

# A tampered column may hold anything, which must give another digest rather than an error.
_DIGESTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=repr)
_NUMBERS = {"format": "INTEGER", "rows": "BIGINT", "id": "BIGINT", "day": "BIGINT"}


class LedgerTable(NamedTuple):
    """A table: its name in the database, the columns of its key, and the others."""

    name: str
    key: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, those of the key first."""
        return self.key + self.others

    @property
    def definition(self) -> str:
        """The statement that makes the table."""
        columns = "".join(f"{column} {_NUMBERS.get(column, 'TEXT')} NOT NULL, " for column in self.columns)
        return f"CREATE TABLE {self.name} ({columns}PRIMARY KEY ({', '.join(self.key)}))"


class Tables(NamedTuple):
    """The tables of a ledger."""

    datasets: LedgerTable
    entries: LedgerTable
    deliveries: LedgerTable
    singles: LedgerTable
    members: LedgerTable
    origins: LedgerTable
    sources: LedgerTable
    days: LedgerTable


def _table(name: str, key: str, others: str) -> LedgerTable:
    return LedgerTable(name, tuple(key.split()), tuple(others.split()))


TABLES = Tables(
    datasets=_table("dpsketch_dataset", "name", "format rows head"),
    entries=_table("dpsketch_entry", "dataset id", "kind time costs total unit note previous digest"),
    deliveries=_table("dpsketch_delivery", "dataset id", "charge binding state digest"),
    singles=_table("dpsketch_once", "name", "dataset id charge digest"),
    members=_table("dpsketch_member", "dataset name", "part id charge digest"),
    origins=_table("dpsketch_origin", "dataset id", "charge output columns who digest"),
    sources=_table("dpsketch_source", "source", "dataset"),
    days=_table("dpsketch_day", "stream day", "dataset id publication digest"),
)


def canonical(value: Any) -> str:
    """Write JSON in the one way that digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def row_digest(row: dict[str, Any]) -> str:
    """Return the SHA-256 of a row: of every column but the digest, the previous row's digest among them."""
    content = {name: value for name, value in row.items() if name != "digest"}
    return hashlib.sha256(_DIGESTED.encode(content).encode()).hexdigest()
