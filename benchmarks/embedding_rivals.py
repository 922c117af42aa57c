"""What embeddings are classified by elsewhere: gradient descent with noise, Fourier features with noise, diffprivlib.

Each takes training and test vectors with their classes, ε and the number of the draw, and returns its accuracy. Noise
of the first two is continuous and from a seed: they are here to be compared with.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.peers import run_peer
from dpsketch.accounting import gaussian_mu

__all__ = [
    "DELTA",
    "PASSES",
    "Data",
    "diffprivlib",
    "gradient_descent",
    "locality_sensitive_quantisation",
    "noisy_gradients",
]

Data = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]

DELTA = 1e-5
PASSES = {0.5: 10, 1.0: 20, 3.0: 50, 8.0: 100}
_RATE = 1.0  # beside classes over records; the best of 0.3, 1 and 2.5 on CLINC150


def gradient_descent(data: Data, epsilon: float, draw: int) -> float:
    """Return the accuracy of logistic regression by noisy gradients: DP-SGD whose every batch is all records."""
    rate = _RATE * (int(data[1].max()) + 1) / len(data[0])
    return noisy_gradients(data, epsilon, draw, PASSES[epsilon], rate)[0]


def noisy_gradients(data: Data, epsilon: float, draw: int, passes: int, rate: float) -> tuple[float, float]:
    """Return the accuracy of the last weights, and that of the mean of all steps' weights.

    A record's gradient is clipped to 1; so many passes have noise of √passes times one release's, which is exact for
    Gaussian noise.
    """
    X, y, Z, u = (each.astype(np.float32) if each.ndim == 2 else each for each in data)
    sigma = math.sqrt(passes) / gaussian_mu(epsilon, DELTA)
    rng = np.random.default_rng(draw)
    weights = np.zeros((int(y.max()) + 1, X.shape[1]), np.float32)
    total = np.zeros_like(weights)
    for _ in range(passes):
        shares = X @ weights.T
        shares -= shares.max(axis=1, keepdims=True)
        np.exp(shares, out=shares)
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(y)), y] -= 1
        shares /= np.maximum(1, np.linalg.norm(shares, axis=1, keepdims=True))
        noise = rng.standard_normal(weights.shape, np.float32) * np.float32(sigma)
        weights -= np.float32(rate) * (shares.T @ X + noise)
        total += weights
    last, mean = (float(np.mean((Z @ each.T).argmax(axis=1) == u)) for each in (weights, total))
    return last, mean


def locality_sensitive_quantisation(features: int, *, pure: bool) -> Callable[[Data, float, int], float]:
    """Return the accuracy by kernel sums of random Fourier features, as Wagner, Naamad and Mishra (2023) release them.

    √(2/I)·cos(ω·x + β) for I waves, of bandwidth 0.5; the class is that of the largest kernel sum. Pure ε has Laplace
    noise for a sum of sizes of √(2I), δ > 0 Gaussian noise for a length of √2.
    """

    def accuracy(data: Data, epsilon: float, draw: int) -> float:
        X, y, Z, u = data
        rng = np.random.default_rng(draw)
        waves = (rng.normal(size=(X.shape[1], features)) / 0.5).astype(np.float32)
        starts = rng.uniform(0, 2 * math.pi, features).astype(np.float32)

        def mapped(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
            return np.sqrt(np.float32(2 / features)) * np.cos(points.astype(np.float32) @ waves + starts)

        sums = np.zeros((int(y.max()) + 1, features))
        for start in range(0, len(X), 1024):
            own = np.eye(len(sums), dtype=np.float32)[y[start : start + 1024]]
            sums += own.T @ mapped(X[start : start + 1024])
        if pure:
            sums += rng.laplace(scale=math.sqrt(2 * features) / epsilon, size=sums.shape)
        else:
            sums += rng.normal(scale=math.sqrt(2) / gaussian_mu(epsilon, DELTA), size=sums.shape)
        found = [(mapped(Z[s : s + 1024]) @ sums.T).argmax(axis=1) for s in range(0, len(Z), 1024)]
        return float(np.mean(np.concatenate(found) == u))

    return accuracy


# With a thread for every core, small products wait for one another: a fit took minutes instead of seconds.
_DIFFPRIVLIB = """
import json, os, warnings
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
warnings.simplefilter("ignore")
from diffprivlib.models import GaussianNB, LogisticRegression, RandomForestClassifier
stored = np.load({path!r})
X, y, Z, u = (stored[name] for name in "XyZu")
bounds = (np.full(X.shape[1], -0.25), np.full(X.shape[1], 0.25))
name, epsilon = {name!r}, {epsilon}
if name == "naive Bayes":
    model = GaussianNB(epsilon=epsilon, bounds=bounds)
elif name == "logistic regression":
    model = LogisticRegression(epsilon=epsilon, data_norm=1.0, max_iter=20)
else:
    model = RandomForestClassifier(epsilon=epsilon, bounds=bounds, classes=np.unique(y).tolist(), n_estimators=10)
if name != "logistic regression":
    X, Z = np.clip(X, *bounds), np.clip(Z, *bounds)
print(json.dumps(float((model.fit(X, y).predict(Z) == u).mean())))
"""


def diffprivlib(name: str) -> Callable[[Data, float, int], float]:
    """Return the accuracy of a classifier of diffprivlib, in an environment of its own; pure ε, bounds of ±1/4."""

    def accuracy(data: Data, epsilon: float, draw: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data.npz"
            np.savez(path, X=data[0], y=data[1], Z=data[2], u=data[3])
            code = _DIFFPRIVLIB.format(path=str(path), name=name, epsilon=epsilon)
            return float(run_peer(code, "diffprivlib"))

    return accuracy
