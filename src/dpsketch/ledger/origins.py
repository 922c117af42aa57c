"""Where a charge came from, for whoever reads a ledger: which file was written, from which columns, and by whom.

Commands know these, and the Python interface does not. No charge is decided by them, nor taken up again by them, so
they lie beside the chain, one row for each charge of a command.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dpsketch.ledger.store import has_table, tables
from dpsketch.ledger.values import Charge, Origin, Problem, row_digest

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["find_problems", "put", "read"]


def put(connection: Connection, charge: Charge, origin: Origin) -> None:
    """Record where a charge came from; a charge that is taken up again comes from where it is now."""
    table = tables()[5]
    own = (table.c.dataset == charge.dataset) & (table.c.id == charge.id)
    connection.execute(table.delete().where(own))
    row = {"dataset": charge.dataset, "id": charge.id, "charge": charge.digest, **asdict(origin)}
    connection.execute(table.insert().values(**row, digest=row_digest(row)))


def read(connection: Connection, dataset: str) -> dict[int, Origin]:
    """Return where each charge to a dataset came from, as far as it is known; nothing of a row that was altered."""
    return {
        row["id"]: Origin(row["output"], row["columns"], row["who"])
        for row in _rows(connection)
        if row["dataset"] == dataset and row["digest"] == row_digest(row)
    }


def find_problems(connection: Connection, digests: dict[tuple[str, int], str]) -> list[Problem]:
    """Return every row that is not as it was written; ``digests`` are those of the chains' rows."""
    problems = []
    for row in _rows(connection):
        if row["digest"] != row_digest(row):
            what = "where it came from was altered: its digest is not that of its content."
        elif digests.get((row["dataset"], row["id"])) != row["charge"]:
            what = "where a release came from is recorded here, and the charge that paid for it is another."
        else:
            continue
        problems.append(Problem(row["dataset"], row["id"], what))
    return problems


def _rows(connection: Connection) -> list[dict[str, Any]]:
    """Return all rows; none where the ledger is of a version that had no such rows."""
    from sqlalchemy import select

    table = tables()[5]
    if not has_table(connection, table):
        return []
    query = select(table).order_by(table.c.dataset, table.c.id)
    return [dict(zip(table.c.keys(), row, strict=True)) for row in connection.execute(query)]
