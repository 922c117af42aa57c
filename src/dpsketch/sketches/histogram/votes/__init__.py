"""Histograms in bounded memory: buckets in which keys vote."""

from dpsketch.sketches.histogram.votes.private import PrivateVoteHistogram
from dpsketch.sketches.histogram.votes.sketch import VoteHistogram
from dpsketch.sketches.histogram.votes.spec import VoteHistogramSpec

__all__ = ["PrivateVoteHistogram", "VoteHistogram", "VoteHistogramSpec"]
