"""How many keys a histogram finds, how far off their counts are, and whether its intervals cover: through ``release``.

The figures are those of mechanisms worked out beforehand on the same data with other noise. A mean of so few seeds is
held to three standard errors, which were taken there, and one more key or two where these are below that.
"""

from __future__ import annotations

import lzma
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from benchmarks.histogram_figures import CAPS, FORMS, FOUND, RECORD_FORMS, RECORDS

pytestmark = pytest.mark.statistical

KEYS = 40_000
# The number of keys found has a standard deviation of 10 from release to release: the mean of these is known to 3.
RELEASES = 12


@pytest.fixture(scope="module")
def stream() -> np.ndarray:
    """Zipf(1.1) over 40,000 keys, of which 29,669 occur."""
    law = np.arange(1, KEYS + 1) ** -1.1
    return np.random.default_rng(1).choice(KEYS, size=500_000, p=law / law.sum())


@pytest.fixture(scope="module")
def truth(stream: np.ndarray) -> np.ndarray:
    return np.bincount(stream, minlength=KEYS)


def histogram(stream: np.ndarray, relation: Any) -> dps.Histogram:
    sketch = dps.Histogram(unit=dps.per_record(neighbours=relation))
    sketch.update(stream)
    return sketch


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_keys_found_in_one_stage(relation: str, stream: np.ndarray, truth: np.ndarray) -> None:
    """Cutoffs to the unit, keys to 1% and 8 more, rms to four standard errors of the releases (a kurtosis of 6)."""
    sketch = histogram(stream, relation)
    for neighbours, epsilon, delta, noted in RECORDS:
        if neighbours != relation:
            continue
        least = min(cutoff for cutoff, _, _ in noted)
        assert sketch.release(epsilon=epsilon, delta=delta).law.cutoff == least
        for form, (cutoff, keys, rms) in zip(RECORD_FORMS, noted, strict=True):
            releases = [sketch.release(epsilon=epsilon, delta=delta, form=form) for _ in range(RELEASES)]
            assert releases[0].law.cutoff == cutoff
            assert np.mean([len(release.keys) for release in releases]) == pytest.approx(keys, rel=0.01, abs=8)
            errors = np.concatenate([release.values - truth[release.keys] for release in releases])
            assert np.sqrt(np.mean(errors.astype(float) ** 2)) == pytest.approx(
                rms, rel=4.5 / np.sqrt(len(errors)), abs=0.05 * rms
            )


# Data, ε, cap: keys found by uniform Gaussian noise, weights, two rounds (names only); δ = 1e-5, means of three seeds.
KOSARAK = "kosarak's head"
BY_USER = [(KOSARAK, 0.1, 100), (KOSARAK, 1, 10), (KOSARAK, 1, 100), (KOSARAK, 3, 100)]
FULL = [
    ("retail", 0.1, 30), ("retail", 1, 10), ("retail", 1, 100), ("retail", 3, 30),
    ("gowalla", 0.1, 30), ("gowalla", 1, 100), ("gowalla", 3, 100),
]  # fmt: skip
FILES = {KOSARAK: "kosarak_head36682"}


def users_of(path: Path) -> tuple[np.ndarray, np.ndarray]:
    users, keys = [], []
    with lzma.open(path, "rt") as lines:
        for user, line in enumerate(lines):
            held = np.array(sorted(set(map(int, line.split()))), np.int64)
            users.append(np.full(len(held), user))
            keys.append(held)
    return np.concatenate(users), np.concatenate(keys)


@pytest.mark.parametrize(
    ("data", "epsilon", "cap"), BY_USER + [pytest.param(*row, marks=pytest.mark.full) for row in FULL]
)
def test_keys_found_of_users(data: str, epsilon: float, cap: int, real_data: Path) -> None:
    """Within 4%, 5 keys or 0.8·√figure: some three standard errors of two means of three, of about 0.4·√figure each."""
    users, keys = users_of(real_data / "sets" / f"{FILES.get(data, data)}.dat.xz")
    sketch = dps.Histogram(unit=dps.per_user(max_keys=cap), key_type="int")
    sketch.update(keys, users=users)
    for form, figures in zip(FORMS[1:], FOUND[data, epsilon][1:], strict=True):
        figure = figures[CAPS.index(cap)]
        alone = form != "gaussian"
        found = [len(sketch.release(epsilon=epsilon, delta=1e-5, form=form, names_only=alone).keys) for _ in range(3)]
        assert np.mean(found) == pytest.approx(figure, rel=0.04, abs=max(5, 0.8 * math.sqrt(figure)))
