"""What was published, by which laws, and what these promise together; with a kind's spec this is the file.

A file holds the spec, the budget that was asked for, the laws, and the arrays that they drew. A reader computes the
guarantee from the laws again, and refuses a file whose laws cost more than was asked for, or that states another
guarantee than they come to.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from dpsketch import accounting, files
from dpsketch.core.codec import decode, encode, stored
from dpsketch.core.laws import Arrays, Law
from dpsketch.core.move import Table
from dpsketch.errors import DpsketchError, FileRefused, InvalidInput, ReleaseRefused
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.privacy import Again, Budget, Cost, GaussianCost, Guarantee, PureCost, Unit
from dpsketch.truncated import TruncatedLaplace

if TYPE_CHECKING:
    from dpsketch.ledger import Charge

__all__ = [
    "Derived",
    "Drawn",
    "Part",
    "Plan",
    "Receipt",
    "combined",
    "composed",
    "promise",
    "read_release",
    "receipt_from_json",
    "receipt_to_json",
    "refuse_other_promise",
    "release_document",
    "stated_promise",
    "together",
]

PlanT = TypeVar("PlanT", bound="Plan")

# At this δ a release made with ρ also states its (ε, δ).
DELTA_FOR_RHO = 1e-6
SEEDED = "the noise came from a seeded source that exists for tests only"
_IN_BOTH = "Stated for someone who may be in both releases."
# Stands between the name of a part and the name of one of its arrays.
_BETWEEN = "__"

for _class in (Budget, DiscreteLaplace, RoundedGaussian, TruncatedLaplace, Unit):
    stored(_class)


class Plan(Protocol):
    """What a permit asks of a kind: its public spec."""

    @property
    def unit(self) -> Unit:
        """Whose presence a release hides."""

    def tables(self) -> Sequence[Table]:
        """Return the kind's tables, and how far one added unit moves each."""

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""

    @property
    def protects(self) -> str | None:
        """Whom a release protects, in words; None for the unit's own words."""


class Derived(ABC):
    """What was computed from draws of one law or several, at no cost: a sum of releases, a window of a stream.

    A subclass is a frozen dataclass, which a file holds beside the laws.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def laws(self) -> tuple[Law, ...]:
        """The laws that it was computed from."""

    @abstractmethod
    def fits(self, arrays: Arrays) -> bool:
        """Say whether these arrays may be it: anyone may have written a file."""


class Part(NamedTuple):
    """A part of a release: how it was drawn or computed, and its arrays."""

    law: Law | Derived
    arrays: Arrays


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was asked for, and the laws that were drawn for it. Public.

    Attributes
    ----------
    asked : Budget
        The budget.
    laws : tuple of Law
        The laws, in the order in which the kind states them.
    caveat : str or None
        What a reader must know beside the conditions that the laws state.
    holds : bool
        False if noise came from a seeded source, as in tests.
    charge : Charge or None
        The ledger's row, if a ledger was charged.
    """

    asked: Budget
    laws: tuple[Law, ...]
    caveat: str | None = None
    holds: bool = True
    charge: Charge | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What was published, and by which laws. Public: with the kind's spec this is the file of a release.

    Attributes
    ----------
    receipts : tuple of Receipt
        What was paid for: one receipt, or one of each release that was combined.
    parts : dict
        The parts by name.
    guarantee : Guarantee
        What the laws of all receipts come to.

    Notes
    -----
    Arrays become read-only: a release never changes.
    """

    receipts: tuple[Receipt, ...]
    parts: Mapping[str, Part]
    guarantee: Guarantee

    def __post_init__(self) -> None:
        for part in self.parts.values():
            for array in part.arrays.values() if isinstance(part.arrays, dict) else ():
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)

    @classmethod
    def of(cls, plan: Plan, receipts: Sequence[Receipt], parts: Mapping[str, Part]) -> Self:
        """Return what was drawn with the guarantee that its laws come to."""
        return cls(tuple(receipts), parts, together(plan, receipts))

    @property
    def charge(self) -> Charge | None:
        """The ledger's row of a release that was not combined, if a ledger was charged."""
        return self.receipts[0].charge if len(self.receipts) == 1 else None

    def table(self, name: str) -> Any:
        """Return the table of a part."""
        return self.parts[name].arrays["table"]

    def noise(self, name: str) -> Noise:
        """Return the noise in one cell of a table."""
        law: Any = self.parts[name].law
        noise: Noise = law.noise
        return noise


