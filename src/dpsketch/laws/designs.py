"""Designs: which integer combination of the days' tables is published each day, and what that costs and tells.

**Privacy.** Let c_0 > c_1 ≥ c_2 ≥ … ≥ 0 be the integers by which a day's table enters the publications of that day and
of those that follow. Until a record's day two neighbouring worlds have one law. Given what was published before, take
from y_t what all other records put there: the same in both worlds. What is left is a rounding of c_j·g + N(0, σ²) for
the record's own change g, so all publications together are one Gaussian mechanism with the shift (c_0·g, c_1·g, …), of
norm Δ·‖c‖₂. A user on at most k days, at least b days apart, moves them by at most Δ·‖Σ_{i<k} C[:, i·b]‖₂: the inner
product of two columns falls with their distance and with the later of the two, as c falls. (It need not where c
rises; such a design is refused.) Days that are chosen by what was published change nothing: the squared shifts sum to
at most that on every path, and a Gaussian mechanism whose shifts are chosen so is no worse than one of that norm.

**Designs.** :class:`Banded` is the form of all correlated ones, :class:`Recurrence` the default. :class:`Blocks` are
plain days, two levels, or the binary tree. :class:`PanPrivate` keeps a state that may be seized.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from dpsketch.arrays import Floats, Integers, read_only
from dpsketch.core.codec import stored
from dpsketch.core.move import Distance, Sensitivity, sqrt_up
from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_whole, whole_number

__all__ = [
    "LONGEST", "ROOM", "Banded", "Blocks", "Contribution", "Design", "Filter", "PanPrivate", "Recurrence", "listed",
    "rising",
]  # fmt: skip

LONGEST = 2**20
"""A stream has at most so many days; one without an end is calibrated for them."""

ROOM = 2**61
"""What is published stays below this before noise, and noise below 2**61."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """How far one unit moves the days' tables.

    Attributes
    ----------
    distance : Distance
        How far one day's tables of two neighbouring datasets lie apart.
    days, apart : int
        A unit is in at most ``days`` days, each at least ``apart`` days after the one before (1: on the next day).
    step : int
        By about how much one unit moves a cell; a design must have room for many of them.
    """

    distance: Distance
    days: int = 1
    apart: int = 1
    step: int = 1

    def __post_init__(self) -> None:
        for name in ("days", "apart", "step"):
            hold_whole(self, name, low=1)

    def within(self, horizon: int) -> Contribution:
        """Return this for a number of days: nobody is in more of them than fit."""
        days = min(self.days, -(-horizon // self.apart))
        return replace(self, days=days)


class Design(ABC):
    """A design, as a value. Public."""

    __slots__ = ()

    name: ClassVar[str]
    keeps_noise: ClassVar[bool] = False  # whether what it keeps may be seized

    @property
    @abstractmethod
    def words(self) -> str:
        """The design in a phrase."""

    @property
    @abstractmethod
    def buffers(self) -> int:
        """How many tables it keeps beside today's."""

    @property
    def largest(self) -> int:
        """How often a record enters the publication of its own day."""
        return 1

    @abstractmethod
    def sensitivity(self, contribution: Contribution, horizon: int) -> Sensitivity:
        """Return how far one unit moves all that is published over so many days together."""

    @abstractmethod
    def published(self, day: int) -> int:
        """Return how many tables have been published after so many days."""

    @abstractmethod
    def days_in(self, weights: Floats) -> Floats:
        """Return how often each day is in a weighted sum of what was published, one weight for each table."""

    @abstractmethod
    def step(self, state: Integers, today: Integers, day: int) -> Iterator[tuple[Hashable, Integers]]:
        """Take in a day's table, counted from 1, and yield what is published of it before noise, by name.

        ``state`` is changed in place. It starts as zeros, :attr:`buffers` tables of them.
        """


