"""Classes of real sentence embeddings: accuracy of every form that is shipped, beside what it replaces and rivals.

``python -m benchmarks.embeddings [--draws 5] [--only NAME] [--write]`` prints a table, and writes it into the page of
explanations. Every form of ours is fitted through ``DensityClassifier.fit`` with the noise of a release, at the default
settings. The public vectors are those of the other dataset.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from benchmarks.peers import ROOT, run_peer
from dpsketch.accounting import gaussian_mu

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Data = tuple[Floats, Labels, Floats, Labels]

EPSILONS = (0.5, 1.0, 3.0, 8.0)
DELTA = 1e-5
NAMES = {"banking77": "Banking77", "clinc150": "CLINC150"}
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "embeddings.md"
START, END = "<!-- table: python -m benchmarks.embeddings --write -->", "<!-- end of table -->"


def load(name: str) -> Data:
    """Return training and test vectors, of length 1, with their classes."""
    home = os.environ.get("DPSKETCH_DATA")
    if home is None:
        raise SystemExit("set DPSKETCH_DATA to a folder with embeddings/banking77_minilm.npz and clinc150_minilm.npz.")
    with np.load(Path(home) / "embeddings" / f"{name}_minilm.npz") as found:
        vectors = [found[f"X_{split}"].astype(np.float64) for split in ("train", "test")]
        labels = [found[f"y_{split}"].astype(np.int64) for split in ("train", "test")]
    train, test = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors)
    return train, labels[0], test, labels[1]


def ours(**options: Any) -> Callable[[Data, Data, float, int], float]:
    """Return the accuracy of a form of DensityClassifier; ``public`` and ``records`` say what it is told."""

    def accuracy(data: Data, other: Data, epsilon: float, draw: int) -> float:
        given = {"delta": DELTA, **options}
        if given.pop("public", False):
            given["public"] = other[0]
        if given.pop("records", False):
            given["expected_records"] = len(data[0])
        model = dps.DensityClassifier(epsilon=epsilon, classes=range(int(data[1].max()) + 1), **given)
        return model.fit(data[0], data[1]).score(data[2], data[3])

    return accuracy


def plain_sums(data: Data, other: Data, epsilon: float, draw: int) -> float:
    """Return the accuracy of the largest inner product with the same noisy sums, without the score."""
    model = dps.DensityClassifier(epsilon=epsilon, delta=DELTA, classes=range(int(data[1].max()) + 1))
    sums = model.fit(data[0], data[1]).kernel_sums(data[2])
    return float(np.mean(sums.argmax(axis=1) == data[3]))


def gradient_descent(data: Data, other: Data, epsilon: float, draw: int) -> float:
    """Return the accuracy of logistic regression by noisy gradients over several passes.

    Per-record gradients are clipped to 1, and the noise is of √passes times one release's; continuous, and from a
    seed. Passes and rate are those of a few trials, and not tuned.
    """
    X, y, Z, u = data
    classes = int(y.max()) + 1
    passes = {0.5: 10, 1.0: 20, 3.0: 50, 8.0: 100}[epsilon]
    sigma = math.sqrt(passes) / gaussian_mu(epsilon, DELTA)
    rng = np.random.default_rng(draw)
    weights = np.zeros((classes, X.shape[1]))
    rate = 40.0 / len(X)
    target = np.eye(classes)[y]
    for _ in range(passes):
        logits = 10 * X @ weights.T
        logits -= logits.max(axis=1, keepdims=True)
        shares = np.exp(logits)
        shares /= shares.sum(axis=1, keepdims=True)
        errors = shares - target
        clipped = errors / np.maximum(1, np.linalg.norm(errors, axis=1, keepdims=True))
        weights -= rate * (clipped.T @ X + sigma * rng.normal(size=weights.shape))
    return float(np.mean((Z @ weights.T).argmax(axis=1) == u))


DIFFPRIVLIB = """
import json, warnings
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
    model = LogisticRegression(epsilon=epsilon, data_norm=1.0, max_iter=100)
else:
    model = RandomForestClassifier(epsilon=epsilon, bounds=bounds, classes=np.unique(y).tolist(), n_estimators=10)
if name != "logistic regression":
    X, Z = np.clip(X, *bounds), np.clip(Z, *bounds)
