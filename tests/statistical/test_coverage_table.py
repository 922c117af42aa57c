"""The table of coverage: every kind of interval in its quick form, with narrow twins; what it counts as covered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest

from benchmarks.coverage import stored
from benchmarks.coverage.cases import all_cases
from benchmarks.coverage.measuring import Answer, Case, measure
from dpsketch.sketches.density.functions import Features
from dpsketch.sketches.kinds import KINDS

# Cases that are quick and have many intervals a release, and of what part of their width too few hold.
CHOSEN = {
    ("CountSketch", "users of 5 keys, 5×1024", "δ = 0"): 0.7,
    ("PanPrivateCountSketch", "Zipf, 5×1024", "δ > 0"): 0.7,
    ("ContinualCountSketch", "flat, 7 days, 5×1024", "δ = 0"): 0.7,
    ("ContinualSketch", "Histogram, 7 days, public list", "δ > 0"): 0.7,
    ("SparseHistogram", "2,000 keys to 40, 20 expected", "δ = 0"): 0.7,
    ("SparseHistogram", "2,000 keys to 40, 2,000 expected", "δ = 0"): 0.7,
    ("Histogram", "Zipf, records, unknown keys", "δ > 0"): 0.7,
    ("Histogram", "1,000 users of 5 keys, public list", "δ = 0"): 0.7,
    ("VoteHistogram", "Zipf, records, 1,024 counters", "δ > 0"): 0.5,
    ("HeavyHitters", "Zipf, 250 keys, 5×512", "δ > 0"): 0.5,
    ("RangeSketch", "lognormal, 12 bits, 5×1,024", "δ > 0"): 0.7,
    ("RangeSketch", "ten spikes, 12 bits, 5×1,024", "δ = 0"): 0.7,
    ("DensitySketch", "a tight cluster, 64 rows", "δ = 0"): 0.5,
    ("DensitySketch", "two clusters, 300 rows", "δ > 0"): 0.5,
    ("DensitySketch", "two clusters, series", "δ = 0"): 0.7,
    ("SubsetHashing", "4,000 people, 4 keys each, ε = 2", "local"): 0.7,
    ("SetSizes", "4,000 people, ε = 2", "local"): 0.7,
    ("SVIM", "4,000 people, 4 keys each, ε = 4", "local"): 0.7,
    ("PrefixHeavyHitters", "4,000 people, ε = 4", "local"): 0.5,
}


@pytest.mark.parametrize("name", CHOSEN, ids=", ".join)
def test_the_quick_form_holds_and_would_notice_narrow_intervals(name: tuple[str, str, str]) -> None:
    """Every row stays above its limit, three standard errors below 95% (1e-3 a row by chance, and the seeds are fixed).
    Its twin: of intervals of a part of their width at least one row falls below."""
    (case,) = [case for _, _, case in all_cases() if (case.kind, case.setting, case.budget) == name]
    assert [row.answer for row in measure(case, quick=True) if row.short] == []
    assert any(row.short for row in measure(case, quick=True, shrink=CHOSEN[name]))


def test_every_kind_has_a_row_with_either_noise() -> None:
    cases = [case for _, _, case in all_cases()]
    budgets = {kind: {case.budget for case in cases if case.kind == kind} for kind in {case.kind for case in cases}}
    both = {kind for kind, found in budgets.items() if found == {"δ > 0", "δ = 0"}}
    # Names that nobody listed cannot be published without a δ.
    assert budgets["VoteHistogram"] == {"δ > 0"}
    assert both >= {
        "CountSketch", "HeavyHitters", "SparseHistogram", "Histogram", "RangeSketch", "QuantileSketch", "MomentSketch",
        "MomentProfile", "DistinctSketch", "DensitySketch", "PanPrivateCountSketch", "ContinualCountSketch",
        "ContinualSketch",
    }  # fmt: skip
    # Whatever is published day by day, and whatever a density is made of.
    daily = [kind.sensitive.__name__ for kind in KINDS.values() if kind.daily]
    streams = [case.setting.split(",")[0] for case in cases if case.kind == "ContinualSketch"]
    assert set(daily) - {"CountSketch", "Table"} == set(streams)  # there is no case of a table by the day yet
    assert len({stored.place(case) for case in cases}) == len(cases), "every case has a file of its own"
    featured = {case.setting.split(", ")[-1] for case in cases if case.kind == "DensitySketch"}
    assert set(get_args(Features)) - {"race"} <= featured


def fake(hits: float, joint: bool = False) -> Case:
    def trial(seed: int) -> Iterator[Answer]:
        truth = np.where(np.random.default_rng(seed).random(50) < hits, 0.0, 3.0)
        yield Answer("fake", truth, np.zeros(50), np.full(50, -1.0), np.full(50, 1.0), joint)

    return Case("Fake", "made up", "none", 400, trial)


def test_rows_count_what_is_covered() -> None:
    """20,000 draws: within 1% but for a chance of 1e-9. All intervals of a joint answer must hold, and a tie does."""
    (row,) = measure(fake(0.96))
    assert row.covered == pytest.approx(96, abs=1)
    assert (row.releases, row.intervals, row.short, row.limit) == (400, 20_000, False, 94)
    assert measure(fake(0.9))[0].short
    (joint,) = measure(fake(0.98, joint=True))
    assert joint.covered == pytest.approx(100 * 0.98**50, abs=12)
    assert joint.short

    def trial(seed: int) -> Iterator[Answer]:
        yield Answer("tie", [[1, 5], [1, 9]], [3, 3], [1, 1], [6, 6])

    assert measure(Case("Fake", "tie", "none", 1, trial))[0].covered == 50
