"""Settings of the classifier chosen on one data set, and reported on the other.

``python -m benchmarks.embedding_transfer [--only GROUP]`` tries, for each group of settings and on each data set, every
setting's values one setting at a time around what is shipped, on the same draws of the noise. The best of each are
taken together, and measured with other draws on both data sets, beside the shipped ones: what is lost where they come
from the other set is the price of choosing. The crossings that the rule follows (from where on nine passes beat two,
and waves beat sums alone) are looked for at several ε on each set. What was found is kept in
``results/embedding_transfer.json``, and ``--write`` writes it into the page of explanations.

A draw goes through the release itself, with integer noise; vectors are measured once, since their integers are the
same for every draw. The public vectors are those of the other data set, which have no labels.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import dpsketch as dps
from benchmarks import page
from benchmarks.embedding_rivals import DELTA
from benchmarks.embeddings import NAMES, PAGE, load
from dpsketch.arrays import Floats
from dpsketch.core.account import Account
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.privacy import Budget
from dpsketch.sketches.density import class_spec, class_sums
from dpsketch.sketches.density.class_spec import STEPS, ClassSpec, EmbeddingMap, Extras, Waves
from dpsketch.sketches.density.class_sums import ClassPartial

KEPT = Path(__file__).parent / "results" / "embedding_transfer.json"
START, END = "<!-- transfer: python -m benchmarks.embedding_transfer --write -->", "<!-- end of transfer -->"
CHOOSING, REPORTING = 0, 1000  # where seeds of the noise begin

Values = dict[str, float]


@dataclass(frozen=True)
class Group:
    """Settings that go together: what is shipped and what else is tried, at which ε, drawn how often."""

    epsilons: tuple[float, ...]
    shipped: Values
    tried: dict[str, tuple[float, ...]]
    draws: int


GROUPS = {
    "sums alone": Group((0.5, 1.0, 3.0), {"dims": 192}, {"dims": (128, 256)}, 20),
    "moments and waves": Group(
        (8.0,),
        {"moments": 0.1, "waves": 0.6, "weight": 2.0, "bandwidth": 0.5, "variance": 0.1},
        {
            "moments": (0.05, 0.2),
            "waves": (0.45, 0.7),
            "weight": (1.0, 4.0),
            "bandwidth": (0.4, 0.6),
            "variance": (0.05, 0.2),
        },
        6,
    ),
    "two passes": Group(
        (0.5, 1.0),
        {"step": 0.08, "sharpness": 20.0, "less": 10, "passes": 2},
        {"step": (0.04, 0.16), "sharpness": (10.0, 40.0), "less": (5, 20), "passes": (3,)},
        16,
    ),
    "nine passes": Group(
        (3.0, 8.0),
        {"step": 0.16, "sharpness": 20.0, "less": 5, "passes": 9},
        {"step": (0.08, 0.32), "sharpness": (10.0, 40.0), "less": (2.5, 10), "passes": (5, 13)},
        4,
    ),
}
WORDS = {
    "dims": "dimensions kept", "moments": "share of second moments", "waves": "share of waves",
    "weight": "weight of waves", "bandwidth": "bandwidth of waves", "variance": "least variance within classes",
    "step": "step", "sharpness": "sharpness", "less": "first pass's share, in later ones'", "passes": "passes",
}  # fmt: skip
# Two forms, at which ε they are compared, and on how many draws.
CROSSINGS: dict[str, tuple[str, str, tuple[float, ...], int]] = {
    "two passes ahead of one": ("sums alone", "two passes", (0.5, 1.0, 1.5, 2.0), 20),
    "nine passes ahead of two": ("two passes", "nine passes", (1.0, 1.5, 2.0, 2.5, 3.0), 6),
    "waves ahead of sums alone": ("sums alone", "moments and waves", (1.5, 2.0, 3.0, 4.5, 6.0), 6),
}


@cache
def measured(name: str, dims: int) -> tuple[Floats, np.ndarray[Any, np.dtype[np.intp]], Floats, Floats]:
    """Return records and test vectors as the public map measures them, and their classes."""
    (other,) = (each for each in NAMES if each != name)
    X, y, Z, u = load(name)
    shape = EmbeddingMap.fitted(load(other)[0], X.shape[1], dims)
    return shape.integers(X) / STEPS, y.astype(np.intp), shape.integers(Z) / STEPS, u


@cache
def counted(name: str, dims: int, bandwidth: float) -> ClassPartial:
    """Count the records, with second moments and waves if there is a bandwidth."""
    X, y, _, _ = measured(name, dims)
    extras = Extras(0.1, Waves(dims, 2048, 1, bandwidth)) if bandwidth else Extras()
    held = started(dims, int(y.max()) + 1, extras)
    held.count(X, y)
    return held


def started(dims: int, classes: int, extras: Extras) -> ClassPartial:
    """Return a partial of vectors that are taken as they are."""
    shape = EmbeddingMap(dims)
    return ClassPartial.measuring(ClassSpec(tuple(range(classes)), dps.per_record(), shape.spec, extras, 1), shape)


def accuracy(name: str, values: Values, epsilon: float, seed: int) -> float:
    """Return the accuracy of one release with these settings."""
    dims, bandwidth, passes = int(values.get("dims", 192)), values.get("bandwidth", 0.0), int(values.get("passes", 1))
    X, y, Z, u = measured(name, dims)
    held = counted(name, dims, bandwidth)
    extras = replace(held.spec.extras, moments=values.get("moments", 0.0), passes=passes)
    with ExitStack() as patched:
        for module, attribute, setting in (
            (class_spec, "_WAVES_SHARE", "waves"), (class_sums, "_WAVES_WEIGHT", "weight"),
            (class_sums, "_LEAST_VARIANCE", "variance"), (class_sums, "STEP", "step"),
            (class_sums, "_SHORT_STEP", "step"), (class_sums, "_SHARPNESS", "sharpness"),
            (class_spec, "_LATER", "less"), (class_spec, "_SECOND", "less"),
        ):  # fmt: skip
            if setting in values:
                patched.enter_context(mock.patch.object(module, attribute, values[setting]))
        patched.enter_context(seeded_noise_for_tests_only(seed))
        again = started(dims, int(y.max()) + 1, extras)
        again._arrays = {name: held._arrays[name] for name in again._arrays}
        sums = again.publish(Budget(epsilon, DELTA), Account(), (X, y))
        return float(np.mean(sums.scores(Z).argmax(axis=1) == u))


def draws(name: str, values: Values, epsilons: tuple[float, ...], count: int, first: int) -> Floats:
    """Return accuracies, draws × ε, on the same draws for all settings."""
    return np.array([[accuracy(name, values, epsilon, first + draw) for epsilon in epsilons] for draw in range(count)])


def chosen(name: str, group: Group) -> Values:
    """Return the best value of each setting, the others as shipped; means over draws and ε decide."""
    shipped = float(draws(name, group.shipped, group.epsilons, group.draws, CHOOSING).mean())
    found = dict(group.shipped)
    for setting, others in group.tried.items():
        best = shipped
        for value in others:
            mean = float(draws(name, {**group.shipped, setting: value}, group.epsilons, group.draws, CHOOSING).mean())
            print(f"  {name} {setting} {value:g}: {mean - shipped:+.4f}", flush=True)
            if mean > best:
                best, found[setting] = mean, value
    return found


def reported(group: Group) -> dict[str, Any]:
    """Return what is chosen on each set, and how it does on both, beside what is shipped."""
    picked = {name: chosen(name, group) for name in NAMES}
    found: dict[str, Any] = {"chosen": picked, "epsilons": group.epsilons, "draws": group.draws, "reported": {}}
    for name in NAMES:
        (other,) = (each for each in NAMES if each != name)
        forms = {"shipped": group.shipped, "own": picked[name], "other": picked[other]}
        seen = {form: draws(name, values, group.epsilons, group.draws, REPORTING) for form, values in forms.items()}
        apart = [seen["shipped"] - seen["other"], seen["own"] - seen["other"]]
        found["reported"][name] = {form: each.mean(axis=0).tolist() for form, each in seen.items()} | {
            "loss": [
                [float(each.mean()), float(each.mean(axis=1).std(ddof=1) / math.sqrt(group.draws))] for each in apart
            ]
        }
    return found


def crossing(few: str, many: str, epsilons: tuple[float, ...], count: int) -> dict[str, Any]:
    """Return by how much one form is ahead of another, by records of a class over the noise, on each set.

    Settings are those of the forms' groups, with one step at every ε.
    """
    found: dict[str, Any] = {}
    for name in NAMES:
        _, y, _, _ = measured(name, 192)
        lines = []
        for epsilon in epsilons:
            ahead = np.subtract(
                *(draws(name, GROUPS[form].shipped, (epsilon,), count, REPORTING) for form in (many, few))
            )
            alone = started(192, 2, Extras()).spec.laws(Budget(epsilon, DELTA))[0].noise
            noise = math.sqrt(alone.variance) / STEPS
            size = len(y) / (int(y.max()) + 1) / noise
            lines.append([epsilon, size, float(ahead.mean()), float(ahead.std(ddof=1) / math.sqrt(count))])
            print(f"  {name} ε={epsilon:g}, {size:.0f}: {lines[-1][2]:+.4f} ± {lines[-1][3]:.4f}", flush=True)
        found[name] = lines
    return found


def table(found: dict[str, Any]) -> str:
    """Return the tables in Markdown."""
    titles = list(NAMES.values())
    lines = [f"| | setting | shipped | best on {titles[0]} | best on {titles[1]} |", "|---" * 5 + "|"]
    for name, group in GROUPS.items():
        for setting, value in group.shipped.items():
            picked = " | ".join(f"{found[name]['chosen'][each][setting]:g}" for each in NAMES)
            lines.append(f"| {name} | {WORDS[setting]} | {value:g} | {picked} |")
    head = [
        "accuracy",
        "ε",
        "shipped",
        "chosen on the same set",
        "chosen on the other",
        "shipped − other",
        "same − other",
    ]
    lines += ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, group in GROUPS.items():
        for each, title in NAMES.items():
            cell = found[name]["reported"][each]
            shown = [" / ".join(f"{value:.3f}" for value in cell[form]) for form in ("shipped", "own", "other")]
            apart = [f"{mean:+.4f} ± {error:.4f}" for mean, error in cell["loss"]]
            at = " / ".join(f"{epsilon:g}" for epsilon in group.epsilons)
            lines.append("| " + " | ".join([f"{name}, {title}", at, *shown, *apart]) + " |")
    for title in CROSSINGS:
        lines += ["", f"*{title[0].upper()}{title[1:]}* by so much, where a class has so many times the noise:"]
        for each, shown_name in NAMES.items():
            cells = "; ".join(f"{size:.0f}: {mean:+.4f} ± {error:.4f}" for _, size, mean, error in found[title][each])
            lines.append(f"{shown_name} {cells}.")
    return "\n".join(lines)


def main() -> None:
    """Measure and keep, or write what was kept into the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="measure what has this in its name alone")
    options.add_argument("--write", action="store_true", help="write the page from what was kept, and measure nothing")
    asked = options.parse_args()
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        **{name: lambda group=group: reported(group) for name, group in GROUPS.items()},
        **{title: lambda asked_for=asked_for: crossing(*asked_for) for title, asked_for in CROSSINGS.items()},
    }
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for name, measure in measures.items():
        if asked.only in name and not asked.write:
            print(name, flush=True)
            found[name] = measure()
            kept = {each: found[each] for each in measures if each in found}
            KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if asked.write:
        page.replace(PAGE, table(found), START, END)


if __name__ == "__main__":
    main()
