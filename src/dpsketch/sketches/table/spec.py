"""The public spec of a table: its groups, its columns and its unit, and the laws of its releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsketch.columns import UserType
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.laws import Law
from dpsketch.core.move import Move
from dpsketch.core.move import Table as CoreTable
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.laws.bounds import shape_table
from dpsketch.laws.centred import held_table, measure_table, persons_table, users_table
from dpsketch.laws.corners import MOST_CORNERS, cells_table
from dpsketch.laws.groups import Measure
from dpsketch.laws.rounds import weights_table
from dpsketch.privacy import Budget, PureCost, Unit
from dpsketch.sketches.specs import ReleasePreview, Spec
from dpsketch.sketches.table.calibration import CAP, Names, centred_table, column_shares, corner_table
from dpsketch.sketches.table.columns import Column

__all__ = ["BYTES_A_RECORD", "DAY_STEPS", "DAY_USERS", "TableSpec", "day_column"]

# The levels of a tree of quantiles.
_LEVELS = 5
BYTES_A_RECORD = 64
# The head counts of a stream's day, and what one pair of a unit and a row adds to a cell of the day at most.
DAY_USERS, DAY_STEPS = "day users", 1 << 16
_GUESSED_RECORDS = 100_000


def day_column(measure: Measure) -> str:
    """Return the name of a measure's column in a stream's day."""
    return f"day {measure.name}"


@stored
@dataclass(frozen=True, slots=True)
class TableSpec(Spec):
    """Public parameters of a table. Two tables merge only if their specs are equal.

    Attributes
    ----------
    unit : Unit
        The unit of privacy.
    by : tuple of str
        The columns that name a group.
    columns : tuple of Column
        The aggregates.
    user : str or None
        The column with the user of each record.
    max_records : int or None
        The number of records of a user that count in one group; None if each release chooses it.
    key_type : {"int", "text"} or None
        Type of the group names, if one column names a group.
    types : tuple of str
        Declared types of the group columns; empty before the first record.
    """

    unit: Unit
    by: tuple[str, ...]
    columns: tuple[Column, ...]
    user: str | None = None
    max_records: int | None = None
    key_type: KeyType | None = None
    types: tuple[UserType, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise InvalidInput("unit must be dps.per_record(…) or dps.per_user(…).")
        if not self.by or len(set(self.by)) < len(self.by) or not all(isinstance(name, str) for name in self.by):
            raise InvalidInput("by names the columns of a group, each once, as in by=['country', 'day'].")
        if not self.columns or not all(isinstance(column, Column) for column in self.columns):
            raise InvalidInput("columns are what to compute for each group, as in [dps.count(), dps.sum('amount')].")
        names = [name for column in self.columns for name in column.names]
        names += [*self.by, *(f"{name}_{end}" for name in names for end in ("low", "high"))]
        if len(set(names)) < len(names):
            raise InvalidInput(
                "two columns of the table have one name. Ask for each once, or give one of them another: in Python as "
                "in dps.count(name='n'), in SQL as in COUNT(*) AS n."
            )
        if (self.user is None) is not (self.unit.level == "record"):
            raise InvalidInput("a table has a user column if, and only if, its unit is a user.")
        if self.max_records is not None and (self.unit.level == "record" or not 1 <= self.max_records <= 2**40):
            raise InvalidInput("max_records goes with a user column, and is between 1 and 2**40.")
        if self.types and len(self.types) != len(self.by):
            raise InvalidInput("a table states the types of all columns of groups, or of none.")
        if len(self.by) > 1 and self.key_type not in (None, "text"):
            raise InvalidInput("groups of several columns are texts.")
        measured = [measure.name for measure in self.measures()]
        shared = self.unit.level == "record" and any(len(self._ranges(value)) > 1 for value in self.values)
        if shared or len(set(measured)) < len(measured):
            raise InvalidInput(
                "one column of values has two ranges or grids. State the same for all that is asked of it."
            )

    def _ranges(self, value: str) -> set[tuple[float | None, float | None]]:
        """Return the stated bounds of the sums and means of a column."""
        linear = (column for column in self.columns if column.value == value and column.kind != "quantiles")
        return {(column.low, column.high) for column in linear if not column.chosen}

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"by {', '.join(self.by)}"

    @property
    def protects(self) -> str | None:
        """The protected unit in words. Values are clipped and have no weight."""
        if self.unit.level == "record":
            return self.unit.changed
        if self.unit.chosen:
            return f"{self.unit.changed} (the number of groups in which a user counts is chosen privately)"
        return f"{self.unit.changed} (counted in at most {self.unit.max_keys} group{'s' * (self.unit.max_keys > 1)})"

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of compound keys; empty if one column names a group."""
        return self.by if len(self.by) > 1 else ()

    @property
    def values(self) -> tuple[str, ...]:
        """The columns of values, each once."""
        return tuple(dict.fromkeys(column.value for column in self.columns if column.value is not None))

    def measures(self) -> tuple[Measure, ...]:
        """Return the numbers that a unit gives to a row, each once: linear ones, then quantiles."""
        return (*self._linear(), *self._quantiles())

    def measure_of(self, column: Column) -> Measure | None:
        """Return the measure of a column; None for the head count."""
        by_user = self.unit.level == "user"
        at = -1 if column.value is None else self.values.index(column.value)
        stated = (column.low, column.high)
        if not by_user and column.kind in ("sum", "mean") and column.value is not None:
            # Sum and mean of records are computed from one number, under the bounds that either states.
            stated = next(iter(self._ranges(column.value)), stated)
        match column.kind:
            case "users":
                return None
            case "count":
                high = None if self.max_records is None else float(self.max_records)
                return Measure("count", "count", -1, None if high is None else 1.0, high) if by_user else None
            case "sum" | "mean" if not by_user or column.kind == "sum":
                return Measure(f"total {column.value}", "total", at, *stated)
            case "mean" if column.over == "users":
                return Measure(f"mean {column.value}", "user_mean", at, *stated)
            case "mean":
                return Measure(f"record mean {column.value}", "record_mean", at, *stated)
            case "quantiles":
                return Measure(f"quantiles {column.value}", "quantiles", at, *stated, _LEVELS, column.grid)

    def _linear(self) -> tuple[Measure, ...]:
        means = any(c.kind == "mean" and c.over == "records" for c in self.columns)
        needed = [Column("count")] if means and self.unit.level == "user" else []
        found = [self.measure_of(column) for column in [*needed, *self.columns] if column.kind != "quantiles"]
        return tuple(dict.fromkeys(measure for measure in found if measure is not None))

    def _quantiles(self) -> tuple[Measure, ...]:
        found = [self.measure_of(column) for column in self.columns if column.kind == "quantiles"]
        return tuple(dict.fromkeys(measure for measure in found if measure is not None))

    def shares_of(self, measure: Measure) -> tuple[float, ...]:
        """Return the requested quantiles of a measure."""
        asked = {share for column in self.columns if self.measure_of(column) == measure for share in column.shares}
        return tuple(sorted(asked))

    def weight_of(self, measure: Measure | None) -> float:
        """Return the importance of a measure: the largest weight of its columns."""
        return max((column.weight for column in self.columns if self.measure_of(column) == measure), default=1.0)

    def arrays(self) -> dict[str, Any]:
        """Return no arrays: the sketch keeps a state of its own."""
        return {}

    @property
    def memory(self) -> int:
        """About the bytes of a hundred thousand records; memory grows with the records."""
        return BYTES_A_RECORD * _GUESSED_RECORDS

    def tables(self) -> tuple[CoreTable, ...]:
        """Return head counts, columns, shapes, users by number of rows and in all, weights of groups, and cells."""
        keys, measures = self.unit.max_keys, self.measures()
        found = [users_table(keys), *(measure_table(measure, keys) for measure in measures)]
        found += [shape_table(measure.name) for measure in measures]
        found += [held_table(), persons_table()] if self.unit.level == "user" else []
        found += [weights_table(min(keys, CAP))]
        linear = len(self._linear())
        found += [cells_table(keys, linear)] if linear <= MOST_CORNERS else []
        return (*found, *self.shares())

    def shares(self) -> dict[CoreTable, float]:
        """Return the tables of a stream's day with their shares of a budget: head counts, then centred columns.

        Privacy
        -------
        A unit adds ``DAY_STEPS`` to the head count of each of its rows, and no more than that, up or down, to a column.
        """
        keys, linear = self.unit.max_keys, self._linear()
        named = [(DAY_USERS, False), *((day_column(measure), True) for measure in linear)]
        tables = [CoreTable(name, None, Move.each(keys, DAY_STEPS, signed=signed)) for name, signed in named]
        return dict(zip(tables, column_shares(self, linear), strict=True))

    def cells_of(self, names: Sequence[Any]) -> int:
        """Return the rows of a table with a public list: one for each group, and one for all others."""
        return len(names) + 1

    def daily(self) -> TableSpec:
        """Return the spec of a stream's day, or refuse one whose bounds are not all stated."""
        if any(column.kind == "quantiles" for column in self.columns):
            raise InvalidInput("day after day a table has no quantiles. A stream of a RangeSketch has them.")
        if any(measure.kind == "record_mean" for measure in self._linear()):
            raise InvalidInput("day after day a mean of users' records is over users: say over='users'.")
        unstated = [measure.name for measure in self._linear() if measure.stated is None]
        if self.unit.chosen or unstated:
            what = ["max_keys=", *unstated] if self.unit.chosen else unstated
            raise InvalidInput(
                f"a stream bounds its records as they come, and chooses no bounds: state them ({', '.join(what)}), as "
                "in max_keys=3, max_records=10 and dps.sum('amount', bounds=(0, 100))."
            )
        return self

    def laws(self, budget: Budget, *, groups: Sequence[Any] | None = None, names: Names = "less") -> tuple[Law, ...]:
        """Choose the law of a release at this budget, from the spec and the options alone.

        Corners carry Laplace noise: for records with at most three columns of values, and wherever δ = 0. All else
        carries Gaussian noise.
        """
        if names not in ("less", "more"):
            raise InvalidInput("names is 'less' or 'more': how much of the budget finds the names of groups.")
        pure = isinstance(budget.cost, PureCost)
        if groups is None and pure:
            raise InvalidInput(
                "names of groups that are on no public list need delta > 0, as in delta=1e-6. With delta=0 give a "
                "public list: groups=[…]."
            )
        if groups is None and budget.rho is not None:
            raise InvalidInput("rho= needs a public list, groups=[…]: names on no list need epsilon= and delta=.")
        by_corners = pure or (self.unit.level == "record" and budget.rho is None)
        if pure and len(self._linear()) > MOST_CORNERS:
            raise InvalidInput("with delta=0 a table has at most three columns of values. State a delta above 0.")
        if pure and any(measure.kind == "record_mean" for measure in self._linear()):
            raise InvalidInput("with delta=0 a mean of users' records is over users: say over='users'.")
        if pure and self.unit.chosen:
            raise InvalidInput("with delta=0 state max_keys=: a bound is chosen with Gaussian noise.")
        if by_corners and len(self._linear()) <= MOST_CORNERS:
            return (corner_table(self, budget, listed=None if groups is None else len(groups)),)
        return (centred_table(self, budget, listed=None if groups is None else len(groups), names=names),)

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        return laws[0].words

    def preview(self, **options: Any) -> ReleasePreview:
        """Predict the guarantee of a release at this budget, and the error of a head count."""
        budget = Budget(options.pop("epsilon", None), options.pop("delta", None), options.pop("rho", None))
        (law,) = self.laws(budget, **options)
        error: float = law.head_error  # type: ignore[attr-defined]
        return ReleasePreview(promise(self, Receipt(budget, (law,))), error, error)

    def typed(self, types: Sequence[UserType], key_type: KeyType | None) -> TableSpec:
        """Return the spec with the types of the group columns."""
        return replace(self, types=tuple(types), key_type=key_type if len(self.by) == 1 else None)
