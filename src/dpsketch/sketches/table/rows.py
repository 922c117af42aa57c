"""The rows of a released table as frames, text and HTML: names of groups, and numbers with intervals."""

from __future__ import annotations

import copy
import csv
import datetime
import html
import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpsketch.arrays import Floats
from dpsketch.columns import USER_TYPES, UserType, as_column, canonical
from dpsketch.compound import CompoundKey
from dpsketch.errors import InvalidInput
from dpsketch.laws.corners import CornerTable
from dpsketch.numbers import number_text, positive_number, probability
from dpsketch.results import Estimates, no_formula
from dpsketch.sketches.table.decoded import Decoded
from dpsketch.texts import printable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from dpsketch.sketches.table.private import PrivateTable

__all__ = ["ROWS_IN_TEXT", "Frames", "TableView", "csv_of", "listed_names", "plain", "typed_names", "with_ends"]

ROWS_IN_TEXT = 10
_ROWS_IN_HTML = 50


class Frames(ABC):
    """Rows of numbers with intervals, as frames of several libraries, CSV and JSON."""

    __slots__ = ()

    @abstractmethod
    def to_arrow(self, *, confidence: float = 0.95, max_relative_error: float | None = None) -> pa.Table:
        """Return the rows as an Arrow table."""

    def to_polars(self, *, confidence: float = 0.95, max_relative_error: float | None = None) -> pl.DataFrame:
        """Return the rows as a polars frame; parameters as for :meth:`to_arrow`."""
        import polars as pl

        table = self.to_arrow(confidence=confidence, max_relative_error=max_relative_error)
        return cast("pl.DataFrame", pl.from_arrow(table))

    def to_pandas(self, *, confidence: float = 0.95, max_relative_error: float | None = None) -> pd.DataFrame:
        """Return the rows as a pandas frame; parameters as for :meth:`to_arrow`."""
        table = self.to_arrow(confidence=confidence, max_relative_error=max_relative_error)
        return cast("pd.DataFrame", table.to_pandas())

    def to_csv(
        self,
        path: str | PathLike[str] | None = None,
        *,
        confidence: float = 0.95,
        max_relative_error: float | None = None,
    ) -> str | None:
        """Write the rows as CSV, or return them as text; parameters as for :meth:`to_arrow`."""
        text = csv_of(self.to_arrow(confidence=confidence, max_relative_error=max_relative_error))
        if path is None:
            return text
        Path(path).write_text(text, encoding="utf-8")
        return None

    def to_json(self, *, confidence: float = 0.95, max_relative_error: float | None = None) -> list[dict[str, Any]]:
        """Return the rows as JSON-ready values; parameters as for :meth:`to_arrow`."""
        rows = self.to_arrow(confidence=confidence, max_relative_error=max_relative_error).to_pylist()
        return [{name: plain(each) for name, each in row.items()} for row in rows]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Give the rows to any library that reads Arrow streams."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


