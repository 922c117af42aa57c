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


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_the_promise_and_the_payment_are_those_of_the_ledger(row: Row, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db")
    unit = USER if row.name.endswith("user") else RECORD
    ledger.create("data", epsilon=10, delta=1e-5, unit=unit)
    # A small ε: a promise that is restated stands out.
    budget = {"epsilon": 0.7, "delta": 0.0 if row.name.startswith("moment") else 1e-6}
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


ONE = dps.per_record()
PURE = {"epsilon": 0.7, "delta": 0.0}


def numbers() -> list[Any]:
    distinct, exact = dps.DistinctSketch(buckets=64, unit=ONE), dps.DistinctSet(unit=ONE)
    moment = dps.MomentSketch(p=0.5, size=200, unit=ONE)
    for sketch in (distinct, exact, moment):
        sketch.update(range(500))
    return [distinct.release_mergeable(epsilon=0.7), *(each.release(**PURE) for each in (distinct, exact, moment))]


def test_a_number_is_told_as_it_is_asked() -> None:
    """At the confidence of the question, its ends in order, and over its picture what was promised."""
    for release in numbers():
        assert isinstance(release, NumberRelease)
        for confidence in (0.5, 0.95, 0.99):
            told = release.answer([], confidence=confidence, estimator=None, key_type=None)
            assert (told.low[0], told.high[0]) == release.interval(confidence)
            np.testing.assert_array_equal(told.value, [release.value])
            assert told.confidence == confidence
        assert (release.low, release.high) == release.interval(0.95)
        assert release.low <= release.value <= release.high
        title = release.plot().axes[0].get_title(loc="left")
        promise = f"ε = {release.guarantee.epsilon:.4g}, δ = {release.guarantee.delta:.3g}"
        assert title == f"{promise}\nCounted: {release.counts}"


def test_an_interval_at_almost_all_confidence_is_wide_and_a_number() -> None:
    """At the largest confidence below 1: half of what is left over is no longer seen beside 1."""
    kernel, keys = dps.kernels.Euclidean(dim=1, bandwidth=2.0), np.arange(64)
    counts, ranges = dps.CountSketch(rows=3, width=64, unit=ONE), dps.RangeSketch(bits=6, unit=ONE)
    density = dps.DensitySketch(kernel=kernel, rows=50, width=32, unit=ONE)
    for sketch, records in ((counts, keys), (ranges, keys), (density, keys[:, None].astype(float))):
        sketch.update(records)
    told, spread, near = (sketch.release(**PURE) for sketch in (counts, ranges, density))
    intervals = [release.interval for release in numbers()] + [
        lambda confidence: told.estimate(keys, confidence=confidence),
        lambda confidence: told.decode(keys, confidence=confidence),
        lambda confidence: spread.range(3, 40, confidence=confidence),
        lambda confidence: near.estimate(np.array([[3.0]]), confidence=confidence),
    ]
    for interval in intervals:
        wide, usual = interval(1 - 2**-53), interval(0.95)
        ends, inner = (each if isinstance(each, tuple) else (each.low, each.high) for each in (wide, usual))
        assert not np.isnan(ends).any()
        assert (np.array(ends[0]) <= np.array(inner[0])).all()
        assert (np.array(ends[1]) >= np.array(inner[1])).all()
