"""Sketches built on a real cluster equal those of one machine, whatever happens to its executors.

The quick suite runs test_spark_smoke.py instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch import cli, files, local
from dpsketch.errors import InvalidInput, ReleaseRefused, SourceError
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.privacy import Unit
from dpsketch.sketches.table.store import RecordStore
from sensitive import everything, everything_in

pytest.importorskip("pyspark")

from dpsketch import spark as cluster

# Py4J leaves its sockets to the garbage collector.
pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore::ResourceWarning")]

RECORD = dps.per_record()
USER = dps.per_user(max_keys=3)
ROWS = 20_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Records with empty, non-ASCII and missing values, and users with more keys than count."""
    draw = np.random.default_rng(13)
    numbers = draw.zipf(1.3, ROWS) % 5_000
    words = ["", "ä", "日本語", "🦊", "a" * 40, None, *(f"/page/{n}" for n in range(5_000))]
    user = pa.array(draw.integers(0, 3_000, ROWS), mask=draw.random(ROWS) < 0.01)
    return pa.table(
        {
            "text": pa.array([words[n] for n in numbers]),
            "bytes": pa.array([None if words[n] is None else words[n].encode() for n in numbers], pa.binary()),
            "int": pa.array(numbers - 7, mask=numbers == 3),
            "small": pa.array(numbers % 256),
            "user": user,
            "name": pa.array([None if u is None else f"user {u}" for u in user.to_pylist()]),
            "weight": pa.array(draw.integers(0, 6, ROWS).astype(float), mask=draw.random(ROWS) < 0.01),
            "x": pa.array(draw.normal(size=ROWS), mask=draw.random(ROWS) < 0.01),
            "y": draw.normal(size=ROWS),
        }
    )


