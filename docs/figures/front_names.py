"""Ask other libraries for names with counts: ``PYTHONPATH=. python docs/figures/front_names.py`` (ten minutes).

The question is the first of the front page: how many planes fly each route of 2013, where a plane is protected with all
its routes. Every library gets the same planes and the same ε and δ under addition or removal of one plane. It is
measured at every cap of routes a plane and with every kind of noise that it offers, and shown at its best: once by the
number of routes named, once by the error of their counts. ``front-names.json`` keeps all settings that were tried;
``front.py`` reads from it the rows that the pages show.

OpenDP 0.16 states the δ of counts above a threshold and also lists those at the threshold
(https://github.com/opendp/opendp/issues/2922). Its Laplace thresholds on whole numbers are therefore one higher here
than it asks for. Its Gaussian thresholds need no correction: counts are floats there, and none is at the threshold.
PipelineDP's selection by weights, followed by counts of the selected routes, is left out: it named fewer than ten
routes in trials at caps of 40 and 100.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from front import DELTA, EPSILON, NAMES, RELEASES, Named, flights, measured, pairs_of

from benchmarks.peers import run_peer

CAPS = (3, 5, 10, 15, 20, 30, 40, 47)  # no plane has more than 47 routes
HALF = 0.5  # a setting with the least error names at least this part of what the setting with the most names does

# Prints [library, setting, cap, releases], one line for each setting; a release is a table of routes with counts.
BEGIN = """
import json
import numpy as np
given = json.load(open({path!r}))
EPSILON, DELTA, CAPS, RUNS = {epsilon!r}, {delta!r}, {caps!r}, {runs!r}
rng = np.random.default_rng(1)
pairs = [tuple(pair) for pair in given["pairs"]]
found = []

def add(library, setting, cap, release):
    releases = [{{key: float(value) for key, value in release().items()}} for _ in range(RUNS)]
    found.append([library, setting, cap, releases])

def capped(cap):
    # At most so many routes of each plane, at random.
    counts, seen = {{}}, {{}}
    for place in rng.permutation(len(pairs)):
        plane, key = pairs[place]
        if seen.get(plane, 0) < cap:
            seen[plane] = seen.get(plane, 0) + 1
            counts[key] = counts.get(key, 0) + 1
    return counts
"""

PEERS = """
import math
import datasketches, pipeline_dp
import opendp.prelude as dp
from pipeline_dp import NoiseKind, PartitionSelectionStrategy as Strategy
dp.enable_features("contrib")

def laplace(cap):
    inputs = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i64"))
    space = inputs, dp.l01inf_distance(dp.absolute_distance(T="i64"))
    def make(threshold):
        return space >> dp.m.then_laplace_threshold(scale=cap / EPSILON * (1 + 1e-9), threshold=threshold)
    fits = lambda threshold: make(threshold).map((cap, cap, 1))[1] <= DELTA
    return make(dp.binary_search(fits, bounds=(1, 10_000_000), T=int) + 1)

def gaussian(cap):
    # Distances have the type of the counts, and the root of the cap is no whole number: counts are floats.
    floats = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=float, nan=False))
    moved = cap, math.sqrt(cap), 1.0
    def make(scale, threshold):
        space = floats, dp.l02inf_distance(dp.absolute_distance(T=float))
        return space >> dp.m.then_gaussian_threshold(scale=scale, threshold=threshold)
    def epsilon_of(scale, threshold, share):
        profile, leak = dp.c.make_zCDP_to_approxDP(make(scale, threshold)).map(moved)
        return profile.epsilon(delta=DELTA * share - leak) if leak < DELTA * share else math.inf
    tried = []
    for share in (0.5, 0.7, 0.8, 0.9, 0.95):
        scale = dp.binary_search(lambda s: epsilon_of(s, 2.0**40, share) <= EPSILON, bounds=(0.05, 1e6), T=float)
        threshold = dp.binary_search(lambda t: epsilon_of(scale, t, 1.0) <= EPSILON, bounds=(1.0, 1e9), T=float)
        tried.append((threshold, scale))
    threshold, scale = min(tried)
    return make(scale, threshold)

def pipeline(cap, noise, strategy, together):
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.PRIVACY_ID_COUNT], noise_kind=noise, max_partitions_contributed=cap,
        max_contributions_per_partition=1, partition_selection_strategy=strategy,
        post_aggregation_thresholding=together)
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: row[1], value_extractor=lambda row: 0)
    counted = engine.aggregate(pairs, params, extractors)
    accountant.compute_budgets()
    return {key: value.privacy_id_count for key, value in counted}

