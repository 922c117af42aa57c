"""Ask other libraries the front page's other questions: ``PYTHONPATH=. python docs/figures/front_rivals.py`` (minutes).

It writes ``front-rivals.json``, whose rows ``front.py`` puts under its own: the same flights, the same budget, the same
measure of error. Each library is in an environment of its own, which ``make bench`` makes. Where a library has a choice
to make (how large a cell is), it has the best one. The first question, which keys are frequent, is ``front_names.py``.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
from front import (
    DELTA,
    EPSILON,
    SHARES,
    TIMES,
    Row,
    asked_days,
    asked_places,
    column,
    days_of_delays,
    flights,
    root,
)

from benchmarks.peers import run_peer
from dpsketch import accounting

STORED = Path(__file__).parent / "front-rivals.json"

# What each program finds in its file: the delays of days, planes, and vectors of counts.
BEGIN = """
import json
import numpy as np
given = json.load(open({path!r}))
EPSILON, SHARES, TIMES = {epsilon!r}, {shares!r}, {times!r}
rng = np.random.default_rng(1)

def root(errors):
    return float(np.sqrt(np.mean(np.square(np.asarray(errors, float)))))

def deciles(values):
    return [values[int(share * (len(values) - 1))] for share in SHARES]
"""

PEERS = """
import datasketches, pipeline_dp
import opendp.prelude as dp
dp.enable_features("contrib")

def pipeline(rows, whose, where, what, public, delta, **asked):
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=delta)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    found = engine.aggregate(
        rows,
        pipeline_dp.AggregateParams(
            noise_kind=pipeline_dp.NoiseKind.LAPLACE, max_contributions_per_partition=1, **asked),
        pipeline_dp.DataExtractors(
            privacy_id_extractor=whose, partition_extractor=where, value_extractor=what),
        public_partitions=public)
    accountant.compute_budgets()
    return dict(found)

def opendp_delays():
    space = dp.vector_domain(dp.atom_domain(T="i32")), dp.symmetric_distance()
    wanted = list(range(-512, 1536))
    releases = [
        dp.binary_search_chain(
            lambda scale: space >> dp.m.then_private_quantile(dp.max_divergence(), wanted, share, scale),
            d_in=1, d_out=EPSILON / len(SHARES), bounds=(1e-3, 1e3))
        for share in SHARES
    ]
    errors = []
    for day in given["days"] * TIMES:
        errors += [release(day) - true for release, true in zip(releases, deciles(day))]
    return root(errors)

def pipeline_delays():
    days = given["days"] * TIMES
    rows = [(f"{day} {place}", day, value) for day, held in enumerate(days) for place, value in enumerate(held)]
    # Partitions are public, and nothing is spent of δ, which must be above 0.
    found = pipeline(
        rows, lambda row: row[0], lambda row: row[1], lambda row: row[2], list(range(len(days))), 1e-12,
        metrics=[pipeline_dp.Metrics.PERCENTILE(100 * share) for share in SHARES], max_partitions_contributed=1,
        min_value=-512, max_value=1536)
    return root([
        list(found[day])[place] - true for day, held in enumerate(days) for place, true in enumerate(deciles(held))
    ])

def opendp_different():
    # The transformation is deterministic, so that its noise is drawn many times on one count.
    space = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
    count = space >> dp.t.then_count_distinct()
    noise = dp.binary_search_chain(
        lambda scale: (count.output_domain, count.output_metric) >> dp.m.then_laplace(scale),
        d_in=count.map(1), d_out=EPSILON, bounds=(0.1, 100.0))
    number = count(given["planes"])
    return root([noise(number) - len(set(given["planes"])) for _ in range(400)])

def pipeline_different():
    planes = sorted(set(given["planes"]))
    found = []
    for _ in range(200):
        each = pipeline(
            planes, lambda row: row, lambda row: 0, lambda row: 0, [0], 1e-12,
            metrics=[pipeline_dp.Metrics.PRIVACY_ID_COUNT], max_partitions_contributed=1)
        found.append(each[0].privacy_id_count - len(planes))
    return root(found)

def opendp_vectors():
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    release = dp.binary_search_chain(
        lambda scale: space >> dp.m.then_laplace(scale), d_in=1, d_out=EPSILON, bounds=(0.1, 100.0))
    return {name: [release(one) for one in held] for name, held in given["vectors"].items()}

def registers():
    errors = []
    for salt in range(200):
        sketch = datasketches.hll_sketch(12)
        for plane in set(given["planes"]):
            sketch.update(f"{salt}{plane}")
        errors.append(sketch.get_estimate() - len(set(given["planes"])))
    return root(errors)

print(json.dumps({
    "opendp": {
        "delays": opendp_delays(), "different": opendp_different(), "vectors": opendp_vectors(),
    },
    "pipeline": {"delays": pipeline_delays(), "different": pipeline_different()},
    "datasketches": {"different": registers()},
}))
"""

DIFFPRIVLIB = """
import warnings
warnings.simplefilter("ignore")
from diffprivlib import tools
errors = []
for day in given["days"] * TIMES:
    held = np.array(day, float)
    found = [tools.quantile(held, share, epsilon=EPSILON / len(SHARES), bounds=(-512, 1536)) for share in SHARES]
    errors += [value - true for value, true in zip(found, deciles(day))]
print(json.dumps(root(errors)))
"""

# Quantiles and counts on a Spark of its own.
TUMULT = """
import os, sys, tempfile, warnings
os.environ["PYSPARK_PYTHON"] = sys.executable
warnings.simplefilter("ignore")
import pandas
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, KeySet, PureDPBudget, QueryBuilder, Session

