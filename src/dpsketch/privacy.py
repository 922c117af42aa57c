"""Privacy as values: the unit that is protected, what a release costs, and what it promises.

Everything here is frozen, comparable and printable in words. Numbers are computed in :mod:`dpsketch.accounting`;
this module only says what they mean.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, assert_never

from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_real, hold_whole, real_number

__all__ = [
    "CARELESS_DELTA",
    "Again",
    "ApproximateCost",
    "Budget",
    "Cost",
    "GaussianCost",
    "Guarantee",
    "MomentCost",
    "Neighbours",
    "PureCost",
    "Unit",
    "ZcdpCost",
    "best_guess",
    "cost_from_json",
    "cost_to_json",
    "per_record",
    "per_user",
    "percentage",
]

# Past this a budget protects nobody, and the ε it implies leaves the range in which it can be computed.
_LARGEST_RHO = 1e9
# From this δ on, a release could show one record in a hundred whole and still keep its promise.
CARELESS_DELTA = 0.01
# Past this e^ε leaves the range of a float.
_LARGEST_EXPONENT = 700.0
# Whom an answer counts where a user may count again.
_AGAIN: dict[str, str] = {
    "day": "user-days (a user counts again on every day)",
    "release": "users of each release (a user in both counts in each)",
}
# No bound that is chosen privately passes this; public, for it must not depend on who has the most keys.
_LARGEST_CHOSEN = 4096

Neighbours = Literal["add_remove", "replace"]
Again = Literal["day", "release"]
Level = Literal["record", "user"]


@dataclass(frozen=True, slots=True)
class PureCost:
    """A mechanism whose privacy loss never exceeds ``epsilon`` (Laplace, randomised response, ALP)."""

    epsilon: float

    def __post_init__(self) -> None:
        hold_real(self, "epsilon")


@dataclass(frozen=True, slots=True)
class GaussianCost:
    """A Gaussian mechanism; ``mu`` is its L2 sensitivity over its standard deviation."""

    mu: float

    def __post_init__(self) -> None:
        hold_real(self, "mu")


@dataclass(frozen=True, slots=True)
class ZcdpCost:
    """Any mechanism known only to satisfy ``rho``-zero-concentrated differential privacy."""

    rho: float

    def __post_init__(self) -> None:
        hold_real(self, "rho")


@dataclass(frozen=True, slots=True)
class ApproximateCost:
    """Any mechanism known only to satisfy (``epsilon``, ``delta``)-differential privacy."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        hold_real(self, "epsilon", "delta")


@dataclass(frozen=True, slots=True)
class MomentCost:
    """A moment sketch: ``size`` coordinates of a ``p``-stable law whose scale changes by at most ``ratio``."""

    p: float
    size: int
    ratio: float

    def __post_init__(self) -> None:
        hold_real(self, "p", "ratio")
        hold_whole(self, "size")


Cost = PureCost | GaussianCost | ZcdpCost | ApproximateCost | MomentCost

_COST_NAMES: dict[str, type[PureCost | GaussianCost | ZcdpCost | ApproximateCost | MomentCost]] = {
    "pure": PureCost,
    "gaussian": GaussianCost,
    "zcdp": ZcdpCost,
    "approximate": ApproximateCost,
    "moment": MomentCost,
}


def cost_to_json(cost: Cost) -> dict[str, Any]:
    """Return a cost as JSON-ready values, its kind under ``"kind"``."""
    match cost:
        case PureCost(epsilon):
            return {"kind": "pure", "epsilon": epsilon}
        case GaussianCost(mu):
            return {"kind": "gaussian", "mu": mu}
        case ZcdpCost(rho):
            return {"kind": "zcdp", "rho": rho}
        case ApproximateCost(epsilon, delta):
            return {"kind": "approximate", "epsilon": epsilon, "delta": delta}
        case MomentCost(p, size, ratio):
            return {"kind": "moment", "p": p, "size": size, "ratio": ratio}
        case _:
            assert_never(cost)


def cost_from_json(value: dict[str, Any]) -> Cost:
    """Rebuild a cost from :func:`cost_to_json`."""
    fields = dict(value)
    kind = fields.pop("kind", None)
    if kind not in _COST_NAMES:
        raise InvalidInput(f"unknown kind of privacy cost: {kind!r}.")
    return _COST_NAMES[kind](**fields)


