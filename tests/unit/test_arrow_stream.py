"""Each structural check of the Arrow reader, met by a file that fails it alone.

The files come from pyarrow; one number of their FlatBuffers metadata is then set to what the check must refuse.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpsketch._arrow_stream import _RECORD_BATCH, _SCHEMA, Column, _message, _Table, read_batch, read_schema
from dpsketch.errors import FileRefused
from dpsketch.files import Document, encode

DATA = encode(Document("counts", False, {}, {"a": np.arange(250, 256), "b": ["xy", "z"]}))
SCHEMA_END = read_schema(memoryview(DATA)).end
BODY = _message(memoryview(DATA), SCHEMA_END, _RECORD_BATCH)[1]
NODES, BUFFERS = 1, 2  # slots of a record batch


def read(data: bytes) -> dict[str, Column]:
    schema = read_schema(memoryview(data))
    return read_batch(memoryview(data), schema.end, schema.columns())


def put(data: bytes, place: int, number: int, size: int = 8) -> bytes:
    return data[:place] + number.to_bytes(size, "little", signed=number < 0) + data[place + size :]


def batch_place(slot: int, index: int = 0, second: bool = False) -> int:
    """Return where in the file an entry of the record batch's nodes or buffers lies."""
    batch = _message(memoryview(DATA), SCHEMA_END, _RECORD_BATCH)[0]
    start, _ = batch._vector(slot, 16)
    return SCHEMA_END + 8 + start + 16 * index + 8 * second


def field_place(table: _Table, slot: int, start: int) -> int:
    place = table._find(slot)
    assert place is not None
    return start + 8 + place


def message_table(start: int) -> _Table:
    metadata = memoryview(DATA)[start + 8 : start + 8 + int.from_bytes(DATA[start + 4 : start + 8], "little")]
    return _Table(metadata, int.from_bytes(metadata[:4], "little"))


def refusal(data: bytes) -> str:
    assert data != DATA
    with pytest.raises(FileRefused, match=r"^the file is forged or was made by a faulty program: ") as caught:
        read(data)
    return str(caught.value)


def test_the_columns_are_cut_to_their_bytes() -> None:
    columns = read(DATA)
    assert (columns["a"].storage, columns["a"].length, bytes(columns["a"].values)) == (
        "uint8",
        6,
        bytes(range(250, 256)),
    )
    assert (columns["b"].storage, columns["b"].length, bytes(columns["b"].values)) == ("text", 2, b"xyz")
    assert np.frombuffer(columns["b"].offsets, "<i8").tolist() == [0, 2, 3]


@pytest.mark.parametrize(("node", "second", "number"), [(0, False, 2), (0, False, 0), (0, True, 1), (1, True, 1)])
def test_missing_values_and_more_rows_are_refused(node: int, second: bool, number: int) -> None:
    assert "missing values or not one row" in refusal(put(DATA, batch_place(NODES, node, second), number))


def test_a_list_that_does_not_cover_its_values_is_refused() -> None:
    for place, number in ((BODY, 1), (BODY + 8, 5), (BODY + 8, 7), (BODY + 8, -1)):
        assert "does not cover its values" in refusal(put(DATA, place, number))


@pytest.mark.parametrize("length", [100, 2**31, 2**60, 2**63 - 1])
def test_a_consistent_lie_about_a_length_is_refused(length: int) -> None:
    """Node and list offsets agree, and only the buffer is too short."""
    numbers = put(put(DATA, batch_place(NODES, 1), length), BODY + 8, length)
    assert "longer than its buffer" in refusal(numbers)
    start = batch_place(BUFFERS, 5)
    offsets = BODY + int.from_bytes(DATA[start : start + 8], "little")
    texts = put(put(DATA, batch_place(NODES, 3), length), offsets + 8, length)
    assert "longer than its buffer" in refusal(texts)


@pytest.mark.parametrize("index", range(9))
def test_a_buffer_outside_the_file_is_refused(index: int) -> None:
    for second, number in ((False, 2**40), (True, 2**40), (True, 2**63 - 1), (True, -8), (False, -8)):
        assert "a buffer lies outside" in refusal(put(DATA, batch_place(BUFFERS, index, second), number))


@pytest.mark.parametrize("index", [0, 2, 4, 6])
def test_a_mask_of_missing_values_is_refused(index: int) -> None:
    """The nodes say that nothing is missing; a mask is there all the same."""
    after = batch_place(BUFFERS, index + 1)
    start = int.from_bytes(DATA[after : after + 8], "little")
    moved = put(put(DATA, batch_place(BUFFERS, index), start), batch_place(BUFFERS, index, second=True), 8)
    moved = put(put(moved, after, start + 8), batch_place(BUFFERS, index + 1, second=True), 0)
    assert "marks missing values" in refusal(moved)


def test_more_or_fewer_buffers_than_the_schema_asks_are_refused() -> None:
    for slot in (NODES, BUFFERS):
        assert "does not match its schema" in refusal(put(DATA, batch_place(slot) - 4, 3, 4))
        assert "list longer than itself" in refusal(put(DATA, batch_place(slot) - 4, 2**31, 4))


@pytest.mark.parametrize("kind", [_SCHEMA, 2, 4, 5, 0])
def test_another_kind_of_message_is_refused(kind: int) -> None:
    place = field_place(message_table(SCHEMA_END), 1, SCHEMA_END)
    assert "not one schema and one record batch" in refusal(put(DATA, place, kind, 1))


def test_another_version_of_arrow_is_refused() -> None:
    assert "not of version 5" in refusal(put(DATA, field_place(message_table(0), 0, 0), 3, 2))


@pytest.mark.parametrize("number", [0, 1, 2**31, 2**32 - 1])
def test_an_offset_out_of_the_message_is_refused(number: int) -> None:
    """The message's first word says where its root table lies."""
    assert "Arrow metadata" in refusal(put(DATA, 8, number, 4))


def test_numbers_of_the_other_byte_order_are_refused() -> None:
    """pyarrow leaves out the zero for little-endian; its slot is pointed at a number that is not zero."""
    schema = _message(memoryview(DATA), 0, _SCHEMA)[0]
    assert schema._slots_size >= 6
    entry = 8 + schema._slots + 4
    assert DATA[entry : entry + 2] == bytes(2)
    assert "big-endian" in refusal(put(DATA, entry, 4, 2))
