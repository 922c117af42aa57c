"""Exact noise: every word gives what arbitrary precision says, and the source is what it should be."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from mpmath import mp, mpf

import dpsketch.noise
from dpsketch.errors import InvalidInput
from dpsketch.noise import (
    DiscreteLaplace,
    RoundedGaussian,
    noise_is_for_tests,
    random_below,
    random_bytes,
    random_words,
    seeded_noise_for_tests_only,
)
from oracles.noise import PRECISION, ScriptedSource, exact_magnitude, exact_variance, source, uniform_of
from tests.effort import instructions

GAUSSIANS = [RoundedGaussian(sigma) for sigma in (1e-3, 0.3, 0.5, 3.0, 9.45, 1000.0, 1e7, 2.0**50)]
LAPLACES = [
    DiscreteLaplace(epsilon, sensitivity)
    for epsilon, sensitivity in ((50.0, 1), (4.0, 1), (1.0, 1), (0.1, 3), (1.0, 1000), (1e-6, 1), (1e-6, 10**9))
]
LAWS = GAUSSIANS + LAPLACES
# Where each word costs much: each form at a small, a usual and the largest scale.
SOME = [GAUSSIANS[1], GAUSSIANS[4], GAUSSIANS[7], LAPLACES[1], LAPLACES[3], LAPLACES[5]]
SIGN = 1 << 63
ENDLESS = [0x0123456789ABCDEF, 0xFEDCBA9876543210, 0x5555555555555555]


def draw(law, word, *more):
    """The sample of one scripted word; ``more`` answers the slow path's requests for bits."""
    with source(ScriptedSource([word, *more])):
        return int(law.sample(1)[0])


def expected(law, word, *more):
    magnitude = exact_magnitude(law, uniform_of([word, *more]))
    return -magnitude if word & SIGN else magnitude


@pytest.fixture
def settled(monkeypatch):
    """The leading bits of every sample that took the slow path."""
    seen = []
    original = dpsketch.noise._settle

    def spy(leading, guess, tail):
        seen.append(leading)
        return original(leading, guess, tail)

    monkeypatch.setattr(dpsketch.noise, "_settle", spy)
    return seen


def boundary(law, magnitude, bits=63):
    """⌊P(|Z| ≥ magnitude)·2^bits⌋ by inverting nothing: one minus the sum of the probabilities below."""
    with mp.workprec(PRECISION):
        match law:
            case RoundedGaussian(sigma):
                tail = mp.gammainc(mpf("0.5"), (mpf(magnitude) - mpf("0.5")) ** 2 / (2 * mpf(sigma) ** 2))
                tail /= mp.sqrt(mp.pi)
            case DiscreteLaplace(epsilon, sensitivity):
                rate = mpf(epsilon) / sensitivity
                tail = mp.exp(-rate * (magnitude - mpf("0.5"))) / mp.cosh(rate / 2)
        return int(mp.floor(tail * mpf(2) ** bits))


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("leading", [0, 1, 2**20, 2**43 - 1, 2**43 + 1, 2**62, 2**63 - 1])
def test_extreme_words(law, leading):
    for word in (leading, leading | SIGN):
        assert draw(law, word, *ENDLESS) == expected(law, word, *ENDLESS)


@pytest.mark.parametrize("law", SOME, ids=repr)
def test_words_around_every_boundary(law, settled):
    """Each distance 2^i from a boundary between two integers, and every word next to it, both signs."""
    scale = math.sqrt(law.variance)
    magnitudes = sorted({1, 2, 3, max(1, round(scale)), max(1, round(2.5 * scale)), max(1, round(4 * scale))})
    checked_slow = False
    for magnitude in magnitudes:
        edge = boundary(law, magnitude)
        near = [edge + d for d in range(-20, 21)]
        far = [edge + s * 2**i for i in range(3, 62, 2) for s in (-1, 1)]
        for leading in near + far:
            if not 0 <= leading < 2**63:
                continue
            word = leading | (SIGN if leading % 3 == 0 else 0)
            settled.clear()
            assert draw(law, word, *ENDLESS) == expected(law, word, *ENDLESS)
            if leading in near:
                assert settled == [leading], "a word beside a boundary must be settled in arbitrary precision"
                checked_slow = True
    assert checked_slow


@pytest.mark.parametrize("law", [RoundedGaussian(0.5), RoundedGaussian(3.0), DiscreteLaplace(1.0, 1)], ids=repr)
def test_the_boundary_word_is_decided_by_the_bits_that_follow(law):
    """The word in which the boundary falls is split by its next 64 bits, and their boundary by the next 64."""
    for magnitude in (1, 2, 3):
        first, second, third = (boundary(law, magnitude, bits) for bits in (63, 127, 191))
        second_word, third_word = second - (first << 64), third - (second << 64)
        assert draw(law, first, second_word - 5, *ENDLESS) == magnitude
        assert draw(law, first, second_word + 5, *ENDLESS) == magnitude - 1
        assert draw(law, first, second_word, third_word - 5, *ENDLESS) == magnitude
        assert draw(law, first, second_word, third_word + 5, *ENDLESS) == magnitude - 1
        assert draw(law, first | SIGN, second_word, third_word - 5, *ENDLESS) == -magnitude


@pytest.mark.parametrize("law", SOME, ids=repr)
def test_words_at_random_and_from_every_octave(law):
    words = np.random.default_rng(5).integers(0, 2**64, 60, dtype=np.uint64).tolist()
    words += [(word >> shift) | (word & SIGN) for shift, word in enumerate(words)]
    for word in words:
        assert draw(law, word, *ENDLESS) == expected(law, word, *ENDLESS)


