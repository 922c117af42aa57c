"""Releases whose header someone changed, with a right digest, are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpsketch as dps
import forgery
from dpsketch import kinds
from dpsketch.errors import FileRefused

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def counts(**options: Any) -> dps.CountSketch:
    return dps.CountSketch(**{"rows": 5, "width": 64, "unit": dps.per_record(), **options})


def forged(release: Any, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Save a release, change its header, and put the digest right."""
    path = tmp_path / "forged.dps"
    release.save(path)
    data = path.read_bytes()
    envelope = forgery.envelope_of(data)
    change(envelope["header"])
    table = pa.ipc.open_stream(data).read_all()
    columns = {name: table[name].chunk(0) for name in table.column_names}
    path.write_bytes(forgery.forge(columns, envelope))
    return path


@pytest.fixture(scope="module")
def released() -> Any:
    sketch = counts()
    sketch.update(["tea"])
    return sketch.release(**BUDGET)


def test_an_unchanged_header_is_read(released: Any, tmp_path: Path) -> None:
    again = kinds.load(forged(released, tmp_path, lambda header: None))
    assert again.guarantee == released.guarantee


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", "1"), ("epsilon", -1.0), ("epsilon", True), ("epsilon", None), ("epsilon", [1]),
        ("delta", 7.0), ("delta", -1e-9), ("delta", "0"), ("delta", 1),
        ("rho", "x"), ("rho", 0), ("rho", False),
        ("holds", "no"), ("holds", 1), ("mechanism", {"a": 1}), ("mechanism", None), ("caveat", 5),
        ("costs", []), ("costs", [{"kind": "gaussian", "mu": "x"}]), ("costs", [{"kind": "gaussian", "mu": -1.0}]),
        ("costs", [{"kind": "gaussian", "mu": True}]),
        ("costs", [{"kind": "moment", "p": 0.5, "size": 2.5, "ratio": 2}]),
        ("unit", {"level": "user", "max_keys": 5, "max_weight": 1, "neighbours": "add_remove"}),
    ],
)  # fmt: skip
def test_a_guarantee_that_says_nothing_sensible_is_refused(
    released: Any, tmp_path: Path, field: str, value: Any
) -> None:
    path = forged(released, tmp_path, lambda header: header["guarantee"].update({field: value}))
    with pytest.raises(FileRefused):
        kinds.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["spec"].update(key_type="float"),
        lambda header: header["spec"].update(key_type=["int"]),
    ],
)
def test_a_forged_release_of_counts_is_refused(
    released: Any, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(FileRefused):
        kinds.load(forged(released, tmp_path, change))
