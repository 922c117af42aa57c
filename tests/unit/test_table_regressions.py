"""Tables, their streams and their neighbours: defects that were found and repaired, each in a small test."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch import answers, files
from dpsketch.errors import FileRefused, InvalidInput, SourceError
from dpsketch.plan import Amount, Guess, propose
from dpsketch.sources import Columns, open_source

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(("text", "words"), [("18446744073709551615", r"below 2\*\*63"), ("x", "not a whole 64-bit")])
def test_text_that_is_read_as_named_integers_is_below_2_63(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "k.csv"
    path.write_text(f"k\n 5.0\n{text}\n")
    with pytest.raises(SourceError, match=words):
        list(open_source([str(path)], Columns(key="k", key_type="int", named=True)))


def test_having_compares_an_unsigned_group() -> None:
    frame = pa.table({"g": np.array([1, 2, 3] * 500, np.uint64)})
    answer = dps.sql("SELECT g, count(*) FROM t GROUP BY g HAVING g > 2", {"t": frame}, **BUDGET)
    assert answer.to_arrow()["g"].to_pylist() == [3]


def test_the_days_of_a_stream_keep_the_memory_limit(tmp_path: Path) -> None:
    table = dps.Table(by="g", columns=[dps.count()], memory_limit="512MB", temp_directory=tmp_path)
    stream = dps.ContinualSketch(table, days=3, keys=["a", "b"], **BUDGET)
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
    unit = dps.per_record()
    if what == "table":
        sketch, given = dps.Table(by="g", columns=[dps.count()]), {"keys": ["a", "b"]}
    elif what == "counts":
        sketch, given = dps.CountSketch(unit=unit, rows=3, width=4, key_type="text"), {}
    else:
        sketch = dps.Histogram(unit=unit, key_type="text")
        given = {} if what == "found" else {"keys": ["a"], "design": None if what == "endless" else what}
    made = dps.ContinualSketch(sketch, days=None if what == "endless" else 40, **BUDGET, **given)
    for _ in range(7):
        made.publish_day()
    return made


@pytest.mark.parametrize(
    "what", ["table", "found", "counts", "endless", "recurrence", "banded", "daily", "blocks", "tree", "pan-private"]
)
def test_a_window_has_the_weights_of_some_days(what: str) -> None:
    """Other weights would state that there is no noise, or less."""
    stream = stream_of(what)
    for days in ((1, 7), (3, 5), (7, 7)):
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


def test_two_releases_whose_deltas_are_spent_promise_the_sums() -> None:
    """Basic composition: ε₁ + ε₂ with δ₁ + δ₂."""
    table = dps.Table(by="g", columns=[dps.count()])
    table.update(pa.table({"g": ["a", "b"] * 500}))
    one, other = table.release(**BUDGET), table.release(epsilon=0.5, delta=1e-7)
    _, guarantee = answers.compare(one, other, [], 0.95)
    assert guarantee.epsilon <= 1.5 + 1e-9
    assert guarantee.delta <= 1.1e-6 * (1 + 1e-9)
    assert "inf" not in str(guarantee)


def test_a_plan_speaks_of_the_users_that_count() -> None:
    """5,000 users in one of three groups each; without users, all 60,000 records."""
    for users, unit, typical in ((5000, dps.per_user(1), 5000 / 3), (None, dps.per_record(), 20_000)):
        column = dps.count() if users is None else dps.users()
        guess = Guess(60_000, 3, 0.0, users)
        found = propose("table", Amount(unit, 1.0, 1e-6), guess, listed=True, columns=[column])
        assert found.also["typical_size"] == pytest.approx(typical, rel=0.05)


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
