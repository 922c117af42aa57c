"""Histogram: counts by key, exact or in bounded memory, released with the names of keys."""

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch.sketches.histogram.private import PrivateHistogram
    from dpsketch.sketches.histogram.sketch import Histogram
    from dpsketch.sketches.histogram.spec import HistogramSpec
    from dpsketch.sketches.histogram.votes import PrivateVoteHistogram, VoteHistogram, VoteHistogramSpec
else:
    __getattr__ = lazy.names(
        __name__, private="PrivateHistogram", sketch="Histogram", spec="HistogramSpec",
        votes="PrivateVoteHistogram VoteHistogram VoteHistogramSpec",
    )  # fmt: skip

__all__ = [
    "Histogram", "HistogramSpec", "PrivateHistogram", "PrivateVoteHistogram", "VoteHistogram", "VoteHistogramSpec"
]  # fmt: skip
