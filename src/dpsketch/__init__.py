"""Differentially private sketches: count what is sensitive without remembering it.

Names are loaded when they are first used, so that ``import dpsketch`` and the command line start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from dpsketch.keying import keyed as keyed
    from dpsketch.keying import random_key as random_key
    from dpsketch.keying import random_seed as random_seed
    from dpsketch.kinds import load as load
    from dpsketch.kinds import load_sensitive as load_sensitive
    from dpsketch.ledger import Ledger as Ledger
    from dpsketch.privacy import Budget as Budget
    from dpsketch.privacy import Guarantee as Guarantee
    from dpsketch.privacy import Unit as Unit
    from dpsketch.privacy import per_record as per_record
    from dpsketch.privacy import per_user as per_user
    from dpsketch.results import Estimate as Estimate
    from dpsketch.results import Estimates as Estimates
    from dpsketch.sketches.countsketch import ContinualCountSketch as ContinualCountSketch
    from dpsketch.sketches.countsketch import CountSketch as CountSketch
    from dpsketch.sketches.countsketch import LocalCountSketch as LocalCountSketch
    from dpsketch.sketches.countsketch import PanPrivateCountSketch as PanPrivateCountSketch
    from dpsketch.sketches.countsketch import PrivateCountSketch as PrivateCountSketch
    from dpsketch.sketches.countsketch import Share as Share
    from dpsketch.sketches.countsketch import merge_releases as merge_releases
    from dpsketch.sketches.density import DensityClassifier as DensityClassifier
    from dpsketch.sketches.density import DensitySketch as DensitySketch
    from dpsketch.sketches.density import PrivateDensity as PrivateDensity
    from dpsketch.sketches.distinct import DistinctSketch as DistinctSketch
    from dpsketch.sketches.distinct import PrivateDistinct as PrivateDistinct
    from dpsketch.sketches.distinct import PrivateDistinctBitmap as PrivateDistinctBitmap
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
    from dpsketch.sketches.ranges import PrivateRanges as PrivateRanges
    from dpsketch.sketches.ranges import Quantile as Quantile
    from dpsketch.sketches.ranges import RangeSketch as RangeSketch
    from dpsketch.sketches.sparse import PrivateSparseHistogram as PrivateSparseHistogram
    from dpsketch.sketches.sparse import SparseHistogram as SparseHistogram

__version__ = "0.1.0"

_HOMES = {
    "Budget": "dpsketch.privacy",
    "random_seed": "dpsketch.keying",
    "random_key": "dpsketch.keying",
    "keyed": "dpsketch.keying",
    "ContinualCountSketch": "dpsketch.sketches.countsketch",
    "Quantile": "dpsketch.sketches.ranges",
    "LocalCountSketch": "dpsketch.sketches.countsketch",
    "merge_releases": "dpsketch.sketches.countsketch",
    "Share": "dpsketch.sketches.countsketch",
    "PrivateDistinctBitmap": "dpsketch.sketches.distinct",
    "MomentSketchAsPublished": "dpsketch.sketches.moment",
    "CountSketch": "dpsketch.sketches.countsketch",
    "DensityClassifier": "dpsketch.sketches.density",
    "DensitySketch": "dpsketch.sketches.density",
    "DistinctSketch": "dpsketch.sketches.distinct",
    "DpsketchError": "dpsketch.errors",
    "BudgetExceeded": "dpsketch.errors",
    "CounterOverflow": "dpsketch.errors",
    "FileRefused": "dpsketch.errors",
    "InvalidInput": "dpsketch.errors",
    "LedgerError": "dpsketch.errors",
    "ReleaseNotWritten": "dpsketch.errors",
    "ReleaseRefused": "dpsketch.errors",
    "SensitiveData": "dpsketch.errors",
    "SketchBroken": "dpsketch.errors",
    "SourceError": "dpsketch.errors",
    "SpecMismatch": "dpsketch.errors",
    "Estimate": "dpsketch.results",
    "Estimates": "dpsketch.results",
    "Guarantee": "dpsketch.privacy",
    "HeavyHitters": "dpsketch.sketches.heavy",
    "Histogram": "dpsketch.sketches.histogram",
    "PrivateHistogram": "dpsketch.sketches.histogram",
    "PrivateVoteHistogram": "dpsketch.sketches.histogram",
    "VoteHistogram": "dpsketch.sketches.histogram",
    "Ledger": "dpsketch.ledger",
    "MomentProfile": "dpsketch.sketches.moment",
    "MomentSketch": "dpsketch.sketches.moment",
    "PanPrivateCountSketch": "dpsketch.sketches.countsketch",
    "PrivateCountSketch": "dpsketch.sketches.countsketch",
    "PrivateDensity": "dpsketch.sketches.density",
    "PrivateDistinct": "dpsketch.sketches.distinct",
    "PrivateHeavyHitters": "dpsketch.sketches.heavy",
    "PrivateMoment": "dpsketch.sketches.moment",
    "PrivateMomentProfile": "dpsketch.sketches.moment",
    "PrivateRanges": "dpsketch.sketches.ranges",
    "PrivateSparseHistogram": "dpsketch.sketches.sparse",
    "RangeSketch": "dpsketch.sketches.ranges",
    "SparseHistogram": "dpsketch.sketches.sparse",
    "Unit": "dpsketch.privacy",
    "load": "dpsketch.kinds",
    "load_sensitive": "dpsketch.kinds",
    "per_record": "dpsketch.privacy",
    "per_user": "dpsketch.privacy",
}
_MODULES = ("kernels", "local")

__all__ = [
    "Budget",
    "BudgetExceeded",
    "ContinualCountSketch",
    "CountSketch",
    "CounterOverflow",
    "DensityClassifier",
    "DensitySketch",
    "DistinctSketch",
    "DpsketchError",
    "Estimate",
    "Estimates",
    "FileRefused",
    "Guarantee",
    "HeavyHitters",
    "Histogram",
    "InvalidInput",
    "Ledger",
    "LedgerError",
    "LocalCountSketch",
    "MomentProfile",
    "MomentSketch",
    "MomentSketchAsPublished",
    "PanPrivateCountSketch",
    "PrivateCountSketch",
    "PrivateDensity",
    "PrivateDistinct",
    "PrivateDistinctBitmap",
    "PrivateHeavyHitters",
    "PrivateHistogram",
    "PrivateMoment",
    "PrivateMomentProfile",
    "PrivateRanges",
    "PrivateSparseHistogram",
    "PrivateVoteHistogram",
    "Quantile",
    "RangeSketch",
    "ReleaseNotWritten",
    "ReleaseRefused",
    "SensitiveData",
    "Share",
    "SketchBroken",
    "SourceError",
    "SparseHistogram",
    "SpecMismatch",
    "Unit",
    "VoteHistogram",
    "kernels",
    "keyed",
    "load",
    "load_sensitive",
    "local",
    "merge_releases",
    "per_record",
    "per_user",
    "random_key",
    "random_seed",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module(f"dpsketch.{name}")
    raise AttributeError(f"module 'dpsketch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
