"""What a query of a release returns: values with their intervals, side by side."""

from __future__ import annotations

import csv
import html
import math
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from dpsketch import plots
from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_real, number_text, whole_number

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from matplotlib.figure import Figure

__all__ = ["NOISE_ONLY", "Estimate", "Estimates", "Row", "key_list", "no_formula"]

NOISE_ONLY = (
    "Intervals cover the privacy noise and the hashing of the releases only. "
    "This is no significance test: chance in the records is not covered."
)
"""What goes with the difference of two answers."""

_COLUMNS = ("key", "value", "low", "high")
_ROWS_IN_TEXT = 10
_ROWS_IN_HTML = 50
_LONGEST_KEY = 60
# The word of a unit's description that says so (Unit.counts): a contract holds every kind to it.
_CLIPPED = "clipped"
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*(e[+-]?\d+)?|inf|nan)", re.ASCII)


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
    counts : str or None
        What is counted, where that is a count: as for :class:`Estimates`.
    """

    value: float
    low: float
    high: float
    confidence: float
    counts: str | None = None

    def __post_init__(self) -> None:
        hold_real(self, "confidence")

    def _repr_html_(self) -> str:
        """Return the estimate as notebooks show it."""
        value, low, high = map(number_text, (self.value, self.low, self.high))
        counted = "" if self.counts is None else f", of {html.escape(self.counts)}"
        return f"<b>{value}</b> ({low} to {high}, {self.confidence:.4g} confidence{counted})"

    def to_json(self) -> dict[str, float | None]:
        """Return the estimate as JSON-ready values; an end that is infinite is None."""
        low, high = map(_or_none, (self.low, self.high))
        return {"value": self.value, "low": low, "high": high, "confidence": self.confidence}


class Row(NamedTuple):
    """One row of :class:`Estimates`: a key, its estimate, and the ends of its interval."""

    key: Any
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Estimates for a batch of keys, in the order asked.

    It is a table of four columns that other libraries read as it is: ``polars.DataFrame(found)``,
    ``pyarrow.table(found)``, ``duckdb.sql("from found")``. It has a length, gives its rows one by one, and by number or
    slice.

    Attributes
    ----------
    key : list
        The keys as they were asked (or found).
    value, low, high : numpy.ndarray
        The estimate and the ends of its interval; the ends are NaN where a release has no intervals.
    confidence : float
        The probability, over the noise *and* the choice of the hash functions, with which an interval covers the true
        count. With a seed that stays the same, a key that collides badly is missed in every release alike.
    counts : str or None
        What is counted, as in "users, clipped: at most 20 keys counted each (weight at most 1 on each)". The interval
        is for this, not for what was there before it was clipped.
    note : str
        What a reader should know beside, such as why nothing was found.

    Examples
    --------
    >>> import numpy as np
    >>> value = np.array([1204.0, 31.5])
    >>> found = Estimates(["/a", "/b"], value, value - 12, value + 12, 0.95, "records")
    >>> found
    2 estimates, 95% intervals, of records
      key   value    low   high
      '/a'  1,204  1,192  1,216
      '/b'   31.5   19.5   43.5
    >>> found[0].value, [row.key for row in found], len(found[1:])
    (1204.0, ['/a', '/b'], 1)
    >>> print(found.to_csv())
    key,value,low,high
    /a,1204.0,1192.0,1216.0
    /b,31.5,19.5,43.5
    <BLANKLINE>
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

    def __iter__(self) -> Iterator[Row]:
        return self.rows()

    @overload
    def __getitem__(self, place: slice) -> Estimates: ...

    @overload
    def __getitem__(self, place: SupportsIndex) -> Row: ...

    def __getitem__(self, place: SupportsIndex | slice) -> Row | Estimates:
        if isinstance(place, slice):
            parts = (self.value[place], self.low[place], self.high[place])
            return Estimates(self.key[place], *parts, self.confidence, self.counts, self.note)
        at = operator.index(place)
        return Row(self.key[at], float(self.value[at]), float(self.low[at]), float(self.high[at]))

    def rows(self) -> Iterator[Row]:
        """Iterate over (key, value, low, high)."""
        return map(Row._make, zip(self.key, self.value.tolist(), self.low.tolist(), self.high.tolist(), strict=True))

    def __repr__(self) -> str:
        lines = [self._headline()]
        shown = self[:_ROWS_IN_TEXT]
        if len(shown):
            lines += _aligned([_COLUMNS, *shown._cells(map(repr, shown.key))])
        if len(self) > len(shown):
            lines.append(f"  … and {len(self) - len(shown):,} more")
        if self.note:
            lines.append(f"  {self.note}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the table as notebooks show it; keys are text of the world, and escaped."""
        shown = self[:_ROWS_IN_HTML]
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
            for cells in shown._cells(_texts(shown.key))
        )
        more = f"<p>… and {len(self) - len(shown):,} more</p>" if len(self) > len(shown) else ""
        return (
            f"<p>{html.escape(self._headline())}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
        )

    @property
    def heading(self) -> str:
        """The heading of the estimates in a table for people: it says so where contributions were clipped."""
        return f"{_CLIPPED} estimate" if _CLIPPED in (self.counts or "") else "estimate"

    def _headline(self) -> str:
        number = "1 estimate" if len(self) == 1 else f"{len(self):,} estimates"
        counted = "" if self.counts is None else f", of {self.counts}"
        intervals = "no" if len(self) and np.isnan(self.low).all() else f"{self.confidence:.0%}"
        return f"{number}, {intervals} intervals{counted}"

    def _cells(self, keys: Iterable[str]) -> Iterator[tuple[str, ...]]:
        """Return each row as texts to be shown, long keys cut."""
        columns = (map(number_text, column.tolist()) for column in (self.value, self.low, self.high))
        return zip(map(_cut, keys), *columns, strict=True)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the table of :meth:`to_arrow` to whatever reads Arrow's stream interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_arrow(self, *, key_columns: Sequence[str] = ()) -> pa.Table:
        """Return an Arrow table with the columns key, value, low, high; keys of mixed types are text.

        Its metadata say what is counted, and the confidence. Ends of intervals that do not exist are null.
        ``key_columns`` is as for :meth:`to_csv`.
        """
        import pyarrow as pa

        parts = {name: pa.array([key[i] for key in self.key], pa.string()) for i, name in enumerate(key_columns)}
        keys = parts or {"key": _arrow_keys(self.key)}
        ends = {"low": pa.array(self.low, from_pandas=True), "high": pa.array(self.high, from_pandas=True)}
        said = {"confidence": f"{self.confidence:g}", "counts": self.counts or ""}
        return pa.table({**keys, "value": self.value, **ends}, metadata=said)

    def to_polars(self) -> pl.DataFrame:
        """Return a polars frame with the columns of :meth:`to_arrow`."""
        frames: type[pl.DataFrame] = _library("polars").DataFrame
        return frames(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with the columns key, value, low, high."""
        frames: type[pd.DataFrame] = _library("pandas").DataFrame
        return frames({"key": self.key, "value": self.value, "low": self.low, "high": self.high})

    def to_json(self) -> list[dict[str, Any]]:
        """Return a list of ``{"key", "value", "low", "high"}``; an end that does not exist, or is infinite, is None."""
        rows = ((key, value, _or_none(low), _or_none(high)) for key, value, low, high in self.rows())
        return [dict(zip(_COLUMNS, row, strict=True)) for row in rows]

    @overload
    def to_csv(self, path: None = None, *, key_columns: Sequence[str] = ()) -> str: ...

    @overload
    def to_csv(self, path: str | PathLike[str], *, key_columns: Sequence[str] = ()) -> None: ...

    def to_csv(self, path: str | PathLike[str] | None = None, *, key_columns: Sequence[str] = ()) -> str | None:
        """Write the columns key, value, low, high as CSV in UTF-8; without a path, return the text.

        Bytes are decoded as UTF-8, what is not that escaped; points and ranges are written as Python prints them. A
        compound key is one field, its own CSV row, unless ``key_columns`` (as ``release.key_columns``) names its parts:
        then each has a column.

        A key that a spreadsheet would compute, because it begins with ``=``, ``+``, ``-`` or ``@`` and is no number,
        has an apostrophe before it. So has one that begins with apostrophes and such a sign: no two keys become equal.
        """
        text = StringIO(newline="")
        plain, quoting = (
            csv.writer(text, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC)
        )
        plain.writerow([*map(no_formula, key_columns or _COLUMNS[:1]), *_COLUMNS[1:]])
        names = self.key if key_columns else [(text,) for text in _texts(self.key)]
        for key, row in zip(names, self.rows(), strict=True):
            name = [no_formula(str(part)) for part in key]
            # Python quotes a line feed, and a carriage return only from 3.13 on: to readers both end a row.
            (quoting if any("\r" in each for each in name) else plain).writerow(
                [*name, row.value, _end(row.low), _end(row.high)]
            )
        if path is None:
            return text.getvalue()
        Path(path).write_text(text.getvalue(), encoding="utf-8", newline="")
        return None

    def to_markdown(self, *, key_columns: Sequence[str] = ()) -> str:
        r"""Return the table in Markdown, with what is counted below it; ``key_columns`` is as for :meth:`to_csv`.

        Examples
        --------
        >>> print(Estimates(["a|b"], *np.array([[5.0], [3.0], [7.0]]), 0.95).to_markdown())
        | key | value | low | high |
        |---|---:|---:|---:|
        | a\|b | 5 | 3 | 7 |
        <BLANKLINE>
        """
        names = [*(key_columns or _COLUMNS[:1]), *_COLUMNS[1:]]
        keys = self.key if key_columns else [(text,) for text in _texts(self.key)]
        rows = [names, ["---"] * (len(names) - 3) + ["---:"] * 3]
        rows += [[*key, *map(number_text, row[1:])] for key, row in zip(keys, self.rows(), strict=True)]
        lines = ["| " + " | ".join(map(_markdown, row)) + " |" for row in rows]
        lines[1] = lines[1].replace(" ", "")
        if self.counts is not None:
            lines += ["", f"Counted: {self.counts}."]
        return "\n".join(lines) + "\n"

    def plot(self, *, n: int = 20) -> Figure:
        """Draw the first ``n`` rows as bars with their intervals."""
        shown = self[: whole_number("n", n, low=1, high=1000)]
        return plots.bars(shown, shown._headline(), f"estimate, with {self.confidence:.0%} intervals")


def _or_none(end: float) -> float | None:
    """Return an end of an interval as JSON has it: there is no infinity."""
    return end if math.isfinite(end) else None


def _arrow_keys(keys: Sequence[Any]) -> Any:
    """Return keys as one Arrow array: of their own type if they have one in common, else as text."""
    import pyarrow as pa

    for kind in (None, pa.uint64()):  # Arrow finds no integer type by itself that holds 2⁶³
        with suppress(pa.ArrowException, TypeError, OverflowError, UnicodeError):
            return pa.array(keys, kind)
    return pa.array(_texts(keys), pa.string())


def _end(value: float) -> float | None:
    """Return an end of an interval, or None where a release has no intervals."""
    return None if math.isnan(value) else value


def _texts(keys: Sequence[Any]) -> list[str]:
    return [key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key) for key in keys]


def no_formula(text: str) -> str:
    """Return a cell of CSV that no spreadsheet computes; numbers stay as they are."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _markdown(text: str) -> str:
    """Return a cell of a table: what would end it, or be taken for markup, is escaped."""
    bare = re.sub(r"[\r\n]+", " ", text)
    return re.sub(r"([\\|`*_<\[])", r"\\\1", bare) if bare.strip("-:") else bare


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_KEY else text[: _LONGEST_KEY - 1] + "…"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table's lines, the first column to the left and the others to the right."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"  {row[0]:<{first}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], others, strict=True))
        for row in rows
    ]


def _library(name: str) -> Any:
    """Load a library of frames, or say which extra brings it."""
    with suppress(ModuleNotFoundError):
        return import_module(name)
    raise InvalidInput(f"{name} is not installed: pip install 'dpsketch[frames]'. to_arrow() needs nothing more.")
