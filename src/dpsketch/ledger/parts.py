"""Disjoint parts of a dataset, such as its days: what one unit's change can touch, and what that costs.

Parts are named by a public attribute of a record that no record has two values of. A release is made either of one
part's records or, without a name, of any records of the dataset.

Proof
-----
Let a charge's cost hold for one unit that changes under the budget's neighbour relation. Fix two neighbouring datasets.
Every release, whichever was chosen after seeing the ones before it, is a mechanism on the records of its part.

*Add or remove.* One unit is added to, or removed from, one part i. A release of another part j reads the same records
in both datasets: given what was released before, its law is the same, and it adds no privacy loss. What is left are the
releases of part i and those of the whole, and these compose as any do. The pair of datasets names i, so the dataset has
spent the *largest*, over all i, of what the charges to part i and to the whole come to (McSherry 2009, Theorem 4, where
each part is charged once).

*Replace.* One unit is replaced by another. If both are in part i, the case above holds. If the first is in part i and
the other in part j ≠ i, one is removed from part i and one is added to part j. Releases are functions of tables that a
record which counts for nothing leaves as they are, and costs under replace hold for replacing a record by one that
counts for nothing. So each charge to part i, each to part j and each to the whole bounds what its release shows; all
other parts show nothing. The dataset has spent the worst, over all *pairs* of parts, of the charges to the two and to
the whole. The largest part alone would be too little.

*Users.* All the above takes a unit that lies in one part. A user's records may lie in many, and then all parts compose.
Where the caller states that each user is in one part, neighbouring datasets are those of which that is true, and the
above holds for users. It cannot be checked while releasing without showing who is in two parts.

*Which histories are worst.* Costs of several kinds have no largest one: their (ε, δ) curves cross. So histories are
compared as wholes, and only such are left out as another one dominates: one that costs no less, whatever the δ. Of a
pair, each part may be exchanged for one that dominates it and is not the other; so whatever two others dominate is in
no worst pair that is needed.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, assert_never

from dpsketch import accounting
from dpsketch.errors import InvalidInput
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, MomentCost, PureCost, Unit, ZcdpCost

if TYPE_CHECKING:
    from dpsketch.ledger.values import Total

__all__ = ["Division", "Link", "State", "fits", "other_spelling", "worst_histories"]

# Parts of these names are written in one way only, so that no part has two names.
_FORMS = {
    "hour": r"\d{4}-\d\d-\d\dT\d\d",
    "day": r"\d{4}-\d\d-\d\d",
    "week": r"\d{4}-W\d\d",
    "month": r"\d{4}-\d\d",
    "year": r"\d{4}",
}
_EXAMPLES = {
    "hour": "2026-11-15T09",
    "day": "2026-11-15",
    "week": "2026-W46",
    "month": "2026-11",
    "year": "2026",
}


@dataclass(frozen=True, slots=True)
class Division:
    """By what a dataset is divided into parts that share no record.

    Attributes
    ----------
    by : str
        What names a part, as in "day". The names of hours, days, weeks, months and years are held to ISO 8601.
    disjoint_users : bool
        Whether the holder states that each user is in one part. Without it the parts of a budget of users compose.
    """

    by: str
    disjoint_users: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the division as JSON-ready values."""
        return {"by": self.by, "disjoint_users": self.disjoint_users}

    def compose(self, unit: Unit) -> bool:
        """Say whether the parts compose as any releases do, for a unit may lie in several."""
        return unit.level == "user" and not self.disjoint_users

    def check_name(self, part: str, known: Iterable[str]) -> None:
        """Refuse a name that could be a second name of one part.

        Two names are two parts, and two parts cost less than one. So a name that differs from a known one by case,
        space or form of its characters only is refused, and neither taken for the known part nor for another.
        """
        form = _FORMS.get(self.by)
        if form is not None and not re.fullmatch(form, part, re.ASCII):
            raise InvalidInput(
                f"a part by {self.by} is named as in {_EXAMPLES[self.by]!r}, so that no {self.by} has two names."
            )
        if part != part.strip() or not part:
            raise InvalidInput("a part's name must not be empty, and neither begin nor end with a space.")
        if other_spelling(part, known) is not None:
            raise InvalidInput(
                "this part's name differs from that of a part that was released only by case, spaces or the form of "
                "its characters. One part must have one name: use the name in `dpsketch ledger history`."
            )


def other_spelling(name: str, known: Iterable[str]) -> str | None:
    """Return a known name that differs from this one only by case, spaces or the form of its characters."""
    folded = _folded(name)
    return next((each for each in known if each != name and _folded(each) == folded), None)


def _folded(name: str) -> str:
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


@dataclass(frozen=True, slots=True)
class Link:
    """Where a chain ends: how many rows it has, and the last one's digest."""

    rows: int
    head: str