WAYS = [
    ("Laplace noise, truncated geometric selection", NoiseKind.LAPLACE, Strategy.TRUNCATED_GEOMETRIC, False),
    ("Gaussian noise, truncated geometric selection", NoiseKind.GAUSSIAN, Strategy.TRUNCATED_GEOMETRIC, False),
    ("Gaussian noise, Gaussian selection", NoiseKind.GAUSSIAN, Strategy.GAUSSIAN_THRESHOLDING, False),
    ("Laplace noise with a threshold", NoiseKind.LAPLACE, Strategy.LAPLACE_THRESHOLDING, True),
    ("Gaussian noise with a threshold", NoiseKind.GAUSSIAN, Strategy.GAUSSIAN_THRESHOLDING, True),
]
for cap in CAPS:
    one, other = laplace(cap), gaussian(cap)
    add("OpenDP", "Laplace noise with a threshold", cap, lambda: one(capped(cap)))
    add("OpenDP", "Gaussian noise with a threshold", cap,
        lambda: other({key: float(value) for key, value in capped(cap).items()}))
    for setting, *how in WAYS:
        add("PipelineDP", setting, cap, lambda: pipeline(cap, *how))
sketch = datasketches.frequent_strings_sketch(10)
for _, key in pairs:
    sketch.update(key)
RUNS = 1
add("DataSketches", "frequent items", 0, lambda: {key: sketch.get_estimate(key) for _, key in pairs})
print(json.dumps(found))
"""

# Its thresholds and scales, with NumPy's draws of the law of its noise: a job a release takes it most of a minute.
# Gaussian noise it has in sessions of ρ alone, and those find no groups.
TUMULT = """
import os, sys, warnings
os.environ["PYSPARK_PYTHON"] = sys.executable
warnings.simplefilter("ignore")
import sympy
from tmlt.core.domains.spark_domains import SparkDataFrameDomain, SparkStringColumnDescriptor
from tmlt.core.measurements.aggregations import create_partition_selection_measurement

def noisy(counts, scale):
    chance = -np.expm1(-1 / scale)
    return {key: value + rng.geometric(chance) - rng.geometric(chance) for key, value in counts.items()}

def selected(counts, chosen):
    groups = noisy(counts, chosen.alpha.to_float(round_up=True))
    return {key: value for key, value in groups.items() if value >= chosen.threshold}

def groups_then_counts(cap, share, chosen):
    counts = capped(cap)
    kept = {key: counts[key] for key in selected(counts, chosen)}
    return noisy(kept, cap / ((1 - share) * EPSILON))

for cap in CAPS:
    for share in (0.3, 0.5, 0.7, 0.9, 1.0):
        chosen = create_partition_selection_measurement(
            SparkDataFrameDomain({"route": SparkStringColumnDescriptor()}),
            epsilon=sympy.Rational(str(share * EPSILON)), delta=sympy.Rational(str(DELTA)), d_in=cap)
        if share == 1:
            add("Tumult", "Core's selection with its noisy counts", cap, lambda: selected(capped(cap), chosen))
        else:
            add("Tumult", f"{share:.0%} of ε for groups", cap, lambda: groups_then_counts(cap, share, chosen))
print(json.dumps(found))
"""


def best(tried: list[Named]) -> list[tuple[str, Named]]:
    """Return one library's settings with the most names and with the least error, and what each is best for."""
    most = max(tried, key=lambda each: each.named)
    least = min((each for each in tried if each.named >= HALF * most.named), key=lambda each: each.error)
    if most == least:
        return [("most names, least error", most)]
    return [("most names", most), ("least error", least)]


def main() -> None:
    """Ask, and write every setting that was tried."""
    pairs, truth = pairs_of(flights())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.json"
        path.write_text(json.dumps({"pairs": pairs}))
        begin = BEGIN.format(path=str(path), epsilon=EPSILON, delta=DELTA, caps=CAPS, runs=RELEASES)
        answers = run_peer(begin + PEERS) + run_peer(begin + TUMULT, "tumult")
    tried = [Named(library, setting, cap, *measured(releases, truth)) for library, setting, cap, releases in answers]
    releases_of = dict(zip(tried, (releases for *_, releases in answers), strict=True))
    libraries = list(dict.fromkeys(each.library for each in tried))
    shown = [pair for library in libraries for pair in best([each for each in tried if each.library == library])]
    named = [set(release) for _, each in shown for release in releases_of[each]]
    common = sorted(set(truth).intersection(*named))
    written: dict[str, Any] = {
        "releases": RELEASES,
        "common": common,
        "shown": [
            {"best": words, **each._asdict(), "error_of_common": measured(releases_of[each], truth, common)[1]}
            for words, each in shown
        ],
        "tried": [each._asdict() for each in tried],
    }
    NAMES.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(written["shown"], indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
