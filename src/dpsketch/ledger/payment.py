"""The payment for one release that is written to a file: made once, and taken up again where the file was not."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from dpsketch.errors import LedgerError
from dpsketch.ledger import delivery
from dpsketch.ledger.book import Ledger
from dpsketch.ledger.layout import canonical
from dpsketch.ledger.values import Charge, Order, Origin

__all__ = ["Payment", "binding_of"]


def binding_of(partials: frozenset[str], **release: Any) -> str:
    """Name what a payment is for: the partials in a sketch, and what is made of them (budget, spec, options).

    No count or cell of the sketch goes into it, so it tells nothing of the records.
    """
    return hashlib.sha256(canonical({"partials": sorted(partials), **release}).encode()).hexdigest()


class Payment(Ledger):
    """A ledger that takes one charge, for one release.

    Parameters
    ----------
    ledger : Ledger
        The ledger that is charged.
    binding : str
        What the release is made of, from :func:`binding_of`.
    origin : Origin, optional
        Where it is written, from what and by whom, for readers of the ledger.

    Attributes
    ----------
    made : Charge or None
        The charge, once it is made.
    resumed : bool
        Whether it was made before, for a release of which nothing was ever written.

    Privacy
    -------
    A charge of the same binding, dataset, costs, unit and note that is still open is used again. It is open only while
    no byte of a draw has left the process that made it, which :meth:`close` ends before the first one does. Of several
    processes that hold one open charge, one can close it; the others must throw their draws away.
    """

    def __init__(self, ledger: Ledger, binding: str, origin: Origin | None = None) -> None:
        self._store = ledger._store
        self._binding = binding
        self._origin = origin
        self.made: Charge | None = None
        self.resumed = False

    @property
    def folder(self) -> Path | None:
        """The folder of the ledger's file; None for a database."""
        return None if self._store.file is None else self._store.file.parent

    def _pay(self, order: Order) -> tuple[Charge, bool]:
        """Charge the release, or take up the charge that was made for it before; once."""
        if self.made is not None:
            raise LedgerError("this payment has been made, and pays for one release only.")
        self.made, self.resumed = super()._pay(order)
        return self.made, self.resumed

    def close(self) -> None:
        """Record that the release is about to be written; to be called before its first byte is.

        Raises
        ------
        ReleaseRefused
            Another process closed the charge. This one must not write what it drew.
        """
        if (made := self.made) is None:
            raise LedgerError("this payment has not been made, so nothing can be written for it.")
        self._store.write(made.dataset, lambda connection: delivery.close(connection, made))
