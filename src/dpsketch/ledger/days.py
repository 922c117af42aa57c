"""Which days of a stream were published, so that an old copy of its state cannot publish them again with other noise.

A stream of daily tables is charged once, when it begins, and that charge is its name here. Before a day is shown, its
number and a digest of what it publishes are recorded; a state that is behind the record, or ahead of it with another
publication, is an old backup. The digest is of published tables, noise and all. The rows lie beside the chains, as
those of :mod:`~dpsketch.ledger.singles`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.errors import LedgerError, ReleaseRefused
from dpsketch.ledger.store import has_table, tables
from dpsketch.ledger.values import Charge, Problem, row_digest

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["find_problems", "last", "put", "unpaid"]


def put(connection: Connection, charge: Charge, day: int, publication: str) -> None:
    """Record that a day of a stream is about to be shown; refuse one that was shown with other noise."""
    _refuse_unpaid(connection, charge)
    known = _trusted(connection, charge)
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
    row = {"stream": charge.digest, "day": day, "dataset": charge.dataset, "id": charge.id, "publication": publication}
    connection.execute(tables()[7].insert().values(**row, digest=row_digest(row)))


def _refuse_unpaid(connection: Connection, charge: Charge) -> None:
    """Refuse a stream that was not charged here: what this ledger knows of its days tells nothing."""
    from sqlalchemy import select

    entries = tables()[1]
    own = (entries.c.dataset == charge.dataset) & (entries.c.id == charge.id) & (entries.c.digest == charge.digest)
    if not has_table(connection, entries) or connection.execute(select(entries.c.id).where(own)).first() is None:
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
    known = _trusted(connection, charge)
    return [(max(known), known[max(known)])] if known else []


def find_problems(connection: Connection, digests: dict[tuple[str, int], str]) -> list[Problem]:
    """Return every row that is not as it was written; ``digests`` are those of the chains' rows."""
    problems = []
    for row in _rows(connection, None):
        if row["digest"] != row_digest(row):
            what = "a day that its stream published was altered: its digest is not that of its content."
        elif digests.get((row["dataset"], row["id"])) != row["stream"]:
            what = "a day of a stream is recorded here, and the charge that paid for it is another."
        else:
            continue
        problems.append(Problem(row["dataset"], row["id"], what))
    return problems


def _trusted(connection: Connection, charge: Charge) -> dict[int, str]:
    rows = _rows(connection, charge.digest)
    if any(row["digest"] != row_digest(row) for row in rows):
        raise LedgerError(
            "the ledger's record of the days of a stream is not as it was written, so it cannot be trusted. "
            "Nothing was published. `dpsketch ledger verify` names the rows."
        )
    return {row["day"]: row["publication"] for row in rows}


def _rows(connection: Connection, stream: str | None) -> list[dict[str, Any]]:
    """Return the rows of a stream, or all; none where the ledger is of a version that had no such rows."""
    from sqlalchemy import select

    table = tables()[7]
    if not has_table(connection, table):
        return []
    query = select(table).order_by(table.c.stream, table.c.day)
    if stream is not None:
        query = query.where(table.c.stream == stream)
    return [dict(zip(table.c.keys(), row, strict=True)) for row in connection.execute(query)]
