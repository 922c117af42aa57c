"""Files of specs and reports, as people and collectors exchange them.

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

from dpsketch.errors import FileRefused
from dpsketch.local.catalogue import protocol_from_json
from dpsketch.local.protocol import LocalProtocol

__all__ = ["read_reports", "read_spec", "write_reports", "write_spec"]

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
