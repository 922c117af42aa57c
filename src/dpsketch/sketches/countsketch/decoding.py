"""Joint decoding: estimate many candidate keys together, so that they stop hiding each other.

A collision is an error only as long as the other key's count is unknown. Given candidates, each cell is cleared of what
the *other rows* say its keys have: every key sends each of its cells a message, the expectation of its count given its
other rows, and all messages are renewed in turn until they settle. A key's count is then read off its cells, cleared of
the other keys' messages. Everything here is post-processing.

No cell is cleared by a message that has used that cell. So what is left of the table is what held-out rows leave, and
errors seen on it need no allowance for the freedom of a fit: pseudo-keys meet in it what a key meets. This is exact as
long as two keys share no two cells, and nearly so in wide tables. With fewer than three rows there is nothing to hold
out; there, and wherever pseudo-keys do not have less error than on the table as it was, the answer is that of plain
estimation. In a narrow table many keys share two cells and more; there intervals are those of plain estimation, widened
to lie around the value.

The prior of a count is a mixture of a zero and half-normal laws of all scales (normal ones where counts may be
negative), whose shares are learned from all keys. It moves the messages that a key sends, and so other keys' readings,
but no key's own. Given its reading, a key's count has a posterior mean. Over all keys that has the least error, because
it takes the small ones for nothing, and keys in the middle pay for it. So the default goes from the reading towards the
posterior mean, by less than half a standard error: limited translation (Efron and Morris 1972, JASA 67, 130–139), which
costs no key more than 8% of its error. Intervals are those of the reading, whatever is shown in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, assert_never

import numpy as np
import numpy.typing as npt

from dpsketch import threads
from dpsketch._compiled import countsketch as kernels
from dpsketch._compiled import expectation, messages
from dpsketch.sketches.countsketch.intervals import error_quantile, half_width, normal_quantile
from dpsketch.sketches.countsketch.location import (
    Location,
    choose_location,
    pseudo_cells,
    pseudo_places,
    root_mean_square,
)

__all__ = ["LEAST_ROWS", "Decoded", "Shown", "joint_decode"]

Floats = npt.NDArray[np.float64]
Shorts = npt.NDArray[np.float32]
Prints = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int32]
Signs = npt.NDArray[np.int8]

Shown = Literal["limited", "unshrunk", "posterior_mean"]

# Tables with fewer rows are not decoded jointly.
LEAST_ROWS = 3
# In a narrower table keys share so many cells that a row is not held out from the others: intervals are plain ones.
_NARROW = 64
_SWEEPS = 40
# After so many sweeps, so many rounds of four that gain nothing end the exchange.
_YOUTH = 12
_PATIENCE = 2
# A message moves by this part of the way in one sweep; all of it lets three rows swing for ever.
_STEP = 0.5
# Messages have settled when they still move by this part of an estimate's error. A key whose messages move by less than
# so many times the square of that is visited every fourth sweep only, when the whole is judged as well.
_SETTLED = 0.02
_ROUND = 4
_MOVING = 16.0
# Degrees of freedom of the law by which readings are weighted: in messages, and, to be chosen from, in the end.
# 0 is the mean and −1 the median.
_FREEDOM = 10.0
_READINGS: tuple[float, ...] = (0.0, 4.0, 1.5, -1.0)
# A later reading, and a later sweep, must promise this much less error.
_READING_GAIN = 0.99
_SWEEP_GAIN = 0.995
# The prior's scales grow by this factor, and so much of it is zero to begin with.
_RATIO = 4.0
_ZERO_SHARE = 0.9
# The median of the square of a standard normal variable.
_MEDIAN_SQUARE = 0.4549
# How much of the variance of a key's own messages its reading is free of. All of it is, where keys share no two cells.
_OWN = 0.75
# How many standard errors a value may be moved towards its posterior mean. The least that is enough to be as good as
# least squares over all keys, where nearly all of them are nothing, is a third.
_FARTHEST = 0.4
# Steps by which a prior is learned from plain estimates.
_STEPS = 20
# How much of a normal law lies within one standard deviation.
_ONE_DEVIATION = 0.6827
# Noise that rounds to nothing still has to be divided by.
_LEAST_SCALE = 1e-4
# Keys whose cells are worked out at a time. They are not kept: to hash again costs less than to hold.
_CHUNK = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class _Messages:
    """What each key's other rows say of its count, in each row, and the variance of that: bases + offsets, variances.

    This is all that is held of a key between sweeps: 8 bytes, and 8 more a row.
    """

    bases: Floats
    offsets: Shorts
    variances: Shorts

    @classmethod
    def silent(cls, keys: int, rows: int) -> _Messages:
        """Return messages that say nothing yet."""
        return cls(np.zeros(keys), np.zeros((keys, rows), np.float32), np.zeros((keys, rows), np.float32))

    def __len__(self) -> int:
        return len(self.bases)

    def __getitem__(self, part: slice) -> _Messages:
        return _Messages(self.bases[part], self.offsets[part], self.variances[part])

    def copy_to(self, other: _Messages) -> None:
        """Write these messages over those of the first keys of another exchange."""
        other.bases[: len(self)] = self.bases
        other.offsets[: len(self)] = self.offsets
        other.variances[: len(self)] = self.variances


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A jointly decoded table.

    Attributes
    ----------
    values : numpy.ndarray
        What was read of each candidate, in counters: not shrunk.
    errors : numpy.ndarray
        The standard error of each.
    remaining : numpy.ndarray
        The table without the candidates' messages; the table itself where plain estimation was better.
    spreads : numpy.ndarray
        The variance of each of its cells.
    reading : Location or float
        How keys are read off it: plainly, or weighted by Student's law with so many degrees of freedom.
    errors_seen : numpy.ndarray
        Errors of pseudo-keys on ``remaining``, in counters.
    scores : numpy.ndarray
        The same over their standard errors.
    noise_scale : float
        Standard deviation of the noise in one counter.
    messages : _Messages
        What each candidate's other rows say of its count; nothing where plain estimation was better.
    prior : _Prior
        The law of counts that was learned; where plain estimation was better, one to begin with.
    plain : Decoded or None
        Of a narrow table: what plain estimation says.
    """

    values: Floats
    errors: Floats
    remaining: Floats
    spreads: Floats
    reading: Location | float
    errors_seen: Floats
    scores: Floats
    noise_scale: float
    messages: _Messages
    prior: _Prior
    plain: Decoded | None = None

    @property
    def error(self) -> float:
        """Root mean square error of an absent key's estimate."""
        return root_mean_square(self.errors_seen)

    def half_widths(self, confidence: float) -> Floats:
        """Half-widths, in counters, of an interval around each value."""
        if isinstance(self.reading, Location):
            return np.full(len(self.values), half_width(self.remaining, self.reading, confidence))
        root = math.sqrt(len(self.remaining))
        cells = self.remaining / np.sqrt(self.spreads)
        # All rows have the same keys, so that what they say of the errors is what one of them says.
        freedom = self.remaining.shape[1] - 1
        quantile = root * error_quantile(np.abs(self.scores) / root, cells, confidence, freedom)
        # No estimate is better than the mean of rows that collide with nothing.
        half: Floats = np.maximum(quantile * self.errors, normal_quantile(confidence) * self.noise_scale / root)
        if self.plain is not None:
            half = np.maximum(half, np.abs(self.values - self.plain.values) + self.plain.half_widths(confidence))
        return half

    def far_half_widths(self, confidence: float) -> Floats:
        """Half-widths for a confidence close to 1, as many intervals that are to hold at once need it.

        A key's own error says little about its far tail: rows that disagree widen it beyond what any key would need.
        So a key has the narrower of its own interval and one that is the same for all. Each of them fails with half of
        the probability allowed, and costs hardly more that far out.
        """
        each = (1 + confidence) / 2
        own = self.half_widths(each)
        if isinstance(self.reading, Location) or self.plain is not None:
            return own
        alike = error_quantile(np.abs(self.errors_seen), self.remaining, each, self.remaining.shape[1] - 1)
        return np.minimum(own, alike)

    def shown(self, what: Shown) -> Floats:
        """Return what is shown of each candidate; of plain estimates, they themselves unless the mean is asked for."""
        match what:
            case "unshrunk":
                return self.values
            case "posterior_mean":
                return self._expected()
            case "limited":
                if isinstance(self.reading, Location):
                    return self.values
                farthest = _FARTHEST * self.errors
                moved: Floats = self.values + np.clip(self._expected() - self.values, -farthest, farthest)
                return moved
            case _:
                assert_never(what)

    def _expected(self) -> Floats:
        if not isinstance(self.reading, Location):
            return self.prior.expect(self.values, self.errors**2)[0]
        # Plain errors are often those of a few heavy keys: what most of them stay within is the scale of the others.
        usual = float(np.quantile(np.abs(self.errors_seen), _ONE_DEVIATION))
        least = self.noise_scale / math.sqrt(len(self.remaining))
        variances = np.full(len(self.values), max(usual, least, _LEAST_SCALE) ** 2)
        prior = self.prior
        for _ in range(_STEPS):
            prior = prior.learned(prior.expect(self.values, variances)[1])
        return prior.expect(self.values, variances)[0]

    def of_all(self, prints: Prints, row_keys: Prints) -> Decoded:
        """Return the same of other candidates, all of them read as if they were absent."""
        return replace(self, values=self.read(prints, row_keys), errors=np.full(len(prints), self.error))

    def read(self, prints: Prints, row_keys: Prints) -> Floats:
        """Estimate keys that were not among the candidates."""
        found = np.empty(len(prints))
        for start in range(0, len(prints), _CHUNK):
            piece = prints[start : start + _CHUNK]
            if isinstance(self.reading, Location):
                values = self.reading(kernels.row_values(self.remaining, piece, row_keys))
            else:
                places, signs = _places(piece, row_keys, self.remaining.shape[1])
                silent = _Messages.silent(len(piece), len(row_keys))
                left = (self.remaining, self.spreads, self.noise_scale)
                values, _ = _read(places, signs, silent, 1.0, *left, self.reading)
            found[start : start + _CHUNK] = values
        return found