def composed(laws: Iterable[Law]) -> tuple[Cost, ...]:
    """Return what laws cost together: Gaussian costs as one, pure costs as one, and all others one by one.

    The μ² of Gaussian costs add up, and so do the ε of pure ones; sums are rounded up. A law that states several costs
    keeps them apart, because a ledger composes pure costs more tightly one by one.
    """
    stated = [law.costs() for law in laws]
    costs = [each[0] for each in stated if len(each) == 1]
    squares = [cost.mu**2 for cost in costs if isinstance(cost, GaussianCost)]
    pure = [cost.epsilon for cost in costs if isinstance(cost, PureCost)]
    found: list[Cost] = [cost for cost in costs if not isinstance(cost, GaussianCost | PureCost)]
    found += [cost for each in stated if len(each) > 1 for cost in each]
    if len(pure) == 1:
        found.insert(0, PureCost(pure[0]))
    elif pure:
        found.insert(0, PureCost(math.nextafter(math.fsum(pure), math.inf)))
    if len(squares) == 1:
        found.insert(0, next(cost for cost in costs if isinstance(cost, GaussianCost)))
    elif squares:
        found.insert(0, GaussianCost(math.nextafter(math.sqrt(math.nextafter(math.fsum(squares), math.inf)), math.inf)))
    return tuple(found)


def promise(plan: Plan, receipt: Receipt) -> Guarantee:
    """Return what the laws of a receipt promise; refuse laws that are not the kind's, or that cost more than was asked.

    Raises
    ------
    ReleaseRefused
        If a law is for another table or neighbour relation than the kind's, if the unit speaks of a chosen bound that
        no law chooses, or if the costs pass the budget.
    """
    laws, asked = receipt.laws, receipt.asked
    if not laws or len({law.name for law in laws}) < len(laws):
        raise ReleaseRefused("a release has one law or more, each with a name of its own; nothing was charged.")
    if plan.unit.chosen is not any(law.chooses for law in laws):
        raise ReleaseRefused("a bound is called chosen if, and only if, a law chooses it; nothing was charged.")
    stated = {table.name: table for table in plan.tables()}
    for law in laws:
        if law.neighbours != plan.unit.neighbours:
            raise ReleaseRefused(f"{law.name}: the law is for another neighbour relation; nothing was charged.")
        for table in law.tables:
            if table.name not in stated or not table.covers(stated[table.name]):
                raise ReleaseRefused(f"{law.name}: the law is for another table than the kind's; nothing was charged.")
    costs = composed(laws)
    pure = all(isinstance(cost, PureCost) for cost in costs)
    delta = 0.0 if pure else DELTA_FOR_RHO if asked.rho is not None else float(asked.delta or 0)
    if not _within(costs, asked.epsilon, None if asked.epsilon is None else delta, asked.rho):
        raise ReleaseRefused("the laws of this release cost more than was asked for; nothing was charged.")
    return Guarantee(
        epsilon=accounting.compose(costs, delta=delta) if asked.epsilon is None else asked.epsilon,
        delta=delta,
        unit=plan.unit,
        costs=costs,
        mechanism=plan.words(laws),
        rho=asked.rho,
        caveat=_caveat(plan.unit, receipt) if receipt.holds else SEEDED,
        holds=receipt.holds,
        counted_again=next((law.counted_again for law in laws if law.counted_again), None),
        protects=plan.protects,
    )


def _caveat(unit: Unit, receipt: Receipt) -> str | None:
    """Return the conditions of all laws, and what the receipt adds."""
    words = dict.fromkeys(filter(None, [*(law.caveat(unit) for law in receipt.laws), receipt.caveat]))
    return " ".join(words) or None


