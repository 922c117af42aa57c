"""The columns of a table: count, users, sum, mean and quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dpsketch.core.codec import stored
from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_real, real_number

__all__ = ["Column", "Over", "count", "mean", "pair", "quantiles", "sum", "users"]

ColumnKind = Literal["count", "users", "sum", "mean", "quantiles"]
Over = Literal["records", "users"]
_LARGEST = 2.0**50


@stored
@dataclass(frozen=True, slots=True)
class Column:
    """One aggregate of a table. Build it with :func:`count`, :func:`users`, :func:`sum`, :func:`mean` or
    :func:`quantiles`.

    Attributes
    ----------
    kind : {"count", "users", "sum", "mean", "quantiles"}
        The aggregate.
    value : str or None
        The column of the records that is aggregated; None for counts.
    low, high : float or None
        Stated bounds; None if the release chooses them.
    shares : tuple of float
        The requested quantiles.
    grid : float or None
        Public step of the values; quantiles lie on it.
    over : {"records", "users"}
        Whether each record or each user has the same weight in a mean.
    weight : float
        Importance of the column: a larger one gets a larger share of the budget.
    label : str or None
        Name in the release; by default made from the aggregate and the value.
    """  # noqa: D205

    kind: ColumnKind
    value: str | None = None
    low: float | None = None
    high: float | None = None
    shares: tuple[float, ...] = ()
    grid: float | None = None
    over: Over = "records"
    weight: float = 1.0
    label: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) is not (self.kind in ("count", "users")):
            raise InvalidInput(f"a {self.kind} column {'needs' if self.value is None else 'takes no'} value column.")
        if self.over not in ("records", "users"):
            raise InvalidInput("over is 'records' or 'users'.")
        hold_real(self, "weight")
        hold_real(self, "low", "high", "grid", optional=True)
        if not 0 < self.weight < math.inf:
            raise InvalidInput("weight must be positive and finite.")
        if self.low is not None and not (-_LARGEST <= self.low <= (self.high or 0.0) <= _LARGEST):
            raise InvalidInput("bounds are (low, high), with low at most high, both within 2**50.")
        if self.grid is not None and not 2.0**-30 <= self.grid <= _LARGEST:
            raise InvalidInput("grid is the step between values, positive and at least 2**-30.")
        if any(not 0 < share < 1 for share in self.shares) or (self.kind == "quantiles") is not bool(self.shares):
            raise InvalidInput("quantiles lie strictly between 0 and 1, as in [0.5, 0.9].")

    @property
    def chosen(self) -> bool:
        """Whether the release chooses its bounds."""
        return self.value is not None and self.low is None

    @property
    def stem(self) -> str:
        """Its name, without the quantile."""
        return self.label or (self.kind if self.value is None else f"{_STEMS[self.kind]}_{self.value}")

    @property
    def names(self) -> tuple[str, ...]:
        """Its names in a release; one for each quantile."""
        stem = self.stem
        if self.kind != "quantiles":
            return (stem,)
        return (stem,) if self.label and len(self.shares) == 1 else tuple(f"{stem}_{share:g}" for share in self.shares)


_STEMS = {"sum": "sum", "mean": "mean", "quantiles": "quantile"}


def count(*, weight: float = 1.0, name: str | None = None) -> Column:
    """Count the records of each group.

    Parameters
    ----------
    weight : float
        Importance of the column; a larger one gets a larger share of the budget.
    name : str, optional
        Name in the release; ``count`` by default.
    """
    return Column("count", weight=weight, label=name)


def users(*, weight: float = 1.0, name: str | None = None) -> Column:
    """Count the distinct users of each group, or its records if the unit is a record.

    Parameters
    ----------
    weight, name
        As for :func:`count`.
    """
    return Column("users", weight=weight, label=name)


def sum(
    value: str, *, bounds: tuple[float, float] | None = None, weight: float = 1.0, name: str | None = None
) -> Column:
    """Add up a column in each group.

    Parameters
    ----------
    value : str
        The column.
    bounds : pair of float, optional
        With users, the range of one user's total in one group; without, the range of one value. Numbers outside are
        clipped. By default the release chooses a range privately.
    weight, name
        As for :func:`count`.
    """
    low, high = pair(bounds)
    return Column("sum", _named(value), low, high, weight=weight, label=name)


def mean(
    value: str,
    *,
    bounds: tuple[float, float] | None = None,
    over: Over = "records",
    weight: float = 1.0,
    name: str | None = None,
) -> Column:
    """Average a column in each group.

    Parameters
    ----------
    value : str
        The column.
    bounds : pair of float, optional
        The range of one value, or of one user's mean with ``over="users"``; what lies outside is clipped. By default
        the release chooses a range privately.
    over : {"records", "users"}
        ``"records"`` gives each record the same weight, as SQL's AVG does. ``"users"`` averages each user's own mean,
        and has less noise.
    weight, name
        As for :func:`count`.
    """
    low, high = pair(bounds)
    return Column("mean", _named(value), low, high, over=over, weight=weight, label=name)


def quantiles(
    value: str,
    shares: float | Sequence[float],
    *,
    bounds: tuple[float, float] | None = None,
    grid: float | None = None,
    weight: float = 1.0,
    name: str | None = None,
) -> Column:
    """Estimate quantiles of a column in each group. With users, each user has the same weight.

    Parameters
    ----------
    value : str
        The column.
    shares : float or sequence of float
        The quantiles, as in ``[0.5, 0.9]``, or one.
    bounds : pair of float, optional
        The range of one value. By default the release chooses a range privately.
    grid : float, optional
        The step of the values if it is public, such as 1 for whole minutes or 0.01 for money.
    weight, name
        As for :func:`count`.
    """
    low, high = pair(bounds)
    several = shares if isinstance(shares, Iterable) else [shares]
    listed = tuple(sorted({float(real_number("quantile", share)) for share in several}))
    step = None if grid is None else float(real_number("grid", grid))
    return Column("quantiles", _named(value), low, high, listed, step, weight=weight, label=name)


def _named(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput("value is the name of a column, as text.")
    return value


def pair(bounds: Any) -> tuple[float | None, float | None]:
    """Return the ends of a range, which may be left out."""
    if bounds is None:
        return None, None
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidInput("bounds are a pair, as in bounds=(0, 100).")
    return float(real_number("bounds", bounds[0])), float(real_number("bounds", bounds[1]))
