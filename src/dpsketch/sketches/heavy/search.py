"""Find the frequent keys of a released tree, from the root downwards. All of it is post-processing.

**One level**: find which of many prefixes are frequent.

Nearly all of the prefixes that are looked at are nothing, and yet many have a median of half of what is needed: noise
lifts some, and where heavy keys collide, these lift others. To decode all of them together takes long. So it is done
from the clear ones on:

1. Those are clear that have what is needed in three rows of four. Messages between them and the cells, as joint
   decoding passes them, explain most of the table.
2. Whoever they had hidden shows in what is left of it, and may have hidden others: who now has what is needed joins,
   and all go on from the messages sent so far.
3. Of those with a plausible median, whoever is left half of what is needed joins as well. Many had only been lifted.
4. Candidates were picked by this very table. Those that chance lifted would take their share of the others' cells:
   whoever the others leave less than half of what is needed goes again, and the rest have the last word.

In the last level, where intervals are at stake, all with a plausible median are decoded as CountSketch does it, then
once more without those that chance lifted. Only of a crowd, those stay out of whom the clear ones leave nearly nothing.
Nobody joins for what others leave of him alone, unless that is all that is needed: to pick among many by what is left
is to fit the noise, and intervals read off the rest would be too narrow.

**All levels.**

Level by level, every child of a prefix that survived is looked at, decoded jointly with the others that may
be frequent, and survives with an estimate of at least 0.6 of the threshold; at the last level, of the threshold itself.

The levels have independent noise and hash functions, so which keys reach the last level says nothing about their errors
there: an interval has to allow for having been picked among those looked at in the last level only.

The threshold is the lowest at which this works. How low that is depends on what joint decoding leaves of the tables,
and that on which keys are decoded, hence on the threshold. So thresholds are tried from the one that noise alone would
allow upwards, until one is as high as what its own search has left of every level asks for. The tables as they were
released tell one that always is.

No level keeps more than ``FRONTIER`` prefixes: beyond that the largest stay. A threshold that needs more is out of
reach of the table, unless the table is much wider than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt

from dpsketch import threads
from dpsketch._compiled import countsketch as kernels
from dpsketch._compiled.heavy import rows_reaching
from dpsketch.arrays import Floats
from dpsketch.noise import Noise
from dpsketch.sketches.countsketch.decoding import LEAST_ROWS, Decoded, joint_decode
from dpsketch.sketches.countsketch.estimates import MEDIAN, half_width, pseudo_cells, root_mean_square
from dpsketch.sketches.countsketch.messages import Exchange, Messages, find_twins, places_of, read_off
from dpsketch.sketches.heavy.spec import Keys, KeySpace

if TYPE_CHECKING:
    from dpsketch.sketches.heavy.sketch import PrivateHeavyHitters


# What a prefix above the last level needs, of the threshold.
INNER = 0.6
# Who has this part of what is needed is worth decoding; in the last level, if a crowd has, who is left this part of it.
PLAUSIBLE = 0.5
_CROWD, _DOUBTFUL = 1 << 13, 0.25
# How many standard errors a threshold must have at the last level (a million children are looked at, and none of them
# may pass by chance) and 0.6 of it above (where the next level takes back what passed by chance).
_LEAF_ERRORS = 5.5
_INNER_ERRORS = 3.5
# Of the 256 children of an absent prefix, no more than two may pass by their medians, or absent prefixes would multiply
# from level to level faster than joint decoding takes them back. It happens where heavy keys fill the table.
BRANCHING = 1 - 2 * 2 / 256
# Huber's estimate has 95% of the mean's efficiency under Gaussian noise.
_EFFICIENCY = 0.95
# How often those may join whom others had hidden. One that heavy keys hide in most rows shows only when those are in,
# and they may have been hidden themselves. When fewer than one in so many has just joined, nobody hides many any more.
_LOOKS, _MANY = 4, 16
# Sweeps before others are looked at, when many have joined whom chance lifted, and in the end; fewer if messages move
# by no more than this part of an estimate's error. What passes by mistake is taken back a level below.
_SWEEPS, _FEW_SWEEPS, _MOST_SWEEPS = 6, 2, 40
_SETTLED = 0.1
# Pseudo-keys that tell a level's error, to a few parts in a hundred.
_PSEUDO_KEYS = 5_000
# Degrees of freedom of the law by which readings are weighted as long as pseudo-keys have not chosen one.
_FREEDOM = 4.0
# Prefixes a thread at least.
_SHARE = 1 << 15

Places = npt.NDArray[np.int64]
Prints = npt.NDArray[np.uint64]


def scale_of_estimates(spread: float, rows: int) -> float:
    """Return the standard error of an estimate from ``rows`` cells with this spread."""
    return spread / math.sqrt(_EFFICIENCY * rows)


def smallest_reach(above: list[float], leaf: float) -> float:
    """Return the least threshold for these standard errors, of the levels above the leaf and of the leaf."""
    return max(_LEAF_ERRORS * leaf, *(_INNER_ERRORS / INNER * error for error in above))


@dataclass(frozen=True, slots=True, eq=False)
class Left:
    """What candidates have in a level, what they leave of its table, and the error of an absent key's estimate there.

    Attributes
    ----------
    values : numpy.ndarray
        Estimates of the candidates, in counters.
    remaining : numpy.ndarray
        The table without them.
    error : float
        Root mean square error of an absent key's estimate.
    alike : numpy.ndarray or float
        How many candidates no row tells from each, itself included: they have equal parts of what all of them have.
    """

    values: Floats
    remaining: Floats
    error: float
    alike: Floats | float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class PassedPrefixes:
    """The prefixes that have what is needed, largest first.

    Attributes
    ----------
    places : numpy.ndarray
        Their places among all that were looked at.
    values : numpy.ndarray
        Their estimates, in counters.
    order : numpy.ndarray
        Their places among the candidates.
    left : Left or Decoded or None
        The candidates and what they leave of the table; None where there was none.
    """

    places: Places
    values: Floats
    order: Places
    left: Left | Decoded | None

    @classmethod
    def of(cls, candidates: Places, left: Left | Decoded, needed: float, last: bool) -> PassedPrefixes:
        """Return the candidates whose estimate is at least what is needed.

        Of prefixes that no row tells apart, one may have all; the next level tells which.
        """
        sizes = left.values if last else left.alike * left.values
        order = np.argsort(-sizes, kind="stable")
        order = order[: np.count_nonzero(sizes >= needed)]
        return cls(candidates[order], left.values[order], order, left)


@dataclass(frozen=True, slots=True, eq=False)
class PrefixLevel:
    """One level's released table, the keys of its rows, its noise's standard deviation, and whether it is the last."""

    counters: Floats
    row_keys: Prints
    noise_scale: float
    last: bool

    def needs(self, left: Left | Decoded | None) -> float:
        """Return the least threshold that what was left of the table allows; of all of it where nothing was decoded."""
        if left is None:
            spread = max(self.noise_scale, float(np.median(np.abs(self.counters))) / 0.6745)
            left = Left(np.empty(0), self.counters, scale_of_estimates(spread, len(self.counters)))
        reach = _LEAF_ERRORS * left.error if self.last else _INNER_ERRORS / INNER * left.error
        return max(half_width(left.remaining, MEDIAN, BRANCHING) / INNER, reach)

    def frequent(self, prints: Prints, threshold: float, most: int | None) -> PassedPrefixes | None:
        """Return the prefixes whose estimate is at least what is needed; None if too many may be.

        Parameters
        ----------
        prints : numpy.ndarray
            Fingerprints of the prefixes to look at.
        threshold : float
            The threshold of the search, in counters.
        most : int or None
            Give up if more than so many have a plausible median.
        """
        needed = threshold if self.last else INNER * threshold
        plausible = self._reaching(self.counters, prints, PLAUSIBLE * needed)
        if len(plausible) == 0:
            return PassedPrefixes(plausible, np.empty(0), plausible, None)
        if most is not None and len(plausible) > most:
            return None
        if len(self.counters) < LEAST_ROWS or (self.last and len(plausible) <= _CROWD):
            return self._decoded(plausible, prints, needed)
        explanation = _Explanation(self, prints)
        rows = np.sort(kernels.row_values(self.counters, prints[plausible], self.row_keys), axis=1)
        explanation.join(plausible[rows[:, len(self.counters) // 4] >= needed], _SWEEPS)
        for _ in range(_LOOKS):
            hidden = explanation.left_with(self._reaching(explanation.remaining, prints, needed), needed)
            explanation.join(hidden, _SWEEPS)
            if _MANY * len(hidden) < len(explanation.held):
                break
        if self.last:
            explanation.join(explanation.left_with(plausible, _DOUBTFUL * needed), 0)
            return self._decoded(np.sort(explanation.held), prints, needed)
        explanation.join(explanation.left_with(plausible, PLAUSIBLE * needed), _FEW_SWEEPS)
        explanation.join(explanation.left_with(self._reaching(explanation.remaining, prints, needed), needed), 0)
        explanation.keep(PLAUSIBLE * needed)
        left = explanation.judged() or self._decode(prints[explanation.held])
        return PassedPrefixes.of(explanation.held, left, needed, last=False)

    def _decoded(self, held: Places, prints: Prints, needed: float) -> PassedPrefixes:
        """Return who has what is needed, decoded in full."""
        decoded = self._decode(prints[held])
        for _ in range(_LOOKS):
            more = np.setdiff1d(self._reaching(decoded.remaining, prints, needed), held)
            if len(more) == 0:
                break
            held = np.append(held, more)
            decoded = self._decode(prints[held], decoded)
        held = held[decoded.alike * decoded.values >= PLAUSIBLE * needed]
        return PassedPrefixes.of(held, self._decode(prints[held]), needed, self.last)

    def _decode(self, prints: Prints, start: Decoded | None = None) -> Decoded:
        return joint_decode(self.counters, prints, self.row_keys, self.noise_scale, start=start, resumable=self.last)

    def _reaching(self, table: Floats, prints: Prints, least: float) -> Places:
        """Return the places of those whose median over the rows is at least ``least``."""
        counts = np.empty(len(prints), np.uint16)  # of up to 1,023 rows

        def count(part: slice) -> None:
            rows_reaching(table, prints[part], self.row_keys, least, counts[part])

        threads.run([partial(count, part) for part in threads.parts(len(prints), _SHARE)])
        return np.flatnonzero(counts > len(table) // 2)


class _Explanation:
    """Candidates of one level and the messages between them and the cells; some join, some leave.

    Attributes
    ----------
    held : numpy.ndarray
        Their places among the prefixes.
    """

    def __init__(self, level: PrefixLevel, prints: Prints) -> None:
        self._level, self._prints = level, prints
        self.held = np.empty(0, np.int64)
        self._exchange = self._begun(Messages.silent(0, len(level.counters)))

    def _begun(self, sent: Messages) -> Exchange:
        level = self._level
        return Exchange(level.counters, self._prints[self.held], level.row_keys, level.noise_scale, False, sent)

    @property
    def remaining(self) -> Floats:
        """The table without the candidates' messages."""
        return self._exchange.left[0]

    def join(self, places: Places, sweeps: int) -> None:
        """Let more candidates join, and all exchange messages for so many sweeps, unless these settle before."""
        if len(places):
            self.held = np.append(self.held, places)
            self._exchange = self._begun(self._exchange.messages)
            self._sweep(sweeps)

    def left_with(self, places: Places, least: float) -> Places:
        """Return those of some prefixes, candidates aside, of whom at least so much is left."""
        others = np.setdiff1d(places, self.held, assume_unique=True)
        silent = Messages.silent(len(others), len(self._level.row_keys))
        return others[self._read(others, silent) >= least]

    def keep(self, least: float) -> None:
        """Let those leave who read less than ``least``, and the others go on until their messages settle."""
        staying = np.flatnonzero(self._read(self.held, self._exchange.messages) >= least)
        staying = staying[np.argsort(self.held[staying])]
        self.held = self.held[staying]
        self._exchange = self._begun(self._exchange.messages[staying])
        self._sweep(_MOST_SWEEPS)

    def judged(self) -> Left | None:
        """Return what the candidates have and leave; None where medians of the table itself had no larger error."""
        attempt = self._exchange.attempt(_PSEUDO_KEYS)
        if attempt.error >= root_mean_square(MEDIAN(pseudo_cells(self._level.counters)[:_PSEUDO_KEYS])):
            return None
        self._exchange.keep(attempt)
        twins = find_twins(self._prints[self.held], self._level.row_keys, self._level.counters.shape[1])
        alike = 1.0 if twins is None else twins.alike.astype(np.float64)
        return Left(self._exchange.values, attempt.remaining, attempt.error, alike)

    def _sweep(self, most: int) -> None:
        for _ in range(most if len(self.held) else 0):
            self._exchange.sweep()
            if self._exchange.has_settled(_SETTLED):
                break

    def _read(self, places: Places, sent: Messages) -> Floats:
        level = self._level
        cells, signs = places_of(self._prints[places], level.row_keys, level.counters.shape[1])
        values, _ = read_off(cells, signs, sent, 1.0, *self._exchange.left, _FREEDOM)
        return values.ravel()


