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

from dpsketch.local.bits import CountMeanSketch, HadamardCountMean, SampledBit, best_width
from dpsketch.local.catalogue import (
    PROTOCOLS,
    load,
    protocol_from_json,
    read_reports,
    read_spec,
    write_reports,
    write_spec,
)  # fmt: skip
from dpsketch.local.client import Client
from dpsketch.local.collector import Collector, Received
from dpsketch.local.comparison import SVIM, MultiPCMS, PadAndSample, PrivSketchAsPublished, order_scores, recover_sets
from dpsketch.local.hashed import OptimalLocalHashing, SubsetDirect, SubsetHashing
from dpsketch.local.heavy import PrefixHeavyHitters
from dpsketch.local.protocol import LocalProtocol, group_by_person
from dpsketch.local.set_size import CapLoss, SetSizes, SizeDistribution

__all__ = [
    "PROTOCOLS", "SVIM", "CapLoss", "Client", "Collector", "CountMeanSketch", "HadamardCountMean", "LocalProtocol",
    "MultiPCMS", "OptimalLocalHashing", "PadAndSample", "PrefixHeavyHitters", "PrivSketchAsPublished", "Received",
    "SampledBit", "SetSizes", "SizeDistribution", "SubsetDirect", "SubsetHashing", "best_width",
    "group_by_person", "load", "order_scores", "protocol_from_json", "read_reports", "read_spec", "recover_sets",
    "write_reports", "write_spec",
]  # fmt: skip
