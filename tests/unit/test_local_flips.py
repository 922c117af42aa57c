"""Bits that are kept more often than flipped: what everybody holds is estimated as held by everybody."""

from __future__ import annotations

import pytest

from dpsketch import local


@pytest.mark.statistical
def test_one_bit_protocols_point_the_right_way() -> None:
    """False-positive rate below 1e-9: shares of 1 and 0 from 4,000 reports at ε = 3, 20 standard errors apart."""
    sizes = local.SetSizes(epsilon=3.0, largest=4)
    found = sizes.collector().add(sizes.report([[0, 1]] * 4000)).estimate(sizes.thresholds)
    assert found.value[0] > 0.5 > found.value[-1]
    means = local.HadamardCountMean(epsilon=3.0, rows=4, width=16)
    shares = means.collector().add(means.report(["tea"] * 4000)).estimate(["tea", "milk"]).value
    assert shares[0] > 0.5 > shares[1]