print(json.dumps(float((model.fit(X, y).predict(Z) == u).mean())))
"""


def diffprivlib(name: str) -> Callable[[Data, Data, float, int], float]:
    """Return the accuracy of a classifier of diffprivlib, in an environment of its own; pure ε, bounds of ±1/4."""

    def accuracy(data: Data, other: Data, epsilon: float, draw: int) -> float:
        python = os.environ.get("DPSKETCH_DIFFPRIVLIB_PYTHON") or str(ROOT / ".venv-diffprivlib" / "bin" / "python")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data.npz"
            np.savez(path, X=data[0], y=data[1], Z=data[2], u=data[3])
            with mock.patch.dict(os.environ, DPSKETCH_PEERS_PYTHON=python):
                return float(run_peer(DIFFPRIVLIB.format(path=str(path), name=name, epsilon=epsilon)))

    return accuracy


FORMS: dict[str, Callable[[Data, Data, float, int], float]] = {
    "**linear**, the default": ours(),
    "**linear**, `public=`": ours(public=True),
    "**linear**, `public=`, `expected_records=`": ours(public=True, records=True),
    "linear, `expected_records=`": ours(records=True),
    "linear, pure ε, `expected_records=`": ours(delta=0, records=True),
    "linear, pure ε, `public=`, `expected_records=`": ours(delta=0, public=True, records=True),
    "largest inner product with the same sums": plain_sums,
    "angular, 1,000 rows": ours(kernel="angular", bounds=(-0.25, 0.25), rows=1000, power=2),
    "noisy gradient descent, 10–100 passes": gradient_descent,
    "diffprivlib, naive Bayes (pure ε)": diffprivlib("naive Bayes"),
    "diffprivlib, random forest (pure ε)": diffprivlib("random forest"),
    "diffprivlib, logistic regression (pure ε)": diffprivlib("logistic regression"),
}
ONCE = ("angular", "diffprivlib")  # too slow for several draws


def measure(draws: int, only: str) -> dict[tuple[str, str, float], tuple[float, float]]:
    """Return mean and standard deviation of each form's accuracy."""
    data = {name: load(name) for name in NAMES}
    found = {}
    for name in NAMES:
        (other,) = (each for each in NAMES if each != name)
        for form, accuracy in FORMS.items():
            if only not in form:
                continue
            times = 1 if form.startswith(ONCE) else draws
            started = time.perf_counter()
            for epsilon in EPSILONS:
                seen = [accuracy(data[name], data[other], epsilon, draw) for draw in range(times)]
                found[name, form, epsilon] = float(np.mean(seen)), float(np.std(seen))
            shown = " / ".join(f"{found[name, form, epsilon][0]:.3f}" for epsilon in EPSILONS)
            print(f"{NAMES[name]}: {form}: {shown} ({time.perf_counter() - started:.0f} s)", flush=True)
    return found


def table(found: dict[tuple[str, str, float], tuple[float, float]], draws: int, before: str) -> str:
    """Return the table in Markdown; forms that were not measured keep their line of before."""
    earlier = {line.split(" | ")[0].removeprefix("| "): line for line in before.splitlines() if line.startswith("| ")}
    head = ["accuracy", *(f"{label} ε={epsilon:g}" for label in NAMES.values() for epsilon in EPSILONS)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for form in FORMS:
        if (next(iter(NAMES)), form, EPSILONS[0]) not in found:
            lines += [earlier[form]] if form in earlier else []
            continue
        cells = [f"{found[name, form, epsilon][0]:.3f}" for name in NAMES for epsilon in EPSILONS]
        lines.append(f"| {form} | " + " | ".join(cells) + " |")
    spread = max(deviation for _, deviation in found.values())
    lines.append("")
    lines.append(
        f"Means of {draws} draws of the noise (the angular kernel and diffprivlib: one), δ = 10⁻⁵ but for pure ε; no "
        f"standard deviation over draws is above {max(spread, 0.021):.3f}."
    )
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draws", type=int, default=5)
    options.add_argument("--write", action="store_true")
    options.add_argument("--only", default="", help="measure forms with this in their name alone")
    asked = options.parse_args()
    made = table(measure(asked.draws, asked.only), asked.draws, PAGE.read_text())
    print(made)
    if asked.write:
        page = PAGE.read_text()
        before, after = page.split(START)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{START}\n{made}\n{END}{after}")


if __name__ == "__main__":
    main()
