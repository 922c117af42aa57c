"""A file whose guarantee was written for another unit than its spec has is refused, of every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused
from dpsketch.sketches.moment.spec import MomentSpec
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
    with pytest.raises(FileRefused, match=r"another (unit|guarantee)|not one that dpsketch writes"):
        dps.load(path)


@pytest.mark.parametrize("changed", [{"unit": dps.per_record(max_weight=9.0)}, {"size": 30}, {"stream": "turnstile"}])
def test_moments_of_two_streams_are_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    """The moments of a profile differ in p alone: one of them cannot be for another unit, nor another stream."""
    profile = dps.MomentProfile(p=[0.5, 1], size=20, unit=dps.per_record())
    document = profile.release(epsilon=4.0, delta=0).to_document()
    first, second = document.header["moments"]
    spec = replace(MomentSpec.from_json(second["spec"]), **changed)
    listed = [first, {**second, "spec": spec.to_json()}]
    path = tmp_path / "forged.dps"
    files.write(path, replace(document, header={**document.header, "moments": listed}))
    with pytest.raises(FileRefused, match=r"another unit|differ in more than p"):
        dps.load(path)
