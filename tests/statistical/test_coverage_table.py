"""The table of coverage: what it counts as covered, that it would notice narrow intervals, and what it writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from benchmarks.coverage import page, stored
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


def test_the_page_keeps_what_is_written_by_hand_and_marks_rows_older_than_the_code(tmp_path: Path) -> None:
    copy = tmp_path / "coverage.md"
    copy.write_text(page.PAGE.read_text())
    rows = measure(fake(0.9))
    page.write({"one": stored.Result(rows, True, "2026-11-15")}, copy)
    once = copy.read_text()
    page.write({"one": stored.Result(rows, True, "2026-11-15")}, copy)
    assert copy.read_text() == once
    assert "| Fake | fake | made up | none | 95 | **" in once
    assert once.startswith(page.PAGE.read_text().split(page.BEGIN)[0])
    assert "Measured 2026-11-15." in once
    older = stored.Result(rows, False, "2026-11-16")
    page.write({"one": stored.Result(rows, True, "2026-11-15"), "two": older, "three": None}, copy)
    assert "| Fake | fake ° |" in copy.read_text()
    assert "1 rows, marked °, are older than the code" in copy.read_text()
    assert "Not measured yet: *three*." in copy.read_text()


def test_a_stored_result_is_read_back_and_is_of_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come back as they were; the result is no longer current once a module that ran does something else."""
    case = next(case for _, _, case in all_cases("DistinctSketch"))
    assert stored.result_of(case, tmp_path) is None
    rows, functions = measure(case, quick=True), stored.functions_of(case)
    stored.keep(case, rows, functions, tmp_path)
    today = stored.result_of(case, tmp_path).measured
    assert stored.result_of(case, tmp_path) == stored.Result(rows, True, today)
    written = stored.place(case, tmp_path).read_text()
    stored.place(case, tmp_path).write_text(written.replace('"releases": 2000', '"releases": 20', 1))
    assert stored.result_of(case, tmp_path) == stored.Result(rows, False, today)
    stored.keep(case, rows, functions, tmp_path)
    monkeypatch.setattr(stored, "_meaning", str)
    assert stored.result_of(case, tmp_path) == stored.Result(rows, False, today)
