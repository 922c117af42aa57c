"""Errors, interval coverage and chosen bounds of tables at ε = 1, δ = 10⁻⁶, against limits that were fixed beforehand.

``python -m benchmarks.table_accuracy [errors] [coverage] [near] [bounds] [--only "A;B"] [--releases N]`` measures all
parts and settings, or those that are named, and puts them into results/table_accuracy.json with the limits and a
verdict for each. Settings beside A, B and C are released a quarter as often.

*errors*: cases A, B and C of :mod:`benchmarks.table_data`, against the raw records.

*coverage*: intervals are for what counted, after users were bounded and values were clipped. A release hands the
records that count to its law through :class:`~dpsketch.laws.groups.TableContent`. Here a subclass of it keeps a
reference to them. The truth is then computed from these records in NumPy, with the published bounds, and by none of the
code that the law or the intervals use. Rows go by their true head count into bands. A band of fewer than 500 rows has
no verdict.

*near*: rows of records whose true count is a third, a half, or all of the cutoff, given that they are listed. Few are:
millions of rows of equal records are made, get the law's own noise, and those that reach the cutoff are decoded.

*bounds*: the root mean squared error of a sum over listed rows, by the variance of its noise and by what clipping cuts
exactly, at the bounds that a release chose and at the best of a grid of fixed bounds, for the same records.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import dpsketch as dps
from benchmarks.machine import machine
from benchmarks.table_data import TableCase, load, score
from dpsketch.compound import parsed_keys
from dpsketch.laws.centred import CentredTable, shape_of
from dpsketch.laws.corners import CELLS, CornerTable
from dpsketch.laws.groups import STEP, Kept, Measure, TableContent
from dpsketch.privacy import Budget
from dpsketch.sketches.table import store as table_store
from dpsketch.sketches.table.decoded import decode

STORED = Path(__file__).parent / "results" / "table_accuracy.json"
PARTS = ("errors", "coverage", "near", "bounds")
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
RELEASES = 20
CONFIDENCES = (0.5, 0.8, 0.95, 0.99)
BANDS = (100, 300, 1000)
FEWEST = 500
# Coverage may fall short of the confidence by this.
SHORT = 0.01
# The confidence at which this limit is strict. At others it leaves room for three standard errors of the measurement.
JUDGED = 0.95
LIMITS: dict[str, dict[str, float]] = {
    "A": {"groups": 256, "count_rms": 0.008, "sum_rms": 0.075, "mean_rms": 1.5, "median_rms": 0.35},
    "B": {"groups": 64},
    "C": {"groups": 1100},
}
REGRET = 1.35

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Setting(NamedTuple):
    """A table to release: the records, its columns, its unit, and the columns to which rows are added up."""

    name: str
    records: pa.Table
    by: tuple[str, ...]
    columns: tuple[Any, ...]
    user: str | None = None
    parents: tuple[str, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012

    def table(self) -> dps.Table:
        """Return the table with its records."""
        found = dps.Table(by=self.by, columns=self.columns, user=self.user, **self.options)
        found.update(self.records)
        return found


class Watched(TableContent):
    """Records of a table which remember what a law kept of them."""

    __slots__ = ()
    last: tuple[TableContent, Kept] | None = None

    def keep(self, asked: Any, most: Any) -> Kept:
        """Keep the records that count, and remember them."""
        kept = super().keep(asked, most)
        Watched.last = (self, kept)
        return kept


class Counted(NamedTuple):
    """The records that counted in a release, and the pairs of a unit and a row that they belong to.

    A row is a place in ``names``, or one more for all other groups.

    Attributes
    ----------
    names : list
        The groups: listed ones, or all where the unit is a record.
    row, units : numpy.ndarray
        The row of each pair, and the number of its records.
    totals : dict
        By value column, the total of each pair.
    record_row, record_units : numpy.ndarray
        The row of each record, and the number of records of its pair.
    values : list
        By value column, the value of each record.
    """

    names: list[Any]
    row: Integers
    units: Integers
    totals: dict[int, Floats]
    record_row: Integers
    record_units: Integers
    values: list[Floats]


def released(table: dps.Table, **budget: float) -> tuple[Any, Counted]:
    """Return a release, and the records that counted in it."""
    # Relational steps can be asked what they kept; ordered records answer alike, which tests hold.
    with (
        mock.patch.object(table_store, "TableContent", Watched),
        mock.patch.object(table_store.RecordStore, "_users_fit", return_value=False),
    ):
        private = table.release(**(budget or BUDGET))
    assert Watched.last is not None
    content, kept = Watched.last
    names = content.names(content.places()) if _by_corners(private) else list(private.groups)
    values = [f"v{place}" for place in range(len(private.spec.values))]
    if not content.by_user:
        (row, *each) = _numbers(kept, f"SELECT row, {', '.join(values) or 'units'} FROM counted")
        row, one = row.astype(np.int64), np.ones(len(row), np.int64)
        return private, Counted(names, row, one, dict(enumerate(each)), row, one, each)
    totals = [name for name in content._columns if name.startswith("t")]
    (row, units, *found) = _numbers(kept, f"SELECT {', '.join(['row', 'units', *totals])} FROM counted")
    kept._join()
    (record_row, record_units, *each) = _numbers(kept, f"SELECT {', '.join(['row', 'units', *values])} FROM joined")
    steps = {int(name[1:]): STEP * column for name, column in zip(totals, found, strict=True)}
    whole = (np.asarray(each, np.int64) for each in (row, units, record_row, record_units))
    first, second, third, fourth = whole
    return private, Counted(names, first, second, steps, third, fourth, each)


def _numbers(kept: Kept, query: str) -> list[Floats]:
    """Return the columns of a query as floats."""
    batches = list(kept._tables.stream(query))  # type: ignore[attr-defined]
    table = pa.Table.from_batches(batches)
    return [np.asarray(column.cast(pa.float64()), np.float64) for column in table.columns]


def truths(private: Any, counted: Counted, index: Integers, size: int) -> dict[str, tuple[Floats, Floats]]:
    """Return what each number of a release is without noise, in rows that are added up by an index.

    A quantile of few records is a stretch: all that lies between its ends is right. Others have equal ends.
    """
    arrays = private.drawn.parts["table"].arrays
    row, record_row = index[counted.row], index[counted.record_row]
    there, record_there = row >= 0, record_row >= 0

    def added(each: Floats, rows: Integers, chosen: Any) -> Floats:
        return np.bincount(rows[chosen], weights=each[chosen], minlength=size)

    users = added(np.ones(len(row)), row, there)
    found = {}
    for column in private.spec.columns:
        measure = private.spec.measure_of(column)
        if measure is not None and measure.kind == "quantiles":
            place = private.law.all_measures.index(measure) if _by_corners(private) else _place(private, measure)
            domain = private.law.shape(place, arrays).domain(measure.stated)
            values = np.clip(counted.values[measure.value], *domain)
            ends = quantiles(values[record_there], record_row[record_there],
                             1 / counted.record_units[record_there], column.shares, size)  # fmt: skip
            found |= {name: ends[place] for place, name in enumerate(column.names)}
            continue
        exact = users
        if measure is not None:
            low, high = private.bounds[column.names[0]]
            match measure.kind:
                case "count":
                    exact = added(np.clip(counted.units.astype(float), low, high), row, there)
                case "total":
                    exact = added(np.clip(counted.totals[measure.value], low, high), row, there)
                case "user_mean":
                    exact = added(np.clip(counted.totals[measure.value] / counted.units, low, high), row, there)
                case _:
                    most = private.bounds["max_records"]
                    share = np.minimum(counted.record_units, most) / counted.record_units
                    values = np.clip(counted.values[measure.value], low, high)
                    exact = added(values * share, record_row, record_there)
                    users = added(np.minimum(counted.units, most).astype(float), row, there)
            if column.kind == "mean":
                exact = np.where(users > 0, exact / np.maximum(users, 1), np.nan)
        users = added(np.ones(len(row)), row, there)
        found[column.names[0]] = exact, exact
    return found


def _by_corners(private: Any) -> bool:
    return isinstance(private.law, CornerTable)


def _place(private: Any, measure: Measure) -> int:
    return int(private.law.measures.index(measure))


def quantiles(
    values: Floats, rows: Integers, weights: Floats, shares: Sequence[float], size: int
) -> list[tuple[Floats, Floats]]:
    """Return the least and the largest quantile of the values of each row, by weight."""
    order = np.lexsort((values, rows))
    values, rows, weights = values[order], rows[order], weights[order]
    firsts = np.searchsorted(rows, np.arange(size + 1))
    found = [(np.full(size, np.nan), np.full(size, np.nan)) for _ in shares]
    for row in range(size):
        part = slice(firsts[row], firsts[row + 1])
        below = np.cumsum(weights[part])
        for place, share in enumerate(shares):
            if len(below):
                wanted = share * below[-1]
                least = int(np.searchsorted(below, wanted * (1 - 1e-12)))
                most = min(int(np.searchsorted(below, wanted * (1 + 1e-12), side="right")), len(below) - 1)
                found[place][0][row], found[place][1][row] = values[part][[least, most]]
    return found


def least_coverage(confidence: float, rows: int) -> float:
    """Return the least coverage of a number of rows that is accepted."""
    error = 0.0 if confidence == JUDGED else math.sqrt(confidence * (1 - confidence) / rows)
    return confidence - SHORT - 3 * error


class Tally:
    """How many intervals hold, by setting, rows, column, confidence and band."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, float, str], list[int]] = {}

    def add(self, where: str, name: str, confidence: float, sizes: Floats, holds: Any, known: Any) -> None:
        """Count the rows of a release, by band."""
        bands = np.digitize(sizes, BANDS)
        for band in range(len(BANDS) + 1):
            here = known & (bands == band)
            each = self.found.setdefault((where, name, confidence, _band(band)), [0, 0])
            each[0] += int((holds & here).sum())
            each[1] += int(here.sum())

    def rows(self) -> list[dict[str, Any]]:
        """Return what was counted, with a verdict where there are enough rows."""
        found = []
        for (where, name, confidence, band), (held, rows) in self.found.items():
            if rows:
                row = {"setting": where, "column": name, "confidence": confidence, "band": band, "rows": rows}
                coverage = held / rows
                verdict = coverage >= least_coverage(confidence, rows) if rows >= FEWEST else None
                found.append({**row, "coverage": round(coverage, 5), "holds": verdict})
        return found


