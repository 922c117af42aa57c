"""A classifier that is fitted in parts: counted in batches, merged, released once, saved as one file."""

from __future__ import annotations

import copy
import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.cli import main
from dpsketch.errors import BudgetExceeded, FileRefused, InvalidInput, SensitiveData, SpecMismatch
from dpsketch.noise import seeded_noise_for_tests_only

RNG = np.random.default_rng(1)
CENTRES = RNG.normal(size=(4, 12))
LABELS = np.arange(400) % 4
POINTS = CENTRES[LABELS] + 0.3 * RNG.normal(size=(400, 12))
POINTS /= np.linalg.norm(POINTS, axis=1, keepdims=True)


def model(**more: Any) -> dps.DensityClassifier:
    return dps.DensityClassifier(**{"epsilon": 4.0, "delta": 1e-6, "classes": range(4), **more})


SETTINGS: list[dict[str, Any]] = [
    {},
    {"expected_records": 1e6},  # with second moments and waves
    {"delta": 0},
    {"public": POINTS[:50]},
    {"bounds": (-1, 1), "kernel": "linear"},
]


@pytest.mark.parametrize("more", SETTINGS, ids=lambda more: ", ".join(more) or "plain")
def test_batches_and_merged_parts_release_what_one_fit_does(more: dict[str, Any]) -> None:
    """With one seed of the noise, the released sums are the same to the bit."""
    with seeded_noise_for_tests_only(5):
        whole = model(**more).fit(POINTS, LABELS)
    parts = model(**more), model(**more)
    parts[0].partial_fit(POINTS[:100], LABELS[:100]).partial_fit(POINTS[100:130], LABELS[100:130])
    parts[1].partial_fit(POINTS[130:], LABELS[130:])
    parts[0].merge(parts[1])
    with seeded_noise_for_tests_only(5):
        merged = parts[0].release()
    assert np.array_equal(merged.sums_.sums, whole.sums_.sums)
    assert (merged.sums_.moments is None) == ("expected_records" not in more or more == {"delta": 0})
    if whole.sums_.moments is not None:
        assert np.array_equal(merged.sums_.moments, whole.sums_.moments)
        assert np.array_equal(merged.sums_.sizes, whole.sums_.sizes)
        assert np.array_equal(merged.sums_.wave_sums, whole.sums_.wave_sums)
    assert merged.guarantee_ == whole.guarantee_
    assert np.array_equal(merged.predict(POINTS), whole.predict(POINTS))


def test_what_is_not_released_is_neither_asked_nor_shipped(tmp_path: Path) -> None:
    counted = model().partial_fit(POINTS, LABELS)
    from sklearn.exceptions import NotFittedError

    for ask in (counted.predict, counted.predict_proba, counted.kernel_sums, counted.decision_function):
        with pytest.raises(NotFittedError):
            ask(POINTS)
    with pytest.raises(NotFittedError):
        counted.save(tmp_path / "x.dps")
    with pytest.raises(SensitiveData):
        pickle.dumps(counted)
    released = counted.release()
    assert pickle.loads(pickle.dumps(released)).predict(POINTS[:1]).shape == (1,)
    with pytest.raises(InvalidInput, match="nothing to release"):
        released.release()


def test_merging_refuses_what_would_count_twice_or_differs() -> None:
    one, other = model().partial_fit(POINTS[:50], LABELS[:50]), model().partial_fit(POINTS[50:], LABELS[50:])
    with pytest.raises(SpecMismatch):
        one.merge(one)
    one.merge(other)
    with pytest.raises(InvalidInput, match="already in"):
        one.merge(other)
    for different in (
        model(public=POINTS[:30]),
        model(unit=dps.per_record(neighbours="replace")),
        model(classes=range(5)),
    ):
        with pytest.raises(SpecMismatch):
            one.merge(different.partial_fit(POINTS[:9], LABELS[:9]))
    with pytest.raises(InvalidInput):
        one.merge(model())
    with pytest.raises(ValueError, match="features"):
        one.partial_fit(POINTS[:, :5], LABELS)
    with pytest.raises(InvalidInput, match="not among"):
        one.partial_fit(POINTS[:2], [7, 8])
    with pytest.raises(AttributeError, match="linear"):
        model(kernel="angular", bounds=(-1, 1)).partial_fit(POINTS, LABELS)
    with pytest.raises(InvalidInput, match="classes"):
        model(classes=None).partial_fit(POINTS, LABELS)
    assert model(classes=None).partial_fit(POINTS, LABELS, classes=range(4)).release().score(POINTS, LABELS) > 0.5


