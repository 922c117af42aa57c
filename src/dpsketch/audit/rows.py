"""What every row of the table of audits has: a unit, a relation, and an audit of many releases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from dpsketch.audit.kinds import Level
from dpsketch.audit.mechanism import Finding
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Neighbours, Unit, per_record, per_user

__all__ = ["Row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(ABC):
    """Something that is released, at one unit and relation.

    Attributes
    ----------
    level, relation
        The unit.
    noise : float
        How much of the noise due is really drawn: 1, except where the audit itself is tested. Where noise cannot be
        taken away, the budget of a release is larger than the one claimed by as much.
    """

    level: Level
    relation: Neighbours
    noise: float = 1.0

    @property
    @abstractmethod
    def subject(self) -> str:
        """What is released."""

    @property
    def name(self) -> str:
        """What it is called."""
        return f"table-{self.subject}-{self.level}-{'replace' if self.relation == 'replace' else 'add'}"

    def unit_of(self, max_keys: int, max_weight: float = 1.0) -> Unit:
        """Return the unit: a record, or a user of so many keys, of at most so much weight each."""
        if self.level == "user":
            return per_user(max_keys, max_weight=max_weight, neighbours=self.relation)
        return per_record(max_weight=max_weight, neighbours=self.relation)

    @property
    def ending(self) -> str:
        """What became of a unit in its neighbour."""
        return "replaced" if self.relation == "replace" else "added"

    def audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release up to ``trials`` times for each stream, and bound ε from below on each pair of neighbours."""
        return self._audit(whole_number("trials", trials), probability("confidence", confidence))

    @abstractmethod
    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Audit, with numbers that were checked."""