def _band(place: int) -> str:
    return f"<{BANDS[place]}" if place < len(BANDS) else f">={BANDS[-1]}"


def tally(setting: Setting, private: Any, counted: Counted, found: Tally) -> None:
    """Count which intervals of a release hold: of its rows, of all others, and of rows that are added up."""
    listed = list(private.groups)
    places = {str(name): place for place, name in enumerate(listed)}
    rest = len(listed)
    index = np.array([*(places.get(str(name), rest) for name in counted.names), rest], np.int64)
    exact = truths(private, counted, index, rest + 1)
    sizes = np.bincount(index[counted.row], minlength=rest + 1).astype(float)
    for confidence in CONFIDENCES:
        for column in private.spec.columns:
            for name, answer in zip(column.names, private._decoded.answers(column, confidence), strict=True):
                least, most = exact[name]
                slack = 1e-6 * np.maximum(1.0, np.abs(most))
                holds = (answer.low <= most + slack) & (least - slack <= answer.high)
                known = ~np.isnan(least) & ~np.isnan(answer.low)
                is_listed = np.arange(rest + 1) < rest
                found.add(setting.name, name, confidence, sizes, holds, known & is_listed)
                found.add(f"{setting.name}, others", name, confidence, sizes, holds, known & ~is_listed)
    for parent in setting.parents:
        _tally_rolled(setting, private, counted, parent, found)


