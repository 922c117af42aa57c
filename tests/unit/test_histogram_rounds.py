"""Names found by weights: δ against numerical enumeration, the cutoffs it gives, and what a claim is checked by."""

from __future__ import annotations

import math
from dataclasses import replace as changed
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import log_ndtr, ndtr

from dpsketch.core.move import Move
from dpsketch.laws.rounds import WEIGHT_ONE, WeightedRounds, rounds_delta, unit_weights
from dpsketch.noise import RoundedGaussian
from dpsketch.sketches.histogram.calibration import rounds, weighted

Floats = npt.NDArray[np.float64]
HIGH = 40.0  # a sum so far above the cutoff, in standard deviations, that it is always listed


def recomputed(found: WeightedRounds, **facts: Any) -> float:
    given = {
        "epsilon": found.epsilon,
        "cap": found.cap,
        "replace": found.neighbours == "replace",
        "counts": found.counts_shift,
    }
    return rounds_delta(found.noises, found.cutoffs, **{**given, **facts})


def sum_outputs(sigma: float, cutoff: float, mean: float, shift: float) -> tuple[Floats, Floats]:
    """One key's output with and without a shift: "not listed", then cells of a fortieth of σ from the cutoff on.

    Which cell it is in is less than what is published, so no δ of the cells passes the true one.
    """
    start = max(cutoff, mean - 9 * sigma)
    edges = np.append(np.arange(start, max(mean, cutoff) + shift + 9 * sigma, sigma / 40), np.inf)
    tails = [ndtr((centre - edges) / sigma) for centre in (mean + shift, mean)]
    with_it, without = ([1 - tail[0], *-np.diff(tail)] for tail in tails)
    return np.array(with_it), np.array(without)


def enumerated(
    laws: tuple[RoundedGaussian, ...],
    cutoffs: tuple[int, ...],
    epsilon: float,
    held: list[list[tuple[int, float | None]]],
) -> float:
    """δ, both ways, of a unit that holds in each round these keys: (their number d, the others' sum or None if novel).

    The others' sum is given in standard deviations above the cutoff.
    """
    with_it, without = np.ones(1), np.ones(1)
    for law, cutoff, keys in zip(laws, cutoffs, held, strict=True):
        for number, above in keys:
            weight = WEIGHT_ONE / math.sqrt(number)
            if above is None:
                shown = float(ndtr((weight - cutoff) / law.sigma))
                here, there = np.array([1 - shown, shown]), np.array([1.0, 0.0])
            else:
                here, there = sum_outputs(law.sigma, cutoff, cutoff + above * law.sigma, weight)
            with_it, without = np.outer(with_it, here).ravel(), np.outer(without, there).ravel()
    e = math.exp(epsilon)
    return float(max(np.maximum(with_it - e * without, 0).sum(), np.maximum(without - e * with_it, 0).sum()))


def holdings(cap: int) -> list[list[tuple[int, float | None]]]:
    return [
        [(d, None)] * novel + [(d, above)] * (d - novel)
        for d in range(1, cap + 1)
        for novel in range(d + 1)
        for above in (-0.5, 0.0, HIGH)
    ]


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (3.0, 1e-6)])
def test_one_round_hides_a_user_with_two_keys(epsilon: float, delta: float) -> None:
    found = weighted(epsilon, delta, 2, False)
    worst = max(enumerated(found.noises, found.cutoffs, epsilon, [held]) for held in holdings(2))
    assert 0.99 * delta < worst <= found.delta <= delta
    lower = tuple(int(0.99 * cutoff) for cutoff in found.cutoffs)
    assert max(enumerated(found.noises, lower, epsilon, [held]) for held in holdings(2)) > delta


def test_two_rounds_hide_a_user_whatever_it_holds_in_each() -> None:
    found = rounds(2.0, 1e-3, 2, False)
    single = [held for held in holdings(2) if sum(above is not None for _, above in held) <= 1]
    worst = max(enumerated(found.noises, found.cutoffs, 2.0, [a, b]) for a, b in product(single, single))
    assert worst <= found.delta <= 1e-3


