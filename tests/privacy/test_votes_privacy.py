"""What the release of a vote's buckets does with one unit: how likely it names a key that nobody else has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import dpsketch as dps
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.truncated import TruncatedLaplace

pytestmark = pytest.mark.statistical

TRIALS = 2000
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 0.05}
UNITS = {
    "record": dps.per_record(),
    "record replaced": dps.per_record(neighbours="replace"),
    "user of 1": dps.per_user(1),
    "user of 4": dps.per_user(4),
    "user of 4 replaced": dps.per_user(4, neighbours="replace"),
}
FORMS = ["loads", "truncated", "gaussian"]


def histogram(unit: dps.Unit, keys: list[int], users: list[int], buckets: int = 512) -> Any:
    sketch: Any = dps.VoteHistogram(unit=unit, max_counters=buckets, key_type="int")
    sketch.update(keys, **({"users": users} if unit.level == "user" else {}))
    return sketch


def reaching(law: Any, z: int) -> float:
    """P(noisy u − l, or c, is z or more above the true one), by the definition of the law."""
    match law:
        case RoundedGaussian(sigma):
            return float(norm.sf((z - 0.5) / sigma))
        case DiscreteLaplace(epsilon, sensitivity):
            masses = np.exp(-epsilon / sensitivity * np.abs(np.arange(-2000, 2001)))
            masses = np.convolve(masses / masses.sum(), masses / masses.sum())
            return float(masses[4000 + z :].sum())
        case TruncatedLaplace(rate, bound):
            masses = np.exp(-rate * np.abs(np.arange(-bound, bound + 1)))
            return float(masses[bound + z :].sum() / masses.sum())
    raise AssertionError(law)


def shown(sketch: Any, form: Any) -> tuple[float, Any]:
    releases = [sketch.release(**BUDGET, form=form) for _ in range(TRIALS)]
    return float(np.mean([bool(release.keys) for release in releases])), releases[0].mechanism


def alone(unit: dps.Unit) -> Any:
    keys = list(range(unit.max_keys))
    return histogram(unit, keys, [1] * len(keys))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", UNITS)
def test_a_key_that_one_unit_alone_has_is_named_as_rarely_as_stated(name: str, form: str) -> None:
    """Through the release, against the law that it states. False-positive rate below 1e-4 a case."""
    unit = UNITS[name]
    rate, threshold = shown(alone(unit), form)
    expected = 1 - (1 - reaching(threshold.noise, threshold.cutoff - 1)) ** unit.max_keys
    assert expected <= BUDGET["delta"]
    assert abs(rate - expected) <= 4 * math.sqrt(max(expected, 1e-3) / TRIALS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [name for name, unit in UNITS.items() if unit.neighbours == "replace"])
def test_one_unit_in_place_of_another_moves_a_bucket_by_two(name: str, form: str) -> None:
    """{y, y} against {y, x} in one bucket: y leads by two, or nobody does. False-positive rate below 1e-4.

    What is stated must pay for that, and so must the noise: 2m votes move where one unit takes another's place.
    """
    unit = UNITS[name]
    two = histogram(unit, [7, 7], [1, 2], buckets=1)
    none = histogram(unit, [7, 8], [1, 2], buckets=1)
    rate, threshold = shown(two, form)
    expected = reaching(threshold.noise, threshold.cutoff - 2)
    assert expected <= BUDGET["delta"]
    assert abs(rate - expected) <= 4 * math.sqrt(max(expected, 1e-3) / TRIALS)
    assert shown(none, form)[0] == 0
    m, law = unit.max_keys, threshold.noise
    if isinstance(law, RoundedGaussian):
        added = dps.VoteHistogram(unit=dps.per_user(m), max_counters=1)
        assert law.sigma >= 1.99 * added.spec.laws(dps.Budget(**BUDGET), "gaussian")[0].noise.sigma
    else:
        sensitivity = law.sensitivity if isinstance(law, DiscreteLaplace) else 1
        assert law.epsilon / sensitivity <= BUDGET["epsilon"] / (2 * m)


@pytest.mark.parametrize("form", FORMS)
def test_a_bucket_without_a_majority_names_nothing(form: str) -> None:
    """Neither an empty one nor one in which two keys are even, though its noise passes the cutoff now and then."""
    wide: dict[str, Any] = {"epsilon": 0.05, "delta": 0.4, "form": form}
    empty: Any = dps.VoteHistogram(unit=dps.per_record(), max_counters=5000)
    even = histogram(dps.per_record(), [1, 2] * 500, [], buckets=1)
    for _ in range(20):
        assert empty.release(**wide).keys == []
        assert even.release(**wide).keys == []
    # The twin: one vote is enough to be named now and then.
    one = histogram(dps.per_record(), [1], [], buckets=1)
    assert any(one.release(**wide).keys for _ in range(200))
