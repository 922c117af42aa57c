"""How OpenDP, PipelineDP and Tumult Analytics answer the questions of benchmarks/table_rivals.py.

Each text runs in an environment of its own, after :data:`BEGIN`. It draws ``RUNS`` releases and adds each as a line of
JSON to a file: its seconds, the numbers of the groups that were found, and the estimates by column.
"""

from __future__ import annotations

__all__ = ["BEGIN", "CODES"]

# What all need. With SHAPE "pairs" a row is a user in a group, made beforehand: the records that count, their total,
# ten times their clipped mean, and their median. Values are whole numbers: C's are hundredths.
BEGIN = """
import json, logging, math, os, sys, time, warnings
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import numpy as np
QUESTION, RUNS, SHAPE, M, W = {question!r}, {runs!r}, {shape!r}, {m!r}, {w!r}
# The law of noise, and how many times a column's share of the budget names have.
HOW, NAMES = {how!r}, {names!r}
SUM, PAIR, VALUE, GRID = {summed!r}, {pair!r}, {averaged!r}, {grid!r}
EPSILON, DELTA = {epsilon!r}, {delta!r}
SCALE = 100 if QUESTION == "C" else 1
PATH = {path!r}
stored = np.load(PATH)
g, u = stored["groups"], stored["users"]
s, a = (np.rint(stored[name] * SCALE).astype(np.int64) for name in ("summed", "averaged"))
rng = np.random.default_rng()

def ranks(*columns):
    # The rank of each row, in random order, among those that are equal in all columns.
    order = np.lexsort((rng.random(len(columns[0])), *columns))
    new = np.zeros(len(order), bool)
    new[:1] = True
    for column in columns:
        new[1:] |= column[order][1:] != column[order][:-1]
    first = np.flatnonzero(new)
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.r_[first, len(order)]))
    return found

def scaled(bounds):
    return tuple(int(bound * SCALE) for bound in bounds)

def records():
    # Records of A; of B and C those that count: at most M groups of a user, and W records in each.
    if QUESTION == "A":
        return dict(g=g, u=np.arange(len(g)), s=s, a=a)
    kept = np.flatnonzero(ranks(u, g) < W)
    codes, place = np.unique(u[kept] << 32 | g[kept], return_inverse=True)
    chosen = ranks(codes >> 32) < M
    if SHAPE == "records":
        kept = kept[chosen[place]]
        return dict(g=g[kept], u=u[kept], s=s[kept], a=a[kept])
    clipped = np.clip(a[kept], *scaled(VALUE))
    counts = np.bincount(place)
    order = np.lexsort((a[kept], place))
    first = np.r_[0, np.cumsum(counts)[:-1]]
    ordered = a[kept][order]
    middle = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) // 2
    pairs = dict(
        g=codes & 0xFFFFFFFF, u=codes >> 32, n=counts, a=middle,
        s=np.rint(np.bincount(place, weights=s[kept])).astype(np.int64),
        mean=np.rint(10 * np.bincount(place, weights=clipped) / counts).astype(np.int64))
    return {{name: column[chosen] for name, column in pairs.items()}}

def rho_of(epsilon, delta):
    # The largest rho whose best conversion states epsilon at delta.
    alpha = 1 + np.exp(np.linspace(-5, 6, 20_001))
    def states(rho):
        return np.min(rho * alpha + np.log1p(-1 / alpha) - (np.log(delta) + np.log(alpha)) / (alpha - 1))
    low, high = 1e-4, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if states(middle) <= epsilon else (low, middle)
    return low

def answer(release):
    for _ in range(RUNS):
        begin = time.perf_counter()
        listed, columns = release(records())
        order = np.argsort(listed)
        columns = {{name: np.asarray(each, float)[order].tolist() for name, each in columns.items()}}
        found = [time.perf_counter() - begin, np.asarray(listed, int)[order].tolist(), columns]
        with open({kept!r}, "a") as lines:
            lines.write(json.dumps(found) + "\\n")
    print("null")
"""

