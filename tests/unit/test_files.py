"""What the codec writes, and what it does not; that documents come back is in ``tests/property``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpsketch.errors import InvalidInput
from dpsketch.files import Document, encode


def document(**arrays: Any) -> Document:
    return Document("counts", False, {"seed": 7}, arrays)


@pytest.mark.parametrize(
    "value", [float("nan"), 2**64, -(2**63) - 1, (1, 2), {1: 2}, "\ud800", b"x", np.int64(3), {3.5}]
)
def test_a_header_that_would_not_come_back_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"^the file's header holds .*, which the format does not take\.$"):
        encode(Document("counts", False, {"x": [value]}, {}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("", False, {}, {}), "kind"),
        (("counts", 1, {}, {}), "with True or False"),
        (("counts", False, {}, {'a"': np.zeros(1)}), "array's name"),
        (("counts", False, {}, {f"a{index}": np.zeros(1) for index in range(257)}), "at most 256 arrays"),
        (("counts", False, {}, {"a": np.zeros((1,) * 9)}), "more than 8 dimensions"),
        (("counts", False, {}, {"a": np.zeros((0, 1 << 20, 1 << 21))}), "too large"),
    ],
)
def test_what_the_format_does_not_hold_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        encode(Document(*given))


@pytest.mark.parametrize(
    "array",
    [["a", b"b"], ["a", None], [1, 2], np.array(["a"]), np.array([1j]), np.array([object()]), np.array([1.0], "f2"), 3],
)
def test_an_array_that_is_none_is_refused(array: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^array 'a' is "):
        encode(document(a=array))


def test_a_lone_surrogate_is_refused_and_not_quoted() -> None:
    with pytest.raises(InvalidInput, match="not Unicode") as caught:
        encode(document(a=["anna", "bert\ud800"]))
    assert "bert" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_equal_tables_give_equal_bytes_however_they_lie_in_memory() -> None:
    table = np.arange(12).reshape(3, 4)
    for same in (table.copy("F"), table.astype(">i8"), np.repeat(table, 2, axis=1)[:, ::2]):
        assert encode(document(x=same)) == encode(document(x=table))
