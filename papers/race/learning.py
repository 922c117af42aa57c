"""Classification and regression from sketches, as published and with dpsketch's defaults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

import dpsketch as dps

from . import regression
from .measuring import DEFAULT, GAUSSIAN, NONPRIVATE, PUBLISHED, PURE
from .published import classify

Floats = npt.NDArray[np.float64]

FEW, MANY = 20, 800
MANY_ROWS = f"Laplace, as published, {MANY} rows"
LOSS_ALONE = "the loss itself, no sketch and no noise"
PAIRED_LAPLACE = "paired, descent, Laplace (δ = 0)"
PAIRED_GAUSSIAN = "paired, descent, Gaussian (δ = 1e-6)"
ONCE = "counted once, surfaces, Gaussian (δ = 1e-6)"
DELTA = 1e-5  # of the classifiers: there are fewer than 10⁵ records


def digit_scores(epsilons: Sequence[float], seeds: Iterable[int]) -> dict[str, list[float]]:
    """Return the share of digits that are right at each ε: FEW rows for pure ε, MANY otherwise.

    The published form is given a good origin by hand, .3 of a pixel's range; dpsketch finds its own, privately.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    pixels, labels = data.data / 16 - 0.3, data.target
    forms = {NONPRIVATE: (MANY, 0.0), PUBLISHED: (FEW, 0.0), MANY_ROWS: (MANY, 0.0), GAUSSIAN: (MANY, DELTA)}
    ours = {PURE: {"rows": FEW, "delta": 0.0}, DEFAULT: {"rows": MANY, "delta": DELTA}}
    scores: dict[str, list[list[float]]] = {name: [[] for _ in epsilons] for name in (*forms, *ours)}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(labels))
        test, train = order[: len(order) * 3 // 10], order[len(order) * 3 // 10 :]
        for place, epsilon in enumerate(epsilons):
            for name, (rows, delta) in forms.items():
                budget = np.inf if name == NONPRIVATE else epsilon
                if name == NONPRIVATE and place:
                    scores[name][place].append(scores[name][0][-1])
                    continue
                guess = classify(
                    pixels[train], labels[train], pixels[test], rows=rows, epsilon=budget, delta=delta, seed=seed
                )
                scores[name][place].append(float(np.mean(guess == labels[test])))
            for name, parameters in ours.items():
                model = dps.DensityClassifier(
                    epsilon=epsilon, bounds=(0, 16), classes=range(10), seed=seed, **parameters
                )
                scores[name][place].append(
                    model.fit(data.data[train], labels[train]).score(data.data[test], labels[test])
                )
    return {name: [float(np.mean(one)) for one in found] for name, found in scores.items()}


def skin_scores(path: Path, epsilon: float, seeds: Iterable[int]) -> dict[str, float]:
    """Return the share of skin's test points that are right, 200 rows; the file's colours are standardised."""
    data = np.load(path)
    X, y = data["X"].astype(np.float64), data["y"].astype(np.int64)
    scores: dict[str, list[float]] = {PUBLISHED: [], DEFAULT: []}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(X))
        test, train = order[:20_000], order[len(order) * 3 // 10 :]
        guess = classify(X[train], y[train], X[test], rows=200, epsilon=epsilon, seed=seed)
        scores[PUBLISHED].append(float(np.mean(guess == y[test])))
        model = dps.DensityClassifier(
            epsilon=epsilon,
            delta=DELTA / 10,
            bounds=(-2.5, 2.5),
            classes=[0, 1],
            kernel="euclidean",
            bandwidth=0.2,
            power=3,
            rows=200,
            seed=seed,
        )
        scores[DEFAULT].append(model.fit(X[train], y[train]).score(X[test], y[test]))
    return {name: float(np.mean(one)) for name, one in scores.items()}


def regression_errors(rows: int, seeds: Sequence[int]) -> dict[str, float]:
    """Return the mean square error of linear fits to 20,000 made records in five dimensions, at ε = 1."""
    rng = np.random.default_rng(3)
    features = rng.uniform(-1, 1, size=(20_000, 5))
    target = features @ np.array([0.5, -0.3, 0.2, 0.0, 0.4]) + 0.1 * rng.normal(size=len(features))
    vectors = regression.records(features, target)
    least = np.linalg.lstsq(vectors[:, :-1], target, rcond=None)[0]
    found = {
        "least squares, not private": [regression.mean_square_error(features, target, least)],
        "always 0": [float(np.mean(target**2))],
        LOSS_ALONE: [regression.mean_square_error(features, target, regression.fit_exactly(vectors))],
    }
    forms = {
        PAIRED_LAPLACE: (regression.paired_loss, regression.descend, 0.0),
        PAIRED_GAUSSIAN: (regression.paired_loss, regression.descend, 1e-6),
        "paired, surfaces, Gaussian (δ = 1e-6)": (regression.paired_loss, regression.fit_surfaces, 1e-6),
        ONCE: (regression.single_loss, regression.fit_surfaces, 1e-6),
    }
    for name, (make, fit, delta) in forms.items():
        for seed in seeds:
            loss = make(vectors, rows, seed=seed, epsilon=1.0, delta=delta)
            coefficients = fit(loss, vectors.shape[1], np.random.default_rng(seed))
            found.setdefault(name, []).append(regression.mean_square_error(features, target, coefficients))
    return {name: float(np.mean(one)) for name, one in found.items()}
