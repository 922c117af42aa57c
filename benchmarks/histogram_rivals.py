"""Which keys other libraries name, and with what error: the rivals of benchmarks/histogram.py."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.peers import run_peer

# Releases at each ε. From 1 on some hundred keys are found and more, whose number chance moves by a hundredth part.
SEEDS = {0.1: 3, 1.0: 1, 3.0: 1}
CAPS = (1, 10, 30, 100)
# What runs on Spark too, at ε = 1: a job takes seconds to minutes, and the mechanism is the same.
JOBS = (("Zipf(1.1)", "record", 1), ("kosarak's head", "user", 10))
Integers = npt.NDArray[np.int64]


class Cell(NamedTuple):
    """What one library found of one data set; the threshold where it has one."""

    data: str
    level: str
    epsilon: float
    how: str
    cap: int
    keys: float
    rms: float | None
    seconds: float
    threshold: float | None


class Claim(NamedTuple):
    """Whether OpenDP's threshold leaks more than its δ; the δ that it states, and how often a lone key is shown."""

    off: bool
    stated: float
    shown: float


CLAIM = """
import json
import opendp.prelude as dp
dp.enable_features("contrib")
inputs = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i64"))
space = inputs, dp.l01inf_distance(dp.absolute_distance(T="i64"))
release = space >> dp.m.then_laplace_threshold(scale=1.0, threshold=3)
claimed = release.map((1, 1, 1))[1]
alone = {str(i): 1 for i in range(100)}
shown = sum(len(release(alone)) for _ in range(200)) / 20_000
print(json.dumps([shown > 1.5 * claimed, claimed, shown]))
"""

PEER = """
import json, math, time
from functools import cache
import numpy as np
import opendp.prelude as dp
from pipeline_dp import PartitionSelectionStrategy
from pipeline_dp.dp_computations import ThresholdingMechanism
from pipeline_dp.partition_selection import create_partition_selection_strategy
dp.enable_features("contrib")
SEEDS, CAPS = {seeds!r}, {caps!r}
inputs = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i64"))
rng = np.random.default_rng(0)

def capped(users, keys, cap):
    order = np.lexsort((rng.random(len(users)), users))
    whose = users[order]
    first = np.flatnonzero(np.r_[True, whose[1:] != whose[:-1]])
    rank = np.arange(len(whose)) - np.repeat(first, np.diff(np.r_[first, len(whose)]))
    return np.bincount(keys[order[rank < cap]])

# What a budget asks for is worked out once for all data sets.
@cache
def laplace(epsilon, delta, m):
    def make(threshold):
        space = inputs, dp.l01inf_distance(dp.absolute_distance(T="i64"))
        return space >> dp.m.then_laplace_threshold(scale=m / epsilon * (1 + 1e-9), threshold=threshold)
    def fits(threshold):
        found = make(threshold).map((m, m, 1))
        return found[0] <= epsilon and found[1] <= delta
    # Its δ is that of counts above the threshold, and it lists those at the threshold too (version 0.16): one more.
    threshold = dp.binary_search(fits, bounds=(1, 100_000_000), T=int) + {beyond!r}
    return make(threshold), threshold

@cache
def gaussian(epsilon, delta, m):
    # Distances are of the counts' type, and the root of m is no whole number: counts are floats here.
    floats = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=float, nan=False))
    moved = m, math.sqrt(m), 1.0
    def make(scale, threshold):
        space = floats, dp.l02inf_distance(dp.absolute_distance(T=float))
        return space >> dp.m.then_gaussian_threshold(scale=scale, threshold=threshold)
    def epsilon_of(scale, threshold, share):
        profile, leak = dp.c.make_zCDP_to_approxDP(make(scale, threshold)).map(moved)
        return profile.epsilon(delta=delta * share - leak) if leak < delta * share else math.inf
    best = None
    for share in (0.5, 0.8, 0.95):
        scale = dp.binary_search(lambda s: epsilon_of(s, 2.0**40, share) <= epsilon, bounds=(0.05, 1e6), T=float)
        threshold = dp.binary_search(lambda t: epsilon_of(scale, t, 1.0) <= epsilon, bounds=(1.0, 1e9), T=float)
        if best is None or threshold < best[1]:
            best = scale, threshold
    return make(*best), best[1]

def pipeline(counts, epsilon, delta, m):
    chosen = create_partition_selection_strategy(
        PartitionSelectionStrategy.TRUNCATED_GEOMETRIC, epsilon / 2, delta, m, None)
    kept = np.array([k for k in np.flatnonzero(counts) if chosen.should_keep(int(counts[k]))], int)
    noise = rng.laplace(scale=2 * m / epsilon, size=len(kept))
    return kept, counts[kept] + noise

# Its threshold on noisy counts (post_aggregation_thresholding), which gets the whole budget.
def pipeline_gaussian(counts, epsilon, delta, m):
    chosen = ThresholdingMechanism(epsilon, delta, PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING, m, None)
    noisy = {{k: chosen.noised_value_if_should_keep(int(counts[k])) for k in np.flatnonzero(counts)}}
    kept = [k for k, value in noisy.items() if value is not None]
    return np.array(kept, int), np.array([noisy[k] for k in kept], float)

def measured(truth, counts, m, epsilon, delta, how):
    found, errors, start = [], [], time.perf_counter()
    number = float if how == "OpenDP, Gaussian" else int
    release, threshold, named = None, None, None
    if how.startswith("OpenDP"):
        named = {{str(k): number(counts[k]) for k in np.flatnonzero(counts)}}
        release, threshold = (laplace if how == "OpenDP, Laplace" else gaussian)(epsilon, delta, m)
    for _ in range(SEEDS[epsilon]):
        if release is None:
            draw = pipeline if how == "PipelineDP" else pipeline_gaussian
            keys, values = draw(counts, epsilon, delta, m)
        else:
            out = release(named)
            keys, values = np.array([int(k) for k in out], int), np.array(list(out.values()), float)
        found.append(len(keys))
        errors.append(values - truth[keys])
    spent = (time.perf_counter() - start) / SEEDS[epsilon]
    errors = np.concatenate(errors)
    return [float(np.mean(found)), float(np.sqrt(np.mean(errors**2))) if len(errors) else None, spent, threshold]

data = np.load({path!r})
rows = []
for name in {names!r}:
    users, keys = data[name + " users"], data[name + " keys"]
    truth = np.bincount(keys)
    bounded = {{cap: capped(users, keys, cap) for cap in CAPS if len(users)}}
    for epsilon in SEEDS:
        for how in ("OpenDP, Laplace", "OpenDP, Gaussian", "PipelineDP", "PipelineDP, Gaussian"):
            rows.append([name, "record", epsilon, how, 1, *measured(truth, truth, 1, epsilon, 1e-6, how)])
            for cap, counts in bounded.items():
                rows.append([name, "user", epsilon, how, cap, *measured(truth, counts, cap, epsilon, 1e-5, how)])
print(json.dumps(rows))
"""

