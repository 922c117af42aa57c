"""Where a release is charged: what ``ledger=``, ``dataset=`` and ``part=`` of every kind say together.

A stream is charged before its records come. Its :class:`Prepaid` part then registers every sketch that it absorbs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.privacy import Cost, Unit

if TYPE_CHECKING:
    from dpsketch.ledger import Charge, Ledger

__all__ = ["Account", "Prepaid"]


@dataclass(frozen=True, slots=True)
class Account:
    """A dataset's budget, or nobody's.

    Attributes
    ----------
    ledger, dataset : Ledger or URL, str, optional
        Where to charge. Without either nothing is charged; a dataset alone is charged to the default ledger.
    part : str, optional
        The part of the dataset that the release is made of, as in ``"2026-11-15"``. The dataset must have been created
        with ``parts=``; the ledger then knows that its parts share no record.
    partials : tuple of str
        Names of the partials in the sketch; a ledger refuses to take one of them for two parts.
    """

    ledger: Ledger | str | None = None
    dataset: str | None = None
    part: str | None = None
    partials: tuple[str, ...] = ()

    def charge(self, costs: tuple[Cost, ...], unit: Unit, note: str, once: Sequence[str]) -> Charge | None:
        """Charge a release; None where nothing is charged."""
        if self.ledger is None and self.dataset is None and self.part is None:
            return None
        if self.dataset is None:
            raise InvalidInput(
                "a ledger charges a dataset, and a part is one of a dataset: say dataset='name' as well."
            )
        ledger = _opened(self.ledger)
        if self.part is None:
            return ledger.charge(self.dataset, costs, unit=unit, note=note, once=once)
        return ledger.charge(
            self.dataset, costs, unit=unit, part=self.part, note=note, once=once, partials=self.partials
        )

    def prepaid(self, charge: Charge | None) -> Prepaid | None:
        """Return the part that was charged; None where the charge names no part."""
        return None if charge is None or self.part is None else Prepaid(self.part, charge, _opened(self.ledger))


@dataclass(frozen=True, slots=True)
class Prepaid:
    """A part of a dataset that was charged for a sketch before its records came.

    Attributes
    ----------
    part : str
        The part's name.
    charge : Charge
        The ledger's row.
    ledger : Ledger or URL, optional
        The ledger that was charged. A file does not say where it is.

    Privacy
    -------
    A part costs less than a release of the whole because no other part has its records. The charge can only name the
    partials of that moment, so the ledger must be told of later ones before they are absorbed.
    """

    part: str
    charge: Charge
    ledger: Ledger | str | None = None

    def register(self, partials: Iterable[str]) -> None:
        """Record names of partials as of this part; refuse those that the ledger knows as of another part."""
        if self.ledger is None:
            raise ReleaseRefused(
                f"this sketch was charged as part {self.part!r} of dataset {self.charge.dataset!r}, and that ledger "
                "must record each sketch that is merged into it. Give the ledger that was charged, with ledger=."
            )
        _opened(self.ledger).register_partials(self.charge, partials)


def _opened(ledger: Ledger | str | None) -> Ledger:
    """Return the ledger that was named, or the default one."""
    from dpsketch.ledger import Ledger

    match ledger:
        case None:
            return Ledger.default()
        case str(url):
            return Ledger(url)
        case Ledger():
            return ledger
