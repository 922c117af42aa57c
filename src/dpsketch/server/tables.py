"""The tables of the service's store, and their rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Float, LargeBinary, MetaData, Table, Text

__all__ = [
    "COUNTERS",
    "TABLES",
    "Chunk",
    "CollectionPlan",
    "CollectionRow",
    "Mark",
    "ReleaseRow",
    "Ticketing",
    "metadata",
]

COUNTERS = ("repeated", "malformed", "other_spec", "oversized")
"""What is counted of the reports that were refused."""

metadata = MetaData()


class TABLES:
    """The tables."""

    token = Table(
        "dpsketch_token",
        metadata,
        Column("id", Text, primary_key=True),
        Column("name", Text, nullable=False),
        Column("scope", Text, nullable=False),
        Column("digest", Text, nullable=False, unique=True),
        Column("collection", Text),
        Column("expires", Float(53)),
    )
    release = Table(
        "dpsketch_release",
        metadata,
        Column("id", Text, primary_key=True),
        Column("name", Text, nullable=False),
        Column("content", LargeBinary, nullable=False),
        Column("added", Float(53)),
    )
    collection = Table(
        "dpsketch_collection",
        metadata,
        Column("id", Text, primary_key=True),
        Column("name", Text, nullable=False),
        Column("spec", Text, nullable=False),
        Column("candidates", Text, nullable=False),
        Column("closed", Boolean, nullable=False),
        *(Column(name, BigInteger, nullable=False) for name in COUNTERS),
        Column("max_reports", BigInteger),
        Column("closes", Float(53)),
        Column("deletes", Float(53)),
        Column("ticket_key", Text),
        Column("ticket_period", Text),
    )
    chunk = Table(
        "dpsketch_chunk",
        metadata,
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("collection", Text, nullable=False),
        Column("reports", BigInteger, nullable=False),
        Column("content", LargeBinary, nullable=False),
    )
    history = Table(
        "dpsketch_history",
        metadata,
        Column("collection", Text, primary_key=True),
        Column("reports", BigInteger, primary_key=True, autoincrement=False),
        Column("width", Float(53), nullable=False),
    )
    mark = Table(
        "dpsketch_mark",
        metadata,
        Column("collection", Text, primary_key=True),
        Column("period", BigInteger, primary_key=True, autoincrement=False),
        Column("mark", Text, primary_key=True),
        sqlite_with_rowid=False,  # whose numbers would keep the order in which they came
    )


@dataclass(frozen=True, slots=True)
class Chunk:
    """One row of reports, without its content."""

    number: int
    collection: str
    reports: int


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """An uploaded release, without its content; ``added`` is when, in seconds since 1970, where that is known."""

    id: str
    name: str
    added: float | None = None


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
class Mark:
    """What is kept of a ticket that was used."""

    collection: str
    period: int
    mark: str


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

    def values(self) -> dict[str, Any]:
        """Return the row's columns."""
        return {
            "id": self.id,
            "name": self.name,
            "spec": json.dumps(self.spec),
            "candidates": json.dumps(self.candidates),
            "closed": self.closed,
            **self.refused,
            "max_reports": self.plan.max_reports,
            "closes": self.plan.closes,
            "deletes": self.plan.deletes,
            "ticket_key": None if self.tickets is None else self.tickets.key,
            "ticket_period": None if self.tickets is None else self.tickets.period,
        }

    @classmethod
    def read(cls, row: Any) -> CollectionRow:
        """Rebuild it from a row."""
        refused = {name: int(getattr(row, name)) for name in COUNTERS}
        plan = CollectionPlan(row.max_reports, row.closes, row.deletes)
        tickets = None if row.ticket_key is None else Ticketing(row.ticket_key, row.ticket_period)
        spec, candidates = json.loads(row.spec), json.loads(row.candidates)
        return cls(row.id, row.name, spec, candidates, bool(row.closed), refused, plan, tickets)
