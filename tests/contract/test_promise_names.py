"""What is drawn beside names, and for users day by day: held to the law that is stated for it.

As in ``test_promise``: what was published, less what is known of the data, is the noise. It has the stated law and
spread, and no draw goes with another one of the same release or of the next. The twins at the end show what is seen;
others are mutants (``tests/mutants/audited.py``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from drawn import Gaussian, Laplace, Law, law_of, problems

pytestmark = pytest.mark.statistical

RUNS = 400
PEOPLE, KEYS = 600, 6
BUDGET = {"epsilon": 0.25, "delta": 1e-3}
# What is asked of a histogram; the unit is a user where weights are spread over their keys.
FORMS: dict[str, dict[str, Any]] = {
    "list gaussian": {"keys": [*range(KEYS), 90], "others": True, "form": "gaussian"},
    "list laplace": {"keys": [*range(KEYS), 90], "others": True, "form": "laplace"},
    "truncated": {"form": "truncated"},
    "laplace": {"form": "laplace"},
    "gaussian": {"form": "gaussian"},
    "others": {"form": "laplace", "others": True},
    "weighted": {"form": "weighted"},
    "rounds": {"form": "rounds"},
}
VOTES = ["loads", "truncated", "gaussian"]


def _histogram(users: bool, **bounds: Any) -> dps.Histogram:
    unit = dps.per_user(1) if users else dps.per_record()
    made = dps.VoteHistogram if "max_counters" in bounds else dps.Histogram
    histogram = made(unit=unit, key_type="int", **bounds)
    keys = np.repeat(np.arange(KEYS), PEOPLE)
    histogram.update(keys, **({"users": np.arange(len(keys))} if users else {}))
    return histogram


def _drawn_beside_names(form: str) -> tuple[dict[str, np.ndarray], dict[str, Law]]:
    users = form in ("weighted", "rounds")
    histogram, asked = _histogram(users), FORMS[form]
    made = [histogram.release(**BUDGET, **asked) for _ in range(RUNS)]
    values = [dict(zip(one.keys, one.values, strict=True)) for one in made]
    counts = np.array([[one[key] - PEOPLE for key in range(KEYS)] for one in values])
    noise, laws = {"counts": counts}, {"counts": law_of(made[0].noise)}
    if 90 in asked.get("keys", []):
        noise["counts"] = np.column_stack([counts, [one[90] for one in values]])
        noise["others"], laws["others"] = (
            np.array([[one.rest] for one in made]),
            law_of(made[0].law.others_under(made[0].bound)),
        )
    elif asked.get("others"):
        total = KEYS * PEOPLE
        noise["total"], laws["total"] = np.array([[one.rest - total] for one in made]), law_of(made[0].law.total)
    return noise, laws


@pytest.mark.parametrize("form", FORMS)
def test_counts_beside_names(form: str) -> None:
    """False-positive rate below 1e-7: lists, thresholds, rounds, and what tells of all other keys."""
    assert problems(*_drawn_beside_names(form)) == []


@pytest.mark.parametrize("form", VOTES)
def test_votes(form: Any) -> None:
    """False-positive rate below 1e-7: counts of bounded memory, and both loads of a bucket where both are drawn."""
    histogram = _histogram(False, max_counters=2**12)
    made = [histogram.release(**BUDGET, form=form) for _ in range(RUNS)]
    law = law_of(made[0].mechanism.noise)
    orders = [np.argsort(one.keys) for one in made]
    assert all(len(order) == KEYS for order in orders)
    noise = {"counts": np.array([np.asarray(one.values)[o] - PEOPLE for one, o in zip(made, orders, strict=True)])}
    if form == "loads":
        noise["pairs"] = np.array([np.asarray(one.pairs)[o] for one, o in zip(made, orders, strict=True)])
    assert problems(noise, dict.fromkeys(noise, law)) == []


@pytest.mark.parametrize(("design", "delta"), [("tree", 1e-6), ("banded", 1e-6), ("recurrence", 1e-6), ("daily", 0.0)])
def test_the_days_of_users(design: Any, delta: float) -> None:
    """False-positive rate below 1e-7: each publication is drawn for itself where a user counts on two days."""
    shape: dict[str, Any] = {"rows": 1, "width": 8, "key_type": "int", "design": design, "user_days": 2}
    asked = {"epsilon": 1.0, "delta": delta}
    laws: dict[str, Law] = {}

    def life(**budget: float) -> np.ndarray:
        sketch = dps.ContinualCountSketch(days=4, unit=dps.per_user(2), **shape, **budget)
        for _ in range(4):
            total = sketch.day([1, 2, 3], users=["ann", "ann", "bob"])
        (stretch,) = total.stretches
        laws["days"] = law_of(stretch.law)
        return sketch.published.ravel()

    exact = life(**({"rho": 1e9} if delta else {"epsilon": 1e5, "delta": 0.0}))
    noise = np.stack([life(**asked) for _ in range(200)]) - exact
    assert problems({"days": noise}, laws) == []


@pytest.mark.parametrize("form", ["truncated", "list laplace", "gaussian"])
def test_what_would_be_seen(form: str) -> None:
    """A fifth less, one draw for two keys, and noise that a release takes from the one before."""
    noise, laws = _drawn_beside_names(form)
    less = problems({"counts": np.rint(0.8 * noise["counts"])}, laws)
    assert any("spread" in found for found in less)
    shared = noise["counts"].copy()
    shared[:, 1] = shared[:, 0]
    assert any("share their draws" in found for found in problems({"counts": shared}, laws))
    held = np.repeat(noise["counts"][: RUNS // 2], 2, axis=0)
    assert any("next release" in found for found in problems({"counts": held}, laws))


def test_laws_are_told_apart() -> None:
    """Laplace draws are not Gaussian ones of the same spread."""
    noise, laws = _drawn_beside_names("laplace")
    law = laws["counts"]
    assert isinstance(law, Laplace)
    wrong: dict[str, Law] = {"counts": Gaussian(math.sqrt(2) * law.scale)}
    assert any("not the stated law" in found for found in problems(noise, wrong))
