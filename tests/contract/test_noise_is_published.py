"""A law may draw its noise, discard it, and return exact data: nothing in the core prevents that, and this sees it.

At ε = 10⁻⁶ two releases of one sketch agree in no number of a part that has noise added to it. Two draws of such noise
are equal with a probability below 10⁻⁶; the draws are seeded, so that a verdict repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.noise import seeded_noise_for_tests_only
from parts import numbers_of
from sensitive import ROWS, Row

SMALL = {"epsilon": 1e-6, "delta": 0.0}
GAUSSIAN = {"epsilon": 1e-6, "delta": 1e-6}
COUNTS: dict[str, Any] = {"rows": 3, "width": 8, "unit": dps.per_record(), "key_type": "int"}


def agreeing(make: Callable[[], Any]) -> dict[str, int]:
    """How many numbers of each part two releases have in common."""
    with seeded_noise_for_tests_only(7):
        first, second = numbers_of(make()), numbers_of(make())
    assert first.keys() == second.keys()
    return {name: int(np.count_nonzero(first[name] == second[name])) for name in first}


def _days(**given: Any) -> Any:
    stream = dps.ContinualCountSketch(days=3, **COUNTS, **given)
    stream.update([1, 2, 3])
    return stream.publish_day()


def _pan_private() -> Any:
    sketch = dps.PanPrivateCountSketch(**COUNTS, **SMALL)
    sketch.update([1, 2, 3])
    return sketch.publish()


def _share() -> Any:
    sketch = dps.CountSketch(**COUNTS)
    sketch.update([1, 2, 3])
    return sketch.release(**GAUSSIAN, share=dps.Share(3, 1.0, 1))


def _window(sketch: Any, **given: Any) -> Any:
    stream = dps.ContinualSketch(sketch, days=3, **GAUSSIAN, **given)
    stream.update([1, 2, 3])
    return stream.publish_day()


def _listed(form: Any, budget: dict[str, float]) -> Any:
    histogram = dps.Histogram(unit=dps.per_record(), key_type="int")
    histogram.update([1, 2, 3])
    return histogram.release(**budget, keys=range(9), form=form)


OTHERS: dict[str, Callable[[], Any]] = {
    "a list": lambda: _listed("laplace", SMALL),
    "a list under Gaussian noise": lambda: _listed("gaussian", GAUSSIAN),
    "a day": lambda: _days(**SMALL),
    "a day under Gaussian noise": lambda: _days(**GAUSSIAN),
    "a day of a state that may be seized": lambda: _days(**GAUSSIAN, design="pan-private"),
    "a day of ranges": lambda: _window(dps.RangeSketch(bits=6, unit=dps.per_record())),
    "a day of a tree": lambda: _window(dps.HeavyHitters(rows=3, width=8, key_bits=16, unit=dps.per_record())),
    "pan-private": _pan_private,
    "a share": _share,
}


@pytest.mark.parametrize("budget", [SMALL, GAUSSIAN, {"rho": 1e-10}], ids=["pure", "gaussian", "rho"])
@pytest.mark.parametrize("row", [row for row in ROWS if hasattr(row.start(), "release")], ids=lambda row: row.name)
def test_two_releases_agree_in_no_number(row: Row, budget: dict[str, float]) -> None:
    if not numbers_of(row.publish(row.filled(0))):
        pytest.skip("no part of it is a table with noise")
    sketch = row.filled(0, 1)
    found = agreeing(lambda: sketch.release(**budget))
    assert found
    assert not any(found.values()), found


@pytest.mark.parametrize("name", OTHERS)
def test_two_lives_agree_in_no_number(name: str) -> None:
    found = agreeing(OTHERS[name])
    assert found
    assert not any(found.values()), found