@dataclass(frozen=True, slots=True)
class Unit:
    """Whose presence a guarantee hides, and the bound on what one of them contributes.

    Build it with :func:`per_record` or :func:`per_user`.

    Attributes
    ----------
    level : {"record", "user"}
        One record, or everything one user contributes.
    max_keys : int
        At most so many distinct keys (or points) a user; 1 at record level. Where it is chosen, the largest choice.
    max_weight : float
        At most this weight on one key; weights above it are clipped.
    neighbours : {"add_remove", "replace"}
        Whether two neighbouring datasets differ by one unit added or removed, or by one unit replaced.
    chosen : bool
        Whether each release chooses the bound on a user's keys, privately and from its own budget.
    """

    level: Level
    max_keys: int
    max_weight: float
    neighbours: Neighbours
    chosen: bool = False

    def __post_init__(self) -> None:
        if self.level not in ("record", "user"):
            raise InvalidInput(f"a unit's level is 'record' or 'user', not {self.level!r}.")
        if self.neighbours not in ("add_remove", "replace"):
            raise InvalidInput(f"neighbours is 'add_remove' or 'replace', not {self.neighbours!r}.")
        hold_whole(self, "max_keys", low=1)
        hold_real(self, "max_weight")
        if not (math.isfinite(self.max_weight) and self.max_weight > 0):
            raise InvalidInput(f"max_weight must be positive and finite, not {self.max_weight!r}.")
        if self.chosen is not False and (
            self.chosen is not True or (self.level, self.max_keys) != ("user", _LARGEST_CHOSEN)
        ):
            raise InvalidInput(f"a bound that is chosen is one on a user's keys, of at most {_LARGEST_CHOSEN}.")

    @property
    def words(self) -> str:
        """The unit in a phrase, as in "each record added or removed (weight at most 1)"."""
        if self.level == "record":
            return f"{self.changed} (weight at most {self.max_weight:g})"
        return f"{self.changed} (at most {self._keys}, weight at most {self.max_weight:g} on each)"

    @property
    def changed(self) -> str:
        """The unit and how neighbours differ, as in "each record added or removed"."""
        match self.neighbours:
            case "add_remove":
                change = "added or removed"
            case "replace":
                change = "replaced by another"
            case _:
                assert_never(self.neighbours)
        return f"each {'record' if self.level == 'record' else 'user with all their records'} {change}"

    @property
    def _keys(self) -> str:
        if self.chosen:
            return "a privately chosen number of keys"
        return "1 key" if self.max_keys == 1 else f"{self.max_keys} keys"

    @property
    def secret(self) -> str:
        """What a guarantee hides, as the object of a guess: "whether any one record is in the data"."""
        match self.neighbours:
            case "add_remove":
                return f"whether any one {self.level} is in the data"
            case "replace":
                return f"which of two things any one {self.level} holds"
            case _:
                assert_never(self.neighbours)

    @property
    def counts(self) -> str:
        """What an estimate counts under this bound: what is above it was cut before, and no interval speaks of it."""
        if self.level == "record":
            return (
                "records" if self.max_weight == 1 else f"records by weight, clipped: at most {self.max_weight:g} each"
            )
        return self.users_counted()

    def users_counted(self, *, who: str = "users", keys: str | None = None) -> str:
        """Return what is counted of users, with the bound that clips each: every such description is made here."""
        weight = f"(weight at most {self.max_weight:g} on each)"
        return f"{who}, clipped: at most {keys or self._keys} counted each {weight}"

    def to_json(self) -> dict[str, Any]:
        """Return the unit as JSON-ready values."""
        stated = {
            "level": self.level,
            "max_keys": self.max_keys,
            "max_weight": self.max_weight,
            "neighbours": self.neighbours,
        }
        return {**stated, "chosen": True} if self.chosen else stated

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Unit:
        """Rebuild a unit from :meth:`to_json`."""
        return cls(
            value["level"], value["max_keys"], value["max_weight"], value["neighbours"], value.get("chosen", False)
        )


def per_record(*, max_weight: float = 1, neighbours: Neighbours = "add_remove") -> Unit:
    """Protect one record.

    Examples
    --------
    >>> print(per_record().words)
    each record added or removed (weight at most 1)
    """
    return Unit("record", 1, max_weight, neighbours)


