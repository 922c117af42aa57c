"""How many keys a histogram finds, with all keys held or in buckets, and how far off their counts are.

The figures were worked out beforehand on the same data with other hashes and noise. All go through ``release``, and a
mean of so few seeds is held to three standard errors, which were taken there, and one more key or two where these are
below that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from benchmarks.histogram_figures import RECORD_FORMS, RECORDS

pytestmark = pytest.mark.statistical

KEYS = 40_000


@pytest.fixture(scope="module")
def stream() -> np.ndarray:
    """Zipf(1.1) over 40,000 keys, of which 29,669 occur."""
    law = np.arange(1, KEYS + 1) ** -1.1
    return np.random.default_rng(1).choice(KEYS, size=500_000, p=law / law.sum())


@pytest.fixture(scope="module")
def truth(stream: np.ndarray) -> np.ndarray:
    return np.bincount(stream, minlength=KEYS)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_keys_found_in_one_stage(relation: Any, stream: np.ndarray, truth: np.ndarray) -> None:
    """Cutoffs to the unit, keys to 1% and 8 more, rms to four standard errors of the releases (a kurtosis of 6).

    The number of keys found has a standard deviation of 10 from release to release, the mean of 12 one of 3.
    """
    sketch = dps.Histogram(unit=dps.per_record(neighbours=relation))
    sketch.update(stream)
    for neighbours, epsilon, delta, noted in RECORDS:
        if neighbours != relation:
            continue
        least = min(cutoff for cutoff, _, _ in noted)
        assert sketch.release(epsilon=epsilon, delta=delta).law.cutoff == least
        for form, (cutoff, keys, rms) in zip(RECORD_FORMS, noted, strict=True):
            releases = [sketch.release(epsilon=epsilon, delta=delta, form=form) for _ in range(12)]
            assert releases[0].law.cutoff == cutoff
            assert np.mean([len(release.keys) for release in releases]) == pytest.approx(keys, rel=0.01, abs=8)
            errors = np.concatenate([release.values - truth[release.keys] for release in releases])
            assert np.sqrt(np.mean(errors.astype(float) ** 2)) == pytest.approx(
                rms, rel=4.5 / np.sqrt(len(errors)), abs=0.05 * rms
            )


# Buckets, parts, form; for ε of 0.1, 1 and 3 the keys found, their deviation over seeds, and the rms error of counts,
# with its. The figures are means over five hash seeds, as ours are; two such means differ by three standard errors.
BUCKETS = [
    (4096, 1, "loads", ((207, 4.5, 14.8, 1.1), (821, 17, 1.6, 0.08), (1183, 20, 1.1, 0.16))),
    (4096, 8, "loads", ((208, 5, 14.7, 1.1), (899, 22, 3.0, 0.34), (1401, 20, 3.4, 0.34))),
    (4096, 8, "truncated", ((268, 8, None, None), (957, 23, None, None), (1515, 26, None, None))),
]


@pytest.mark.parametrize(("buckets", "parts", "form", "figures"), BUCKETS)
def test_keys_found_by_votes_in_buckets(
    buckets: int, parts: int, form: Any, figures: Any, stream: np.ndarray, truth: np.ndarray
) -> None:
    """Some twenty means, each held to three standard errors: a false-positive rate of 5% if anew, and none here."""
    sketches = []
    for seed in range(100, 105):
        sketch: Any = dps.VoteHistogram(unit=dps.per_record(), max_counters=buckets, seed=seed)
        for part in np.array_split(stream, parts):
            partial = sketch.empty_like()
            partial.update(part)
            sketch.merge(partial)
        sketches.append(sketch)
    for epsilon, (keys, spread, rms, rms_spread) in zip((0.1, 1.0, 3.0), figures, strict=True):
        releases = [sketch.release(epsilon=epsilon, delta=1e-6, form=form) for sketch in sketches]
        found = np.mean([len(release.keys) for release in releases])
        assert abs(found - keys) <= 3 * np.sqrt(2 / 5) * spread
        if rms is not None:
            errors = [np.sqrt(np.mean((each.values - truth[each.keys]) ** 2.0)) for each in releases]
            assert abs(np.mean(errors) - rms) <= 3 * np.sqrt(2 / 5) * rms_spread
