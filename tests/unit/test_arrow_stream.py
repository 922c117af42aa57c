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
LENGTHS = (100, 2**31, 2**60, 2**63 - 1)


def read(data: bytes) -> dict[str, Column]:
    schema = read_schema(memoryview(data))
    return read_batch(memoryview(data), schema.end, schema.columns())


def number_at(place: int) -> int:
    return int.from_bytes(DATA[place : place + 8], "little")


def put(data: bytes, place: int, number: int, size: int = 8) -> bytes:
    return data[:place] + number.to_bytes(size, "little", signed=number < 0) + data[place + size :]


def batch_place(slot: int, index: int = 0, second: bool = False) -> int:
    """Return where in the file an entry of the record batch's nodes or buffers lies."""
    batch = _message(memoryview(DATA), SCHEMA_END, _RECORD_BATCH)[0]
    start, _ = batch._vector(slot, 16)
    return SCHEMA_END + 8 + start + 16 * index + 8 * second


def field_place(slot: int, start: int) -> int:
    """Return where a field of the message that begins at ``start`` lies."""
    metadata = memoryview(DATA)[start + 8 : start + 8 + int.from_bytes(DATA[start + 4 : start + 8], "little")]
    place = _Table(metadata, int.from_bytes(metadata[:4], "little"))._find(slot)
    assert place is not None
    return start + 8 + place


def masked(index: int) -> bytes:
    """The nodes say that nothing is missing; a mask is there all the same."""
    after = batch_place(BUFFERS, index + 1)
    start = number_at(after)
    moved = put(put(DATA, batch_place(BUFFERS, index), start), batch_place(BUFFERS, index, second=True), 8)
    return put(put(moved, after, start + 8), batch_place(BUFFERS, index + 1, second=True), 0)


def other_order() -> bytes:
    """pyarrow leaves out the zero for little-endian; its slot is pointed at a number that is not zero."""
    entry = 8 + _message(memoryview(DATA), 0, _SCHEMA)[0]._slots + 4
    assert DATA[entry : entry + 2] == bytes(2)
    return put(DATA, entry, 4, 2)


TEXTS = BODY + number_at(batch_place(BUFFERS, 5))  # the offsets of the texts
OUTSIDE = ((False, 2**40), (True, 2**40), (True, 2**63 - 1), (True, -8), (False, -8))
FORGED: dict[str, list[bytes]] = {
    "missing values or not one row": [
        put(DATA, batch_place(NODES, node, second), number)
        for node, second, number in ((0, False, 2), (0, False, 0), (0, True, 1), (1, True, 1))
    ],
    "does not cover its values": [put(DATA, BODY, 1), *(put(DATA, BODY + 8, number) for number in (5, 7, -1))],
    # Node and list offsets agree, and only the buffer is too short.
    "longer than its buffer": [
        *(put(put(DATA, batch_place(NODES, 1), length), BODY + 8, length) for length in LENGTHS),
        *(put(put(DATA, batch_place(NODES, 3), length), TEXTS + 8, length) for length in LENGTHS),
    ],
    "a buffer lies outside": [
        put(DATA, batch_place(BUFFERS, index, second), number) for index in range(9) for second, number in OUTSIDE
    ],
    "marks missing values": [masked(index) for index in (0, 2, 4, 6)],
    "does not match its schema": [put(DATA, batch_place(slot) - 4, 3, 4) for slot in (NODES, BUFFERS)],
    "list longer than itself": [put(DATA, batch_place(slot) - 4, 2**31, 4) for slot in (NODES, BUFFERS)],
    "not one schema and one record batch": [
        put(DATA, field_place(1, SCHEMA_END), kind, 1) for kind in (_SCHEMA, 2, 4, 5, 0)
    ],
    "not of version 5": [put(DATA, field_place(0, 0), 3, 2)],
    "Arrow metadata": [put(DATA, 8, number, 4) for number in (0, 1, 2**31, 2**32 - 1)],
    "big-endian": [other_order()],
}


@pytest.mark.parametrize("words", FORGED)
def test_a_forged_number_is_refused_by_its_own_check(words: str) -> None:
    for data in FORGED[words]:
        assert data != DATA
        with pytest.raises(FileRefused, match=f"^the file is forged or was made by a faulty program: .*{words}"):
            read(data)


def test_the_columns_are_cut_to_their_bytes() -> None:
    columns = read(DATA)
    numbers, texts = columns["a"], columns["b"]
    assert (numbers.storage, numbers.length, bytes(numbers.values)) == ("uint8", 6, bytes(range(250, 256)))
    assert (texts.storage, texts.length, bytes(texts.values)) == ("text", 2, b"xyz")
    assert np.frombuffer(texts.offsets, "<i8").tolist() == [0, 2, 3]
