"""Hostile input, end to end: it is read or refused with one of our errors, and leaves nothing behind.

Files here have a right digest, as an attacker's would (see ``forgery``); what is altered is their JSON header or their
arrays' types. The codec itself is fuzzed byte by byte in ``test_files_fuzz``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files, local
from dpsketch.cli import main
from dpsketch.errors import CounterOverflow, DpsketchError, InvalidInput
from dpsketch.kinds import KINDS, load, load_sensitive
from dpsketch.sketches.countsketch import ContinualCountSketch
from forgery import dump, envelope_of, seal

quick = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

WORTHLESS: list[Any] = [
    None, True, 0, 1, -1, 1.5, -0.0, 1e308, 2**31, 2**63, 10**30, "", "int", "nan", "x" * 300, [],
    [2**62], {}, {"a": 1},
]  # fmt: skip
RECORD = dps.per_record()
TABLE = [dps.count(), dps.sum("x"), dps.quantiles("x", [0.5])]


def _filled(sketch: Any, keys: Any) -> Any:
    sketch.update(keys)
    return sketch


SKETCHES: dict[str, Callable[[], Any]] = {
    "histogram": lambda: _filled(dps.Histogram(unit=RECORD), ["a", "a rather long key of text"]),
    "histogram-votes": lambda: _filled(dps.VoteHistogram(unit=RECORD, max_counters=8), [1, 2]),
    "counts": lambda: _filled(dps.CountSketch(rows=3, width=8, unit=RECORD), [1, 2]),
    "counts-user": lambda: _users(),
    "heavy": lambda: _filled(dps.HeavyHitters(rows=3, width=8, key_bits=9, unit=RECORD), [1, 2]),
    "sparse": lambda: _filled(dps.SparseHistogram(unit=RECORD, domain=2**10, max_value=9, expected_keys=4), [1, 2]),
    "moment": lambda: _filled(dps.MomentSketch(p=0.5, size=10, unit=RECORD), [1, 2]),
    "moments": lambda: _filled(dps.MomentProfile(p=[0.5, 1.0], size=10, unit=RECORD), [1, 2]),
    "density": lambda: _filled(
        dps.DensitySketch(kernel=dps.kernels.Euclidean(dim=1, bandwidth=1.0), rows=2, width=8, unit=RECORD), [1.0, 2.0]
    ),
    "distinct": lambda: _filled(dps.DistinctSketch(unit=RECORD, buckets=16), [1, 2]),
    "distinct-set": lambda: _filled(dps.DistinctSet(unit=RECORD), [1, 2]),
    "ranges": lambda: _filled(dps.RangeSketch(unit=RECORD, bits=4), [1, 2]),
    "table": lambda: _filled(dps.Table(by="key", columns=TABLE), pa.table({"key": ["a", "b"], "x": [1.0, 2.0]})),
    "quantiles": lambda: _filled(dps.QuantileSketch(unit=RECORD, bits=4, quantiles=[0.5]), [1, 2]),
}


def _users() -> Any:
    sketch = dps.CountSketch(rows=3, width=8, unit=dps.per_user(max_keys=2))
    sketch.update([1, 2], users=["ann", "bob"])
    return sketch


def _collector() -> Any:
    protocol = local.SubsetHashing(epsilon=1.0, max_items=2)
    return protocol.collector().add(protocol.report([["a"], ["b", "c"]] * 5))


@pytest.fixture(scope="module")
def documents() -> dict[str, tuple[bytes, bool]]:
    """One file of every kind, sensitive and released: its bytes, and whether it is sensitive."""
    made: dict[str, tuple[bytes, bool]] = {}
    for name, make in SKETCHES.items():
        made[f"{name} sensitive"] = (make().to_sensitive_bytes(), True)
        budget = {"epsilon": 1.0, "delta": 0.5 if name.startswith(("histogram", "table")) else 0.0}
        made[f"{name} released"] = (files.encode(make().release(**budget).to_document()), False)
    bitmap = SKETCHES["distinct"]().release_mergeable(epsilon=1.0)
    made["distinct-bitmap released"] = (files.encode(bitmap.to_document()), False)
    with_days = dps.ContinualSketch(dps.Histogram(unit=RECORD), keys=["a", "b"], days=3, epsilon=1.0, delta=1e-6)
    release = with_days.day(["a", "c"])
    made["continual sensitive"] = (with_days.to_sensitive_bytes(), True)
    made["continual released"] = (files.encode(release.to_document()), False)
    made["series released"] = (files.encode(with_days.series().to_document()), False)
    finding = dps.ContinualSketch(dps.Histogram(unit=RECORD, key_type="text"), days=3, epsilon=1.0, delta=1e-6)
    release = finding.day(["a"] * 500)
    made["found sensitive"] = (finding.to_sensitive_bytes(), True)
    made["found released"] = (files.encode(release.to_document()), False)
    made["found series released"] = (files.encode(finding.series().to_document()), False)
    made["local released"] = (files.encode(_collector().to_document()), False)
    kinds = {files.decode(data, allow_sensitive=True).kind for data, _ in made.values()}
    assert set(KINDS) == kinds
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
    batches = pa.ipc.open_stream(data)
    batch = batches.read_next_batch()
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


@pytest.mark.full
def test_every_place_of_every_header(documents: dict[str, tuple[bytes, bool]], tmp_path: Path) -> None:
    """The whole of it: each place of each kind's header, removed and replaced by each worthless value."""
    for name, (original, sensitive) in documents.items():
        header = files.decode(original, allow_sensitive=True).header
        for path in leaves(header):
            for new in [*WORTHLESS, ...]:
                forged = with_header(original, altered(header, path, None if new is ... else new, new is ...))
                try:
                    repr(read(forged, sensitive, tmp_path))
                except DpsketchError:
                    continue
                except Exception as error:
                    raise AssertionError((name, path, new)) from error


