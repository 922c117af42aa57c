"""What the codec refuses to read, each with its own sentence."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
import memory
from dpsketch._arrow_stream import _message, read_schema
from dpsketch.errors import FileRefused, SensitiveData
from dpsketch.files import DAMAGED, NOT_OURS, Document, decode, encode, read
from forgery import MARKER, VECTORS, dump, envelope_for, forge, listed, seal, stream

COUNTS = (VECTORS / "counts-v1.dps").read_bytes()
SENSITIVE = (VECTORS / "sensitive-v1.dps").read_bytes()


def document(**arrays: Any) -> Document:
    return Document("counts", False, {"seed": 7}, arrays)


def refusal(data: bytes) -> str:
    with pytest.raises(FileRefused) as caught:
        decode(data, allow_sensitive=True)
    return str(caught.value)


def small(*values: int) -> pa.Array:
    return listed(pa.array(values, pa.uint8()))


def test_what_is_not_ours_is_refused() -> None:
    other = stream(pa.schema([("a", pa.int64())]), pa.record_batch({"a": [1]}))
    for data in (b"", b"key,count\na,1\n", b"PAR1" + bytes(100), other):
        assert refusal(data).startswith("this is not a dpsketch file. Give a release (*.dps) or a sketch (*.sketch)")


def test_every_cut_and_every_changed_byte_is_refused() -> None:
    end = 8 + int.from_bytes(COUNTS[4:8], "little")
    for place in range(len(COUNTS)):
        assert refusal(COUNTS[:place]) in ((DAMAGED,) if place >= end else (DAMAGED, NOT_OURS))
        changed = bytearray(COUNTS)
        changed[place] ^= 1 if place % 2 else 128
        assert refusal(bytes(changed)) in (DAMAGED, NOT_OURS)
    assert refusal(COUNTS + b"\0") == DAMAGED


def test_a_sensitive_file_is_refused_where_a_release_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "part.sketch"
    path.write_bytes(SENSITIVE)
    with pytest.raises(SensitiveData, match=r"part\.sketch.*release\(\) it to publish, or read it with dps\.load_sens"):
        read(path, allow_sensitive=False)
    assert read(path, allow_sensitive=True).sensitive
    assert not decode(COUNTS, allow_sensitive=True).sensitive
    path.write_bytes(SENSITIVE[:-1])
    with pytest.raises(FileRefused, match=r"part\.sketch: the file is damaged"):
        read(path, allow_sensitive=True)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_buffers_are_refused_before_they_unfold(codec: str) -> None:
    bomb = listed(pa.array(np.zeros(1 << 26, np.uint8)))
    data = forge({"a": bomb}, envelope_for(a=([1 << 10], "uint8")), compression=codec)
    assert len(data) < 400_000
    memory.forget_peak()
    before = memory.peak()
    assert "its buffers are compressed" in refusal(data)
    assert memory.peak() - before < 32_000


def test_forged_text_is_refused() -> None:
    raw = pa.Array.from_buffers(pa.large_string(), 1, [None, pa.py_buffer(np.array([0, 2])), pa.py_buffer(b"\xff\xfe")])
    assert "not UTF-8" in refusal(forge({"a": listed(raw)}, envelope_for(a=([1], "text"))))
    data = encode(document(a=["ab", "cd"]))
    place = data.index(np.array([0, 2, 4]).tobytes())
    for offsets in ([0, 5, 4], [1, 2, 4], [-1, 2, 4], [0, 2, 9], [0, 2, 2**62], [0, -1, 4]):
        forged = seal(data[:place] + np.array(offsets, np.int64).tobytes() + data[place + 24 :])
        assert "offsets lie outside the file or run backwards" in refusal(forged)


def test_overlapping_buffers_are_refused() -> None:
    """Two columns over one buffer would unfold a file's bytes twice, 256 columns 256 times."""
    data = encode(document(a=np.full(8, 255), b=np.full(8, 254)))
    layout = [value.to_bytes(8, "little") for value in (16, 8)]  # the first column's values: offset and length
    assert data.count(b"".join(layout)) == 1
    second = (40).to_bytes(8, "little") + (8).to_bytes(8, "little")
    assert data.count(second) == 1
    assert "over another" in refusal(seal(data.replace(second, b"".join(layout))))


