"""The released table: names of groups, and numbers with intervals, as a frame."""

from __future__ import annotations

import copy
import csv
import html
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from dpsketch import plots
from dpsketch.arrays import Floats
from dpsketch.compound import CompoundKey, parsed_keys
from dpsketch.core.drawn import Part
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.laws.centred import FOUND, LISTED, TABLE, CentredTable
from dpsketch.laws.corners import CornerTable
from dpsketch.numbers import number_text, probability, real_number
from dpsketch.release import SketchRelease, require_keys, typed_keys
from dpsketch.results import Estimates, no_formula
from dpsketch.sketches.histogram.named import of_one_type, read_names
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.sketches.table.columns import Column
from dpsketch.sketches.table.decoded import Answer, Decoded, decode
from dpsketch.sketches.table.spec import TableSpec
from dpsketch.texts import printable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from matplotlib.figure import Figure

__all__ = ["PrivateTable", "TableView", "csv_of", "plain", "typed_names"]

_ROWS_IN_TEXT, _ROWS_IN_HTML = 10, 50


class TableView:
    """Rows of a released table, as frames: those of its groups, or of groups that were added up.

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
            view._chosen = tuple(
                each for name in columns for each in ((name,) if name in self.by else _with_ends(name))
            )
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
        ends = [each for name in self._table.value_names for each in _with_ends(name)]
        return [*self.by, *(ends if self._quantiles_add else [name for name in ends if not self._is_quantile(name)])]

    @property
    def _quantiles_add(self) -> bool:
        return not self._hidden or isinstance(self._table.law, CentredTable)

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
                    limit = float(real_number("max_relative_error", max_relative_error))
                    blank = answer.high - answer.low > 2 * limit * np.abs(answer.value)
                for end, each in (("", answer.value), ("_low", answer.low), ("_high", answer.high)):
                    found[f"{name}{end}"] = np.where(blank, np.nan, each)[self._order]
        return found

    def to_arrow(self, *, confidence: float = 0.95, max_relative_error: float | None = None) -> pa.Table:
        """Return the rows as an Arrow table.

        Parameters
        ----------
        confidence : float
            Coverage of each interval.
        max_relative_error : float, optional
            Blank a number if half the width of its interval is more than this share of it.
        """
        import pyarrow as pa

        order = pa.array(self._order)
        groups = {name: column.take(order) for name, column in zip(self.by, self._names, strict=True)}
        numbers = self._answers(confidence, max_relative_error)
        columns = {**groups, **{name: pa.array(each, from_pandas=True) for name, each in numbers.items()}}
        return pa.table({name: columns[name] for name in self.columns})

    def to_polars(self, **options: Any) -> pl.DataFrame:
        """Return the rows as a polars frame; options as for :meth:`to_arrow`."""
        import polars as pl

        return cast("pl.DataFrame", pl.from_arrow(self.to_arrow(**options)))

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Return the rows as a pandas frame; options as for :meth:`to_arrow`."""
        return cast("pd.DataFrame", self.to_arrow(**options).to_pandas())

    def to_csv(self, path: str | PathLike[str] | None = None, **options: Any) -> str | None:
        """Write the rows as CSV, or return them as text; options as for :meth:`to_arrow`."""
        text = csv_of(self.to_arrow(**options))
        if path is None:
            return text
        Path(path).write_text(text, encoding="utf-8")
        return None

    def to_json(self, **options: Any) -> list[dict[str, Any]]:
        """Return the rows as JSON-ready values; options as for :meth:`to_arrow`."""
        rows = self.to_arrow(**options).to_pylist()
        return [{name: plain(each) for name, each in row.items()} for row in rows]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Give the rows to any library that reads Arrow streams."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _cells(self, limit: int | None, **options: Any) -> tuple[list[str], list[list[tuple[str, str]]]]:
        """Return a heading and rows as people read them: each cell with its interval, which is empty for groups."""
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

    def to_text(self, limit: int | None = _ROWS_IN_TEXT, **options: Any) -> str:
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