# With Gaussian noise a twentieth of delta finds names, and the rest is for the conversion from rho. Scale and threshold
# follow from what is public: they are searched once, and each release invokes the same measurement.
OPENDP = """
import polars as pl
import opendp.prelude as dp
dp.enable_features("contrib", "honest-but-curious")
Bound, Margin = dp.polars.Bound, dp.polars.Margin
step = round(GRID * SCALE)
candidates = list(range(scaled(VALUE)[0], scaled(VALUE)[1] + 1, step))
if HOW == "Gaussian":
    loss = dp.loss_of(rho=rho_of(EPSILON, 0.95 * DELTA), delta=0.05 * DELTA)
else:
    loss = dp.loss_of(epsilon=EPSILON, delta=DELTA)
per_group = W if SHAPE == "records" else 1
if QUESTION == "A":
    unit = dp.unit_of(contributions=1)
else:
    whole = Bound(by=[], per_group=M * per_group)
    unit = dp.unit_of(contributions=[whole, Bound(by=["g"], num_groups=M, per_group=per_group)])

resolved = []

def total(name, low, high):
    return pl.col(name).fill_null(0).dp.sum((low, high)).alias(f"{name} total")

def measurement(frame):
    context = dp.Context.compositor(
        data=frame, privacy_unit=unit, privacy_loss=loss, split_evenly_over=1,
        margins=[Margin(by=[], max_length=1_000_000, max_groups=20_000),
                 Margin(by=["g"], max_length=1_000_000, max_groups=2_000)])
    asked = [dp.len(signed=True).alias("rows"), pl.col("a").fill_null(0).dp.median(candidates).alias("median")]
    low, high = scaled(VALUE)
    if SHAPE == "records":
        asked += [total("s", *scaled(SUM)), total("a", low, high)]
    else:
        asked += [total("s", *scaled(PAIR)), total("mean", 10 * low, 10 * high), total("n", 0, W)]
    return context.query().group_by("g").agg(asked).resolve()

def release(rows):
    frame = pl.DataFrame(rows).lazy()
    if not resolved:
        resolved.append(measurement(frame))
    found = resolved[0](frame).collect()
    number = {name: found[name].to_numpy().astype(float) for name in found.columns}
    weighed = number["a total"] if SHAPE == "records" else number["mean total"] / 10
    columns = {"sum": number["s total"] / SCALE, "mean": weighed / SCALE / np.maximum(number["rows"], 1),
               "median": number["median"] / SCALE}
    if SHAPE == "records":
        return number["g"], columns | {"count": number["rows"]}
    return number["g"], columns | {"users": number["rows"], "count": number["n total"]}

answer(release)
"""

