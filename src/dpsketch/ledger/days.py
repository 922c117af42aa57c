"""Which days of a stream were published, so that an old copy of its state cannot publish them again with other noise.

A stream of daily tables is charged once, when it begins, and that charge is its name here. Before a day is shown, its
number and a digest of what it publishes are recorded; a state that is behind the record, or ahead of it with another
publication, is an old backup. The digest is of published tables, noise and all. The rows lie beside the chains, as
those of :mod:`~dpsketch.ledger.singles`.
"""

from __future__ import annotations

from dpsketch.errors import LedgerError, ReleaseRefused
from dpsketch.ledger.annexes import Annex
from dpsketch.ledger.connection import Connection
from dpsketch.ledger.layout import TABLES
from dpsketch.ledger.values import Charge

__all__ = ["DAYS", "last", "put", "unpaid"]

DAYS = Annex(
    TABLES.days,
    "a day that its stream published",
    "a day of a stream",
    doubted="the ledger's record of the days of a stream",
    stopped="published",
    charge="stream",
)


def put(connection: Connection, charge: Charge, day: int, publication: str) -> None:
    """Record that a day of a stream is about to be shown; refuse one that was shown with other noise."""
    _refuse_unpaid(connection, charge)
    known = _published(connection, charge)
    if day in known:
        if known[day] != publication:
            raise ReleaseRefused(
                f"day {day} of this stream was published before, with other noise: the state is an old copy. Nothing "
                "is shown. Go on from the newest state."
            )
        return
    if any(each > day for each in known):
        raise ReleaseRefused(
            f"day {max(known)} of this stream was published, and the state is an old copy of day {day}."
        )
    DAYS.add(connection, stream=charge.digest, day=day, dataset=charge.dataset, id=charge.id, publication=publication)


def _refuse_unpaid(connection: Connection, charge: Charge) -> None:
    """Refuse a stream that was not charged here: what this ledger knows of its days tells nothing."""
    entries = TABLES.entries
    own = {"dataset": charge.dataset, "id": charge.id, "digest": charge.digest}
    if not connection.has_table(entries) or not connection.select(entries, **own):
        raise unpaid(charge)


def unpaid(charge: Charge) -> LedgerError:
    """Return the refusal of a stream that another ledger has paid for."""
    return LedgerError(
        "this stream was charged to another ledger, which knows the days that it has shown: here is no such row "
        f"{charge.id} of dataset {charge.dataset!r}. Go on with the ledger that the stream began with."
    )


def last(connection: Connection, charge: Charge) -> list[tuple[int, str]]:
    """Return the newest day that a stream has shown, and what of it is recorded; nothing before one."""
    _refuse_unpaid(connection, charge)
    known = _published(connection, charge)
    return [(max(known), known[max(known)])] if known else []


def _published(connection: Connection, charge: Charge) -> dict[int, str]:
    rows = DAYS.trusted(connection, stream=charge.digest)
    return {row["day"]: row["publication"] for row in rows}