class TableView(Frames):
    """Rows of a released table: its groups, or roll-ups of them.

    Every number has an interval, whose ends are ``NAME_low`` and ``NAME_high``.
    """

    __slots__ = ("_chosen", "_decoded", "_hidden", "_names", "_order", "_table", "by")

    _chosen: tuple[str, ...] | None

    def __init__(
        self,
        table: PrivateTable,
        decoded: Decoded,
        by: Sequence[str],
        names: Sequence[Sequence[Any]],
        *,
        hidden: bool = False,
    ) -> None:
        self._table, self._decoded, self._hidden, self._chosen = table, decoded, hidden, None
        self.by = tuple(by)
        types = dict(zip(table.spec.by, table.spec.types or ("text",) * len(table.spec.by), strict=True))
        self._names = [typed_names(column, types[name]) for name, column in zip(self.by, names, strict=True)]
        self._order = _sorted(self._names)

    def __len__(self) -> int:
        return len(self._order)

    def __repr__(self) -> str:
        return self.to_text()

    def arranged(self, rows: Any, columns: Sequence[str] | None = None) -> TableView:
        """Return a view of some of the rows, in the order in which they are given, and of some of the columns.

        Parameters
        ----------
        rows : array of int
            The places of the rows in this view.
        columns : sequence of str, optional
            Names of group columns and of numbers, each of which keeps the ends of its interval.
        """
        view = copy.copy(self)
        view._order = self._order[np.asarray(rows, np.int64)]
        if columns is not None:
            view._chosen = tuple(each for name in columns for each in ((name,) if name in self.by else with_ends(name)))
        return view

    def of_groups(self, places: Sequence[int]) -> TableView:
        """Return a view of the rows of some groups, by their places among the groups of the table."""
        at = {place: row for row, place in enumerate(self._order.tolist())}
        return self.arranged([at[place] for place in places])

    @property
    def columns(self) -> list[str]:
        """The names of the columns: those of groups, then each number with its two ends."""
        if self._chosen is not None:
            return list(self._chosen)
        ends = [each for name in self._table.value_names for each in with_ends(name)]
        return [*self.by, *(ends if self._quantiles_add else [name for name in ends if not self._is_quantile(name)])]

    @property
    def _quantiles_add(self) -> bool:
        return not self._hidden or not isinstance(self._table.law, CornerTable)

    def _is_quantile(self, name: str) -> bool:
        stem = name.removesuffix("_low").removesuffix("_high")
        return any(stem in column.names for column in self._table.spec.columns if column.kind == "quantiles")

    def _answers(self, confidence: float, max_relative_error: float | None) -> dict[str, Floats]:
        """Return the numbers of all columns by name, in the order of the rows."""
        confidence = probability("confidence", confidence)
        found: dict[str, Floats] = {}
        for column in self._table.spec.columns:
            if column.kind == "quantiles" and not self._quantiles_add:
                continue
            for name, answer in zip(column.names, self._decoded.answers(column, confidence), strict=True):
                if self._hidden:
                    answer = self._table.widened(column, answer, confidence)
                blank = np.zeros(len(answer.value), np.bool_)
                if max_relative_error is not None:
                    limit = positive_number("max_relative_error", max_relative_error)
                    blank = answer.high - answer.low > 2 * limit * np.abs(answer.value)
                for end, each in (("", answer.value), ("_low", answer.low), ("_high", answer.high)):
                    found[f"{name}{end}"] = np.where(blank, np.nan, each)[self._order]
        return found

    def to_arrow(self, *, confidence: float = 0.95, max_relative_error: float | None = None) -> pa.Table:
        """Return the rows as an Arrow table; parameters as for :meth:`PrivateTable.to_arrow`."""
        import pyarrow as pa

        order = pa.array(self._order)
        groups = {name: column.take(order) for name, column in zip(self.by, self._names, strict=True)}
        numbers = self._answers(confidence, max_relative_error)
        columns = {**groups, **{name: pa.array(each, from_pandas=True) for name, each in numbers.items()}}
        return pa.table({name: columns[name] for name in self.columns})

    def _cells(self, limit: int | None, **options: Any) -> tuple[list[str], list[list[tuple[str, str]]]]:
        """Return a heading and rows of text: each cell with its interval, which is empty for groups."""
        table = self.to_arrow(**options).slice(0, limit)
        names = [name for name in table.column_names if name in self.by or name in self._table.value_names]
        columns: list[list[tuple[str, str]]] = []
        for name in names:
            values = table.column(name).to_pylist()
            if name in self.by:
                columns.append([(printable(str(value)), "") for value in values])
                continue
            ends = zip(table.column(f"{name}_low").to_pylist(), table.column(f"{name}_high").to_pylist(), strict=True)
            columns.append([_interval(value, *end) for value, end in zip(values, ends, strict=True)])
        return names, [list(row) for row in zip(*columns, strict=True)]

    def _text_rows(self, limit: int | None, **options: Any) -> tuple[list[str], list[list[str]]]:
        """Return a heading and rows of text: a number with the ends of its interval."""
        names, rows = self._cells(limit, **options)
        return names, [[" ".join(filter(None, cell)) for cell in row] for row in rows]

    def to_text(self, limit: int | None = ROWS_IN_TEXT, **options: Any) -> str:
        """Return the first rows as aligned text, or all of them; options as for :meth:`to_arrow`."""
        names, rows = self._text_rows(limit, **options)
        wide = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        lines = []
        for row in [names, *rows]:
            cells = [
                cell.ljust(width) if name in self.by else cell.rjust(width)
                for name, cell, width in zip(names, row, wide, strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
        if limit is not None and len(self) > limit:
            lines.append(f"… {len(self) - limit:,} more rows")
        return "\n".join(lines)

    def to_markdown(self, **options: Any) -> str:
        """Return the rows as a table in Markdown, a number with the ends of its interval; options as above."""
        names, rows = self._text_rows(None, **options)
        marks = ["---" if name in self.by else "---:" for name in names]
        lines = [[cell.replace("|", "\\|") for cell in row] for row in (names, marks, *rows)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def _repr_html_(self) -> str:
        """Return the first rows as notebooks show them."""
        names, rows = self._cells(_ROWS_IN_HTML)
        sides = ["left" if name in self.by else "right" for name in names]

        def line(tag: str, cells: Sequence[str]) -> str:
            style = "padding:0.1em 0.6em;vertical-align:top;white-space:nowrap;text-align"
            marked = zip(sides, cells, strict=True)
            return "<tr>" + "".join(f'<{tag} style="{style}:{side}">{cell}</{tag}>' for side, cell in marked) + "</tr>"

        head = line("th", [html.escape(name) for name in names])
        body = "".join(line("td", [_cell(*cell) for cell in row]) for row in rows)
        more = f"<p>… {len(self) - len(rows):,} more rows</p>" if len(self) > len(rows) else ""
        promise = html.escape(str(self._table.guarantee))
        shown = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
        return f'<div style="max-height:32em;overflow:auto">{shown}</div>{more}<p>{promise}</p>'

    def estimates(self, name: str, *, confidence: float = 0.95) -> Estimates:
        """Return one column of numbers with its intervals, by group."""
        numbers = self._answers(confidence, None)
        if name not in numbers:
            raise InvalidInput(f"the table has no column {name!r}. It has {', '.join(self._table.value_names)}.")
        groups = [column.to_pylist() for column in self._names]
        keys = [groups[0][i] if len(groups) == 1 else CompoundKey(str(each[i]) for each in groups) for i in self._order]
        ends = numbers[name], numbers[f"{name}_low"], numbers[f"{name}_high"]
        return Estimates(keys, *ends, confidence, self._table.meanings[name])


def with_ends(name: str) -> tuple[str, str, str]:
    """Return the names of a number and of the ends of its interval."""
    return name, f"{name}_low", f"{name}_high"


def plain(value: Any) -> Any:
    """Return an entry of a frame as a JSON value; dates and times become text."""
    return value if isinstance(value, str | int | float | None) else str(value)


def csv_of(table: pa.Table) -> str:
    """Return rows as CSV. Texts that look like formulas are escaped."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(no_formula, table.column_names))
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    writer.writerows([no_formula(each) if isinstance(each, str) else each for each in row] for row in rows)
    return text.getvalue()


def _interval(value: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """Return a number and its interval as text."""
    if value is None:
        return "–", ""
    return number_text(value), "" if low is None or high is None else f"[{number_text(low)}, {number_text(high)}]"


def _cell(text: str, interval: str) -> str:
    """Return a cell of HTML, with the interval in small type on a second line."""
    below = f'<br><small style="opacity:0.7">{interval}</small>' if interval else ""
    return html.escape(text) + below


def _arrow_types() -> dict[str, Any]:
    """Return the Arrow types of declared types whose names are not plain text."""
    import pyarrow as pa

    return {
        "date": pa.date32(), "timestamp": pa.timestamp("us"), "zoned_timestamp": pa.timestamp("us", "UTC"),
        "boolean": pa.bool_(), "int": pa.int64(), "uint64": pa.int64(),
    }  # fmt: skip


def typed_names(column: Sequence[Any], kind: str) -> Any:
    """Return a column of names in the declared type of its source."""
    import pyarrow as pa

    listed = [each.decode(errors="replace") if isinstance(each, bytes) else each for each in column]
    if listed and isinstance(listed[0], int):
        return pa.array(listed, pa.int64())
    texts, types = pa.array([str(each) for each in listed], pa.string()), _arrow_types()
    try:
        return texts.cast(types[kind]) if kind in types else texts
    except pa.ArrowInvalid:
        return texts


def listed_names(column: Sequence[Any], kind: UserType, name: str) -> list[Any]:
    """Return the names of a public list's column as records of the declared type are named, or refuse them."""
    import pyarrow as pa

    types = _arrow_types()
    if kind not in types or None in column:
        return list(column)
    if kind == "date":  # a timestamp at midnight is a day
        midnight = datetime.time()
        column = [
            each.date() if isinstance(each, datetime.datetime) and each.time() == midnight else each for each in column
        ]
    try:
        typed = pa.array([str(each) for each in column], pa.string()).cast(types[kind])
    except pa.ArrowInvalid:
        raise InvalidInput(
            f"the column {name!r} holds {USER_TYPES[kind]}, and the public list of groups has another entry there."
        ) from None
    return list(as_column(canonical(typed)).to_pylist())


def _sorted(columns: Sequence[Any]) -> Any:
    """Return the order of rows by their group columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not columns:
        return np.zeros(1, np.int64)
    table = pa.table({str(place): column for place, column in enumerate(columns)})
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
    return np.asarray(order).astype(np.int64)