# Names are selected once, and their groups are given to the calls that follow as public, all under one accountant.
# Rows are grouped and added up by NumPy, as its local backend takes minutes; budgets, selection and noise are its own.
# A search for a noise scale, which follows from the budget alone, is made once and kept beside the data.
PIPELINEDP = """
from functools import cache
import pipeline_dp
from pipeline_dp import (
    AggregateParams, Metrics, NoiseKind, budget_accounting, combiners, dp_computations, dp_engine)
from pipeline_dp import PartitionSelectionStrategy as Strategy
dp_computations.gaussian_epsilon = cache(dp_computations.gaussian_epsilon)
dp_computations.gaussian_delta = cache(dp_computations.gaussian_delta)
search = budget_accounting.PLDBudgetAccountant._find_minimum_base_noise_std

def noise_std(accountant):
    key = [[each.mechanism_spec.mechanism_type.value, round(each.weight, 9)] for each in accountant._mechanisms]
    path = os.path.join(os.path.dirname(PATH), "pipelinedp-scales.jsonl")
    known = [json.loads(line) for line in open(path)] if os.path.exists(path) else []
    for other, found in known:
        if other == key:
            return found
    found = search(accountant)
    with open(path, "a") as lines:
        lines.write(json.dumps([key, found]) + "\\n")
    return found

budget_accounting.PLDBudgetAccountant._find_minimum_base_noise_std = noise_std
GAUSSIAN = HOW == "Gaussian"
noise = NoiseKind.GAUSSIAN if GAUSSIAN else NoiseKind.LAPLACE
strategy = Strategy.GAUSSIAN_THRESHOLDING if GAUSSIAN else Strategy.TRUNCATED_GEOMETRIC
fixed = dict(noise_kind=noise, max_partitions_contributed=M,
             max_contributions_per_partition=W if SHAPE == "records" else 1)
median = Metrics.PERCENTILE(50)

def within(bounds, factor=SCALE):
    return dict(min_value=factor * bounds[0], max_value=factor * bounds[1])

def summed(bounds):
    return dict(min_sum_per_partition=bounds[0], max_sum_per_partition=bounds[1])

# A call has one column of values. Its metrics have equal shares.
if SHAPE == "pairs":
    calls = [("mean", [Metrics.COUNT, Metrics.MEAN], within(VALUE, 10 * SCALE)), ("a", [median], within(VALUE)),
             ("n", [Metrics.SUM], summed((0, W))), ("s", [Metrics.SUM], summed(scaled(PAIR)))]
elif QUESTION == "A":
    calls = [("a", [Metrics.COUNT, Metrics.MEAN, median], within(VALUE)), ("s", [Metrics.SUM], within(SUM))]
else:
    calls = [("a", [Metrics.PRIVACY_ID_COUNT, Metrics.COUNT, Metrics.MEAN, median], within(VALUE)),
             ("s", [Metrics.SUM], summed(scaled(PAIR)))]

def accumulated(combiner, params, users, values, totals):
    # What its accumulators of one group are after all users were merged.
    if isinstance(combiner, combiners.PrivacyIdCountCombiner):
        return users
    if isinstance(combiner, combiners.SumCombiner):
        low, high = ((params.min_value, params.max_value) if params.min_value is not None
                     else (params.min_sum_per_partition, params.max_sum_per_partition))
        return float(np.clip(totals, low, high).sum())
    if isinstance(combiner, combiners.MeanCombiner):
        return combiner.create_accumulator(values)
    assert isinstance(combiner, combiners.QuantileCombiner)
    return combiner.create_accumulator(values.tolist())

def release(rows):
    accountant = (pipeline_dp.PLDBudgetAccountant if GAUSSIAN else pipeline_dp.NaiveBudgetAccountant)(EPSILON, DELTA)
    with accountant.scope(weight=NAMES):
        budget = accountant.request_budget(strategy.mechanism_type, name="PartitionSelection")
    asked = []
    for name, metrics, bounds in calls:
        params = AggregateParams(metrics=metrics, budget_weight=len(metrics), **bounds, **fixed)
        with accountant.scope(weight=params.budget_weight):
            asked.append((name, params, combiners.create_compound_combiner(params, accountant)))
    accountant.compute_budgets()
    selector = dp_engine._create_partition_selector(strategy, budget, M, None)
    order = np.lexsort((rows["u"], rows["g"]))
    columns = {name: column[order] for name, column in rows.items()}
    size = int(columns["g"].max()) + 1
    ends = np.searchsorted(columns["g"], np.arange(size + 1))
    new = np.r_[True, (np.diff(columns["g"]) != 0) | (np.diff(columns["u"]) != 0)]
    pairs = np.flatnonzero(new)
    starts = np.searchsorted(pairs, ends)
    totals = {name: np.add.reduceat(column, pairs) for name, column in columns.items()}
    listed = [key for key in range(size)
              if starts[key + 1] > starts[key] and selector.should_keep(int(starts[key + 1] - starts[key]))]
    answers = []
    for name, params, combiner in asked:
        found = []
        for key in listed:
            users = int(starts[key + 1] - starts[key])
            values, total = columns[name][ends[key]:ends[key + 1]], totals[name][starts[key]:starts[key + 1]]
            parts = tuple(accumulated(each, params, users, values, total) for each in combiner._combiners)
            found.append(combiner.compute_metrics((users, parts)))
        answers.append(found)
    total = np.array([each.sum for each in answers[-1]]) / SCALE
    middle = np.array([each.percentile_50 for each in answers[SHAPE == "pairs"]]) / SCALE
    mean, counted = np.array([each.mean for each in answers[0]]) / SCALE, [each.count for each in answers[0]]
    if SHAPE == "pairs":
        records = [each.sum for each in answers[2]]
        return listed, dict(users=counted, count=records, sum=total, mean=mean / 10, median=middle)
    users = {} if QUESTION == "A" else {"users": [each.privacy_id_count for each in answers[0]]}
    return listed, dict(count=counted, sum=total, mean=mean, median=middle) | users

answer(release)
"""

