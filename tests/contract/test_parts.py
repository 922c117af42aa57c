"""Every kind is charged to a part of a dataset, by the same words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import ReleaseRefused
from dpsketch.ledger import Ledger
from sensitive import MERGING, RECORD, USER, Row

DAY, NEXT = "2026-11-15", "2026-11-16"
RELEASED = [row for row in MERGING if row.name != "pan-private"]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "budget.db")
    ledger.create("records", epsilon=10, delta=1e-5, unit=RECORD, parts="day")
    ledger.create("users", epsilon=10, delta=1e-5, unit=USER, parts="day", disjoint_users=True)
    return ledger


@pytest.mark.parametrize("row", RELEASED, ids=lambda row: row.name)
def test_a_release_is_charged_to_its_part(row: Row, ledger: Ledger) -> None:
    dataset = "users" if row.name.endswith("user") else "records"
    sketch = row.filled(0)
    copy = None if row.name.startswith("moment") else type(sketch).from_sensitive_bytes(sketch.to_sensitive_bytes())
    spend = {"epsilon": 1.0, "delta": 0 if copy is None else 1e-6, "ledger": ledger, "dataset": dataset}
    charge = sketch.release(**spend, part=DAY).charge
    [entry] = ledger.history(dataset)
    assert (entry.part, entry.digest) == (DAY, charge.digest)
    if copy is not None:
        with pytest.raises(ReleaseRefused, match="parts must share no record"):
            copy.release(**spend, part=NEXT)


def test_so_is_what_is_charged_when_it_begins(ledger: Ledger) -> None:
    spend = {"epsilon": 1.0, "delta": 0, "ledger": ledger, "dataset": "records", "part": DAY}
    shape = {"rows": 3, "width": 8, "unit": dps.per_record(), "key_type": "int"}
    dps.ContinualCountSketch(days=4, **shape, **spend)
    dps.PanPrivateCountSketch(**shape, **spend)
    dps.DistinctSketch(buckets=16, unit=dps.per_record()).release_mergeable(**spend)
    dps.CountSketch(rows=3, width=8, unit=dps.per_record()).release(**spend | {"delta": 1e-6}, share=dps.Share(2, 1.0))
    points, classes = np.array([[0.5, 1.0], [1.0, 0.5]]), np.array([0, 1])
    dps.DensityClassifier(bounds=[(0, 2), (0, 2)], classes=[0, 1], **spend).fit(points, classes)
    assert [entry.part for entry in ledger.history("records")] == [DAY] * 5
