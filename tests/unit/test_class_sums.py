"""Classes by the noisy sums of embeddings: integers of each record alone, one sensitivity, and a score that holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch._compiled.vectors import whole_vectors
from dpsketch.accounting import gaussian_mu
from dpsketch.core.drawn import Drawn, Part, Receipt, release_document
from dpsketch.core.laws import Additive
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.laws.calibration import additive
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.privacy import Budget
from dpsketch.sketches.density.class_spec import MOMENTS, SIZES, STEPS, SUMS, WAVES, EmbeddingMap
from dpsketch.sketches.density.class_sums import Corrections, PrivateClassSums, residual_sums

RNG = np.random.default_rng(8)
DIM = 24
CENTRES = RNG.normal(size=(3, DIM))
PUBLIC = RNG.normal(size=(200, DIM))


def records(n: int, spread: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    labels = RNG.integers(0, 3, n)
    vectors = CENTRES[labels] + spread * RNG.normal(size=(n, DIM))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels


def model(**changes: Any) -> dps.DensityClassifier:
    return dps.DensityClassifier(**{"epsilon": 1.0, "delta": 1e-5, "classes": [0, 1, 2], **changes})


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rho": {"epsilon": None, "delta": None, "rho": 0.1},
    "public": {"public": PUBLIC},
    "moments": {"public": PUBLIC, "epsilon": 8.0, "expected_records": 10**6},
    "pure": {"delta": 0, "dims": 16},
    "pure public": {"delta": 0, "public": PUBLIC, "dims": 8},
    "scaled": {"kernel": "linear", "bounds": (-2, 2)},
}


def fit(X: np.ndarray, y: np.ndarray, users: Any = None, seed: int = 5, **form: Any) -> PrivateClassSums:
    with seeded_noise_for_tests_only(seed):
        return model(**form).fit(X, y, users).sums_


def moved(form: dict[str, Any], these: tuple[Any, ...], those: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """By how much the released integers differ between two datasets under the same noise."""
    one, other = fit(*these, **form), fit(*those, **form)
    return {name: one.drawn.table(name) - other.drawn.table(name) for name in laws(one)}


def laws(released: PrivateClassSums) -> dict[str, Additive]:
    """What was paid for, by part."""
    return {name: part.law for name, part in released.drawn.parts.items() if isinstance(part.law, Additive)}


def oracle(point: np.ndarray, steps: int, unit_length: bool, limit: int) -> list[int]:
    """The integers of one point, in Python's own arithmetic but for two roundings of doubles."""
    largest = max([1.0, *map(abs, point.tolist())])
    fine = [int(x / largest * 2**20) for x in point.tolist()]
    square = sum(x * x for x in fine)
    long = unit_length or largest > 1 or square > 2**40
    factor = steps / math.sqrt(square) if long and square else steps / 2**20
    whole = [int(x * factor) for x in fine]

    def shorten() -> None:
        j = max(range(len(whole)), key=lambda j: (abs(whole[j]), -j))
        whole[j] += -1 if whole[j] > 0 else 1

    while sum(x * x for x in whole) > steps * steps:
        shorten()
    if limit and sum(map(abs, whole)) > limit:
        shrink = limit / sum(map(abs, whole))
        whole = [int(x * shrink) for x in whole]
        while sum(map(abs, whole)) > limit:
            shorten()
    return whole


@pytest.mark.parametrize("limit", [0, 300])
@pytest.mark.parametrize("unit_length", [False, True])
@pytest.mark.parametrize("steps", [1 << 16, 1 << 10, 1 << 20])
def test_integers_are_those_of_the_oracle_and_never_too_long(steps: int, unit_length: bool, limit: int) -> None:
    edges = [np.eye(5), -np.eye(5), np.zeros((1, 5)), np.full((1, 5), 1e300)]
    edges += [np.nextafter(np.ones((1, 5)) / math.sqrt(5), 1), np.sign(RNG.normal(size=(10, 5))) / math.sqrt(5)]
    points = np.concatenate([RNG.normal(size=(40, 5)), RNG.normal(size=(40, 5)) * 1e-6, *edges])
    out = np.empty(points.shape, np.int64)
    whole_vectors(points, steps, unit_length, limit, out)
    assert out.tolist() == [oracle(point, steps, unit_length, limit) for point in points]
    assert np.all(np.sum(out**2, axis=1) <= steps**2)
    assert not limit or np.all(np.abs(out).sum(axis=1) <= limit)