@lru_cache(maxsize=1024)
def _within(costs: tuple[Cost, ...], epsilon: float | None, delta: float | None, rho: float | None) -> bool:
    return accounting.fits(costs, epsilon=epsilon, delta=delta, rho=rho)


def together(plan: Plan, receipts: Sequence[Receipt]) -> Guarantee:
    """Return what receipts promise together to someone who is in the records of all of them."""
    guarantee, *others = (promise(plan, receipt) for receipt in receipts)
    for other in others:
        guarantee = combined(guarantee, other)
    return guarantee


def combined(first: Guarantee, second: Guarantee) -> Guarantee:
    """Return what two releases promise together; whatever caveat either has, the combination has too."""
    costs = first.costs + second.costs
    delta = max(first.delta, second.delta)
    epsilon = accounting.compose(costs, delta=delta)
    both = first.delta + second.delta
    if math.isinf(epsilon) and both < 1:
        # Costs that have a δ of their own leave none for the sum: what holds then is ε₁ + ε₂ with δ₁ + δ₂.
        added = math.nextafter(first.epsilon + second.epsilon, math.inf)
        delta, epsilon = both, min(accounting.compose(costs, delta=both), added)
    holds = first.holds and second.holds
    # Where one of them promises nothing, only its reason matters.
    inherited = [each.caveat for each in (first, second) if holds or not each.holds]
    caveats = [caveat.replace(_IN_BOTH, "").strip() for caveat in inherited if caveat]
    words = dict.fromkeys(filter(None, [_IN_BOTH, *caveats] if holds else caveats))
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        unit=first.unit,
        costs=costs,
        mechanism=f"{first.mechanism}; {second.mechanism}",
        caveat=" ".join(words) or None,
        holds=holds,
        counted_again=_again(first, second),
    )


def _again(first: Guarantee, second: Guarantee) -> Again | None:
    """Say where a user counts more than once in two releases together."""
    if first.unit.level == "record":
        return None
    return "day" if "day" in (first.counted_again, second.counted_again) else "release"


def release_document(kind: str, spec: Plan, drawn: Drawn) -> files.Document:
    """Return a release as a document of the file format.

    Raises
    ------
    InvalidInput
        If it is a part of another release, which has the laws that were paid for.
    """
    paid = [law for receipt in drawn.receipts for law in receipt.laws]
    if not all(isinstance(part.law, Derived) or part.law in paid for part in drawn.parts.values()):
        raise InvalidInput("this is a part of another release, whose guarantee is that of the whole: save the whole.")
    header = {
        "spec": encode(spec),
        "receipts": [receipt_to_json(receipt) for receipt in drawn.receipts],
        "derived": {name: encode(part.law) for name, part in drawn.parts.items() if isinstance(part.law, Derived)},
        "guarantee": stated_promise(drawn.guarantee),
    }
    arrays = {
        f"{name}{_BETWEEN}{array}": values
        for name, part in drawn.parts.items()
        for array, values in part.arrays.items()
    }
    return files.Document(kind, False, header, arrays)


