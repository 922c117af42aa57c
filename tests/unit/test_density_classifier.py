"""DensityClassifier keeps scikit-learn's conventions, is fitted in parts and saved as one file, or refuses."""

from __future__ import annotations

import copy
import hashlib
import pickle
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput, SensitiveData, SpecMismatch
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches.density import DensityClassifier

# Two fits of one dataset differ by their noise, which nobody may fix. These checks compare two fits.
EXPECTED_TO_FAIL = {
    "check_fit_idempotent": "a second fit draws fresh noise",
    "check_supervised_y_2d": "the fits for y as a column and as a row draw different noise",
    "check_classifier_data_not_an_array": "the fits of an array and of what is like one draw different noise",
}

RNG = np.random.default_rng(4)
X = np.concatenate([RNG.normal([-3, 0], 1, (400, 2)), RNG.normal([3, 1], 1, (200, 2))])
Y = np.repeat(["left", "right"], [400, 200])


def model(**changes: object) -> DensityClassifier:
    arguments: dict[str, object] = {
        "epsilon": 1.0, "delta": 1e-6, "bounds": (-8, 8), "classes": ["left", "right"], "rows": 60, **changes,
    }  # fmt: skip
    return DensityClassifier(**arguments)


FINE = {"bounds": (-20, 20), "rows": 100, "kernel": "euclidean", "bandwidth": 0.05, "power": 2}


@pytest.mark.parametrize("more", [FINE, {}], ids=["euclidean", "linear"])
def test_scikit_learns_checks(more: dict[str, object]) -> None:
    """All of scikit-learn's checks pass, but for those that compare two fits."""
    estimator = DensityClassifier(epsilon=200.0, delta=1e-6, classes="as_in_y", **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, expected_failed_checks=EXPECTED_TO_FAIL, on_fail=None, on_skip=None)
    failed = [(result["check_name"], result["exception"]) for result in results if result["status"] == "failed"]
    assert failed == []
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_pipeline_consistency", "check_array_api_input"}
    assert sum(result["status"] == "passed" for result in results) > 40


def test_it_tells_classes_apart(seeded: None) -> None:
    assert cross_val_score(model(), X, Y, cv=3).mean() > 0.9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": None}, "needs a budget"),
        ({"bounds": None, "kernel": "angular"}, "public bounds"),
        ({"classes": None}, "public list of labels"),
        ({"classes": ["left", "up"]}, "not among classes"),
        ({"kernel": "euclidean"}, "bandwidth"),
        ({"centre": [1.0, float("nan")]}, "each of the 2 features"),
        ({"unit": dps.per_user(max_keys=2)}, "users="),
    ],
)
def test_what_is_not_public_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        model(**changes).fit(X, Y)


def test_labels_read_from_the_records_are_said_to_be_public() -> None:
    """When they are read, and not by what ``classes`` is by the time of the release."""
    assert model().fit(X, Y).guarantee_.caveat is None
    counted = model(kernel="linear", classes="as_in_y").partial_fit(X, Y)
    counted.set_params(classes=["left", "right"])
    other = model(kernel="linear").partial_fit(X, Y)
    for said in (model(classes="as_in_y").fit(X, Y), other.merge(counted).release(), counted.release()):
        assert "stated to be public" in str(said.guarantee_)
    with pytest.raises(InvalidInput, match="protects records"):
        model().fit(X, Y, users=Y)


def test_without_scikit_learn_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.utils.multiclass", None)
    with pytest.raises(dps.DpsketchError, match=r"dpsketch\[learn\]"):
        model().fit(X, Y)


# Fitted in parts: counted in batches, merged, released once, saved as one file.

RNG = np.random.default_rng(1)
CENTRES = RNG.normal(size=(4, 12))
LABELS = np.arange(400) % 4
POINTS = CENTRES[LABELS] + 0.3 * RNG.normal(size=(400, 12))
POINTS /= np.linalg.norm(POINTS, axis=1, keepdims=True)


