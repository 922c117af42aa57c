"""Sums and differences of releases: what they promise, and that a release is in one once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch.errors import ReleaseRefused
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
