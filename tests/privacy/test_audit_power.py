"""What factor of noise the audit catches: a fifth less is noticed in every row, by a pair or by the noise itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpsketch.audit.grid import GRID
from dpsketch.audit.losses import least_spread
from dpsketch.audit.sampled import BY_LAW, SHIPPED
from dpsketch.audit.table import ROWS
from dpsketch.noise import DiscreteLaplace, RoundedGaussian

CONFIDENCE = 1 - 1e-6


# 1,800 draws of one part miss a fifth less noise once in 10⁵ times: so many releases have them, by their numbers.
QUICK = {
    "table-counts-gaussian-record-add": 300,
    "table-counts-laplace-user-replace": 300,
    "table-ranges-gaussian-user-add": 120,
}


@pytest.mark.parametrize("name", QUICK)
def test_a_fifth_less_noise_is_noticed_in_every_row(name: str) -> None:
    """Wrong once in a million findings; the second half is the twin."""
    row = GRID[name]
    assert row.restated(QUICK[name], CONFIDENCE).verdict == "holds"
    assert replace(row, noise=0.8).restated(QUICK[name], CONFIDENCE).verdict == "violated"


@pytest.mark.full
@pytest.mark.parametrize("name", ROWS)
def test_every_row_holds_and_notices_a_fifth_less_noise(name: str) -> None:
    """Wrong once in a million findings. What a row says that it catches is at least that."""
    releases = 4000 if "-local-" in name else 2000  # reports are sampled, eight at a time
    found = ROWS[name].audit(releases, CONFIDENCE)
    assert all(one.verdict == "holds" for one in found)
    assert max(one.power for one in found) >= 0.8
    assert any(one.verdict == "violated" for one in replace(ROWS[name], noise=0.8).audit(releases, CONFIDENCE))


def test_what_is_sampled_has_a_row_by_law() -> None:
    """Sampling alone sees half of the noise; each mechanism has a row that sees more."""
    assert set(BY_LAW) == set(SHIPPED)
    assert set(BY_LAW.values()) <= set(ROWS)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("size", [0.7, 3.0, 40.0])
def test_the_least_spread_is_above_the_truth_and_near_it(law: str, size: float) -> None:
    """Of 200 bounds at 95%, at most 25 are below the truth (rate below 1e-5), and none is far off."""
    noise = RoundedGaussian(size) if law == "gaussian" else DiscreteLaplace(1 / size, 1)
    found = [
        least_spread(law, noise.sample(1000).astype(float)[:, None], np.sqrt(noise.variance), 0.95) for _ in range(200)
    ]
    assert sum(bound < 1 for bound in found) <= 25
    assert max(found) < 1.25
    halved = least_spread(law, np.rint(noise.sample(1000) / 2)[:, None], np.sqrt(noise.variance), CONFIDENCE)
    assert halved < 0.9
    assert least_spread(law, np.zeros((50, 2)), 3.0, CONFIDENCE) == 0