@pytest.mark.parametrize("law", [*map(RoundedGaussian, (0.05, 0.5, 1.9, 2.0, 20.0)), *LAPLACES[:4]], ids=repr)
def test_the_variance_is_the_exact_one(law):
    assert law.variance == pytest.approx(exact_variance(law), rel=1e-12)


def test_numbers_out_of_range_are_refused():
    """What is no number at all is refused in test_numbers.py."""
    below, laplace_of = partial(random_below, n=3), partial(DiscreteLaplace, 1.0)
    for call, bad, name in (
        *((RoundedGaussian, bad, "sigma") for bad in (0, math.inf, 10**400)),
        *((partial(DiscreteLaplace, sensitivity=1), bad, "epsilon") for bad in (0, math.inf)),
        *((laplace_of, bad, "sensitivity") for bad in (0, 1.0)),
        *((call, -1, "") for call in (RoundedGaussian(1.0).sample, random_words, random_bytes)),
        *((below, bad, "bound") for bad in (0, 2**64 + 1)),
    ):
        with pytest.raises(InvalidInput, match=f"{name} must be"):
            call(bad)


def test_a_scale_that_could_overflow_is_refused():
    for law in (
        lambda: RoundedGaussian(2.0**50 + 1),
        lambda: DiscreteLaplace(1e-16, 1),
        lambda: DiscreteLaplace(5e-324, 10**400),
    ):
        with pytest.raises(InvalidInput, match=r"2\*\*50"):
            law()
    # What is accepted stays below 2**61 even for a run of 1,000 zero bits.
    for law in (RoundedGaussian(2.0**50), DiscreteLaplace(2.0**-50, 1)):
        assert abs(draw(law, 0, *[0] * 15, *ENDLESS)) < 2**61


# The source.


FORKING = """
import os
from dpsketch.noise import RoundedGaussian
print(RoundedGaussian(1e6).sample(8).tolist(), flush=True)
for _ in range(3):
    child = os.fork()
    if child == 0:
        print(RoundedGaussian(1e6).sample(8).tolist(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print(RoundedGaussian(1e6).sample(8).tolist(), flush=True)
"""


def test_forked_children_do_not_repeat_noise():
    """In a process of its own: forking one that has threads, as a test runner may, is unsafe."""
    done = subprocess.run([sys.executable, "-c", FORKING], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert len(set(lines)) == 5


def test_the_seeded_source_is_known_for_what_it_is():
    with seeded_noise_for_tests_only(1):
        with seeded_noise_for_tests_only(2):
            pass
        assert noise_is_for_tests()
    with pytest.raises(InvalidInput), seeded_noise_for_tests_only(1):
        random_words(-1)
    assert not noise_is_for_tests(), "an error leaves the block too"
    with source(ScriptedSource([])):
        assert noise_is_for_tests(), "anything but the operating system is for tests"


@pytest.mark.parametrize("bound", [1, 3, 2**32, 2**63 - 1, 2**63 + 1, 2**64])
def test_random_below_rejects_exactly_the_excess(bound):
    """The words below the largest multiple of the bound give their remainder; each one above it is drawn again."""
    multiple = 2**64 // bound * bound
    accepted = [0, bound - 1, multiple - 1, multiple // 2]
    with source(ScriptedSource(accepted)):
        assert random_below(bound, 4).tolist() == [word % bound for word in accepted]
    rejected = [word for word in (multiple, 2**64 - 1) if multiple <= word < 2**64]
    for word in rejected:
        script = ScriptedSource([0, word, bound - 1, *rejected, 5 % bound])
        with source(script):
            assert random_below(bound, 3).tolist() == [0, 5 % bound, bound - 1]
        assert script.words == []


# Does the work of a draw tell its size? Counted and not timed, so that a loaded machine changes nothing.
DRAWS = 300


def medians(draw: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Median instructions, and bytes of randomness, of draws that came out small, middling and large."""
    read = dpsketch.noise._OperatingSystemSource.read
    taken = 0

    def counted(source: dpsketch.noise._OperatingSystemSource, count: int) -> bytes:
        nonlocal taken
        taken += count
        return read(source, count)

    monkeypatch.setattr(dpsketch.noise._OperatingSystemSource, "read", counted)
    draw()
    found = []
    for _ in range(DRAWS):
        before, drawn = taken, []
        work = instructions(lambda kept=drawn: kept.append(abs(draw())))
        found.append((drawn[0], work, taken - before))
    by_size = np.array_split(np.array(sorted(found)), 3)
    return [(float(np.median(group[:, 1])), float(np.median(group[:, 2]))) for group in by_size]


@pytest.mark.parametrize("law", [RoundedGaussian(40.0), RoundedGaussian(3000.0), DiscreteLaplace(0.05, 1)], ids=str)
def test_a_draw_is_as_much_work_whatever_its_size(law: dpsketch.noise.Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documented slow path, more bits in arbitrary precision, is taken where 64 bits do not settle a draw: about
    once in a million draws, so it does not show in a median of a hundred."""
    small, middling, large = medians(lambda: int(law.sample(1)[0]), monkeypatch)
    assert small == middling == large
    assert small[1] == 8


def test_a_draw_that_counts_up_to_its_size_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: a geometric draw by trials, as textbooks have it."""

    def by_trials() -> int:
        trials = 0
        while int(random_words(1)[0]) >> 60:
            trials += 1
        return trials

    small, _, large = medians(by_trials, monkeypatch)
    assert large[0] > 2 * small[0]
    assert large[1] > 2 * small[1]
