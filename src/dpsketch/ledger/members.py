"""Which partials were released as which part of a dataset, so that no sketch passes for two parts that share no record.

A partial is named by a digest of its random id, which says nothing of its records. The rows lie beside the chains, as
those of :mod:`~dpsketch.ledger.delivery`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dpsketch.errors import LedgerError, ReleaseRefused
from dpsketch.ledger.store import has_table, tables
from dpsketch.ledger.values import Charge, Problem, row_digest

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["add", "find_problems", "refuse_other_part"]

# So many names are looked for at a time; a database takes some thousands.
_AT_ONCE = 500


def refuse_other_part(connection: Connection, dataset: str, part: str, names: Sequence[str]) -> set[str]:
    """Refuse partials that were released as another part; return those that were released as this one."""
    known: set[str] = set()
    for start in range(0, len(names), _AT_ONCE):
        for row in _rows(connection, dataset, names[start : start + _AT_ONCE]):
            if row["digest"] != row_digest(row):
                raise LedgerError(
                    "the ledger's record of what was released as which part is not as it was written, so it cannot be "
                    "trusted. Nothing was charged. `dpsketch ledger verify` names the rows."
                )
            if row["part"] != part:
                raise ReleaseRefused(
                    f"this sketch, or one that is merged into it, was released as part {row['part']!r} of dataset "
                    f"{dataset!r} (row {row['id']}), and parts must share no record. Nothing was charged. Release it "
                    "as that part, or without a part, which then counts for all of them."
                )
            known.add(row["name"])
    return known


def add(connection: Connection, charge: Charge, part: str, names: Iterable[str]) -> None:
    """Record the partials of a charge that was just made."""
    for name in names:
        row = {"dataset": charge.dataset, "name": name, "part": part, "id": charge.id, "charge": charge.digest}
        connection.execute(tables()[4].insert().values(**row, digest=row_digest(row)))


def find_problems(connection: Connection, digests: dict[tuple[str, int], str]) -> list[Problem]:
    """Return every row that is not as it was written; ``digests`` are those of the chains' rows."""
    problems = []
    for row in _rows(connection, None, None):
        if row["digest"] != row_digest(row):
            what = "what was released as which part was altered: its digest is not that of its content."
        elif digests.get((row["dataset"], row["id"])) != row["charge"]:
            what = "what was released as a part is recorded here, and the charge that paid for it is another."
        else:
            continue
        problems.append(Problem(row["dataset"], row["id"], what))
    return problems


def _rows(connection: Connection, dataset: str | None, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the rows of these names, or all; none where the ledger is of a version that had no such rows."""
    from sqlalchemy import select

    table = tables()[4]
    if not has_table(connection, table):
        return []
    query = select(table).order_by(table.c.dataset, table.c.name)
    if names is not None:
        query = query.where((table.c.dataset == dataset) & table.c.name.in_(names))
    return [dict(zip(table.c.keys(), row, strict=True)) for row in connection.execute(query)]
