"""How many keys votes in buckets find, how far off their counts are, and whether intervals cover: through ``release``.

The figures were worked out beforehand on the same data with other hashes and noise, as means over five hash seeds. Ours
are means over five, too. They may differ by three standard errors of the difference of two such means, 1.9 times the
standard deviation over seeds, which stands beside each figure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpsketch as dps

pytestmark = pytest.mark.statistical

RECORDS, KEYS = 500_000, 40_000
SEEDS = range(100, 105)
EPSILONS = (0.1, 1.0, 3.0)
DIFFERENCE = 3 * np.sqrt(2 / 5)


@pytest.fixture(scope="module")
def stream() -> np.ndarray:
    """Zipf(1.1) over 40,000 keys, of which 29,669 occur."""
    law = np.arange(1, KEYS + 1) ** -1.1
    return np.random.default_rng(1).choice(KEYS, size=RECORDS, p=law / law.sum())


@pytest.fixture(scope="module")
def truth(stream: np.ndarray) -> np.ndarray:
    return np.bincount(stream, minlength=KEYS)


def histogram(stream: np.ndarray, buckets: int, parts: int, seed: int) -> Any:
    sketch: Any = dps.VoteHistogram(unit=dps.per_record(), max_counters=buckets, seed=seed)
    for part in np.array_split(stream, parts):
        partial = sketch.empty_like()
        partial.update(part)
        sketch.merge(partial)
    return sketch


# Buckets, parts, form; for each ε the keys found, their deviation over seeds, and the rms error of counts, with its.
FIGURES = [
    (4096, 1, "loads", ((207, 4.5, 14.8, 1.1), (821, 17, 1.6, 0.08), (1183, 20, 1.1, 0.16))),
    (4096, 8, "loads", ((208, 5, 14.7, 1.1), (899, 22, 3.0, 0.34), (1401, 20, 3.4, 0.34))),
    (4096, 8, "truncated", ((268, 8, None, None), (957, 23, None, None), (1515, 26, None, None))),
    (16384, 8, "loads", ((245, 4.5, 14.5, 1.0), (1570, 20, 1.5, 0.08), (3115, 35, 0.7, 0.06))),
]


@pytest.mark.parametrize(("buckets", "parts", "form", "figures"), FIGURES)
def test_keys_found_and_their_counts(
    buckets: int, parts: int, form: Any, figures: Any, stream: np.ndarray, truth: np.ndarray
) -> None:
    """Some twenty means, each held to three standard errors: a false-positive rate of 5% if anew, and none here."""
    sketches = [histogram(stream, buckets, parts, seed) for seed in SEEDS]
    for epsilon, (keys, spread, rms, rms_spread) in zip(EPSILONS, figures, strict=True):
        releases = [sketch.release(epsilon=epsilon, delta=1e-6, form=form) for sketch in sketches]
        assert releases[0].mechanism.form == form
        found = np.mean([len(release.keys) for release in releases])
        assert abs(found - keys) <= DIFFERENCE * spread
        if rms is not None:
            errors = [np.sqrt(np.mean((each.values - truth[each.keys]) ** 2.0)) for each in releases]
            assert abs(np.mean(errors) - rms) <= DIFFERENCE * rms_spread


def test_records_get_loads_and_users_majorities() -> None:
    forms = [
        dps.VoteHistogram(unit=unit, max_counters=8).release(epsilon=1.0, delta=1e-6).facts()["form"]
        for unit in (dps.per_record(), dps.per_record(neighbours="replace"), dps.per_user(1), dps.per_user(10))
    ]
    assert forms == ["loads", "loads", "truncated", "gaussian"]