@dataclass(frozen=True, slots=True, eq=False)
class PrivateTable(SketchRelease):
    """A released table: a row for each listed group, an interval for each number.

    Attributes
    ----------
    spec : TableSpec
        The public spec.
    drawn : Drawn
        The published arrays and the law that drew them.
    groups : list
        The names of the groups: the public list, or those that were found.
    """

    kind: ClassVar[str] = "table"
    spec_type: ClassVar[Any] = TableSpec

    spec: TableSpec
    groups: list[Any] = field(init=False, repr=False)
    _decoded: Decoded = field(init=False, repr=False)
    _view: TableView = field(init=False, repr=False)

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        law = parts[TABLE].law if parts.keys() == {TABLE} else None
        measures = spec.measures()
        match law:
            case CentredTable():
                return law.measures == measures and (law.held is None) is (spec.unit.level == "record")
            case CornerTable():
                shares = tuple(tuple(map(float, draws.shares)) for draws in law.draws)
                asked = tuple(spec.shares_of(measure) for measure in law.quantiles)
                by_user = spec.unit.level == "user"
                return law.all_measures == measures and shares == asked and law.by_user is by_user
        return False

    def __post_init__(self) -> None:
        arrays = self.drawn.parts[TABLE].arrays
        names = [*read_names(arrays[LISTED], self.spec), *read_names(arrays[FOUND], self.spec)]
        if not of_one_type(names, self.spec.key_type):
            raise FileRefused("the file's groups are not of the type that it states.")
        object.__setattr__(self, "groups", names)
        object.__setattr__(self, "_decoded", decode(self.spec, self.law, arrays))
        object.__setattr__(self, "_view", TableView(self, self._decoded, self.spec.by, self._columns_of(names)))

    def _columns_of(self, names: list[Any]) -> list[list[Any]]:
        """Return the names of groups as columns."""
        if len(self.spec.by) == 1:
            return [names]
        return [[name[place] for name in names] for place in range(len(self.spec.by))]

    def __repr__(self) -> str:
        lines = [f"<PrivateTable of {len(self.groups):,} groups, spec {fingerprint_of(self.spec)}>", self.to_text()]
        return "\n".join([*lines, str(self.guarantee)])

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def law(self) -> CentredTable | CornerTable:
        """The law that the table was drawn by."""
        return cast("CentredTable | CornerTable", self.drawn.parts[TABLE].law)

    @property
    def value_names(self) -> list[str]:
        """The names of the numbers."""
        return [name for column in self.spec.columns for name in column.names]

    @property
    def columns(self) -> list[str]:
        """The names of the columns of its frames."""
        return self._view.columns

    def to_arrow(self, *, confidence: float = 0.95, max_relative_error: float | None = None) -> pa.Table:
        """Return the table as an Arrow table: the group columns, then each number with the ends of its interval.

        Parameters
        ----------
        confidence : float
            Coverage of each interval. An interval is for what was counted: after users were bounded and values were
            clipped.
        max_relative_error : float, optional
            Blank a number if half the width of its interval is more than this share of it. The numbers that remain are
            more often too high than too low.
        """
        return self._view.to_arrow(confidence=confidence, max_relative_error=max_relative_error)

    def to_polars(self, *, confidence: float = 0.95, max_relative_error: float | None = None) -> pl.DataFrame:
        """Return the table as a polars frame; parameters as for :meth:`to_arrow`."""
        return self._view.to_polars(confidence=confidence, max_relative_error=max_relative_error)

    def to_pandas(self, *, confidence: float = 0.95, max_relative_error: float | None = None) -> pd.DataFrame:
        """Return the table as a pandas frame; parameters as for :meth:`to_arrow`."""
        return self._view.to_pandas(confidence=confidence, max_relative_error=max_relative_error)

    def to_csv(
        self,
        path: str | PathLike[str] | None = None,
        *,
        confidence: float = 0.95,
        max_relative_error: float | None = None,
    ) -> str | None:
        """Write the table as CSV, or return it as text; parameters as for :meth:`to_arrow`."""
        return self._view.to_csv(path, confidence=confidence, max_relative_error=max_relative_error)

    def to_json(self, *, confidence: float = 0.95, max_relative_error: float | None = None) -> list[dict[str, Any]]:
        """Return the rows as JSON-ready values; parameters as for :meth:`to_arrow`."""
        return self._view.to_json(confidence=confidence, max_relative_error=max_relative_error)

    def to_text(
        self,
        limit: int | None = _ROWS_IN_TEXT,
        *,
        confidence: float = 0.95,
        max_relative_error: float | None = None,
    ) -> str:
        """Return the first rows as aligned text, or all of them; parameters as for :meth:`to_arrow`."""
        return self._view.to_text(limit, confidence=confidence, max_relative_error=max_relative_error)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Give the table to any library that reads Arrow streams."""
        return self._view.__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Return the first rows as notebooks show them."""
        return self._view._repr_html_()

    @property
    def gain_over_users(self) -> float | None:
        """About how many times less noise means over users would have; None without a mean over users' records.

        A mean over records is a sum of at most ``max_records`` records of a user, and a mean over users one number of
        each. The released totals say how many records a user has.
        """
        measures = self.spec.measures()
        if not any(measure.kind == "record_mean" for measure in measures):
            return None
        (count,) = (measure for measure in measures if measure.kind == "count")
        records = float(self._decoded.total(count, 0.95).value[:-1].sum())
        most, users = float(self._decoded.ranges[count].high), float(self._decoded.users[:-1].sum())
        return most / min(max(records / users, 1.0), most) if users > 0 else most

    @property
    def rows(self) -> TableView:
        """The rows of its frames."""
        return self._view

    def showing(self, view: TableView) -> Self:
        """Return the same release, whose frames have the rows and columns of a view."""
        shown = copy.copy(self)
        object.__setattr__(shown, "_view", view)
        return shown

    def rollup(self, *by: str) -> TableView:
        """Add up groups: one row for each combination of some of the group columns.

        Parameters
        ----------
        *by : str
            The group columns to keep. Without any, all listed groups become one row.

        Accuracy
        --------
        Groups that are not listed are in :attr:`others`, and may belong to any row: the intervals of counts and sums
        reach up by what ``others`` may hold. ``users`` counts pairs of users and groups, because a user may be in
        several groups of one row. Quantiles that were drawn for each group do not add up, and are left out. With all
        group columns nothing is added up: the rows are those of the table.
        """
        for name in by:
            if name not in self.spec.by:
                raise InvalidInput(f"{name!r} is not a group column. The table has {', '.join(self.spec.by)}.")
        if len(set(by)) < len(by):
            raise InvalidInput("a roll-up names each group column once.")
        columns = dict(zip(self.spec.by, self._columns_of(self.groups), strict=True))
        if len(by) == len(columns):
            return TableView(self, self._decoded, by, [columns[name] for name in by])
        rows = list(zip(*(columns[name] for name in by), strict=True)) if by else [()] * len(self.groups)
        groups = list(dict.fromkeys(rows))
        places = {group: place for place, group in enumerate(groups)}
        # The last row is that of all other groups, and stays apart.
        index = np.array([*(places[row] for row in rows), len(groups)], np.int64)
        rolled = self._decoded.rolled(index, len(groups) + 1)
        names = [[group[place] for group in groups] for place in range(len(by))]
        return TableView(self, rolled, by, names, hidden=True)

    def widened(self, column: Column, answer: Answer, confidence: float) -> Answer:
        """Return the numbers of rows that were added up, with room for the groups that are not listed."""
        if column.kind in ("mean", "quantiles"):
            return answer
        (others,) = self._decoded.answers(column, confidence)
        _, head = self._decoded.heads(confidence)
        most, least = max(0.0, float(others.high[-1])), 0.0
        if column.kind == "sum":
            low, high, _ = self._decoded.ranges[cast("Any", self.spec.measure_of(column))]
            if low < 0:
                users = max(0.0, float(head[-1]))
                most, least = users * max(high, 0.0), users * low
        return Answer(answer.value, answer.low + least, answer.high + most)

    @property
    def others(self) -> dict[str, float]:
        """The numbers of all groups that are not listed, together: ``NAME``, ``NAME_low`` and ``NAME_high``."""
        return self.others_at(0.95)

    def others_at(self, confidence: float) -> dict[str, float]:
        """Return :attr:`others` with intervals of this coverage."""
        found: dict[str, float] = {}
        for name, answer in self._numbers(probability("confidence", confidence)):
            ends = {"": answer.value, "_low": answer.low, "_high": answer.high}
            found |= {f"{name}{end}": float(each[-1]) for end, each in ends.items()}
        return found

    def _numbers(self, confidence: float) -> Iterator[tuple[str, Answer]]:
        """Yield all numbers of the published rows, by name."""
        for column in self.spec.columns:
            yield from zip(column.names, self._decoded.answers(column, confidence), strict=True)

    @property
    def bounds(self) -> dict[str, Any]:
        """Bounds in use: the groups and records of a user, and the range of each column."""
        arrays = self.drawn.parts[TABLE].arrays
        found: dict[str, Any] = {}
        if self.spec.unit.level == "user":
            found["max_keys"] = self.law.rows_of_a_user(arrays)
        for column in self.spec.columns:
            if (ends := self._range_of(column)) is not None:
                found |= dict.fromkeys(column.names, ends)
        if self.spec.unit.level == "user" and isinstance(self.law, CentredTable):
            found["max_records"] = self.law.records_of_a_user(arrays)
        return found

    def _range_of(self, column: Column) -> tuple[float, float] | None:
        """Return to which range the numbers of a column are clipped; None for head counts."""
        measure = self.spec.measure_of(column)
        if measure is None:
            return None
        if measure.kind != "quantiles":
            return self._decoded.ranges[measure][:2]
        place = self.spec.measures().index(measure)
        return self.law.shape(place, self.drawn.parts[TABLE].arrays).domain(measure.stated)

    @property
    def cut(self) -> dict[str, float | None]:
        """Estimated part that the bounds cut, by column; None if it cannot be told from noise.

        For ``max_keys`` it is the part of the pairs of users and groups that do not count; for a sum, mean or count the
        part of its absolute total.
        """
        arrays = self.drawn.parts[TABLE].arrays
        found: dict[str, float | None] = {}
        if self.spec.unit.level == "user":
            found["max_keys"] = self.law.users_cut(arrays)
        for column in self.spec.columns:
            measure = self.spec.measure_of(column)
            if measure is not None and measure.kind != "quantiles":
                found |= dict.fromkeys(column.names, self._decoded.ranges[measure].cut)
        return found

    @property
    def kept(self) -> str:
        """In how many groups a user counts, in words."""
        most = self.bounds.get("max_keys")
        return f"a user counts in at most {most} group{'' if most == 1 else 's'}"

    @property
    def meanings(self) -> dict[str, str]:
        """Definition of each number, in words."""
        by_user, found = self.spec.unit.level == "user", dict[str, str]()
        bounds = self.bounds
        kept = f"; {self.kept}" if by_user else ""
        for column in self.spec.columns:
            clipped, ends = "", self._range_of(column)
            if ends is not None and column.kind != "count":
                low, high = ends
                clipped = f", clipped to {number_text(low)} to {number_text(high)}"
            each = " for each user" if by_user and column.kind == "sum" else ""
            for name in column.names:
                match column.kind:
                    case "users":
                        words = f"users{kept}" if by_user else "records"
                    case "count":
                        most = f", at most {bounds[name][1]:g} for each user" if by_user else ""
                        words = f"records{most}{kept}"
                    case "sum":
                        words = f"sum of {column.value}{clipped}{each}{kept}"
                    case "mean":
                        over = f" over {column.over}" if by_user else ""
                        words = f"mean of {column.value}{over}{clipped}{kept}"
                    case "quantiles":
                        words = f"quantile of {column.value}{', users weigh alike' if by_user else ''}{clipped}{kept}"
                found[name] = words
        return found

    @property
    def counts(self) -> str:
        """Definition of the first number, in words."""
        return next(iter(self.meanings.values()))

    def facts(self) -> dict[str, Any]:
        """Return bounds, cuts, definitions and totals of unlisted groups, for readers of the file."""
        return {
            "groups": len(self.groups),
            "bounds": {name: list(each) if isinstance(each, tuple) else each for name, each in self.bounds.items()},
            "cut": self.cut,
            "meanings": self.meanings,
            "others": self.others,
        }

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Return all numbers of the groups asked for; a group and a column are one key."""
        if estimator is not None:
            raise InvalidInput("a table's numbers have one estimate: leave the estimator out.")
        require_keys(asked)
        columns = list(self._numbers(confidence))
        found: list[tuple[Any, float, float, float]] = []
        for at in self._places(asked, key_type):
            for name, answer in columns:
                key = CompoundKey((str(self.groups[at]), name))
                found.append((key, answer.value[at], answer.low[at], answer.high[at]))
        value, low, high = np.array([each[1:] for each in found], np.float64).reshape(-1, 3).T
        return Estimates([each[0] for each in found], value, low, high, confidence, self.counts)

    def only(self, asked: Sequence[Any], *, key_type: KeyType | None = None) -> TableView:
        """Return the rows of some groups, as the command line writes them: one of several columns is a CSV row."""
        whole = TableView(self, self._decoded, self.spec.by, self._columns_of(self.groups))
        return whole.of_groups(self._places(asked, key_type))

    def _places(self, asked: Sequence[Any], key_type: KeyType | None) -> list[int]:
        """Return the places of groups among those that are listed."""
        keys: list[Any]
        if self.spec.key_columns:
            keys = list(parsed_keys(asked, self.spec.key_columns))
        else:
            keys = typed_keys(asked, self.spec.key_type, key_type)
        places = {name: place for place, name in enumerate(self.groups)}
        if missing := [key for key in keys if key not in places]:
            raise InvalidInput(f"{len(missing)} of the groups asked for are not listed in this table.")
        return [places[key] for key in keys]

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the first column of the ``n`` groups in which it is largest."""
        return self.plot(n=n)

    def plot(self, column: str | None = None, *, n: int = 20) -> Figure:
        """Draw one column of the ``n`` groups in which it is largest, with intervals.

        Parameters
        ----------
        column : str, optional
            The name of the number; the first by default.
        n : int
            The number of groups.
        """
        name = column or self.value_names[0]
        found = self._view.estimates(name)
        order = np.argsort(-found.value, kind="stable")[:n]
        sides = (found.value[order], found.low[order], found.high[order])
        chosen = Estimates([found.key[i] for i in order], *sides, found.confidence, found.counts)
        which = f"{len(order)} largest of {len(found):,} groups" if len(order) < len(found) else "all groups"
        title = f"{name}, {which}, {self.title().splitlines()[0]}\n{found.counts}"
        return plots.bars(chosen, title, f"{name}, with {found.confidence:.0%} intervals, each on its own")