class Filter(Design):
    """A design whose day t enters the publications of days t, t + 1, … by the same numbers, whatever t is."""

    __slots__ = ()

    @property
    @abstractmethod
    def limit(self) -> int:
        """The largest magnitude of a day's cell; a larger one is held to it."""

    @property
    def stray(self) -> float:
        """How far rounding inside the design may move a publication."""
        return 0.0

    @abstractmethod
    def holds(self, state: Integers) -> bool:
        """Say whether days of at most :attr:`limit` a cell can have left this state, so that nothing wraps round."""

    @abstractmethod
    def response(self, days: int) -> Floats:
        """Return what a unit published on one day adds to the decoded total of that day and of those that follow."""

    def published(self, day: int) -> int:
        """Return how many tables have been published: one a day."""
        return day

    def weights(self, first: int, last: int) -> Floats:
        """Return the weights of all tables published by day ``last`` whose sum is days ``first`` to ``last``.

        No others decode without bias: C is square, so that later days tell nothing more.
        """
        totals = self.response(last)
        weights = totals[::-1].copy()
        weights[: first - 1] -= totals[: first - 1][::-1]
        return weights


@stored
@dataclass(frozen=True, slots=True)
class Banded(Filter):
    """Each day's table enters the publications of as many days as there are bands; of one band, of its own day.

    Attributes
    ----------
    bands : tuple of int
        c_0 > c_1 ≥ … > 0. ``(1,)`` publishes every day by itself.

    Privacy
    -------
    The guarantee depends on the days of a unit, not on how many are published, and never ends. The state is the exact
    tables of the last days.
    """

    name: ClassVar[str] = "banded"

    bands: tuple[int, ...]

    def __post_init__(self) -> None:
        bands = tuple(whole_number("a band", band, low=1, high=2**30) for band in listed(self.bands, "bands"))
        object.__setattr__(self, "bands", bands)
        if len(bands) > LONGEST or any(late > early for early, late in pairwise(bands)):
            raise rising()
        if len(bands) > 1 and bands[1] == bands[0]:
            raise rising()

    @property
    def words(self) -> str:
        """The design in a phrase."""
        if self.bands == (1,):
            return "each day by itself"
        return f"correlated over {len(self.bands)} days"

    @property
    def largest(self) -> int:
        """How often a record enters the publication of its own day."""
        return self.bands[0]

    @property
    def buffers(self) -> int:
        """How many tables it keeps beside today's: the days before."""
        return len(self.bands) - 1

    @property
    def limit(self) -> int:
        """The largest magnitude of a day's cell; a larger one is held to it."""
        return ROOM // sum(self.bands)

    def sensitivity(self, contribution: Contribution, horizon: int) -> Sensitivity:
        """Return Δ·‖Σ_{i<k} C[:, i·b]‖₂, in integers, and in L1 k·Δ₁·Σc."""
        unit = contribution.within(horizon)
        if unit.apart >= len(self.bands):  # columns that do not meet
            squared = unit.days * sum(band**2 for band in self.bands)
        else:
            column = np.zeros(min(horizon, (unit.days - 1) * unit.apart + len(self.bands)), np.int64)
            for i in range(unit.days):
                held = column[i * unit.apart : i * unit.apart + len(self.bands)]
                held += np.array(self.bands[: len(held)], np.int64)
            squared = sum(int(each) ** 2 for each in column)
        l1 = unit.days * unit.distance.l1 * sum(self.bands)
        return Sensitivity(l1, sqrt_up(unit.distance.squared * squared))

    def step(self, state: Integers, today: Integers, day: int) -> Iterator[tuple[Hashable, Integers]]:
        """Publish Σ c_j·x_{t−j}. Today's cells are held to what fits, which brings neighbours no further apart."""
        held = np.clip(today, -self.limit, self.limit)
        table = self.bands[0] * held
        for band, earlier in zip(self.bands[1:], state, strict=True):
            table += band * earlier
        if len(state):
            state[1:] = state[:-1].copy()
            state[0] = held
        yield day, table

    def holds(self, state: Integers) -> bool:
        """Say whether the days before are held to the limit."""
        return bool(np.all((state >= -self.limit) & (state <= self.limit)))

    def days_in(self, weights: Floats) -> Floats:
        """Return how often each day is in a weighted sum of what was published: Σ_j c_j·w_{t+j} of day t."""
        bands = np.array(self.bands[: len(weights)], np.float64)
        found: Floats = np.convolve(weights[::-1], bands)[: len(weights)][::-1]
        return found

    def response(self, days: int) -> Floats:
        """Return the total's response: the sums of 1/c(z)."""
        return _banded_response(self.bands, days)


