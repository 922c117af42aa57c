"""Which partials were released as which part of a dataset, so that no sketch passes for two parts that share no record.

A stream is charged as a part before its records come; the partials that it absorbs are added when it does. A partial is
named by a digest of its random id, which says nothing of its records. The rows lie beside the chains, as those of
:mod:`~dpsketch.ledger.delivery`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpsketch.errors import ReleaseRefused
from dpsketch.ledger.annexes import Annex
from dpsketch.ledger.connection import Connection
from dpsketch.ledger.layout import TABLES
from dpsketch.ledger.values import Charge

__all__ = ["MEMBERS", "add", "refuse_other_part"]

MEMBERS = Annex(
    TABLES.members,
    "what was released as which part",
    "what was released as a part",
    doubted="the ledger's record of what was released as which part",
)


def refuse_other_part(connection: Connection, dataset: str, part: str, names: Sequence[str]) -> set[str]:
    """Refuse partials that were released as another part; return those that were released as this one."""
    known: set[str] = set()
    for row in MEMBERS.trusted_among(connection, "name", names, dataset=dataset):
        if row["part"] != part:
            raise ReleaseRefused(
                f"this sketch, or one that is merged into it, was released as part {row['part']!r} of dataset "
                f"{dataset!r} or merged into a stream of it (row {row['id']}), and parts must share no record. Nothing "
                "was charged. Use it for that part, or name no part: it then counts for all of them."
            )
        known.add(row["name"])
    return known


def add(connection: Connection, charge: Charge, part: str, names: Iterable[str]) -> None:
    """Record partials as of the part that was charged."""
    for name in names:
        MEMBERS.add(connection, dataset=charge.dataset, name=name, part=part, id=charge.id, charge=charge.digest)