TUMULT = """
import json, os, sys, tempfile, time, warnings
from functools import cache
os.environ["PYSPARK_PYTHON"] = sys.executable
warnings.filterwarnings("ignore")
import numpy as np
import sympy
from tmlt.core.domains.spark_domains import SparkDataFrameDomain, SparkIntegerColumnDescriptor
from tmlt.core.measurements.aggregations import create_partition_selection_measurement
SEEDS, CAPS = {seeds!r}, {caps!r}
rng = np.random.default_rng(0)
rows = []

def add(*row):
    rows.append(row)
    print(json.dumps(row), flush=True)

def capped(users, keys, cap):
    order = np.lexsort((rng.random(len(users)), users))
    whose = users[order]
    first = np.flatnonzero(np.r_[True, whose[1:] != whose[:-1]])
    rank = np.arange(len(whose)) - np.repeat(first, np.diff(np.r_[first, len(whose)]))
    return keys[order[rank < cap]]

@cache
def selection(epsilon, delta, m):
    return create_partition_selection_measurement(
        SparkDataFrameDomain({{"key": SparkIntegerColumnDescriptor()}}),
        epsilon=sympy.Rational(str(epsilon)), delta=sympy.Rational(str(delta)), d_in=m)

# The law of its noise by NumPy: its own draws, which are exact, take a tenth of a millisecond each.
def noisy(counts, scale):
    chance = -np.expm1(-1 / float(scale))
    return counts + rng.geometric(chance, len(counts)) - rng.geometric(chance, len(counts))

def judged(truth, found):
    errors = np.concatenate([counts - truth[keys] for keys, counts in found])
    return [len(errors) / len(found), float(np.sqrt(np.mean(errors**2.0))) if len(errors) else None]

# What its measurements do to a table of counts: noise for each, and those from the threshold on.
def selected(chosen, counts):
    keys = np.flatnonzero(counts)
    values = noisy(counts[keys], chosen.alpha.to_float(round_up=True))
    passed = values >= chosen.threshold
    return keys[passed], values[passed]

def core(truth, counts, epsilon, delta, m):
    start = time.perf_counter()
    chosen = selection(epsilon, delta, m)
    found = [selected(chosen, counts) for _ in range(SEEDS[epsilon])]
    return [*judged(truth, found), (time.perf_counter() - start) / SEEDS[epsilon], chosen.threshold]

def analytics(truth, counts, epsilon, delta, m):
    start = time.perf_counter()
    chosen = selection(epsilon / 2, delta, m)
    named = [selected(chosen, counts)[0] for _ in range(SEEDS[epsilon])]
    found = [(keys, noisy(counts[keys], 2 * m / epsilon)) for keys in named]
    return [*judged(truth, found), (time.perf_counter() - start) / SEEDS[epsilon], chosen.threshold]

data = np.load({path!r})
for name in {names!r}:
    users, keys = data[name + " users"], data[name + " keys"]
    truth = np.bincount(keys)
    for level, caps, delta in (("record", (1,), 1e-6), ("user", CAPS if len(users) else (), 1e-5)):
        for cap in caps:
            counts = np.bincount(capped(users, keys, cap), minlength=len(truth)) if level == "user" else truth
            for epsilon in SEEDS:
                add(name, level, epsilon, "Tumult Core", cap, *core(truth, counts, epsilon, delta, cap))
                add(name, level, epsilon, "Tumult Analytics", cap, *analytics(truth, counts, epsilon, delta, cap))

from pyspark.sql import SparkSession
import pyarrow as pa
import pyarrow.parquet as pq
from tmlt.analytics import AddOneRow, AddRowsWithID, ApproxDPBudget, KeySet, MaxRowsPerID, QueryBuilder, Session
folder = tempfile.TemporaryDirectory()
settings = {{"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false", "spark.driver.memory": "3g",
             "spark.sql.warehouse.dir": folder.name, "spark.ui.showConsoleProgress": "false"}}
builder = SparkSession.builder.master("local[2]")
for setting, value in settings.items():
    builder = builder.config(setting, value)
spark = builder.getOrCreate()

def job(truth, start, frame):
    found = frame.toPandas()
    spent = time.perf_counter() - start
    return [*judged(truth, [(found["key"].to_numpy(int), found["count"].to_numpy())]), spent, None]

for name, level, cap in {jobs!r}:
    if name not in {names!r}:
        continue
    users, keys = data[name + " users"], data[name + " keys"]
    truth = np.bincount(keys)
    path = os.path.join(folder.name, name)
    pq.write_table(pa.table({{"key": keys}} if level == "record" else {{"user": users, "key": keys}}), path)
    records = spark.read.parquet(path).repartition(2).cache()
    records.count()
    if level == "record":
        start = time.perf_counter()
        frame = selection(1.0, 1e-6, 1)(records)
        add(name, level, 1.0, "Tumult Core on Spark", cap, *job(truth, start, frame))
    start = time.perf_counter()
    protected = AddOneRow() if level == "record" else AddRowsWithID("user")
    budget = ApproxDPBudget(1.0, 1e-6 if level == "record" else 1e-5)
    session = Session.from_dataframe(budget, "records", records, protected_change=protected)
    query = QueryBuilder("records")
    query = query if level == "record" else query.enforce(MaxRowsPerID(cap))
    groups = session.evaluate(query.get_groups(["key"]), ApproxDPBudget(0.5, budget.delta))
    counts = query.groupby(KeySet.from_dataframe(groups)).count()
    frame = session.evaluate(counts, ApproxDPBudget(0.5, 0))
    add(name, level, 1.0, "Tumult Analytics on Spark", cap, *job(truth, start, frame))
print(json.dumps(rows))
"""


def rivals(sets: dict[str, tuple[Integers, Integers]]) -> tuple[list[Cell], Claim]:
    """Return what OpenDP, PipelineDP and Tumult find."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "data.npz")
        np.savez(path, **{f"{name} {part}": each for name, pair in sets.items()
                          for part, each in zip(("users", "keys"), pair, strict=True)})  # fmt: skip
        claim = Claim(*run_peer(CLAIM))
        facts: dict[str, Any] = {"seeds": SEEDS, "caps": CAPS, "path": path, "names": list(sets)}
        rows = run_peer(PEER.format(**facts, beyond=int(claim.off)))
        rows += run_peer(TUMULT.format(**facts, jobs=JOBS), "tumult")
    return [Cell(*row) for row in rows], claim
