"""The table of local protocols, and how a spec or a file becomes one of them.

A spec comes from whoever announces it, and a device that follows it gives its person's set away if the protocol is not
private. So there is one gate, :func:`for_people`: what passes it may touch a person's data. Specs pass it when they are
read (:func:`protocol_from_json`), and a :class:`Client` holds every protocol to it once more. What exists to be
compared with is not in the gate's table; it is built by its own class's name, in a program that says so. Collectors,
which see reports and never a set, read the files of any protocol with :func:`nonprivate_protocol_from_json`.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.local.collector import Collector
from dpsketch.local.comparison.privsketch import PrivSketchAsPublished
from dpsketch.local.comparison.rivals import MultiPCMS, PadAndSample
from dpsketch.local.count_mean import CountMeanSketch, HadamardCountMean
from dpsketch.local.hashed import OptimalLocalHashing, SubsetHashing
from dpsketch.local.heavy import PrefixHeavyHitters
from dpsketch.local.protocol import LocalProtocol
from dpsketch.local.sampled_bit import SampledBit
from dpsketch.local.set_size import SetSizes
from dpsketch.local.subset_direct import SubsetDirect
from dpsketch.noise import noise_is_for_tests
from dpsketch.privacy import PureCost

__all__ = ["PROTOCOLS", "for_people", "load", "nonprivate_protocol_from_json", "protocol_from_json"]

_FOR_PEOPLE: tuple[type[LocalProtocol], ...] = (
    SubsetHashing,
    SubsetDirect,
    SampledBit,
    OptimalLocalHashing,
    CountMeanSketch,
    HadamardCountMean,
    PrefixHeavyHitters,
    SetSizes,
)
_FOR_COMPARISON: tuple[type[LocalProtocol], ...] = (PrivSketchAsPublished, MultiPCMS, PadAndSample)

PROTOCOLS: dict[str, type[LocalProtocol]] = {each.name: each for each in _FOR_PEOPLE + _FOR_COMPARISON}


def for_people(protocol: LocalProtocol) -> LocalProtocol:
    """Return a protocol that may touch a person's data, or refuse it.

    Raises
    ------
    InvalidInput
        The protocol is kept for comparison or is none of ours, or its guarantee does not hold or is about another ε
        than the one it draws with.
    """
    if type(protocol) not in _FOR_PEOPLE + _FOR_COMPARISON:
        raise InvalidInput("protocol must be a local protocol such as SubsetHashing(…).")
    stated = protocol.guarantee
    if type(protocol) in _FOR_COMPARISON:
        kept = "is kept for comparison" if stated.holds else "is kept for comparison and is not private"
        raise InvalidInput(
            f"{type(protocol).__name__} {kept}: nobody reports with it. Ask for another, such as SubsetHashing."
        )
    if not (stated.holds or noise_is_for_tests()):
        raise InvalidInput("the protocol's guarantee does not hold: it is not private, and no device reports with it.")
    if (stated.epsilon, stated.delta, stated.costs) != (protocol.epsilon, 0.0, (PureCost(protocol.epsilon),)):
        raise InvalidInput("the protocol states another epsilon than it draws with; no device reports with it.")
    return protocol


def protocol_from_json(value: dict[str, Any]) -> LocalProtocol:
    """Rebuild a protocol for people from its ``to_json``, as a collector announced it.

    Privacy
    -------
    The announcement need not be trusted to be private: what is kept for comparison is refused, and so are a member too
    many and a fingerprint that is not the parameters' own. Its ``epsilon`` is what the collector asks for. Read it, and
    give a :class:`Client` a budget.

    Examples
    --------
    >>> protocol_from_json(SubsetHashing(epsilon=1.0, max_items=4).to_json()).max_items
    4
    """
    return for_people(nonprivate_protocol_from_json(value))


def nonprivate_protocol_from_json(value: dict[str, Any]) -> LocalProtocol:
    """Rebuild any protocol, even one that is not private, for those who hold its reports and never a person's set."""
    name = value.get("protocol") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in PROTOCOLS:
        raise InvalidInput(f"not the spec of a local protocol; known are: {', '.join(sorted(PROTOCOLS))}.")
    return PROTOCOLS[name].from_json(value)


def load(path: str | PathLike[str]) -> Collector:
    """Read a collector from the file that :meth:`Collector.save` wrote."""
    document = files.read(path, allow_sensitive=False)
    if document.kind != Collector.kind:
        raise FileRefused("the file is not that of a collector of local reports; dps.load reads releases.")
    collector: Collector = files.rebuilt(document, Collector)
    return collector
