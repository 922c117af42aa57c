"""Keys discovered day by day, in exact arithmetic: what names and counts tell of a unit is within what is promised.

One stream with a key for every outcome of the noise of three days: all keys have the same counts, each its own draw, so
that one run through the public path tells what is shown for every outcome. Its probability in either world is known,
and so is the divergence of the two worlds, up to the tails beyond 4.2σ.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import dpsketch as dps
from dpsketch.core.permit import Handle
from dpsketch.laws.designs import Banded
from dpsketch.sketches.continual import sketch as module
from dpsketch.sketches.continual.stream import NamedStream

DAYS = 3
DELTA = 0.2  # large, so that thresholds are low and crossings are seen


def law_of(sigma: float, reach: int) -> np.ndarray:
    edges = np.arange(-reach, reach + 2) - 0.5
    found = np.diff(ndtr(edges / sigma))
    found[0] += ndtr(edges[0] / sigma)
    found[-1] += 1 - ndtr(edges[-1] / sigma)
    return found


def outcomes(
    patch: pytest.MonkeyPatch, counts: list[int], unit: Any, budget: dict[str, Any], design: Any
) -> tuple[dict[Any, float], Any]:
    """The probability of everything that can be shown, for a key with these counts (0: no record) on the days."""
    sketch = dps.ContinualSketch(dps.Histogram(unit=unit, key_type="int"), days=DAYS, design=design, **budget)
    stream: NamedStream = sketch._stream
    reach = math.ceil(4.2 * stream.law.noise.sigma)
    mass = law_of(stream.law.noise.sigma, reach)
    noise = np.array(list(itertools.product(range(-reach, reach + 1), repeat=DAYS)))
    weight = np.prod(mass[noise + reach], axis=1)

    def adder(self: Handle, slot: str, *, piece: tuple[int, bool]) -> Any:
        self._permit._take(self._law, slot, piece, None)
        day, earlier = piece
        days = iter(range(day - 1) if earlier else [day - 1])  # of keys that came on a day, those before it as well
        return lambda row: np.asarray(row + noise[:, next(days)][: len(row)])

    keys = np.arange(len(noise))
    with patch.context() as patched:
        patched.setattr(Handle, "adder", adder)
        for count in counts:
            if count:
                sketch.day(np.repeat(keys, count))
            else:
                sketch.publish_day()
    found: dict[Any, float] = defaultdict(float)
    order = [stream._places[int(key)] for key in keys] if stream._names else []
    if not order:
        return {None: float(weight.sum())}, stream
    shown = np.array([table[order] for table in stream._tables]).T
    passed = stream._passed[order]
    for when, values, each in zip(passed.tolist(), shown.tolist(), weight.tolist(), strict=True):
        found[(when, *values) if when else None] += each
    return found, stream


def divergence(one: dict[Any, float], two: dict[Any, float], epsilon: float) -> float:
    return sum(max(0.0, each - math.exp(epsilon) * two.get(what, 0.0)) for what, each in one.items())


BUDGETS = {"epsilon": 1.0, "delta": DELTA}
WORLDS = [
    ([0, 0, 0], [1, 0, 0]),  # nobody but the unit
    ([0, 0, 0], [0, 0, 1]),
    ([0, 1, 0], [1, 1, 0]),  # the unit comes before the others
    ([1, 0, 0], [1, 0, 1]),  # and after them
    ([0, 0, 2], [1, 0, 2]),
    ([4, 0, 0], [4, 0, 1]),  # a key that may pass on any day, whether or not it has records then
    ([0, 0, 4], [1, 0, 4]),
]


def promised(stream: NamedStream, epsilon: float, times: float = 1.0) -> float:
    """δ_G(ε; μ) + δ_T, for the noise that was drawn; ``times`` is how much further a replaced record moves counts."""
    mu = times * math.sqrt(sum(band**2 for band in stream.design.bands)) / stream.law.noise.sigma
    curve = ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2)
    return float(curve) + 0.1 * DELTA


@pytest.mark.parametrize("design", ["daily", "banded"])
@pytest.mark.parametrize("worlds", WORLDS, ids=str)
def test_what_is_shown_of_a_key_is_within_the_promise(monkeypatch: Any, worlds: Any, design: Any) -> None:
    """A record more: on a key of its own, before others came, after them, and beside them."""
    if design == "banded":  # with small numbers, so that all outcomes can be enumerated
        monkeypatch.setattr(module, "choose_design", lambda *given, **named: Banded((2, 1)))
    unit = dps.per_record()
    (without, stream), (within, _) = (outcomes(monkeypatch, counts, unit, BUDGETS, design) for counts in worlds)
    assert promised(stream, 1.0) <= DELTA
    for one, two in ((without, within), (within, without)):
        for epsilon in (0.5, 1.0, 2.0, 4.0):
            assert divergence(one, two, epsilon) <= promised(stream, epsilon) + 1e-4


@pytest.mark.parametrize("move", [([1, 0, 0], [0, 1, 0]), ([1, 0, 0], [0, 0, 1])], ids=str)
def test_a_record_moved_to_another_day_is_within_the_promise(monkeypatch: Any, move: Any) -> None:
    """It moves two publications of its key, by √2 together, and may be seen as two names."""
    unit = dps.per_record(neighbours="replace")
    (one, stream), (two, _) = (outcomes(monkeypatch, counts, unit, BUDGETS, "daily") for counts in move)
    assert promised(stream, 1.0, math.sqrt(2)) <= DELTA
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        found = max(divergence(one, two, epsilon), divergence(two, one, epsilon))
        assert found <= promised(stream, epsilon, math.sqrt(2)) + 1e-4


def test_the_looks_of_all_days_are_paid_for(monkeypatch: Any) -> None:
    """A name that only the unit has is shown with a chance that is within δ's part for names, and not far below it.

    Power: thresholds a standard deviation lower pass it.
    """
    found, stream = outcomes(monkeypatch, [1, 0, 0], dps.per_record(), BUDGETS, "daily")
    named = 1 - found[None]
    assert 0.02 * 0.1 * DELTA < named <= 0.1 * DELTA
    sigma, shown = stream.law.noise.sigma, 0.0
    for day in (1, 2, 3):
        lower = stream.law.threshold(day) - sigma * math.sqrt(day) - 1
        shown = max(shown, float(ndtr(-lower / (sigma * math.sqrt(day)))))
    assert shown > 0.1 * DELTA
