"""What a ledger says: charges, entries, what is spent, what one more charge would do, and what is wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, assert_never

from dpsketch import accounting
from dpsketch.errors import InvalidInput
from dpsketch.ledger.parts import Division, State, fits
from dpsketch.numbers import typed_number
from dpsketch.privacy import (
    ApproximateCost,
    Budget,
    Cost,
    GaussianCost,
    MomentCost,
    PureCost,
    Unit,
    ZcdpCost,
    cost_to_json,
)

__all__ = [
    "Charge", "Entry", "Kind", "Order", "Origin", "Preview", "Problem", "Spent", "Total", "preview_of", "spent_of",
]  # fmt: skip

Kind = Literal["create", "total", "charge"]
# The δ that ε is stated at where no total names one.
_DELTA = 1e-6
# What still fits is found to one part in a thousand.
_HALVINGS = 10


def _number(value: float, digits: int = 2) -> str:
    """Write a budget: two decimals, or as many significant digits where it is small."""
    if math.isinf(value):
        return "∞"
    return f"{value:.{digits}f}" if value >= 0.1 or value == 0 else f"{value:.{digits}g}"


def _power(value: float) -> str:
    """Write a δ as 1e-6, in three significant digits."""
    return typed_number(float(f"{value:.3g}"))


@dataclass(frozen=True, slots=True)
class Total(Budget):
    """What a dataset may spend: (ε, δ) or ρ."""

    @property
    def words(self) -> str:
        """The total in a phrase, as in "ε=2.00 at δ=1e-6"."""
        if self.rho is not None:
            return f"ρ={_number(self.rho)}"
        return f"ε={_number(self.epsilon or 0.0)} at δ={_power(self.delta or 0.0)}"

    def to_json(self) -> dict[str, Any]:
        """Return the total as JSON-ready values."""
        return dict(self.keywords)


@dataclass(frozen=True, slots=True)
class Charge:
    """The row that a release was charged as; a release file carries it.

    Attributes
    ----------
    dataset : str
        The dataset that was charged.
    id : int
        The row's number in the dataset's chain; the first charge is 1.
    digest : str
        The row's SHA-256, which covers every row before it.
    total : Total or None
        The dataset's total when it was charged: None where nobody set one, and in a charge that was read from a file.
    """

    dataset: str
    id: int
    digest: str
    total: Total | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return dataset, id and digest as JSON-ready values."""
        return {"dataset": self.dataset, "id": self.id, "digest": self.digest}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Charge:
        """Rebuild a charge from :meth:`to_json`."""
        match value:
            case {"dataset": str(dataset), "id": int(row), "digest": str(digest)} if 0 <= row < 2**63:
                return cls(dataset, row, digest)
        raise InvalidInput("a charge has a dataset, an id and a digest.")


