"""Where a charge came from, for whoever reads a ledger: which file was written, from which columns, and by whom.

Commands know these, and the Python interface does not. No charge is decided by them, nor taken up again by them, so
they lie beside the chain, one row for each charge of a command.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from dpsketch.ledger.annexes import Annex, altered
from dpsketch.ledger.values import Charge, Origin

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["ORIGINS", "put", "read"]

ORIGINS = Annex("origins", "where it came from", "where a release came from")


def put(connection: Connection, charge: Charge, origin: Origin) -> None:
    """Record where a charge came from; a charge that is taken up again comes from where it is now."""
    table = ORIGINS.table
    own = (table.c.dataset == charge.dataset) & (table.c.id == charge.id)
    connection.execute(table.delete().where(own))
    ORIGINS.add(connection, dataset=charge.dataset, id=charge.id, charge=charge.digest, **asdict(origin))


def read(connection: Connection, dataset: str) -> dict[int, Origin]:
    """Return where each charge to a dataset came from, as far as it is known; nothing of a row that was altered."""
    return {
        row["id"]: Origin(row["output"], row["columns"], row["who"])
        for row in ORIGINS.rows(connection, ORIGINS.table.c.dataset == dataset)
        if not altered(row)
    }