def test_more_or_fewer_messages_are_refused() -> None:
    schema = pa.schema([("a", pa.large_list(pa.uint8()))], metadata={"dpsketch": dump(envelope_for(a=([1], "int64")))})
    batch = pa.record_batch([small(1)], schema=schema)
    assert decode(seal(stream(schema, batch)), allow_sensitive=False).arrays["a"].tolist() == [1]
    assert "something follows" in refusal(seal(stream(schema, batch, batch)))
    assert "something follows" in refusal(seal(COUNTS + b"\0"))
    assert "version 5" in refusal(seal(stream(schema, batch, metadata_version=pa.ipc.MetadataVersion.V4)))
    twice = pa.schema([*schema, *schema], metadata=schema.metadata)
    both = pa.record_batch([small(1), small(1)], schema=twice)
    assert "two columns have one name" in refusal(seal(stream(twice, both)))
    metadata = pa.KeyValueMetadata([*schema.metadata.items(), ("dpsketch", b"{}")])
    schema = pa.schema(list(schema), metadata=metadata)
    assert "names a key twice" in refusal(seal(stream(schema, pa.record_batch([small(1)], schema=schema))))


def test_a_header_of_another_form_is_refused() -> None:
    good = envelope_for(a=([1], "int64"))
    text = dump(good)
    newer = "the file was written by a newer dpsketch (format 2; this one reads up to 1). Upgrade dpsketch to read it."
    cases: list[tuple[dict[str, Any] | bytes, str]] = [
        ({"format_version": 2, "arrays": "in another way", "compression": "zstd"}, newer),
        ({**good, "sensitive": 0}, "whether it is sensitive"),
        ({**good, "kind": "Not a kind"}, "names no kind"),
        ({**good, "arrays": {"b": good["arrays"]["a"]}}, "its header and its columns differ"),
        ({**good, "arrays": {"a": {**good["arrays"]["a"], "more": 1}}}, "otherwise than by shape and type"),
        (text.replace(b'"header":{}', b'"header":{"x":NaN}'), "not JSON"),
        (text.replace(b'"header":{}', b'"header":{"x":18446744073709551616}'), "more than 64 bits"),
        (text.replace(b'"header":{}', b'"header":{"x":1,"x":2}'), "not JSON"),
        (text.replace(b'"header":{}', b'"header":{"x":' + b"[" * 33 + b"]" * 33 + b"}"), "more than 32 levels"),
    ]
    for envelope, reason in cases:
        assert reason in refusal(forge({"a": small(1)}, envelope)), reason
    assert decode(forge({"a": small(1)}, text), allow_sensitive=False).kind == "counts"