def rising() -> InvalidInput:
    """Return the refusal of coefficients that rise."""
    return InvalidInput(
        "a design's coefficients must fall from day to day, the second below the first: the bound on a user's days "
        "does not hold otherwise, nor is what it publishes decoded stably."
    )


def listed(values: object, name: str) -> Sequence[Any]:
    """Return the numbers of a design as a sequence, whoever wrote them."""
    if not isinstance(values, list | tuple) or not values:
        raise InvalidInput(f"the {name} of a design are a list of integers.")
    return values


@lru_cache(maxsize=64)
def _banded_response(bands: tuple[int, ...], days: int) -> Floats:
    inverse = np.zeros(days)
    later = np.array(bands[1:][::-1], np.float64)
    for day in range(days):
        width = min(day, len(later))
        held = float(later[len(later) - width :] @ inverse[day - width : day]) if width else 0.0
        inverse[day] = ((day == 0) - held) / bands[0]
    return read_only(np.cumsum(inverse))


@stored
@dataclass(frozen=True, slots=True)
class Blocks(Design):
    """Blocks of each of some sizes, every one published once, on the evening it is complete.

    Under pure ε noise is paid for by the L1 norm, and a record is better in few publications than in many small ones:
    two levels of blocks beat the binary tree and every correlated design.

    Attributes
    ----------
    sizes : tuple of int
        1 first, each a multiple of the one before it.

    Privacy
    -------
    A record is in one block of each size. A user's days, k of them at least b apart, put at most ⌈size/b⌉ into one
    block, so that the blocks of one size move by at most Δ·√(k·min(k, ⌈size/b⌉)) together.
    """

    name: ClassVar[str] = "blocks"

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        sizes = self.sizes if isinstance(self.sizes, list | tuple) else ()
        held = tuple(whole_number("a block's size", size, low=1, high=LONGEST) for size in sizes)
        object.__setattr__(self, "sizes", held)
        nested = all(large > small and large % small == 0 for small, large in pairwise(held))
        if not held or held[0] != 1 or not nested:
            raise InvalidInput("blocks have sizes from 1 day on, each a multiple of the one before.")

    @classmethod
    def tree(cls, days: int) -> Self:
        """Return the binary tree whose blocks end within so many days."""
        return cls(tuple(1 << height for height in range(days.bit_length())))

    @property
    def words(self) -> str:
        """The design in a phrase."""
        return "blocks of " + ", ".join(f"{size:,}" for size in self.sizes) + " days"

    @property
    def buffers(self) -> int:
        """How many tables it keeps beside today's: the open block of each size."""
        return len(self.sizes)

    def sensitivity(self, contribution: Contribution, horizon: int) -> Sensitivity:
        """Return the bound over all blocks that one unit is in."""
        unit = contribution.within(horizon)
        squared = sum(unit.days * min(unit.days, -(-size // unit.apart)) for size in self.sizes)
        l1 = unit.days * len(self.sizes) * unit.distance.l1
        return Sensitivity(l1, sqrt_up(unit.distance.squared * squared))

    def published(self, day: int) -> int:
        """Return how many blocks are complete after so many days."""
        return sum(day // size for size in self.sizes)

    def days_in(self, weights: Floats) -> Floats:
        """Return how often each day is in a weighted sum of what was published: as often as all its blocks are."""
        low, high = 0, len(weights)  # the least number of days that completes this number of blocks
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.published(middle) >= len(weights) else (middle + 1, high)
        found = np.zeros(low)
        for (level, index), weight in zip(self.names(low), weights.tolist(), strict=False):
            found[index * self.sizes[level] : (index + 1) * self.sizes[level]] += weight
        return found

    def names(self, day: int) -> Iterator[tuple[int, int]]:
        """Yield the blocks (level, index) that are complete after so many days, in the order of publication."""
        for each in range(1, day + 1):
            for level, size in enumerate(self.sizes):
                if each % size == 0:
                    yield level, each // size - 1

    def step(self, state: Integers, today: Integers, day: int) -> Iterator[tuple[Hashable, Integers]]:
        """Publish the blocks that this day completes, the smallest first."""
        state += today
        for level, size in enumerate(self.sizes):
            if day % size == 0:
                yield (level, day // size - 1), state[level].copy()
                state[level] = 0


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

    def days_in(self, weights: Floats) -> Floats:
        """Return how often each day is in a weighted sum of what was published: Σ_j c_j·w_{t+j}, without floors."""
        rates = np.array(self.rates) / _RATE_ONE
        gains = np.array(self.gains) / 2.0**self.guard
        found, later = 2.0**self.scale * weights, np.zeros(len(rates))
        for day in range(len(weights) - 2, -1, -1):
            later = rates * later + weights[day + 1]
            found[day] += float(gains @ later)
        return found

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


@stored
@dataclass(frozen=True, slots=True)
class PanPrivate(Banded):
    """Bands, kept as sums for the coming days, which a stream starts from noise: a state that may be seized.

    For each of the coming days there is an accumulator, which starts from fresh noise N_s. A record of day t is added
    to those of the days t, t + 1, … at once, c_0, c_1, … times; nothing else is kept of it. In the evening P_t + z_t is
    published, with fresh noise z_t, and P_t is forgotten.

    **Privacy**, of all publications and of the whole state at one moment together. Let N_s and z_s be rounded Gaussians
    of one σ, and S = Δ·‖c‖₂.

    *A record that came before that moment.* Day s was published before it: the record moves y_s by c_j·g, under N_s +
    z_s. Day s comes after it: P_s was seen, moved by c_j·g, under N_s; and of y_s nothing more is learnt of the record,
    as y_s − P_s is what came later and z_s. So the shifts (c_0·g, c_1·g, …) of norm S each lie under noise of at least
    σ. *One that came after it* moves y_s − P_s, for the days to come, by c_j·g under z_s: again S under σ. So either is
    one Gaussian mechanism of μ = S/σ, whatever the moment, also if it and the days' records are chosen by what was
    seen.

    *A replaced record* may have been before it, and what it is replaced by after it. Then the state is moved by at most
    S under N and the later publications by at most S under z: √2·S together, which is no more than is paid for, since a
    replaced record costs √2·S where nothing counts downwards and 2·S elsewhere.

    *One band of 1*, a single day, may have Laplace noise of one scale as well: with L1 distances in the place of norms,
    a record before the moment or after it costs Δ₁ over the scale, and a replaced record at most twice as much, which
    is what a replaced record pays.

    *Integers are kept modulo 2⁶⁴.* Sums of integers that wrap round are those of the exact ones, reduced: a function of
    what is private. Nothing here is held to a limit by what it has become, which would not be.

    Accuracy
    --------
    What is published carries the noise of its accumulator and its own: √2 times that of the same bands whose state must
    be guarded. A cell of a batch is held to 2⁶¹/Σc; days of more than that in many batches wrap round.

    References
    ----------
    Dwork, Naor, Pitassi, Rothblum and Yekhanin, *Pan-private streaming algorithms* (2010), for the model. Changed here:
    it is joined with correlated noise, whose bands are what has to be kept anyway.
    """

    name: ClassVar[str] = "pan-private"
    keeps_noise: ClassVar[bool] = True

    @property
    def words(self) -> str:
        """The design in a phrase."""
        days = f"correlated over {len(self.bands)} days" if len(self.bands) > 1 else "each day by itself"
        return f"{days}, in a state that may be seized once"

    @property
    def buffers(self) -> int:
        """How many tables it keeps: one for each day that a record of today enters."""
        return len(self.bands)

    def sensitivity(self, contribution: Contribution, horizon: int) -> Sensitivity:
        """Return the bound of all bands, those of days after the last as well: a seized state has them."""
        return Banded.sensitivity(self, contribution.within(horizon), horizon + len(self.bands))

    def take(self, state: Integers, records: Integers) -> None:
        """Add records of today, counted in a table, to the sums for the coming days."""
        held = np.clip(records, -self.limit, self.limit)
        for band, coming in zip(self.bands, state, strict=True):
            coming += band * held

    def step(self, state: Integers, today: Integers, day: int) -> Iterator[tuple[Hashable, Integers]]:
        """Publish the sums for today, which are then forgotten; those for the last of the coming days begin at 0."""
        self.take(state, today)
        yield day, state[0].copy()
        state[:-1] = state[1:].copy()
        state[-1] = 0

    def holds(self, state: Integers) -> bool:
        """Say yes: modulo 2⁶⁴ the noise may have left any state."""
        return True