@pytest.mark.parametrize("limit", [0, 300])
def test_what_is_no_number_counts_for_nothing(limit: int) -> None:
    """A double that no integer stands for must not become an arbitrary one."""
    hostile = [math.inf, -math.inf, math.nan, 1e308]
    points = np.array([[a, b, 0.5] for a in hostile for b in hostile])
    out = np.empty(points.shape, np.int64)
    whole_vectors(points, STEPS, False, limit, out)
    assert all(sum(x * x for x in vector) <= STEPS**2 for vector in out.tolist())
    assert not limit or all(sum(map(abs, vector)) <= limit for vector in out.tolist())
    assert not out[~np.isfinite(points)].any()


@pytest.mark.parametrize("kernel", ["linear", "angular"])
@pytest.mark.parametrize("bounds", [(1e308, 1.7e308), (0, 5e-324), (-1.7e308, 1.7e308)])
def test_bounds_between_which_doubles_cannot_measure_are_refused(kernel: str, bounds: tuple[float, float]) -> None:
    X, y = records(20)
    with pytest.raises(InvalidInput, match="bounds"):
        model(kernel=kernel, bounds=bounds, rows=3).fit(X, y)


@pytest.mark.parametrize("form", ["public", "pure", "pure public"])
def test_directions_are_multiplied_exactly(form: str) -> None:
    X, y = records(20)
    shape = fit(X, y, **FORMS[form]).shape
    directions, mean = shape.directions.tolist(), shape.mean.tolist()
    for point in X:
        fine = [x - m for x, m in zip(oracle(point, 2**20, False, 0), mean, strict=True)]
        columns = range(shape.kept)
        measured = [sum(x * row[k] for x, row in zip(fine, directions, strict=True)) / 2**35 for k in columns]
        assert shape.integers(point[None])[0].tolist() == oracle(np.array(measured), STEPS, True, shape.limit)


@pytest.mark.parametrize("form", FORMS)
def test_a_record_counts_alike_whatever_others_there_are(form: str) -> None:
    """In every part, 35 records add to one what they add, in another order, to 36 others."""
    X, y = records(71)
    some, others, turned = slice(36, 71), slice(1, 36), slice(None, 35, -1)
    few = moved(FORMS[form], (np.vstack([X[:1], X[some]]), np.append(y[:1], y[some])), (X[:1], y[:1]))
    whole = (np.vstack([X[:1], X[turned], X[others]]), np.concatenate([y[:1], y[turned], y[others]]))
    many = moved(FORMS[form], whole, (X[:36], y[:36]))
    assert few.keys() == many.keys()
    for name, table in few.items():
        assert np.array_equal(table, many[name]), name


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("form", FORMS)
def test_one_record_moves_no_part_by_more_than_is_paid_for(form: str, neighbours: str) -> None:
    """The worst pairs: a record removed, another class, turned round, and vectors that are too long."""
    unit = dps.per_record(neighbours=neighbours)
    given = FORMS[form] | {"unit": unit}
    X, y = records(12)
    paid = laws(fit(X, y, **given))
    bounds = {name: law.table.between(neighbours) for name, law in paid.items()}
    direction = np.ones(DIM)
    others = [(X[1:], y[1:])] if neighbours == "add_remove" else []
    if neighbours == "replace":
        for vector, label in ((-X[0], y[0]), (X[0], (y[0] + 1) % 3), (-X[0], (y[0] + 1) % 3), (1e6 * direction, y[0])):
            others.append((np.vstack([vector, X[1:]]), np.append(label, y[1:])))
    largest = dict.fromkeys(bounds, 0.0)
    for other in others:
        for name, difference in moved(given, (X, y), other).items():
            bound = bounds[name]
            assert np.sum(difference.astype(np.float64) ** 2) <= bound.l2**2 * (1 + 1e-12)
            if isinstance(paid[name].noise, DiscreteLaplace):
                assert np.abs(difference).sum() <= bound.l1
            largest[name] = max(largest[name], float(np.sum(difference.astype(np.float64) ** 2)) / bound.l2**2)
    if form == "plain":
        assert largest[SUMS] > 0.99  # and no less is needed


def test_a_user_moves_as_far_as_all_of_their_records() -> None:
    unit = dps.per_user(max_keys=3)
    X = np.vstack([np.eye(DIM)[:1] + 1e-3 * np.eye(DIM)[i : i + 1] for i in range(1, 9)])
    y, users = np.zeros(8, int), np.array(["a"] * 5 + ["b", "c", "d"])
    difference = moved({"unit": unit}, (X, y, users), (X[5:], y[5:], users[5:]))[SUMS]
    assert 2.9 * STEPS < math.sqrt(np.sum(difference.astype(float) ** 2)) <= 3 * STEPS
    assert laws(fit(X, y, users, unit=unit))[SUMS].table.between("add_remove").l2 == 3 * STEPS
    form = FORMS["moments"] | {"unit": unit}
    moves = moved(form, (X, y, users), (X[5:], y[5:], users[5:]))
    paid = laws(fit(X, y, users, **form))
    assert moves.keys() == {SUMS, MOMENTS, SIZES, WAVES}
    for name, difference in moves.items():
        assert 0.9 < math.sqrt(np.sum(difference.astype(float) ** 2)) / paid[name].table.between("add_remove").l2 <= 1


