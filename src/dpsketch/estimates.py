"""What a query of a release returns: values with their intervals, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsketch.numbers import hold_real

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Estimate", "Estimates", "key_list"]


def key_list(keys: Any) -> list[Any]:
    """Return a column of keys (list, NumPy, Arrow, pandas or polars) as a plain list."""
    for name in ("tolist", "to_pylist", "to_list"):
        if hasattr(keys, name):
            plain: list[Any] = getattr(keys, name)()
            return plain
    return [key.item() if isinstance(key, np.generic) else key for key in keys]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number with its interval.

    Attributes
    ----------
    value, low, high : float
        The estimate and the ends of its interval.
    confidence : float
        The probability, over the noise and the choice of the hash functions, with which the interval covers the truth.
    """

    value: float
    low: float
    high: float
    confidence: float

    def __post_init__(self) -> None:
        hold_real(self, "confidence")

    def to_json(self) -> dict[str, float]:
        """Return the estimate as JSON-ready values."""
        return {"value": self.value, "low": self.low, "high": self.high, "confidence": self.confidence}


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Estimates for a batch of keys, in the order asked.

    Attributes
    ----------
    key : list
        The keys as they were asked (or found).
    value, low, high : numpy.ndarray
        The estimate and the ends of its interval.
    confidence : float
        The probability, over the noise *and* the choice of the hash functions, with which an interval covers the true
        count. With a seed that stays the same, a key that collides badly is missed in every release alike.
    counts : str or None
        What is counted, as in "users, with at most 20 keys counted each (weight at most 1 on each)": the interval is
        for this, not for what was there before it was bounded.
    note : str
        What a reader should know beside, such as why nothing was found.
    """

    key: list[Any]
    value: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    confidence: float
    counts: str | None = None
    note: str = ""

    def __post_init__(self) -> None:
        hold_real(self, "confidence")

    def __len__(self) -> int:
        return len(self.value)

    def rows(self) -> Iterator[tuple[Any, float, float, float]]:
        """Iterate over (key, value, low, high)."""
        return zip(self.key, self.value.tolist(), self.low.tolist(), self.high.tolist(), strict=True)

    def __repr__(self) -> str:
        counted = "" if self.counts is None else f", of {self.counts}"
        lines = [f"{len(self)} estimates, {self.confidence:.0%} intervals{counted}"]
        for key, value, low, high in list(self.rows())[:10]:
            lines.append(f"  {key!r}: {value:g}  [{low:g}, {high:g}]")
        if len(self) > 10:
            lines.append(f"  … and {len(self) - 10} more")
        if self.note:
            lines.append(f"  {self.note}")
        return "\n".join(lines)

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the columns key, value, low, high."""
        import pyarrow as pa

        return pa.table({"key": pa.array(self.key), "value": self.value, "low": self.low, "high": self.high})

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with the columns key, value, low, high."""
        import pandas as pd

        return pd.DataFrame({"key": self.key, "value": self.value, "low": self.low, "high": self.high})

    def to_json(self) -> list[dict[str, Any]]:
        """Return a list of ``{"key", "value", "low", "high"}``."""
        return [{"key": key, "value": value, "low": low, "high": high} for key, value, low, high in self.rows()]
