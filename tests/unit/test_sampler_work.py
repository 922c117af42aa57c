"""Does the work of a draw tell its size? Counted and not timed, so that a loaded machine changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dpsketch import noise
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from tests.effort import instructions

DRAWS = 300


def medians(draw: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Median instructions, and bytes of randomness, of draws that came out small, middling and large."""
    read = noise._OperatingSystemSource.read
    taken = 0

    def counted(source: noise._OperatingSystemSource, count: int) -> bytes:
        nonlocal taken
        taken += count
        return read(source, count)

    monkeypatch.setattr(noise._OperatingSystemSource, "read", counted)
    draw()
    found = []
    for _ in range(DRAWS):
        before, drawn = taken, []
        work = instructions(lambda kept=drawn: kept.append(abs(draw())))
        found.append((drawn[0], work, taken - before))
    by_size = np.array_split(np.array(sorted(found)), 3)
    return [(float(np.median(group[:, 1])), float(np.median(group[:, 2]))) for group in by_size]


@pytest.mark.parametrize("law", [RoundedGaussian(40.0), RoundedGaussian(3000.0), DiscreteLaplace(0.05, 1)], ids=str)
def test_a_draw_is_as_much_work_whatever_its_size(law: noise.Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documented slow path, more bits in arbitrary precision, is taken where 64 bits do not settle a draw: about
    once in a million draws, so it does not show in a median of a hundred."""
    small, middling, large = medians(lambda: int(law.sample(1)[0]), monkeypatch)
    assert small == middling == large
    assert small[1] == 8


def test_a_draw_that_counts_up_to_its_size_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: a geometric draw by trials, as textbooks have it."""

    def by_trials() -> int:
        trials = 0
        while int(noise.random_words(1)[0]) >> 60:
            trials += 1
        return trials

    small, _, large = medians(by_trials, monkeypatch)
    assert large[0] > 2 * small[0]
    assert large[1] > 2 * small[1]
