"""Later passes of a classifier by class sums: what a record may move, what it learns, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.accounting import gaussian_mu
from dpsketch.core.drawn import Drawn, Part, Receipt, release_document
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.laws.calibration import additive
from dpsketch.privacy import Budget
from dpsketch.sketches.density.class_spec import STEPS, EmbeddingMap
from dpsketch.sketches.density.class_sums import Corrections, residual_sums

RNG = np.random.default_rng(9)
DIM, CLASSES = 6, 4
LENGTH = 2.0**28


def vectors(n: int) -> tuple[np.ndarray, np.ndarray]:
    points = RNG.normal(size=(n, DIM))
    return points / np.linalg.norm(points, axis=1, keepdims=True), RNG.integers(0, CLASSES, n)


def model(**changes: Any) -> dps.DensityClassifier:
    return dps.DensityClassifier(**{"epsilon": 8.0, "delta": 1e-5, "classes": range(CLASSES), "passes": 3, **changes})


@pytest.mark.parametrize("public", [False, True])
def test_a_record_counts_alike_whatever_it_is_read_with(public: bool) -> None:
    points, codes = vectors(300)
    shape = EmbeddingMap.fitted(RNG.normal(size=(50, DIM)), DIM, 3) if public else EmbeddingMap(DIM)
    directions = RNG.normal(size=(CLASSES, shape.kept))
    alone = sum(residual_sums(shape, points[i : i + 1], codes[i : i + 1], directions) for i in range(300))
    assert np.array_equal(residual_sums(shape, points, codes, directions), alone)
    order = RNG.permutation(300)
    assert np.array_equal(residual_sums(shape, points[order], codes[order], directions), alone)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e30])
def test_no_record_moves_a_pass_further_than_is_paid_for(scale: float) -> None:
    """Directions may be anything that was released; a record that all of them put in another class moves it by 1."""
    points, codes = vectors(100)
    points = np.concatenate([points, 1e6 * points, np.zeros((1, DIM)), np.eye(DIM)])
    codes = np.concatenate([codes, codes, np.zeros(1 + DIM, np.int64)])
    shape = EmbeddingMap(DIM)
    directions = scale * np.vstack([-np.eye(DIM)[0], np.eye(DIM)[:3]])
    moved = [
        np.sum(residual_sums(shape, points[i : i + 1], codes[i : i + 1], directions).astype(object) ** 2)
        for i in range(len(points))
    ]
    assert max(moved) <= LENGTH**2
    assert scale == 0.0 or max(moved) > 0.99 * LENGTH**2


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_two_later_passes_have_the_noise_that_a_units_records_need(most: int, relation: str) -> None:
    """Of one record, which moves 2,560 numbers less than a fortieth of a deviation, what was released is noise.

    Their mean square is within five standard errors, 14%, of two draws' for m records of length 2²⁸ that may turn
    round, at a seventh of μ² each: a wrong alarm once in 10⁶ times. Half the noise has a quarter of it, a draw that is
    used for both passes twice of it, and the other relation or one record a user a quarter or less.
    """
    unit = dps.per_user(max_keys=most, neighbours=relation) if most > 1 else dps.per_record(neighbours=relation)
    given = {"epsilon": 0.1, "delta": 1e-5, "classes": range(40), "unit": unit, "passes": 3}
    point = np.eye(64)[:1]
    fitted = model(**given).fit(point, np.array([1]), ["one"] if most > 1 else None)
    length = most * (2 if relation == "replace" else 1) * LENGTH
    variance = 2 * 7 * (length / gaussian_mu(0.1, 1e-5)) ** 2
    drawn = fitted.sums_.corrections.astype(float)
    assert drawn.size == 2560
    assert np.mean(drawn**2) == pytest.approx(variance, rel=5 * math.sqrt(2 / drawn.size))


def test_a_later_pass_reads_the_records_of_a_user_that_count() -> None:
    """Five records of one user, of which two count: both passes have two, and the second the same ones."""
    points = np.eye(DIM)[:5]
    codes, users = np.array([1, 1, 1, 1, 1]), ["one"] * 5
    given = {"unit": dps.per_user(max_keys=2), "epsilon": None, "delta": None, "rho": 1e9, "passes": 2}
    sums = model(**given).fit(points, codes, users).sums_
    first, second = np.abs(sums.sums).sum(axis=0), np.abs(sums.corrections).sum(axis=0)
    assert np.sum(first > STEPS / 2) == 2
    assert np.array_equal(first > STEPS / 2, second > LENGTH / 400)  # ten deviations of its noise


def test_a_forged_file_of_sums_without_noise_is_refused(tmp_path: Path) -> None:
    """Its classes have no length to divide by; Gaussian noise shows at every budget, and passes have no other."""
    fitted = model(rho=1e9, epsilon=None, delta=None).fit(*vectors(60))
    assert fitted.sums_.deviation > 1e-6
    spec, budget = fitted.sums_.spec, Budget(1e300, 0.0)
    first, *later = laws = additive(budget, "add_remove", spec.shares())
    nothing = {"table": np.zeros((CLASSES, DIM), np.int64)}
    parts = {"sums": Part(first, nothing), "corrections": Part(Corrections(tuple(later), 0.16), nothing)}
    forged = Drawn.of(spec, [Receipt(budget, laws)], parts)
    files.write(tmp_path / "forged.dps", release_document("classes", spec, forged))
    with pytest.raises(FileRefused, match="without noise"):
        dps.DensityClassifier.load(tmp_path / "forged.dps")


def test_batches_with_more_passes_are_refused_before_anything_is_charged(tmp_path: Path) -> None:
    ledger = dps.Ledger(f"sqlite:///{tmp_path}/budget.db")
    ledger.create("texts", epsilon=8.0, delta=1e-5, unit=dps.per_record())
    changed = model(passes=1, ledger=ledger, dataset="texts")
    count = changed.partial_fit
    changed.set_params(passes=2)
    count(*vectors(30))
    with pytest.raises(InvalidInput, match="nothing was charged"):
        changed.release()
    assert ledger.spent("texts").releases == 0


def test_how_many_passes_pay_follows_from_public_facts() -> None:
    points, codes = vectors(30)
    for records, last in ((100, 2), (10**6, 9)):
        words = str(model(passes="auto", expected_records=records).fit(points, codes).guarantee_.mechanism)
        assert (f"pass {last}" in words, f"pass {last + 1}" in words) == (True, False)
    for changes in ({"passes": 33}, {"passes": "auto"}, {"delta": 0}, {"kernel": "angular", "bounds": (-1, 1)}):
        with pytest.raises(InvalidInput, match="passes"):
            model(**changes).fit(points, codes)