class Order(NamedTuple):
    """What a release asks a ledger to pay for; see :meth:`~dpsketch.ledger.Ledger.charge`."""

    dataset: str
    costs: Sequence[Cost]
    unit: Unit
    part: str | None
    note: str
    once: Sequence[str]
    partials: Iterable[str]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a charge came from; for whoever may read the ledger.

    Attributes
    ----------
    output : str
        The file that the release was written to.
    columns : str
        What it was made from, in words, as in "key url, user visitor"; empty where it is not known.
    who : str
        The user of the machine that ran the command.
    """

    output: str
    columns: str = ""
    who: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One charge as the ledger holds it.

    Attributes
    ----------
    dataset, id, digest
        As in :class:`Charge`.
    time : str
        When it was made, in UTC.
    costs, unit, note
        What was charged, and for what.
    written : bool or None
        Where a command charged and wrote a file: whether the writing began. False is a charge whose release was lost
        before anyone saw it; the same command uses it again. None where the release was handed to its caller.
    part : str or None
        The part of the dataset that the release was made of; None where it may hold records of all.
    origin : Origin or None
        Where a command wrote it, from which columns, and who ran it.
    """

    dataset: str
    id: int
    time: str
    costs: tuple[Cost, ...]
    unit: Unit
    note: str
    digest: str
    written: bool | None = None
    part: str | None = None
    origin: Origin | None = None

    @property
    def cost_words(self) -> str:
        """The costs in a phrase, as in "Gaussian μ=0.24"."""
        return ", ".join(_cost_words(cost) for cost in self.costs)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON-ready values."""
        return {
            "dataset": self.dataset,
            "id": self.id,
            "time": self.time,
            "costs": [cost_to_json(cost) for cost in self.costs],
            "unit": self.unit.to_json(),
            "note": self.note,
            "digest": self.digest,
            "written": self.written,
            "part": self.part,
            "origin": None if self.origin is None else asdict(self.origin),
        }


def _cost_words(cost: Cost) -> str:
    match cost:
        case PureCost(epsilon):
            return f"pure ε={epsilon:.3g}"
        case GaussianCost(mu):
            return f"Gaussian μ={mu:.3g}"
        case ZcdpCost(rho):
            return f"ρ={rho:.3g}"
        case ApproximateCost(epsilon, delta):
            return f"ε={epsilon:.3g}, δ={_power(delta)}"
        case MomentCost(p, size, ratio):
            return f"moment p={p:g}, {size} coordinates, ratio {ratio:.4g}"
        case _:
            assert_never(cost)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a dataset has spent.

    Attributes
    ----------
    dataset : str
        The dataset.
    unit : Unit
        Whose presence its budget protects.
    epsilon, delta : float
        All charges together. δ is the total's; without a total in (ε, δ) it is 0 where every charge is pure, else 1e-6
        or twice the δ that charges brought along, whichever is larger.
    rho : float or None
        All charges together in ρ, where each has one.
    releases : int
        How many charges there are.
    total : Total or None
        What may be spent; None where nobody set it.
    parts : int
        How many parts were released, where the dataset is divided.
    division : Division or None
        By what it is divided into parts that share no record.

    Privacy
    -------
    Of a divided dataset ε, δ and ρ are those of the unit that is worst off: of the dearest part, or of the dearest two
    where a unit is replaced, with all releases that name no part. See :mod:`dpsketch.ledger.parts`.
    """

    dataset: str
    unit: Unit
    epsilon: float
    delta: float
    rho: float | None
    releases: int
    total: Total | None
    parts: int = 0
    division: Division | None = None

    @property
    def share(self) -> float | None:
        """The spent part of the total, between 0 and 1 and perhaps a rounding above; None without a total."""
        if self.total is None:
            return None
        if self.total.rho is not None:
            return math.inf if self.rho is None else self.rho / self.total.rho
        return self.epsilon / (self.total.epsilon or math.inf)

    @property
    def total_words(self) -> str:
        """The total in a phrase."""
        return "without a total" if self.total is None else self.total.words

    @property
    def words(self) -> str:
        """What is spent in a phrase, as in "ε=1.69 of 2.00 at δ=1e-6 spent in 3 releases"."""
        said = f"{self._amount(None)} spent in {self.releases} {'release' if self.releases == 1 else 'releases'}"
        return said + self._parts_words + ("" if self.total else "; no total was set")

    @property
    def _parts_words(self) -> str:
        if self.division is None:
            return ""
        counted = f" of {self.parts} {'part' if self.parts == 1 else 'parts'} by {self.division.by}"
        if self.division.compose(self.unit):
            return f"{counted}, which compose: a user may be in several"
        worst = {"add_remove": "the dearest part counts", "replace": "the dearest two parts count"}
        return f"{counted}: {worst[self.unit.neighbours]}"

    def refusal(self, after: Spent, fitting: str = "") -> str:
        """Say why a charge that would lead to ``after`` is refused, and what would be taken."""
        if after.epsilon == math.inf and self.total is not None and self.total.delta == 0:
            why = "this release has a δ above 0, which a total at δ=0 never covers"
        elif self.total is not None and self.total.rho is not None and after.rho is None:
            why = "this release costs an (ε, δ) that no ρ stands for"
        else:
            why = f"this release would reach {after._reached()}"
        said = f"dataset {self.dataset!r} has spent {self._amount(after)}; {why}. Nothing was charged or released."
        return f"{said} {fitting}" if fitting else said

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON-ready values; an infinite ε is null."""
        return {
            "dataset": self.dataset,
            "unit": self.unit.to_json(),
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "rho": self.rho,
            "releases": self.releases,
            "total": None if self.total is None else self.total.to_json(),
        } | ({} if self.division is None else {"parts": self.parts, "division": self.division.to_json()})

    def _amount(self, after: Spent | None) -> str:
        digits = 2 if after is None else after._digits()
        if self.total is not None and self.total.rho is not None:
            spent = "more than any ρ" if self.rho is None else _number(self.rho, digits)
            return f"ρ={spent} of {_number(self.total.rho, digits)}"
        limit = "" if self.total is None else f" of {_number(self.total.epsilon or 0.0, digits)}"
        return f"ε={_number(self.epsilon, digits)}{limit} at δ={_power(self.delta)}"

    def _reached(self) -> str:
        reached = self.rho if self.total is not None and self.total.rho is not None else self.epsilon
        return _number(math.inf if reached is None else reached, self._digits())

    def _digits(self) -> int:
        """Return how many digits tell what was reached from the total."""
        if self.total is None:
            return 2
        reached, limit = self.epsilon, self.total.epsilon
        if self.total.rho is not None:
            reached, limit = (math.inf if self.rho is None else self.rho), self.total.rho
        return next((n for n in range(2, 15) if _number(reached, n) != _number(limit or 0.0, n)), 15)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a charge would do.

    Attributes
    ----------
    before, after : Spent
        The dataset without the charge and with it.
    allowed : bool
        Whether the total covers it.
    fitting : str
        Where it does not: what a release of the same mechanism may cost, as a sentence.
    """

    before: Spent
    after: Spent
    allowed: bool
    fitting: str = ""

    @property
    def words(self) -> str:
        """The answer in a sentence."""
        if not self.allowed:
            return self.before.refusal(self.after, self.fitting)
        return f"dataset {self.before.dataset!r}: {self.before.words}; with this release, {self.after.words}."

    def to_json(self) -> dict[str, Any]:
        """Return the preview as JSON-ready values."""
        return {"allowed": self.allowed, "before": self.before.to_json(), "after": self.after.to_json()}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as the ledger wrote it.

    Attributes
    ----------
    dataset : str
        The dataset whose chain is broken.
    id : int or None
        The row; None where the dataset as a whole is meant.
    what : str
        What is wrong with it.
    """

    dataset: str
    id: int | None
    what: str

    def __str__(self) -> str:
        row = "" if self.id is None else f", row {self.id}"
        return f"dataset {self.dataset!r}{row}: {self.what}"


def preview_of(dataset: str, state: State, costs: Sequence[Cost], part: str | None) -> Preview:
    """Say what a charge would do."""
    after = state.charged(costs, part)
    before, reached = spent_of(dataset, state), spent_of(dataset, after)
    if state.total is None or fits(after, state.total):
        return Preview(before, reached, True)
    return Preview(before, reached, False, _fitting(state, state.total, costs, part))


def _fitting(state: State, total: Total, costs: Sequence[Cost], part: str | None) -> str:
    """Say how large a release of the same mechanism may be; empty where its costs have no size."""
    if any(isinstance(cost, MomentCost) for cost in costs):
        return ""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fitting = fits(state.charged([_scaled(cost, middle) for cost in costs], part), total)
        low, high = (middle, high) if fitting else (low, middle)
    small = [_scaled(cost, low) for cost in costs]
    if total.rho is not None:
        name, size, at = "ρ", accounting.rho_of(small) or 0.0, ""
    else:
        name, size, at = "ε", accounting.compose(small, delta=total.delta or 0.0), " at that δ"
    if low == 0 and total.delta and any(_failures(each) > total.delta for each in state.charged(small, part).histories):
        return "There is not so much δ left: one with a smaller δ may fit."
    if low == 0 or size == 0:
        return "Not even a thousandth of it would fit."
    return f"A release of its kind fits with {name} up to {_rounded_down(size)}{at}."


def _scaled(cost: Cost, factor: float) -> Cost:
    match cost:
        case PureCost(epsilon):
            return PureCost(epsilon * factor)
        case GaussianCost(mu):
            return GaussianCost(mu * factor)
        case ZcdpCost(rho):
            return ZcdpCost(rho * factor**2)
        case ApproximateCost(epsilon, delta):
            return ApproximateCost(epsilon * factor, delta)
        case MomentCost():
            return cost
        case _:
            assert_never(cost)


def _rounded_down(value: float) -> str:
    """Write a positive number by two significant digits, none of them too many."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.floor(value / step) * step:.2g}"


def spent_of(dataset: str, state: State) -> Spent:
    """Return what the charges come to for the unit that is worst off."""
    histories = state.histories
    if state.total is not None and state.total.delta is not None:
        delta = state.total.delta
    elif all(isinstance(cost, PureCost) for costs in histories for cost in costs):
        delta = 0.0
    else:
        delta = min(max(_DELTA, 2 * max(map(_failures, histories))), 0.5)
    rhos = [accounting.rho_of(costs) for costs in histories]
    known = [rho for rho in rhos if rho is not None]
    return Spent(
        dataset,
        state.unit,
        max(accounting.compose(costs, delta=delta) for costs in histories),
        delta,
        max(known) if len(known) == len(rhos) else None,
        state.releases,
        state.total,
        len(state.parts),
        state.division,
    )


def _failures(costs: Counter[Cost]) -> float:
    return sum(cost.delta * count for cost, count in costs.items() if isinstance(cost, ApproximateCost))
