"""Hostile input, end to end: it is read or refused with one of our errors, and leaves nothing behind.

Files here have a right digest, as an attacker's would (see ``forgery``); what is altered is their JSON header. The
codec itself is fuzzed byte by byte in ``test_files_fuzz``.
"""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files, local
from dpsketch.errors import DpsketchError
from dpsketch.kinds import KINDS, load, load_sensitive
from forgery import dump, envelope_of, seal
from sensitive import BUDGET, ROWS

quick = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

WORTHLESS: list[Any] = [
    None, True, 0, 1, -1, 1.5, -0.0, 1e308, 2**31, 2**63, 10**30, "", "int", "nan", "x" * 300, [],
    [2**62], {}, {"a": 1},
]  # fmt: skip
REPORTS = local.SubsetHashing(epsilon=1.0, max_items=2)


@pytest.fixture(scope="module")
def documents() -> dict[str, tuple[bytes, bool]]:
    """One file of every kind, sensitive and released: its bytes, and whether it is sensitive."""
    made: dict[str, tuple[bytes, bool]] = {}
    shown = {"collector": REPORTS.collector().add(REPORTS.report([["a"], ["b", "c"]] * 5))}
    for row in ROWS:
        sketch = row.filled(0)
        made[f"{row.name} sensitive"] = (sketch.to_sensitive_bytes(), True)
        shown[row.name] = row.publish(sketch)
    shown["bitmap"] = dps.DistinctSketch(unit=dps.per_record(), buckets=16).release_mergeable(epsilon=1.0)
    days = dps.ContinualSketch(dps.Histogram(unit=dps.per_record()), keys=["a", "b"], days=3, **BUDGET)
    days.day(["a", "c"])
    shown["series"] = days.series()
    made |= {name: (files.encode(each.to_document()), False) for name, each in shown.items()}
    assert {files.decode(data, allow_sensitive=True).kind for data, _ in made.values()} == set(KINDS)
    return made


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, inner nodes included."""
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        found += leaves(part, (*path, key))
    return found


def altered(value: Any, path: tuple[Any, ...], new: Any, remove: bool) -> Any:
    copied = json.loads(json.dumps(value))
    place = copied
    for key in path[:-1]:
        place = place[key]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = new
    return copied


def with_header(data: bytes, header: dict[str, Any]) -> bytes:
    """Rewrite a file with another header, and a right digest."""
    envelope = envelope_of(data)
    batch = pa.ipc.open_stream(data).read_next_batch()
    schema = batch.schema.with_metadata({b"dpsketch": dump({**envelope, "header": header})})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch.cast(schema) if batch.num_columns else pa.record_batch([], schema=schema))
    return seal(bytes(sink.getvalue()))


def read(data: bytes, sensitive: bool, folder: Path) -> Any:
    if sensitive:
        return load_sensitive(data)
    path = folder / "hostile.dps"
    path.write_bytes(data)
    return load(path)


def test_every_kind_survives_its_own_header(documents: dict[str, tuple[bytes, bool]], tmp_path: Path) -> None:
    """The forgery itself is sound: an unaltered header, rewritten and sealed, is read."""
    for data, sensitive in documents.values():
        header = files.decode(data, allow_sensitive=True).header
        assert read(with_header(data, header), sensitive, tmp_path) is not None


@quick
@given(st.data())
def test_forged_headers_are_read_or_refused(
    documents: dict[str, tuple[bytes, bool]], tmp_path: Path, data: st.DataObject
) -> None:
    """Never another error than ours, nor more memory than 64 MB beside a file of a few kilobytes."""
    name = data.draw(st.sampled_from(sorted(documents)))
    original, sensitive = documents[name]
    header = files.decode(original, allow_sensitive=True).header
    for _ in range(4):
        path = data.draw(st.sampled_from(leaves(header)))
        new = data.draw(st.sampled_from(WORTHLESS))
        forged = with_header(original, altered(header, path, new, data.draw(st.booleans())))
        tracemalloc.start()
        try:
            with contextlib.suppress(DpsketchError):
                repr(read(forged, sensitive, tmp_path))
            assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
        finally:
            tracemalloc.stop()


@quick
@given(reports=st.lists(st.binary(max_size=40), max_size=5), blob=st.binary(max_size=300))
def test_hostile_reports_are_refused_or_counted_as_bad(reports: list[bytes], blob: bytes, tmp_path: Path) -> None:
    collector = REPORTS.collector()
    for given_ in (reports, blob, [blob], [json.loads("null")], [{"id": 3}], pa.table({"id": [1]})):
        with contextlib.suppress(DpsketchError):
            collector.add(given_)
    path = tmp_path / "reports.arrow"
    path.write_bytes(blob)
    with contextlib.suppress(DpsketchError):
        collector.add(local.read_reports(path, REPORTS))
    collector.add(REPORTS.report([["a"]] * 3))
    assert np.all(np.isfinite(collector.estimate(["a"]).value))
