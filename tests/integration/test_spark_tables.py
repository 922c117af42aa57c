"""Tables of records that stay on a cluster: what laws ask of them, and what is released, is that of one machine."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import InvalidInput
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches.table.store import RecordStore

pytest.importorskip("pyspark")

from dpsketch import spark as cluster

# Py4J leaves its sockets to the garbage collector.
pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ROWS = 1_500


@pytest.fixture(autouse=True)
def relational_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One machine takes the steps of the cluster; ordered records draw other seeds, and answer alike otherwise."""
    monkeypatch.setattr(RecordStore, "_users_fit", lambda _: False)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Records with empty, non-ASCII and missing groups, missing users and values, and users with many groups."""
    draw = np.random.default_rng(17)
    words = ["", "ä", "日本語", "🦊", 'a,"b"', None, *(f"group {n}" for n in range(6))]
    which = draw.zipf(1.4, ROWS) % len(words)
    days = [datetime.date(2026, 11, 15) + datetime.timedelta(days=int(n)) for n in draw.integers(0, 2, ROWS)]
    values = draw.integers(0, 10, ROWS).astype(float)
    values[draw.random(ROWS) < 0.01] = np.nan
    return pa.table(
        {
            "text": pa.array([words[n] for n in which]),
            "bytes": pa.array([None if words[n] is None else b"\xff" + words[n].encode() for n in which], pa.binary()),
            "day": pa.array(days, mask=draw.random(ROWS) < 0.01),
            "even": pa.array((which % 2 == 0).tolist()),
            "x": pa.array(values, mask=draw.random(ROWS) < 0.01),
            "whole": pa.array(draw.integers(-5, 10, ROWS)),
            "user": pa.array(draw.integers(0, 300, ROWS), mask=draw.random(ROWS) < 0.01),
            "name": pa.array([f"user {n}" for n in draw.integers(0, 300, ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def frame(spark: Any, table: pa.Table) -> Any:
    return spark.createDataFrame(table).repartition(3).persist()


@pytest.mark.parametrize(
    ("by", "options", "release"),
    [
        ("text", {"user": "name", "max_keys": 3, "max_records": 4}, {}),
        ("bytes", {"user": "user"}, {"groups": ["ä", b"\xff", b"\xffgroup 1"], "rho": 50.0}),
        (["text", "day"], {"user": "user", "neighbours": "replace"}, {}),
    ],
)
def test_a_table_is_released_where_its_records_are(
    table: pa.Table, frame: Any, by: Any, options: dict[str, Any], release: dict[str, Any]
) -> None:
    """The same release bit for bit, given the same noise: names, bounds that are chosen, and columns."""
    columns = [dps.count(), dps.users(), dps.sum("x"), dps.mean("whole", over="users")]
    spec = dps.Table(by=by, columns=columns, **options).spec
    budget = {"epsilon": 30.0, "delta": 1e-3, **release} if "rho" not in release else release
    with seeded_noise_for_tests_only(3):
        here = dps.Table.from_spec(spec)
        here.update(table)
        expected = here.release(**budget)
    with seeded_noise_for_tests_only(3):
        found = cluster.release_table(frame, spec, **budget)
    assert files.encode(found.to_document()) == files.encode(expected.to_document())
    assert found.to_arrow().num_rows > 1


def test_records_of_listed_groups_are_released_with_their_quantiles(table: pa.Table, frame: Any) -> None:
    """At a huge ε: counts are exact, sums to the rounding of values, and quantiles lie in their leaf."""
    columns = [dps.count(), dps.sum("x", bounds=(0, 10)), dps.quantiles("x", [0.5], bounds=(0, 10), grid=1)]
    spec = dps.Table(by=["text", "even"], columns=columns).spec
    groups = [("ä", "false"), ('a,"b"', "true"), ("nobody's", "true")]
    private = cluster.release_table(frame, spec, groups=groups, epsilon=1e3, delta=0.0)
    rows = private.to_arrow().to_pandas().set_index(["text", "even"])
    exact = table.to_pandas().dropna(subset=["text", "x"])
    for text, even in groups:
        own = exact[(exact["text"] == text) & (exact["even"] == (even == "true"))]["x"]
        row = rows.loc[(text, even)] if (text, even) in rows.index else rows.loc[(text, even == "true")]
        assert row["count"] == pytest.approx(len(own), abs=0.5)
        assert row["sum_x"] == pytest.approx(own.sum(), abs=0.5)
        if len(own):
            assert own.quantile(0.4) - 1 <= row["quantile_x_0.5"] <= own.quantile(0.6) + 1


def test_columns_that_one_machine_would_read_otherwise_are_refused(frame: Any) -> None:
    count = dps.Table(by="x").spec
    with pytest.raises(InvalidInput, match="floats, decimals or timestamps"):
        cluster.release_table(frame, count, epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidInput, match="does not hold numbers"):
        cluster.release_table(frame, dps.Table(by="text", columns=[dps.sum("name")]).spec, epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidInput, match="no column 'nothing'"):
        cluster.release_table(frame, dps.Table(by="nothing").spec, epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidInput, match="give the spec of a table"):
        cluster.release_table(frame, dps.Histogram(unit=dps.per_record()).spec, epsilon=1.0, delta=1e-6)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="release_table"):
        cluster.build(frame, count, key="x")
