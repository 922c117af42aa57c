"""The interval of a median, cell by cell: as many released cells lie within it as the order statistics ask for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import dpsketch as dps


@pytest.mark.parametrize("confidence", [0.3, 0.5, 0.8, 0.9])
@pytest.mark.parametrize(("rows", "width"), [(1, 30), (3, 15), (5, 40)])
def test_a_median_has_the_quantile_of_the_cells(rows: int, width: int, confidence: float) -> None:
    """A median of rows stays within the rows' own quantile 2u − 1, u that of a beta law.

    Of n cells and one more, which is the key's, that is the ⌈(2u − 1)(n + 1)⌉-th smallest: one less would be too few.
    Few cells are allowed for by Student's law.
    """
    sketch = dps.CountSketch(rows=rows, width=width, unit=dps.per_record())
    sketch.update([f"key {i}" for i in range(200)])
    release = sketch.release(epsilon=0.1, delta=1e-6)
    found = release.estimate(["key 1"], confidence=confidence, estimator="median")
    tail = (1 + confidence) / 2
    allowance = stats.t.ppf(tail, rows * width - 1) / stats.norm.ppf(tail)
    half = (found.high[0] - found.low[0]) / 2 / allowance
    sizes = np.sort(np.abs(release.table), axis=None)
    middle = (rows + 1) / 2
    wanted = math.ceil((2 * stats.beta.ppf(tail, middle, middle) - 1) * (len(sizes) + 1))
    assert wanted < len(sizes)
    assert half == pytest.approx(sizes[wanted - 1], rel=1e-9)
