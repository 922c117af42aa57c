"""Differentially private sketches: count what is sensitive without remembering it.

Names are loaded when they are first used, so that ``import dpsketch`` and the command line start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch import kernels as kernels
    from dpsketch import local as local
    from dpsketch.errors import BudgetExceeded as BudgetExceeded
    from dpsketch.errors import CounterOverflow as CounterOverflow
    from dpsketch.errors import DpsketchError as DpsketchError
    from dpsketch.errors import FileRefused as FileRefused
    from dpsketch.errors import InvalidInput as InvalidInput
    from dpsketch.errors import LedgerError as LedgerError
    from dpsketch.errors import ReleaseNotWritten as ReleaseNotWritten
    from dpsketch.errors import ReleaseRefused as ReleaseRefused
    from dpsketch.errors import SensitiveData as SensitiveData
    from dpsketch.errors import SketchBroken as SketchBroken
    from dpsketch.errors import SourceError as SourceError
    from dpsketch.errors import SpecMismatch as SpecMismatch
    from dpsketch.kinds import load as load
    from dpsketch.kinds import load_sensitive as load_sensitive
    from dpsketch.ledger import Ledger as Ledger
    from dpsketch.privacy import Budget as Budget
    from dpsketch.privacy import Guarantee as Guarantee
    from dpsketch.privacy import Unit as Unit
    from dpsketch.privacy import per_record as per_record
    from dpsketch.privacy import per_user as per_user
    from dpsketch.queries import sql as sql
    from dpsketch.results import Estimate as Estimate
    from dpsketch.results import Estimates as Estimates
    from dpsketch.seeds import keyed as keyed
    from dpsketch.seeds import random_key as random_key
    from dpsketch.seeds import random_seed as random_seed
    from dpsketch.sketches.continual.series import PrivateSeries as PrivateSeries
    from dpsketch.sketches.continual.sketch import ContinualSketch as ContinualSketch
    from dpsketch.sketches.countsketch import ContinualCountSketch as ContinualCountSketch
    from dpsketch.sketches.countsketch import CountSketch as CountSketch
    from dpsketch.sketches.countsketch import PanPrivateCountSketch as PanPrivateCountSketch
    from dpsketch.sketches.countsketch import PrivateCountSketch as PrivateCountSketch
    from dpsketch.sketches.countsketch import Share as Share
    from dpsketch.sketches.countsketch import merge_releases as merge_releases
    from dpsketch.sketches.density import DensityClassifier as DensityClassifier
    from dpsketch.sketches.density import DensitySketch as DensitySketch
    from dpsketch.sketches.density import PrivateDensity as PrivateDensity
    from dpsketch.sketches.distinct import DistinctSet as DistinctSet
    from dpsketch.sketches.distinct import DistinctSketch as DistinctSketch
    from dpsketch.sketches.distinct import PrivateDistinct as PrivateDistinct
    from dpsketch.sketches.distinct import PrivateDistinctBitmap as PrivateDistinctBitmap
    from dpsketch.sketches.distinct import PrivateDistinctCount as PrivateDistinctCount
    from dpsketch.sketches.heavy import HeavyHitters as HeavyHitters
    from dpsketch.sketches.heavy import PrivateHeavyHitters as PrivateHeavyHitters
    from dpsketch.sketches.histogram import Histogram as Histogram
    from dpsketch.sketches.histogram import PrivateHistogram as PrivateHistogram
    from dpsketch.sketches.histogram import PrivateVoteHistogram as PrivateVoteHistogram
    from dpsketch.sketches.histogram import VoteHistogram as VoteHistogram
    from dpsketch.sketches.moment import MomentProfile as MomentProfile
    from dpsketch.sketches.moment import MomentSketch as MomentSketch
    from dpsketch.sketches.moment import MomentSketchAsPublished as MomentSketchAsPublished
    from dpsketch.sketches.moment import PrivateMoment as PrivateMoment
    from dpsketch.sketches.moment import PrivateMomentProfile as PrivateMomentProfile
    from dpsketch.sketches.quantiles import PrivateQuantiles as PrivateQuantiles
    from dpsketch.sketches.quantiles import QuantileSketch as QuantileSketch
    from dpsketch.sketches.ranges import PrivateRanges as PrivateRanges
    from dpsketch.sketches.ranges import Quantile as Quantile
    from dpsketch.sketches.ranges import RangeSketch as RangeSketch
    from dpsketch.sketches.sparse import PrivateSparseHistogram as PrivateSparseHistogram
    from dpsketch.sketches.sparse import SparseHistogram as SparseHistogram
    from dpsketch.sketches.table import PrivateTable as PrivateTable
    from dpsketch.sketches.table import Table as Table
    from dpsketch.sketches.table import count as count
    from dpsketch.sketches.table import mean as mean
    from dpsketch.sketches.table import quantiles as quantiles
    from dpsketch.sketches.table import sum as sum
    from dpsketch.sketches.table import users as users

__version__ = "0.1.0"

# The names of each module, loaded when they are first used; under "" those that are modules themselves.
_HOMES = {
    "": "kernels local",
    "errors": (
        "BudgetExceeded CounterOverflow DpsketchError FileRefused InvalidInput LedgerError "
        "ReleaseNotWritten ReleaseRefused SensitiveData SketchBroken SourceError SpecMismatch"
    ),
    "seeds": "keyed random_key random_seed",
    "kinds": "load load_sensitive",
    "ledger": "Ledger",
    "privacy": "Budget Guarantee Unit per_record per_user",
    "queries": "sql",
    "results": "Estimate Estimates",
    "sketches.continual.series": "PrivateSeries",
    "sketches.continual.sketch": "ContinualSketch",
    "sketches.countsketch": (
        "ContinualCountSketch CountSketch PanPrivateCountSketch PrivateCountSketch Share merge_releases"
    ),
    "sketches.density": "DensityClassifier DensitySketch PrivateDensity",
    "sketches.distinct": ("DistinctSet DistinctSketch PrivateDistinct PrivateDistinctBitmap PrivateDistinctCount"),
    "sketches.heavy": "HeavyHitters PrivateHeavyHitters",
    "sketches.histogram": "Histogram PrivateHistogram PrivateVoteHistogram VoteHistogram",
    "sketches.moment": "MomentProfile MomentSketch MomentSketchAsPublished PrivateMoment PrivateMomentProfile",
    "sketches.quantiles": "PrivateQuantiles QuantileSketch",
    "sketches.ranges": "PrivateRanges Quantile RangeSketch",
    "sketches.sparse": "PrivateSparseHistogram SparseHistogram",
    "sketches.table": "PrivateTable Table count mean quantiles sum users",
}

__all__ = sorted(name for names in _HOMES.values() for name in names.split())


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if not TYPE_CHECKING:
    __getattr__ = lazy.names(__name__, **_HOMES)
