"""What is no budget is refused by every kind, in the same words and before anything is drawn or ended."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import BudgetExceeded, InvalidInput
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from sensitive import BUDGET, MERGING, ROWS, Row, everything

REFUSED = [
    ({"epsilon": 0, "delta": 1e-6}, "epsilon must be positive and finite"),
    ({"epsilon": -1.0, "delta": 0}, "epsilon must be positive and finite"),
    ({"epsilon": np.inf, "delta": 0}, "epsilon must be positive and finite"),
    ({"epsilon": np.nan, "delta": 0}, "not NaN"),
    ({"epsilon": 1.0, "delta": 1.0}, "delta must be at least 0 and below 1"),
    ({"epsilon": 1.0, "delta": -1e-6}, "delta must be at least 0 and below 1"),
    ({"epsilon": 1.0}, "say delta="),
    ({}, "needs a budget"),
    ({"rho": 0.0}, "rho must be positive"),
    ({"rho": 0.1, "epsilon": 1.0}, "not both"),
]


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_what_no_budget_pays_for_is_refused(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what a ledger has no budget for; nothing is drawn before."""
    sketch = row.filled(0)
    before = everything(sketch)
    for law in (RoundedGaussian, DiscreteLaplace):
        monkeypatch.setattr(law, "sample", lambda *_: pytest.fail("noise was drawn"))
    for budget, words in REFUSED:
        with pytest.raises(InvalidInput, match=words):
            sketch.release(**budget)
    ledger = dps.Ledger(tmp_path / "budget.db")
    ledger.create("web", epsilon=0.5, delta=1e-6, unit=sketch.spec.unit)
    with pytest.raises(BudgetExceeded):
        sketch.release(**BUDGET, ledger=ledger, dataset="web")
    assert everything(sketch) == before


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_a_large_delta_comes_with_a_warning(row: Row) -> None:
    """Wherever the promise has it: a kind that turns the budget into a pure ε has no δ to warn about."""
    for delta, large in ((0.1, True), (1e-6, False)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            released = row.filled(0).release(epsilon=1.0, delta=delta)
        first = released if hasattr(released, "guarantee") else released[0]
        warned = [str(each.message) for each in said if str(each.message).startswith("δ = ")]
        assert bool(warned) is (large and first.guarantee.delta > 0), warned


@pytest.mark.parametrize("kind", [dps.ContinualCountSketch, dps.PanPrivateCountSketch])
def test_it_is_refused_at_the_start_where_it_is_charged_there(kind: Any) -> None:
    days = {"days": 4} if kind is dps.ContinualCountSketch else {}
    for budget, words in REFUSED:
        with pytest.raises(InvalidInput, match=words):
            kind(rows=3, width=8, unit=dps.per_record(), key_type="int", **days, **budget)


def test_every_kind_is_tried() -> None:
    begun = {"continual", "continual histogram", "pan-private"}
    assert {row.name for row in ROWS} - {row.name for row in MERGING} == begun
