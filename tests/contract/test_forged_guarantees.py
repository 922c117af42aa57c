"""A file whose guarantee was written for another unit than its spec has is refused, of every kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused
from sensitive import ROWS, Row


@pytest.mark.parametrize(
    "changed", [{"neighbours": "replace"}, {"max_keys": 7}, {"level": "user"}, {"max_weight": 0.5}]
)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_guarantee_for_another_unit_is_refused(row: Row, changed: dict[str, Any], tmp_path: Path) -> None:
    document = row.publish(row.filled(0)).to_document()
    promise = document.header["guarantee"]
    if all(promise["unit"][name] == value for name, value in changed.items()):
        changed = {"max_keys": 8}  # it has that unit
    forged = {**promise, "unit": {**promise["unit"], **changed}}
    path = tmp_path / "forged.dps"
    files.write(path, replace(document, header={**document.header, "guarantee": forged}))
    # A chosen bound has no other value: such a unit is none at all.
    wrong = (
        "not one that dpsketch writes" if "max_keys" in changed and "auto" in row.name else "another (unit|guarantee)"
    )
    with pytest.raises(FileRefused, match=wrong):
        dps.load(path)


@pytest.mark.parametrize("changed", [{"p": 1.5}, {"sums": 30}, {"step": 1.0}, {"public_total": 9.0}])
def test_moments_of_two_streams_are_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    """The moments of a profile differ in p alone: the law of one of them cannot be for another stream."""
    profile = dps.MomentProfile(p=[0.5, 1], size=20, unit=dps.per_record())
    document = profile.release(epsilon=4.0, delta=0).to_document()
    header = json.loads(json.dumps(document.header))
    header["receipts"][0]["laws"][1]["table"].update(changed)
    path = tmp_path / "forged.dps"
    files.write(path, replace(document, header=header))
    with pytest.raises(FileRefused):
        dps.load(path)
