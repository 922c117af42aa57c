"""Histogram: exact counts by key, released with the names of keys."""

from dpsketch.sketches.histogram.private import PrivateHistogram
from dpsketch.sketches.histogram.sketch import Histogram
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.histogram.votes import PrivateVoteHistogram, VoteHistogram, VoteHistogramSpec

__all__ = [
    "Histogram", "HistogramSpec", "PrivateHistogram", "PrivateVoteHistogram", "VoteHistogram", "VoteHistogramSpec"
]  # fmt: skip
