"""The released table: its law, its bounds, and what its numbers mean."""

from __future__ import annotations

import copy
import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from dpsketch import plots
from dpsketch.compound import CompoundKey, parsed_keys
from dpsketch.core.drawn import Drawn, Part
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.laws.centred import FOUND, LISTED, TABLE, CentredTable
from dpsketch.laws.corners import CornerTable
from dpsketch.laws.names import stored_names
from dpsketch.numbers import number_text, probability
from dpsketch.release import SketchRelease, require_keys, typed_keys
from dpsketch.results import Estimates
from dpsketch.sketches.histogram.named import of_one_type, read_names
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.sketches.table.columns import Column
from dpsketch.sketches.table.decoded import Answer, Decoded, decode
from dpsketch.sketches.table.rows import ROWS_IN_TEXT, Frames, TableView
from dpsketch.sketches.table.spec import TableSpec
from dpsketch.sketches.table.window import TableWindow

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

__all__ = ["PrivateTable"]


@dataclass(frozen=True, slots=True, eq=False)
class PrivateTable(Frames, SketchRelease):
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
            case TableWindow():
                return [table.name for table in law.publications.stacked] == [table.name for table in spec.shares()]
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
        names = [name for held in (LISTED, FOUND) if held in arrays for name in read_names(arrays[held], self.spec)]
        if not of_one_type(names, self.spec.key_type):
            raise FileRefused("the file's groups are not of the type that it states.")
        object.__setattr__(self, "groups", names)
        object.__setattr__(self, "_decoded", decode(self.spec, self.law, arrays))
        object.__setattr__(self, "_view", TableView(self, self._decoded, self.spec.by, self._columns_of(names)))

    @classmethod
    def of_window(cls, spec: Any, window: Any) -> Self:
        """Return the table of some days of a stream."""
        arrays = {LISTED: stored_names(window.published.names), "sum": window.vector, "weights": window.stretch.weights}
        part = Part(TableWindow(window.law), arrays)
        return cls(spec, Drawn((window.receipt,), {TABLE: part}, window.guarantee))

    def ask(self, asked: Any, confidence: float) -> Estimates:
        """Answer one question: a number of a group, as in ``("FR", "sum_amount")``, or the first number of a group."""
        group, name = self._asked(asked)
        found = self.answer([group], confidence=confidence, estimator=None, key_type=None)
        place = self.value_names.index(name)
        value, low, high = (each[place : place + 1] for each in (found.value, found.low, found.high))
        return Estimates([asked], value, low, high, confidence, self.meanings[name])

    def _asked(self, asked: Any) -> tuple[Any, str]:
        """Return the group and the name of the number that a question names."""
        parts = asked if isinstance(asked, tuple) else (asked,)
        named = len(parts) > len(self.spec.by)
        group, name = (parts[:-1], str(parts[-1])) if named else (parts, self.value_names[0])
        if len(group) != len(self.spec.by) or name not in self.value_names:
            raise InvalidInput(
                f"a question names a group by {', '.join(self.spec.by)}, and then one of {', '.join(self.value_names)}."
            )
        return (str(CompoundKey(map(str, group))) if self.spec.key_columns else group[0]), name

    def question(self, text: str | int, key_type: KeyType | None = None) -> Any:
        """Return what :meth:`ask` takes, from a CSV row: the group columns, and the name of a number."""
        parts = next(csv.reader([str(text)]))
        group, rest = parts[: len(self.spec.by)], parts[len(self.spec.by) :]
        if not self.spec.key_columns:
            group = typed_keys(group, self.spec.key_type, key_type)
        return (*group, *rest)

    def subtracts(self, asked: Any) -> bool:
        """Say whether a question is answered by a difference of numbers: not a mean."""
        _, name = self._asked(asked)
        (column,) = (column for column in self.spec.columns if name in column.names)
        return column.kind != "mean"

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
    def law(self) -> CentredTable | CornerTable | TableWindow:
        """The law that the table was drawn by, or how it follows from the days of a stream."""
        return cast("CentredTable | CornerTable | TableWindow", self.drawn.parts[TABLE].law)

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

    def to_text(
        self,
        limit: int | None = ROWS_IN_TEXT,
        *,
        confidence: float = 0.95,
        max_relative_error: float | None = None,
    ) -> str:
        """Return the first rows as aligned text, or all of them; parameters as for :meth:`to_arrow`."""
        return self._view.to_text(limit, confidence=confidence, max_relative_error=max_relative_error)

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
        """Return the same release with the rows and columns of a view in its frames."""
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
        """Widen the intervals of rolled-up rows by the groups that are not listed."""
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
        arrays, law, unit = self.drawn.parts[TABLE].arrays, self.law, self.spec.unit
        found: dict[str, Any] = {}
        if unit.level == "user":
            found["max_keys"] = unit.max_keys if isinstance(law, TableWindow) else law.rows_of_a_user(arrays)
        for column in self.spec.columns:
            if (ends := self._range_of(column)) is not None:
                found |= dict.fromkeys(column.names, ends)
        if unit.level == "user" and isinstance(law, CentredTable):
            found["max_records"] = law.records_of_a_user(arrays)
        return found

    def _range_of(self, column: Column) -> tuple[float, float] | None:
        """Return the range to which a column is clipped; None for head counts."""
        measure = self.spec.measure_of(column)
        if measure is None:
            return None
        if measure.kind != "quantiles":
            return self._decoded.ranges[measure][:2]
        assert not isinstance(self.law, TableWindow)  # which has no quantiles
        place = self.spec.measures().index(measure)
        return self.law.shape(place, self.drawn.parts[TABLE].arrays).domain(measure.stated)

    @property
    def cut(self) -> dict[str, float | None]:
        """Part that the bounds cut, by column; None if it cannot be told from noise.

        For ``max_keys`` it is an estimate of the pairs of users and groups that do not count. For a sum, mean or count
        it is the part of its absolute total that clipping may cut, if each value lies at the outer end of its bin.
        """
        arrays, law = self.drawn.parts[TABLE].arrays, self.law
        found: dict[str, float | None] = {}
        if self.spec.unit.level == "user":
            found["max_keys"] = None if isinstance(law, TableWindow) else law.users_cut(arrays)
        for column in self.spec.columns:
            measure = self.spec.measure_of(column)
            if measure is not None and measure.kind != "quantiles":
                found |= dict.fromkeys(column.names, self._decoded.ranges[measure].cut)
        return found

    @property
    def kept(self) -> str:
        """The bound on the groups of a user, in words."""
        most, days = self.bounds.get("max_keys"), " a day" if isinstance(self.law, TableWindow) else ""
        return f"a user counts in at most {most} group{'' if most == 1 else 's'}{days}"

    @property
    def meanings(self) -> dict[str, str]:
        """Definition of each number, in words."""
        by_user, found = self.spec.unit.level == "user", dict[str, str]()
        bounds = self.bounds
        kept = f"; {self.kept}" if by_user else ""
        again = isinstance(self.law, TableWindow) and self.law.publications.counted_again
        users = "user-days (a user counts again on every day)" if again else "users"
        for column in self.spec.columns:
            clipped, ends = "", self._range_of(column)
            if ends is not None and column.kind != "count":
                low, high = ends
                clipped = f", clipped to {number_text(low)} to {number_text(high)}"
            each = " for each user" if by_user and column.kind == "sum" else ""
            for name in column.names:
                match column.kind:
                    case "users":
                        words = f"{users}{kept}" if by_user else "records"
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
        """Return the rows of some groups. Names are those of the command line: CSV rows for several group columns."""
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
        if missing := [key for key in keys if key not in places]:  # unnamed: an error may come into a log
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