def test_users_are_remembered_over_batches_and_parts() -> None:
    unit = dps.per_user(max_keys=3)
    users = [f"u{i // 4}" for i in range(400)]
    one = model(unit=unit).partial_fit(POINTS[:200], LABELS[:200], users=users[:200])
    with pytest.raises(InvalidInput):
        one.partial_fit(POINTS[:8], LABELS[:8], users=users[:8])
    other = model(unit=unit).partial_fit(POINTS[196:], LABELS[196:], users=users[196:])
    with pytest.raises(InvalidInput):
        one.merge(other)
    rest = model(unit=unit).partial_fit(POINTS[200:], LABELS[200:], users=users[200:])
    one.merge(rest)
    with seeded_noise_for_tests_only(5):
        merged = one.release()
    with seeded_noise_for_tests_only(5):
        whole = model(unit=unit).fit(POINTS, LABELS, users=users)
    assert np.array_equal(merged.sums_.sums, whole.sums_.sums)


def test_a_refused_charge_keeps_what_was_counted(tmp_path: Path) -> None:
    ledger = dps.Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.create("web", epsilon=1.0, delta=1e-6, unit=dps.per_record())
    counted = model(ledger=ledger, dataset="web").partial_fit(POINTS, LABELS)
    with pytest.raises(BudgetExceeded):
        counted.release()
    counted.set_params(epsilon=0.5, delta=1e-7)
    assert counted.release().guarantee_.epsilon == 0.5
    assert counted.charge_ is not None


@pytest.mark.parametrize(
    "more",
    [
        *SETTINGS,
        {"bounds": (-1, 1), "rows": 40},
        {"bounds": (-1, 1), "kernel": "euclidean", "bandwidth": 2.0, "rows": 30},
    ],
    ids=lambda more: ", ".join(more) or "plain",
)
def test_a_fitted_classifier_is_one_file(more: dict[str, Any], tmp_path: Path) -> None:
    names = np.array(["a", "b", "c", "d"])
    fitted = model(**{**more, "classes": names}).fit(POINTS, names[LABELS])
    fitted.save(tmp_path / "model.dps")
    again = dps.DensityClassifier.load(tmp_path / "model.dps")
    assert again.guarantee_ == fitted.guarantee_
    assert np.array_equal(again.classes_, fitted.classes_)
    assert np.array_equal(again.predict(POINTS), fitted.predict(POINTS))
    assert np.array_equal(again.predict_proba(POINTS), fitted.predict_proba(POINTS))
    again.save(tmp_path / "again.dps")
    assert (tmp_path / "again.dps").read_bytes() == (tmp_path / "model.dps").read_bytes()
    with pytest.raises(InvalidInput):
        again.fit(POINTS, names[LABELS])  # it has no budget


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    sketch = dps.DensitySketch(kernel=dps.kernels.Linear(2), unit=dps.per_record())
    files.write(tmp_path / "d.dps", sketch.release(epsilon=1.0, delta=1e-6).to_document())
    with pytest.raises(FileRefused, match="no classifier"):
        dps.DensityClassifier.load(tmp_path / "d.dps")


def test_a_classifiers_file_is_told_from_those_of_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    model().fit(POINTS, LABELS).save(tmp_path / "m.dps")
    with pytest.raises(FileRefused, match=r"dps\.DensityClassifier\.load"):
        dps.load(tmp_path / "m.dps")
    monkeypatch.setattr("sys.argv", ["dpsketch", "inspect", str(tmp_path / "m.dps")])
    with pytest.raises(SystemExit):
        main()
    assert "DensityClassifier.load" in capfd.readouterr().err


def _sums(header: Any) -> Any:
    return header["receipts"][0]["laws"][0]


