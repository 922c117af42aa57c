"""Where a release is charged: what ``ledger=``, ``dataset=`` and ``part=`` of every kind say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsketch.errors import InvalidInput
from dpsketch.privacy import Cost, Unit

if TYPE_CHECKING:
    from dpsketch.ledger import Charge, Ledger

__all__ = ["Account"]


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
        from dpsketch.ledger import Ledger

        match self.ledger:
            case None:
                ledger = Ledger.default()
            case str(url):
                ledger = Ledger(url)
            case Ledger() as ledger:
                pass
        if self.part is None:
            return ledger.charge(self.dataset, costs, unit=unit, note=note, once=once)
        return ledger.charge(
            self.dataset, costs, unit=unit, part=self.part, note=note, once=once, partials=self.partials
        )