# Gaussian noise it has in sessions of rho, which find no groups: one session of (epsilon, delta) finds them with a part
# of epsilon, and another takes what is left. With Gaussian noise delta is halved.
TUMULT = """
import tempfile
os.environ["PYSPARK_PYTHON"] = sys.executable
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType
from tmlt.analytics import (
    AddOneRow, AddRowsWithID, ApproxDPBudget, KeySet, MaxRowsPerID, PureDPBudget, QueryBuilder, RhoZCDPBudget, Session)
folder = tempfile.TemporaryDirectory()
settings = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false", "spark.driver.memory": "3g",
            "spark.sql.warehouse.dir": folder.name, "spark.ui.showConsoleProgress": "false"}
builder = SparkSession.builder.master("local[2]")
for setting, value in settings.items():
    builder = builder.config(setting, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
share = NAMES / (NAMES + 5)
change = AddOneRow() if QUESTION == "A" else AddRowsWithID("u")

def rows_of():
    query = QueryBuilder("rows")
    return query if QUESTION == "A" else query.enforce(MaxRowsPerID(M))

def release(rows):
    if QUESTION == "A":
        del rows["u"]
    path = os.path.join(folder.name, f"{time.time_ns()}.parquet")
    pq.write_table(pa.table(rows), path)
    frame = spark.read.parquet(path).repartition(2).cache()
    delta = DELTA / 2 if HOW == "Gaussian" else DELTA
    budget = ApproxDPBudget(share * EPSILON, delta)
    session = Session.from_dataframe(budget, "rows", frame, protected_change=change)
    listed = [row["g"] for row in session.evaluate(rows_of().get_groups(["g"]), budget).collect()]
    low, high = scaled(VALUE)
    if QUESTION == "A":
        asked = {"count": ("count",), "sum": ("sum", "s", *scaled(SUM)), "mean": ("average", "a", low, high)}
    else:
        asked = {"users": ("count",), "count": ("sum", "n", 0, W), "sum": ("sum", "s", *scaled(PAIR)),
                 "mean": ("average", "mean", 10 * low, 10 * high)}
    asked["median"] = ("median", "a", low, high)
    if not listed:
        return listed, {name: [] for name in asked}
    keys = KeySet.from_dataframe(
        spark.createDataFrame([(key,) for key in listed], StructType([StructField("g", LongType(), False)])))
    if HOW == "Gaussian":
        budgets, left = RhoZCDPBudget, rho_of((1 - share) * EPSILON, DELTA / 2)
    else:
        budgets, left = PureDPBudget, (1 - share) * EPSILON
    session = Session.from_dataframe(budgets(left), "rows", frame, protected_change=change)
    columns = {}
    for name, (what, *options) in asked.items():
        query = getattr(rows_of().groupby(keys), what)(*options, name="found")
        found = session.evaluate(query, budgets(left / len(asked) * (1 - 1e-9))).toPandas().set_index("g")["found"]
        factor = {"count": 1, "users": 1, "mean": SCALE if QUESTION == "A" else 10 * SCALE}.get(name, SCALE)
        columns[name] = found.reindex(listed).to_numpy(float) / factor
    frame.unpersist()
    os.remove(path)
    return listed, columns

answer(release)
"""

# By library: the name of its environment, and its code.
CODES = {"OpenDP": ("opendp", OPENDP), "PipelineDP": ("peers", PIPELINEDP), "Tumult": ("tumult", TUMULT)}