def joint_decode(
    table: npt.NDArray[np.int64] | npt.NDArray[np.float64],
    prints: Prints,
    row_keys: Prints,
    noise_scale: float,
    *,
    signed: bool = False,
    start: Decoded | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Decoded:
    """Estimate candidates together.

    Parameters
    ----------
    table : numpy.ndarray
        The released counters.
    prints : numpy.ndarray
        Distinct fingerprints.
    row_keys : numpy.ndarray
        The keys of the rows.
    noise_scale : float
        Standard deviation of the noise in one counter.
    signed : bool
        Whether counts may be negative, as in a difference of releases.
    start : Decoded, optional
        The table as it was decoded with the first of these candidates.
    progress : callable, optional
        Is told after each sweep how many there were, and how many there are at most.
    """
    counters = table.astype(np.float64)
    plain = _plain(counters, noise_scale, signed)
    if len(table) < LEAST_ROWS or len(prints) == 0:
        return plain.of_all(prints, row_keys)
    exchange = _Exchange(counters, prints, row_keys, noise_scale, signed)
    if start is not None:
        exchange.resume(start)
    kept, least = None, plain.error
    wasted, settled = 0, False
    while not settled:
        exchange.sweep()
        if progress is not None:
            progress(exchange.sweeps, _SWEEPS)
        settled = exchange.has_settled() or exchange.sweeps == _SWEEPS
        if settled or exchange.sweeps % _ROUND == 0:
            attempt = exchange.attempt()
            wasted += 1
            if attempt.error < least:
                kept, least, wasted = exchange.keep(attempt), _SWEEP_GAIN * attempt.error, 0
            settled = settled or (wasted >= _PATIENCE and not exchange.is_young)
    if kept is None:
        return plain.of_all(prints, row_keys)
    found = exchange.decoded(kept)
    return replace(found, plain=plain.of_all(prints, row_keys)) if table.shape[1] < _NARROW else found


def _plain(counters: Floats, noise_scale: float, signed: bool) -> Decoded:
    """Return what plain estimation says, as yet of no key."""
    location = choose_location(counters, noise_scale)
    seen = location(pseudo_cells(counters))
    empty = np.empty(0)
    silent = _Messages.silent(0, len(counters))
    prior = _Prior.of(counters, noise_scale, signed)
    return Decoded(empty, empty, counters, empty, location, seen, empty, noise_scale, silent, prior)


def _places(prints: Prints, row_keys: Prints, width: int) -> tuple[Places, Signs]:
    """Return the cells of keys, numbered row after row, and their signs there."""
    buckets, signs = kernels.cells(prints, row_keys, width)
    return buckets + np.arange(len(row_keys), dtype=np.int32) * np.int32(width), signs


def _read(
    places: Places,
    signs: Signs,
    sent: _Messages,
    own: float,
    remaining: Floats,
    spreads: Floats,
    noise_scale: float,
    freedom: float,
) -> tuple[Floats, Floats]:
    """Read keys off what is left of a table: values, and variances if they are free of so much of their messages'."""
    values, variances = np.empty(len(places)), np.empty(len(places))
    state = (sent.bases, sent.offsets, sent.variances)
    left = (remaining.ravel(), spreads.ravel(), noise_scale**2)
    messages.read(places, signs, *state, own, *left, freedom, values, variances)
    return values, variances


@dataclass(frozen=True, slots=True, eq=False)
class _Prior:
    """The law of counts: a mixture of a zero and of normal laws, or of their sizes where counts are not negative."""

    weights: Floats
    scales: Floats
    signed: bool

    @classmethod
    def of(cls, counters: Floats, noise_scale: float, signed: bool) -> _Prior:
        """Return the law to begin with: all scales that the counters could tell."""
        noise_scale = max(noise_scale, _LEAST_SCALE)
        largest = max(float(np.abs(counters).max()), 4 * noise_scale)
        finest = 0.5 * noise_scale / math.sqrt(len(counters))
        parts = math.ceil(math.log(largest / finest) / math.log(_RATIO)) + 1
        scales = np.append(0.0, np.geomspace(finest, largest, parts) ** 2)
        return cls(np.append(_ZERO_SHARE, np.full(parts, (1 - _ZERO_SHARE) / parts)), scales, signed)

    def learned(self, keys: Floats) -> _Prior:
        """Return the law in which each part has its share of the keys."""
        return replace(self, weights=(keys + 0.5) / (keys.sum() + 0.5 * len(keys)))

    def expect(self, readings: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Return the mean of each count given its reading, and how many keys each part has."""
        means, keys = np.empty(len(readings)), np.zeros(len(self.weights))
        for start in range(0, len(readings), _CHUNK):
            part = slice(start, start + _CHUNK)
            some = readings[part].copy()
            shares = np.empty((len(keys), len(some)))
            law = (self.weights, self.scales, self.signed)
            expectation.expect(some, variances[part], *law, means[part], np.empty(len(some)), shares)
            keys += shares.sum(axis=1)
        return means, keys


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """What is left of the table after some sweep, and how pseudo-keys are best read off it."""

    remaining: Floats
    spreads: Floats
    freedom: float
    seen: Floats
    scores: Floats
    error: float
    prior: _Prior


class _Exchange:
    """Messages between candidates and cells, renewed sweep by sweep."""

    def __init__(self, counters: Floats, prints: Prints, row_keys: Prints, noise_scale: float, signed: bool) -> None:
        self.sweeps = 0
        self._counters = counters
        self._prints, self._row_keys = prints, row_keys
        self._scale = max(noise_scale, _LEAST_SCALE)
        self._pseudo = pseudo_places(*counters.shape)
        self._messages = _Messages.silent(len(prints), len(counters))
        self._kept: _Messages | None = None
        self._changes = np.full(len(prints), np.inf, np.float32)
        self._moving = 0.0
        self._prior = _Prior.of(counters, self._scale, signed)
        # How many keys of each part of the prior a chunk has: among those that moved last time, and among the others.
        self._chunks = [slice(start, start + _CHUNK) for start in range(0, len(prints), _CHUNK)]
        self._keys = np.zeros((len(self._chunks), 2, len(self._prior.weights)))
        self._clear()

    def resume(self, start: Decoded) -> None:
        """Go on from what some of the candidates, the first ones, have sent before."""
        start.messages.copy_to(self._messages)
        self._clear()

    def _clear(self) -> None:
        """Clear the cells of the messages, and find the spread of what is left: noise, messages, and unlisted keys."""
        means, known = np.zeros(self._counters.shape), np.zeros(self._counters.shape)

        def gather(rows: slice) -> None:
            for chunk in self._chunks:
                places, signs = _places(self._prints[chunk], self._row_keys[rows], self._counters.shape[1])
                sent = self._messages[chunk]
                state = (sent.bases, sent.offsets[:, rows], sent.variances[:, rows])
                messages.gather(places, signs, *state, means[rows].ravel(), known[rows].ravel())

        # A row is added up by one thread, so that the bits do not depend on their number.
        threads.run([partial(gather, part) for part in threads.parts(len(self._row_keys), 1)])
        self._remaining = self._counters - means
        spreads = self._scale**2 + known
        unlisted = float(np.median(self._remaining**2 / _MEDIAN_SQUARE - spreads))
        self._spreads = spreads + max(0.0, unlisted)

    def _tolerance(self) -> float:
        """Return the mean square by which messages may still move."""
        crowd = max(1.0, float(len(self._prints) / self._counters.shape[1]))
        variance = float(np.mean(self._spreads)) / len(self._counters)
        return _SETTLED**2 * variance / crowd

    @property
    def is_young(self) -> bool:
        """Whether too little was exchanged to judge it."""
        return self.sweeps < _YOUTH

    def sweep(self) -> None:
        """Renew the messages, all of them once in a round and otherwise those that still move."""
        everyone = self.sweeps < _ROUND or self.sweeps % _ROUND == 0
        limit = _MOVING * self._tolerance()
        if everyone:
            self._changes[:] = np.inf
            self._keys[:] = 0.0

        def renew(part: slice) -> None:
            for chunk, keys in zip(self._chunks[part], self._keys[part], strict=True):
                changes, sent = self._changes[chunk], self._messages[chunk]
                places, signs = _places(self._prints[chunk], self._row_keys, self._counters.shape[1])
                keys[1] = 0.0
                messages.sweep(
                    places,
                    signs,
                    sent.bases,
                    sent.offsets,
                    sent.variances,
                    np.flatnonzero(changes > self._moving),
                    self._remaining.ravel(),
                    self._spreads.ravel(),
                    self._scale**2,
                    self._prior.weights,
                    self._prior.scales,
                    self._prior.signed,
                    _FREEDOM,
                    1.0 if self.sweeps == 0 else _STEP,
                    limit,
                    changes,
                    keys,
                )

        # Every key writes its own messages only, so that the bits do not depend on the number of threads.
        threads.run([partial(renew, part) for part in threads.parts(len(self._chunks), 1)])
        self._moving = limit
        self._prior = self._prior.learned(self._keys.sum(axis=(0, 1)))
        self.sweeps += 1
        self._clear()

    def has_settled(self) -> bool:
        """Whether the messages have stopped moving."""
        return self.sweeps > _ROUND and float(np.mean(self._changes, dtype=np.float64)) < self._tolerance()

    def attempt(self) -> _Attempt:
        """Find the reading that suits what is left of the table, by pseudo-keys."""
        places, signs = self._pseudo
        silent = _Messages.silent(len(places), len(self._counters))
        left = (self._remaining, self._spreads, self._scale)
        tried: dict[float, tuple[Floats, Floats]] = {}

        def attempt(part: slice) -> None:
            for freedom in _READINGS[part]:
                tried[freedom] = _read(places, signs, silent, 1.0, *left, freedom)

        threads.run([partial(attempt, part) for part in threads.parts(len(_READINGS), 1)])
        best: tuple[float, float] | None = None
        for freedom in _READINGS:
            error = root_mean_square(tried[freedom][0])
            if best is None or error < _READING_GAIN * best[0]:
                best = error, freedom
        assert best is not None
        error, freedom = best
        seen, variances = tried[freedom]
        return _Attempt(self._remaining, self._spreads, freedom, seen, seen / np.sqrt(variances), error, self._prior)

    def keep(self, attempt: _Attempt) -> _Attempt:
        """Keep the messages of this attempt, which later sweeps change."""
        if self._kept is None:
            self._kept = _Messages.silent(len(self._messages), len(self._counters))
        self._messages.copy_to(self._kept)
        return attempt

    def decoded(self, kept: _Attempt) -> Decoded:
        """Read the candidates off what the attempt that was kept has left."""
        assert self._kept is not None
        self._messages = self._kept  # lets go of the last sweep's
        sent, left = self._kept, (kept.remaining, kept.spreads, self._scale)
        values, errors = np.empty(len(self._prints)), np.empty(len(self._prints))

        def read(part: slice) -> None:
            for chunk in self._chunks[part]:
                places, signs = _places(self._prints[chunk], self._row_keys, self._counters.shape[1])
                values[chunk], variances = _read(places, signs, sent[chunk], _OWN, *left, kept.freedom)
                errors[chunk] = np.sqrt(variances)

        threads.run([partial(read, part) for part in threads.parts(len(self._chunks), 1)])
        return Decoded(
            values,
            errors,
            kept.remaining,
            kept.spreads,
            kept.freedom,
            kept.seen,
            kept.scores,
            self._scale,
            sent,
            kept.prior,
        )
