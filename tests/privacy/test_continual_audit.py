"""The adaptive game over three days, in exact arithmetic up to 1e-12: what an adversary gains is within the promise.

An adversary chooses each day's table by what was published before, and on which days the unit is present that one
world has and the other has not. Every outcome of three days is enumerated, with the probability that it has in either
world under the noise of the design's own sensitivity; the hockey-stick divergence is compared with the Gaussian bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from dpsketch.core.move import Distance
from dpsketch.laws.designs import Banded, Contribution, Design, Recurrence

MU = 4.0
EPSILON = 6.0
DAYS = 3
# Coarse, so that all outcomes can be enumerated and the floors matter.
FLOORED = Recurrence((524288, 786432), (3, 1), 2, 1)
DESIGNS: list[Design] = [Banded((1,)), Banded((3, 2, 1)), Banded((4, 1)), FLOORED]
# Which of two branches the adversary takes after a day: by the sign, or by the size, of what was published.
RULES: list[Callable[[np.ndarray], np.ndarray]] = [lambda y: y > 0, lambda y: np.abs(y) > 4]


def promised(epsilon: float, mu: float) -> float:
    return float(ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2))


def chance(center: int, outcomes: np.ndarray, sigma: float) -> np.ndarray:
    """The probability of each outcome: a Gaussian around an integer, rounded."""
    return np.asarray(ndtr((outcomes - center + 0.5) / sigma) - ndtr((outcomes - center - 0.5) / sigma))


def means(design: Any, days: list[int]) -> list[int]:
    """What is published of days with one cell, before noise."""
    state = np.zeros((design.buffers, 1), np.int64)
    return [int(t[0]) for day, x in enumerate(days, 1) for _, t in design.step(state, np.array([x]), day)]


def gained(
    design: Any, sigma: float, epsilons: list[float], others: dict[Any, int], own: dict[Any, int], rule: Any
) -> list[float]:
    """The exact divergence of the two worlds; ``others`` and ``own`` say by the branches so far what a day holds."""
    most = max(abs(each) for each in means(design, [max(map(abs, others.values())) + 1] * DAYS))
    reach = math.ceil(7.5 * sigma) + most + 1
    outcomes = np.arange(-reach, reach + 1)
    found = np.zeros(len(epsilons))
    for branches in itertools.product((False, True), repeat=DAYS - 1):
        paths = [branches[:day] for day in range(DAYS)]
        base = [others[path] for path in paths]
        worlds = [means(design, base), means(design, [b + own[path] for b, path in zip(base, paths, strict=True)])]
        masses = []
        for world in worlds:
            lines = [chance(center, outcomes, sigma) for center in world]
            for day, branch in enumerate(branches):
                lines[day] = np.where(rule(outcomes) == branch, lines[day], 0.0)
            masses.append(np.einsum("i,j,k->ijk", *lines))
        for i, epsilon in enumerate(epsilons):
            found[i] += np.maximum(masses[0] - math.exp(epsilon) * masses[1], 0).sum()
    return found.tolist()


def adversaries(unit_days: int, apart: int, rng: np.random.Generator) -> tuple[dict[Any, int], dict[Any, int]]:
    """What is on each day by the branches so far, and on which of them the unit comes: as often as it may, or moved."""
    paths = [path for day in range(DAYS) for path in itertools.product((False, True), repeat=day)]
    others = {path: int(rng.integers(0, 3)) for path in paths}
    own: dict[Any, int] = {}
    for path in sorted(paths, key=len):
        earlier = [day for day in range(len(path)) if own[path[:day]]]
        room = len(earlier) < unit_days and (not earlier or len(path) - earlier[-1] >= apart)
        own[path] = int(room and (bool(path and path[-1]) or rng.random() < 0.6))
    return others, own


@pytest.mark.parametrize(("days", "apart"), [(1, 1), (2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_no_adversary_gains_more_than_is_promised(design: Design, days: int, apart: int) -> None:
    """Records (one day) and users (several days, apart), first days moved by what was seen, both directions."""
    unit = Contribution(Distance(1, 1, 1, 1), days, apart)
    sigma = design.sensitivity(unit, DAYS).l2 / MU
    rng, epsilons = np.random.default_rng(len(str(design)) + 10 * days + apart), [1.0, EPSILON, 10.0]
    for trial in range(2):
        others, own = adversaries(days, apart, rng)
        if trial:
            own = {path: -each for path, each in own.items()}
        found = gained(design, sigma, epsilons, others, own, RULES[trial])
        for epsilon, delta in zip(epsilons, found, strict=True):
            assert delta <= promised(epsilon, MU) + 1e-12


@pytest.mark.parametrize("days", [1, 3])
def test_the_bound_is_nearly_reached_so_that_less_noise_is_seen(days: int) -> None:
    """Power: with a tenth less noise an adversary whose unit comes on the first days gains more than is promised."""
    design = Banded((3, 2, 1))
    sigma = design.sensitivity(Contribution(Distance(1, 1, 1, 1), days), DAYS).l2 / MU
    paths = [path for day in range(DAYS) for path in itertools.product((False, True), repeat=day)]
    first = dict.fromkeys(paths, 1), {path: int(len(path) < days) for path in paths}
    honest, short = (gained(design, scale * sigma, [EPSILON], *first, RULES[0])[0] for scale in (1.0, 0.9))
    assert 0.7 * promised(EPSILON, MU) < honest <= promised(EPSILON, MU) < short


def test_floors_are_paid_for() -> None:
    """Some tables carry one record further than the filter does, and no further than is paid for."""
    filtered = math.sqrt(float(FLOORED.column_squared(1, 1)))
    worst = max(
        sum((a - b) ** 2 for a, b in zip(means(FLOORED, [x + 1, y, z]), means(FLOORED, [x, y, z]), strict=True))
        for x, y, z in itertools.product(range(-4, 5), repeat=3)
    )
    assert filtered**2 < worst <= FLOORED.sensitivity(Contribution(Distance(1, 1, 1, 1)), DAYS).l2 ** 2
    # A record that is replaced moves the floors of two cells.
    replaced = FLOORED.sensitivity(Contribution(Distance(2, 2, 2, 1)), DAYS)
    assert 2 * filtered**2 < 2 * worst <= replaced.l2**2