# Six numbers and two texts; single numbers of the Arrow metadata and of the lists are forged.
GOOD = encode(document(a=np.arange(250, 256), b=["xy", "z"]))
VIEW = memoryview(GOOD)
WORDS = VIEW[: len(VIEW) // 8 * 8].cast("q")
END = read_schema(VIEW).end  # where the record batch begins
BATCH, BODY, _ = _message(VIEW, END, 3)
# Pairs: a length and its nulls, a place and its size.
NODES, BUFFERS = (END + 8 + BATCH._vector(slot, 16)[0] for slot in (1, 2))
# What is said of how many bytes at which places.
FORGED: list[tuple[str, int, dict[int, int]]] = [
    *(("missing values or not one row", 8, {NODES + at: number}) for at, number in ((0, 2), (8, 1), (24, 1))),
    *(("does not cover its values", 8, {BODY + at: number}) for at, number in ((0, 1), (8, 5), (8, -1))),
    ("longer than its buffer", 8, {NODES + 16: 2**60, BODY + 8: 2**60}),
    ("longer than its buffer", 8, {NODES + 48: 100, BODY + WORDS[BUFFERS // 8 + 8] + 8: 100}),
    *(("a buffer lies outside", 8, {BUFFERS + 8 * i: number}) for i in range(18) for number in (2**40, -8)),
    *(
        ("marks missing values", 8, {at: WORDS[at // 8 + 2], at + 8: 8, at + 16: WORDS[at // 8 + 2] + 8, at + 24: 0})
        for at in range(BUFFERS, BUFFERS + 128, 32)
    ),
    *(("does not match its schema", 4, {at - 4: 3}) for at in (NODES, BUFFERS)),
    *(("list longer than itself", 4, {at - 4: 2**31}) for at in (NODES, BUFFERS)),
    ("Arrow metadata", 4, {8: 2**31}),
    ("big-endian", 2, {8 + _message(VIEW, 0, 1)[0]._slots + 4: 4}),
]


@pytest.mark.parametrize(("words", "size", "numbers"), FORGED)
def test_each_forged_number_is_refused_by_its_own_check(words: str, size: int, numbers: dict[int, int]) -> None:
    data = bytearray(GOOD)
    for place, number in numbers.items():
        data[place : place + size] = number.to_bytes(size, "little", signed=number < 0)
    assert words in refusal(seal(bytes(data)))


def test_a_second_marker_or_a_bad_digest_is_damage() -> None:
    """With the marker twice, a reader could check one digest and another reader the other."""
    twice = encode(Document("counts", False, {"sha256": "1"}, {})).replace(b"\\u0073ha256", b"sha256     ")
    twice = twice.replace(b'"sha256     ":"', b'"sha256":"     ')
    assert twice.count(MARKER) == 2
    place = twice.rindex(MARKER) + len(MARKER)
    digest = hashlib.sha256(twice[:place] + b"0" * 64 + twice[place + 64 :]).hexdigest().encode()
    assert refusal(twice[:place] + digest + twice[place + 64 :]) == DAMAGED
    start = COUNTS.index(MARKER) + len(MARKER)
    upper = COUNTS[:start] + COUNTS[start : start + 64].upper() + COUNTS[start + 64 :]
    assert upper != COUNTS
    assert refusal(upper) == DAMAGED


def test_integers_that_no_counter_can_be_are_refused_and_not_read_as_negative(tmp_path: Path) -> None:
    sketch = dps.CountSketch(rows=3, width=8, unit=dps.per_record(), key_type="int")
    sketch.release(epsilon=1.0, delta=1e-6).save(tmp_path / "a.dps")
    stored = decode((tmp_path / "a.dps").read_bytes(), allow_sensitive=False)
    (name,) = stored.arrays
    held = decode(sketch.to_sensitive_bytes(), allow_sensitive=True)

    def loaded(largest: int) -> dps.PrivateCountSketch:
        forged = np.full((3, 8), largest, np.uint64)
        (tmp_path / "b.dps").write_bytes(encode(Document(stored.kind, False, stored.header, {name: forged})))
        return dps.load(tmp_path / "b.dps")

    def continued(largest: int) -> dps.CountSketch:
        arrays = {**held.arrays, "counters": np.full((3, 8), largest, np.uint64)}
        return dps.load_sensitive(encode(Document(held.kind, True, held.header, arrays)))

    assert loaded(2**63 - 1).table.max() == 2**63 - 1
    assert continued(2**63 - 1).spec == sketch.spec
    with pytest.raises(FileRefused, match="arrays"):
        loaded(2**63)
    with pytest.raises(FileRefused, match="64 bits"):
        continued(2**63)


@pytest.mark.parametrize(
    ("column", "shape", "dtype", "reason"),
    [
        (small(1, 2, 3), [1 << 39], "int64", "forged length: its header describes an array longer than the file"),
        (small(1, 2, 3), [4], "int64", "forged length: its header and its columns differ"),
        (small(1, 2, 3), [-3], "int64", "its shape is not a list of sizes"),
        (small(1, 2, 3), [3], "float64", "differ in type"),
        (listed(pa.array([b"a", b"b", b"c"], pa.large_binary())), [3], "text", "differ in type"),
        (listed(pa.array([-1], pa.int64())), [1], "uint64", "does not fit its type"),
        (listed(pa.array([2**63], pa.uint64())), [1], "int64", "does not fit its type"),
        (pa.array([1]), [3], "int64", "not one list of plain values"),
        (listed(pa.array(["a", "b", "c"])), [3], "int64", "a type that dpsketch does not use"),
        (listed(pa.array(["a", "b", "a"]).dictionary_encode()), [3], "int64", "dictionary"),
        (listed(pa.array([1, None, 3], pa.uint8())), [3], "int64", "missing values"),
        (pa.array([[1, 2, 3], [1, 2, 3]], pa.large_list(pa.uint8())), [3], "int64", "not one row"),
    ],
)
def test_a_column_that_is_not_as_it_is_described_is_refused(
    column: pa.Array, shape: Any, dtype: Any, reason: str
) -> None:
    assert reason in refusal(forge({"a": column}, envelope_for(a=(shape, dtype))))