FRONTIER = 1 << 14
# From one threshold to the next. A threshold holds if its search asks for no more than this much of it.
_LEAST_STEP, _LARGEST_STEP = 1.25, 2.0
NEARLY = 1.02
# More candidates for a cell than this, and more than this in all, are not worth decoding.
_CROWD_OF_WIDTH, _LEAST_CROWD = 8, 1 << 14
# The tail of the last level's errors is read off the table, and known to a factor only.
_TAIL_MARGIN = 4

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class FoundKeys:
    """Keys found, largest first.

    Attributes
    ----------
    keys : Keys
        The keys.
    values : numpy.ndarray
        Their estimates, in counters.
    places : numpy.ndarray
        Their places among what was decoded.
    decoded : Decoded or None
        The last level as it was decoded; None where nothing got that far.
    looked_at : int
        How many keys were looked at in the last level.
    threshold : float
        The threshold of the search, in counters.
    """

    keys: Keys
    values: Floats
    places: npt.NDArray[np.int64]
    decoded: Decoded | None
    looked_at: int
    threshold: float

    def half_widths(self, confidence: float) -> Floats:
        """Half-widths, in counters, of intervals that hold for all keys found at once."""
        if self.decoded is None:
            return np.empty(0)
        return self.decoded.far_half_widths(confidence_in_each(confidence, self.looked_at))[self.places]


