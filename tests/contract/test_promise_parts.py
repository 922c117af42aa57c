"""What is drawn in several pieces, held to what is promised: days, shares, state and publication, classes, one row.

As in ``test_promise``: what was published, less the exact tables, is the noise. It has the stated law and spread, no
draw goes with another one, and one unit moves no more than the promise allows. Everything is taken from what is public.
The twins of these tests, which show their power, are mutants (``tests/mutants/releases.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting
from dpsketch.noise import RoundedGaussian
from drawn import Gaussian, Laplace, Law, dependence, law_of, placed, problems

DELTA = 1e-6
SHAPE = {"rows": 3, "width": 8, "key_type": "int"}
# A variance from 600 × 24 draws falls below 1/1.1 of the truth with a probability below 1e-10.
RUNS, ROOM = 600, 1.1

RELATIONS = ["add_remove", "replace"]
Arrays = dict[str, np.ndarray]


def _exact(keys: list[int], unit: dps.Unit, **users: Any) -> np.ndarray:
    """The table of keys, from a release with so large a budget that nothing is added."""
    sketch = dps.CountSketch(unit=unit, **SHAPE)
    sketch.update(keys, **users)
    return sketch.release(rho=1e9).table


def _stacked(run: Callable[[], Arrays], runs: int = RUNS) -> Arrays:
    found = [run() for _ in range(runs)]
    return {part: np.stack([one[part].ravel() for one in found]) for part in found[0]}


def _opposite(key: int, unit: dps.Unit) -> int:
    """A key that, put in the place of another, moves the table farthest."""
    base = _exact([key], unit)
    return max(range(200), key=lambda other: float(np.sum((_exact([other], unit) - base) ** 2)))


def _moved(unit: dps.Unit) -> np.ndarray:
    """How one record at its worst moves a table."""
    if unit.neighbours == "add_remove":
        return _exact([7], unit)
    return _exact([7], unit) - _exact([_opposite(7, unit)], unit)


def _affordable(moved: dict[str, np.ndarray], noise: Arrays, budget: dict[str, float]) -> None:
    """One unit that moves these parts takes no more than the budget, by the noise that was seen; and not far less."""
    if budget["delta"]:
        square = sum(float(np.sum(table**2)) / float(np.mean(noise[part] ** 2)) for part, table in moved.items())
        share = square / accounting.gaussian_mu(**budget) ** 2
    else:
        scales = {part: math.sqrt((float(np.mean(noise[part] ** 2)) + 1 / 6) / 2) for part in moved}
        share = sum(float(np.sum(np.abs(table))) / scales[part] for part, table in moved.items()) / budget["epsilon"]
    assert 0.6 < share < ROOM


def _published(design: Any, tables: list[np.ndarray]) -> Arrays:
    """What a design publishes of some days before noise, by number."""
    state = np.zeros((design.buffers, *tables[0].shape), np.int64)
    found = [each for day, table in enumerate(tables, 1) for _, each in design.step(state, table.astype(int), day)]
    return {str(i): each for i, each in enumerate(found)}


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("design", "delta"),
    [
        ("tree", DELTA),
        ("tree", 0.0),
        ("recurrence", DELTA),
        ("banded", DELTA),
        ("daily", 0.0),
    ],
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_publication_of_every_day(relation: Any, design: Any, delta: float) -> None:
    """False-positive rate below 1e-7: each is drawn for itself, at noise for all of them that a record is in."""
    unit, budget = dps.per_record(neighbours=relation), {"epsilon": 1.0, "delta": delta}
    tables = [_exact(keys, unit) for keys in ([1, 2], [3], [], [4, 4, 5])]
    laws: dict[str, Law] = {}
    made = dps.ContinualCountSketch(days=4, unit=unit, design=design, **SHAPE, **budget).design
    exact = _published(made, tables)

    def run() -> Arrays:
        sketch = dps.ContinualCountSketch(days=4, unit=unit, design=design, **SHAPE, **budget)
        for keys in ([1, 2], [3], [], [4, 4, 5]):
            total = sketch.day(keys)
        (stretch,) = total.stretches
        laws.update(dict.fromkeys(exact, law_of(stretch.law)))
        return {name: table - exact[name] for name, table in zip(exact, sketch.published, strict=True)}

    noise = _stacked(run, 400)
    assert problems(noise, laws) == []

    def moved(*changes: tuple[int, np.ndarray]) -> Arrays:
        days = [table.copy() for table in tables]
        for day, change in changes:
            days[day] = days[day] + change
        return {name: table - exact[name] for name, table in _published(made, days).items()}

    one, other = _exact([7], unit), _exact([_opposite(7, unit)], unit)
    if relation == "add_remove":
        _affordable(moved((0, one)), noise, budget)
        return
    # A record of the second day that is replaced may be on another day as well.
    for changes in (((1, one - other),), ((1, one), (2, -other))):
        share = sum(np.sum(table**2) / np.mean(noise[name] ** 2) for name, table in moved(*changes).items())
        if delta:
            assert share / accounting.gaussian_mu(**budget) ** 2 < ROOM


@pytest.mark.statistical
@pytest.mark.parametrize("delta", [DELTA, 0.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_seized_state_and_the_publication(relation: Any, delta: float) -> None:
    """False-positive rate below 1e-7: the two are drawn apart, and either alone hides a record."""
    unit, budget = dps.per_record(neighbours=relation), {"epsilon": 1.0, "delta": delta}
    before, after = _exact([1, 2], unit), _exact([3, 3], unit)
    laws: dict[str, Law] = {}

    def run() -> Arrays:
        sketch = dps.PanPrivateCountSketch(unit=unit, **SHAPE, **budget)
        sketch.update([1, 2])
        seized = sketch.snapshot()
        sketch.update([3, 3])
        release = sketch.publish()
        (stretch,) = release.stretches
        laws["state"] = laws["publication"] = law_of(stretch.law)
        assert stretch.draws == 2
        return {"state": seized - before, "publication": sketch.published[0] - seized - after}

    noise = _stacked(run)
    assert problems(noise, laws) == []
    for part in laws:
        _affordable({part: _moved(unit)}, noise, budget)


@pytest.mark.statistical
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_seized_state_and_the_publications_of_a_stream(relation: Any) -> None:
    """False-positive rate below 1e-7: seized on the second day, all that is seen is drawn apart, and hides a record."""
    unit, budget = dps.per_record(neighbours=relation), {"epsilon": 1.0, "delta": DELTA}
    tables = [_exact(keys, unit) for keys in ([1, 2], [3], [4, 4, 5])]
    bands = dps.ContinualCountSketch(days=3, unit=unit, design="pan-private", **SHAPE, **budget).design.bands
    laws: dict[str, Law] = {}

    def run() -> Arrays:
        sketch = dps.ContinualCountSketch(days=3, unit=unit, design="pan-private", **SHAPE, **budget)
        sketch.day([1, 2])
        sketch.update([3])
        seized = sketch.snapshot()
        sketch.publish_day()
        total = sketch.day([4, 4, 5])
        (stretch,) = total.stretches
        drawn = law_of(stretch.law)
        twice = RoundedGaussian(math.sqrt(stretch.draws * stretch.law.variance - 1 / 12))
        laws.update({"first": law_of(twice)}, second=drawn, third=drawn)
        laws.update({f"state {i}": drawn for i in range(len(bands))})
        found = {"first": sketch.published[0] - bands[0] * tables[0]}
        for i, sums in enumerate(seized):  # for the second day, the third, and one after the last
            earlier = bands[i + 1] * tables[0] if i + 1 < len(bands) else 0
            found[f"state {i}"] = sums - earlier - bands[i] * tables[1]
        found["second"] = sketch.published[1] - seized[0]
        found["third"] = sketch.published[2] - seized[1] - bands[0] * tables[2]
        return found

    noise = _stacked(run, 400)
    assert problems(noise, laws) == []
    moved = _moved(unit)
    _affordable({f"state {i}": band * moved for i, band in enumerate(bands)}, noise, budget)
    if relation == "add_remove":  # a record of the third day, of which the state knows nothing
        share = bands[0] ** 2 * np.sum(moved**2) / np.mean(noise["third"] ** 2)
        assert share < ROOM * accounting.gaussian_mu(**budget) ** 2


@pytest.mark.statistical
@pytest.mark.parametrize("level", ["record", "user"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_shares_of_several_parties(level: str, relation: Any) -> None:
    """False-positive rate below 1e-7: each party draws for itself, and those who are honest add up to the promise."""
    user = level == "user"
    unit = dps.per_user(2, neighbours=relation) if user else dps.per_record(neighbours=relation)
    parties, honest, budget = 4, 2, {"epsilon": 1.0, "delta": DELTA}
    sketches, tables = [], []
    for party in range(parties):
        given = {"users": [f"{party} {i}" for i in range(3)]} if user else {}
        sketches.append(dps.CountSketch(unit=unit, **SHAPE))
        sketches[-1].update([party, 1, 2], **given)
        tables.append(sketches[-1].release(rho=1e9).table)
    laws: dict[str, Law] = {}
    finer = []

    def run() -> Arrays:
        found = {}
        for party, sketch in enumerate(sketches):
            release = sketch.release(**budget, share=dps.Share(parties, honest / parties, party))
            finer.append(round(release.spec.grid / release.step))
            laws[f"party {party}"] = law_of(*release.noise)
            found[f"party {party}"] = release.table - finer[-1] * tables[party]
        return found

    noise = _stacked(run)
    assert problems(noise, laws) == []
    if user:
        worst = _exact([7, 8], unit, users=["ann", "ann"])
        if relation == "replace":  # the same cells, with opposite signs
            worst = 2 * worst
    else:
        worst = _moved(unit)
    together = {"all": noise["party 0"] + noise["party 1"]}
    square = float(np.sum((worst * finer[0]) ** 2)) / float(np.mean(together["all"] ** 2))
    share = square / accounting.gaussian_mu(**budget) ** 2
    assert (0.3 if user else 0.6) < share < ROOM


def _class_tables(model: Any, scaled: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """The exact tables that a fitted classifier's classes have, by a sketch of the points less the published centre."""
    tables = []
    for label, density in zip(model.classes_, model.densities_, strict=True):
        sketch = dps.DensitySketch.from_spec(density.spec)
        sketch.update(scaled[labels == label] - model.centre_)
        tables.append(sketch.release(rho=1e9, count_share=0.0).table)
    return tables