@dataclass(frozen=True, slots=True)
class State:
    """A dataset as its rows tell: its budget, and its charges counted by what they cost.

    ``costs`` are those of releases that name no part, and ``parts`` those of each part.
    """

    link: Link
    unit: Unit
    total: Total | None
    costs: Counter[Cost]
    releases: int
    division: Division | None = None
    parts: dict[str, Counter[Cost]] = field(default_factory=dict)

    @property
    def histories(self) -> list[Counter[Cost]]:
        """What one unit's change can touch; the worst of them is what is spent."""
        return worst_histories(self.costs, self.parts, self.unit, self.division)

    def charged(self, costs: Iterable[Cost], part: str | None) -> State:
        """Return the state after a charge."""
        more = Counter(costs)
        if part is None:
            return replace(self, costs=self.costs + more, releases=self.releases + 1)
        parts = self.parts | {part: self.parts.get(part, Counter()) + more}
        return replace(self, parts=parts, releases=self.releases + 1)


def fits(state: State, total: Total) -> bool:
    """Say whether everything that one unit's change can touch stays within a total."""
    return all(
        accounting.fits(costs, epsilon=total.epsilon, delta=total.delta, rho=total.rho) for costs in state.histories
    )


def worst_histories(
    whole: Counter[Cost], parts: Mapping[str, Counter[Cost]], unit: Unit, division: Division | None
) -> list[Counter[Cost]]:
    """Return what one unit's change can touch: histories of costs, the worst of which is what a dataset has spent.

    Parameters
    ----------
    whole : Counter of Cost
        What releases that name no part cost.
    parts : mapping of str to Counter of Cost
        What the releases of each part cost.
    unit : Unit
        Whose presence the budget protects.
    division : Division or None
        By what the dataset is divided.

    Examples
    --------
    >>> from dpsketch.privacy import per_record
    >>> days = {"monday": Counter([PureCost(0.5)]), "tuesday": Counter([PureCost(0.25)])}
    >>> worst_histories(Counter(), days, per_record(), Division("weekday"))
    [Counter({PureCost(epsilon=0.5): 1})]
    """
    if division is None or division.compose(unit):
        return [sum(parts.values(), whole)]
    match unit.neighbours:
        case "add_remove":
            touched: list[Counter[Cost]] = _undominated(parts.values(), 1)
        case "replace":
            left = _undominated(parts.values(), 2)
            touched = _undominated((one + other for one, other in combinations(left, 2)), 1) or left
        case _:
            assert_never(unit.neighbours)
    return [whole + costs for costs in touched] or [whole]


def _undominated(histories: Iterable[Counter[Cost]], times: int) -> list[Counter[Cost]]:
    """Return the histories that fewer than ``times`` others dominate; of equal ones, so many."""
    found = [_Weighed.of(history) for history in histories]
    found.sort(key=lambda each: each.size, reverse=True)
    kept: list[_Weighed] = []
    for each in found:
        above = 0
        for other in kept:
            above += other.dominates(each)
            if above == times:
                break
        else:
            kept.append(each)
    return [each.history for each in kept]


@dataclass(frozen=True, slots=True)
class _Weighed:
    """A history in a form that can be compared with others.

    Gaussians are one Gaussian of their summed μ², and costs in ρ add. The others are listed by kind, each list from the
    dearest down: a history dominates another if each of its numbers, and each of its costs in turn, does.
    """

    history: Counter[Cost]
    square: Fraction
    rho: Fraction
    pure: tuple[float, ...]
    approximate: tuple[tuple[float, float], ...]
    moments: Counter[MomentCost]

    @classmethod
    def of(cls, history: Counter[Cost]) -> _Weighed:
        square, rho = Fraction(0), Fraction(0)
        pure: list[float] = []
        approximate: list[tuple[float, float]] = []
        moments: Counter[MomentCost] = Counter()
        for cost, count in history.items():
            match cost:
                case GaussianCost(mu):
                    square += count * Fraction(mu) ** 2
                case ZcdpCost(each):
                    rho += count * Fraction(each)
                case PureCost(epsilon):
                    pure += [epsilon] * count
                case ApproximateCost(epsilon, delta):
                    approximate += [(epsilon, delta)] * count
                case MomentCost():
                    moments[cost] += count
                case _:
                    assert_never(cost)
        return cls(
            history, square, rho, tuple(sorted(pure, reverse=True)), tuple(sorted(approximate, reverse=True)), moments
        )

    @property
    def size(self) -> tuple[Any, ...]:
        """Something by which no history comes before one that dominates it and differs."""
        count = len(self.pure), len(self.approximate), self.moments.total()
        return (sum(count), self.square + self.rho, sum(self.pure), sum(map(sum, self.approximate)))

    def dominates(self, other: _Weighed) -> bool:
        """Say whether this history costs no less than the other, at every δ."""
        return (
            self.square >= other.square
            and self.rho >= other.rho
            and len(self.pure) >= len(other.pure)
            and all(ours >= theirs for ours, theirs in zip(self.pure, other.pure, strict=False))
            and len(self.approximate) >= len(other.approximate)
            and all(
                ours[0] >= theirs[0] and ours[1] >= theirs[1]
                for ours, theirs in zip(self.approximate, other.approximate, strict=False)
            )
            and other.moments <= self.moments
        )
