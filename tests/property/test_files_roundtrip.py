"""Any document comes back as it was written, and is written one way only."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpsketch.files import Document, decode, encode
from forgery import seal

DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)] + ["float32", "float64", "bool"]

# Text made of the marker's own pieces finds a way to write the marker twice, if there is one.
awkward = st.lists(st.sampled_from(['"', "sha256", ":", "\\", '"sha256":"', ",", "0" * 64, "u0073ha256"])).map("".join)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | awkward
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
headers = st.dictionaries(text, values, max_size=5)
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
)
lists = st.lists(text, max_size=6) | st.lists(st.binary(max_size=12), max_size=6)
names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,12}", fullmatch=True) | st.just("sha256")
documents = st.builds(
    Document,
    st.sampled_from(["counts", "heavy", "sparse", "moment", "density", "local-subset"]),
    st.booleans(),
    headers,
    st.dictionaries(names, arrays | lists, max_size=4),
)


def content(document: Document) -> tuple[Any, ...]:
    """All of a document to the bit and the type: 1 is not 1.0, -0.0 is not 0.0, a NaN is itself."""
    arrays = {
        name: (each.dtype.name, each.shape, each.tobytes()) if isinstance(each, np.ndarray) else each
        for name, each in document.arrays.items()
    }
    return document.kind, document.sensitive, json.dumps(document.header, sort_keys=True), arrays


@settings(max_examples=150)
@given(documents)
def test_a_document_comes_back_as_it_was_written(document: Document) -> None:
    data = encode(document)
    found = decode(data, allow_sensitive=True)
    assert content(found) == content(document)
    assert all(not array.flags.writeable for array in found.arrays.values() if isinstance(array, np.ndarray))
    assert encode(found) == data == seal(data)
    assert data.count(b'"sha256":"', 0, 8 + int.from_bytes(data[4:8], "little")) == 1
