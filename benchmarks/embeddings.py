"""Classes of real sentence embeddings: accuracy of every form that is shipped, beside what it replaces and rivals.

``python -m benchmarks.embeddings [--only NAME]`` measures, on two data sets at four ε, and keeps what it found in
``results/embeddings.json``. ``--compare`` measures in one run what is compared: the rule's form, later passes, RACE,
Fourier features as others release them, gradient descent and diffprivlib's classifiers. Each is drawn five times, RACE
three times and diffprivlib, which is far from the others, once.
``--quick`` draws everything once at one ε and keeps nothing. ``--write`` writes the tables of the page of explanations
from what was kept, and measures nothing.

Every form of ours is fitted through ``DensityClassifier.fit``, or the release that it makes, with the noise of a
release. The public vectors are those of the other data set. The form that the rule chooses is drawn so often that no
mean is off by more than about .001; forms that take long are drawn three times. diffprivlib needs
``make .venv-diffprivlib/stamp``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from benchmarks import page
from benchmarks.embedding_rivals import (
    DELTA,
    Data,
    diffprivlib,
    gradient_descent,
    locality_sensitive_quantisation,
)
from dpsketch.core.account import Account
from dpsketch.privacy import Budget
from dpsketch.sketches.density.class_spec import ClassSpec, Extras, embedding_map
from dpsketch.sketches.density.class_sums import ClassPartial

Accuracy = Callable[[Data, Data, float, int], float]
Found = dict[str, dict[str, dict[str, dict[str, float]]]]

EPSILONS = (0.5, 1.0, 3.0, 8.0)
NAMES = {"banking77": "Banking77", "clinc150": "CLINC150"}
CLASSES = {"banking77": 77, "clinc150": 150}
STORED = Path(__file__).parent / "results" / "embeddings.json"
COMPARED = Path(__file__).parent / "results" / "embedding_rivals.json"
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "embeddings.md"
START, END = "<!-- table: python -m benchmarks.embeddings --write -->", "<!-- end of table -->"
RIVALS_START, RIVALS_END = "<!-- rivals: python -m benchmarks.embeddings --write -->", "<!-- end of rivals -->"


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


def ours(**options: Any) -> Accuracy:
    """Return the accuracy of a form of DensityClassifier; ``public`` and ``records`` say what it is told."""

    def accuracy(data: Data, other: Data, epsilon: float, draw: int) -> float:
        return fitted(data, other, epsilon, **options).score(data[2], data[3])

    return accuracy


def fitted(data: Data, other: Data, epsilon: float, **options: Any) -> dps.DensityClassifier:
    """Return a classifier that was told what the options say."""
    given = {"delta": DELTA, **options}
    if given.pop("public", False):
        given["public"] = other[0]
    if given.pop("centred", False):
        given["centre"] = other[0].mean(axis=0)
    if given.pop("records", False):
        given["expected_records"] = len(data[0])
    model = dps.DensityClassifier(epsilon=epsilon, classes=range(int(data[1].max()) + 1), **given)
    return model.fit(data[0], data[1])


def largest_sum(**options: Any) -> Accuracy:
    """Return the accuracy of the largest kernel sum of the same release, without the score."""

    def accuracy(data: Data, other: Data, epsilon: float, draw: int) -> float:
        sums: npt.NDArray[np.float64] = fitted(data, other, epsilon, **options).kernel_sums(data[2])
        return float(np.mean(sums.argmax(axis=1) == data[3]))

    return accuracy


def pure_in(kept: dict[str, tuple[int, ...]]) -> Accuracy:
    """Return the accuracy of pure ε in so many random dimensions, by data set and ε."""

    def accuracy(data: Data, other: Data, epsilon: float, draw: int) -> float:
        (name,) = (each for each, classes in CLASSES.items() if classes == int(data[1].max()) + 1)
        dims = kept[name][EPSILONS.index(epsilon)]
        return fitted(data, other, epsilon, delta=0, dims=dims).score(data[2], data[3])

    return accuracy


def second_moments(*, public: bool) -> Accuracy:
    """Return the accuracy by sums and second moments, without waves, wherever the rule would have them or not."""

    def accuracy(data: Data, other: Data, epsilon: float, draw: int) -> float:
        X, y, Z, u = data
        budget, classes = Budget(epsilon, DELTA), int(y.max()) + 1
        shape = embedding_map(X.shape[1], budget, classes, other[0] if public else None, None, None, 1)
        spec = ClassSpec(tuple(range(classes)), dps.per_record(), shape.spec, Extras(0.1), 1)
        held = ClassPartial.measuring(spec, shape)
        held.count(X, y)
        sums = held.publish(budget, Account())
        return float(np.mean(sums.scores(Z).argmax(axis=1) == u))

    return accuracy


def fourier(bandwidth: float, seed: int = 1) -> Accuracy:
    """Return the accuracy by a density sketch of Fourier features a class, each released; scored as class sums are."""

    def accuracy(data: Data, other: Data, epsilon: float, draw: int) -> float:
        X, y, Z, u = data
        kernel, tables = dps.kernels.Gaussian(X.shape[1], bandwidth), []
        for code in range(int(y.max()) + 1):  # a record is in one class: together they cost what one of them does
            sketch = dps.DensitySketch(kernel=kernel, rows=2048, features="fourier", unit=dps.per_record(), seed=seed)
            sketch.update(X[y == code])
            released = sketch.release(epsilon=epsilon, delta=DELTA, count_share=1e-6)
            tables.append(released.table.ravel() / released.spec.steps)
        sums, noise = np.stack(tables), released.noise.variance / released.spec.steps**2
        count = sums.shape[1]
        lengths = np.maximum(np.sum(sums**2, axis=1) - count * noise, 0) + 2 * noise * math.sqrt(2 * count)
        scores = released.spec.feature_map.values(Z) @ (sums / np.sqrt(lengths)[:, None]).T
        return float(np.mean(scores.argmax(axis=1) == u))

    return accuracy


def rival(accuracy: Callable[[Data, float, int], float]) -> Accuracy:
    """Return the accuracy of what knows nothing of the other data set."""
    return lambda data, other, epsilon, draw: accuracy(data, epsilon, draw)


RULE = "**linear**, `public=`, `expected_records=`"
AUTO = 'linear, `public=`, `expected_records=`, `passes="auto"`'
RACE: dict[str, Any] = {"kernel": "angular", "bounds": (-0.25, 0.25), "rows": 1000}
FORMS: dict[str, Accuracy] = {
    RULE: ours(public=True, records=True),
    AUTO: ours(public=True, records=True, passes="auto"),
    "linear, `public=`, 2 passes": ours(public=True, passes=2),
    "linear, `public=`, 5 passes": ours(public=True, passes=5),
    "linear, `public=`, 9 passes": ours(public=True, passes=9),
    "linear, `public=`": ours(public=True),
    "linear, `expected_records=`": ours(records=True),
    "linear": ours(),
    "linear, `public=`, `dims=128`": ours(public=True, dims=128),
    "linear and second moments alone": second_moments(public=False),
    "linear and second moments alone, `public=`": second_moments(public=True),
    "fourier, 2,048 pairs of bandwidth .5, a sketch a class": fourier(0.5),
    "linear, pure ε, `public=`, `expected_records=`": ours(delta=0, public=True, records=True),
    "linear, pure ε, `expected_records=`": ours(delta=0, records=True),
    "linear, pure ε, `dims=` 16, 32, 64, 128 (CLINC150 16, 32, 128, 384)": pure_in(
        {"banking77": (16, 32, 64, 128), "clinc150": (16, 32, 128, 384)}
    ),
    "largest inner product with the sums of linear": largest_sum(),
    "RACE, angular of power 2, 1,000 rows": ours(**RACE, power=2),
    "RACE, the same, largest kernel sum": largest_sum(**RACE, power=2),
    "RACE, the same, public centre": ours(**RACE, power=2, centred=True),
    "RACE, angular of power 1, 1,000 rows": ours(**RACE, power=1),
    "LSQ, 2,048 waves": rival(locality_sensitive_quantisation(2048, pure=False)),
    "LSQ, 128 waves (pure ε)": rival(locality_sensitive_quantisation(128, pure=True)),
    "gradient descent, 10 / 20 / 50 / 100 passes": rival(gradient_descent),
    "diffprivlib, naive Bayes (pure ε)": rival(diffprivlib("naive Bayes")),
    "diffprivlib, random forest (pure ε)": rival(diffprivlib("random forest")),
    "diffprivlib, logistic regression (pure ε)": rival(diffprivlib("logistic regression")),
}
COMPARISON = (
    RULE, AUTO, "linear, `public=`, 2 passes", "linear, `public=`, 5 passes", "linear, `public=`, 9 passes",
    "LSQ, 2,048 waves", "gradient descent, 10 / 20 / 50 / 100 passes", "RACE, angular of power 1, 1,000 rows",
    "RACE, angular of power 2, 1,000 rows", "diffprivlib, naive Bayes (pure ε)", "diffprivlib, random forest (pure ε)",
    "diffprivlib, logistic regression (pure ε)",
)  # fmt: skip
SLOW = {"RACE": 3, "diffprivlib": 5}
SLOWEST = {"RACE": 3, "diffprivlib": 1}  # in the comparison
OFTEN = {0.5: 140, 1.0: 30, 3.0: 12, 8.0: 8}  # for a standard error of about .001


def draws(form: str, epsilon: float, compared: int | None) -> int:
    """Return how often a form is drawn, alone or in the comparison."""
    if compared is not None:
        return min(compared, SLOWEST.get(form.split(",")[0], compared))
    return OFTEN[epsilon] if form == RULE else SLOW.get(form.split(",")[0].split()[0], 5)


def measure(forms: Iterable[str], epsilons: Iterable[float], times: int | None, kept_in: Path | None) -> Found:
    """Measure forms, each drawn so many times or as often as it says, and keep each as soon as it is known."""
    data = {name: load(name) for name in NAMES}
    found: Found = {}
    for form in forms:
        found[form] = {}
        for name in NAMES:
            (other,) = (each for each in NAMES if each != name)
            cells = found[form][name] = {}
            for epsilon in epsilons:
                started, count = time.process_time(), draws(form, epsilon, times)
                seen = [FORMS[form](data[name], data[other], epsilon, draw) for draw in range(count)]
                spent = (time.process_time() - started) / len(seen)
                cells[f"{epsilon:g}"] = {
                    "mean": float(np.mean(seen)), "deviation": float(np.std(seen)), "draws": len(seen), "seconds": spent
                }  # fmt: skip
            shown = " / ".join(f"{cell['mean']:.4f}" for cell in cells.values())
            print(f"{NAMES[name]}: {form}: {shown}", flush=True)
        if kept_in is not None:
            _keep(found, kept_in)
    return found


def _keep(found: Found, path: Path) -> None:
    """Keep what was found beside what was found before; what is compared is of one run, and kept alone."""
    before: Found = json.loads(path.read_text(encoding="utf-8")) if path == STORED and path.exists() else {}
    merged = before | found
    kept = {form: merged[form] for form in FORMS if form in merged}
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def compared(found: Found) -> str:
    """Return the table of what was compared in one run, with standard errors, in Markdown."""
    head = ["accuracy", *(f"{label} ε={epsilon:g}" for label in NAMES.values() for epsilon in EPSILONS), "draws"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for form, sets in found.items():
        cells = [sets[name][f"{epsilon:g}"] for name in NAMES for epsilon in EPSILONS]
        lines.append(f"| {form} | " + " | ".join(map(_with_error, cells)) + f" | {cells[0]['draws']:.0f} |")
    left = ", ".join(form for form in COMPARISON if form not in found)
    said = "All in one run, with standard errors between draws; δ = 10⁻⁵ but for pure ε."
    lines += ["", f"{said} The run was ended before: {left}; the first table has them." if left else said]
    return "\n".join(lines)


def _with_error(cell: dict[str, float]) -> str:
    """Return a mean, with the standard error that several draws have."""
    error = f" ± {cell['deviation'] / math.sqrt(cell['draws'] - 1):.3f}" if cell["draws"] > 1 else ""
    return f"{cell['mean']:.3f}{error}"


def table(found: Found) -> str:
    """Return the table in Markdown."""
    head = ["accuracy", *(f"{label} ε={epsilon:g}" for label in NAMES.values() for epsilon in EPSILONS), "s"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for form, sets in found.items():
        cells = [sets.get(name, {}).get(f"{epsilon:g}") for name in NAMES for epsilon in EPSILONS]
        means = ["–" if cell is None else f"{cell['mean']:.3f}" for cell in cells]
        longest = max(cell["seconds"] for cell in cells if cell is not None)
        lines.append(f"| {form} | " + " | ".join(means) + f" | {longest:.1f} |")
    errors = [cell["deviation"] / math.sqrt(cell["draws"]) for sets in found[RULE].values() for cell in sets.values()]
    others = max(cell["deviation"] for sets in found.values() for cells in sets.values() for cell in cells.values())
    few = min(cell["draws"] for sets in found.values() for cells in sets.values() for cell in cells.values())
    lines.append("")
    lines.append(
        f"δ = 10⁻⁵ but for pure ε. Means over draws of the noise: of the first form "
        f"{OFTEN[0.5]} / {OFTEN[1.0]} / {OFTEN[3.0]} / {OFTEN[8.0]} of them, with standard errors of at most "
        f"{max(errors):.4f}; of others {few:.0f} or more, with standard deviations between draws of at most "
        f"{others:.3f}. The last column is seconds of one core, of a machine with other users, for the slowest cell, "
        "training and test together, without diffprivlib's process."
    )
    return "\n".join(lines)


def main() -> None:
    """Measure and keep, or write what was kept into the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--write", action="store_true", help="write the page from what was kept, and measure nothing")
    options.add_argument("--only", default="", help="measure forms with this in their name alone")
    options.add_argument("--compare", action="store_true", help="measure what is compared, in one run")
    options.add_argument("--quick", action="store_true", help="draw once at ε = 3, and keep nothing")
    options.add_argument("--draws", type=int, default=5, help="how often each form that is compared is drawn")
    asked = options.parse_args()
    forms = [form for form in (COMPARISON if asked.compare else FORMS) if asked.only in form]
    if asked.quick:
        measure(forms, (3.0,), 1, None)
    elif asked.compare:
        measure(forms, EPSILONS, asked.draws, COMPARED)
    elif not asked.write:
        measure(forms, EPSILONS, None, STORED)
    else:
        page.replace(PAGE, table(json.loads(STORED.read_text(encoding="utf-8"))), START, END)
        page.replace(PAGE, compared(json.loads(COMPARED.read_text(encoding="utf-8"))), RIVALS_START, RIVALS_END)


if __name__ == "__main__":
    main()