def linear(**more: Any) -> dps.DensityClassifier:
    return dps.DensityClassifier(**{"epsilon": 4.0, "delta": 1e-6, "classes": range(4), **more})


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    # With second moments and waves. The seed is one of NumPy: what cannot be written after it was paid for is lost.
    "all": {"public": POINTS[:50], "expected_records": 1e6, "seed": np.int64(3)},
    "pure": {"delta": 0},
    "scaled": {"bounds": (-1, 1), "kernel": "linear"},
}


@pytest.mark.parametrize("form", FORMS)
def test_batches_and_merged_parts_release_what_one_fit_does(form: str) -> None:
    """With one seed of the noise, the released sums are the same to the bit."""
    with seeded_noise_for_tests_only(5):
        whole = linear(**FORMS[form]).fit(POINTS, LABELS)
    parts = linear(**FORMS[form]), linear(**FORMS[form])
    parts[0].partial_fit(POINTS[:100], LABELS[:100]).partial_fit(POINTS[100:130], LABELS[100:130])
    parts[1].partial_fit(POINTS[130:], LABELS[130:])
    parts[0].merge(parts[1])
    with seeded_noise_for_tests_only(5):
        merged = parts[0].release()
    parts_of = {name for name, part in whole.sums_.drawn.parts.items() if "table" in part.arrays}
    assert len(parts_of) == (4 if form == "all" else 1)
    for name in parts_of:
        assert np.array_equal(merged.sums_.drawn.table(name), whole.sums_.drawn.table(name))
    assert merged.guarantee_ == whole.guarantee_


def test_what_is_not_released_is_neither_asked_nor_shipped() -> None:
    counted = linear().partial_fit(POINTS, LABELS)
    for ask in (counted.predict, counted.save):
        with pytest.raises(NotFittedError):
            ask(POINTS)
    with pytest.raises(SensitiveData):
        pickle.dumps(counted)
    released = counted.release()
    assert pickle.loads(pickle.dumps(released)).predict(POINTS[:1]).shape == (1,)
    with pytest.raises(InvalidInput, match="nothing to release"):
        released.release()


def test_merging_refuses_what_would_count_twice_or_differs() -> None:
    one, other = linear().partial_fit(POINTS[:50], LABELS[:50]), linear().partial_fit(POINTS[50:], LABELS[50:])
    one.merge(other)
    with pytest.raises(InvalidInput, match="already in"):
        one.merge(other)
    for different in (linear(public=POINTS[:30]), linear(unit=dps.per_record(neighbours="replace"))):
        with pytest.raises(SpecMismatch):
            one.merge(different.partial_fit(POINTS[:9], LABELS[:9]))
    with pytest.raises(ValueError, match="features"):
        one.partial_fit(POINTS[:, :5], LABELS)
    with pytest.raises(InvalidInput, match="not among"):
        one.partial_fit(POINTS[:2], [7, 8])
    with pytest.raises(AttributeError, match="linear"):
        linear(kernel="angular", bounds=(-1, 1)).partial_fit(POINTS, LABELS)


def test_users_are_remembered_over_batches_and_parts() -> None:
    unit = dps.per_user(max_keys=3)
    users = [f"u{i // 4}" for i in range(400)]
    one = linear(unit=unit).partial_fit(POINTS[:200], LABELS[:200], users=users[:200])
    with pytest.raises(InvalidInput):
        one.partial_fit(POINTS[:8], LABELS[:8], users=users[:8])
    other = linear(unit=unit).partial_fit(POINTS[196:], LABELS[196:], users=users[196:])
    with pytest.raises(InvalidInput):
        one.merge(other)
    one.merge(linear(unit=unit).partial_fit(POINTS[200:], LABELS[200:], users=users[200:]))
    with seeded_noise_for_tests_only(5):
        merged = one.release()
    with seeded_noise_for_tests_only(5):
        whole = linear(unit=unit).fit(POINTS, LABELS, users=users)
    assert np.array_equal(merged.sums_.sums, whole.sums_.sums)


