"""A file whose guarantee was written for another unit than its spec has is refused, of every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused
from sensitive import ROWS, Row

# A profile has a spec for each exponent, inside its moments.
NAMED = [row for row in ROWS if not row.name.startswith("moments")]


@pytest.mark.parametrize(
    "changed", [{"neighbours": "replace"}, {"max_keys": 7}, {"level": "user"}, {"max_weight": 0.5}]
)
@pytest.mark.parametrize("row", NAMED, ids=lambda row: row.name)
def test_a_guarantee_for_another_unit_is_refused(row: Row, changed: dict[str, Any], tmp_path: Path) -> None:
    document = row.publish(row.filled(0)).to_document()
    promise = document.header["guarantee"]
    if all(promise["unit"][name] == value for name, value in changed.items()):
        changed = {"max_keys": 8}  # it has that unit
    forged = {**promise, "unit": {**promise["unit"], **changed}}
    path = tmp_path / "forged.dps"
    files.write(path, replace(document, header={**document.header, "guarantee": forged}))
    # A chosen bound has no other value: such a unit is none at all.
    wrong = "not one that dpsketch writes" if "max_keys" in changed and "auto" in row.name else "another unit"
    with pytest.raises(FileRefused, match=wrong):
        dps.load(path)
