"""The table of local protocols, and how a spec or a file becomes one of them.

A spec comes from whoever announces it, and a device that follows it gives its person's set away if the protocol is not
private. So there is one gate, :func:`for_people`: what passes it may touch a person's data. Specs pass it when they are
read (:func:`protocol_from_json`), and a :class:`Client` holds every protocol to it once more. What exists to be
compared with is not in the gate's table; it is built by its own class's name, in a program that says so. Collectors,
which see reports and never a set, read the files of any protocol with :func:`nonprivate_protocol_from_json`.

A spec is a JSON file. Reports are either JSON lines (``*.jsonl``, one object a line) or the compact bytes of all
reports one after the other (any other name). Both come from people one does not trust, and neither needs a parser that
can be made to crash: a line is read by Python's JSON, and compact reports all have one length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.local.bits import CountMeanSketch, HadamardCountMean, SampledBit
from dpsketch.local.collector import Collector
from dpsketch.local.comparison import MultiPCMS, PadAndSample, PrivSketchAsPublished
from dpsketch.local.hashed import OptimalLocalHashing, SubsetDirect, SubsetHashing
from dpsketch.local.heavy import PrefixHeavyHitters
from dpsketch.local.protocol import LocalProtocol
from dpsketch.local.set_size import SetSizes
from dpsketch.noise import noise_is_for_tests
from dpsketch.privacy import PureCost

__all__ = [
    "PROTOCOLS", "for_people", "load", "nonprivate_protocol_from_json", "protocol_from_json", "read_reports",
    "read_spec", "write_reports", "write_spec",
]  # fmt: skip

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


_LARGEST_SPEC = 1 << 26
_BLOCK_REPORTS = 65_536


def write_spec(path: str | PathLike[str], protocol: LocalProtocol) -> None:
    """Write a protocol's public spec as JSON, for everyone who takes part."""
    Path(path).write_text(json.dumps(protocol.to_json(), indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read_spec(path: str | PathLike[str]) -> LocalProtocol:
    """Read a protocol for people from the file that :func:`write_spec` wrote, whoever sent it.

    What is kept for comparison is refused (:func:`protocol_from_json`).
    """
    with Path(path).open("rb") as file:
        data = file.read(_LARGEST_SPEC + 1)
    try:
        value = json.loads(data, object_pairs_hook=_members) if len(data) <= _LARGEST_SPEC else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise FileRefused("the file is not the spec of a local protocol: a JSON object was expected.")
    return protocol_from_json(value)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that names a member twice: readers differ in which of the two they take."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def write_reports(path: str | PathLike[str], protocol: LocalProtocol, reports: pa.Table) -> int:
    """Append reports to a file, and say how many."""
    target = Path(path)
    if target.suffix == ".jsonl":
        lines = [json.dumps(each, separators=(",", ":")) + "\n" for each in protocol.to_objects(reports)]
        with target.open("a", encoding="utf-8") as text:
            text.writelines(lines)
    else:
        with target.open("ab") as file:
            file.writelines(protocol.to_bytes(reports))
    return int(reports.num_rows)


def read_reports(path: str | PathLike[str], protocol: LocalProtocol) -> Iterator[str | bytes]:
    """Iterate over the messages in a file, for :meth:`Collector.receive`; a partial last one is passed on as it is."""
    source = Path(path)
    if source.suffix == ".jsonl":
        with source.open("r", encoding="utf-8", errors="replace") as lines:
            yield from (line for line in lines if line.strip())
        return
    size = protocol.form.size
    with source.open("rb") as file:
        while block := file.read(size * _BLOCK_REPORTS):
            yield from (block[start : start + size] for start in range(0, len(block), size))
