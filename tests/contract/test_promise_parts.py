"""What is drawn in several pieces, held to what is promised: shares, classes and their centre, one row a record.

As in ``test_promise``: what was published, less the exact tables, is the noise. It has the stated law and spread, no
draw goes with another one, and under the stated laws one unit moves no more than the promise allows. The twins of these
tests, which show their power, are mutants (``tests/mutants/releases.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting
from drawn import Gaussian, Laplace, Law, dependence, law_of, placed, problems
from sensitive import unit_of

DELTA = 1e-6
SHAPE = {"rows": 3, "width": 8, "key_type": "int"}
ROOM = 1 + 1e-9
RELATIONS = ["add_remove", "replace"]
RUNS = 400
pytestmark = pytest.mark.statistical
Arrays = dict[str, np.ndarray]


def _exact(keys: list[int], unit: dps.Unit, **users: Any) -> np.ndarray:
    """The table of keys, from a release with so large a budget that nothing is added."""
    sketch = dps.CountSketch(unit=unit, **SHAPE)
    sketch.update(keys, **users)
    return sketch.release(rho=1e9).table


def _stacked(run: Callable[[], Arrays], runs: int) -> Arrays:
    found = [run() for _ in range(runs)]
    return {part: np.stack([one[part].ravel() for one in found]) for part in found[0]}


def _moved(unit: dps.Unit) -> np.ndarray:
    """How one record at its worst moves a table: key 66 has the cells of key 7 with other signs, but for a few."""
    moved = _exact([7], unit)
    return moved if unit.neighbours == "add_remove" else moved - _exact([66], unit)


def _share(moved: np.ndarray, law: Law, budget: dict[str, float]) -> float:
    """The share of a budget that a table which moves so far takes under a law."""
    if isinstance(law, Gaussian):
        return float(np.sum(moved**2)) / law.sigma**2 / accounting.gaussian_mu(**budget) ** 2
    assert isinstance(law, Laplace)
    return float(np.sum(np.abs(moved))) / law.scale / budget["epsilon"]


@pytest.mark.parametrize("level", ["record", "user"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_shares_of_several_parties(level: str, relation: Any) -> None:
    """False-positive rate below 1e-7: each party draws for itself, and those who are honest add up to the promise."""
    user, unit = level == "user", unit_of(level, relation)
    parties, honest, budget = 4, 2, {"epsilon": 1.0, "delta": DELTA}
    sketches = [dps.CountSketch(unit=unit, **SHAPE) for _ in range(parties)]
    for party, sketch in enumerate(sketches):
        sketch.update([party, 1, 2], **({"users": [f"{party} {i}" for i in range(3)]} if user else {}))
    tables = [sketch.release(rho=1e9).table for sketch in sketches]
    laws: dict[str, Law] = {}
    finer = 0

    def run() -> Arrays:
        nonlocal finer
        found = {}
        for party, sketch in enumerate(sketches):
            release = sketch.release(**budget, share=dps.Share(parties, honest / parties, party))
            finer = round(release.spec.grid / release.step)
            laws[f"party {party}"] = law_of(*release.noise)
            found[f"party {party}"] = release.table - finer * tables[party]
        return found

    assert problems(_stacked(run, 60), laws) == []
    # Of a user who is replaced by another, the same cells with opposite signs.
    worst = _exact([7, 8], unit, users=["ann", "ann"]) * (2 if relation == "replace" else 1) if user else _moved(unit)
    law = laws["party 0"]
    assert isinstance(law, Gaussian)
    assert 0.3 < _share(worst * finer, Gaussian(math.sqrt(honest) * law.sigma), budget) < ROOM


@pytest.mark.parametrize("delta", [DELTA, 0.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_classifier_and_its_private_centre(relation: Any, delta: float) -> None:
    """False-positive rate below 1e-7. The centre is a noisy mean; where it is 0, n·2¹⁰ times it is the noise alone.

    Of the share of a private centre, 0.3, one record in a corner takes its four sums of 2¹⁰ steps and the weighted
    count, which is as much as one of them.
    """
    budget, records = {"epsilon": 1.0, "delta": delta}, 2000
    rng = np.random.default_rng(4)
    scaled = rng.uniform(-0.2, 0.2, (records, 4))
    scaled[:, 0] += 0.6
    scaled[:, 1:] -= scaled[:, 1:].mean(axis=0)
    labels = np.where(scaled[:, 0] > 0.6, "a", "b")
    rounded = np.rint(1024 * scaled).astype(np.int64).sum(axis=0)
    shape: dict[str, Any] = {"bounds": (-1, 1), "classes": ["a", "b"], "rows": 2, "power": 2, "centre_share": 0.3}
    laws: dict[str, Law] = {}

    def run() -> Arrays:
        model = dps.DensityClassifier(**budget, **shape, unit=unit_of("record", relation)).fit(scaled, labels)
        found = {"centre": np.rint(model.centre_[1:] * 1024 * records - rounded[1:])}
        for name, density in zip("ab", model.densities_, strict=True):
            exact = dps.DensitySketch.from_spec(density.spec)
            exact.update(scaled[labels == name] - model.centre_)
            laws[name] = law_of(density.noise)
            found[name] = density.table - exact.release(rho=1e9, count_share=0.0).table
        return found

    noise = _stacked(run, 300)
    times = 2 if relation == "replace" else 1
    if delta:
        mu = accounting.gaussian_mu(**budget) * math.sqrt(0.3)
        laws["centre"] = Gaussian(times * 1024 * math.sqrt(5) / mu)
    else:
        laws["centre"] = Laplace(times * 1024 * 5 / 0.3)
    # Dividing by the noisy number of records, and drawing the mean in, change the centre's noise by about a hundredth.
    assert problems(noise, laws) == []
    # The rest of the budget is for the tables: one cell of either row, and another one for a record that is replaced.
    rest = math.sqrt(0.7) if delta else 0.7
    assert 0.99 < _share(np.ones(2 * times) / rest, laws["a"], budget) < ROOM


@pytest.mark.parametrize(("level", "relation"), [("record", "add_remove"), ("user", "replace")])
def test_one_row_is_drawn_for_every_record(level: str, relation: Any) -> None:
    """False-positive rate below 1e-7: no record's row follows from its place or from another's, and the noise is whole.

    Three points a sketch, of one user or of three; the row of each is read off an exact release. The rows of points
    that come at the same place in different sketches must be as free as those of neighbours in one sketch.
    """
    user, rows, budget = level == "user", 4, {"epsilon": 1.0, "delta": 0.0}
    unit = unit_of(level, relation, keys=3)
    kernel = dps.kernels.Euclidean(dim=1, bandwidth=1.0)
    points = [[0.0], [100.0], [2000.0]]
    laws: dict[str, Law] = {}

    def start() -> dps.DensitySketch:
        return dps.DensitySketch(kernel=kernel, rows=rows, width=64, unit=unit, placement="one_row")

    def run() -> Arrays:
        sketch, found = start(), {}
        filled = np.zeros((rows, 64))
        for point, name in enumerate("abc"):
            sketch.update([points[point]], **({"users": [name]} if user else {}))
            table = sketch.release(epsilon=1e5, delta=0.0, count_share=0.0).table
            found[f"point {name}"] = 2 * np.argmax((table - filled).sum(axis=1), keepdims=True) / (rows - 1) - 1
            filled = table
        release = sketch.release(**budget, count_share=0.0)
        laws["table"] = law_of(release.noise)
        found["table"] = (release.table - filled)[:, ::8]
        return found

    found = _stacked(run, RUNS)
    noise = {"table": found.pop("table")}
    assert problems(noise, laws) == []
    assert dependence({**found, "table": placed(noise["table"], laws["table"])}) == []
    for drawn in found.values():
        counts = np.unique(np.rint(drawn * 10), return_counts=True)[1]
        # A row is drawn 100 times of 400, ± 8.7.
        assert len(counts) == rows
        assert np.all(np.abs(counts - RUNS / rows) < 6.5 * math.sqrt(RUNS * 3 / 16))
    moved = (3 if user else 1) * (2 if relation == "replace" else 1)
    assert 0.99 < _share(np.ones(moved), laws["table"], budget) < ROOM


def test_rows_of_one_batch_are_drawn_one_by_one() -> None:
    """False-positive rate below 1e-8: two records of one update share their row in one case of four."""
    kernel = dps.kernels.Euclidean(dim=1, bandwidth=1.0)
    together = 0
    for _ in range(RUNS):
        sketch = dps.DensitySketch(kernel=kernel, rows=4, width=64, unit=dps.per_record(), placement="one_row")
        sketch.update([[0.0], [100.0]])
        rows = sketch.release(epsilon=1e5, delta=0.0, count_share=0.0).table.sum(axis=1)
        together += int(rows.max() == 2)
    assert abs(together - RUNS / 4) < 6 * math.sqrt(RUNS * 3 / 16)
