"""Densities and classification, beside DataSketches, NumPy and diffprivlib.

*Throughput*: 10⁶ points of 10 dimensions into 100 rows, on one core, against the same table in plain NumPy and against
DataSketches' ``density_sketch``, which takes one point a call.

*Accuracy* at ε = 1, the share of test points that are right, on 70/30 splits. Ours has δ = 1e-5, by Gaussian noise, or
δ = 0, by Laplace noise with few rows; diffprivlib's naive Bayes, logistic regression and random forest have δ = 0, and
the best of the three is shown. The non-private classifier is scikit-learn's ``KernelDensity``, one a class, times the
class's size. Everybody gets the same bounds: pixels 0 to 16 for the digits; for breast_cancer the minima and maxima
that scikit-learn's description of it publishes; −2.5 to 2.5 for skin, whose file has standardised colours; −150 to 150
for every sensor of shuttle. Skin and shuttle are read from ``$DPSKETCH_DATA`` and left out without it.

diffprivlib's interpreter is ``$DPSKETCH_DIFFPRIVLIB_PYTHON``, by default ``.venv-diffprivlib/bin/python`` at the root
of the project.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from benchmarks.peers import ROOT, run_peer
from dpsketch import kernels
from dpsketch.privacy import per_record
from dpsketch.sketches.density import DensityClassifier, DensitySketch
from dpsketch.sketches.density.functions import row_functions

POINTS, DIM, ROWS, WIDTH = 1_000_000, 10, 100, 256
PEER_POINTS = 3_000  # its rate does not depend on how many there are
SPLITS = 3
SEEDS = 20  # of the small datasets

Floats = npt.NDArray[np.float64]

DATASKETCHES = f"""
import json, time
import numpy as np
from datasketches import GaussianKernel, density_sketch
points = np.random.default_rng(1).normal(size=({PEER_POINTS}, {DIM}))
sketch = density_sketch(100, {DIM}, GaussianKernel())
start = time.perf_counter()
for point in points:
    sketch.update(point)
