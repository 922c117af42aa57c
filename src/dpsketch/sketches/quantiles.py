"""Release a few quantiles, named beforehand, of exact counts on a public grid (recursive exponential mechanism).

A tree of intervals answers every range and quantile, and pays for all of them. Whoever knows which quantiles will be
asked pays for those alone: among 10⁵ values at ε = 1 the median is off by less than one rank instead of by twenty.

**The public grid.** Up to 2²⁰ values each has a cell of its own. A wider domain has cells whose width grows with the
distance d from its anchor, which is 0, or the end of the domain that is nearest to 0: cell (d >> e) + (e << 7) with e =
max(bit_length(d) − 8, 0), mirrored below the anchor. Distances below 256 are exact, and beyond them a cell is at most
1/128 of its distance wide. 7,296 cells reach up to 2⁶³. The grid follows from the domain alone, never from data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, assert_never, cast

import numpy as np
import numpy.typing as npt

from dpsketch import plots
from dpsketch._compiled.heavy import add_units
from dpsketch.accounting.composition import Tally, renyi_epsilon
from dpsketch.arrays import Integers, Words, read_only
from dpsketch.core.codec import stored
from dpsketch.core.contributions import Cells
from dpsketch.core.drawn import Part
from dpsketch.core.laws import Law
from dpsketch.core.move import Move, Table
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.laws.recursion import TIE_BITS, Accounting, Recursion
from dpsketch.numbers import hold_real, probability, real_number, whole_number
from dpsketch.privacy import ApproximateCost, Budget, PureCost, Unit, ZcdpCost
from dpsketch.release import SketchRelease
from dpsketch.results import Estimates, key_list
from dpsketch.sketches.ranges.sketch import Quantile
from dpsketch.sketches.ranges.spec import Domain, DomainSpec, Outside
from dpsketch.sketches.sketch import Entries, Parsed, Sketch
from dpsketch.sketches.specs import DEFAULT_SEED, fingerprint_of, hold_common

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.hashing import KeyType


# Domains of at most so many bits have a cell for each value: 8 MB.
EXACT_BITS = 20
# Significant bits of a distance that a wide domain's cells keep beside the leading one.
_FINE = 7


@dataclass(frozen=True, slots=True)
class ValueGrid:
    """The cells of a domain, in the order of their values."""

    domain: Domain

    @property
    def exact(self) -> bool:
        """Whether each value has a cell of its own."""
        return self.domain.bits <= EXACT_BITS

    @property
    def count(self) -> int:
        """How many there are."""
        if self.exact:
            return 1 << self.domain.bits
        return self._below + _cell((1 << self.domain.bits) - 1 - self._anchor) + 1

    @property
    def _anchor(self) -> int:
        """How far from the domain's start the cells are finest."""
        return min(max(0, -self.domain.start), (1 << self.domain.bits) - 1)

    @property
    def _below(self) -> int:
        """How many cells lie below the anchor's."""
        return _cell(self._anchor)

    def of(self, offsets: Words) -> npt.NDArray[np.int64]:
        """Return the cells of values, given as their distances from the domain's start."""
        if self.exact:
            return offsets.astype(np.int64)
        anchor = np.uint64(self._anchor)
        above = offsets >= anchor
        distances = np.where(above, offsets - anchor, anchor - offsets)
        shift = np.maximum(_bit_lengths(distances), _FINE + 1) - (_FINE + 1)
        cells = (distances >> shift.astype(np.uint64)).astype(np.int64) + (shift << _FINE)
        return self._below + np.where(above, cells, -cells)

    def ends(self, cell: int) -> tuple[int, int]:
        """Return the least and the largest value that a cell counts."""
        start = self.domain.start
        if self.exact:
            return start + cell, start + cell
        near, far = _distances(abs(cell - self._below))
        anchor = start + self._anchor
        low, high = (anchor + near, anchor + far) if cell >= self._below else (anchor - far, anchor - near)
        return max(low, start), min(high, self.domain.end)


