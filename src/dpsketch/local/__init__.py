"""The local model: people randomise their own data, and the collector need not be trusted.

    protocol = local.SubsetHashing(epsilon=1.0, max_items=26)     # public; people and collector share it
    reports = protocol.report(sets)                               # on the devices; private from here on
    collector = protocol.collector().add(reports)
    collector.estimate(keys)                                      # the share of people who hold each key

:class:`SubsetHashing` is the one to use for sets of items. :class:`SubsetDirect` is better for a small domain,
:class:`SampledBit` for ε below 1 where no cap on set size is known. For one item a person there are
:class:`OptimalLocalHashing`, :class:`CountMeanSketch` and :class:`HadamardCountMean`; for strings that nobody listed,
:class:`PrefixHeavyHitters`. A device uses a :class:`Client`; a browser, ``client.js`` beside this file.

:class:`PrivSketchAsPublished` is kept for comparison and is not private. :class:`MultiPCMS`, :class:`PadAndSample` and
:class:`SVIM` are the rivals it was compared with; all of these are in :mod:`dpsketch.local.comparison`.
"""

from dpsketch.local.catalogue import PROTOCOLS, load, protocol_from_json
from dpsketch.local.client import Client
from dpsketch.local.collector import Collector, Received
from dpsketch.local.comparison.metrics import mean_squared_error, normalised_cumulative_rank, top_variance
from dpsketch.local.comparison.privsketch import PrivSketchAsPublished, order_scores, recover_sets
from dpsketch.local.comparison.rivals import SVIM, MultiPCMS, PadAndSample
from dpsketch.local.consistency import Consistency, expected_bias
from dpsketch.local.count_mean import CountMeanSketch, HadamardCountMean
from dpsketch.local.exchange import read_reports, read_spec, write_reports, write_spec
from dpsketch.local.hashed import OptimalLocalHashing, SubsetHashing
from dpsketch.local.heavy import PrefixHeavyHitters
from dpsketch.local.protocol import LocalProtocol
from dpsketch.local.sampled_bit import SampledBit, best_width
from dpsketch.local.set_size import CapLoss, SetSizes, SizeDistribution
from dpsketch.local.sets import group_by_person
from dpsketch.local.snapshot import Snapshot
from dpsketch.local.subset_direct import SubsetDirect

__all__ = [
    "PROTOCOLS",
    "SVIM",
    "CapLoss",
    "Client",
    "Collector",
    "Consistency",
    "CountMeanSketch",
    "HadamardCountMean",
    "LocalProtocol",
    "MultiPCMS",
    "OptimalLocalHashing",
    "PadAndSample",
    "PrefixHeavyHitters",
    "PrivSketchAsPublished",
    "Received",
    "SampledBit",
    "SetSizes",
    "SizeDistribution",
    "Snapshot",
    "SubsetDirect",
    "SubsetHashing",
    "best_width",
    "expected_bias",
    "group_by_person",
    "load",
    "mean_squared_error",
    "normalised_cumulative_rank",
    "order_scores",
    "protocol_from_json",
    "read_reports",
    "read_spec",
    "recover_sets",
    "top_variance",
    "write_reports",
    "write_spec",
]