def test_a_continual_sketch_refuses_forged_headers() -> None:
    shape: Any = {"rows": 3, "width": 4, "unit": RECORD, "key_type": "int", "design": "recurrence"}
    sketch = ContinualCountSketch(days=3, **shape, epsilon=1.0, delta=1e-6)
    sketch.day([1])
    original = sketch.to_sensitive_bytes()
    header = files.decode(original, allow_sensitive=True).header
    forgeries: list[tuple[tuple[Any, ...], Any]] = [
        (("receipt", "laws", 0, "noise", "sigma"), 0.1),
        (("published",), 2),
    ]
    for path in (("days",), ("published",), ("spec", "rows"), ("spec", "width")):
        forgeries += [(path, new) for new in (0, 5, 2**40, "3")]
    for path, new in forgeries:
        with pytest.raises(DpsketchError):
            dps.ContinualSketch.from_sensitive_bytes(with_header(original, altered(header, path, new, False)))


REPORTS = local.SubsetHashing(epsilon=1.0, max_items=2)


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
    good = REPORTS.report([["a"]] * 3)
    collector.add(good)
    assert np.all(np.isfinite(collector.estimate(["a"]).value))


def run_cli(*arguments: str) -> tuple[int, str]:
    """Run the command line in this process; anything but SystemExit is a crash."""
    kept, messages = sys.argv, io.StringIO()
    sys.argv = ["dpsketch", *arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(messages):
            main()
        code = 0
    except SystemExit as stop:
        code = 0 if stop.code is None else int(stop.code)
    finally:
        sys.argv = kept
    return code, messages.getvalue()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("DPSKETCH_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@quick
@given(
    st.sampled_from(["csv", "tsv", "jsonl", "parquet", "arrow"]),
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=100).map(lambda text: ("key,user\n" + text).encode("utf-8", "surrogatepass")),
        st.lists(st.text(max_size=20), max_size=5).map(
            lambda keys: "".join(json.dumps({"key": key}) + "\n" for key in keys).encode()
        ),
        st.lists(st.one_of(st.floats(), st.integers(), st.none(), st.booleans()), max_size=5).map(
            lambda keys: "".join(json.dumps({"key": key}) + "\n" for key in keys).encode()
        ),
    ),
)
def test_hostile_sources_leave_no_partial_output(workplace: Path, ending: str, content: bytes) -> None:
    source, output = workplace / f"records.{ending}", workplace / "out.dps"
    source.write_bytes(content)
    output.unlink(missing_ok=True)
    code, messages = run_cli(
        "run",
        "counts",
        str(source),
        "--key",
        "key",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--width",
        "16",
        "-o",
        str(output),
    )
    assert code in (0, 1)
    assert "Traceback" not in messages
    assert output.exists() == (code == 0)
    if code == 0:
        assert load(output).table.shape[1] == 16
    leftover = {path.name for path in workplace.iterdir()} - {source.name, output.name, "dpsketch"}
    assert not {name for name in leftover if "out" in name}


WORDS = st.sampled_from(
    ["run", "build", "merge", "release", "query", "top", "inspect", "plot", "ledger", "show", "counts", "density",
     "audit", "--key", "--epsilon", "--delta", "--rho", "-o", "--json", "--trials", "-n", "nan", "inf", "-1", "1e999",
     "0", "", "--width", "99999999999999", "missing.csv", ".", "/dev/null", "out.dps", "\x00", "--unknown", "🐍",
     "a" * 5000]
)  # fmt: skip


@quick
@given(st.lists(WORDS, min_size=1, max_size=7))
def test_hostile_arguments_end_in_an_exit_code(workplace: Path, arguments: list[str]) -> None:
    # A whole audit is no crash, but long.
    code, messages = run_cli(*(word for word in arguments if "audit" not in arguments or word.startswith("-")), "--x")
    assert code in (0, 1, 2)
    assert "Traceback" not in messages
    code, messages = run_cli(*arguments) if "audit" not in arguments else (0, "")
    assert code in (0, 1, 2)
    assert "Traceback" not in messages