def _fitted(scaled: np.ndarray, labels: np.ndarray, relation: Any, **given: Any) -> Any:
    model = dps.DensityClassifier(
        **given, bounds=(-1, 1), classes=["a", "b"], rows=2, power=2, centre_share=0.3,
        unit=dps.per_record(neighbours=relation),
    )  # fmt: skip
    return model.fit(scaled, labels)


@pytest.mark.statistical
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
    laws: dict[str, Law] = {}

    def run() -> Arrays:
        model = _fitted(scaled, labels, relation, **budget)
        found = {"centre": np.rint(model.centre_[1:] * 1024 * records - rounded[1:])}
        for name, density, exact in zip("ab", model.densities_, _class_tables(model, scaled, labels), strict=True):
            laws[name] = law_of(density.noise)
            found[name] = density.table - exact
        return found

    noise = _stacked(run)
    times = 2 if relation == "replace" else 1
    if delta:
        mu = accounting.gaussian_mu(**budget) * math.sqrt(0.3)
        laws["centre"] = Gaussian(times * 1024 * math.sqrt(5) / mu)
    else:
        laws["centre"] = Laplace(times * 1024 * 5 / 0.3)
    # Dividing by the noisy number of records, and drawing the mean in, change the centre's noise by about a hundredth.
    assert problems(noise, laws) == []
    # The rest of the budget is for the tables: one cell of either row, and another one for a record that is replaced.
    moved = np.ones(2 * times)
    rest = math.sqrt(0.7) if delta else 0.7
    _affordable({"a": moved / rest}, noise, budget)


