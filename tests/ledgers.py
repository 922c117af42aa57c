"""Ledgers that tests begin without a total."""

from __future__ import annotations

from pathlib import Path

from dpsketch.ledger import Ledger


def begun(url: str | Path) -> Ledger:
    """Return a ledger that is there and knows no dataset yet: a charge is then recorded without a total."""
    ledger = Ledger(url)
    ledger._store.write("", lambda connection: None, create=True)
    return ledger