def confidence_in_each(confidence: float, looked_at: int) -> float:
    """Return the confidence that each interval needs, so that all hold at once whichever keys are picked."""
    return 1 - (1 - confidence) / (_TAIL_MARGIN * looked_at)


def find(release: PrivateHeavyHitters, progress: Progress | None = None) -> FoundKeys:
    """Find all keys that this release tells from noise; ``progress`` is told of each level searched."""
    laws = _laws(release)
    alone = [scale_of_estimates(math.sqrt(law.variance), release.spec.rows) for law in laws]
    floor = smallest_reach([math.sqrt(release.noise.dense.variance), *alone[:-1]], alone[-1])
    sure = max(floor, *(_level(release, level).needs(None) for level in range(len(laws))))
    threshold = floor
    while threshold < sure:
        found = search(release, threshold, checked=True, progress=progress)
        if isinstance(found, FoundKeys):
            return found
        threshold = next_threshold(threshold, found.needed)
    return search(release, sure, progress=progress)


def next_threshold(threshold: float, needed: float) -> float:
    """Return what to try after a threshold whose own search asks for a higher one."""
    return max(_LEAST_STEP * threshold, min(needed, _LARGEST_STEP * threshold))


def most_candidates(width: int) -> int:
    """Return how many candidates a table of this width is worth decoding for."""
    return max(_LEAST_CROWD, _CROWD_OF_WIDTH * width)


