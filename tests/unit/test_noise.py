"""Exact noise: every word gives what arbitrary precision says, and the source is what it should be."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from mpmath import mp, mpf

import dpsketch.noise
from dpsketch._compiled.normal import upper_quantiles
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
from oracles.noise import (
    PRECISION,
    ScriptedSource,
    exact_magnitude,
    exact_normal_quantile,
    exact_variance,
    probabilities,
    source,
    uniform_of,
)

GAUSSIANS = [RoundedGaussian(sigma) for sigma in (1e-3, 0.3, 0.5, 3.0, 9.45, 1000.0, 1e7, 2.0**50)]
LAPLACES = [
    DiscreteLaplace(epsilon, sensitivity)
    for epsilon, sensitivity in ((50.0, 1), (4.0, 1), (1.0, 1), (0.1, 3), (1.0, 1000), (1e-6, 1), (1e-6, 10**9))
]
LAWS = GAUSSIANS + LAPLACES
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
@pytest.mark.parametrize("leading", [0, 1, 2, 2**20, 2**43 - 1, 2**43, 2**43 + 1, 2**62, 2**63 - 2, 2**63 - 1])
def test_extreme_words(law, leading):
    for word in (leading, leading | SIGN):
        assert draw(law, word, *ENDLESS) == expected(law, word, *ENDLESS)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_all_bits_zero_for_a_long_time(law):
    words = [0, 0, 0, 0, 7, *ENDLESS]
    assert draw(law, *words) == expected(law, *words)


@pytest.mark.parametrize("law", [law for law in LAWS if law not in (RoundedGaussian(1e-3), DiscreteLaplace(50.0, 1))])
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


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_words_at_random_and_from_every_octave(law):
    words = np.random.default_rng(5).integers(0, 2**64, 60, dtype=np.uint64).tolist()
    words += [(word >> shift) | (word & SIGN) for shift, word in enumerate(words)]
    for word in words:
        assert draw(law, word, *ENDLESS) == expected(law, word, *ENDLESS)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_a_batch_equals_its_words_one_by_one(law):
    words = np.random.default_rng(6).integers(0, 2**64, 50, dtype=np.uint64).tolist()
    with source(ScriptedSource(words + 200 * ENDLESS)):
        batch = law.sample(len(words)).tolist()
    assert batch == [draw(law, word, *ENDLESS) for word in words]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_sign_bit_negates_and_zero_has_no_sign(law):
    for leading in (2**62, 2**60 + 12345, 2**63 - 1, 3 * 2**61):
        assert draw(law, leading | SIGN, *ENDLESS) == -draw(law, leading, *ENDLESS)


def test_zero_is_counted_once():
    """The share of words that give 0 is P(Z=0) to 63 bits: one interval of leading bits, the same under both signs."""
    for law in (RoundedGaussian(0.5), RoundedGaussian(3.0), DiscreteLaplace(1.0, 1), DiscreteLaplace(0.1, 3)):
        with mp.workprec(PRECISION):
            zero = int(mp.floor(probabilities(law, 0)[0] * 2**63))
        for sign in (0, SIGN):
            assert draw(law, (2**63 - zero + 2) | sign, *ENDLESS) == 0
            assert abs(draw(law, (2**63 - zero - 3) | sign, *ENDLESS)) == 1


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_position_is_within_the_margin_everywhere(law):
    """The fast path's error, from all causes, is at most the margin for both ends of a word's interval."""
    rng = np.random.default_rng(7)
    leading = np.concatenate([rng.integers(2**43, 2**63, 40), 2 ** rng.uniform(43, 63, 80)]).astype(np.int64)
    match law:
        case RoundedGaussian(sigma):
            scale = sigma
        case DiscreteLaplace(epsilon, sensitivity):
            scale = sensitivity / epsilon
    margin = scale * dpsketch.noise._MARGIN + 2.0**-50
    for low, position in zip(leading.tolist(), law._position(leading | 1).tolist(), strict=True):
        for end in (low, low + 1):
            with mp.workprec(PRECISION):
                uniform = mpf(end) / 2**63
                match law:
                    case RoundedGaussian(sigma):
                        exact = sigma * exact_normal_quantile(uniform) + mpf("0.5")
                    case DiscreteLaplace(epsilon, sensitivity):
                        rate = mpf(epsilon) / sensitivity
                        exact = (mp.log(2 / (1 + mp.exp(-rate))) - mp.log(uniform)) / rate
                assert abs(position - exact) < margin


def test_quantiles_are_far_better_than_assumed():
    """The error over the range the fast path uses, against the 2⁻⁴⁵·(1+x) that the proof assumes."""
    rng = np.random.default_rng(8)
    inside, octaves, centre = (
        rng.uniform(0, 0.5, 1000),
        2.0 ** -rng.uniform(1, 21, 1000),
        0.5 - 2.0 ** -rng.uniform(2, 50, 500),
    )
    branch = 0.075 + rng.uniform(-1e-6, 1e-6, 500)  # where the approximation changes
    points = np.concatenate([inside, octaves, centre, branch])
    worst = 0.0
    with mp.workprec(160):
        for point, value in zip(points.tolist(), upper_quantiles(points).tolist(), strict=True):
            # One Newton step from the value: its length is the error, up to the error's square.
            error = (mp.erfc(mpf(value) / mp.sqrt(2)) / 2 - point) / mp.npdf(value)
            worst = max(worst, float(abs(error)) / (1 + value))
    assert worst < 2.0**-45 / 30


def test_slow_path_is_rare_at_usual_scales(settled):
    with seeded_noise_for_tests_only(3):
        for law in (RoundedGaussian(9.45), RoundedGaussian(1e4), DiscreteLaplace(0.1, 5)):
            law.sample(300_000)
    assert len(settled) < 20  # expected: 0.9


@pytest.mark.parametrize("sigma", [1e-300, 5e-324, 1e-3])
def test_tiny_sigma_gives_zero(sigma):
    assert not RoundedGaussian(sigma).sample(1000).any()
    assert draw(RoundedGaussian(sigma), 0, *ENDLESS) == 0


def test_huge_epsilon_gives_zero():
    assert not DiscreteLaplace(1e300, 1).sample(1000).any()
    assert draw(DiscreteLaplace(1e300, 1), 0, *ENDLESS) == 0


@pytest.mark.parametrize("size", [0, 1, 7, dpsketch.noise._CHUNK, dpsketch.noise._CHUNK + 1, 100_001])
@pytest.mark.parametrize("law", [RoundedGaussian(3.0), DiscreteLaplace(1.0, 2)], ids=repr)
def test_shape_and_type(law, size):
    sample = law.sample(size)
    assert sample.shape == (size,)
    assert sample.dtype == np.int64
    assert sample.flags.writeable


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.3, 0.5, 0.7, 1.0, 1.9, 2.0, 3.0, 20.0])
def test_variance_of_the_rounded_gaussian(sigma):
    law = RoundedGaussian(sigma)
    assert law.variance == pytest.approx(exact_variance(law), rel=1e-13)


@pytest.mark.parametrize("law", [*LAPLACES[:5], DiscreteLaplace(0.01, 1)], ids=repr)
def test_variance_of_the_discrete_laplace(law):
    assert law.variance == pytest.approx(exact_variance(law), rel=1e-12)


def test_words():
    assert RoundedGaussian(9.4512).words == "rounded Gaussian noise, σ = 9.451"
    assert DiscreteLaplace(0.5, 5).words == "discrete Laplace noise, scale = 10"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0, 0.0, -1.0, 10**400, "3", None, True])
def test_bad_parameters_are_refused(bad):
    with pytest.raises(InvalidInput, match="sigma must be"):
        RoundedGaussian(bad)
    with pytest.raises(InvalidInput, match="epsilon must be"):
        DiscreteLaplace(bad, 1)


@pytest.mark.parametrize("bad", [0, -3, 1.0, math.nan, None, False, "1"])
def test_bad_sensitivity_is_refused(bad):
    with pytest.raises(InvalidInput, match="sensitivity must be"):
        DiscreteLaplace(1.0, bad)


def test_a_scale_that_could_overflow_is_refused():
    for law in (
        lambda: RoundedGaussian(2.0**50 + 1),
        lambda: DiscreteLaplace(1e-16, 1),
        lambda: DiscreteLaplace(1.0, 2**60),
    ):
        with pytest.raises(InvalidInput, match=r"2\*\*50"):
            law()
    with pytest.raises(InvalidInput, match=r"2\*\*50"):
        DiscreteLaplace(5e-324, 10**400)
    # What is accepted stays below 2**61 even for a run of 1,000 zero bits.
    for law in (RoundedGaussian(2.0**50), DiscreteLaplace(2.0**-50, 1)):
        assert abs(draw(law, 0, *[0] * 15, *ENDLESS)) < 2**61


@pytest.mark.parametrize("bad", [-1, 1.0, None, True])
def test_bad_sizes_are_refused(bad):
    for call in (RoundedGaussian(1.0).sample, DiscreteLaplace(1.0, 1).sample, random_words, random_bytes):
        with pytest.raises(InvalidInput):
            call(bad)


def test_integers_are_taken_as_the_real_numbers_they_are():
    assert RoundedGaussian(3) == RoundedGaussian(3.0)
    assert type(RoundedGaussian(3).sigma) is float
    assert draw(RoundedGaussian(3), 0, *ENDLESS) == draw(RoundedGaussian(3.0), 0, *ENDLESS)
    assert draw(DiscreteLaplace(1, 1), 0, *ENDLESS) == draw(DiscreteLaplace(1.0, 1), 0, *ENDLESS)


def test_laws_are_frozen_values():
    with pytest.raises(FrozenInstanceError):
        RoundedGaussian(1.0).sigma = 2.0
    assert len({RoundedGaussian(1.0), RoundedGaussian(1.0), DiscreteLaplace(1.0, 1)}) == 2


# The source.


def test_two_calls_differ():
    assert (RoundedGaussian(1e6).sample(100) != RoundedGaussian(1e6).sample(100)).any()
    assert random_bytes(16) != random_bytes(16)
    assert (random_words(4) != random_words(4)).any()


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


def everything():
    return (
        RoundedGaussian(5.0).sample(100_000).tobytes(),
        DiscreteLaplace(0.3, 2).sample(1000).tobytes(),
        random_words(5).tobytes(),
        random_below(10**9, 50).tobytes(),
        random_bytes(11),
    )


def test_the_seed_reproduces_everything():
    with seeded_noise_for_tests_only(42):
        first = everything()
        again = everything()
    with seeded_noise_for_tests_only(42):
        assert everything() == first
    with seeded_noise_for_tests_only(43):
        assert all(a != b for a, b in zip(everything(), first, strict=True))
    assert all(a != b for a, b in zip(again, first, strict=True))
    assert everything()[0] != first[0]


def test_the_seeded_source_is_known_for_what_it_is():
    assert not noise_is_for_tests()
    with seeded_noise_for_tests_only(1):
        assert noise_is_for_tests()
        with seeded_noise_for_tests_only(2):
            assert noise_is_for_tests()
        assert noise_is_for_tests()
    assert not noise_is_for_tests()
    with pytest.raises(InvalidInput), seeded_noise_for_tests_only(1):
        random_words(-1)
    assert not noise_is_for_tests(), "an error leaves the block too"
    with source(ScriptedSource([])):
        assert noise_is_for_tests(), "anything but the operating system is for tests"


def test_a_seed_does_not_reach_other_threads():
    seen = []
    with seeded_noise_for_tests_only(1):
        thread = threading.Thread(target=lambda: seen.append(noise_is_for_tests()))
        thread.start()
        thread.join()
    assert seen == [False]


@pytest.mark.parametrize("seed", [1.5, "1", None, True])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InvalidInput), seeded_noise_for_tests_only(seed):
        pass


def test_random_bytes_and_words_pass_the_source_through():
    with source(ScriptedSource([1, 2**64 - 1, 3])):
        assert random_words(2).tolist() == [1, 2**64 - 1]
        assert random_bytes(8) == (3).to_bytes(8, "little")
    assert random_bytes(0) == b""
    assert len(random_bytes(13)) == 13


@pytest.mark.parametrize("bound", [1, 2, 3, 6, 10**9, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64])
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


def test_random_below_is_uint64_of_the_size_asked():
    assert random_below(10, 0).shape == (0,)
    assert random_below(10, 9).dtype == np.uint64


@pytest.mark.parametrize("bound", [0, -1, 2**64 + 1, 2.0, None, True])
def test_random_below_refuses_bad_bounds(bound):
    with pytest.raises(InvalidInput, match="bound must be"):
        random_below(bound, 3)


def test_import_does_not_load_multiprecision():
    code = "import sys, dpsketch.noise; assert 'mpmath' not in sys.modules and 'scipy.stats' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