def _tally_rolled(setting: Setting, private: Any, counted: Counted, parent: str, found: Tally) -> None:
    """Count which intervals of rolled-up rows hold the listed groups alone and, for records, all groups."""
    view = private.rollup(parent)
    at = list(setting.by).index(parent)
    names = [str(each) for each in view.to_arrow()[parent].to_pylist()]
    places, listed = {name: place for place, name in enumerate(names)}, set(map(str, private.groups))
    every = [places.get(str(name[at]), -1) for name in parsed_keys(list(map(str, counted.names)), setting.by)]
    own = [place if str(name) in listed else -1 for place, name in zip(every, counted.names, strict=True)]
    for label, rows in (("listed", own), *([("all", every)] if _by_corners(private) else [])):
        index = np.array([*rows, -1], np.int64)
        exact = truths(private, counted, index, len(names))
        sizes = np.bincount(index[counted.row][index[counted.row] >= 0], minlength=len(names)).astype(float)
        for confidence in CONFIDENCES:
            table = view.to_arrow(confidence=confidence)
            for column in private.spec.columns:
                if label == "all" and column.kind in ("mean", "quantiles"):
                    continue  # these are of listed groups
                for name in column.names:
                    if name in table.column_names:
                        low, high = (table[f"{name}_{end}"].to_numpy() for end in ("low", "high"))
                        least, most = exact[name]
                        slack = 1e-6 * np.maximum(1.0, np.abs(most))
                        holds = (low <= most + slack) & (least - slack <= high)
                        where = f"{setting.name}, by {parent}, {label}"
                        found.add(where, name, confidence, sizes, holds, ~np.isnan(least))


