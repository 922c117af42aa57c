"""What became of a paid release: whether anything of it ever left the memory of the process that drew it.

A charge may be *bound* to what it pays for (which partials, budget and spec). It is then open until its release
is about to be written. While it is open nobody has seen a bit of the draw, so whoever comes with the same binding may
draw again for the same payment. It is closed once, by one process, before the first byte is written, and never opened
again: a release that is lost after that is lost.

These rows lie beside the chain, one for each bound charge. Each has a digest of its own that covers the charge's. A
charge without a row was handed to its caller when it was made, and counts as closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.errors import LedgerError, ReleaseRefused
from dpsketch.ledger.annexes import Annex, altered
from dpsketch.ledger.values import Charge, row_digest

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["DELIVERIES", "bind", "close", "find_open", "read_written"]

DELIVERIES = Annex("deliveries", "what became of its release", "what became of a release")

_OPEN, _WRITTEN = "charged", "written"


def bind(connection: Connection, charge: Charge, binding: str) -> None:
    """Open a charge that was just made."""
    DELIVERIES.add(connection, dataset=charge.dataset, id=charge.id, charge=charge.digest, binding=binding, state=_OPEN)


def find_open(connection: Connection, dataset: str, binding: str) -> list[tuple[int, str]]:
    """Return number and digest of every charge of this binding that is still open, oldest first."""
    rows = [row for row in _of(connection, dataset) if row["binding"] == binding]
    for row in rows:
        _refuse_altered(row)
    return [(row["id"], row["charge"]) for row in rows if row["state"] == _OPEN]


def close(connection: Connection, charge: Charge) -> None:
    """Record that a release is about to be written; refuse if another process came first."""
    rows = [row for row in _of(connection, charge.dataset) if row["id"] == charge.id]
    for row in rows:
        _refuse_altered(row)
    if not rows or rows[0]["charge"] != charge.digest or rows[0]["state"] != _OPEN:
        raise ReleaseRefused(
            f"charge {charge.id} to dataset {charge.dataset!r} has already paid for a release that was written, by "
            "another process perhaps. Nothing more was written for it. To release once more, and pay once more, run "
            "the command again."
        )
    closed = {**rows[0], "state": _WRITTEN}
    table = DELIVERIES.table
    own = (table.c.dataset == charge.dataset) & (table.c.id == charge.id) & (table.c.state == _OPEN)
    change = table.update().where(own).values(state=_WRITTEN, digest=row_digest(closed))
    if connection.execute(change).rowcount != 1:
        raise LedgerError(f"charge {charge.id} to dataset {charge.dataset!r} changed meanwhile. Try again.")


def read_written(connection: Connection, dataset: str) -> dict[int, bool]:
    """Say of each bound charge whether its release was written, or at least begun."""
    return {row["id"]: row["state"] == _WRITTEN for row in _of(connection, dataset)}


def _of(connection: Connection, dataset: str) -> list[dict[str, Any]]:
    return DELIVERIES.rows(connection, DELIVERIES.table.c.dataset == dataset)


def _refuse_altered(row: dict[str, Any]) -> None:
    if altered(row):
        raise LedgerError(
            f"what became of charge {row['id']} to dataset {row['dataset']!r} is not as it was written, so it cannot "
            "be trusted. Nothing was charged. `dpsketch ledger verify` names the rows."
        )
