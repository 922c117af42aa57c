"""What a release says of itself: what was promised, what was paid, and its number; in memory and in its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.kinds import load
from dpsketch.ledger import Ledger
from dpsketch.release import NumberRelease
from sensitive import MERGING, RECORD, USER, Row

# Small budgets first: a promise that is restated stands out.
BUDGET = {"epsilon": 0.7, "delta": 1e-6}
RELEASED = [row for row in MERGING if row.name != "pan-private"]


@pytest.mark.parametrize("row", RELEASED, ids=lambda row: row.name)
def test_the_promise_and_the_payment_are_those_of_the_ledger(row: Row, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db")
    unit = USER if row.name.endswith("user") else RECORD
    ledger.create("data", epsilon=10, delta=1e-5, unit=unit)
    budget = BUDGET | ({"delta": 0.0} if row.name.startswith("moment") else {})
    release = row.filled(0).release(**budget, ledger=ledger, dataset="data")
    [entry] = ledger.history("data")
    again = load(files.encode(release.to_document()))
    for each in (release, again):
        assert each.charge == release.charge
        assert each.charge.digest == entry.digest
        assert each.guarantee == release.guarantee
        assert each.guarantee.costs == entry.costs
        assert each.guarantee.epsilon == pytest.approx(budget["epsilon"], rel=1e-3)
        assert each.guarantee.delta in (0.0, budget["delta"])  # none where the law is pure


def numbers() -> dict[str, Any]:
    unit = dps.per_record()
    distinct, exact = dps.DistinctSketch(buckets=64, unit=unit), dps.DistinctSet(unit=unit)
    moment = dps.MomentSketch(p=0.5, size=200, unit=unit)
    for sketch in (distinct, exact, moment):
        sketch.update(range(500))
    pure = {"epsilon": 0.7, "delta": 0.0}
    return {
        "distinct": distinct.release(**pure),
        "bitmap": distinct.release_mergeable(epsilon=0.7),
        "exact": exact.release(**pure),
        "moment": moment.release(**pure),
    }


def test_a_number_is_told_as_it_is_asked() -> None:
    """At the confidence of the question, its ends in order, and over its picture what was promised."""
    for name, release in numbers().items():
        assert isinstance(release, NumberRelease), name
        for confidence in (0.5, 0.95, 0.99):
            told = release.answer([], confidence=confidence, estimator=None, key_type=None)
            assert (told.low[0], told.high[0]) == release.interval(confidence), name
            np.testing.assert_array_equal(told.value, [release.value])
            assert told.confidence == confidence
        assert (release.low, release.high) == release.interval(0.95), name
        assert release.low <= release.value <= release.high, name
        title = release.plot().axes[0].get_title(loc="left")
        assert title == f"ε = {release.guarantee.epsilon:.4g}, δ = {release.guarantee.delta:.3g}", name
