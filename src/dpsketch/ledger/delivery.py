"""What commands note beside the chains: what became of a paid release, where it came from, and whose its source is.

**What became of it**: whether anything of it ever left the memory of the process that drew it. A charge may be *bound*
to what it pays for (which partials, budget and spec). It is then open until its release is about to be written. While
it is open nobody has seen a bit of the draw, so whoever comes with the same binding may draw again for the same
payment. It is closed once, by one process, before the first byte is written, and never opened again: a release that is
lost after that is lost.

These rows lie beside the chain, one for each bound charge. Each has a digest of its own that covers the charge's. A
charge without a row was handed to its caller when it was made, and counts as closed.

**Where it came from**: which file was written, from which columns, and by whom. Commands know these, and the Python
interface does not. No charge is decided by them, nor taken up again by them.

**Whose its source is**: which dataset the records of a source are charged to, so that it is asked for once. A source is
known by a digest of where it lies, which the caller makes: never of what it holds.
"""

from __future__ import annotations

from dataclasses import asdict

from dpsketch.errors import LedgerError, ReleaseRefused
from dpsketch.ledger.annexes import Annex, altered
from dpsketch.ledger.connection import Connection
from dpsketch.ledger.layout import TABLES, row_digest
from dpsketch.ledger.values import Charge, Origin

__all__ = [
    "DELIVERIES", "ORIGINS", "bind", "close", "find_open", "put_origin", "put_source", "read_origins", "read_sources",
    "read_written",
]  # fmt: skip

DELIVERIES = Annex(
    TABLES.deliveries,
    "what became of its release",
    "what became of a release",
    doubted="what became of charge {id} to dataset {dataset!r}",
)
ORIGINS = Annex(TABLES.origins, "where it came from", "where a release came from")

_OPEN, _WRITTEN = "charged", "written"


def bind(connection: Connection, charge: Charge, binding: str) -> None:
    """Open a charge that was just made."""
    DELIVERIES.add(connection, dataset=charge.dataset, id=charge.id, charge=charge.digest, binding=binding, state=_OPEN)


def find_open(connection: Connection, dataset: str, binding: str) -> list[tuple[int, str]]:
    """Return number and digest of every charge of this binding that is still open, oldest first."""
    rows = DELIVERIES.trusted(connection, dataset=dataset, binding=binding)
    return [(row["id"], row["charge"]) for row in rows if row["state"] == _OPEN]


def close(connection: Connection, charge: Charge) -> None:
    """Record that a release is about to be written; refuse if another process came first."""
    rows = DELIVERIES.trusted(connection, dataset=charge.dataset, id=charge.id)
    if not rows or rows[0]["charge"] != charge.digest or rows[0]["state"] != _OPEN:
        raise ReleaseRefused(
            f"charge {charge.id} to dataset {charge.dataset!r} has already paid for a release that was written, by "
            "another process perhaps. Nothing more was written for it. To release once more, and pay once more, run "
            "the command again."
        )
    closed = {**rows[0], "state": _WRITTEN}
    change = {"state": _WRITTEN, "digest": row_digest(closed)}
    if connection.update(DELIVERIES.table, change, dataset=charge.dataset, id=charge.id, state=_OPEN) != 1:
        raise LedgerError(f"charge {charge.id} to dataset {charge.dataset!r} changed meanwhile. Try again.")


def put_origin(connection: Connection, charge: Charge, origin: Origin) -> None:
    """Record where a charge came from; a charge that is taken up again comes from where it is now."""
    connection.delete(ORIGINS.table, dataset=charge.dataset, id=charge.id)
    ORIGINS.add(connection, dataset=charge.dataset, id=charge.id, charge=charge.digest, **asdict(origin))


def read_origins(connection: Connection, dataset: str) -> dict[int, Origin]:
    """Return where each charge to a dataset came from, as far as it is known; nothing of a row that was altered."""
    return {
        row["id"]: Origin(row["output"], row["columns"], row["who"])
        for row in ORIGINS.rows(connection, dataset=dataset)
        if not altered(row)
    }


def put_source(connection: Connection, source: str, dataset: str) -> None:
    """Remember the dataset of a source; the last one stated holds."""
    connection.delete(TABLES.sources, source=source)
    connection.insert(TABLES.sources, source=source, dataset=dataset)


def read_sources(connection: Connection) -> dict[str, str]:
    """Return the dataset of each source; none where the ledger is of a version that had no such rows."""
    if not connection.has_table(TABLES.sources):
        return {}
    return {row["source"]: row["dataset"] for row in connection.select(TABLES.sources)}


def read_written(connection: Connection, dataset: str) -> dict[int, bool]:
    """Say of each bound charge whether its release was written, or at least begun."""
    rows = DELIVERIES.rows(connection, dataset=dataset)
    return {row["id"]: row["state"] == _WRITTEN for row in rows}
