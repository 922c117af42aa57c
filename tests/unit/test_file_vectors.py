"""The published vectors, read by the codec, and as another language would: by the program of the documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsketch.files import decode, encode

VECTORS = Path(__file__).parents[1] / "vectors" / "files"
NAMES = ["counts-v1", "every-type-v1", "sensitive-v1"]


def expected(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return value


def plain(values: list[Any]) -> list[Any]:
    """Write values as the JSON beside a vector does: floats in hexadecimal, bytes in hex digits."""
    return [value.hex() if isinstance(value, float | bytes) else value for value in values]


@pytest.mark.parametrize("name", NAMES)
def test_the_codec_reads_and_rewrites_a_vector(name: str) -> None:
    """Reading gives what the JSON says, and writing that again gives the vector's bytes: the format has not moved."""
    data = (VECTORS / f"{name}.dps").read_bytes()
    wanted = expected(name)
    assert len(data) == wanted["size"]
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
