"""Exact integer noise from the operating system's randomness.

Two laws: the rounded Gaussian and the discrete Laplace. No floating-point value ever leaves this module, and the law
of what leaves is exact, tails included, so the textbook guarantee is the guarantee of the program.

**Certified inversion.** A 64-bit word gives a sign bit and 63 bits ``w``. The magnitude of the sample is a decreasing
step function of a uniform ``U`` in (0, 1), of which ``w`` is the first 63 bits: U lies in [w, w+1]·2⁻⁶³. Let
``tail(j)`` = P(|Z| ≥ j); the magnitude is the largest j with U < tail(j).

1. *Fast.* A law computes in double precision a ``position`` y whose whole part is the magnitude. If y − m and y + m
   have the same whole part, where m bounds the error of y *for every U in the interval*, then that is the magnitude.
2. *Slow.* Otherwise, and always for w < 2⁴³, U is compared with ``tail(j)`` in arbitrary precision. Where the bits
   drawn so far cannot tell, 64 more are drawn. The bits of U stay independent and uniform, so the law is exact.

**The error bound** is m = scale·2⁻⁴¹ + 2⁻⁵⁰, where scale is σ, or Δ/ε for the discrete Laplace. The figures below are
in units of scale, for w ≥ 2⁴³, so U ≥ 2⁻²⁰. The fast path reads v, which is w with its last bit set (so that v > 0).

- v·2⁻⁶³, as a double, and U lie within 1/w + 2⁻⁵³ < 2⁻⁴²·⁹⁹ of each other in logarithm.
- *Gaussian:* y = ½ + σx, with Q(x) = U/2 ≤ ½, Q the upper tail of the normal law and φ its density.
  |dx/d ln Q| = Q(x)/φ(x) falls on x ≥ 0 from √(π/2) < 1.26, so the interval costs at most 1.26·2⁻⁴²·⁹⁹ < 2⁻⁴²·⁶.
  As x < 5, an error of ``upper_quantiles`` of at most 2⁻⁴⁵ relative plus 2⁻⁴⁵ absolute costs 6·2⁻⁴⁵ < 2⁻⁴²·⁴. No bound
  of it is proved; this one is over thirty times the worst that the tests find against mpmath. The product costs 2⁻⁵⁰.
- *Discrete Laplace:* y = (ln(2/(1+a)) − ln U)·Δ/ε with a = e^(−ε/Δ). The interval costs 2⁻⁴²·⁹⁹. As −ln U < 14, NumPy's
  ``log`` (documented within 4 ulp) costs 2⁻⁴⁷, and the constant, the quotient, a sum and a product 2⁻⁴⁷ together.
- Adding ½ and ±m rounds twice more, by at most 2⁻⁵²·(15·scale + 1).

Each sum is below scale·2⁻⁴¹·⁴ + 2⁻⁵¹, hence below m.

**Range.** A scale above 2⁵⁰ is refused: then P(|Z| ≥ 2⁶¹) < 2·exp(−2¹¹), and counters below 2⁶² stay below 2⁶³.
Speed falls above a scale of about 2³⁰, where the margin m begins to catch a noticeable part of the samples.

**Time.** A slow sample takes tens of microseconds and a fast one tens of nanoseconds; about one in 10⁶ is slow at usual
scales. Whoever can time a release to the microsecond could learn that some of its noise was far out in the tail.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import shake_128
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.normal import upper_quantiles
from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_whole, real_number, whole_number

__all__ = [
    "DiscreteLaplace",
    "Noise",
    "RoundedGaussian",
    "SeededSourceForTestsOnly",
    "noise_is_for_tests",
    "random_below",
    "random_bytes",
    "random_id",
    "random_words",
    "seeded_noise_for_tests_only",
]

_CHUNK = 1 << 15  # words a round: the arrays of a round stay in the second-level cache
_LARGEST_SCALE = 2.0**50
_MARGIN = 2.0**-41
_FEWEST_LEADING = 1 << 43  # below this, the interval of a word is too wide for the fast path
_LOW_63 = (1 << 63) - 1


# Where the random bits come from.


class _Source(Protocol):
    def read(self, count: int) -> bytes: ...


class _OperatingSystemSource:
    """The kernel's generator. Nothing is kept between calls, so a forked child cannot repeat its parent's noise."""

    def read(self, count: int) -> bytes:
        return os.urandom(count)


class SeededSourceForTestsOnly:
    """A reproducible stream. Whoever knows the seed can subtract the noise, so nothing drawn from it is private."""

    def __init__(self, seed: int) -> None:
        seed = whole_number("seed", seed)
        self._prefix = b"dpsketch noise for tests only %d " % seed
        self._calls = 0

    def read(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        self._calls += 1
        return shake_128(self._prefix + b"%d" % self._calls).digest(count)


# A context variable: a test that runs beside other threads or tasks changes its own source only.
_OPERATING_SYSTEM = _OperatingSystemSource()
_source: ContextVar[_Source] = ContextVar("dpsketch_noise_source", default=_OPERATING_SYSTEM)


@contextmanager
def seeded_noise_for_tests_only(seed: int) -> Iterator[None]:
    """Draw all noise from a seed inside the ``with`` block. Releases made there promise nothing and say so.

    Examples
    --------
    >>> with seeded_noise_for_tests_only(1):
    ...     first = RoundedGaussian(10.0).sample(4)
    >>> with seeded_noise_for_tests_only(1):
    ...     bool((RoundedGaussian(10.0).sample(4) == first).all())
    True
    """
    token = _source.set(SeededSourceForTestsOnly(seed))
    try:
        yield
    finally:
        _source.reset(token)


def noise_is_for_tests() -> bool:
    """Say whether noise drawn now comes from anything but the operating system.

    Examples
    --------
    >>> noise_is_for_tests()
    False
    """
    return _source.get() is not _OPERATING_SYSTEM


def random_bytes(n: int) -> bytes:
    """Return ``n`` fresh random bytes."""
    n = whole_number("n", n, low=0)
    return _source.get().read(n)


def random_id() -> str:
    """Return 32 hexadecimal digits that no other call returns.

    They come from the operating system also where noise is seeded: an id tells things apart and hides nothing.
    """
    return _OPERATING_SYSTEM.read(16).hex()


def random_words(n: int) -> npt.NDArray[np.uint64]:
    """Return ``n`` fresh random 64-bit words."""
    n = whole_number("n", n, low=0)
    return np.frombuffer(_source.get().read(8 * n), dtype="<u8").astype(np.uint64)


def random_below(bound: int, n: int) -> npt.NDArray[np.uint64]:
    """Return ``n`` integers, each exactly uniform in [0, ``bound``), for a bound of up to 2⁶⁴.

    Words at or above the largest multiple of ``bound`` are drawn again, so the remainder has no bias.

    Examples
    --------
    >>> bool((random_below(6, 1000) < 6).all())
    True
    """
    bound = whole_number("bound", bound, low=1)
    if bound > 1 << 64:
        raise InvalidInput(f"bound must be at most 2**64, not {bound}.")
    words = random_words(n)
    largest = (1 << 64) - 1
    excess = (1 << 64) % bound
    rejected = np.flatnonzero(words > np.uint64(largest - excess))
    while len(rejected):
        words[rejected] = random_words(len(rejected))
        rejected = rejected[words[rejected] > np.uint64(largest - excess)]
    return words if bound > largest else words % np.uint64(bound)


# The laws.


@dataclass(frozen=True, slots=True)
class RoundedGaussian:
    """The law of round(N(0, σ²)), on the integers.

    Parameters
    ----------
    sigma : float
        Standard deviation before rounding, in units of the counters; at most 2⁵⁰.

    Notes
    -----
    *Privacy.* Adding this to integer counters is the same as adding N(0, σ²) and rounding, which is post-processing:
    the guarantee of the continuous Gaussian mechanism of this σ holds, its exact composition included. The
    sensitivity must be that of the integer counters.

    *Accuracy.* Rounding adds at most 1/12 to the variance.

    Examples
    --------
    >>> noise = RoundedGaussian(9.45)
    >>> noise.sample(3).dtype
    dtype('int64')
    >>> print(noise.words)
    rounded Gaussian noise, σ = 9.45
    """

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _positive("sigma", self.sigma))
        if self.sigma > _LARGEST_SCALE:
            raise InvalidInput(f"sigma must be at most 2**50 to fit 64-bit counters, not {self.sigma:g}.")

    def sample(self, size: int) -> npt.NDArray[np.int64]:
        """Draw ``size`` independent samples."""
        return _sample(size, self.sigma, self._position, self._tail)

    @property
    def variance(self) -> float:
        """The variance, exact to double precision."""
        if self.sigma >= 2:  # the correction to Sheppard's 1/12 is of the order of exp(−2π²σ²)
            return self.sigma**2 + 1 / 12
        # E Z² = Σ (2j−1)·P(|Z| ≥ j)
        return math.fsum((2 * j - 1) * math.erfc((j - 0.5) / self.sigma / math.sqrt(2)) for j in range(1, 80))

    @property
    def words(self) -> str:
        """The law in a phrase."""
        return f"rounded Gaussian noise, σ = {self.sigma:.4g}"

    def _position(self, leading: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        y = upper_quantiles(np.multiply(leading, 2.0**-64))  # half of U: the tail on one side
        y *= self.sigma
        y += 0.5
        return y

    def _tail(self, magnitude: int, bits: int) -> int:
        from mpmath import libmp

        # P(|Z| ≥ j) = erfc(x) with x = (j − ½)/(σ√2), and erfc(x) ≤ exp(−x²). Past this x² > 2·bits, it rounds to 0.
        if magnitude - 0.5 > 2 * self.sigma * math.sqrt(bits):
            return 0
        precision = bits + 64
        root8 = libmp.mpf_sqrt(libmp.from_int(8), precision)
        divisor = libmp.mpf_mul(libmp.from_float(self.sigma), root8, precision)
        x = libmp.mpf_div(libmp.from_int(2 * magnitude - 1), divisor, precision)
        return int(libmp.to_fixed(libmp.mpf_erfc(x, precision), bits))


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """The law P(z) ∝ exp(−ε·|z|/Δ) on the integers, also called two-sided geometric.

    Parameters
    ----------
    epsilon : float
        The privacy loss, taken as the exact value of the double given.
    sensitivity : int
        Δ, the L1 sensitivity of the integer counters. Δ/ε is at most 2⁵⁰.

    Notes
    -----
    *Privacy.* Added to every counter it is ``epsilon``-differentially private, with no δ, for integer counters whose
    L1 distance between neighbours is at most ``sensitivity``.

    *Accuracy.* The standard deviation is close to √2·Δ/ε.

    Examples
    --------
    >>> noise = DiscreteLaplace(epsilon=0.5, sensitivity=7)
    >>> noise.sample(3).dtype
    dtype('int64')
    >>> print(noise.words)
    discrete Laplace noise, scale = 14
    """

    epsilon: float
    sensitivity: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _positive("epsilon", self.epsilon))
        hold_whole(self, "sensitivity", low=1)
        if self.sensitivity > _LARGEST_SCALE * self.epsilon:
            raise InvalidInput(
                f"sensitivity/epsilon must be at most 2**50 to fit 64-bit counters; "
                f"epsilon {self.epsilon:g} is too small for sensitivity {self.sensitivity}."
            )

    def sample(self, size: int) -> npt.NDArray[np.int64]:
        """Draw ``size`` independent samples."""
        return _sample(size, self._scale, self._position, self._tail)

    @property
    def variance(self) -> float:
        """The variance, 2a/(1−a)² with a = exp(−ε/Δ)."""
        rate = self.epsilon / self.sensitivity
        return 2 * math.exp(-rate) / math.expm1(-rate) ** 2

    @property
    def words(self) -> str:
        """The law in a phrase."""
        return f"discrete Laplace noise, scale = {self._scale:.4g}"

    @property
    def _scale(self) -> float:
        return self.sensitivity / self.epsilon

    def _position(self, leading: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        # U < 2aʲ/(1+a) = P(|Z| ≥ j) for j ≥ 1 is j < y; so the magnitude is the whole part of y, and 0 has one way in.
        y: npt.NDArray[np.float64] = np.multiply(leading, 2.0**-63)
        np.log(y, out=y)
        np.subtract(math.log(2 / (1 + math.exp(-self.epsilon / self.sensitivity))), y, out=y)
        y *= self._scale
        return y

    def _tail(self, magnitude: int, bits: int) -> int:
        from mpmath import libmp

        # P(|Z| ≥ j) ≤ 2·exp(−jε/Δ). Past this it is below 2·exp(−2·bits) and rounds to 0.
        if magnitude > 2 * self._scale * bits:
            return 0
        precision = bits + 64
        rate = libmp.mpf_div(libmp.from_float(-self.epsilon), libmp.from_int(self.sensitivity), precision)
        power = libmp.mpf_exp(libmp.mpf_mul(rate, libmp.from_int(magnitude), precision), precision)
        divisor = libmp.mpf_add(libmp.fone, libmp.mpf_exp(rate, precision), precision)
        return int(libmp.to_fixed(libmp.mpf_div(libmp.mpf_shift(power, 1), divisor, precision), bits))


Noise = RoundedGaussian | DiscreteLaplace


# Certified inversion; the module's docstring has the proof.


def _sample(
    size: int,
    scale: float,
    position: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float64]],
    tail: Callable[[int, int], int],
) -> npt.NDArray[np.int64]:
    size = whole_number("size", size, low=0)
    margin = scale * _MARGIN + 2.0**-50
    samples = np.empty(size, dtype=np.int64)
    for start in range(0, size, _CHUNK):
        magnitude = samples[start : start + _CHUNK]
        # The bytes as they come: words that may be written to would be a copy.
        words = np.frombuffer(_source.get().read(8 * len(magnitude)), dtype="<i8")
        leading = words & _LOW_63
        doubtful = leading < _FEWEST_LEADING
        highest = leading | 1  # the middle of a word's interval, and then the largest magnitude that it may have
        y = position(highest)
        # Casting drops the fraction. From just below 0 that gives 0, which is right: no magnitude is negative.
        np.subtract(y, margin, out=magnitude, casting="unsafe")
        np.add(y, margin, out=highest, casting="unsafe")
        doubtful |= magnitude != highest
        for i in np.flatnonzero(doubtful).tolist():
            magnitude[i] = _settle(int(leading[i]), int(magnitude[i]), tail)
        # −1 or 0, in the room of what is settled: the two's complement trick below negates where it is −1.
        sign = np.right_shift(words, 63, out=leading)
        magnitude ^= sign
        magnitude -= sign
    return samples


def _settle(leading: int, guess: int, tail: Callable[[int, int], int]) -> int:
    """Return the largest j with U < tail(j), where ``leading`` holds the first 63 bits of U, starting from a guess.

    ``tail(j, bits)`` is P(|Z| ≥ j)·2^bits to within 2 units, so a gap of 2 between integers decides.
    """
    prefix, bits = leading, 63

    def reaches(j: int) -> bool:
        nonlocal prefix, bits
        while j > 0:
            threshold = tail(j, bits)
            if prefix + 1 <= threshold - 2:
                return True
            if prefix >= threshold + 2:
                return False
            prefix, bits = (prefix << 64) | int(random_words(1)[0]), bits + 64
        return True

    low, step = guess, 1
    while not reaches(low):
        low, step = low - step, 2 * step
    high, step = guess + 1, 1
    while reaches(high):
        high, step = high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return low


def _positive(name: str, value: float) -> float:
    value = real_number(name, value)
    if not 0 < value <= sys.float_info.max:
        raise InvalidInput(f"{name} must be positive and finite, not {value!r}.")
    return float(value)
