"""Sums and differences of releases: what they promise, and that a release is in one once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused, ReleaseRefused
from ledgers import begun

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def counts(**options: Any) -> dps.CountSketch:
    return dps.CountSketch(**{"rows": 5, "width": 64, "unit": dps.per_record(), **options})


def test_what_releases_were_made_under_holds_for_their_sum() -> None:
    unit = dps.per_user(max_keys=2)
    sketch = counts(unit=unit)
    sketch.update(["tea"], users=["ann"], disjoint_users=True)
    stated = sketch.release(**BUDGET)
    plain = counts(unit=unit, key_type="text").release(**BUDGET)
    other = counts(unit=unit, key_type="text").release(**BUDGET)
    for combined in (stated + plain, plain - stated, (plain + other) + stated):
        assert combined.guarantee.holds
        assert "not checked" in str(combined.guarantee)
        assert str(combined.guarantee).count("may be in both") == 1
    assert "not checked" not in str((plain + other).guarantee)


def test_a_release_is_in_a_sum_once(tmp_path: Path) -> None:
    """Added to itself its noise adds up to 2σ, and the sum would state √2·σ; subtracted, it leaves nothing."""
    first, second, third = (counts(key_type="text").release(**BUDGET) for _ in range(3))
    first.save(tmp_path / "first.dps")
    (first - second).save(tmp_path / "change.dps")
    same, change = dps.load(tmp_path / "first.dps"), dps.load(tmp_path / "change.dps")
    for combine in (
        lambda: first + first,
        lambda: first - first,
        lambda: first + same,
        lambda: (first + second) + first,
        lambda: (third + same) - first,
        lambda: change + second,
        lambda: (first + second) + (second + third),
    ):
        with pytest.raises(ReleaseRefused, match="one release is in both"):
            combine()
    assert (first + second + third).noise_scale == pytest.approx(3**0.5 * first.noise_scale)
    assert (change + third).noise_scale == pytest.approx(3**0.5 * first.noise_scale)


def test_each_stream_of_a_sum_is_paid_for_once() -> None:
    """Answers of one stream share its cost; another stream of the same law, budget and spec has its own."""

    def stream() -> dps.ContinualSketch:
        return dps.ContinualCountSketch(rows=3, width=8, days=3, unit=dps.per_record(), key_type="int", **BUDGET)

    one, other = stream(), stream()
    first, second = one.day([1]), one.day([2])
    (cost,) = first.guarantee.costs
    assert (second - first).guarantee.costs == (cost,)
    another = other.day([3])
    assert (first + another).guarantee.costs == (cost, cost)
    assert (first + (second + another)).guarantee.costs == (cost, cost)
    assert ((second + another) - first).guarantee.costs == (cost, cost)


def test_a_sum_that_was_paid_for_once_is_refused(tmp_path: Path) -> None:
    """Two releases of one spec and budget have equal laws: a file of their sum has to show two receipts."""
    first, second = (counts(key_type="text").release(**BUDGET) for _ in range(2))
    document = (first + second).to_document()
    document.header["receipts"].pop()
    document.header["guarantee"] = first.to_document().header["guarantee"]
    files.write(tmp_path / "sum.dps", document)
    with pytest.raises(FileRefused):
        dps.load(tmp_path / "sum.dps")


def test_two_releases_that_came_out_alike_are_two(tmp_path: Path) -> None:
    """Of a single counter two draws are equal now and then; charges tell them apart."""
    ledger = begun(tmp_path / "budget.db")
    made = [
        dps.CountSketch(rows=1, width=2, unit=dps.per_record(), key_type="text").release(
            epsilon=60.0, delta=0, ledger=ledger, dataset="web"
        )
        for _ in range(2)
    ]
    assert made[0].table.tolist() == made[1].table.tolist()
    assert (made[0] + made[1]).noise_scale > made[0].noise_scale
