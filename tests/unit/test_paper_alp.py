"""What only the reproduction of the ALP paper uses, against slow and obvious versions."""

import importlib
import math

import numpy as np
import pytest

from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.reproduce import _script, find_papers

_script(find_papers() / "alp")
experiments = importlib.import_module("dpsketch_paper_alp.experiments")
rivals = importlib.import_module("dpsketch_paper_alp.rivals")


def test_threshold_errors_agree_with_a_simulation():
    """Means of 4·10⁵ draws with sd at most 10: 0.1 is six standard errors, 2e-9 a value. A cutoff off by 2 is seen."""
    values, epsilon, domain = (0, 1, 10, 20, 22, 30), 1.0, 2.0**32
    exact = rivals.threshold_errors(values, epsilon=epsilon, domain=domain)
    ratio = math.exp(-epsilon)
    rng = np.random.default_rng(1)

    def simulated(cutoff):
        found = []
        for value in values:
            draws = rng.geometric(1 - ratio, 400_000) - rng.geometric(1 - ratio, 400_000)
            kept = (value + draws >= cutoff) & (value > 0)
            found.append(np.where(kept, np.abs(draws), value).mean())
        return np.array(found)

    cutoff = math.ceil(math.log(domain / (1 + ratio)))
    assert np.max(np.abs(simulated(cutoff) - exact)) < 0.1
    assert np.max(np.abs(simulated(cutoff + 2) - exact)) > 0.1


@pytest.mark.parametrize(("step", "alpha"), [(1.0, 1), (1.0, 3), (0.5, 3), (2.5, 1)])
def test_published_form_has_the_papers_scale(step, alpha):
    import dpsketch as dps

    form = experiments.published(step, alpha, 0.1)
    spec = dps.SparseHistogram(unit=dps.per_record(), domain=2**32, max_value=100, alpha=alpha).spec
    projection = spec.laws(dps.Budget(form.epsilon, 0))[0].projection
    assert projection.columns_a_unit == pytest.approx(step / alpha, rel=1e-9)
    assert form.epsilon <= step


def test_uniform_errors_have_the_collisions_asked_for():
    """The bias of the walk is +1.3 at collisions 0.1 and β = 44, and far less without: 4,000 errors, sd 7, se 0.11.

    The bounds lie seven standard errors from what a simulation of the walk alone gives (1.28 and 0.06), so each fails
    by chance with probability 3e-12.
    """
    with seeded_noise_for_tests_only(1):
        sizes = {"top": 44, "queries": 4000, "estimators": ("walk",), "keys": 10_000, "share": 0.04}
        crowded, bits = experiments.uniform_errors(experiments.published(1.0, 3, 0.1), **sizes)
        empty, _ = experiments.uniform_errors(experiments.published(1.0, 3, 0.005), **sizes)
    assert len(crowded["walk"]) == 4000
    assert 0.5 < crowded["walk"].mean() < 2.06
    assert -0.7 < empty["walk"].mean() < 0.8
    assert bits == pytest.approx(15 / -math.log(0.9), rel=0.01)


def test_opendp_reads_what_it_released():
    """Errors of ALP at ε = 50 are at most a few units on values up to 100; a wrong key would be off by tens."""
    pytest.importorskip("opendp")
    keys = np.arange(50) * 1000 + 7
    errors = rivals.opendp_errors(keys, np.arange(50) * 2, top=100, epsilon=50.0)
    assert np.median(np.abs(errors)) < 2