def _cell(distance: int) -> int:
    """Return the cell of a distance from the anchor, counted from the anchor's own."""
    shift = max(distance.bit_length() - (_FINE + 1), 0)
    return (distance >> shift) + (shift << _FINE)


def _distances(cell: int) -> tuple[int, int]:
    """Return the least and the largest distance in a cell that is counted from the anchor's own."""
    shift = max((cell >> _FINE) - 1, 0)
    leading = cell - (shift << _FINE)
    return leading << shift, ((leading + 1) << shift) - 1


def _bit_lengths(numbers: Words) -> npt.NDArray[np.int64]:
    """Return how many bits each number has, by halving: doubles would round 2⁵³ and beyond."""
    left, lengths = numbers.copy(), np.zeros(len(numbers), np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        long = left >= np.uint64(1 << step)
        lengths += step * long
        left = np.where(long, left >> np.uint64(step), left)
    return lengths + (left > 0)


COUNTS = "counts"
# The quantiles, and the ends of their intervals.
ANSWERS, LOW_ENDS, HIGH_ENDS = "answers", "low", "high"
# What intervals hold with whose ends are drawn.
CONFIDENCE = 0.95
# A locally smooth quantile errs by about 1/ε ranks at the median's rate, with its ancestors by about half as much more.
_TYPICAL = 1.5
_MOST_QUANTILES = 4096
# A file holds fractions of 64 characters.
_LARGEST_DENOMINATOR = 10**31


@stored
@dataclass(frozen=True, slots=True)
class QuantileSpec(DomainSpec):
    """All that two sketches of named quantiles must share to merge. Public.

    Attributes
    ----------
    bits : int
        Values are the 2^bits whole numbers from ``start`` on.
    unit : Unit
        Whose presence a release hides.
    quantiles : tuple of Fraction
        The quantiles that a release answers, strictly between 0 and 1, in increasing order.
    start : int
        The smallest value.
    outside : {"refuse", "clamp"}
        What happens to a value outside the domain.
    interval_share : float
        The part of the budget that the ends of intervals get.
    seed : int
        Chooses which of a user's values count; it protects nothing and is published.
    grid : float
        Weights are rounded to multiples of it.
    """

    bits: int
    unit: Unit
    quantiles: tuple[Fraction, ...]
    start: int = 0
    outside: Outside = "refuse"
    interval_share: float = 0.0
    seed: int = DEFAULT_SEED
    grid: float = 1

    def __post_init__(self) -> None:
        hold_common(self)
        for name in ("bits", "start"):
            object.__setattr__(self, name, getattr(self.domain, name))
        hold_real(self, "interval_share")
        if not 0 <= self.interval_share < 1:
            raise InvalidInput(f"interval_share is part of the budget, from 0 to below 1, not {self.interval_share!r}.")
        object.__setattr__(self, "quantiles", _in_order(self.quantiles))

    @property
    def cells(self) -> ValueGrid:
        """The public grid."""
        return ValueGrid(self.domain)

    def tables(self) -> tuple[Table, ...]:
        """Return the counts. A unit adds at most its weight to each of ``max_keys`` values, perhaps all in one cell."""
        keys = self.unit.max_keys
        return (Table(COUNTS, (self.cells.count,), Move.heaped(keys, keys * self.weight_grid.max_units)),)

    def laws(self, budget: Budget) -> tuple[Recursion, ...]:
        """Share a budget among the levels of the recursion, and those of two more for the ends of intervals.

        Privacy
        -------
        Pure: the levels' ε add up. ρ: each level costs ε²/8, because its loss has a range of at most ε. For (ε, δ) it
        is whichever of the two leaves the answers more; up to seven quantiles that is the pure form, without a δ.
        """
        match budget.cost:
            case PureCost(epsilon):
                return self._pure(epsilon)
            case ZcdpCost(rho):
                return self._concentrated(rho)
            case ApproximateCost(epsilon, delta):
                pure = self._pure(epsilon)
                rho = _largest_rho(epsilon, delta)
                shared = self._concentrated(rho) if rho > 0 else pure
                return pure if pure[0].epsilon >= shared[0].epsilon else shared
            case never:
                assert_never(never)

    def _pure(self, epsilon: float) -> tuple[Recursion, ...]:
        return self._parts("pure", lambda share, levels: _rounded_down(Fraction(epsilon) * share / levels))

    def _concentrated(self, rho: float) -> tuple[Recursion, ...]:
        return self._parts("rho", lambda share, levels: _root_down(8 * Fraction(rho) * share / levels))

    def _parts(self, form: Accounting, level: Callable[[Fraction, int], float]) -> tuple[Recursion, ...]:
        """Return the answers and, where they get a share, the ends: targets shifted by what may be wrong with them.

        ``level`` is the loss of a level of so many that get a share of the budget.
        """
        (table,) = self.tables()

        def law(name: str, share: Fraction, shift: int = 0) -> Recursion:
            epsilon = level(share, len(self.quantiles).bit_length())
            return Recursion(name, table, self.unit.neighbours, self.quantiles, epsilon, form, shift)

        ends = Fraction(repr(float(self.interval_share)))
        answers = law(ANSWERS, 1 - ends)
        if not ends:
            return (answers,)
        shift = math.ceil(max(rank_errors(law(LOW_ENDS, ends / 2), (1 - CONFIDENCE) / 2)))
        return answers, law(LOW_ENDS, ends / 2, -shift), law(HIGH_ENDS, ends / 2, shift)

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        named = "quantiles by " + laws[0].words
        return named if len(laws) == 1 else f"{named}; the ends of their intervals by two more"

    def least_records(self, shift: int) -> float:
        """Return from how many records on intervals hold whose ends were drawn: the targets are then among the data.

        Several quantiles need twice as many, because a part's mass may be off by as much as a target is shifted.
        """
        shift = whole_number("shift", shift, low=0)
        nearest = min(self.quantiles[0], 1 - self.quantiles[-1])
        return self.grid * shift * (1 if len(self.quantiles) == 1 else 2) / float(nearest)

    def typical_error(self, law: Recursion) -> float:
        """Return about how many ranks an answer is off where there are enough records (see :meth:`preview`)."""
        return _TYPICAL * self.grid / float(law.rate(Fraction(1, 2), whole=False))

    def _errors(self, laws: tuple[Any, ...]) -> tuple[float, float]:
        """Return about how many ranks the answers will be off.

        Accuracy
        --------
        That is 1.5·W/ε for a loss of ε a level, twice as much under ``replace``: less for a single quantile and where
        values are shared by many, more where a quantile has fewer records around it than ln(values)/ε.
        """
        error = self.typical_error(laws[0])
        return error / _TYPICAL, error


def as_fraction(share: Any) -> Fraction:
    """Return a share as the fraction that it is written as: 0.1 is 1/10, which the double is not."""
    if isinstance(share, Fraction):
        return share
    number = real_number("a quantile", share)
    if not math.isfinite(number):
        raise InvalidInput("a quantile is a share between 0 and 1, as 0.5 for the median.")
    return Fraction(repr(number))


def _in_order(quantiles: Iterable[Any]) -> tuple[Fraction, ...]:
    found = sorted({as_fraction(share) for share in quantiles})
    if not 0 < len(found) <= _MOST_QUANTILES:
        raise InvalidInput(f"name between 1 and {_MOST_QUANTILES} quantiles; for all of them leave quantiles= out.")
    if not (found[0] > 0 and found[-1] < 1):
        raise InvalidInput(
            "a named quantile lies strictly between 0 and 1, as 0.5 for the median: the least and the largest value "
            "belong to one record each, and cannot be told privately."
        )
    if any(share.denominator > _LARGEST_DENOMINATOR for share in found):
        raise InvalidInput("the denominator of a quantile has at most 31 digits.")
    return tuple(found)


def _rounded_down(number: Fraction) -> float:
    """Return the largest double that is at most a positive number."""
    found = float(number)
    return math.nextafter(found, 0.0) if Fraction(found) > number else found


def _root_down(number: Fraction) -> float:
    """Return a double that is at most a number's square root."""
    found = math.sqrt(number)
    while Fraction(found) ** 2 > number:
        found = math.nextafter(found, 0.0)
    return found


def rank_errors(law: Recursion, failure: float) -> list[float]:
    """Return, for each quantile, how far its rank is from its target at most, but for this probability.

    In grid units. With D places, P(a draw is off by τ units of weight or more) ≤ D·e^(−cτ), c = γb, since the best
    place alone weighs 1. A target inside a part is q times its right cut's rank plus 1 − q times its left one's; so
    errors e of the cuts move it by (1 − q)·e_left + q·e_right, and ends of the domain have none. A cut may also lie one
    place off, which is at most one unit where no cell holds more than 2^24.
    """
    chance = math.log(law.cells) + TIE_BITS * math.log(2) + math.log(law.levels / failure)
    found: dict[Fraction, float] = {}

    def look(asked: tuple[Fraction, ...], low: Fraction, high: Fraction, left: float, right: float) -> None:
        if not asked:
            return
        middle = len(asked) // 2
        cut = asked[middle]
        share = (cut - low) / (high - low)
        own = chance / float(law.rate(share, whole=high - low == 1)) + 1
        error = own + float(1 - share) * left + float(share) * right
        found[cut] = error
        look(asked[:middle], low, cut, left, error)
        look(asked[middle + 1 :], cut, high, error, right)

    look(law.quantiles, Fraction(0), Fraction(1), 0.0, 0.0)
    return [found[quantile] for quantile in law.quantiles]


@lru_cache(maxsize=256)
def _largest_rho(epsilon: float, delta: float) -> float:
    """Return nearly the largest ρ that implies (ε, δ): below it, by less than a part in 10⁹."""
    low, high = 0.0, min(epsilon, 1e9)  # a ρ above ε implies it for a large δ only; one above 10⁹ is no budget
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if renyi_epsilon(Tally.of([ZcdpCost(middle)]), delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True, eq=False)
class PrivateQuantiles(SketchRelease):
    """The released quantiles that were named when their sketch was made."""

    kind: ClassVar[str] = "quantiles"
    spec_type: ClassVar[Any] = QuantileSpec

    spec: QuantileSpec

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        whole = {ANSWERS}, {ANSWERS, LOW_ENDS, HIGH_ENDS}
        return parts.keys() in whole and all(isinstance(part.law, Recursion) for part in parts.values())

    def __post_init__(self) -> None:
        shifts = {name: self._law(name).shift for name in self.drawn.parts}
        of_others = any(self._law(name).quantiles != self.spec.quantiles for name in shifts)
        if of_others or shifts not in ({ANSWERS: 0}, {ANSWERS: 0, LOW_ENDS: -self.shift, HIGH_ENDS: self.shift}):
            raise FileRefused("the file's laws are not those of its quantiles.")

    def _law(self, name: str) -> Recursion:
        return cast("Recursion", self.drawn.parts[name].law)

    @property
    def law(self) -> Recursion:
        """How the quantiles were drawn."""
        return self._law(ANSWERS)

    @property
    def cells(self) -> Integers:
        """The cell of the public grid that was drawn for each quantile, in increasing order."""
        return self._drawn(ANSWERS)

    @property
    def ends(self) -> Integers:
        """The cells that were drawn for the lower and the upper ends of their intervals; no rows where none were."""
        if not self.shift:
            return np.empty((0, len(self.spec.quantiles)), np.int64)
        return np.stack([self._drawn(LOW_ENDS), self._drawn(HIGH_ENDS)])

    def _drawn(self, name: str) -> Integers:
        return read_only(cast("Integers", self.drawn.parts[name].arrays["cells"]))

    @property
    def shift(self) -> int:
        """By how many units of weight the targets of the ends were moved; 0 where none were drawn."""
        return self._law(HIGH_ENDS).shift if HIGH_ENDS in self.drawn.parts else 0

    def __repr__(self) -> str:
        return f"<PrivateQuantiles, {len(self.cells)} of them, spec {fingerprint_of(self.spec)}>"

    def quantile(self, share: Any, *, confidence: float = 0.95) -> Quantile:
        """Return a quantile that was named: 0.5 is the median.

        Accuracy
        --------
        ``rank_error`` bounds how far the answer's ranks are from the share of all records, with probability
        ``confidence`` and whatever the data; it is about ten times what they usually are off. Where ``interval_share``
        was positive, ``low`` and ``high`` were drawn with targets shifted by such a bound: they cover the quantile with
        a probability of at least 95% if there are at least :attr:`least_records` records. Without a share, or for a
        greater confidence, the release has no interval: ``low`` and ``high`` are None.
        """
        return self.quantiles([share], confidence=confidence)[0]

    def quantiles(self, shares: Any = None, *, confidence: float = 0.95) -> list[Quantile]:
        """Return several quantiles that were named, or all of them."""
        confidence = probability("confidence", confidence)
        asked = self.spec.quantiles if shares is None else [self._named(share) for share in key_list(shares)]
        errors = rank_errors(self.law, 1 - confidence)
        return [self._one(self.spec.quantiles.index(share), errors, confidence) for share in asked]

    @property
    def least_records(self) -> float | None:
        """From how many records on the intervals hold; None where their ends were not drawn."""
        return self.spec.least_records(self.shift) if self.shift else None

    def _named(self, share: Any) -> Fraction:
        asked = as_fraction(share)
        if asked not in self.spec.quantiles:
            named = ", ".join(_percent(one) for one in self.spec.quantiles[:20])
            raise InvalidInput(
                f"this release answers the quantiles that were named when its sketch was made ({named}"
                f"{', …' if len(self.spec.quantiles) > 20 else ''}), or ask it without keys for all of them. A "
                "RangeSketch without quantiles= answers any."
            )
        return asked

    def _one(self, place: int, errors: list[float], confidence: float) -> Quantile:
        grid = self.spec.cells
        least, most = grid.ends(int(self.cells[place]))
        low: int | None = None
        high: int | None = None
        if self._has_intervals(confidence):
            low = min(least, grid.ends(int(self.ends[0, place]))[0])
            high = max(most, grid.ends(int(self.ends[1, place]))[1])
        share, error = float(self.spec.quantiles[place]), self.spec.grid * errors[place]
        return Quantile(share, (least + most) // 2, low, high, error, confidence)

    def _has_intervals(self, confidence: float) -> bool:
        """Return whether ends of intervals were drawn that hold with this confidence."""
        return bool(len(self.ends)) and confidence <= CONFIDENCE

    def plot(self, *, confidence: float = 0.95) -> Figure:
        """Draw the quantiles over their shares, with their intervals where their ends were drawn."""
        found = self.quantiles(confidence=confidence)
        figure = plots.new_figure()
        axes = figure.subplots()
        shares, values = [one.share for one in found], [one.value for one in found]
        if self._has_intervals(confidence):
            lows, highs = np.array([(one.low, one.high) for one in found], dtype=np.float64).T
            axes.vlines(shares, lows, highs, color="#9db8d2", linewidth=4, label=f"{confidence:.0%} intervals")
            axes.legend(frameon=False, loc="upper left")
        axes.plot(shares, values, "o-", color="#1f4e79", linewidth=1)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the records")
        axes.set_ylabel("value that they lie at or below")
        axes.set_title(self.title("quantiles"), fontsize=9, loc="left", wrap=True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        return figure

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Answer percentages (50%) by quantiles, and an empty question by all that were named.

        Where the release has no intervals, their ends are NaN, and a note says how to get some.
        """
        shares = [_share(str(one)) for one in asked] or list(self.spec.quantiles)
        found = self.quantiles(shares, confidence=confidence)
        names = [str(one) for one in asked] or [_percent(share) for share in shares]
        rows = np.array([[one.value, one.low, one.high] for one in found], dtype=np.float64)
        return Estimates(
            names, rows[:, 0], rows[:, 1], rows[:, 2], confidence, self.counts, note=self._note(confidence)
        )

    def _note(self, confidence: float) -> str:
        """Say why there are no intervals, and how to get some; empty where there are."""
        if self._has_intervals(confidence):
            return ""
        if len(self.ends):
            return f"no intervals: those of this release hold with a confidence of at most {CONFIDENCE:g}."
        return "no intervals: the quantiles got the whole budget. A sketch made with interval_share=0.5 has them."

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        return {
            "levels": self.law.levels,
            "epsilon_a_level": self.law.epsilon,
            "least_records": self.least_records,
            "quantiles": [one.to_json() for one in self.quantiles()],
        }


def _share(text: str) -> Fraction:
    """Read a percentage (50%) or a share (0.5) as a fraction."""
    try:
        return Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        pass
    raise InvalidInput("ask for quantiles as 50%, or ask it without keys for all that were named.")


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.12g}%"


class QuantileSketch(Sketch[QuantileSpec, PrivateQuantiles]):
    """The sensitive sketch of named quantiles: exact counts on a public grid.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``, where a user's keys are their different values.
    quantiles : list of numbers
        The quantiles that a release answers, strictly between 0 and 1: 0.5 is the median. A float is the decimal that
        it is written as; ``Fraction(1, 3)`` is taken as well. As their number doubles, all pay for one more level.
    bits : int
        Values are the 2^bits whole numbers from ``start`` on. Up to 20 bits every value has a counter of its own.
        Beyond, counters are for values that differ by less than 1% of their distance from 0 (or from the end of the
        domain nearest to 0); an answer is then the middle of such a stretch.
    start : int, optional
        The smallest value; may be negative.
    outside : {"refuse", "clamp"}, optional
        A value outside the domain has its batch refused, or counts as the nearest end. The domain must come from public
        knowledge, never from the data.
    interval_share : float, optional
        The part of the budget that goes to the ends of 95% intervals. 0 by default: the answers get all, and come with
        a bound on the error of their rank. With 0.5 they are twice as far off, and each has an interval of values.
    seed : int, optional
        Chooses which of a user's values count. Sketches merge only if it is the same, hence the fixed default.
    grid : float, optional
        Step to which weights are rounded; 1 by default, which takes whole weights only.

    Privacy
    -------
    All quantiles and the ends of their intervals together cost one budget: see
    :mod:`~dpsketch.laws.recursion` for the proof, and :meth:`QuantileSpec.laws` for the split. The
    draws are exact. δ = 0: pure. δ > 0: the better of pure and ρ, which for up to seven quantiles is pure.

    Examples
    --------
    >>> import dpsketch as dps
    >>> ages = dps.QuantileSketch(unit=dps.per_record(), bits=7, quantiles=[0.5, 0.9])
    >>> ages.update(list(range(20, 60)) * 500)
    >>> private = ages.release(epsilon=1.0, delta=0)
    >>> private.quantile(0.5).value in (39, 40)
    True
    """

    kind: ClassVar[str] = "quantiles"
    spec_type: ClassVar[Any] = QuantileSpec
    release_type: ClassVar[Any] = PrivateQuantiles

    def __init__(
        self,
        *,
        unit: Unit,
        quantiles: Any,
        bits: int = 32,
        start: int = 0,
        outside: Outside = "refuse",
        interval_share: float = 0.0,
        seed: int = DEFAULT_SEED,
        grid: float = 1,
    ) -> None:
        self._start(QuantileSpec(bits, unit, tuple(quantiles), start, outside, interval_share, seed, grid))
        self._spec.weight_grid.refuse_without_one()

    def _parse(self, records: Any) -> Parsed:
        return self._spec.parse(records)

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        self._check_sample(entries)
        return partial(add_units, self._arrays[COUNTS], self._spec.cells.of(entries.values), entries.amounts)

    def _spread(self, entries: Entries) -> dict[str, Cells]:
        cells = self._spec.cells.of(entries.values)[:, np.newaxis]
        return {COUNTS: Cells.of(cells, entries.amounts, entries.starts)}
