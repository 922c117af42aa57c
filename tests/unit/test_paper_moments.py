"""What only the reproduction of the moments paper uses, against slow and obvious versions."""

import importlib
import math

import numpy as np
import pytest
from scipy.integrate import quad

from dpsketch.reproduce import _script, find_papers

_script(find_papers() / "moments")
experiments = importlib.import_module("dpsketch_paper_moments.experiments")
stable = importlib.import_module("dpsketch_paper_moments.stable")


def cosine_integral(p, x):
    """The density by its definition: (1/π)∫cos(xt)·exp(−t^p) dt."""
    return quad(lambda t: math.cos(x * t) * math.exp(-(t**p)), 0, 60, limit=2000, epsabs=1e-12)[0] / math.pi


@pytest.mark.parametrize("p", [1.1, 1.5, 1.9, 1.99])
def test_density_is_the_cosine_integral(p):
    x = np.array([0.01, 0.5, 1.0, 2.0, 4.0])
    assert stable.density(p, x) == pytest.approx([cosine_integral(p, each) for each in x], rel=1e-7)


@pytest.mark.parametrize("p", [0.25, 0.5, 0.75])
def test_ratio_runs_between_theorem_3s_ends(p):
    found = stable.doubled_ratio(p, np.exp(np.linspace(-36, 30, 400) / p))
    assert found[0] == pytest.approx(2, rel=1e-3)
    assert found[-1] == pytest.approx(2**-p, rel=1e-3)
    assert np.all(np.diff(found) < 1e-9)


@pytest.mark.parametrize("p", [0.25, 0.5, 1.0])
def test_exact_ratio_is_the_largest_over_small_streams(p):
    """All streams of four records over three keys with values 1 to 3, one record replaced."""
    from itertools import combinations_with_replacement, product

    records = list(product(range(3), (1, 2, 3)))

    def moment(stream):
        totals = [sum(v for k, v in stream if k == key) for key in range(3)]
        return sum(total**p for total in totals if total)

    largest = 0.0
    for shared in combinations_with_replacement(records, 3):
        ends = [moment((*shared, last)) for last in records]
        largest = max(largest, max(ends) / min(ends))
    assert experiments.exact_ratio(p, 4, 3) == pytest.approx(largest, rel=1e-9)
