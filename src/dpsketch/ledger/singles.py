"""What may be released once, and the charge that paid for it: a secret by a digest, and never again.

A moment sketch is private for one release of its secret. A copy of its file, in another process, cannot know that the
first was released; the ledger that both are charged to can. Names are looked for in all datasets, as a copy may be
charged to another one. The rows lie beside the chains, as those of :mod:`~dpsketch.ledger.delivery`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpsketch.errors import LedgerError, ReleaseRefused
from dpsketch.ledger.store import has_table, tables
from dpsketch.ledger.values import Charge, Problem, row_digest

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["add", "find_problems", "refuse_charged"]


def add(connection: Connection, charge: Charge, names: Sequence[str]) -> None:
    """Record what a charge that was just made has used up."""
    for name in names:
        row = {"name": name, "dataset": charge.dataset, "id": charge.id, "charge": charge.digest}
        connection.execute(tables()[3].insert().values(**row, digest=row_digest(row)))


def refuse_charged(connection: Connection, names: Sequence[str]) -> None:
    """Refuse what a charge to any dataset has used up."""
    for row in _rows(connection, names) if names else []:
        if row["digest"] != row_digest(row):
            raise LedgerError(
                "the ledger's record of what was released once is not as it was written, so it cannot be trusted. "
                "Nothing was charged. `dpsketch ledger verify` names the rows."
            )
        raise ReleaseRefused(
            f"this sketch, or a copy of it, was charged before, as row {row['id']} of dataset {row['dataset']!r}, and "
            "is private for one release only. Nothing was charged. If nothing of that release was written, repeat its "
            "command with the same budget and options; if it is whole, `dpsketch recover` puts it in place; else build "
            "a new sketch."
        )


def find_problems(connection: Connection, digests: dict[tuple[str, int], str]) -> list[Problem]:
    """Return every row that is not as it was written; ``digests`` are those of the chains' rows."""
    problems = []
    for row in _rows(connection, None):
        if row["digest"] != row_digest(row):
            what = "what it used up was altered: its digest is not that of its content."
        elif digests.get((row["dataset"], row["id"])) != row["charge"]:
            what = "what a release used up is recorded here, and the charge that paid for it is another."
        else:
            continue
        problems.append(Problem(row["dataset"], row["id"], what))
    return problems


def _rows(connection: Connection, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the rows of these names, or all; none where the ledger is of a version that had no such rows."""
    from sqlalchemy import select

    table = tables()[3]
    if not has_table(connection, table):
        return []
    query = select(table).order_by(table.c.name)
    if names is not None:
        query = query.where(table.c.name.in_(names))
    return [dict(zip(table.c.keys(), row, strict=True)) for row in connection.execute(query)]
