"""The table of kinds: one row a kind, which says what it answers and where its parts are; they load when used.

A row names classes and functions by path, so that whoever reads one kind's file loads that kind alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

from dpsketch.release import Release

__all__ = ["KINDS", "Answer", "Kind"]

Answer = Literal["keys", "top", "decode", "range", "point", "statement"]

_SKETCHES = "dpsketch.sketches"


@dataclass(frozen=True)
class Kind:
    """One row of the table.

    Attributes
    ----------
    name, question : str
        How files and the command line call it, and which question it answers, in words.
    answers : tuple of str
        What may be asked of a release: counts of keys, the top of them, many decoded together, ranges, points, or
        nothing, since it is one statement.
    private_path, sensitive_path, spec_path : str
        Where its classes are, as ``module:name``. A kind may exist as a release only, and a sketch may have no spec
        from which an equal one is started.
    released_once : bool
        Whether a second release of one sketch would not be private, so that the first must end it.
    lists_keys : bool
        Whether its releases can list keys without being given candidates.
    """

    name: str
    question: str
    answers: tuple[Answer, ...]
    private_path: str
    sensitive_path: str | None = None
    spec_path: str | None = None
    released_once: bool = False
    lists_keys: bool = False

    @cached_property
    def private(self) -> type[Release]:
        """The release."""
        found: type[Release] = named(self.private_path)
        return found

    @cached_property
    def sensitive(self) -> Any:
        """The sensitive sketch; None where the kind exists as a release only."""
        return None if self.sensitive_path is None else named(self.sensitive_path)

    @cached_property
    def spec(self) -> Any:
        """The spec from which an empty sketch is started; None where there is none."""
        return None if self.spec_path is None else named(self.spec_path)


def named(path: str) -> Any:
    """Load what a path ``module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "counts",
            "How often does each key I name occur? (CountSketch)",
            ("keys", "top", "decode"),
            f"{_SKETCHES}.countsketch:PrivateCountSketch",
            f"{_SKETCHES}.countsketch:CountSketch",
            f"{_SKETCHES}.countsketch:CountSketchSpec",
        ),
        Kind(
            "counts-continual",
            "How often, day after day?",
            ("keys", "top", "decode"),
            f"{_SKETCHES}.countsketch:PrivateCountSketch",
            f"{_SKETCHES}.countsketch:ContinualCountSketch",
        ),
        Kind(
            "counts-pan-private",
            "How often, kept in a memory that may be seized?",
            ("keys", "top", "decode"),
            f"{_SKETCHES}.countsketch:PrivateCountSketch",
            f"{_SKETCHES}.countsketch:PanPrivateCountSketch",
            released_once=True,
        ),
        Kind(
            "heavy",
            "Which keys are frequent, and how frequent? (a tree of sketches)",
            ("keys", "top", "decode"),
            f"{_SKETCHES}.heavy:PrivateHeavyHitters",
            f"{_SKETCHES}.heavy:HeavyHitters",
            f"{_SKETCHES}.heavy:HeavyHittersSpec",
            lists_keys=True,
        ),
        Kind(
            "sparse",
            "How often does each key I name occur, under pure ε? (ALP)",
            ("keys", "top"),
            f"{_SKETCHES}.sparse:PrivateSparseHistogram",
            f"{_SKETCHES}.sparse:SparseHistogram",
            f"{_SKETCHES}.sparse:SparseHistogramSpec",
            lists_keys=True,
        ),
        Kind(
            "moment",
            "How skewed is the stream? (F_p, for one p)",
            ("statement",),
            f"{_SKETCHES}.moment:PrivateMoment",
            f"{_SKETCHES}.moment:MomentSketch",
            f"{_SKETCHES}.moment:MomentSpec",
            released_once=True,
        ),
        Kind(
            "moments",
            "How skewed is the stream? (F_p, for several p)",
            ("statement",),
            f"{_SKETCHES}.moment:PrivateMomentProfile",
            f"{_SKETCHES}.moment:MomentProfile",
            released_once=True,
        ),
        Kind(
            "density",
            "Where do points lie? (kernel sums, RACE)",
            ("point",),
            f"{_SKETCHES}.density:PrivateDensity",
            f"{_SKETCHES}.density:DensitySketch",
            f"{_SKETCHES}.density:DensitySpec",
        ),
        Kind(
            "distinct",
            "How many different keys are there? (F_0)",
            ("statement",),
            f"{_SKETCHES}.distinct:PrivateDistinct",
            f"{_SKETCHES}.distinct:DistinctSketch",
            f"{_SKETCHES}.distinct:DistinctSpec",
        ),
        Kind(
            "distinct-bitmap",
            "How many different keys are there, over several parties?",
            ("statement",),
            f"{_SKETCHES}.distinct:PrivateDistinctBitmap",
        ),
        Kind(
            "local",
            "Which items do people hold, by their own reports? (the local model)",
            ("keys", "top"),
            "dpsketch.local:Collector",
        ),
        Kind(
            "ranges",
            "How many keys lie in a range; which are the quantiles?",
            ("range",),
            f"{_SKETCHES}.ranges:PrivateRanges",
            f"{_SKETCHES}.ranges:RangeSketch",
            f"{_SKETCHES}.ranges:RangeSketchSpec",
        ),
    )
}