def per_user(max_keys: int | Literal["auto"], *, max_weight: float = 1, neighbours: Neighbours = "add_remove") -> Unit:
    """Protect everything one user contributes, bounded to ``max_keys`` distinct keys of ``max_weight`` each.

    With ``"auto"`` each release of a :class:`~dpsketch.Histogram` chooses the bound, with 5% of its ε.

    Examples
    --------
    >>> print(per_user(max_keys=30, neighbours="replace").words)
    each user with all their records replaced by another (at most 30 keys, weight at most 1 on each)
    """
    if isinstance(max_keys, str):
        if max_keys != "auto":
            raise InvalidInput("max_keys is a whole number, or 'auto' where each release is to choose it privately.")
        return Unit("user", _LARGEST_CHOSEN, max_weight, neighbours, chosen=True)
    return Unit("user", max_keys, max_weight, neighbours)


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent: ε with δ (0 for pure privacy), or ρ. Anything else is refused when it is made.

    Attributes
    ----------
    epsilon, delta : float or None
        An (ε, δ) budget.
    rho : float or None
        A zero-concentrated budget instead of the two.

    Examples
    --------
    >>> Budget(1.0, 0).cost
    PureCost(epsilon=1.0)
    """

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None

    def __post_init__(self) -> None:
        hold_real(self, "epsilon", "delta", "rho", optional=True)
        if self.rho is not None:
            if self.epsilon is not None or self.delta is not None:
                raise InvalidInput("give either rho, or epsilon and delta, not both.")
            if not 0 < self.rho <= _LARGEST_RHO:
                raise InvalidInput(f"rho must be positive and at most {_LARGEST_RHO:g}, not {self.rho!r}.")
            return
        if self.epsilon is None:
            raise InvalidInput("a release needs a budget: epsilon= with delta= (delta=0 for pure privacy), or rho=.")
        if not 0 < self.epsilon <= sys.float_info.max:
            raise InvalidInput(f"epsilon must be positive and finite, not {self.epsilon!r}.")
        if self.delta is None:
            raise InvalidInput("say delta= as well: for example delta=1e-6, or delta=0 for pure privacy.")
        if not 0 <= self.delta < 1:
            raise InvalidInput(f"delta must be at least 0 and below 1, not {self.delta!r}.")

    @property
    def cost(self) -> PureCost | ApproximateCost | ZcdpCost:
        """The budget as the cost that a release may have; to be matched."""
        if self.rho is not None:
            return ZcdpCost(float(self.rho))
        epsilon, delta = float(self.epsilon or 0), float(self.delta or 0)
        return ApproximateCost(epsilon, delta) if delta > 0 else PureCost(epsilon)

    @property
    def keywords(self) -> dict[str, float | None]:
        """The budget as a ``release`` takes it."""
        return {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}


def best_guess(epsilon: float, delta: float = 0.0) -> float:
    """Return how often an attacker can guess right, who would be right half the time without the releases.

    The attacker knows everything but which of two neighbouring datasets is the true one (whether one unit is in the
    data, or which of two things it holds), takes both for equally likely, and guesses after seeing the releases.
    Nobody is right more often than (e^ε + δ)/(1 + e^ε).

    Notes
    -----
    *Proof.* Let P and Q be the laws of what is seen under the two datasets, and S where the attacker guesses the first.
    Errors have probability a = 1 − P(S) and b = Q(S). As neighbours are neighbours both ways, P(S) ≤ e^ε·Q(S) + δ and
    1 − Q(S) ≤ e^ε·(1 − P(S)) + δ, that is, 1 − a ≤ e^ε·b + δ and 1 − b ≤ e^ε·a + δ. Their sum gives
    a + b ≥ 2(1 − δ)/(1 + e^ε), and the attacker is right with probability 1 − (a + b)/2. Tossing coins does not help,
    as it averages over such S. *No smaller bound holds*: a mechanism that shows the truth with probability δ, and
    otherwise passes it through randomised response with odds e^ε, is (ε, δ)-private, and lets one be right with
    probability δ + (1 − δ)·e^ε/(1 + e^ε), which is the same.

    Examples
    --------
    >>> round(best_guess(1.0), 3)
    0.731
    """
    epsilon, delta = real_number("epsilon", epsilon), real_number("delta", delta)
    if epsilon < 0 or not 0 <= delta <= 1:
        raise InvalidInput(f"({epsilon!r}, {delta!r}) is not a privacy guarantee.")
    return min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def percentage(probability: float) -> str:
    """Write a probability in per cent, rounded up to one digit, or to as many as tell it from 100%.

    Examples
    --------
    >>> percentage(0.7310586), percentage(0.99999)
    ('73.2%', '99.999%')
    """
    for digits in range(1, 13):
        scale = 10**digits
        # The room is for the error of the product alone: 0.55 is 55.0%.
        value = math.ceil(probability * 100 * scale - 1e-9) / scale
        if value < 100:
            return f"{value:.{digits}f}%"
    return "100%"


def _rounded_up(value: float, digits: int) -> str:
    """Write a bound with so many digits, rounded up: what is printed promises no more than the number.

    Examples
    --------
    >>> _rounded_up(2.7182818, 3), _rounded_up(2.0137527, 3), _rounded_up(0.5, 3)
    ('2.72', '2.02', '0.5')
    """
    nearest = f"{value:.{digits}g}"
    if float(nearest) >= value * (1 - 1e-12):
        return nearest
    step = Fraction(10) ** (math.floor(math.log10(value)) + 1 - digits)
    return f"{float(math.ceil(Fraction(value) / step) * step):.{digits}g}"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a release promises, to whom, and by which mechanism.

    Attributes
    ----------
    epsilon, delta : float
        The promise. For a release made with ``rho`` it is the (ε, δ) that ρ implies at this δ.
    unit : Unit
        Whose presence is hidden, and the bound on its contribution.
    costs : tuple of Cost
        What a ledger composes; one entry for one release, several where releases were combined.
    mechanism : str
        The mechanism in words, noise scale included.
    rho : float or None
        The zero-concentrated budget, where the release was made with one.
    caveat : str or None
        What else a reader must know (a computational assumption, say).
    holds : bool
        False for mechanisms kept for comparison whose published claim is not true, and for noise drawn for tests.
    counted_again : {"day", "release"} or None
        Where a user may count more than once on a key: on every day of a stream, or in each of two releases that were
        combined. Answers then count user-days, or users of each release, and not users.
    protects : str or None
        Whom it protects, in words, where the unit's own words do not fit the kind; None for these.
    """

    epsilon: float
    delta: float
    unit: Unit
    costs: tuple[Cost, ...]
    mechanism: str
    rho: float | None = None
    caveat: str | None = None
    holds: bool = True
    counted_again: Again | None = None
    protects: str | None = None

    def __post_init__(self) -> None:
        hold_real(self, "epsilon", "delta")
        hold_real(self, "rho", optional=True)
        if self.counted_again is not None and (self.counted_again not in _AGAIN or self.unit.level != "user"):
            raise InvalidInput("counted_again is 'day' or 'release', and goes with users.")

    def __str__(self) -> str:
        if not self.holds:
            return f"NOT PRIVATE: {self.caveat or 'no guarantee is given'} ({self.mechanism})"
        promise = f"ε = {_rounded_up(self.epsilon, 4)}"
        if self.delta:
            promise += f", δ = {_rounded_up(self.delta, 3)}"
        if self.rho is not None:
            promise = f"ρ = {_rounded_up(self.rho, 4)} zero-concentrated, hence {promise}"
        words = f"{promise}, for {self.protects or self.unit.words}. {self._meaning}. Mechanism: {self.mechanism}."
        return f"{words} {self.caveat}" if self.caveat else words

    @property
    def counts(self) -> str:
        """What an estimate under this guarantee counts."""
        return (
            self.unit.counts if self.counted_again is None else self.unit.users_counted(who=_AGAIN[self.counted_again])
        )

    @property
    def _meaning(self) -> str:
        """What the numbers say of an attacker, in one sentence; rounded up, so that it promises no more than they do.

        That odds change by at most e^ε holds for δ = 0 alone. Otherwise they may change by more, and more often than
        with probability δ: 20 times as often under Gaussian noise that is just (1, 10⁻⁶)-private.
        """
        words = (
            f"Whoever sees this release, knows everything else and guesses, from even odds, {self.unit.secret} is "
            f"right at most {percentage(best_guess(self.epsilon, self.delta))} of the time (a coin: 50%)"
        )
        if self.delta or self.epsilon > _LARGEST_EXPONENT:
            return words
        return f"{words}, and changes their odds by a factor of at most {_rounded_up(math.exp(self.epsilon), 3)}"

    def to_json(self) -> dict[str, Any]:
        """Return the guarantee as JSON-ready values, with the sentence a person reads under ``"words"``."""
        stated = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rho": self.rho,
            "unit": self.unit.to_json(),
            "costs": [cost_to_json(cost) for cost in self.costs],
            "mechanism": self.mechanism,
            "caveat": self.caveat,
            "holds": self.holds,
            "words": str(self),
        }
        return stated if self.counted_again is None else {**stated, "counted_again": self.counted_again}
