"""DensityClassifier keeps scikit-learn's conventions, and refuses what is not public."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import dpsketch as dps
from dpsketch.errors import InvalidInput
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
