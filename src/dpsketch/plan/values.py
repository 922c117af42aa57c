"""What a plan is asked and what it answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from dpsketch import privacy
from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import Unit
from dpsketch.sketches.guess import guessed_counts

__all__ = ["Amount", "BudgetArguments", "Guess", "Proposal", "Shape", "out_of_reach"]

Shape = dict[str, int | float | str]


class BudgetArguments(TypedDict):
    """A budget as ``release`` takes it."""

    epsilon: float | None
    delta: float | None
    rho: float | None


@dataclass(frozen=True, slots=True)
class Guess:
    """How the data may look: records over distinct keys, the i-th in proportion to i^-skew. Public knowledge only.

    Attributes
    ----------
    records : float
        How many records there may be.
    keys : int
        How many distinct keys.
    skew : float
        Zipf's exponent: 0 where all keys are alike, about 1 for words, pages and products.
    users : float, optional
        Of how many users the records are. By default each user fills the unit's bound on keys.
    """

    records: float
    keys: int
    skew: float
    users: float | None = None

    def __post_init__(self) -> None:
        hold_real(self, "records", "skew")
        hold_real(self, "users", optional=True)
        hold_whole(self, "keys")
        if self.users is not None and not 1 <= self.users <= self.records:
            raise InvalidInput("users must be at least 1, and no more than the records.")

    @property
    def counts(self) -> npt.NDArray[np.float64]:
        """The counts of all keys, largest first."""
        return guessed_counts(self.records, self.keys, self.skew, None)


@dataclass(frozen=True, slots=True)
class Amount:
    """The budget of the planned release, and whose presence it hides.

    Attributes
    ----------
    unit : Unit
        The unit of privacy.
    epsilon, delta, rho : float or None
        The budget, as a release takes it.
    """

    unit: Unit
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None

    def __post_init__(self) -> None:
        hold_real(self, "epsilon", "delta", "rho", optional=True)
        privacy.Budget(self.epsilon, self.delta, self.rho)

    @property
    def budget(self) -> BudgetArguments:
        """The budget itself, as ``release`` takes it."""
        return {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A shape, and what it is expected to be worth.

    Attributes
    ----------
    kind : str
        The kind of sketch.
    shape : dict
        Arguments of the sketch (and options of ``dpsketch run``).
    budget : dict
        The budget it was planned for.
    error : float
        The predicted error.
    error_of : str
        What that is the error of.
    memory : int
        Bytes of the sketch while it counts.
    seconds : float
        Time to count the guessed records on one core of this machine, as measured on a few of them.
    also : dict
        Further figures, by name.
    notes : tuple of str
        What else to know.
    needs_list : bool
        Whether the release must be given a public list of keys.
    """

    kind: str
    shape: Shape
    budget: BudgetArguments
    error: float
    error_of: str
    memory: int
    seconds: float
    also: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    needs_list: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the proposal as JSON-ready values."""
        return {**asdict(self), "notes": list(self.notes)}


def out_of_reach(target: float, least: float, where: str) -> InvalidInput:
    """Return the refusal for a wanted error below what can be had."""
    return InvalidInput(
        f"no shape reaches an error of {target:g}: the least is about {least:.3g}, {where}. Allow a larger error, more "
        "memory or a larger budget."
    )