def _with_ends(name: str) -> tuple[str, str, str]:
    """Return the names of a number and of the ends of its interval."""
    return name, f"{name}_low", f"{name}_high"


def plain(value: Any) -> Any:
    """Return an entry of a frame as JSON has it: dates and moments as text."""
    return value if isinstance(value, str | int | float | None) else str(value)


def csv_of(table: pa.Table) -> str:
    """Return rows as CSV, in which no text is a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(no_formula, table.column_names))
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    writer.writerows([no_formula(each) if isinstance(each, str) else each for each in row] for row in rows)
    return text.getvalue()


def _interval(value: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """Return a number and its interval, as people read them."""
    if value is None:
        return "–", ""
    return number_text(value), "" if low is None or high is None else f"[{number_text(low)}, {number_text(high)}]"


def _cell(text: str, interval: str) -> str:
    """Return a cell of HTML: the interval is small and pale, on a line of its own."""
    below = f'<br><small style="opacity:0.7">{interval}</small>' if interval else ""
    return html.escape(text) + below


def typed_names(column: Sequence[Any], kind: str) -> Any:
    """Return a column of names by the type that its source declared."""
    import pyarrow as pa

    types = {
        "date": pa.date32(), "timestamp": pa.timestamp("us"), "zoned_timestamp": pa.timestamp("us", "UTC"),
        "boolean": pa.bool_(), "int": pa.int64(),
    }  # fmt: skip
    listed = [each.decode(errors="replace") if isinstance(each, bytes) else each for each in column]
    if listed and isinstance(listed[0], int):
        return pa.array(listed, pa.int64())
    texts = pa.array([str(each) for each in listed], pa.string())
    try:
        return texts.cast(types[kind]) if kind in types else texts
    except pa.ArrowInvalid:
        return texts


def _sorted(columns: Sequence[Any]) -> Any:
    """Return the order of rows by their group columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not columns:
        return np.zeros(1, np.int64)
    table = pa.table({str(place): column for place, column in enumerate(columns)})
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
    return np.asarray(order).astype(np.int64)