@pytest.mark.parametrize(("epsilon", "delta", "cap"), [(0.1, 1e-5, 1), (1.0, 1e-5, 100), (3.0, 1e-9, 10)])
def test_names_of_all_rounds_together_show_no_more_often_than_delta(epsilon: float, delta: float, cap: int) -> None:
    """Users whose keys are all novel in every round, and what the counts would cost on top."""
    for found in (rounds(epsilon, delta, cap, False), weighted(epsilon, delta, cap, False)):
        weights = unit_weights(cap)[1:]
        hidden = sum(
            (np.arange(1, cap + 1) * log_ndtr((cutoff - weights - 0.5) / law.sigma)).min()
            for law, cutoff in zip(found.noises, found.cutoffs, strict=True)
        )
        assert 0.1 * delta < -math.expm1(hidden) <= found.delta <= delta


def test_weights_are_rounded_down_and_move_at_most_one_in_all() -> None:
    weights = unit_weights(1000)
    for d in (1, 2, 3, 10, 777, 1000):
        assert d * int(weights[d]) ** 2 <= WEIGHT_ONE**2 < d * (int(weights[d]) + 1) ** 2


@pytest.mark.parametrize(
    ("epsilon", "cap", "cutoff", "sigma"), [(0.1, 1, 132.15, 30.75), (1.0, 30, 18.73, 3.731), (3.0, 100, 7.33, 1.391)]
)
def test_cutoffs_of_one_round(epsilon: float, cap: int, cutoff: float, sigma: float) -> None:
    found = weighted(epsilon, 1e-5, cap, False)
    assert found.cutoffs[0] / WEIGHT_ONE == pytest.approx(cutoff, abs=0.011)
    assert found.noises[0].sigma / WEIGHT_ONE == pytest.approx(sigma, abs=6e-4)


COUNTS = {"counts_keys": 30, "counts_share": 0.3}
CASES = [
    weighted(1.0, 1e-5, 20, False),
    weighted(0.1, 1e-9, 20, True, counts_weight=7, **COUNTS),
    rounds(1.0, 1e-5, 20, True, counts_weight=7, **COUNTS),
    rounds(1.0, 1e-5, 20, False, shares=(0.05, 0.15, 0.8)),
]


@pytest.mark.parametrize("found", CASES, ids=lambda found: found.words)
def test_a_claim_is_checked_from_what_a_file_says(found: WeightedRounds) -> None:
    delta, asked = recomputed(found), 1e-9 if found.delta < 1e-8 else 1e-5
    assert 0.9999 * asked < delta == found.delta <= asked
    assert recomputed(found, epsilon=0.95 * found.epsilon) > delta
    assert recomputed(found, cap=found.cap + 1) > delta
    louder = changed(found, cutoffs=tuple(int(0.99 * cutoff) for cutoff in found.cutoffs))
    assert recomputed(louder) > delta
    assert recomputed(changed(louder, noises=tuple(RoundedGaussian(0.99 * law.sigma) for law in found.noises))) > delta
    if found.neighbours == "add_remove":
        assert recomputed(found, replace=True) > 3 * delta
    if found.counts:
        (noise,) = found.counts.noises
        assert isinstance(noise, RoundedGaussian)
        quieter = changed(found.counts, noises=(RoundedGaussian(0.98 * noise.sigma),))
        assert changed(found, counts=quieter).delta > delta
        heavier = changed(found.table, move=Move.each(found.keys, found.weight + 1))
        assert changed(found, table=heavier).delta > delta


def test_one_unit_in_place_of_another_is_looked_at_jointly() -> None:
    """One round's exact cutoff is below what two units at their worst would need, and all pairs of units keep δ."""
    epsilon, delta, cap = 1.0, 1e-4, 3
    found = weighted(epsilon, delta, cap, True)
    (law,), (cutoff,) = found.noises, found.cutoffs
    worst = 0.0
    units = [(d, novel) for d in range(1, cap + 1) for novel in range(d + 1)]
    for (d, j), (other, k) in product(units, units):
        hidden = j * log_ndtr((cutoff - WEIGHT_ONE / math.sqrt(d)) / law.sigma)
        others = k * log_ndtr((cutoff - WEIGHT_ONE / math.sqrt(other)) / law.sigma)
        shift = WEIGHT_ONE * math.sqrt((d - j) / d + (other - k) / other) / law.sigma
        loss = epsilon + others - hidden
        excess = ndtr(shift / 2 - loss / shift) - math.exp(loss) * ndtr(-shift / 2 - loss / shift) if shift else 0.0
        worst = max(worst, -math.expm1(hidden) + math.exp(hidden) * excess)
    assert worst == pytest.approx(found.delta, rel=1e-4)