print(json.dumps({PEER_POINTS} / (time.perf_counter() - start)))
"""

DIFFPRIVLIB = """
import json, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
from diffprivlib.models import GaussianNB, LogisticRegression, RandomForestClassifier
stored = np.load({path!r})
lows, highs, classes = stored["lows"], stored["highs"], np.unique(stored["y"]).tolist()
X, y = np.clip(stored["X"], lows, highs), stored["y"]
scaled = (X - (lows + highs) / 2) / ((highs - lows) / 2)
bounds = (-np.ones(X.shape[1]), np.ones(X.shape[1]))
scores = {{"naive Bayes": [], "logistic regression": [], "random forest": []}}
for seed in range({splits}):
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = order[: len(X) * 3 // 10], order[len(X) * 3 // 10 :]
    models = {{
        "naive Bayes": GaussianNB(epsilon=1.0, bounds=bounds),
        "logistic regression": LogisticRegression(epsilon=1.0, data_norm=float(X.shape[1]) ** 0.5),
        "random forest": RandomForestClassifier(epsilon=1.0, bounds=bounds, classes=classes, n_estimators=10),
    }}
    for name, model in models.items():
        scores[name].append(float((model.fit(scaled[train], y[train]).predict(scaled[test]) == y[test]).mean()))
print(json.dumps({{name: float(np.mean(values)) for name, values in scores.items()}}))
"""


@dataclass(frozen=True)
class Dataset:
    """Records, their classes, public bounds, and the parameters of our two classifiers."""

    name: str
    X: Floats
    y: npt.NDArray[np.int64]
    bounds: list[tuple[float, float]]
    gaussian: dict[str, Any]
    laplace: dict[str, Any]
    splits: int = SPLITS
    wide: float = 0.1  # the bandwidth of the non-private density, in halves of a feature's range


def run() -> list[dict[str, Any]]:
    """Return the rows of the table."""
    rows = throughput()
    for dataset in datasets():
        rows += accuracy(dataset)
    return rows


def throughput() -> list[dict[str, Any]]:
    points = np.random.default_rng(1).normal(size=(POINTS, DIM))
    kernel = kernels.Euclidean(DIM, 2.0)
    ours = best(lambda: DensitySketch(kernel=kernel, rows=ROWS, unit=per_record(), width=WIDTH).update(points))
    few = points[: POINTS // 10]
    numpy_seconds = 10 * best(lambda: plain_numpy(few, kernel))
    name = f"update, {DIM} dimensions, {ROWS} rows"
    return [
        ratio(f"{name}; NumPy", POINTS / ours, POINTS / numpy_seconds, "points/s"),
        ratio(f"{name}; DataSketches", POINTS / ours, run_peer(DATASKETCHES), "points/s"),
    ]


def best(call: Any, repetitions: int = 3) -> float:
    """Return the least seconds of a few calls, after one to warm up."""
    call()
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def plain_numpy(points: Floats, kernel: kernels.Euclidean) -> npt.NDArray[np.int64]:
    functions = row_functions(kernel, ROWS, 1)
    codes = np.floor(points / kernel.bandwidth @ functions.matrices[0] + functions.offsets[0]).astype(np.int64) % WIDTH
    return np.stack([np.bincount(codes[:, row], minlength=WIDTH) for row in range(ROWS)])


def datasets() -> list[Dataset]:
    from sklearn.datasets import load_breast_cancer, load_digits

    digits, cancer = load_digits(), load_breast_cancer()
    limits = [
        (float(found[1]), float(found[2]))
        for line in cancer.DESCR.splitlines()
        if (found := re.search(r"\((?:mean|standard error|worst)\): +([\d.]+) +([\d.]+)", line))
    ]
    result = [
        Dataset(
            "digits",
            digits.data,
            digits.target,
            [(0.0, 16.0)] * 64,
            {"rows": 800, "power": 4},
            {"rows": 20, "power": 4},
            SEEDS,
            wide=0.5,
        ),
        Dataset(
            "breast_cancer",
            cancer.data,
            cancer.target,
            limits,
            {"rows": 800, "power": 4},
            {"rows": 20, "power": 4},
            SEEDS,
            wide=0.2,
        ),
    ]
    folder = os.environ.get("DPSKETCH_DATA")
    if not folder:
        print("skin and shuttle are left out: DPSKETCH_DATA is not set", file=sys.stderr)
        return result
    for name, file, limit, parameters in (
        ("skin", "33_skin.npz", 2.5, {"kernel": "euclidean", "bandwidth": 0.2, "power": 3}),
        ("shuttle", "32_shuttle.npz", 150.0, {"kernel": "manhattan", "bandwidth": 0.5, "power": 5}),
    ):
        data = np.load(Path(folder) / "kde" / file)
        X = data["X"].astype(np.float64)
        bounds = [(-limit, limit)] * X.shape[1]
        few, many = {"rows": 100, **parameters}, {"rows": 200, **parameters}
        result.append(Dataset(name, X, data["y"].astype(np.int64), bounds, many, few, wide=0.05))
    return result


def accuracy(dataset: Dataset) -> list[dict[str, Any]]:
    gaussian = mean_score(dataset, lambda seed: ours(dataset, seed, delta=1e-5, **dataset.gaussian))
    laplace = mean_score(dataset, lambda seed: ours(dataset, seed, delta=0.0, **dataset.laplace))
    noiseless = mean_score(dataset, lambda _: NonPrivate(dataset))
    peer = diffprivlib(dataset)
    name = max(peer, key=lambda key: peer[key])
    return [
        ratio(f"{dataset.name}, δ = 1e-5; diffprivlib's {name}, δ = 0", gaussian, peer[name], "right"),
        ratio(f"{dataset.name}, δ = 0; diffprivlib's {name}, δ = 0", laplace, peer[name], "right"),
        ratio(f"{dataset.name}, δ = 1e-5; a density without privacy", gaussian, noiseless, "right"),
    ]


def ratio(name: str, ours: float, theirs: float, unit: str) -> dict[str, Any]:
    return {"name": name, "ours": ours, "theirs": theirs, "ratio": ours / theirs, "unit": unit}


def ours(dataset: Dataset, seed: int, **parameters: Any) -> DensityClassifier:
    classes = np.unique(dataset.y)
    return DensityClassifier(epsilon=1.0, bounds=dataset.bounds, classes=classes, seed=seed, **parameters)


def mean_score(dataset: Dataset, make: Any) -> float:
    scores = []
    for seed in range(dataset.splits):
        order = np.random.default_rng(seed).permutation(len(dataset.X))
        test, train = order[: len(order) * 3 // 10], order[len(order) * 3 // 10 :]
        scores.append(make(seed).fit(dataset.X[train], dataset.y[train]).score(dataset.X[test], dataset.y[test]))
    return float(np.mean(scores))


class NonPrivate:
    """A Gaussian kernel density a class, times the class's size; at most 20,000 records and 2,000 test points."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def scaled(self, X: Floats) -> Floats:
        """Move features into their bounds, and those to [−1, 1]."""
        lows, highs = np.array(self.dataset.bounds).T
        return (np.clip(X, lows, highs) - (lows + highs) / 2) / ((highs - lows) / 2)

    def fit(self, X: Floats, y: npt.NDArray[np.int64]) -> NonPrivate:
        """Fit a density to each class."""
        from sklearn.neighbors import KernelDensity

        X, y = self.scaled(X[:20_000]), y[:20_000]
        self.classes = np.unique(y)
        self.models = [KernelDensity(bandwidth=self.dataset.wide).fit(X[y == label]) for label in self.classes]
        self.sizes = np.log([np.sum(y == label) for label in self.classes])
        return self

    def score(self, X: Floats, y: npt.NDArray[np.int64]) -> float:
        """Return the share of points that are right."""
        X, y = self.scaled(X[:2000]), y[:2000]
        logs = np.stack([model.score_samples(X) for model in self.models], axis=1) + self.sizes
        return float(np.mean(self.classes[logs.argmax(axis=1)] == y))


def diffprivlib(dataset: Dataset) -> dict[str, float]:
    """Run diffprivlib's classifiers with their own interpreter."""
    python = os.environ.get("DPSKETCH_DIFFPRIVLIB_PYTHON") or str(ROOT / ".venv-diffprivlib" / "bin" / "python")
    lows, highs = np.array(dataset.bounds).T
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, DPSKETCH_PEERS_PYTHON=python):
        path = str(Path(folder) / "data.npz")
        np.savez(path, X=dataset.X, y=dataset.y, lows=lows, highs=highs)
        scores: dict[str, float] = run_peer(DIFFPRIVLIB.format(path=path, splits=dataset.splits))
        return scores