@pytest.mark.statistical
@pytest.mark.parametrize("level", ["record", "user"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_one_row_is_drawn_for_every_record(level: str, relation: Any) -> None:
    """False-positive rate below 1e-7: no record's row follows from its place or from another's, and the noise is whole.

    Three points a sketch, of one user or of three; the row of each is read off an exact release. The rows of points
    that come at the same place in different sketches must be as free as those of neighbours in one sketch.
    """
    user, rows, budget = level == "user", 4, {"epsilon": 1.0, "delta": 0.0}
    unit = dps.per_user(3, neighbours=relation) if user else dps.per_record(neighbours=relation)
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

    found = _stacked(run)
    noise = {"table": found.pop("table")}
    assert problems(noise, laws) == []
    assert dependence({**found, "table": placed(noise["table"], laws["table"])}) == []
    for drawn in found.values():
        counts = np.unique(np.rint(drawn * 10), return_counts=True)[1]
        # A row is drawn 150 times of 600, ± 10.6.
        assert len(counts) == rows
        assert np.all(np.abs(counts - RUNS / rows) < 6.5 * math.sqrt(RUNS * 3 / 16))
    moved = (3 if user else 1) * (2 if relation == "replace" else 1)
    _affordable({"table": np.ones(moved)}, noise, budget)


@pytest.mark.statistical
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
