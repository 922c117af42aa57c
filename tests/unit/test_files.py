"""What the codec writes, and that it comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsketch.errors import InvalidInput
from dpsketch.files import Document, decode, encode
from forgery import envelope_of


def document(**arrays: Any) -> Document:
    return Document("counts", False, {"seed": 7}, arrays)


def back(value: Document) -> Document:
    return decode(encode(value), allow_sensitive=True)


# What round-trips


@pytest.mark.parametrize("dtype", [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)])
def test_integers_keep_their_type_and_their_extremes(dtype: str) -> None:
    limits = np.iinfo(dtype)
    array = np.array([[limits.min, limits.max, 0]], dtype)
    found = back(document(a=array)).arrays["a"]
    assert isinstance(found, np.ndarray)
    assert found.dtype == array.dtype
    assert found.tolist() == array.tolist()
    assert not found.flags.writeable


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_keep_every_bit(dtype: str) -> None:
    bits = np.arange(0, 2**32, 9_999_991, np.uint64).astype("uint32" if dtype == "float32" else "uint64")
    array = np.concatenate([bits.view(dtype), np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)])
    found = back(document(a=array)).arrays["a"]
    assert isinstance(found, np.ndarray)
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 5), (3, 0, 2), (2, 3, 4), (1,) * 8, (9,), (17, 3)])
@pytest.mark.parametrize("dtype", ["int64", "float64", "bool"])
def test_every_shape_comes_back(shape: tuple[int, ...], dtype: str) -> None:
    array = np.asarray(np.arange(int(np.prod(shape))).reshape(shape) % 3, dtype)
    found = back(document(a=array)).arrays["a"]
    assert isinstance(found, np.ndarray)
    assert found.shape == shape
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    "items",
    [
        [],
        [""],
        ["a", "", "Grüße", "日本語", "\0", '"sha256":"', "x" * 100_000],
        [b""],
        [b"\xff\xfe", b"", b"\0", b"a" * 9],
    ],
)
def test_lists_of_text_and_bytes_come_back(items: list[str] | list[bytes]) -> None:
    assert back(document(a=items)).arrays["a"] == items


def test_a_document_without_arrays_comes_back() -> None:
    found = back(Document("moment", True, {"p": 0.5}, {}))
    assert (found.kind, found.sensitive, found.header, found.arrays) == ("moment", True, {"p": 0.5}, {})


def test_many_arrays_come_back() -> None:
    arrays = {f"a{index}": np.array([index]) for index in range(256)}
    assert {name: int(value[0]) for name, value in back(document(**arrays)).arrays.items()} == {
        name: int(value[0]) for name, value in arrays.items()
    }


def test_the_header_comes_back_with_its_types() -> None:
    header = {"int": 1, "float": 1.0, "tiny": 5e-324, "large": 2**64 - 1, "small": -(2**63), "list": [None, True, {}]}
    header |= {"text": "Grüße\u2028\x7f\0", "negative zero": -0.0, "": ""}
    found = back(Document("counts", False, header, {})).header
    assert repr(dict(sorted(found.items()))) == repr(dict(sorted(header.items())))


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ([], "uint8"),
        ([0, 255], "uint8"),
        ([256], "uint16"),
        ([65535], "uint16"),
        ([65536], "uint32"),
        ([2**32], "uint64"),
        ([-1, 127], "int8"),
        ([-128], "int8"),
        ([-1, 128], "int16"),
        ([-129], "int16"),
        ([-32768, 32767], "int16"),
        ([-32769], "int32"),
        ([-1, 2**31 - 1], "int32"),
        ([-1, 2**31], "int64"),
        ([-(2**63), 2**63 - 1], "int64"),
        ([-(2**63)], "int64"),
    ],
)
def test_integers_are_stored_in_the_narrowest_type(values: list[int], stored: str) -> None:
    data = encode(document(a=np.array(values, np.int64)))
    assert str(pa.ipc.open_stream(data).schema.field("a").type.value_type) == stored
    assert decode(data, allow_sensitive=False).arrays["a"].tolist() == values


def test_equal_documents_give_equal_bytes() -> None:
    table = np.arange(12).reshape(3, 4)
    first = Document("counts", False, {"a": 1, "b": {"c": 2.5, "d": 3}}, {"x": table, "y": ["k"]})
    for same in (table.copy("F"), table.astype(">i8"), np.repeat(table, 2, axis=1)[:, ::2]):
        second = Document("counts", False, {"b": {"d": 3, "c": 2.5}, "a": 1}, {"y": ["k"], "x": same})
        assert encode(second) == encode(first)
    assert encode(Document("counts", True, first.header, first.arrays)) != encode(first)


@pytest.mark.parametrize(
    "header",
    [
        {"sha256": "0" * 64},
        {"x": {"sha256": ""}},
        {'end"sha256': "x"},
        {'\\"sha256': "x"},
        {"sha256": {"sha256": {"sha256": "a"}}},
        {"text": '"sha256":"' + "0" * 64 + '"'},
        {'"sha256":"': '"sha256":"'},
        {"list": ["sha256", ":", '","sha256":"']},
        {"\\u0073ha256": "x", "\\": "sha256"},
    ],
)
def test_the_digest_s_marker_cannot_be_written_twice(header: dict[str, Any]) -> None:
    data = encode(Document("counts", False, header, {"sha256": ['"sha256":"'], "dpsketch": ["sha256"]}))
    end = 8 + int.from_bytes(data[4:8], "little")
    assert data.count(b'"sha256":"', 0, end) == 1
    assert decode(data, allow_sensitive=False).header == header
    assert {key: value for key, value in envelope_of(data).items() if key == "header"} == {"header": header}


def test_nothing_of_the_content_is_printed() -> None:
    shown = repr(Document("moment", True, {"secret": 4711}, {"table": np.array([4711]), "keys": ["anna"]}))
    assert shown == "Document(kind='moment', sensitive=True, arrays=['keys', 'table'])"


# What is not written


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        2**64,
        -(2**63) - 1,
        (1, 2),
        {1: 2},
        "\ud800",
        b"x",
        np.int64(3),
        {"\udfff": 1},
        {3.5},
    ],
)
def test_a_header_that_would_not_come_back_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"^the file's header holds .*, which the format does not take\.$"):
        encode(Document("counts", False, {"x": [value]}, {}))


def test_the_depth_that_is_written_is_the_depth_that_is_read() -> None:
    header: dict[str, Any] = {}
    for _ in range(31):
        header = {"x": header}
    assert back(Document("counts", False, header, {})).header == header
    with pytest.raises(InvalidInput, match="more than 32 levels"):
        encode(Document("counts", False, {"x": header}, {}))


@pytest.mark.parametrize(
    "array",
    [
        ["a", b"b"],
        ["a", None],
        [1, 2],
        np.array(["a"]),
        np.array([1j]),
        np.array([object()]),
        np.array([1.0], np.float16),
        np.datetime64("2020-01-01"),
        3,
        ("a",),
    ],
)
def test_an_array_that_is_none_is_refused(array: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^array 'a' is "):
        encode(document(a=array))


def test_a_lone_surrogate_is_refused_and_not_quoted() -> None:
    with pytest.raises(InvalidInput, match="not Unicode") as caught:
        encode(document(a=["anna", "bert\ud800"]))
    assert "bert" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("name", ["", "1a", "a b", 'a"', "é", "a" * 65, "a\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="array's name"):
        encode(document(**{name: np.zeros(1)}))


@pytest.mark.parametrize("kind", ["", "Counts", "a b", "a" * 65, "counts\n"])
def test_a_kind_that_is_none_is_refused(kind: str) -> None:
    with pytest.raises(InvalidInput, match="kind"):
        encode(Document(kind, False, {}, {}))


@pytest.mark.parametrize("sensitive", [None, 0, 1, np.bool_(True), "no"])
def test_whether_a_file_is_sensitive_must_be_said(sensitive: Any) -> None:
    with pytest.raises(InvalidInput, match="say whether the file is sensitive with True or False"):
        encode(Document("counts", sensitive, {}, {}))


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidInput, match="larger than 1048576 bytes; put long lists into arrays"):
        encode(Document("counts", False, {"x": "x" * (1 << 20)}, {}))
    assert back(Document("counts", False, {"x": "x" * ((1 << 20) - 1000)}, {})).header["x"][-1] == "x"
    with pytest.raises(InvalidInput, match="at most 256 arrays"):
        encode(document(**{f"a{index}": np.zeros(1) for index in range(257)}))
    with pytest.raises(InvalidInput, match="more than 8 dimensions"):
        encode(document(a=np.zeros((1,) * 9)))
    with pytest.raises(InvalidInput, match="too large"):
        encode(document(a=np.zeros((0, 1 << 20, 1 << 21))))
    with pytest.raises(InvalidInput, match="no dictionary"):
        encode(Document("counts", False, [], {}))
