"""What every spec shares: a fingerprint of its public fields, and the refusal to merge two that differ."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpsketch.core.codec import decode, encode
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.laws import Law
from dpsketch.core.move import Table
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.laws.calibration import additive
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Budget, Guarantee, Unit
from dpsketch.sketches.weights import WeightGrid

# Sketches merge only if their seeds are equal, so that there is a fixed default.
DEFAULT_SEED = 1


@dataclass(frozen=True, slots=True)
class Spec:
    """The public facts that two sketches must share to merge. A subclass is a frozen dataclass with a ``unit``.

    It states its tables and their moves (:meth:`tables`). By default a release adds noise to every table, with equal
    shares of the budget.
    """

    # Whether records have weights; otherwise each key of a unit counts once.
    weighs: ClassVar[bool] = True

    if TYPE_CHECKING:

        @property
        def unit(self) -> Unit:
            """Whose presence a release hides."""

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"by {self.unit.level}"

    @property
    def protects(self) -> str | None:
        """Whom a release protects, in words; None for the unit's own words."""
        return None

    @property
    def weight_grid(self) -> WeightGrid:
        """How weights become whole units."""
        return WeightGrid(getattr(self, "grid", 1), self.unit.max_weight) if self.weighs else WeightGrid(1, 1)

    def tables(self) -> tuple[Table, ...]:
        """Return the tables, each with the move of one added unit."""
        raise NotImplementedError

    def shares(self) -> dict[Table, float]:
        """Return the tables with their shares of a budget."""
        tables = self.tables()
        return dict.fromkeys(tables, 1 / len(tables))

    def cells_of(self, names: Sequence[Any]) -> int:
        """Return the cells of a table that counts a public list of keys, where the spec leaves its length open."""
        return len(names)

    def laws(self, budget: Budget) -> tuple[Any, ...]:
        """Return how each part of a release is drawn."""
        return additive(budget, self.unit.neighbours, self.shares())

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        return laws[0].words

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of an empty sketch by name."""
        return {table.name: np.zeros(table.shape or 0, np.int64) for table in self.tables()}

    @property
    def memory(self) -> int:
        """Bytes of an empty sketch; eight more for each user counted."""
        return sum(8 * (table.size or 0) for table in self.tables())

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> ReleasePreview:
        """Return what a release would promise, and the error of its numbers."""
        budget = Budget(epsilon, delta, rho)
        laws = self.laws(budget)
        return ReleasePreview(promise(self, Receipt(budget, laws)), *self._errors(laws))

    def _errors(self, laws: tuple[Any, ...]) -> tuple[float, float]:
        """Return the scale of the noise, and the error of an answer."""
        error = math.sqrt(laws[0].noise.variance)
        return error, error

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON-ready values."""
        values: dict[str, Any] = encode(self)
        return values

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Rebuild a spec from :meth:`to_json`."""
        spec: Self = decode(value, cls)
        return spec


@dataclass(frozen=True, slots=True)
class ReleasePreview:
    """What a release would promise and be worth, known before anything is read or spent."""

    guarantee: Guarantee
    noise_scale: float
    predicted_error: float


def fingerprint_of(spec: Spec) -> str:
    """Return 16 hexadecimal digits that name a spec."""
    text = json.dumps(spec.to_json(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def refuse_mismatch(ours: Spec, theirs: Spec, action: str = "merge") -> None:
    """Raise :class:`SpecMismatch`, naming the fields, unless two specs are equal."""
    a, b = ours.to_json(), theirs.to_json()
    if type(ours) is not type(theirs):
        raise SpecMismatch(f"cannot {action}: a {type(ours).__name__} and a {type(theirs).__name__}.")
    differing = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    if differing:
        words = ", ".join(f"{name} differs ({_short(a.get(name))} and {_short(b.get(name))})" for name in differing)
        raise SpecMismatch(f"cannot {action}: {words}. Build both sketches from one spec.")


def _short(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def refuse_choice(unit: object) -> None:
    """Refuse a unit whose bound is chosen, of a kind whose releases choose none."""
    if isinstance(unit, Unit) and unit.chosen:
        raise InvalidInput(
            "max_keys='auto' lets a release choose the bound, which those of a Histogram do; other "
            "kinds choose none: state max_keys=N."
        )


def hold_common(spec: Any) -> None:
    """Check the fields that many specs share, as far as a spec has them, and hold them in Python's own types."""
    names = {field.name for field in fields(spec)}
    if not isinstance(spec.unit, Unit):
        raise InvalidInput("unit must be dps.per_record(…) or dps.per_user(…).")
    if "seed" in names:
        hold_whole(spec, "seed", low=0, high=2**64 - 1)
    if "key_type" in names:
        check_key_type(spec.key_type)
    if "key_columns" in names:
        hold_key_columns(spec)
    if "grid" in names:
        object.__setattr__(spec, "grid", WeightGrid(spec.grid, spec.unit.max_weight).step)


def check_key_type(key_type: object) -> None:
    """Refuse a key type that is not one."""
    if key_type is not None and key_type != "int" and key_type != "text":
        raise InvalidInput("key_type is 'int', 'text' or None.")


def hold_key_columns(spec: Any) -> None:
    """Check the columns of a spec's compound keys, if it has any, and hold them as a tuple."""
    columns = spec.key_columns
    good = isinstance(columns, tuple | list) and all(isinstance(name, str) for name in columns)
    if not good or len(columns) == 1 or len(set(columns)) < len(columns):
        raise InvalidInput("key_columns are the names of two or more different columns; without them a key has one.")
    if columns and spec.key_type == "int":
        raise InvalidInput("a key of several columns is text: leave the key type out, and of heavy say key_bytes=.")
    object.__setattr__(spec, "key_columns", tuple(columns))


def with_key_columns(spec: Any, columns: tuple[str, ...]) -> Any:
    """Return a spec whose keys are text of several columns; refuse one of a kind whose keys have one column."""
    names = {field.name for field in fields(spec)}
    if "key_columns" not in names:
        raise InvalidInput("a key of several columns means nothing to this kind of sketch: name one column.")
    stated = {"key_type": spec.key_type or "text"} if "key_type" in names else {}
    return replace(spec, key_columns=columns, **stated)