@pytest.mark.statistical
@pytest.mark.parametrize("form", ["plain", "pure"])
def test_the_noise_is_what_was_paid_for(form: str) -> None:
    """Drawn noise, what is released less the counts: its variance is within 6 standard errors of the stated law's.

    False positives: below 1e-8 for Gaussian parts, below 1e-5 for Laplace ones. Power: noise of 0.8 times the scale has
    0.64 of the variance, which is 11 standard errors away with the 5,000 Laplace values here, and 18 with Gaussian
    ones. What goes beside the sums is held in :mod:`tests.privacy.test_class_privacy`.
    """
    X, y = records(6)
    given = FORMS[form]
    shape = fit(X, y, **given).shape
    exact = np.zeros((3, shape.kept), np.int64)
    np.add.at(exact, y, shape.integers(X))
    fits = [model(**given).fit(X, y) for _ in range(5000 // exact.size + 1)]
    paid = laws(fits[0].sums_)
    drawn = np.concatenate([(one.sums_.sums - exact).ravel() for one in fits]).astype(float)
    law = paid[SUMS].noise
    kurtosis = 3 if isinstance(law, RoundedGaussian) else 6

    def far(values: np.ndarray) -> float:
        return abs(np.mean(values**2) / law.variance - 1) / math.sqrt((kurtosis - 1) / len(values))

    assert far(drawn) < 6
    assert far(0.8 * drawn) > 6
    for apart in (1, shape.kept, exact.size):  # coordinates, classes, fits
        assert abs(np.corrcoef(drawn[:-apart], drawn[apart:])[0, 1]) < 6 / math.sqrt(len(drawn))


def test_coordinates_with_little_but_noise_do_not_blur_a_classs_length() -> None:
    """Fifty classes of 40 to 200 differ in 12 of 200 coordinates: in a plain length the others' noise says as much.

    The largest inner product with plain lengths is the twin: it is right less often by at least 2 points of the mean of
    four draws, each of which differs by about 1.
    """
    rng = np.random.default_rng(5)
    centres = np.zeros((50, 200))
    centres[:, :12] = rng.normal(size=(50, 12))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)

    def some(labels: np.ndarray) -> np.ndarray:
        vectors = centres[labels] + 0.07 * rng.normal(size=(len(labels), 200))
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    y = np.repeat(np.arange(50), np.linspace(40, 200, 50).astype(int))
    u = np.repeat(np.arange(50), 20)
    X, Z, weighted, plain = some(y), some(u), [], []
    for draw in range(4):
        with seeded_noise_for_tests_only(draw):
            fitted = model(epsilon=0.5, classes=range(50)).fit(X, y)
        weighted.append(fitted.score(Z, u))
        noise, sums = fitted.sums_.deviation**2, fitted.sums_.sums / STEPS
        squares = np.maximum(np.sum(sums**2, axis=1) - 200 * noise, 0) + 2 * noise * math.sqrt(400)
        scores = fitted.kernel_sums(Z) / np.sqrt(squares)
        plain.append(np.mean(scores.argmax(axis=1) == u))
    assert np.mean(weighted) > np.mean(plain) + 0.02


def test_no_message_quotes_a_record_or_says_how_many_there_are() -> None:
    for X in ([["0.7654321x", 0.5], [0.5, 0.5]], [[0.5, 0.5]] * 7654):
        with pytest.raises(InvalidInput) as refused:
            model(classes=[0, 1]).fit(X, [0, 1])
        assert "765" not in str(refused.value)
        assert refused.value.__context__ is None


# Later passes, which correct the sums.

FEW, CLASSES = 6, 4
LENGTH = 2.0**28


def vectors(n: int) -> tuple[np.ndarray, np.ndarray]:
    points = RNG.normal(size=(n, FEW))
    return points / np.linalg.norm(points, axis=1, keepdims=True), RNG.integers(0, CLASSES, n)


def passes(**changes: Any) -> dps.DensityClassifier:
    return dps.DensityClassifier(**{"epsilon": 8.0, "delta": 1e-5, "classes": range(CLASSES), "passes": 3, **changes})


@pytest.mark.parametrize("public", [False, True])
def test_a_record_counts_alike_whatever_it_is_read_with(public: bool) -> None:
    points, codes = vectors(300)
    shape = EmbeddingMap.fitted(RNG.normal(size=(50, FEW)), FEW, 3) if public else EmbeddingMap(FEW)
    directions = RNG.normal(size=(CLASSES, shape.kept))
    alone = sum(residual_sums(shape, points[i : i + 1], codes[i : i + 1], directions) for i in range(300))
    assert np.array_equal(residual_sums(shape, points, codes, directions), alone)
    order = RNG.permutation(300)
    assert np.array_equal(residual_sums(shape, points[order], codes[order], directions), alone)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e30])