@pytest.fixture(scope="module")
def folder(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records in three Parquet files of several row groups."""
    place = tmp_path_factory.mktemp("records")
    for i in range(3):
        piece = table.slice(i * ROWS // 3, (i + 1) * ROWS // 3 - i * ROWS // 3)
        pyarrow.parquet.write_table(piece, place / f"{i}.parquet", row_group_size=1_500)
    return place


@pytest.fixture(scope="module")
def frame(spark: Any, folder: Path) -> Any:
    return spark.read.parquet(str(folder)).repartition(5)


def counts(unit: Unit = RECORD, **more: Any) -> dps.CountSketch:
    return dps.CountSketch(rows=5, width=512, unit=unit, **more)


PLANE = {"kernel": dps.kernels.Euclidean(dim=2, bandwidth=1.0), "rows": 20}
WEIGHTED = dps.per_user(max_keys=2, max_weight=4)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "counts by named user": (lambda: counts(WEIGHTED), {"key": "bytes", "user": "name", "weight": "weight"}),
    "histogram by user": (lambda: dps.Histogram(unit=WEIGHTED), {"key": "text", "user": "name", "weight": "weight"}),
    "heavy": (lambda: dps.HeavyHitters(unit=USER, rows=3, width=64, key_bytes=6), {"key": "text", "user": "name"}),
    "density by user": (lambda: dps.DensitySketch(unit=USER, **PLANE), {"points": ["x", "y"], "user": "user"}),
    "distinct": (lambda: dps.DistinctSketch(unit=USER, buckets=64), {"key": "int", "user": "name"}),
    "quantiles": (lambda: dps.QuantileSketch(unit=RECORD, bits=8, quantiles=[0.5]), {"key": "small"}),
}


def fill(sketch: Any, table: pa.Table, key: str = "", user: str = "", weight: str = "", points: Any = ()) -> Any:
    """Count on one machine, in one update."""
    given = {"users": user, "weights": weight}
    others = {name: table[column] for name, column in given.items() if column}
    sketch.update(table[key] if key else table.select(points), **others)
    return sketch


@pytest.mark.parametrize("case", CASES)
def test_a_cluster_counts_what_one_machine_does(frame: Any, table: pa.Table, case: str) -> None:
    start, columns = CASES[case]
    expected = fill(start(), table, **columns)
    built = cluster.build(frame, start().spec, **columns)
    assert everything(built) == everything(expected)
    assert built.skipped_nulls == expected.skipped_nulls


@pytest.mark.parametrize(
    ("unit", "columns", "options"),
    [
        (WEIGHTED, {"key": "int", "user": "name", "weight": "weight"}, {"keys": [1, 2, -5], "others": True}),
        (USER, {"key": "text", "user": "user"}, {"form": "rounds", "others": True}),
    ],
)
def test_a_histogram_is_released_where_its_pairs_are(
    frame: Any, table: pa.Table, unit: Unit, columns: dict[str, Any], options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The same release bit for bit given the same noise, in rounds too; only sums by key come to the driver."""
    monkeypatch.setattr("dpsketch.laws.content.BLOCK", 7)
    budget = {"epsilon": 20.0, "delta": 1e-3, **options}
    spec = dps.Histogram(unit=unit).spec
    with seeded_noise_for_tests_only(3):
        expected = fill(dps.Histogram.from_spec(spec), table, **columns).release(**budget)
    with seeded_noise_for_tests_only(3):
        found = cluster.release_histogram(frame, spec, **columns, **budget)
    assert files.encode(found.to_document()) == files.encode(expected.to_document())
    assert len(found.keys) > 2


@pytest.mark.parametrize(
    ("by", "options", "release"),
    [
        ("text", {"user": "name", "max_keys": 3, "max_records": 4}, {"epsilon": 30.0, "delta": 1e-3}),
        (["text", "small"], {"user": "user", "neighbours": "replace"}, {"epsilon": 30.0, "delta": 1e-3}),
    ],
)
def test_a_table_is_released_where_its_records_are(
    table: pa.Table, frame: Any, by: Any, options: dict[str, Any], release: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The same release bit for bit, given the same noise: names, bounds that are chosen, and columns."""
    # One machine takes the steps of the cluster; ordered records draw other seeds, and answer alike otherwise.
    monkeypatch.setattr(RecordStore, "_users_fit", lambda _: False)
    columns = [dps.count(), dps.users(), dps.sum("weight"), dps.mean("small", over="users")]
    spec = dps.Table(by=by, columns=columns, **options).spec
    with seeded_noise_for_tests_only(3):
        here = dps.Table.from_spec(spec)
        here.update(table)
        expected = here.release(**release)
    with seeded_noise_for_tests_only(3):
        found = cluster.release_table(frame, spec, **release)
    assert files.encode(found.to_document()) == files.encode(expected.to_document())
    assert found.to_arrow().num_rows > 1


def test_a_task_that_fails_or_is_slow_counts_once(frame: Any, table: pa.Table, tmp_path: Path) -> None:
    """One task fails after half of its records; another hangs, until a second run of it overtakes it."""
    place = str(tmp_path)

    def troubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if context.attemptNumber() == 0 and context.partitionId() == 0:
                Path(place, "failed").touch()
                raise ValueError("a secret record")
            if context.partitionId() == 1:
                Path(place, "overtaken" if context.attemptNumber() else "slow").touch()
                if context.attemptNumber() == 0:
                    time.sleep(300)
                    Path(place, "waited for").touch()
            yield batch.slice(half)

    chosen = frame.select("text", "user")
    built = cluster.build(chosen.mapInArrow(troubled, chosen.schema), counts(), key="text")
    assert {path.name for path in tmp_path.iterdir()} == {"failed", "slow", "overtaken"}
    assert everything(built) == everything(fill(counts(), table, key="text"))


def test_a_killed_executor_changes_nothing(frame: Any, table: pa.Table, tmp_path: Path) -> None:
    """A task kills the JVM that runs it: the parent of the daemon that forked its process."""
    killed = tmp_path / "killed"

    def killing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not killed.exists():
                killed.touch()
                parent = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
                assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{parent}/cmdline").read_bytes()
                os.kill(int(parent), signal.SIGKILL)
                time.sleep(60)

    chosen = frame.select("text", "user")
    built = cluster.build(chosen.mapInArrow(killing, chosen.schema), counts(USER), key="text", user="user")
    assert killed.exists()
    assert everything(built) == everything(fill(counts(USER), table, key="text", user="user"))


def test_both_engines_of_the_command_line_agree(
    spark: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, said = [], []
    shared = ["--key", "text", "--user", "name", "--max-keys", "3", "--weight", "weight", "--max-weight", "4"]
    for engine in (["--engine", "spark", "--master", "local[2]"], []):
        output = tmp_path / f"{len(made)}.sketch"
        words = ["dpsketch", "build", "counts", str(folder / "*.parquet"), *shared, *engine, "-o", str(output)]
        monkeypatch.setattr(sys, "argv", words)
        with contextlib.suppress(SystemExit):
            cli.main()
        made.append(everything_in(output.read_bytes()))
        said.append(capsys.readouterr().err.replace(str(output), ""))
    assert made[0] == made[1]
    assert said[0] == said[1]


def test_reports_are_collected_once(spark: Any) -> None:
    """Reports that are there twice, malformed or of another spec."""
    protocol = local.SubsetHashing(epsilon=2.0, max_items=2)
    other = local.SubsetHashing(epsilon=1.0, max_items=2)
    reports = protocol.report([["tea", "milk"], ["rye"]] * 300)
    messages = [*protocol.to_bytes(reports), protocol.to_bytes(reports)[0], b"odd", None]
    messages += other.to_bytes(other.report([["tea"]]))
    expected = protocol.collector()
    received = expected.receive(messages)
    frame = spark.createDataFrame([(message,) for message in messages], "report binary").repartition(3)
    collector = protocol.collector()
    assert cluster.receive(frame, collector) == received
    keys = ["tea", "milk", "rye", "jam"]
    np.testing.assert_allclose(collector.estimate(keys).value, expected.estimate(keys).value, rtol=1e-12)
    texts = [(json.dumps(each),) for each in protocol.to_objects(reports)]
    assert cluster.build(spark.createDataFrame(texts, "report string"), protocol, report="report").users == 600
    with pytest.raises(InvalidInput, match="a report is in both"):
        cluster.receive(frame, collector)


def test_a_failure_quotes_no_record(spark: Any) -> None:
    secret = spark.sql("select 'a secret' as word").selectExpr("cast(word as int) as key")
    with pytest.raises(SourceError, match="Spark could not do its part") as caught:
        cluster.build(secret, counts(), key="key")
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "secret" not in str(shown)
        shown = shown.__cause__ or shown.__context__


def test_a_stream_survives_a_restart(spark: Any, table: pa.Table, tmp_path: Path) -> None:
    """Two queries share a checkpoint; a micro-batch that Spark repeats is not counted twice."""
    incoming = tmp_path / "incoming"
    incoming.mkdir()

    def start() -> dps.ContinualSketch:
        return dps.PanPrivateCountSketch(rows=5, width=64, unit=RECORD, epsilon=1.0, delta=1e-6, key_type="text")

    def state() -> Any:
        [file] = (tmp_path / "state").iterdir()
        return file.name, dps.load_sensitive(file).snapshot()

    before = None
    for day in range(2):
        words = table["text"].slice(day * 100, 100)
        pyarrow.parquet.write_table(pa.table({"text": words}), incoming / f"{day}.parquet")
        counter = cluster.PanPrivateStream(tmp_path / "state", start, key="text")
        before = state()[1] if before is None else before
        stream = spark.readStream.schema("text string").parquet(str(incoming))
        query = (
            stream.writeStream.foreachBatch(counter)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    name, after = state()
    assert name == "000000000002.sketch"
    exact = dps.CountSketch(rows=5, width=64, unit=RECORD)
    exact.update(table["text"].slice(0, 200))
    counted = files.decode(exact.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"]
    assert np.array_equal(after - before, counted)
    counter(spark.createDataFrame([("again",)], "text string"), 1)
    assert np.array_equal(state()[1], after)
    private = counter.publish()
    assert private.guarantee.caveat is not None
    assert list((tmp_path / "state").iterdir()) == []
    with pytest.raises(ReleaseRefused):
        counter.publish()


def test_each_micro_batch_is_one_day_and_is_drawn_once(spark: Any, tmp_path: Path) -> None:
    """Repeated after a failure, it is published as it was; days without a micro-batch are published too."""
    shown: list[tuple[int, np.ndarray]] = []

    def start() -> dps.ContinualSketch:
        values = dps.RangeSketch(bits=4, unit=dps.per_user(max_keys=1))
        return dps.ContinualSketch(values, days=9, epsilon=1e6, delta=1e-6, design="daily", user_days=1)

    def publish(release: Any, day: int) -> None:
        shown.append((day, release.dense.round()))

    first, second = (spark.createDataFrame([(3, "ann"), (five, "bob")], "value long, who string") for five in (5, 6))
    daily = cluster.DailyStream(tmp_path / "state", start, publish, key="value", user="who")
    daily(first, 0)
    daily(first, 0)  # repeated
    assert [day for day, _ in shown] == [1, 1]
    assert np.array_equal(shown[0][1], shown[1][1])
    assert shown[0][1][0] == 2
    daily.end_day(3)
    daily = cluster.DailyStream(tmp_path / "state", start, publish, key="value", user="who")
    daily(second, 1)
    assert [day for day, _ in shown] == [1, 1, 2, 3, 4]
    assert shown[-1][1][0] == 2  # both had counted on their day


def votes(unit: Unit = RECORD) -> dps.VoteHistogram:
    return dps.VoteHistogram(unit=unit, max_counters=64)


def loads(sketch: Any) -> np.ndarray:
    """The two loads of every bucket, one row each; of them one unit moves one by 1 for each of its keys."""
    arrays = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays
    return np.array([arrays["loads"] + arrays["votes"], arrays["loads"] - arrays["votes"]]) // 2


def test_buckets_of_records_need_partitions_that_are_stated_to_be_fixed(frame: Any, folder: Path) -> None:
    """One record more may move others to another task, which nothing promised of vote buckets covers."""
    with pytest.raises(InvalidInput, match="fixed_partitions=True"):
        cluster.build(frame, votes().spec, key="text")
    with pytest.raises(InvalidInput, match="without Spark"):
        cluster.build_files(frame.sparkSession, [str(folder / "*.parquet")], votes().spec, key="text")
    for into, more in ((counts(), {}), (votes(USER), {"user": "user"})):
        with pytest.raises(InvalidInput, match="leave it out"):
            cluster.build(frame, into, key="text", fixed_partitions=True, **more)


def test_one_user_moves_buckets_by_its_own_keys_alone(spark: Any, frame: Any) -> None:
    """A user more leaves all others in their partition, in their order: each of its keys moves one load by 1."""
    chosen = frame.select("text", "name")
    more = spark.createDataFrame([("/page/1", "zoe"), ("/page/7", "zoe"), ("nobody else's", "zoe")], chosen.schema)
    without = cluster.build(chosen, votes(USER).spec, key="text", user="name")
    with_one = cluster.build(chosen.union(more), votes(USER).spec, key="text", user="name")
    moved = np.abs(loads(with_one) - loads(without))
    assert 1 <= moved.sum() <= 3
    assert moved.sum(axis=0).max() == 1