FORGED: dict[str, Any] = {
    "no labels": lambda header: header["spec"].update(labels=None),
    "one label": lambda header: header["spec"].update(labels=[1]),
    "labels of two types": lambda header: header["spec"].update(labels=[1, "2", 3, 4]),
    "labels that are lists": lambda header: header["spec"].update(labels=[[1], [2], [3], [4]]),
    "no noise": lambda header: _sums(header).update(noise=None),
    "less noise": lambda header: _sums(header)["noise"].update(sigma=1.0),
    "noise that is none": lambda header: _sums(header)["noise"].update(sigma=-1.0),
    "noise whose square is no double": lambda header: _sums(header)["noise"].update(sigma=1e200),
    "no coordinates": lambda header: header["spec"]["measured"].update(dim=0, kept=0),
    "fewer coordinates": lambda header: header["spec"]["measured"].update(kept=5),
    "coordinates by name": lambda header: header["spec"]["measured"].update(dim="12"),
    "coordinates without end": lambda header: header["spec"]["measured"].update(dim=10**9, kept=10**9),
    "a limit below 0": lambda header: header["spec"]["measured"].update(limit=-1),
    "another map": lambda header: header["spec"]["measured"].update(digest="0" * 64),
    "no map": lambda header: header["spec"]["measured"].update(digest=None, kept=12),
    "waves without end": lambda header: header["spec"]["extras"]["waves"].update(pairs=10**9),
    "waves of no width": lambda header: header["spec"]["extras"]["waves"].update(bandwidth=0.0),
    "waves with more": lambda header: header["spec"]["extras"]["waves"].update(more=1),
    "waves of other vectors": lambda header: header["spec"]["extras"]["waves"].update(dim=5),
    "no waves": lambda header: header["spec"]["extras"].update(waves=None),
    "later passes": lambda header: header["spec"]["extras"].update(passes=2),
    "bounds of other features": lambda header: header["spec"].update(bounds=[[0.0, 1.0]] * 3),
    "bounds by name": lambda header: header["spec"].update(bounds="wide"),
    "another unit": lambda header: header["spec"]["unit"].update(neighbours="replace"),
    "a guarantee": lambda header: header["guarantee"].update(epsilon=0.1),
}
FORGED_DENSITIES: dict[str, Any] = {
    "more classes": lambda header: header["spec"].update(labels=[0, 1, 2, 3, 4]),
    "a kernel of sums": lambda header: header["spec"]["density"].update(kernel={"type": "Linear", "dim": 12}),
    "a kernel of other features": lambda header: header["spec"]["density"]["kernel"].update(dim=5),
    "no bounds": lambda header: header["spec"].update(bounds=None),
    "bounds of other features": lambda header: header["spec"].update(bounds=[[0.0, 1.0]] * 3),
    "smoothing by name": lambda header: header["spec"].update(smoothing="much"),
    "smoothing below 0": lambda header: header["spec"].update(smoothing=-1.0),
    "a public centre": lambda header: header["spec"].update(centre=[0.0] * 12),
    "a law of one class": lambda header: _sums(header).update(type="Additive"),
    "a guarantee": lambda header: header["guarantee"].update(epsilon=0.1),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, files.Document]:
    """Files of both forms: with all that sums have beside them, and of densities."""
    found, path = {}, tmp_path_factory.mktemp("saved") / "m.dps"
    for form, more in (
        ("sums", {"public": POINTS[:50], "expected_records": 1e6}),
        ("densities", {"bounds": (-1, 1), "rows": 20}),
    ):
        model(**more).fit(POINTS, LABELS).save(path)
        found[form] = files.read(path, allow_sensitive=False)
    return found


@pytest.mark.parametrize(
    ("form", "name"), [*(("sums", name) for name in FORGED), *(("densities", name) for name in FORGED_DENSITIES)]
)
def test_a_forged_file_is_refused_before_anything_is_made_of_it(
    form: str, name: str, saved: dict[str, files.Document], tmp_path: Path
) -> None:
    found = saved[form]
    header = copy.deepcopy(found.header)
    {"sums": FORGED, "densities": FORGED_DENSITIES}[form][name](header)
    assert header != found.header
    files.write(tmp_path / "w.dps", files.Document(found.kind, False, header, found.arrays))
    with pytest.raises(FileRefused):
        dps.DensityClassifier.load(tmp_path / "w.dps")