@pytest.mark.parametrize(
    "more", [FORMS["all"] | {"passes": 2}, {"bounds": (-1, 1), "rows": 30}], ids=["sums", "densities"]
)
def test_a_fitted_classifier_is_one_file(more: dict[str, Any], tmp_path: Path) -> None:
    names = np.array(["a", "b", "c", "d"])
    fitted = linear(**{**more, "classes": names}).fit(POINTS, names[LABELS])
    fitted.save(tmp_path / "model.dps")
    again = dps.DensityClassifier.load(tmp_path / "model.dps")
    assert again.guarantee_ == fitted.guarantee_
    assert np.array_equal(again.predict_proba(POINTS), fitted.predict_proba(POINTS))
    again.save(tmp_path / "again.dps")
    assert (tmp_path / "again.dps").read_bytes() == (tmp_path / "model.dps").read_bytes()
    with pytest.raises(FileRefused, match=r"dps\.DensityClassifier\.load"):
        dps.load(tmp_path / "model.dps")
    if "rows" in more:
        with pytest.raises(InvalidInput, match="save the whole"):
            fitted.densities_[0].save(tmp_path / "d.dps")


FORGED: dict[str, tuple[str, Any]] = {
    "no noise": ("sums", lambda header: header["receipts"][0]["laws"][0].update(noise=None)),
    "coordinates without end": ("sums", lambda header: header["spec"]["measured"].update(dim=10**9, kept=10**9)),
    "another map": ("sums", lambda header: header["spec"]["measured"].update(digest="0" * 64)),
    "later passes": ("sums", lambda header: header["spec"]["extras"].update(passes=2)),
    "more classes": ("densities", lambda header: header["spec"].update(labels=[0, 1, 2, 3, 4])),
    "a guarantee": ("densities", lambda header: header["guarantee"].update(epsilon=0.1)),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, files.Document]:
    """Files of both forms: with all that sums have beside them, and of densities."""
    found, path = {}, tmp_path_factory.mktemp("saved") / "m.dps"
    for form, more in (("sums", FORMS["all"]), ("densities", {"bounds": (-1, 1), "rows": 20})):
        linear(**more).fit(POINTS, LABELS).save(path)
        found[form] = files.read(path, allow_sensitive=False)
    return found


def refused(path: Path, document: files.Document) -> None:
    files.write(path, document)
    with pytest.raises(FileRefused):
        dps.DensityClassifier.load(path)


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_refused_before_anything_is_made_of_it(
    name: str, saved: dict[str, files.Document], tmp_path: Path
) -> None:
    form, change = FORGED[name]
    header = copy.deepcopy(saved[form].header)
    change(header)
    refused(tmp_path / "w.dps", replace(saved[form], header=header))


@pytest.mark.parametrize("change", ["beyond 2**53", "the least integer", "another shape"])
def test_directions_that_are_none_are_refused(change: str, saved: dict[str, files.Document], tmp_path: Path) -> None:
    """Beyond 2⁵³ sums of products would be rounded: what a record adds would follow the batch.

    Of another shape they have the same bytes, and so the same digest.
    """
    arrays = saved["sums"].arrays
    mean, directions = (np.array(arrays[f"map__{each}"]) for each in ("mean", "directions"))
    if change == "another shape":
        mean, directions = np.concatenate([mean, directions[0]]), directions[1:]
    else:
        directions.flat[0] = 1 << 40 if change == "beyond 2**53" else -(1 << 63)
    header = copy.deepcopy(saved["sums"].header)
    header["spec"]["measured"]["digest"] = hashlib.sha256(mean.tobytes() + directions.tobytes()).hexdigest()
    forged = {**arrays, "map__mean": mean, "map__directions": directions}
    refused(tmp_path / "w.dps", replace(saved["sums"], header=header, arrays=forged))