def asked(case: TableCase) -> Setting:
    """Return the query of a case."""
    if case.name == "A":
        columns: tuple[Any, ...] = (
            dps.count(), dps.sum("distance", bounds=(0, 5000)), dps.mean("dep_delay", bounds=(-60, 180)),
            dps.quantiles("dep_delay", [0.5], grid=1),
        )  # fmt: skip
        return Setting("A", case.records, case.by, columns, parents=("dest",))
    if case.name == "B":
        means = dps.mean("dep_delay", over="users"), dps.mean("dep_delay", name="mean_over_records")
        columns = (dps.users(), dps.count(), dps.sum("distance"), *means, dps.quantiles("dep_delay", [0.5], grid=1))
        return Setting("B", case.records, case.by, columns, case.user)
    columns = (dps.users(), dps.count(), dps.sum("amount"), dps.mean("amount"), dps.quantiles("amount", [0.5]))
    return Setting("C", case.records, case.by, columns, case.user, parents=("country",))


def more_settings() -> Iterator[Setting]:
    """Yield settings that only coverage is measured on: other forms, given bounds, rows of every size."""
    flights = load("A").records
    month = pa.array(np.arange(len(flights)) % 12)
    flights = flights.append_column("month", month)
    quantiles_ = dps.quantiles("dep_delay", [0.5, 0.9], grid=1)
    chosen = (dps.count(), dps.sum("distance"), dps.mean("dep_delay"), quantiles_)
    by = ("carrier", "dest", "month")
    yield Setting("A by month, chosen", flights, by, chosen, parents=("carrier",))
    delay = flights["dep_delay"].to_numpy()
    for name, each in {"late": np.maximum(delay, 0), "early": np.minimum(delay, 0)}.items():
        flights = flights.append_column(name, pa.array(each))
    given = (
        dps.count(), dps.sum("distance", bounds=(0, 3000)), dps.mean("dep_delay", bounds=(-30, 120)),
        dps.sum("late", bounds=(0, 120)), dps.mean("early", bounds=(-20, 0)), quantiles_,
    )  # fmt: skip
    yield Setting("A by month, four value columns, Gaussian", flights, by, given, parents=("carrier",))
    given = (
        dps.users(), dps.count(), dps.sum("distance", bounds=(0, 20000)), dps.mean("dep_delay", bounds=(-30, 90)),
        dps.mean("dep_delay", bounds=(-30, 90), over="users", name="over_users"),
        dps.quantiles("dep_delay", [0.5, 0.9], bounds=(-30, 90), grid=1),
    )  # fmt: skip
    options = {"max_keys": 30, "max_records": 20}
    yield Setting("B given", load("B").records, ("carrier", "dest"), given, "tailnum", ("dest",), options)


