"""The audit as a table: kinds by unit, relation and pair of neighbours, and the mistakes that it must find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpsketch.audit.findings import AuditRow, Finding, printed_promise
from dpsketch.audit.grid import GRID, KINDS, PAIRS
from dpsketch.audit.grouped import TABLES
from dpsketch.audit.laws import FLIPS
from dpsketch.audit.losses import (
    gaussian_bound,
    laplace_bound,
    noise_factors,
    seen_numbers,
)
from dpsketch.audit.names import FORMS, NAMED
from dpsketch.audit.table import ROWS
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, seeded_noise_for_tests_only
from dpsketch.privacy import per_record
from dpsketch.sketches.countsketch import CountSketch
from drawn import gaussian_epsilon

CONFIDENCE = 1 - 1e-6
TRIALS = 1200
# Names, answers and levels have laws of their own; so many releases show a fifth less noise, and what breaks them
# (tests/mutants/audited.txt). test_audit_power goes through all rows in the full suite.
BY_LAW = {
    "table-histogram-truncated-record-add": 400,
    "table-histogram-others-record-add": 400,
    "table-votes-loads-record-add": 400,
    "table-votes-gaussian-record-replace": 400,
    "table-quantiles-median-record-add": 900,
    "table-moment-1-total-record-add": 1000,
}


def by_pair(row: AuditRow, trials: int = TRIALS) -> dict[str, Finding]:
    return {found.name.rpartition("-")[2]: found for found in row.audit(trials, CONFIDENCE)}


def violated(row: AuditRow, trials: int = TRIALS) -> bool:
    return any(found.verdict == "violated" for found in row.audit(trials, CONFIDENCE))


def test_what_is_shipped_holds_and_a_fifth_less_noise_is_caught() -> None:
    """Wrong once in a million findings."""
    row = GRID["table-counts-gaussian-record-add"]
    found = by_pair(row)
    assert tuple(found) == (*PAIRS, "any")
    assert all(one.verdict == "holds" for one in found.values())
    assert found["worst"].audited_epsilon > 0.25 * found["worst"].claim.epsilon
    assert found["null"].audited_epsilon == 0  # a null is a record that counts for nothing
    assert by_pair(replace(row, noise=0.78), 2400)["worst"].verdict == "violated"


@pytest.mark.parametrize("name", BY_LAW)
def test_names_answers_and_levels_hold(name: str) -> None:
    """Wrong once in a million findings."""
    found = by_pair(ROWS[name], BY_LAW[name])
    assert all(one.verdict == "holds" for one in found.values())
    assert max(one.power for one in found.values()) >= 0.8
    if "null" in found and name.endswith("-add"):
        assert found["null"].audited_epsilon == 0


@pytest.mark.filterwarnings("ignore:δ = 0.0:UserWarning")
def test_a_fifth_less_noise_of_names_and_groups_is_caught() -> None:
    """Wrong once in a million findings."""
    table = next(iter(TABLES.values()))
    found = by_pair(table)
    assert all(one.verdict == "holds" for one in found.values())
    assert "alone" in found or found["worst"].audited_epsilon > 0.7 * found["worst"].claim.epsilon
    assert violated(replace(table, noise=0.78))
    assert violated(replace(ROWS["table-histogram-truncated-record-add"], noise=0.78), 400)


def test_every_kind_is_in_the_table() -> None:
    assert {grid.kind for grid in GRID.values()} == {
        "counts", "counts-rho", "shares", "shares-merged", "heavy", "ranges", "ranges-tables", "histogram-list",
        "continual", "continual-bands", "continual-recurrence", "continual-daily", "pan-private", "pan-private-after",
        "classifier", "classifier-centre", "classifier-sums", "classifier-parts", "classifier-passes",
        "density", "density-one-row", "density-waves", "density-vectors", "distinct", "distinct-set",
    }  # fmt: skip
    assert {row.subject for row in NAMED.values()} == set(FORMS)
    for begin in ("histogram-weighted", "histogram-rounds", "quantiles-quartiles", "moment-0.5", "moment-1-total"):
        assert sum(name.startswith(f"table-{begin}-") for name in ROWS) >= 2
    assert {row.subject for row in FLIPS.values()} == {"sparse", "bitmap"}
    assert {row.subject for row in TABLES.values()} == {"groups-gaussian", "groups-corners", "groups-names"}
    for level in ("record", "user"):
        for relation in ("add", "replace"):
            assert f"table-counts-gaussian-{level}-{relation}" in ROWS


@pytest.mark.parametrize("name", KINDS)
def test_every_pair_exists_or_says_why_not(name: str) -> None:
    kind = KINDS[name]
    assert not set(kind.pairs) & set(kind.absent)
    assert set(kind.pairs) | set(kind.absent) == set(PAIRS)
    assert (len(kind.units) == 4) != bool(kind.refused)


class TestBounds:
    """The bound is below the truth with its confidence, and near it."""

    rng = np.random.default_rng(5)

    def test_gaussian(self) -> None:
        """Of 300 bounds at 95%, at most 35 pass the true ε (rate below 1e-5), and none is far off."""
        moved = np.array([1.0, -2.0, 0.0, 0.0])
        true = gaussian_epsilon(np.sqrt(5) / 3, 0.01)
        found = []
        for _ in range(300):
            seen, shift = seen_numbers(3 * self.rng.normal(size=(2000, 4)), moved)
            found.append(gaussian_bound(seen, shift, 0.01, 0.95))
        assert sum(bound > true for bound in found) <= 35
        assert min(found) > 0.8 * true

    def test_factors(self) -> None:
        """Of 200 intervals at 95% a side, at most 40 miss the true factor (rate below 1e-5)."""
        law, missed = DiscreteLaplace(1.0, 4), 0
        for _ in range(200):
            draws = np.rint(self.rng.laplace(scale=4 * 0.9, size=(300, 6)))
            low, high = noise_factors(law, draws, 0.95)
            missed += not low <= 0.9 <= high
            assert high - low < 0.3
        assert missed <= 40
        assert noise_factors(law, np.zeros((50, 3)), 0.95) == (0.0, 0.0)
        shared = np.repeat(np.rint(self.rng.laplace(scale=4, size=(300, 1))), 2, axis=1)
        assert noise_factors(law, shared, 0.95)[1] < 0.1

    def test_a_number_that_is_shown_twice_with_the_same_noise(self) -> None:
        noise = self.rng.normal(size=(2000, 1)) * np.array([[5.0, 5.0]])
        seen, shift = seen_numbers(noise, np.array([1.0, 0.0]))
        assert gaussian_bound(seen, shift, 1e-6, CONFIDENCE) > 100
        assert laplace_bound(seen, shift, CONFIDENCE) > 10


def test_what_promises_nothing_cannot_be_audited() -> None:
    with seeded_noise_for_tests_only(1):
        release = CountSketch(rows=1, width=2, unit=per_record()).release(epsilon=1.0, delta=0)
    with pytest.raises(InvalidInput, match="promises nothing"):
        printed_promise(release.guarantee)
