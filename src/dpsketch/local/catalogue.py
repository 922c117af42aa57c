"""The table of local protocols, and how a spec or a file becomes one of them."""

from __future__ import annotations

from os import PathLike
from typing import Any

from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.local.collector import KIND, Collector
from dpsketch.local.heavy import PrefixHeavyHitters
from dpsketch.local.privsketch import PrivSketchAsPublished
from dpsketch.local.protocol import LocalProtocol
from dpsketch.local.rivals import MultiPCMS, PadAndSample
from dpsketch.local.sampled_bit import SampledBit
from dpsketch.local.set_size import SetSizes
from dpsketch.local.single_item import CountMeanSketch, HadamardCountMean, OptimalLocalHashing
from dpsketch.local.subset_direct import SubsetDirect
from dpsketch.local.subset_hashing import SubsetHashing

__all__ = ["PROTOCOLS", "load", "protocol_from_json"]

PROTOCOLS: dict[str, type[LocalProtocol]] = {
    protocol.name: protocol
    for protocol in (
        SubsetHashing,
        SubsetDirect,
        SampledBit,
        OptimalLocalHashing,
        CountMeanSketch,
        HadamardCountMean,
        PrivSketchAsPublished,
        MultiPCMS,
        PadAndSample,
        PrefixHeavyHitters,
        SetSizes,
    )
}


def protocol_from_json(value: dict[str, Any]) -> LocalProtocol:
    """Rebuild a protocol from the ``to_json`` of any of them.

    Examples
    --------
    >>> protocol_from_json(SubsetHashing(epsilon=1.0, max_items=4).to_json()).max_items
    4
    """
    name = value.get("protocol") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in PROTOCOLS:
        raise InvalidInput(f"not the spec of a local protocol; known are: {', '.join(sorted(PROTOCOLS))}.")
    return PROTOCOLS[name].from_json(value)


def load(path: str | PathLike[str]) -> Collector:
    """Read a collector from the file that :meth:`Collector.save` wrote."""
    document = files.read(path, allow_sensitive=False)
    if document.kind != KIND:
        raise FileRefused("the file is not that of a collector of local reports; dps.load reads releases.")
    try:
        return Collector.from_document(document)
    except FileRefused:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # The digest was right, so the file was forged or written by something else: say which part, not its content.
        refused = type(error).__name__
    raise FileRefused(f"the file's header is not one that dpsketch writes ({refused}).")