def read_release(document: files.Document, spec_type: type[PlanT]) -> tuple[PlanT, Drawn]:
    """Return the spec of a file and what was drawn; the guarantee is computed from the laws.

    Raises
    ------
    FileRefused
        If the laws are not the kind's, cost more than was asked for, did not draw these arrays, or do not come to the
        guarantee that the file states.
    """
    header = document.header
    try:
        spec: PlanT = decode(header["spec"], spec_type)
        receipts = tuple(receipt_from_json(each) for each in header["receipts"])
        derived = {name: decode(each, Derived) for name, each in header["derived"].items()}
        guarantee = together(spec, receipts)
    except FileRefused:
        raise
    except (DpsketchError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FileRefused(f"the file is not one that dpsketch writes ({type(error).__name__}).") from None
    refuse_other_promise(header, guarantee)
    paid = [law for receipt in receipts for law in receipt.laws]
    drawn = [law for each in derived.values() for law in each.laws]
    # Every law was drawn: it has a part of its own, or a part was computed from it. A part that was computed from two
    # draws of equal laws, as a sum of two releases, was paid for twice.
    if any(each.laws.count(law) > paid.count(law) for each in derived.values() for law in each.laws):
        raise _refusal()
    laws: dict[str, Law | Derived] = {law.name: law for law in paid if law not in drawn}
    laws |= derived
    parts = {name: Part(law, _FileArrays(document, name)) for name, law in laws.items()}
    named = {f"{name}{_BETWEEN}{array}" for name, part in parts.items() for array in part.arrays}
    if named != set(document.arrays) or not all(part.law.fits(part.arrays) for part in parts.values()):
        raise FileRefused("the file's arrays are not those that its laws draw.")
    return spec, Drawn(receipts, parts, guarantee)


def refuse_other_promise(header: Mapping[str, Any], guarantee: Guarantee) -> None:
    """Refuse a file whose header states another guarantee than its laws come to.

    Sentences are not compared: a later version may say the same in other words.
    """
    stated, computed = header.get("guarantee"), guarantee.to_json()
    if not isinstance(stated, dict) or _numbers(stated) != _numbers(computed):
        raise FileRefused("the file states another guarantee than its laws come to.")


def stated_promise(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee as JSON-ready values; numbers stated as integers are floats, as a reader has them."""
    value = guarantee.to_json()
    numbers = {name: float(value[name]) for name in ("epsilon", "delta", "rho") if value[name] is not None}
    return {**value, **numbers, "unit": {**value["unit"], "max_weight": float(value["unit"]["max_weight"])}}


def receipt_to_json(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt as JSON-ready values."""
    return {
        "asked": encode(receipt.asked),
        "laws": [encode(law) for law in receipt.laws],
        "caveat": receipt.caveat,
        "holds": receipt.holds,
        "charge": None if receipt.charge is None else receipt.charge.to_json(),
    }


def receipt_from_json(value: Any) -> Receipt:
    """Rebuild a receipt from :func:`receipt_to_json`; whether it pays for its laws is to be checked."""
    asked, caveat, holds = decode(value["asked"], Budget), value["caveat"], value["holds"]
    laws = tuple(decode(law, Law) for law in value["laws"])
    if not isinstance(caveat, str | None) or not isinstance(holds, bool):
        raise _refusal()
    return Receipt(asked, laws, caveat, holds, _charge(value["charge"]))


class _FileArrays(Mapping[str, files.Array]):
    """The arrays of one part in a file; integers become wide when they are first asked for."""

    def __init__(self, document: files.Document, part: str) -> None:
        self._document, self._prefix = document, part + _BETWEEN

    def __getitem__(self, name: str) -> files.Array:
        return self._document.arrays[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        names = (name for name in self._document.arrays if name.startswith(self._prefix))
        return (name.removeprefix(self._prefix) for name in names)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def narrow(self, name: str) -> files.Array | None:
        """Return an array with integers as narrow as the file has them."""
        return self._document.stored(self._prefix + name)


def _charge(value: Any) -> Charge | None:
    if value is None:
        return None
    from dpsketch.ledger import Charge

    return Charge.from_json(value)


def _numbers(guarantee: dict[str, Any]) -> Any:
    """Return what is compared of a guarantee: all but its sentences, which must be text."""
    words = {name: isinstance(guarantee.get(name), str) for name in ("mechanism", "words")}
    return _rounded({**guarantee, **words})


def _rounded(value: Any) -> Any:
    """Return JSON-ready values with numbers to nine digits: another version may compute the last ones differently."""
    match value:
        case bool():
            return str(value)
        case float() | int():
            return float(f"{value:.9g}")
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
        case list():
            return [_rounded(each) for each in value]
        case _:
            return value


def _refusal() -> FileRefused:
    return FileRefused("the file's header is not one that dpsketch writes.")