@pytest.mark.parametrize("name", ["counts", "heavy", "sparse", "ranges", "quantiles", "moment"])
def test_counters_near_the_limit_refuse_and_never_wrap(name: str) -> None:
    """2⁶² units fit; one more is refused, by an update and by a merge, and changes nothing."""
    sketch, other = SKETCHES[name]().empty_like(), None
    if name != "moment":
        other = sketch.empty_like()
        sketch.update([1], counts=[2**62])
        other.update([1], counts=[1])
        before = sketch.to_sensitive_bytes()
        for refused in (lambda: sketch.update([2], counts=[1]), lambda: sketch.merge(other)):
            with pytest.raises(CounterOverflow):
                refused()
        assert sketch.to_sensitive_bytes() == before
        assert sketch.release(epsilon=1.0, delta=0).guarantee.epsilon == 1
    for counts in ([2**62 + 1], [2**63], [2**64 - 1], [10**30], [-1], [1.5], [float("nan")], [None], [True]):
        with pytest.raises((CounterOverflow, InvalidInput)):
            SKETCHES[name]().update([1], counts=counts)


KEYS: dict[str, Any] = {
    "empty text": ["", "a", ""],
    "10 MB": ["x" * 10_000_000, "x" * 9_999_999 + "y"],
    "not UTF-8, as bytes": [b"\xff\xfe", b"\x80"],
    "mixed chunks": pa.chunked_array([pa.array(["a"]), pa.array([], pa.string()), pa.array([None, "b"])]),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "dictionary chunks": pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()]),
    "string view": pa.array(["a", "b" * 40, None], pa.string_view()),
    "large string": pa.array(["a", None], pa.large_string()),
    "sliced": pa.array(["z", "a", "b", "z"]).slice(1, 2),
    "extreme integers": np.array([2**63 - 1, -(2**63), 0, -1]),
    "unsigned": np.array([2**64 - 1, 0], np.uint64),
    "NaN among text": ["a", float("nan"), None],
}
NOT_KEYS: dict[str, Any] = {
    "NaN": [float("nan"), 1.0],
    "huge integers": [10**30],
    "just past 64 bits": [2**64],
    "just below": [-(2**63) - 1],
    "booleans": [True, False],
    "mixed kinds": ["a", 1],
    "lists": [["a"], ["b"]],
    "objects": [object()],
    "lone surrogate": ["\ud800"],
    "two dimensions": np.zeros((2, 2), np.int64),
    "structs": pa.array([{"a": 1}]),
    "dates": np.array(["2020-01-01"], "datetime64[D]"),
}


@pytest.mark.parametrize("name", KEYS)
def test_odd_keys_are_counted_alike_in_every_form(name: str) -> None:
    keys = KEYS[name]
    sketch = dps.CountSketch(rows=3, width=64, unit=RECORD)
    sketch.update(keys)
    plain = keys.to_pylist() if hasattr(keys, "to_pylist") else list(keys)
    again = sketch.empty_like()
    for key in plain:
        again.update([key])
    tables = [
        files.decode(one.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"] for one in (sketch, again)
    ]
    np.testing.assert_array_equal(*tables)


@pytest.mark.parametrize("name", NOT_KEYS)
def test_what_is_no_key_is_refused_and_changes_nothing(name: str) -> None:
    for make in (SKETCHES["counts"], SKETCHES["heavy"], SKETCHES["sparse"], SKETCHES["distinct"]):
        sketch = make()
        before = sketch.to_sensitive_bytes()
        with pytest.raises(DpsketchError) as refused:
            sketch.update(NOT_KEYS[name])
        assert "1000000000000000000000000000000" not in str(refused.value)
        assert sketch.to_sensitive_bytes() == before


@pytest.mark.full
def test_guided_fuzzing_of_the_codec(tmp_path: Path) -> None:
    """Atheris, steered by coverage, for half a minute in a process of its own: refusals only, no crash, no leak."""
    pytest.importorskip("atheris")
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    for name in ("counts", "distinct"):
        (seeds / name).write_bytes(SKETCHES[name]().to_sensitive_bytes())
    program = """
import sys, atheris
with atheris.instrument_imports(include=["dpsketch.files"]):
    import dpsketch.files
# Not the sketches: their kernels are compiled from bytecode that must stay as it is.
from dpsketch.errors import DpsketchError
from dpsketch.kinds import load_sensitive
from forgery import MARKER, seal

def one(data):
    for variant in (data, seal(data) if MARKER in data and data.index(MARKER) + 74 <= len(data) else b""):
        try:
            load_sensitive(variant)
        except DpsketchError:
            pass

atheris.Setup(sys.argv, one)
atheris.Fuzz()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(seeds), "-max_total_time=30", "-rss_limit_mb=2048", "-timeout=20"],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    assert b"Done" in done.stderr


@pytest.mark.full
def test_ten_million_distinct_keys_take_no_memory_of_their_own() -> None:
    """Beyond the batch itself (8 bytes a key) an update needs less than four times the batch."""
    sketch = dps.CountSketch(rows=7, width=4096, unit=RECORD)
    keys = np.arange(10**7)
    sketch.update(keys[:10])
    tracemalloc.start()
    sketch.update(keys)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * keys.nbytes
    assert abs(sketch.release(epsilon=1.0, delta=1e-6).estimate([5]).value[0]) < 20_000
