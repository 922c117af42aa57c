"""The table of kinds: one row a kind, which says what it answers and where its parts are; they load when used.

A row (:class:`~dpsketch.sketches.row.Kind`) names classes and functions by path, so that whoever reads one kind's file
loads that kind alone. The command line, the files, the service, Spark and the planner read the rows, and none of them
knows a kind by itself: a new one is its folder and one row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpsketch.sketches.row import Kind, Option

__all__ = ["KINDS", "Kind", "Option", "row_of"]

_COUNTS = "dpsketch.sketches.countsketch"
_HISTOGRAM = "dpsketch.sketches.histogram"
_HEAVY = "dpsketch.sketches.heavy"
_SPARSE = "dpsketch.sketches.sparse"
_MOMENT = "dpsketch.sketches.moment"
_DENSITY = "dpsketch.sketches.density"
_DISTINCT = "dpsketch.sketches.distinct"
_RANGES = "dpsketch.sketches.ranges"
_QUANTILES = "dpsketch.sketches.quantiles"

# The options that several kinds take.
_ROWS = Option("rows", int, "Rows of the table.")
_WIDTH = Option("width", int, "Cells in a row.")
_SEED = Option("seed", int, "Of the hash functions; equal seeds merge.")
_GRID = Option("grid", float, "Step to which weights are rounded.")
_FORM = Option(
    "form",
    str,
    "histogram: truncated, laplace, gaussian, weighted or rounds; of buckets loads, truncated or gaussian. "
    "Default: the best.",
)


def row_of(sketch: Any) -> Kind:
    """Return the row that says how a sketch reads records: of a stream, that of the kind which its days count."""
    return KINDS[getattr(sketch, "counts_kind", sketch.kind)]


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "histogram",
            "Which keys are there, and how often does each occur? (names and counts)",
            answers=("keys", "top"),
            private_path=f"{_HISTOGRAM}:PrivateHistogram",
            sensitive_path=f"{_HISTOGRAM}:Histogram",
            spec_path=f"{_HISTOGRAM}:HistogramSpec",
            whole_users=False,
            lists_keys=True,
            collides=False,
            start_path=f"{_HISTOGRAM}.command:start",
            options=(
                _GRID,
                Option("max_counters", int, "histogram: bound its memory to so many keys, which vote in buckets."),
                _SEED,
                Option("memory_limit", str, "histogram: go to disk beyond it, as in 2GB."),
                Option("temp_directory", Path, "histogram: where to, with --memory-limit."),
            ),
            release_options=(
                Option("keys_from", Path, "histogram: a public list, one key a line; all of it is answered."),
                Option("unknown", bool, "histogram: with --keys-from, find other keys as well."),
                Option("others", bool, "histogram: count all other keys together, too."),
                Option("names_only", bool, "histogram: spend all on finding names; no counts."),
                _FORM,
            ),
            release_path=f"{_HISTOGRAM}.command:release_arguments",
            plan_path="dpsketch.plan.histograms:plan_histogram",
            questions=("keys",),
            suits="one party holds the keys, in memory or on disk",
            daily=True,
            day_path=f"{_HISTOGRAM}.day:NamedDay",
            window_path=f"{_HISTOGRAM}.window:PrivateDailyHistogram",
        ),
        Kind(
            "histogram-votes",
            "Which keys are frequent, and how frequent, in bounded memory? (votes in buckets)",
            answers=("keys", "top"),
            private_path=f"{_HISTOGRAM}:PrivateVoteHistogram",
            sensitive_path=f"{_HISTOGRAM}:VoteHistogram",
            spec_path=f"{_HISTOGRAM}:VoteHistogramSpec",
            weighs=False,
            lists_keys=True,
            release_options=(_FORM,),
            release_path=f"{_HISTOGRAM}.command:vote_arguments",
            command="histogram",
            plan_path="dpsketch.plan.histograms:plan_votes",
            questions=("keys",),
            suits="the keys can neither be held in memory nor on disk",
        ),
        Kind(
            "counts",
            "How often does each key I name occur? (CountSketch)",
            answers=("keys", "top", "decode"),
            private_path=f"{_COUNTS}:PrivateCountSketch",
            sensitive_path=f"{_COUNTS}:CountSketch",
            spec_path=f"{_COUNTS}:CountSketchSpec",
            fingerprints=True,
            options=(_ROWS, _WIDTH, _SEED, _GRID),
            plan_path="dpsketch.plan.tables:plan_counts",
            questions=("keys",),
            suits="keys must not be stored, releases are added or subtracted, or several parties share the noise",
            instead="histogram",
            daily=True,
        ),
        Kind(
            "continual",
            "How do counts, histograms, ranges, densities and frequent keys change, day after day?",
            answers=("keys", "top"),
            private_path=f"{_HISTOGRAM}.window:PrivateDailyHistogram",
            sensitive_path="dpsketch.sketches.continual.sketch:ContinualSketch",
            lists_keys=True,
        ),
        Kind(
            "series",
            "How does it change, day after day?",
            answers=("curve", "change"),
            private_path="dpsketch.sketches.continual.series:PrivateSeries",
        ),
        Kind(
            "heavy",
            "Which keys are frequent, and how frequent? (a tree of sketches)",
            answers=("keys", "top", "decode"),
            private_path=f"{_HEAVY}:PrivateHeavyHitters",
            sensitive_path=f"{_HEAVY}:HeavyHitters",
            spec_path=f"{_HEAVY}:HeavyHittersSpec",
            lists_keys=True,
            start_path=f"{_HEAVY}.command:start",
            options=(
                _ROWS,
                _WIDTH,
                _SEED,
                _GRID,
                Option("key_bits", int, "heavy: integer keys below 2^bits."),
                Option("key_bytes", int, "heavy: text keys of so many bytes."),
            ),
            plan_path="dpsketch.plan.tables:plan_heavy",
            questions=("keys",),
            suits="names are wanted and keys must not be stored, or memory must have a fixed size",
            instead="histogram",
            daily=True,
        ),
        Kind(
            "sparse",
            "How often does each key I name occur, under pure ε? (ALP)",
            answers=("keys", "top"),
            private_path=f"{_SPARSE}:PrivateSparseHistogram",
            sensitive_path=f"{_SPARSE}:SparseHistogram",
            spec_path=f"{_SPARSE}:SparseHistogramSpec",
            fingerprints=True,
            lists_keys=True,
            options=(
                _SEED,
                _GRID,
                Option("domain", int, "sparse: so many keys are possible."),
                Option("max_value", float, "sparse: counts above it are cut."),
                Option("expected_keys", int, "sparse: a public guess."),
            ),
            plan_path="dpsketch.plan.sizes:plan_sparse",
            pure=True,
            questions=("keys",),
            suits="pure ε is wanted and there is no list, or rare keys are asked for by name",
            instead="histogram",
        ),
        Kind(
            "moment",
            "How skewed is the stream? (F_p, for one p)",
            answers=("statement",),
            private_path=f"{_MOMENT}:PrivateMoment",
            sensitive_path=f"{_MOMENT}:MomentSketch",
            spec_path=f"{_MOMENT}:MomentSpec",
            fingerprints=True,
            released_once=True,
            start_path=f"{_MOMENT}.command:start",
            options=(
                Option("p", list[float], "moment: the exponent; repeat it for several."),
                Option("size", int, "moment: coordinates; more are more accurate."),
                _SEED,
                _GRID,
            ),
            plan_path="dpsketch.plan.sizes:plan_moment",
        ),
        Kind(
            "moments",
            "How skewed is the stream? (F_p, for several p)",
            answers=("statement",),
            private_path=f"{_MOMENT}:PrivateMomentProfile",
            sensitive_path=f"{_MOMENT}:MomentProfile",
            fingerprints=True,
            released_once=True,
            command="moment",
        ),
        Kind(
            "density",
            "Where do points lie? (kernel sums: RACE, features)",
            answers=("point",),
            private_path=f"{_DENSITY}:PrivateDensity",
            sensitive_path=f"{_DENSITY}:DensitySketch",
            spec_path=f"{_DENSITY}:DensitySpec",
            reads="points",
            weighs=False,
            start_path=f"{_DENSITY}.command:start",
            options=(
                _ROWS,
                _WIDTH,
                _SEED,
                Option("kernel", str, "density: euclidean, manhattan or angular; of features gaussian or linear."),
                Option("features", str, "density: race, fourier, series, nystrom, linear, signs, or auto."),
                Option("landmarks", Path, "density: public points for nystrom, a file with the same columns."),
                Option("bandwidth", float, "density: how far a point reaches."),
                Option("power", int, "density: the kernel's power; a larger one is narrower."),
                Option("bounds", str, "density: public limits of each coordinate, as in 0:10,-5:5."),
            ),
            plan_path="dpsketch.plan.sizes:plan_density",
            daily=True,
        ),
        Kind(
            "distinct",
            "How many different keys are there? (F_0)",
            answers=("statement",),
            private_path=f"{_DISTINCT}:PrivateDistinct",
            sensitive_path=f"{_DISTINCT}:DistinctSketch",
            spec_path=f"{_DISTINCT}:DistinctSpec",
            weighs=False,
            fingerprints=True,
            start_path=f"{_DISTINCT}.command:start",
            options=(
                Option("buckets", int, "distinct: more are more accurate."),
                Option("exact", bool, "distinct: hold every key, by eight bytes; noise is then the only error."),
                _SEED,
            ),
            plan_path="dpsketch.plan.sizes:plan_distinct",
        ),
        Kind(
            "distinct-set",
            "How many different keys are there, exactly but for the noise?",
            answers=("statement",),
            private_path=f"{_DISTINCT}:PrivateDistinctCount",
            sensitive_path=f"{_DISTINCT}:DistinctSet",
            spec_path=f"{_DISTINCT}:DistinctSetSpec",
            weighs=False,
            fingerprints=True,
            whole_users=False,
            collides=False,
            command="distinct",
        ),
        Kind(
            "distinct-bitmap",
            "How many different keys are there, over several parties?",
            answers=("statement",),
            private_path=f"{_DISTINCT}:PrivateDistinctBitmap",
        ),
        Kind(
            "local",
            "Which items do people hold, by their own reports? (the local model)",
            answers=("keys", "top"),
            private_path="dpsketch.local:Collector",
        ),
        Kind(
            "ranges",
            "How many keys lie in a range; which are the quantiles?",
            answers=("range",),
            private_path=f"{_RANGES}:PrivateRanges",
            sensitive_path=f"{_RANGES}:RangeSketch",
            spec_path=f"{_RANGES}:RangeSketchSpec",
            start_path=f"{_RANGES}.command:start",
            options=(
                Option("bits", int, "ranges: values lie in [start, start + 2^bits)."),
                Option("start", int, "ranges: the smallest value."),
                Option("outside", str, "ranges: refuse or clamp values outside."),
                _ROWS,
                _WIDTH,
                _SEED,
                _GRID,
                Option("quantiles", str, "ranges: the only ones that will be asked, as in 0.5,0.9; more accurate."),
                Option(
                    "interval_share",
                    float,
                    "ranges: the part of the budget for intervals of named quantiles; 0 (no intervals) by default.",
                ),
            ),
            plan_path="dpsketch.plan.tables:plan_ranges",
            daily=True,
        ),
        Kind(
            "quantiles",
            "Which are the quantiles that were named beforehand?",
            answers=("statement",),
            private_path=f"{_QUANTILES}:PrivateQuantiles",
            sensitive_path=f"{_QUANTILES}:QuantileSketch",
            spec_path=f"{_QUANTILES}:QuantileSpec",
            command="ranges",
        ),
    )
}
