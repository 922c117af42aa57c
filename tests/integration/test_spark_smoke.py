"""A batch job of counts and tables with a JVM in the client, and of counts over Spark Connect: one process each.

What a real cluster with executors adds is in test_spark.py, which ``make test-full`` runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

JOB = """
import sys
from pyspark.sql import SparkSession
from sensitive import everything
import dpsketch as dps
from dpsketch import spark as cluster

builder = SparkSession.builder.config("spark.ui.enabled", "false")
session = (builder.remote if sys.argv[1] == "connect" else builder.master)("local[2]").getOrCreate()
assert ("connect" in type(session).__module__) == (sys.argv[1] == "connect")
session.conf.set("spark.sql.shuffle.partitions", "1")
words, users = ["a", "b", None, "ä"] * 100, ["u", "v", "u", None] * 100
expected = dps.CountSketch(rows=5, width=64, unit=dps.per_user(max_keys=2), key_type="text")
expected.update(words, users=users)
frame = session.createDataFrame(list(zip(words, users)), "word string, user string").repartition(2)
built = cluster.build(frame, expected.spec, key="word", user="user")
assert everything(built) == everything(expected)
if sys.argv[1] == "classic":
    records = dps.CountSketch(rows=5, width=64, unit=dps.per_record(), key_type="text")
    records.update(["a", "b", "a"])
    from_file = cluster.build_files(session, [sys.argv[2]], records.spec, key="word")
    assert everything(from_file) == everything(records)
    table = dps.Table(by="word", columns=[dps.users()], user="user", max_keys=2).spec
    private = cluster.release_table(frame, table, groups=["a", "b", "nobody's"], epsilon=1e3, delta=1e-6)
    assert [round(users) for users in private.to_arrow().column("users").to_pylist()] == [1, 1, 0]
    # A hundred records of one user on one key count once. Noise reaches 1/2 with a probability below 1e-200.
    counted = dps.Histogram(unit=dps.per_user(max_keys=2), key_type="text").spec
    names = ["a", "b", "nobody's"]
    private = cluster.release_histogram(frame, counted, key="word", user="user", keys=names, epsilon=1e3, delta=1e-6)
    assert private.estimate(names).value.round().tolist() == [1, 1, 0]
try:
    cluster.build(frame, dps.HeavyHitters(unit=dps.per_record(), key_bits=8), key="word")
except dps.DpsketchError as refusal:
    print(type(refusal).__name__)
session.stop()
print("done")
"""


@pytest.mark.parametrize("client", ["classic", pytest.param("connect", marks=pytest.mark.full)])
def test_a_job_counts_and_releases_what_one_machine_does(client: str, tmp_path: Path) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed, so that no Spark can be started")
    if client == "connect":
        pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install 'pyspark[connect]'")
    records = tmp_path / "words.csv"
    records.write_text("word\na\nb\na\n")
    helpers = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": helpers, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", JOB, client, str(records)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["SpecMismatch", "done"]
