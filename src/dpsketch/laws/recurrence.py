"""Every day in all publications that follow, ever less, by a recurrence over few buffers: the design by default."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpsketch.arrays import Floats, Integers, read_only
from dpsketch.core.codec import stored
from dpsketch.core.move import Sensitivity, sqrt_up
from dpsketch.errors import InvalidInput
from dpsketch.laws.designs import ROOM, Contribution, Filter, listed, rising
from dpsketch.numbers import hold_whole, whole_number

__all__ = ["Recurrence"]

# A recurrence's rates are multiples of 2**-20.
_RATE_BITS = 20
_RATE_ONE = 1 << _RATE_BITS
# Powers of rates are rounded up to multiples of 2**-192.
_FINE = 192


@stored
@dataclass(frozen=True, slots=True)
class Recurrence(Filter):
    """Every day's table enters all publications that follow, ever less, by a recurrence over few buffers.

    With rates θ_i = a_i/2²⁰ and gains w_i, in integers, and ⌊·⌋ the floor,

        y_t = 2^q·x_t + ⌊Σ_i R_i / 2^g⌋ + z_t,   R_i ← ⌊a_i·R_i / 2²⁰⌋ + w_i·x_t.

    Attributes
    ----------
    rates, gains : tuple of int
        a_i and w_i, one a buffer.
    scale, guard : int
        q and g: today's table enters times 2^q, and the buffers have g bits more.

    Privacy
    -------
    Without floors it were a filter with c_0 = 2^q and c_j = Σ v_i·θ_i^(j−1), v_i = w_i/2^g. The floors of two worlds
    differ by less than 1 a step, in touched cells only, so a buffer strays by less than 1/(1 − θ_i) and a published
    cell by less than 1 + 2^−g·Σ 1/(1 − θ_i). Over n days and m touched cells all of that has a norm of at most √(m·n)
    times as much, which is added to the filter's. The map is not linear, yet the sum of squared shifts is bounded on
    every path, which is all that is needed. A buffer at −1 stays at −1 for ever, so the guarantee ends with its n days.
    """

    name: ClassVar[str] = "recurrence"

    rates: tuple[int, ...]
    gains: tuple[int, ...]
    scale: int
    guard: int

    def __post_init__(self) -> None:
        rates = [whole_number("a rate", rate, low=1, high=_RATE_ONE - 1) for rate in listed(self.rates, "rates")]
        gains = [whole_number("a gain", gain, low=1, high=2**40) for gain in listed(self.gains, "gains")]
        object.__setattr__(self, "rates", tuple(rates))
        object.__setattr__(self, "gains", tuple(gains))
        hold_whole(self, "scale", low=0, high=24)
        hold_whole(self, "guard", low=0, high=24)
        if len(rates) != len(gains) or not 1 <= len(rates) <= 16:
            raise InvalidInput("a recurrence has one gain for each rate, and at least one and at most 16 of them.")
        if sum(gains) >= 1 << (self.scale + self.guard):
            raise rising()

    @property
    def words(self) -> str:
        """The design in a phrase."""
        return f"correlated over all days by a recurrence with {len(self.rates)} buffers"

    @property
    def largest(self) -> int:
        """How often a record enters the publication of its own day."""
        return 1 << self.scale

    @property
    def buffers(self) -> int:
        """How many tables it keeps beside today's."""
        return len(self.rates)

    @property
    def limit(self) -> int:
        """The largest magnitude of a day's cell; a larger one is held to it."""
        return math.floor(Fraction(ROOM) / (self._reach + (1 << (self.scale + self.guard))))

    @property
    def stray(self) -> float:
        """How far the floors may move a publication."""
        return float(self._stray)

    @property
    def _stray(self) -> Fraction:
        return sum((Fraction(_RATE_ONE, (_RATE_ONE - rate) << self.guard) for rate in self.rates), Fraction(1))

    @property
    def _reach(self) -> Fraction:
        """Σ w_i/(1 − θ_i): what all buffers come to if every day has a cell of 1."""
        return sum((Fraction(gain * _RATE_ONE, _RATE_ONE - rate) for rate, gain in self._pairs), Fraction(0))

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.rates, self.gains, strict=True))

    def sensitivity(self, contribution: Contribution, horizon: int) -> Sensitivity:
        """Return the filter's bound, for ever, plus that of the floors, for so many days."""
        unit = contribution.within(horizon)
        squared = self.column_squared(unit.days, unit.apart)
        filtered = sqrt_up(math.ceil(unit.distance.squared * squared))
        # A user's cells of all days.
        touched = unit.distance.cells * unit.days
        stray = self._stray
        floors = sqrt_up(math.ceil(touched * horizon * stray**2))
        reach = 2**self.scale + self._reach / 2**self.guard
        l1 = math.ceil(unit.days * unit.distance.l1 * reach + touched * horizon * stray)
        return Sensitivity(l1, math.nextafter(filtered + floors, math.inf))

    def column_squared(self, days: int, apart: int) -> Fraction:
        """Return ‖Σ_{i<k} C[:, i·b]‖² without floors and without an end, powers rounded up."""
        total = days * self._inner(0)
        for i in range(1, days):
            total += 2 * (days - i) * self._inner(i * apart)
        return total

    def _inner(self, distance: int) -> Fraction:
        """Return Σ_r c_r·c_(r + distance), rounded up."""
        one = 1 << _FINE
        total = Fraction(4**self.scale) if distance == 0 else Fraction(0)
        for rate, gain in self._pairs:
            late = Fraction(gain, 1 << self.guard)
            if distance:
                total += 2**self.scale * late * Fraction(_power_up(rate, distance - 1), one)
            for other, weight in self._pairs:
                early = Fraction(weight, 1 << self.guard)
                product = Fraction(_RATE_ONE**2, _RATE_ONE**2 - rate * other)
                total += early * late * Fraction(_power_up(rate, distance), one) * product
        return total

    def step(self, state: Integers, today: Integers, day: int) -> Iterator[tuple[Hashable, Integers]]:
        """Publish today's table and what the buffers add.

        Cells are held to :attr:`limit`: neighbours come no further apart by that, while an error would tell of data.
        """
        held = np.clip(today, -self.limit, self.limit)
        table = (held << self.scale) + (state.sum(axis=0) >> self.guard)
        for buffer, (rate, gain) in zip(state, self._pairs, strict=True):
            # ⌊a·R/2^r⌋ without a product of more than 64 bits; shifts round down, below 0 as well.
            low = buffer & (_RATE_ONE - 1)
            buffer >>= _RATE_BITS
            buffer *= rate
            buffer += (rate * low) >> _RATE_BITS
            buffer += gain * held
        yield day, table

    def holds(self, state: Integers) -> bool:
        """Say whether no buffer is larger than (w·limit + 1)/(1 − θ), which it never passes."""
        for buffer, (rate, gain) in zip(state, self._pairs, strict=True):
            most = (gain * self.limit + 1) * _RATE_ONE // (_RATE_ONE - rate)
            if np.any((buffer < -most) | (buffer > most)):
                return False
        return True

    def response(self, days: int) -> Floats:
        """Return the total's response: the recurrence undone, without its floors."""
        return _recurrence_response(self, days)


@lru_cache(maxsize=4096)
def _power_up(rate: int, exponent: int) -> int:
    """Return (rate/2²⁰)^exponent in units of 2^−192, rounded up."""
    result, base = 1 << _FINE, rate << (_FINE - _RATE_BITS)
    while exponent:
        if exponent & 1:
            result = -(-result * base >> _FINE)
        base = -(-base * base >> _FINE)
        exponent >>= 1
    return result


@lru_cache(maxsize=64)
def _recurrence_response(design: Recurrence, days: int) -> Floats:
    rates = np.array(design.rates) / _RATE_ONE
    gains = np.array(design.gains) / 2.0 ** (design.scale + design.guard)
    inverse, carried = np.zeros(days), np.zeros(len(rates))
    for day in range(days):
        inverse[day] = (day == 0) / 2.0**design.scale - carried.sum()
        carried = rates * carried + gains * inverse[day]
    return read_only(np.cumsum(inverse))
