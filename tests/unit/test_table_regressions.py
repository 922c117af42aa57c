"""Tables, their streams and their neighbours: defects that were found and repaired, each in a small test."""

from __future__ import annotations

import datetime
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch import answers, files
from dpsketch.columns import as_column, has_schema
from dpsketch.errors import FileRefused, InvalidInput, SourceError
from dpsketch.plan import Amount, Guess, propose
from dpsketch.sketches.feed import feed
from dpsketch.sketches.frames import read_columns
from dpsketch.sources import Columns, open_source

EXACT: dict[str, Any] = {"rho": 1e9}
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
LARGE = np.array([2**63 + 5, 7] * 500, np.uint64)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_library_that_is_being_imported_is_looked_at_safely(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Another thread imports it: the module stands there, and has no classes yet."""
    keys, frame = np.array([1, 2, 3]), pa.table({"k": [1], "w": [1.0]})
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert as_column(keys).to_pylist() == [1, 2, 3]
    assert has_schema(keys)
    assert not has_schema(["a"])
    (columns,) = read_columns(frame, {"key": "k", "weight": "w"}, {}, kind="Histogram", takes=("weights",))
    assert len(columns.records) == 1


def test_columns_of_libraries_are_still_known() -> None:
    assert has_schema(pd.Series([1]))
    assert has_schema(pd.Series(["a"]).astype("string").astype("category"))
    assert not has_schema(pd.Series([1, "a"], dtype=object))
    assert not has_schema(pl.Series([object()]))
    assert as_column(pl.Series([1, 2])).to_pylist() == [1, 2]


def kinds(folder: Path, records: Any) -> list[Any]:
    """Return what counts the records of a file by name: a histogram, votes, and a query."""
    path = folder / "k.parquet"
    pa.parquet.write_table(pa.table({"k": records}), path)
    columns = Columns(key="k", named=True)

    def counted(sketch: Any) -> Any:
        feed(sketch, open_source([str(path)], columns))
        return sketch

    unit = {"unit": dps.per_record()}
    return [
        lambda: [*counted(dps.Histogram(**unit)).release(**BUDGET).keys],
        lambda: [*counted(dps.VoteHistogram(**unit, max_counters=100)).release(**BUDGET).keys],
        lambda: dps.sql(f"SELECT k, count(*) FROM '{path}' GROUP BY k", **BUDGET).to_arrow()["k"].to_pylist(),
        lambda: dps.sql("SELECT k, count(*) FROM t GROUP BY k", {"t": pa.table({"k": records})}, **BUDGET).groups,
    ]


def test_names_from_2_63_on_are_refused_and_smaller_ones_are_their_own(tmp_path: Path) -> None:
    for count in kinds(tmp_path, LARGE):
        with pytest.raises((InvalidInput, SourceError), match=r"below 2\*\*63, and one is not") as refused:
            count()
        assert "9223372036854775813" not in str(refused.value)
    for count in kinds(tmp_path, np.array([2**63 - 1, 7] * 500, np.uint64)):
        assert sorted(count()) == [7, 2**63 - 1]


def test_text_that_is_read_as_named_integers_is_below_2_63(tmp_path: Path) -> None:
    path = tmp_path / "k.csv"
    path.write_text("k\n18446744073709551615\n5\n")
    for named, expected in ((False, [-1, 5]), (True, None)):
        columns = Columns(key="k", key_type="int", named=named)
        if expected is not None:
            assert [key for batch in open_source([str(path)], columns) for key in batch.key.to_pylist()] == expected
            continue
        with pytest.raises(SourceError, match=r"below 2\*\*63"):
            list(open_source([str(path)], columns))
    path.write_text("k\n 5.0\nx\n")
    with pytest.raises(SourceError, match="not a whole 64-bit number"):
        list(open_source([str(path)], Columns(key="k", key_type="int", named=True)))


def test_fingerprints_of_large_numbers_are_still_counted(tmp_path: Path) -> None:
    path = tmp_path / "k.parquet"
    pa.parquet.write_table(pa.table({"k": LARGE}), path)
    sketch = dps.CountSketch(unit=dps.per_record(), rows=3, width=64)
    feed(sketch, open_source([str(path)], Columns(key="k")))
    assert sketch.release(**EXACT).estimate(LARGE[:1]).value[0] == pytest.approx(500, abs=1)


def test_having_compares_an_unsigned_group() -> None:
    frame = pa.table({"g": np.array([1, 2, 3] * 500, np.uint64)})
    answer = dps.sql("SELECT g, count(*) FROM t GROUP BY g HAVING g > 2", {"t": frame}, **BUDGET)
    assert answer.to_arrow()["g"].to_pylist() == [3]


def table_stream(days: int = 3, **options: Any) -> Any:
    table = dps.Table(by="g", columns=[dps.count()], **options)
    return dps.ContinualSketch(table, days=days, keys=["a", "b"], epsilon=1.0, delta=1e-6)


def test_the_days_of_a_stream_keep_the_memory_limit(tmp_path: Path) -> None:
    stream = table_stream(memory_limit="512MB", temp_directory=tmp_path)
    for _ in range(2):
        limit = stream._today._store.limit
        assert (limit.size, limit.temp_directory) == (512 * 10**6, str(tmp_path))
        stream.publish_day()


def forged(release: Any, name: str, array: Any) -> bytes:
    document = release.to_document()
    assert name in document.arrays
    return files.encode(replace(document, arrays={**document.arrays, name: array}))


def stream_of(what: str) -> Any:
    """Return a stream of at most 40 days, or without an end, seven of which are published."""
    unit, days = dps.per_record(), None if what == "endless" else 40
    match what:
        case "table":
            made = table_stream(40)
        case "found":
            made = dps.ContinualSketch(dps.Histogram(unit=unit, key_type="text"), days=40, **BUDGET)
        case "counts":
            made = dps.ContinualSketch(dps.CountSketch(unit=unit, rows=3, width=4, key_type="text"), days=40, **BUDGET)
        case _:
            design: Any = None if what == "endless" else what
            made = dps.ContinualSketch(dps.Histogram(unit=unit), days=days, keys=["a"], design=design, **BUDGET)
    for _ in range(7):
        made.publish_day()
    return made


@pytest.mark.parametrize(
    "what", ["table", "found", "counts", "endless", "recurrence", "banded", "daily", "blocks", "tree", "pan-private"]
)
def test_a_window_has_the_weights_of_some_days(what: str) -> None:
    """Other weights would state that there is no noise, or less."""
    stream = stream_of(what)
    for days in ((1, 1), (1, 7), (3, 5), (7, 7), (2, 4)):
        release = stream.between(*days)
        document = release.to_document()
        dps.load(files.encode(document))
        (name,) = (each for each in document.arrays if "__weights" in each)
        weights = np.asarray(document.arrays[name])
        wrong = [np.empty(0), np.zeros(1), np.zeros(len(weights)), weights / 2, np.append(weights, 0.5)]
        wrong += [weights * np.nan, np.full(len(weights), 1e308), np.ones((1, 1)), np.full(4000, 0.3)]
        for array in wrong:
            with pytest.raises(FileRefused):
                dps.load(forged(release, name, array))


def test_sums_and_differences_of_windows_are_still_read() -> None:
    stream = stream_of("counts")
    for made in (stream.between(1, 3) + stream.between(4, 7), stream.between(5, 7) - stream.between(1, 3),
                 stream.between(1, 7) - stream.between(1, 7)):  # fmt: skip
        assert dps.load(files.encode(made.to_document())).guarantee == made.guarantee


def test_centred_counts_are_small_enough_to_add_up() -> None:
    histogram = dps.Histogram(unit=dps.per_user(max_keys=50))
    histogram.update(["a", "b"] * 50, users=[*range(100)])
    release = histogram.release(keys=[*"abcdefghijklmnopqrst"], **BUDGET)
    dps.load(files.encode(release.to_document()))
    assert "entries__people" in release.to_document().arrays
    for name, shape in (("table", (20,)), ("people", (1,))):
        for number in (2**63 - 1, -(2**63), 2**62):
            with pytest.raises(FileRefused):
                dps.load(forged(release, f"entries__{name}", np.full(shape, number)))


def released(*columns: Any, groups: Any = None, budget: Any = None, by: Any = "g") -> Any:
    table = dps.Table(by=by, columns=columns)
    table.update(pa.table({"g": ["a", "b"] * 500, "h": ["x"] * 1000, "v": [1.0] * 1000}))
    return table.release(**(BUDGET if budget is None else budget), groups=groups)


def test_tables_are_compared_in_the_numbers_and_groups_that_both_have() -> None:
    one = released(dps.count(), dps.sum("v", bounds=(0, 1)), groups=["a", "b"])
    other = released(dps.sum("v", bounds=(0, 1)), dps.mean("v", bounds=(0, 1)), groups=["b", "c"])
    for asked in (["b"], []):
        found, guarantee = answers.compare(one, other, asked, 0.95)
        assert [tuple(key) for key in found.key] == [("b", "sum_v")]
        assert found.low[0] <= 0 <= found.high[0]
        assert guarantee.epsilon < 3
    same, _ = answers.compare(one, one, [], 0.95)
    assert len(same) == 4


def test_tables_of_several_columns_are_compared() -> None:
    one = released(dps.count(), by=["g", "h"])
    found, _ = answers.compare(one, one, [], 0.95)
    assert sorted(tuple(key) for key in found.key) == [("a,x", "count"), ("b,x", "count")]


def test_tables_without_a_common_number_or_group_are_not_compared() -> None:
    count, mean = released(dps.count()), released(dps.mean("v", bounds=(0, 1)))
    with pytest.raises(InvalidInput, match="no number in common: one has count, the other mean_v"):
        answers.compare(count, mean, [], 0.95)
    with pytest.raises(InvalidInput, match="no group in common"):
        answers.compare(count, released(dps.count(), groups=["c"]), [], 0.95)
    with pytest.raises(InvalidInput, match="groups of different columns"):
        answers.compare(count, released(dps.count(), by="h"), [], 0.95)


def test_two_releases_whose_deltas_are_spent_promise_the_sums() -> None:
    """Basic composition: ε₁ + ε₂ with δ₁ + δ₂."""
    table = dps.Table(by="g", columns=[dps.count()])
    table.update(pa.table({"g": ["a", "b"] * 500}))
    one, other = table.release(**BUDGET), table.release(epsilon=0.5, delta=1e-7)
    _, guarantee = answers.compare(one, other, [], 0.95)
    assert guarantee.epsilon <= 1.5 + 1e-9
    assert guarantee.delta <= 1.1e-6 * (1 + 1e-9)
    assert "inf" not in str(guarantee)


def test_one_column_and_one_quantile_stand_alone() -> None:
    table = dps.Table(by="g", columns=dps.quantiles("v", 0.5))
    assert table.spec.columns == (dps.quantiles("v", [0.5]),)
    assert dps.Table(by="g", columns=dps.count()).spec.columns == (dps.count(),)
    with pytest.raises(InvalidInput):
        dps.quantiles("v", "half")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="quantile"):
        dps.quantiles("v", None)  # type: ignore[arg-type]


def test_a_release_that_is_cut_short_anywhere_is_damaged() -> None:
    data = files.encode(released(dps.count(), groups=["a"]).to_document())
    for length in (8, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(FileRefused, match="damaged: it was cut short"):
            dps.load(data[:length])
    with pytest.raises(FileRefused, match="not a dpsketch file"):
        dps.load(b"\xff" * 1000)


def planned(*columns: Any, users: float | None = 5000, max_keys: Any = 1) -> Any:
    unit = dps.per_record() if users is None else dps.per_user(max_keys)
    guess = Guess(60_000, 3, 0.0, users)
    return propose("table", Amount(unit, 1.0, 1e-6), guess, listed=True, columns=columns)


def test_a_plan_speaks_of_the_users_that_count() -> None:
    """5,000 users in one of three groups each."""
    found = planned(dps.users(), dps.sum("amount", bounds=(0, 1000)))
    assert found.also["typical_size"] == pytest.approx(5000 / 3, rel=0.05)
    assert planned(dps.users(), max_keys=3).also["typical_size"] == pytest.approx(5000, rel=0.05)
    assert planned(dps.count(), users=None).also["typical_size"] == pytest.approx(20_000, rel=0.05)


def test_a_plan_takes_values_from_the_range_of_a_total() -> None:
    """A user has 12 records, about 4 in each of three groups."""
    (note,) = (each for each in planned(dps.sum("amount", bounds=(0, 1000))).notes if "amount are taken" in each)
    assert "between 0 and 245" in note
    assert "a user's total" in note
    (note,) = (each for each in planned(dps.sum("amount")).notes if "amount are taken" in each)
    assert "between 0 and 1:" in note
    stated = planned(dps.sum("amount", bounds=(0, 1000)), dps.mean("amount", bounds=(0, 90)))
    assert not any("amount are taken" in each for each in stated.notes)


DATES = [datetime.date(2026, 3, 1), datetime.date(2026, 3, 2)]


@pytest.mark.parametrize("first", [DATES[0], "2026-03-01", datetime.datetime(2026, 3, 1)], ids=["date", "text", "time"])
def test_a_public_list_is_read_in_the_type_of_its_column(first: Any) -> None:
    """Other spellings of a day were taken for groups without records."""
    table = dps.Table(by=["day", "shop"], columns=[dps.count()])
    table.update(pa.table({"day": [day for day in DATES for _ in range(500)], "shop": ["a"] * 1000}))
    (row,) = table.release(epsilon=5.0, delta=0, groups=[(first, "a")]).to_arrow().to_pylist()
    assert row["day"] == DATES[0]
    assert abs(row["count"] - 500) < 50
    for wrong in ("garbage", 5):
        with pytest.raises(InvalidInput, match="dates"):
            table.release(epsilon=5.0, delta=0, groups=[(wrong, "a")])
    with pytest.raises(InvalidInput, match="empty"):
        table.release(epsilon=5.0, delta=0, groups=[])


def test_no_user_is_taken_to_be_in_more_groups_than_there_are() -> None:
    """Of 200 tables with two groups one had chosen 431 groups a user, from noise in a range that nobody is in."""
    table = dps.Table(by="g", columns=[dps.users()], user="u")
    table.update(pa.table({"g": ["a", "b"] * 2000, "u": list(range(4000))}))
    release = table.release(epsilon=1.0, delta=1e-6)
    arrays = dict(release.drawn.parts["table"].arrays)
    held = np.zeros_like(arrays["held"])
    held[[0, 10]] = 10**6  # users of one row, and of some 40
    assert release.law._best_keys({**arrays, "held": held}) <= 4


def test_a_condition_goes_before_what_is_computed() -> None:
    records = pa.table({"x": [1.0, 2.0, float("nan"), float("inf")] * 500})
    query = "SELECT CAST(floor(x) AS INTEGER) AS b, COUNT(*) AS n FROM f WHERE isfinite(x) GROUP BY b"
    assert dps.sql(query, {"f": records}, epsilon=5.0, delta=1e-6).to_arrow().column("b").to_pylist() == [1, 2]
