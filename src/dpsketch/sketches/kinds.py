"""The table of kinds: each row says what a kind answers and where its parts are; they load when they are used.

A row names classes and functions by path, so that reading the file of one kind loads that kind alone. The command line,
the files, the service, Spark and the planner read the rows, and none of them knows a kind by itself: a new kind is its
folder and one row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from dpsketch.release import Release

__all__ = ["KINDS", "Answer", "Kind", "Option", "row_of"]

Answer = Literal["keys", "top", "decode", "range", "point", "statement", "curve", "change", "rollup"]


class Option(NamedTuple):
    """An option of the command line: its name in Python, its type, its help, and whether it is one of the most used."""

    name: str
    type: Any
    words: str
    first: bool = False


@dataclass(frozen=True)
class Kind:
    """One row of the table. A path is ``module:name``.

    Attributes
    ----------
    name, question : str
        How files and the command line call it, and which question it answers, in words.
    answers : tuple of str
        What may be asked of a release: counts of keys, the top of them, many decoded together, ranges, points, or
        nothing, since it is one statement; of published days, a curve over time and a change between windows, beside
        what the kind that they count answers; of a table, its rows and sums of them.
    private_path : str
        Its :class:`~dpsketch.release.Release`.
    sensitive_path : str or None
        Its sketch; None where the kind exists as a release only.
    spec_path : str or None
        The spec from which an empty sketch is started; None where there is none.
    reads : {"key", "points", "groups"}
        Which columns of a record it counts: a key, coordinates, or the columns of a group with values beside them.
    weighs : bool
        Whether records have weights.
    fingerprints : bool
        Whether fingerprints are all that it wants to know of text keys.
    names_keys : bool
        Whether its releases name keys as they were given, so that whole numbers are below 2⁶³.
    whole_users : bool
        Whether all records of a user must come in one update, sorted together. One that bounds users when it is
        released takes them in any order.
    lists_keys : bool
        Whether its releases can list keys without being given candidates.
    collides : bool
        Whether keys share counters, in a memory of a fixed size; the memory of one where none do grows with the keys.
    released_once : bool
        Whether a second release of one sketch would not be private, so that the first must end it.
    release_options : tuple of Option
        Those that shape a release, where it takes more than a budget.
    options : tuple of Option
        Those that shape a sketch: arguments of its constructor, unless :mod:`dpsketch.cli.kinds` says otherwise.
    command : str or None
        The command line's name for it, where that is another kind's, which starts both, or a command of its own.
    plan_path : str or None
        A function that proposes a shape (see :func:`dpsketch.plan.propose`); None if there is none to choose.
    pure : bool
        Whether it is made for pure privacy, so that a plan assumes δ = 0.
    questions : tuple of str
        For which questions plans compare it with other kinds: "keys", for which there are and how often each occurs.
    suits : str
        Where it is the right one of those, in words.
    instead : str or None
        The kind that answers the same question better where one party holds all keys, which `run` then names.
    daily : bool
        Whether it can be published day after day (:class:`~dpsketch.ContinualSketch`).
    day_path : str or None
        The sketch of one day, where its keys or groups have names and may be a public list; else :attr:`sensitive`.
    window_path : str or None
        The release of some days together, where it is not :attr:`private`.
    """

    name: str
    question: str
    answers: tuple[Answer, ...]
    private_path: str
    sensitive_path: str | None = None
    spec_path: str | None = None
    reads: Literal["key", "points", "groups"] = "key"
    weighs: bool = True
    fingerprints: bool = False
    names_keys: bool = False
    whole_users: bool = True
    lists_keys: bool = False
    collides: bool = True
    released_once: bool = False
    options: tuple[Option, ...] = ()
    release_options: tuple[Option, ...] = ()
    command: str | None = None
    plan_path: str | None = None
    pure: bool = False
    questions: tuple[str, ...] = ()
    suits: str = ""
    instead: str | None = None
    daily: bool = False
    day_path: str | None = None
    window_path: str | None = None

    @cached_property
    def private(self) -> type[Release]:
        """The release."""
        found: type[Release] = _named(self.private_path)
        return found

    @cached_property
    def sensitive(self) -> Any:
        """The sketch."""
        return _named(self.sensitive_path)

    @cached_property
    def spec(self) -> Any:
        """The spec."""
        return _named(self.spec_path)

    @property
    def has_command(self) -> bool:
        """Whether the command line makes sketches of this kind under its own name."""
        return self.spec_path is not None and self.command is None

    @property
    def planned(self) -> bool:
        """Whether a shape can be proposed for it, or there is none to choose."""
        return self.plan_path is not None or self.has_command

    @cached_property
    def day(self) -> Any:
        """The sketch of one day of a stream."""
        return _named(self.day_path or self.sensitive_path)

    @cached_property
    def window(self) -> Any:
        """The release of some days of a stream together."""
        return _named(self.window_path or self.private_path)

    @cached_property
    def plan(self) -> Callable[..., Any] | None:
        """The function ``plan(amount, guess, target_error=…)``, which takes further options by name."""
        function: Callable[..., Any] | None = _named(self.plan_path)
        return function


def _named(path: str | None) -> Any:
    """Load what a path names; None is nothing."""
    if path is None:
        return None
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


_COUNTS = "dpsketch.sketches.countsketch"
_HISTOGRAM = "dpsketch.sketches.histogram"
_HEAVY = "dpsketch.sketches.heavy"
_SPARSE = "dpsketch.sketches.sparse"
_MOMENT = "dpsketch.sketches.moment"
_DENSITY = "dpsketch.sketches.density"
_DISTINCT = "dpsketch.sketches.distinct"
_RANGES = "dpsketch.sketches.ranges"
_QUANTILES = "dpsketch.sketches.quantiles"
_TABLE = "dpsketch.sketches.table"

# The options that several kinds take.
_ROWS = Option("rows", int, "Number of rows of the table.")
_WIDTH = Option("width", int, "Number of cells in a row.")
_SEED = Option("seed", int, "Hash seed. Sketches merge only if their seeds are equal.")
_GRID = Option("grid", float, "Step to which weights are rounded.")
_FORM = Option(
    "form",
    str,
    "Mechanism: truncated, laplace, gaussian, weighted or rounds; with --max-counters loads, truncated or gaussian. By "
    "default the most accurate one.",
)


def row_of(sketch: Any) -> Kind:
    """Return the row that says how a sketch reads records: of a stream, that of the kind which its days count."""
    return KINDS[getattr(sketch, "counts_kind", sketch.kind)]


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "table",
            "What are the counts, users, sums, means and quantiles of each group? (a private GROUP BY)",
            answers=("keys", "rollup"),
            private_path=f"{_TABLE}:PrivateTable",
            sensitive_path=f"{_TABLE}:Table",
            spec_path=f"{_TABLE}:TableSpec",
            weighs=False,
            names_keys=True,
            reads="groups",
            whole_users=False,
            collides=False,
            release_options=(
                Option("groups", Path, "Public list of groups: CSV with their columns, or one name per line."),
                Option(
                    "names",
                    Literal["less", "more"],
                    "Budget that finds the names of groups: a quarter (less, the default) or half.",
                ),
            ),
            command="table",
            plan_path="dpsketch.plan.group_by:plan_table",
            daily=True,
            day_path=f"{_TABLE}.daily:TableDay",
        ),
        Kind(
            "histogram",
            "Which keys are there, and how often does each occur? (names and counts)",
            answers=("keys", "top"),
            private_path=f"{_HISTOGRAM}:PrivateHistogram",
            sensitive_path=f"{_HISTOGRAM}:Histogram",
            spec_path=f"{_HISTOGRAM}:HistogramSpec",
            names_keys=True,
            whole_users=False,
            lists_keys=True,
            collides=False,
            options=(
                _GRID,
                Option("max_counters", int, "Maximum number of keys in memory; keys then vote in buckets."),
                _SEED,
                Option("memory_limit", str, "Memory beyond which keys go to disk, as in 2GB."),
                Option("temp_directory", Path, "Folder for the files of --memory-limit."),
            ),
            release_options=(
                Option("keys_from", Path, "Public list of keys, one per line; all are answered.", first=True),
                Option("unknown", bool, "Search for keys that are not in --keys-from, too."),
                Option("others", bool, "One count of all other keys together, too."),
                Option("names_only", bool, "Names without counts; the whole budget goes to finding them."),
                _FORM,
            ),
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
            names_keys=True,
            weighs=False,
            lists_keys=True,
            release_options=(_FORM,),
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
            plan_path="dpsketch.plan.counters:plan_counts",
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
            options=(
                _ROWS,
                _WIDTH,
                _SEED,
                _GRID,
                Option("key_bits", int, "Length of integer keys in bits: they lie below 2^bits.", first=True),
                Option(
                    "key_bytes", int, "Length of text keys in bytes; longer keys count in the total only.", first=True
                ),
            ),
            plan_path="dpsketch.plan.counters:plan_heavy",
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
                Option("domain", int, "Number of possible keys."),
                Option("max_value", float, "Largest count; larger ones are cut to it."),
                Option("expected_keys", int, "Public guess of the number of keys."),
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
            options=(
                Option("p", list[float], "Exponent of the moment; several where it is repeated.", first=True),
                Option("size", int, "Number of coordinates; more are more accurate. By default 200."),
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
            options=(
                _ROWS,
                _WIDTH,
                _SEED,
                Option("kernel", str, "Kernel: euclidean, manhattan or angular; with --features gaussian or linear."),
                Option("features", str, "Feature map: race, fourier, series, linear, signs, or auto."),
                Option("bandwidth", float, "Distance that a point reaches, in the units of the columns.", first=True),
                Option("power", int, "Power of the kernel; a larger one is narrower."),
                Option("bounds", str, "Public limits of each coordinate, as in 0:10,-5:5.", first=True),
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
            options=(
                Option("buckets", int, "Number of buckets; more are more accurate."),
                Option("exact", bool, "Exact count before the noise; it takes eight bytes per key.", first=True),
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
            options=(
                Option("bits", int, "Size of the domain: values lie in [start, start + 2^bits).", first=True),
                Option("start", int, "Smallest value of the domain.", first=True),
                Option("outside", Literal["refuse", "clamp"], "Treatment of values outside the domain."),
                _ROWS,
                _WIDTH,
                _SEED,
                _GRID,
                Option("quantiles", str, "Only quantiles to answer, as in 0.5,0.9; more accurate.", first=True),
                Option("interval_share", float, "Part of the budget for the intervals of --quantiles; 0 draws none."),
            ),
            plan_path="dpsketch.plan.counters:plan_ranges",
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
