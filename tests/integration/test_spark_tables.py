"""Tables of records that stay on a cluster: what laws ask of them, and what is released, is that of one machine."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import InvalidInput
from dpsketch.laws.groups import SCALE, Kept, Measure, TableContent
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches.table.store import RecordStore

pytest.importorskip("pyspark")

from dpsketch import spark as cluster
from dpsketch.spark.tables import _ClusterTable

# Py4J leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

ROWS = 1_500
COUNT = Measure("count", "count", -1, 1.0, 4.0)
TOTAL = Measure("total x", "total", 0, 0.0, 8.0)
USER_MEAN = Measure("mean x", "user_mean", 0, 0.0, 8.0)
RECORD_MEAN = Measure("record mean x", "record_mean", 0, 0.0, 8.0)
QUANTILES = Measure("quantiles x", "quantiles", 0, levels=2)
EDGES = [1.0, 2.5, 2.5 + 2.0**-20]


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
            "alone": pa.array(np.arange(ROWS)),
        }
    )


@pytest.fixture(scope="module")
def frame(spark: Any, table: pa.Table) -> Any:
    return spark.createDataFrame(table).repartition(3).persist()


def complete(table: pa.Table, *names: str) -> int:
    """The number of records in which no column is missing, nor NaN."""
    return table.select(names).to_pandas().dropna().shape[0]


def answers_of(content: TableContent, ask: Callable[[TableContent], dict[str, Any]]) -> dict[str, Any]:
    """What content answers, with choices by one seed."""
    with seeded_noise_for_tests_only(5):
        return ask(content)


def compare(table: pa.Table, frame: Any, spec: Any, ask: Callable[[TableContent], dict[str, Any]]) -> dict[str, Any]:
    """Ask one machine and the cluster, and return the one answer that both must give."""
    here = dps.Table.from_spec(spec)
    here.update(table)
    with here._opened() as content:
        expected = answers_of(content, ask)
    there = _ClusterTable.from_spec(spec)
    there.records = cluster.tables.records_of(frame, there)
    with there._opened() as content:
        found = answers_of(content, ask)
    assert list(found) == list(expected)
    for name, answer in found.items():
        same = answer == expected[name] if isinstance(answer, list) else np.array_equal(answer, expected[name])
        assert same, name
    return found


def common(content: TableContent, listed: list[Any]) -> tuple[Kept, dict[str, Any]]:
    """Find some groups, keep two rows of a user, and return with these what was seen on the way."""
    held = np.empty(0, np.int64)

    def most(ranges: Any) -> int:
        nonlocal held
        held = ranges
        return 2

    asked, places = content.find(listed), content.places()
    weights = np.concatenate([np.stack(block) for block in content.weights(asked[asked >= 0], 5)], axis=1)
    found = {"asked": asked, "places": places, "names": content.names(places), "weights": weights}
    kept = content.keep(asked, most)
    return kept, {**found, "held": held}


@pytest.mark.parametrize("groups", ["text", "bytes"])
def test_users_are_kept_and_added_up_as_on_one_machine(table: pa.Table, frame: Any, groups: str) -> None:
    """Which rows of a user count is the same for one seed; names are bytes that are no text, too."""
    columns = [dps.count(), dps.sum("x"), dps.mean("x")]
    spec = dps.Table(by=groups, user="user", max_keys=2, columns=columns).spec
    words = ["ä", "nobody's", "", 'a,"b"']
    listed = words if groups == "text" else [b"\xff" + word.encode() for word in words]

    def ask(content: TableContent) -> dict[str, Any]:
        kept, found = common(content, listed)
        found |= {"users": kept.users()}
        for measure in (COUNT, TOTAL, USER_MEAN):
            found[f"shape of {measure.name}"] = kept.shape(measure)
        for measure in (COUNT, TOTAL, USER_MEAN, RECORD_MEAN):
            found[measure.name] = kept.centred(measure, (0.0, 8.0), 4)
        found["leaves"] = kept.leaves(QUANTILES, EDGES, SCALE)
        found["cells"] = kept.cells([(COUNT, (1.0, 4.0)), (TOTAL, (0.0, 8.0))], 1 << 15)
        return found

    answers = compare(table, frame, spec, ask)
    assert answers["asked"].tolist()[1] == -1
    names = [name if isinstance(name, bytes) else name.encode() for name in answers["names"]]
    assert names == sorted(names)
    users = answers["users"]
    assert users[1] == 0
    assert all(users[[0, 2, 3, 4]] > 0)
    assert answers["held"].sum() <= 300 < users.sum() <= 2 * answers["held"].sum() < complete(table, "user")


def test_records_are_added_up_as_on_one_machine(table: pa.Table, frame: Any) -> None:
    """Records without a group or a value are left out; what is rounded at random lies on the steps here."""
    spec = dps.Table(by="text", columns=[dps.count(), dps.sum("x"), dps.quantiles("x", [0.5])]).spec

    def ask(content: TableContent) -> dict[str, Any]:
        kept, found = common(content, ["ä", "nobody's", "group 1"])
        found |= {"users": kept.users(), "shape": kept.shape(TOTAL)}
        found["centred"] = kept.centred(TOTAL, (0.0, 8.0), 1)
        found["cells"] = kept.cells([(TOTAL, (0.0, 8.0))], 1 << 30)
        found["leaves"] = kept.leaves(QUANTILES, EDGES, SCALE)
        found["slots"] = kept.slots(QUANTILES, EDGES, np.arange(len(EDGES) + 2), 1)
        return found

    answers = compare(table, frame, spec, ask)
    assert answers["users"].sum() == answers["shape"].sum() == complete(table, "text", "x") < ROWS


def test_a_value_of_a_user_with_one_record_is_that_record_s(table: pa.Table, frame: Any) -> None:
    spec = dps.Table(by="text", user="alone", columns=[dps.mean("x"), dps.quantiles("x", [0.5])]).spec

    def ask(content: TableContent) -> dict[str, Any]:
        kept, found = common(content, ["ä"])
        return found | {"shape": kept.shape(QUANTILES), "means": kept.shape(RECORD_MEAN)}

    answers = compare(table, frame, spec, ask)
    assert answers["shape"].sum() == answers["held"][0] == complete(table, "text", "x")


def test_records_have_one_number_each_whenever_they_are_asked(frame: Any) -> None:
    there = _ClusterTable.from_spec(dps.Table(by="text", columns=[dps.sum("x")]).spec)
    there.records = cluster.tables.records_of(frame.repartition(4), there)
    with there._opened() as content:
        query = "SELECT id, place FROM {records} ORDER BY id"
        first, second = (next(iter(content._tables.numbers(query))) for _ in range(2))
    assert len(np.unique(first[0])) == len(first[0])
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("by", "options", "release"),
    [
        ("text", {"user": "name", "max_keys": 3, "max_records": 4}, {}),
        pytest.param(["text", "day", "even"], {"user": "user"}, {}, marks=pytest.mark.full),
        ("bytes", {"user": "user"}, {"groups": ["ä", b"\xff", b"\xffgroup 1"], "rho": 50.0}),
        pytest.param("day", {"user": "user", "neighbours": "replace"}, {}, marks=pytest.mark.full),
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
