"""The privacy budget of a dataset: one durable place that says no.

A ledger is a SQLite file, or a PostgreSQL database where several machines release from one dataset. Every release is
charged here before its noise is drawn. A charge that would exceed the dataset's total is refused, and then nothing is
charged and nothing is released.

Beside each charge that a command makes stands whether its release began to be written. Until then the charge can be
taken up again by the same command; see :mod:`dpsketch.ledger.annexes`.
"""

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch.ledger.book import Ledger, Payment, binding_of
    from dpsketch.ledger.parts import Division
    from dpsketch.ledger.values import Charge, Entry, Origin, Preview, Problem, Spent, Total
else:
    __getattr__ = lazy.names(
        __name__, book="Ledger Payment binding_of", parts="Division",
        values="Charge Entry Origin Preview Problem Spent Total",
    )  # fmt: skip

__all__ = [
    "Charge", "Division", "Entry", "Ledger", "Origin", "Payment", "Preview", "Problem", "Spent", "Total", "binding_of",
]  # fmt: skip
