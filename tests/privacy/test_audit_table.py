"""The audit as a table: kinds by unit, relation and pair of neighbours, and the mistakes that it must find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpsketch.audit.findings import AuditRow, Finding, printed_promise
from dpsketch.audit.grid import GRID, KINDS, PAIRS
from dpsketch.audit.grouped import TABLES
from dpsketch.audit.laws import FLIPS
from dpsketch.audit.losses import (
    epsilon_of,
    gaussian_bound,
    laplace_bound,
    noise_factors,
    seen_numbers,
    thresholded,
)
from dpsketch.audit.names import FORMS, NAMED
from dpsketch.audit.table import ROWS
from dpsketch.core.move import Distance, Move
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.privacy import per_record
from dpsketch.sketches.countsketch import CountSketch
from drawn import gaussian_epsilon

CONFIDENCE = 1 - 1e-6
TRIALS = 1200
# Where a pair moves all that the bound allows, a fifth less noise is seen.
TIGHT = ["table-counts-gaussian-record-add", "table-counts-laplace-record-replace", "table-ranges-laplace-user-add"]
# The kinds whose names, answers or levels have a law of their own; so many releases show a fifth less noise.
BY_LAW = {
    "table-histogram-truncated-record-add": 400,
    "table-histogram-gaussian-record-add": 400,
    "table-histogram-others-record-add": 400,
    "table-histogram-laplace-user-replace": 400,
    "table-votes-loads-record-add": 400,
    "table-votes-gaussian-record-replace": 400,
    "table-survivors-record-add": 400,
    "table-survivors-user-replace": 400,
    "table-histogram-rounds-user-add": 300,
    "table-quantiles-median-record-add": 900,
    "table-moment-1-total-record-add": 1000,
    "table-histogram-list-laplace-user-add": 900,
    "table-density-one-row-laplace-user-add": 900,
}
# These show that the audit itself sees what breaks them (tests/mutants/audited.py).
QUICK = [
    "table-histogram-truncated-record-add",
    "table-histogram-others-record-add", "table-votes-loads-record-add", "table-votes-gaussian-record-replace",
    "table-quantiles-median-record-add", "table-moment-1-total-record-add",
]  # fmt: skip
ROWS_BY_LAW = [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in BY_LAW]


def full_but_first(names: Iterable[str]) -> list[Any]:
    first, *others = names
    return [first, *(pytest.param(name, marks=pytest.mark.full) for name in others)]


def by_pair(row: AuditRow, trials: int = TRIALS) -> dict[str, Finding]:
    return {found.name.rpartition("-")[2]: found for found in row.audit(trials, CONFIDENCE)}


def violated(row: AuditRow, trials: int = TRIALS) -> bool:
    return any(found.verdict == "violated" for found in row.audit(trials, CONFIDENCE))


@pytest.mark.parametrize("name", full_but_first(TIGHT))
def test_what_is_shipped_holds(name: str) -> None:
    """Wrong once in a million findings."""
    found = by_pair(GRID[name])
    assert tuple(found) == (*PAIRS, "any")
    assert all(one.verdict == "holds" for one in found.values())
    assert found["worst"].audited_epsilon > 0.25 * found["worst"].claim.epsilon
    if name.endswith("-add"):
        assert found["null"].audited_epsilon == 0  # a null is a record that counts for nothing


@pytest.mark.parametrize("name", full_but_first(TIGHT))
def test_a_fifth_less_noise_is_caught(name: str) -> None:
    assert by_pair(replace(GRID[name], noise=0.78), 2400)["worst"].verdict == "violated"


@pytest.mark.parametrize("name", ROWS_BY_LAW)
def test_names_answers_and_levels_hold(name: str) -> None:
    """Wrong once in a million findings."""
    found = by_pair(ROWS[name], BY_LAW[name])
    assert all(one.verdict == "holds" for one in found.values())
    assert max(one.power for one in found.values()) >= 0.8
    if "null" in found and name.endswith("-add"):
        assert found["null"].audited_epsilon == 0


@pytest.mark.parametrize("name", full_but_first(QUICK))
def test_a_fifth_less_noise_of_names_answers_and_levels_is_caught(name: str) -> None:
    assert violated(replace(ROWS[name], noise=0.78), BY_LAW[name])


@pytest.mark.filterwarnings("ignore:δ = 0.0:UserWarning")
@pytest.mark.parametrize("name", full_but_first(TABLES))
def test_tables_of_groups_hold_and_a_fifth_less_noise_is_caught(name: str) -> None:
    """Wrong once in a million findings. Of a name that shows, eight times its odds are caught."""
    found = by_pair(TABLES[name], 1200)
    assert all(one.verdict == "holds" for one in found.values())
    assert "alone" in found or found["worst"].audited_epsilon > 0.7 * found["worst"].claim.epsilon
    assert violated(replace(TABLES[name], noise=0.78), 1200)


@pytest.mark.full
def test_a_private_centre_holds() -> None:
    """Wrong once in a million findings; half of the noise is caught."""
    assert not violated(ROWS["table-classifier-centre-gaussian-record-add"], 300)
    assert violated(replace(ROWS["table-classifier-centre-gaussian-record-add"], noise=0.5), 300)


@pytest.mark.full
@pytest.mark.parametrize("unit", ["record", "user"])
@pytest.mark.parametrize("kind", ["parts", "passes"])
def test_all_parts_of_a_classifier_hold_together(kind: str, unit: str) -> None:
    """Wrong once in a million findings. A third less noise shows."""
    row = ROWS[f"table-classifier-{kind}-gaussian-{unit}-add"]
    found = by_pair(row, 300)
    assert all(one.verdict == "holds" for one in found.values())
    assert found["worst"].audited_epsilon > 0.5 * found["worst"].claim.epsilon
    assert violated(replace(row, noise=0.7), 300)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in FLIPS if "user" in name])
def test_flipped_bits_hold(name: str) -> None:
    """Wrong once in a million findings."""
    found = by_pair(FLIPS[name], 600)
    assert all(one.verdict == "holds" for one in found.values())
    assert found["worst"].audited_epsilon > 0.1 * found["worst"].claim.epsilon
    assert found["null"].audited_epsilon == 0


def test_every_kind_is_in_the_table() -> None:
    kinds = {"counts", "shares", "continual", "pan-private", "heavy", "ranges", "density", "distinct", "classifier"}
    kinds |= {"distinct-set"}
    more = {"ranges-tables", "classifier-centre", "classifier-sums", "density-one-row", "histogram-list"}
    more |= {"density-waves", "density-vectors", "classifier-parts", "classifier-passes"}
    forms = {"counts-rho", "shares-merged", "pan-private-after"}
    designs = {"continual-bands", "continual-recurrence", "continual-daily"}
    assert {grid.kind for grid in GRID.values()} == kinds | more | forms | designs
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


class TestMistakes:
    """Each was in the library once, on purpose, and must be found by the table."""

    def test_replace_taken_for_add(self, monkeypatch: pytest.MonkeyPatch) -> None:
        between = Move.between

        def added(move: Move, neighbours: str, *, one_cell: bool = False) -> Distance:
            return between(move, "add_remove", one_cell=one_cell)

        monkeypatch.setattr(Move, "between", added)
        assert violated(GRID["table-counts-gaussian-record-replace"])
        assert not violated(GRID["table-counts-gaussian-record-add"])


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

    def test_exact_losses(self) -> None:
        """Two counts with noise: the definition of the Laplace law, and the closed form of the Gaussian one."""
        laplace, gaussian = DiscreteLaplace(2.0, 4), RoundedGaussian(6.0)
        assert epsilon_of([thresholded(laplace, 1.0, 1, (500, 504))], 0.0) == pytest.approx(2.0, abs=2e-3)
        assert epsilon_of([thresholded(laplace, 1.0, 1, (500, 504))] * 2, 0.0) == pytest.approx(4.0, abs=4e-3)
        parts = [thresholded(gaussian, 1.0, 1, (500, 503))] * 2
        assert epsilon_of(parts, 1e-4) == pytest.approx(gaussian_epsilon(np.sqrt(2) / 2, 1e-4), rel=0.01)
        # A key that one record brings to light: δ covers it, or no ε does.
        shown = thresholded(laplace, 1.0, 9, (4, 0))
        assert float(shown[0][1:].sum()) == pytest.approx(np.exp(-0.5 * 5) / (1 + np.exp(-0.5)))
        assert epsilon_of([shown], 0.06) == 0
        assert epsilon_of([shown], 0.05) == np.inf

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