def test_no_record_moves_a_pass_further_than_is_paid_for(scale: float) -> None:
    """Directions may be anything that was released; a record that all of them put in another class moves it by 1."""
    points, codes = vectors(100)
    points = np.concatenate([points, 1e6 * points, np.zeros((1, FEW)), np.eye(FEW)])
    codes = np.concatenate([codes, codes, np.zeros(1 + FEW, np.int64)])
    shape = EmbeddingMap(FEW)
    directions = scale * np.vstack([-np.eye(FEW)[0], np.eye(FEW)[:3]])
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
    fitted = passes(**given).fit(point, np.array([1]), ["one"] if most > 1 else None)
    length = most * (2 if relation == "replace" else 1) * LENGTH
    variance = 2 * 7 * (length / gaussian_mu(0.1, 1e-5)) ** 2
    drawn = fitted.sums_.corrections.astype(float)
    assert drawn.size == 2560
    assert np.mean(drawn**2) == pytest.approx(variance, rel=5 * math.sqrt(2 / drawn.size))


def test_a_later_pass_reads_the_records_of_a_user_that_count() -> None:
    """Of each of three users two of five records count, in both passes the same ones, each in a coordinate of its own.

    Other users' records say where the classes are: all point away from these, whose residuals are large for any noise.
    """
    points = np.repeat(np.eye(15 + CLASSES), [1] * 15 + [100] * CLASSES, axis=0)
    codes = np.append(np.ones(15, int), np.repeat(np.arange(CLASSES), 100))
    users = [*np.repeat(["one", "two", "three"], 5), *(f"other {i}" for i in range(100 * CLASSES))]
    given = {"unit": dps.per_user(max_keys=2), "epsilon": None, "delta": None, "rho": 1e9, "passes": 2}
    sums = passes(**given).fit(points, codes, users).sums_
    first, second = (np.abs(each).sum(axis=0)[:15] for each in (sums.sums, sums.corrections))
    assert np.sum(first.reshape(3, 5) > STEPS / 2, axis=1).tolist() == [2, 2, 2]
    assert np.array_equal(first > STEPS / 2, second > LENGTH / 4)


def test_a_forged_file_of_sums_without_noise_is_refused(tmp_path: Path) -> None:
    """Its classes have no length to divide by; Gaussian noise shows at every budget, and passes have no other."""
    fitted = passes(rho=1e9, epsilon=None, delta=None).fit(*vectors(60))
    assert fitted.sums_.deviation > 1e-6
    spec, budget = fitted.sums_.spec, Budget(1e300, 0.0)
    first, *later = laws = additive(budget, "add_remove", spec.shares())
    nothing = {"table": np.zeros((CLASSES, FEW), np.int64)}
    parts = {"sums": Part(first, nothing), "corrections": Part(Corrections(tuple(later), 0.16), nothing)}
    forged = Drawn.of(spec, [Receipt(budget, laws)], parts)
    files.write(tmp_path / "forged.dps", release_document("classes", spec, forged))
    with pytest.raises(FileRefused, match="without noise"):
        dps.DensityClassifier.load(tmp_path / "forged.dps")


def test_batches_with_more_passes_are_refused_before_anything_is_charged(tmp_path: Path) -> None:
    ledger = dps.Ledger(f"sqlite:///{tmp_path}/budget.db")
    ledger.create("texts", epsilon=8.0, delta=1e-5, unit=dps.per_record())
    changed = passes(passes=1, ledger=ledger, dataset="texts")
    count = changed.partial_fit
    changed.set_params(passes=2)
    count(*vectors(30))
    with pytest.raises(InvalidInput, match="nothing was charged"):
        changed.release()
    assert ledger.spent("texts").releases == 0


def test_how_many_passes_pay_follows_from_public_facts() -> None:
    points, codes = vectors(30)
    for records, last in ((100, 2), (10**6, 9)):
        words = str(passes(passes="auto", expected_records=records).fit(points, codes).guarantee_.mechanism)
        assert (f"pass {last}" in words, f"pass {last + 1}" in words) == (True, False)
    for changes in ({"passes": 33}, {"passes": "auto"}, {"delta": 0}, {"kernel": "angular", "bounds": (-1, 1)}):
        with pytest.raises(InvalidInput, match="passes"):
            passes(**changes).fit(points, codes)
