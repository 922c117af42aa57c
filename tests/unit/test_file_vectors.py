"""The published vectors, read as another language would: an Arrow reader, a SHA-256 and a JSON parser, no dpsketch."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

VECTORS = Path(__file__).parents[1] / "vectors" / "files"
NAMES = ["counts-v1", "every-type-v1", "sensitive-v1"]


def expected(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return value


def plain(values: list[Any]) -> list[Any]:
    """Write values as the JSON beside a vector does: floats in hexadecimal, bytes in hex digits."""
    return [value.hex() if isinstance(value, float | bytes) else value for value in values]


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_arrow_reader_reads_a_vector(name: str) -> None:
    data = (VECTORS / f"{name}.dps").read_bytes()
    wanted = expected(name)
    assert len(data) == wanted["size"]

    place = data.index(b'"sha256":"') + 10
    digest = hashlib.sha256(data[:place] + b"0" * 64 + data[place + 64 :]).hexdigest()
    assert data[place : place + 64].decode() == digest

    reader = pa.ipc.open_stream(data)
    envelope = json.loads(reader.schema.metadata[b"dpsketch"])
    assert set(envelope) == {"arrays", "format_version", "header", "kind", "sensitive", "sha256"}
    assert envelope["format_version"] == 1
    assert envelope["sha256"] == digest
    assert {key: envelope[key] for key in ("kind", "sensitive", "header")} == {
        key: wanted[key] for key in ("kind", "sensitive", "header")
    }

    table = reader.read_all()
    table.validate(full=True)
    assert table.num_rows == 1
    assert table.column_names == sorted(wanted["arrays"])
    for column, array in wanted["arrays"].items():
        values = table[column][0].as_py()
        assert plain(values) == array["values"]
        assert len(values) == math.prod(array["shape"])
        assert envelope["arrays"][column] == {"shape": array["shape"], "dtype": array["dtype"]}


@pytest.mark.parametrize("name", NAMES)
def test_the_codec_reads_and_rewrites_a_vector(name: str) -> None:
    """Reading gives what the JSON says, and writing that again gives the vector's bytes: the format has not moved."""
    from dpsketch.files import decode, encode

    data = (VECTORS / f"{name}.dps").read_bytes()
    wanted = expected(name)
    document = decode(data, allow_sensitive=True)
    assert (document.kind, document.sensitive) == (wanted["kind"], wanted["sensitive"])
    assert document.header == wanted["header"]
    assert sorted(document.arrays) == sorted(wanted["arrays"])
    for column, array in wanted["arrays"].items():
        found = document.arrays[column]
        if isinstance(found, np.ndarray):
            assert (list(found.shape), found.dtype.name) == (array["shape"], array["dtype"])
            assert plain(found.ravel().tolist()) == array["values"]
        else:
            assert ([len(found)], plain(found)) == (array["shape"], array["values"])
    assert encode(document) == data


def test_the_reader_in_the_documentation_reads_the_vectors() -> None:
    page = (Path(__file__).parents[2] / "docs" / "file-format.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(program, names)
    for name in NAMES[:2]:
        wanted = expected(name)
        kind, header, arrays = names["read_release"](VECTORS / f"{name}.dps")
        assert (kind, header) == (wanted["kind"], wanted["header"])
        for column, array in wanted["arrays"].items():
            found = arrays[column]
            if isinstance(found, np.ndarray):
                assert (list(found.shape), found.dtype.name) == (array["shape"], array["dtype"])
                found = found.ravel().tolist()
            assert plain(found) == array["values"]
    with pytest.raises(ValueError, match="not a release"):
        names["read_release"](VECTORS / "sensitive-v1.dps")
