"""What may be released once, and the charge that paid for it: a secret by a digest, and never again.

A moment sketch is private for one release of its secret. A copy of its file, in another process, cannot know that the
first was released; the ledger that both are charged to can. Names are looked for in all datasets, as a copy may be
charged to another one. The rows lie beside the chains, as those of :mod:`~dpsketch.ledger.delivery`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsketch.errors import ReleaseRefused
from dpsketch.ledger.annexes import Annex
from dpsketch.ledger.connection import Connection
from dpsketch.ledger.layout import TABLES
from dpsketch.ledger.values import Charge

__all__ = ["SINGLES", "add", "refuse_charged"]

SINGLES = Annex(
    TABLES.singles,
    "what it used up",
    "what a release used up",
    doubted="the ledger's record of what was released once",
)


def add(connection: Connection, charge: Charge, names: Sequence[str]) -> None:
    """Record what a charge that was just made has used up."""
    for name in names:
        SINGLES.add(connection, name=name, dataset=charge.dataset, id=charge.id, charge=charge.digest)


def refuse_charged(connection: Connection, names: Sequence[str]) -> None:
    """Refuse what a charge to any dataset has used up."""
    for row in SINGLES.trusted_among(connection, "name", names):
        raise ReleaseRefused(
            f"this sketch, or a copy of it, was charged before, as row {row['id']} of dataset {row['dataset']!r}, and "
            "is private for one release only. Nothing was charged. If nothing of that release was written, repeat its "
            "command with the same budget and options; if it is whole, `dpsketch recover` puts it in place; else build "
            "a new sketch."
        )