@pytest.mark.parametrize("array", ["mean", "directions"])
def test_forged_directions_are_refused(array: str, saved: dict[str, files.Document], tmp_path: Path) -> None:
    """Beyond 2⁵³ sums of products would be rounded: what a record adds would follow the batch."""
    found, name = saved["sums"], f"map__{array}"
    for much in (1 << 40, -(1 << 40), -(1 << 63)):
        arrays: dict[str, Any] = {**found.arrays, name: found.arrays[name].copy()}
        arrays[name].flat[0] = much
        header = copy.deepcopy(found.header)
        digest = hashlib.sha256(b"".join(arrays[f"map__{each}"].tobytes() for each in ("mean", "directions")))
        header["spec"]["measured"]["digest"] = digest.hexdigest()
        files.write(tmp_path / "w.dps", files.Document(found.kind, False, header, arrays))
        with pytest.raises(FileRefused):
            dps.DensityClassifier.load(tmp_path / "w.dps")


def test_directions_of_another_shape_are_refused(saved: dict[str, files.Document], tmp_path: Path) -> None:
    """Of the same bytes, and so of the same digest."""
    found = saved["sums"]
    mean, directions = (np.asarray(found.arrays[f"map__{each}"]) for each in ("mean", "directions"))
    longer, rest = np.concatenate([mean, directions[0]]), directions[1:]
    arrays = {**found.arrays, "map__mean": longer, "map__directions": rest}
    files.write(tmp_path / "w.dps", files.Document(found.kind, False, found.header, arrays))
    with pytest.raises(FileRefused):
        dps.DensityClassifier.load(tmp_path / "w.dps")


def test_the_density_of_a_class_is_saved_with_its_classifier(tmp_path: Path) -> None:
    fitted = model(bounds=(-1, 1), rows=20).fit(POINTS, LABELS)
    with pytest.raises(InvalidInput, match="save the whole"):
        fitted.densities_[0].save(tmp_path / "d.dps")


@pytest.mark.parametrize("seed", [np.int64(3), np.uint8(3), 3])
def test_waves_of_a_numpy_seed_are_written(seed: Any, tmp_path: Path) -> None:
    """A fit is paid for before it is written: what cannot be written is lost."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 2
    model = dps.DensityClassifier(epsilon=8.0, delta=1e-6, classes=[0, 1], expected_records=1e6, seed=seed).fit(X, y)
    assert model.sums_.waves is not None
    model.save(tmp_path / "model.dps")
    again = dps.DensityClassifier.load(tmp_path / "model.dps")
    assert again.sums_.waves == model.sums_.waves
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_vectors_as_they_come(tmp_path: Path) -> None:
    """Half precision, Arrow's fixed lists of it, a Parquet file of them and polars' arrays are counted alike."""
    rng = np.random.default_rng(7)
    half, labels = rng.normal(size=(30, 4)).astype(np.float16), np.arange(30) % 2
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(half.ravel()), 4)
    pa.parquet.write_table(pa.table({"vector": fixed, "label": labels}), tmp_path / "vectors.parquet")
    stored = pa.parquet.read_table(tmp_path / "vectors.parquet")
    series = pl.Series(half.astype(np.float32), dtype=pl.Array(pl.Float32, 4))
    found = []
    for vectors in (
        half.astype(np.float64),
        half,
        fixed,
        pa.chunked_array([fixed[:7], fixed[7:]]),
        stored["vector"],
        series,
    ):
        with seeded_noise_for_tests_only(3):
            model = dps.DensityClassifier(epsilon=1.0, delta=1e-5, classes=[0, 1])
            found.append(model.partial_fit(vectors, labels).release())
        assert np.array_equal(found[-1].sums_.sums, found[0].sums_.sums)
        assert np.array_equal(found[-1].predict(vectors), found[0].predict(half))
    missing = pa.array([None, [1.0, 0.0, 0.0, 0.0]], fixed.type)
    with pytest.raises(ValueError, match="NaN"):
        dps.DensityClassifier(epsilon=1.0, delta=1e-5, classes=[0, 1]).fit(missing, [0, 1])