@dataclass(frozen=True, slots=True)
class TooLow:
    """A threshold was too low for a level of the tree, which asks for another one."""

    needed: float


@overload
def search(release: PrivateHeavyHitters, threshold: float, *, progress: Progress | None = None) -> FoundKeys: ...
@overload
def search(
    release: PrivateHeavyHitters, threshold: float, *, checked: bool, progress: Progress | None = None
) -> FoundKeys | TooLow: ...
def search(
    release: PrivateHeavyHitters, threshold: float, *, checked: bool = False, progress: Progress | None = None
) -> FoundKeys | TooLow:
    """Find the keys whose count is at least a threshold (in counters).

    Parameters
    ----------
    release : PrivateHeavyHitters
        The tree.
    threshold : float
        The threshold.
    checked : bool
        Give up at a level that, as it was decoded, asks for a higher threshold.
    progress : callable, optional
        Is told after each level how many were searched, and how many there are.
    """
    space = release.spec.space
    counters = release.dense[:-1] if space.key_type == "text" else release.dense
    prefixes = space.from_cells(np.flatnonzero(counters >= INNER * threshold))
    ended: list[Keys] = []
    found = FoundKeys(space.join([]), np.empty(0), np.empty(0, np.int64), None, 0, threshold)
    for number in range(len(release.tables)):
        depth = space.dense_depth + number
        level = _level(release, number)
        reaching = prefixes.reaching(depth)
        if reaching is not None:
            # A text that has ended has nothing below it: it waits for the last level.
            ended.append(prefixes.take(np.flatnonzero(~reaching)))
            prefixes = prefixes.take(np.flatnonzero(reaching))
        children = _Children(space, prefixes, depth, space.join(ended if level.last else []))
        passed = level.frequent(children.prints(), threshold, most_candidates(release.spec.width) if checked else None)
        if passed is None:
            return TooLow(math.inf)
        if checked and level.needs(passed.left) > NEARLY * threshold:
            return TooLow(level.needs(passed.left))
        keys = children.take(passed.places)
        decoded = passed.left if isinstance(passed.left, Decoded) else None
        found = FoundKeys(keys, passed.values, passed.order, decoded, len(children), threshold)
        prefixes = keys.take(np.arange(min(len(keys), FRONTIER)))
        if progress is not None:
            progress(number + 1, len(release.tables))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Children:
    """All that goes on from some prefixes of one depth, and texts that have ended before."""

    space: KeySpace
    prefixes: Keys
    depth: int
    ended: Keys

    def __len__(self) -> int:
        return len(self.prefixes) * self.space.branches + len(self.ended)

    def prints(self) -> npt.NDArray[np.uint64]:
        """Return their fingerprints."""
        return np.append(self.prefixes.children_prints(self.depth), self.ended.prints())

    def take(self, places: npt.NDArray[np.int64]) -> Keys:
        """Return those at some places."""
        below = len(self.prefixes) * self.space.branches
        order = np.argsort(places >= below, kind="stable")
        first, last = np.split(places[order], [np.count_nonzero(places < below)])
        keys = self.space.join([self.prefixes.children(self.depth, first), self.ended.take(last - below)])
        return keys.take(np.argsort(order))


def _level(release: PrivateHeavyHitters, level: int) -> PrefixLevel:
    scale = math.sqrt(_laws(release)[level].variance)
    last = level == len(release.tables) - 1
    return PrefixLevel(release.tables[level].astype(np.float64), release.row_keys[level], scale, last)


def _laws(release: PrivateHeavyHitters) -> list[Noise]:
    return [release.noise.inner] * (len(release.tables) - 1) + [release.noise.leaf]