folder = tempfile.TemporaryDirectory()
settings = {"spark.sql.shuffle.partitions": 1, "spark.ui.enabled": "false", "spark.driver.memory": "2g",
            "spark.sql.warehouse.dir": folder.name, "spark.ui.showConsoleProgress": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true"}
builder = SparkSession.builder.master("local[1]")
for setting, value in settings.items():
    builder = builder.config(setting, value)
spark = builder.getOrCreate()

def ask(rows, columns, whose, budgets):
    # One job a budget, on public groups; the query of a place is the caller's.
    frame = spark.createDataFrame(pandas.DataFrame(rows, columns=columns)).cache()
    held = Session.from_dataframe(PureDPBudget(EPSILON), "records", frame, protected_change=AddOneRow())
    groups = QueryBuilder("records").groupby(KeySet.from_dict({columns[0]: whose}))
    return [held.evaluate(query(groups), PureDPBudget(budget)).toPandas() for query, budget in budgets]

def delays():
    days = given["days"]
    rows = [(day, value) for day, held in enumerate(days) for value in held]
    frames = ask(rows, ["day", "delay"], list(range(len(days))), [
        (lambda groups, share=share: groups.quantile("delay", share, low=-512, high=1536, name="found"),
         EPSILON / len(SHARES)) for share in SHARES])
    return root([
        value - deciles(days[day])[place]
        for place, frame in enumerate(frames) for day, value in zip(frame["day"], frame["found"])])

def different(runs=400):
    # Its noise does not depend on how many there are: a fourth of the planes.
    planes = sorted(set(given["planes"]))[::4]
    rows = [(run, plane) for run in range(runs) for plane in planes]
    frame, = ask(rows, ["run", "plane"], list(range(runs)), [
        (lambda groups: groups.count_distinct(["plane"], name="found"), EPSILON)])
    return root(frame["found"] - len(planes))

print(json.dumps({"delays": delays(), "different": different()}))
"""

JAXPRIVACY = """
import jax
jax.config.update("jax_enable_x64", True)
from jax_privacy.matrix_factorization import toeplitz
days, keys = given["shape"]
strategy = toeplitz.optimize_banded_toeplitz(days, days)
length = float(toeplitz.sensitivity_squared(strategy, days)) ** 0.5
drawn = rng.normal(0, given["sigma"] * length, (days, 20 * keys))
noise = np.linalg.solve(np.asarray(toeplitz.materialize_lower_triangular(strategy)), drawn)
print(json.dumps([root(noise.sum(axis=0)), root(noise)]))
"""


def main() -> None:
    """Ask, and write what they answered."""
    rows = flights()
    _, _, counted = asked_days(rows)
    _, _, asked, grids = asked_places(rows)
    given = {
        "days": [held.tolist() for held in days_of_delays(rows)],
        "planes": [plane for plane in column(rows, "tailnum") if plane],
        "vectors": {
            "days": [counted.reshape(-1).tolist()] * 2,
            **{f"{size:g}": [grid.astype(int).tolist()] * 10 for size, (grid, _) in grids.items()},
        },
        "shape": counted.shape,
        "sigma": 1 / accounting.gaussian_mu(EPSILON, DELTA),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.json"
        path.write_text(json.dumps(given))
        begin = BEGIN.format(path=str(path), epsilon=EPSILON, shares=SHARES, times=TIMES)
        found = run_peer(begin + PEERS)
        exponential = run_peer(begin + DIFFPRIVLIB, "diffprivlib")
        totals, singles = run_peer(begin + JAXPRIVACY, "jaxprivacy")
        tumult = run_peer(begin + TUMULT, "tumult")
    opendp, pipeline, open_sketches = found["opendp"], found["pipeline"], found["datasketches"]
    cells = {size: np.array(opendp["vectors"][f"{size:g}"]) @ near.T for size, (_, near) in grids.items()}
    errors = {size: root(values - asked) / root(asked) for size, values in cells.items()}
    size = min(errors, key=errors.__getitem__)
    noise = np.array(opendp["vectors"]["days"]).reshape(-1, *counted.shape) - counted
    written: dict[str, list[Row]] = {
        "delays": [
            ("OpenDP, private quantile", "ε/3 each", f"{opendp['delays']:.1f} minutes"),
            ("diffprivlib, quantile", "ε/3 each", f"{exponential:.1f} minutes"),
            ("PipelineDP, percentiles", "the same ε", f"{pipeline['delays']:.1f} minutes"),
            ("Tumult, quantile", "ε/3 each", f"{tumult['delays']:.1f} minutes"),
        ],
        "different": [
            ("OpenDP, count distinct", "every plane is held until then", f"{opendp['different']:.1f} planes"),
            ("PipelineDP, privacy id count", "every plane is held until then", f"{pipeline['different']:.1f} planes"),
            ("Tumult, count distinct", "every plane is held until then", f"{tumult['different']:.1f} planes"),
            (
                "DataSketches, HLL of 4,096 buckets",
                "no plane stored",
                f"{open_sketches['different']:.0f}, and not private",
            ),
        ],
        "places": [
            (f"OpenDP's noise on a grid, smoothed, best cells ({size:g}°)", "two dimensions", f"{errors[size]:.1%}")
        ],
        "days": [
            (
                "OpenDP, counts each day",
                "the same",
                f"{root(noise.sum(axis=1)):.0f} flights; {root(noise):.1f}",
            ),
            ("jax-privacy's noise for totals", "the same", f"{totals:.0f} flights; {singles:.0f}"),
        ],
    }
    STORED.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
    print(STORED.read_text())


if __name__ == "__main__":
    main()