def near(per_size: int = 3_000_000) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the coverage of rows of records near the cutoff, given that they are listed."""
    for values in (0, 1, 2, 3):
        columns = [dps.count(), *(dps.sum(f"x{i}", bounds=(-1, 3)) for i in range(values))]
        columns += [dps.mean("x0", bounds=(-1, 3))] if values else []
        spec = dps.Table(by="g", columns=columns).spec
        (law,) = spec.laws(Budget(1.0, 1e-6, None))
        assert isinstance(law, CornerTable)
        assert law.cutoff is not None
        cutoff = law.cutoff / law.corner
        for part, count in (("T/3", round(cutoff / 3)), ("T/2", round(cutoff / 2)), ("T", round(cutoff))):
            rows = per_size if part != "T" else 20_000
            # Every record of a row has the same value: ¾ of the way in the first column, ¼ in the others.
            at = np.array([0.75, 0.25, 0.25][:values])
            signs = np.arange(1 << values)[:, None] >> np.arange(values) & 1
            cells = np.prod(np.where(signs == 1, at, 1 - at), axis=1) if values else np.ones(1)
            exact = np.round(count * cells * law.corner).astype(np.int64)
            noisy = exact + law.cells.sample(rows * len(cells)).reshape(rows, -1)
            noisy = noisy[noisy.sum(axis=1) >= law.cutoff]
            shapes = {shape_of(place): np.zeros(281, np.int64) for place in range(len(law.shapes))}
            rest = np.zeros((1, len(cells)), np.int64)
            decoded = decode(spec, law, {CELLS: np.concatenate([noisy, rest]), **shapes})
            for confidence in CONFIDENCES:
                for column in spec.columns:
                    (answer,) = decoded.answers(column, confidence)
                    mean = -1 + 4 * (0.75 if column.value == "x0" else 0.25)
                    truth = {"count": count, "sum": count * mean, "mean": mean}[column.kind]
                    slack = 1e-6 * count
                    holds = ((answer.low <= truth + slack) & (truth - slack <= answer.high))[:-1]
                    yield (
                        f"{values} value columns, c = {part}",
                        {"column": column.names[0], "confidence": confidence, "rows": len(holds),
                         "coverage": round(float(holds.mean()), 5) if len(holds) else None,
                         "holds": bool(holds.mean() >= least_coverage(confidence, len(holds)))
                         if len(holds) >= FEWEST else None},
                    )  # fmt: skip


def regret(case: TableCase, epsilon: float) -> dict[str, Any]:
    """Return the error of a sum at the bounds that a release chose, and at the best fixed ones."""
    setting = asked(case)
    private, counted = released(setting.table(), epsilon=epsilon, delta=1e-6)
    (column,) = (each for each in private.spec.columns if each.kind == "sum")
    measure = private.spec.measure_of(column)
    totals, rows = counted.totals[measure.value], len(private.groups)
    listed = counted.row < rows
    totals, row = totals[listed], counted.row[listed]
    law, arrays = private.law, private.drawn.parts["table"].arrays
    assert isinstance(law, CentredTable)
    keys = law.rows_of_a_user(arrays)
    noise = law.under(law.noises[_place(private, measure)], keys).variance / 2.0**56
    heads = law.under(law.users, keys).variance

    def error(low: float, high: float, alone: float = 1.0) -> float:
        """Return the error; ``alone`` is the noise of a release whose bounds are stated."""
        cut = np.bincount(row, weights=np.clip(totals, low, high) - totals, minlength=rows)
        variance = ((high - low) / 2) ** 2 * noise + ((high + low) / 2) ** 2 * heads
        return math.sqrt(alone * variance + float(np.mean(cut**2)))

    top = np.quantile(totals, 1 - np.logspace(-5, -0.3, 40))
    bottom = np.unique([0.0, *np.quantile(totals, np.linspace(0, 0.5, 12))])
    best = min((error(low, high), float(low), float(high)) for low in bottom for high in top if low < high)
    own = private.bounds[column.names[0]]
    return {
        "case": case.name, "epsilon": epsilon, "chosen": own, "best": best[1:], "error": error(*own),
        "least": best[0], "ratio": error(*own) / best[0], "above_zero": error(0.0, own[1]) / error(*own),
    }  # fmt: skip


def measured(parts: Sequence[str], only: Sequence[str], releases: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the rows of each part, setting by setting."""
    settings = [asked(load(name)) for name in LIMITS]
    if "coverage" in parts:
        settings += more_settings()
    for setting in (each for each in settings if each.name in (only or [each.name for each in settings])):
        if not {"errors", "coverage"} & set(parts):
            break
        case, errors, found = load(setting.name) if setting.name in LIMITS else None, [], Tally()
        table = setting.table()
        for _ in range(releases if case else max(1, releases // 4)):
            private, counted = released(table)
            if case:
                listed = [name if isinstance(name, tuple) else (name,) for name in private.groups]
                errors.append(score(case, _named(case, listed), _estimates(private)))
            if "coverage" in parts:
                tally(setting, private, counted, found)
        if case and "errors" in parts:
            yield "errors", [_judged(setting.name, errors)]
        if "coverage" in parts:
            yield "coverage", [{"of": setting.name, **row} for row in found.rows()]
    if "near" in parts:
        yield "near", [{"of": name, **row} for name, row in near()]
    if "bounds" in parts:
        for name in "BC":
            for epsilon in (1.0, 3.0):
                runs = [regret(load(name), epsilon) for _ in range(4)]
                ratio = math.sqrt(float(np.mean([run["ratio"] ** 2 for run in runs])))
                yield "bounds", [{"of": f"{name} at {epsilon:g}", "ratio": ratio, "limit": REGRET,
                                  "holds": ratio <= REGRET, "runs": runs}]  # fmt: skip


def _named(case: TableCase, listed: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the names of groups as the records have them: those of several columns are texts in a release."""
    as_text = {tuple(map(str, name)): name for name in case.names}
    return [as_text[tuple(map(str, name))] for name in listed]


def _estimates(private: Any) -> dict[str, Floats]:
    """Return the numbers of a release by what they are compared with, in the order of its groups."""
    found = {}
    for column in private.spec.columns:
        kind = "median" if column.kind == "quantiles" else column.kind
        (answer,) = private._decoded.answers(column, 0.95)
        if kind not in found:
            found[kind] = answer.value[:-1]
    return found


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each number over releases; of errors, the root of the mean square."""
    return {name: round(float(np.sqrt(np.mean([row[name] ** 2 for row in rows]))), 4) for name in rows[0]}


def _judged(case: str, errors: list[dict[str, float]]) -> dict[str, Any]:
    means = _means(errors)
    verdicts = {
        name: {"limit": limit, "found": means[name],
               "holds": means[name] >= limit if name == "groups" else means[name] <= limit}
        for name, limit in LIMITS[case].items()
    }  # fmt: skip
    holds = all(each["holds"] for each in verdicts.values())
    return {"of": case, "releases": len(errors), "holds": holds, "verdicts": verdicts, "means": means, "each": errors}


def main(arguments: list[str]) -> None:
    """Measure what is named, or all, and keep it in place of earlier results of the same."""
    options = {"--releases": str(RELEASES), "--only": ""}
    for option in options:
        if option in arguments:
            at = arguments.index(option)
            options[option] = arguments[at + 1]
            arguments = arguments[:at] + arguments[at + 2 :]
    parts = [each for each in PARTS if each in arguments] or list(PARTS)
    only = [each for each in options["--only"].split(";") if each]
    for name, rows in measured(parts, only, int(options["--releases"])):
        stored: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
        fresh = {row["of"] for row in rows}
        stored[name] = [row for row in stored.get(name, []) if row["of"] not in fresh] + rows
        STORED.write_text(json.dumps({**stored, "machine": machine()}, indent=1, ensure_ascii=False) + "\n")
        failed = [row for row in rows if row["holds"] is False]
        print(f"{name}, {rows[0]['of']}: {len(rows)} limits, {len(failed)} not met", flush=True)
        for row in rows if name == "errors" else failed:
            print("  ", {key: each for key, each in row.items() if key not in ("runs", "each")}, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
