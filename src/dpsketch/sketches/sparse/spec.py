"""The public spec of a sparse histogram: its domain, its sizes, its unit, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self, assert_never

import numpy as np

from dpsketch._compiled import sparse as kernels
from dpsketch.arrays import Words
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.laws import Law
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.laws.sparse import ENTRIES, SparseLaw
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import ApproximateCost, Budget, PureCost, Unit, ZcdpCost
from dpsketch.sketches.sparse.calibration import projection_for, pure, stability
from dpsketch.sketches.sparse.estimators import predicted_error
from dpsketch.sketches.specs import ReleasePreview, Spec, hold_common

__all__ = ["DEFAULT_SEED", "SparseHistogramSpec"]

DEFAULT_SEED = 1
LARGEST_DOMAIN = 2**64
# Text keys are hashed into the domain; in a smaller one too many would meet.
LEAST_TEXT_DOMAIN = 2**40
# How far past the cutoff the columns reach, in scales of the threshold's noise: a value there is dropped with
# probability e⁻³/2, and those that are dropped read a little low.
_MARGIN = 3


@stored
@dataclass(frozen=True, slots=True)
class SparseHistogramSpec(Spec):
    """All that two sparse histograms must share to merge. Public, and so chosen from public knowledge only.

    Attributes
    ----------
    unit : Unit
        Whose presence a release hides.
    domain : int
        How many keys are possible. Integer keys lie in [0, domain); text keys are hashed into it, and add up where they
        meet.
    max_value : float or None
        No key's value is larger, as everybody knows; larger ones read as this. None: values of any size, for which part
        of the budget goes to a threshold part.
    expected_keys : int
        A guess at the number of distinct keys, *not* read off the data: it only sets the table's size.
    collisions : float
        The probability, with that many keys, that another key sets a given bit of a key; sets the table's size too.
    threshold_share : float
        The threshold part's share of ε.
    alpha : int
        The paper's α.
    seed : int
        The seed of the hash functions; it protects nothing and is published.
    grid : float
        Weights are rounded to multiples of it.
    key_type : {"int", "text"} or None
        What the keys are, as the caller or a column's own type states it, or a domain that is too small for text; None
        if nothing does. It is never read off values.
    key_columns : tuple of str
        The columns of compound keys (see :mod:`dpsketch.compound`); empty where a key is one column.
    """

    unit: Unit
    domain: int = LARGEST_DOMAIN
    max_value: float | None = None
    expected_keys: int = 10_000
    collisions: float = 0.04
    threshold_share: float = 0.25
    alpha: int = 2
    seed: int = DEFAULT_SEED
    grid: float = 1
    key_type: KeyType | None = None
    key_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        hold_common(self)
        hold_whole(self, "domain", low=2, high=LARGEST_DOMAIN)
        hold_whole(self, "expected_keys", low=1, high=2**28)
        hold_whole(self, "alpha", low=1, high=62)
        hold_real(self, "collisions", "threshold_share")
        hold_real(self, "max_value", optional=True)
        _between("collisions", self.collisions, 0.001, 0.5)
        _between("threshold_share", self.threshold_share, 0.05, 0.95)
        grid = self.weight_grid
        if self.max_value is not None:
            _between("max_value", self.max_value, grid.step, grid.step * 2.0**60)
        if self.rows > 2**31:
            raise InvalidInput("expected_keys / collisions must not pass 2**31 rows.")
        if self.key_type == "text" and self.domain < LEAST_TEXT_DOMAIN:
            raise InvalidInput(
                "text keys are hashed into the domain, and below 2**40 too many would meet. Use domain=2**64, or "
                "number the keys."
            )

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"over {self.domain:,} keys"

    def arrays(self) -> dict[str, Any]:
        """Return no arrays: the sketch keeps a state of its own."""
        return {}

    @property
    def rows(self) -> int:
        """Bits in a column of the table: expected keys over collisions, rounded up to whole words."""
        return 64 * math.ceil(self.expected_keys / self.collisions / 64)

    @property
    def published(self) -> Self:
        """The spec as a release shows it: a domain that is too small for text holds integers, whoever states it."""
        return replace(self, key_type="int") if self.domain < LEAST_TEXT_DOMAIN else self

    @property
    def memory(self) -> int:
        """Bytes that the expected keys take while they are counted."""
        return 16 * self.expected_keys

    def tables(self) -> tuple[Table, ...]:
        """Return the entries. A unit has at most ``max_keys`` keys, and adds at most its largest weight to each."""
        return (Table(ENTRIES, (self.domain,), Move.each(self.unit.max_keys, self.weight_grid.max_units)),)

    def laws(self, budget: Budget) -> tuple[SparseLaw]:
        """Return the law of a release at this budget.

        With ``max_value`` the ALP part gets all of ε, and no δ is needed. Otherwise the threshold part gets
        ``threshold_share`` of ε and all of δ, the ALP part the rest.
        """
        match budget.cost:
            case PureCost(epsilon):
                delta = 0.0
            case ApproximateCost(epsilon, delta):
                pass
            case ZcdpCost(rho):
                raise InvalidInput(
                    "a sparse histogram flips bits and adds Laplace noise, which pure ε describes best: give epsilon= "
                    f"with delta= instead of rho=. epsilon={_floor(math.sqrt(2 * rho))} with delta=0 stays within the "
                    "rho asked for."
                )
            case never:
                assert_never(never)
        (table,), neighbours = self.tables(), self.unit.neighbours
        apart = table.between(neighbours)
        if self.max_value is not None:
            survival, top = None, math.floor(self.max_value / self.grid)
        else:
            share = self.threshold_share * epsilon
            epsilon = _rest(epsilon, share)
            if delta:
                survival = stability(share, delta, apart, table.move)
            else:
                survival = pure(share, apart, self.domain)
            top = survival.cutoff + math.ceil(_MARGIN / survival.rate)
        sizes = {"top": top, "rows": self.rows, "alpha": self.alpha, "seed": self.seed}
        return (SparseLaw(table, neighbours, projection_for(epsilon, apart, **sizes), survival),)

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        (law,) = laws
        return law.words

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and how far it would move the estimate of a mid-sized value.

        ``noise_scale`` is the standard deviation of that estimate without collisions, ``predicted_error`` with those of
        the expected number of keys.
        """
        budget = Budget(epsilon, delta, rho)
        (law,) = self.laws(budget)
        return ReleasePreview(
            promise(self, Receipt(budget, (law,))),
            self.grid * predicted_error(law, 0.0),
            self.grid * predicted_error(law, self.collisions),
        )

    def positions(self, fingerprints: Words, key_type: KeyType | None) -> Words:
        """Return the places in the domain of keys, given by fingerprint.

        An integer key is its own place: fingerprints of integers can be undone. A text key's fingerprint is scaled to
        the domain.
        """
        if key_type == "text" and self.domain == LARGEST_DOMAIN:
            return fingerprints
        positions = np.empty_like(fingerprints)
        if key_type == "text":
            kernels.reduce_range(fingerprints, np.uint64(self.domain), positions)
            return positions
        kernels.invert_fingerprints(fingerprints, positions)
        if self.domain < LARGEST_DOMAIN and np.any(positions >= np.uint64(self.domain)):
            raise InvalidInput(f"an integer key lies outside the domain [0, {self.domain}). State a larger domain=.")
        return positions


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidInput(f"{name} must be a number between {low:g} and {high:g}.")


def _rest(total: float, part: float) -> float:
    """Return the largest double that with ``part`` does not pass ``total``, without rounding."""
    rest = total - part
    while Fraction(rest) + Fraction(part) > Fraction(total):
        rest = math.nextafter(rest, 0.0)
    return rest


def _floor(value: float) -> str:
    """Return a number in four digits, rounded down."""
    digits = 10 ** (3 - math.floor(math.log10(value)))
    return f"{math.floor(value * digits) / digits:.4g}"
